"""What a new user meets: wrong uses that say what to do, and an editor that knows the settings and the types."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

import turnlog
from turnlog import Busy, ProviderError, StoreError, TurnlogError, UsageError
from turnlog.testing import ScriptedProvider

HOLDER = """
import sys, turnlog
with turnlog.connect(sys.argv[1], home="/nonexistent", model_name="offline") as t:
    chat = t.session("ann")
    chat.append({"role": "user", "content": "mine"})
    with chat.lease():
        print("held", flush=True)
        sys.stdin.readline()
"""


def connected(url="memory:", **settings):
    return turnlog.connect(url, home="/nonexistent", **settings)


def asked(**settings):
    with connected(**settings) as t:
        return t.session("ann").ask("hi")


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)


WRONG = {
    "unknown model": (lambda: asked(model_name="claude-opus"), UsageError, "anthropic:claude-opus"),
    "missing key": (lambda: asked(model_name="openai:gpt-5.5"), ProviderError, "OPENAI_API_KEY"),
    "misspelt setting": (lambda: connected(modle_name="offline"), UsageError, "model_name"),
    "misspelt argument": (lambda: connected().session("ann", usr="ann"), UsageError, "user"),
    "wrong value": (lambda: connected(store_durability="maybe"), UsageError, "store.durability"),
    "wrong URL": (lambda: connected("mysql://localhost/x"), UsageError, "postgresql://"),
    "no such folder": (lambda: connected("sqlite:/proc/no/x.db"), StoreError, "Check"),
    "unknown agent": (lambda: connected().session(user="ann", agent="nobody").ask("hi"), UsageError, "agents.nobody"),
    "nothing to send": (lambda: connected().session("ann").ask(""), UsageError, "text"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_use_is_an_error_of_ours_that_says_what_to_do(case):
    use, kind, word = WRONG[case]
    with pytest.raises(kind) as raised:
        use()
    assert isinstance(raised.value, TurnlogError)
    assert word in f"{raised.value} {raised.value.hint}"
    assert raised.value.hint


def test_a_store_of_a_newer_version_is_refused_and_not_changed(tmp_path):
    path = tmp_path / "s.db"
    with connected(f"sqlite:{path}", provider=ScriptedProvider()) as t:
        t.session("ann").ask("hi")
    database = apsw.Connection(str(path))
    database.execute("PRAGMA user_version = 999")
    database.close()
    with pytest.raises(TurnlogError, match="newer Turnlog") as raised:
        connected(f"sqlite:{path}")
    assert raised.value.hint


def test_a_second_process_is_told_who_holds_the_session(tmp_path):
    url = f"sqlite:{tmp_path}/s.db"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout.readline() == "held\n"
        with (
            connected(url, provider=ScriptedProvider()) as t,
            pytest.raises(Busy) as raised,
            t.session("ann").lease(wait_s=0),
        ):
            pass
        assert str(holder.pid) in raised.value.holder
        assert raised.value.hint
        holder.communicate("\n")


SCRIPT = """
import turnlog

with turnlog.connect("memory:", model_name="offline", store_durability="os", agents={"a": {"system": "x"}}) as t:
    chat = t.session("ann")
    text: str = chat.ask("hi")
    for event in chat.send("hi"):
        if event.type == "text_delta":
            piece: str = event.text
        match event:
            case turnlog.Done(session_id=name):
                print(name)
            case _:
                pass
    title: str = chat.title
    roles = [message["role"] for message in chat.history(shape="openai")]
    system: str = chat.history().system


async def main() -> None:
    t = await turnlog.aconnect(session_history_limit=4)
    print(await t.session("ann").ask("hi"))
    await t.aclose()
    async with turnlog.open(queue_mode="collect") as other:
        print((await other.session("ann")).title)
"""
MISTAKES = {
    'model_name="offline"': 'modle_name="offline"',
    'store_durability="os"': 'store_durability="maybe"',
    '{"system": "x"}': '{"sistem": "x"}',
    'event.type == "text_delta"': 'event.type == "text_dleta"',
    "chat.title": "chat.titel",
    'shape="openai"': 'shape="gemini"',
    "session_history_limit=4": 'session_history_limit="4"',
    'queue_mode="collect"': 'quue_mode="collect"',
    "text: str = chat.ask": "text: int = chat.ask",
}


def test_a_strict_type_checker_accepts_a_users_script_and_finds_each_mistake(tmp_path):
    """All in one run: the checker takes seconds to start."""
    (tmp_path / "right.py").write_text(SCRIPT, encoding="utf-8")
    for number, (right, wrong) in enumerate(MISTAKES.items()):
        assert right in SCRIPT
        (tmp_path / f"wrong{number}.py").write_text(SCRIPT.replace(right, wrong), encoding="utf-8")
    environment = Path(sys.prefix)
    config = {"typeCheckingMode": "strict", "venvPath": str(environment.parent), "venv": environment.name}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "-p", str(tmp_path)], capture_output=True, text=True, timeout=300
    )
    lines = [line for line in done.stdout.splitlines() if " - error: " in line]
    assert [line for line in lines if "right.py" in line] == []
    for number, wrong in enumerate(MISTAKES.values()):
        assert any(f"wrong{number}.py" in line for line in lines), f"{wrong}\n{done.stdout}"


SLOW = """
import signal, turnlog
from turnlog.testing import ScriptedProvider

signal.signal(signal.SIGINT, signal.default_int_handler)
slow = ScriptedProvider([{"text": "never", "delay_ms": 3_600_000}])
with turnlog.connect("memory:", home="/nonexistent", provider=slow) as t:
    chat = t.session("ann")
    for event in chat.watch():
        if isinstance(event, turnlog.Opened):
            print("asking", flush=True)
            chat.ask("hi")
"""


def test_an_interrupt_ends_a_script_that_waits_for_an_answer():
    asking = subprocess.Popen([sys.executable, "-c", SLOW], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with asking:
        assert asking.stdout.readline() == "asking\n"
        asking.send_signal(signal.SIGINT)
        _, error = asking.communicate(timeout=300)
    assert error.rstrip().endswith("KeyboardInterrupt")
    assert asking.returncode != 0
