"""The store that adapters share: one for each place and process, from any loop, thread or library."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import turnlog
from turnlog.adapters import resident as residents
from turnlog.adapters.resident import AdapterClosed, Lent, Resident, holder
from turnlog.core.entries import User
from turnlog.errors import UsageError

KEY = "agent:main:test:direct:ann"


async def identity(t):
    return id(t)


async def add(t, words="hi"):
    return [entry.seq for entry in await t.append(KEY, User(content=words))]


async def said(t):
    row = await t.session(KEY)
    return [entry.content for entry in await t.store.read(row.id) if isinstance(entry, User)]


def test_two_urls_of_one_file_are_one_store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    urls = ["sqlite:a.db", "sqlite:./a.db", f"sqlite:{tmp_path}/a.db", f"sqlite:{tmp_path}/link/a.db"]
    claims = [Resident(url) for url in urls]
    assert len({claim.wait(identity) for claim in claims}) == 1
    for claim in claims:
        claim.close()


def test_memory_is_private_to_the_object():
    one, other = Resident("memory:"), Resident("memory:")
    one.wait(add)
    assert other.wait(said) == []
    assert one.wait(said) == ["hi"]


def test_nothing_is_opened_before_it_is_used(tmp_path):
    claim = Resident(f"sqlite:{tmp_path}/a.db")
    assert not (tmp_path / "a.db").exists()
    claim.close()


def test_the_last_claim_closes_the_store_and_the_object_stays_closed(tmp_path):
    url = f"sqlite:{tmp_path}/a.db"
    one, other = Resident(url), Resident(url)
    first = one.wait(identity)
    other.wait(identity)
    one.close()
    assert other.wait(identity) == first
    other.close()
    with pytest.raises(AdapterClosed):
        one.wait(identity)
    with pytest.raises(RuntimeError):
        other.wait(identity)
    assert residents.place_of(url) not in residents._shared


def test_a_forgotten_object_leaves_the_store_open_for_the_next_one(tmp_path):
    url = f"sqlite:{tmp_path}/a.db"
    first = Resident(url).wait(identity)
    gc.collect()
    again = Resident(url)
    assert again.wait(identity) == first
    again.close()


def test_many_loops_and_threads_use_one_store(tmp_path):
    claim = Resident(f"sqlite:{tmp_path}/a.db")

    def loop():
        asyncio.run(claim.call(add))

    threads = [threading.Thread(target=loop) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(claim.wait(said)) == 4
    claim.close()


def test_a_synchronous_caller_inside_a_running_loop_is_answered(tmp_path):
    claim = Resident(f"sqlite:{tmp_path}/a.db")

    async def main():
        return claim.wait(add)

    assert asyncio.run(main())
    claim.close()


def test_trio_callers_are_answered(tmp_path):
    trio = pytest.importorskip("trio")
    for url in (f"sqlite:{tmp_path}/a.db", "memory:"):
        claim = Resident(url)
        trio.run(claim.call, add)
        assert trio.run(claim.call, said) == ["hi"]
        claim.close()


def test_a_cancelled_caller_learns_the_outcome_first_however_often_it_is_cancelled(tmp_path):
    claim = Resident(f"sqlite:{tmp_path}/a.db")
    done = []

    async def main():
        started = asyncio.Event()
        loop = asyncio.get_running_loop()

        async def work(t):
            loop.call_soon_threadsafe(started.set)
            await asyncio.sleep(0.05)
            done.append(await add(t))

        task = asyncio.create_task(claim.call(work))
        await started.wait()
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done

    asyncio.run(main())
    claim.close()


def test_a_lent_turnlog_is_used_in_its_own_loop():
    async def main():
        async with turnlog.open("memory:") as t:
            lent = holder(None, t)
            assert isinstance(lent, Lent)
            seen = []

            async def work(given):
                seen.append((given is t, asyncio.get_running_loop()))

            await lent.call(work)
            assert seen == [(True, asyncio.get_running_loop())]
            with pytest.raises(UsageError):
                lent.wait(work)
            assert await asyncio.to_thread(lent.wait, said) == []
            lent.close()
            with pytest.raises(AdapterClosed):
                await lent.call(work)
            assert (await t.session(KEY)).key == KEY

    asyncio.run(main())


def test_a_wrong_url_is_refused_at_first_use_and_a_wrong_type_at_once():
    claim = Resident("mysql:host/db")
    with pytest.raises(UsageError, match="mysql"):
        claim.wait(identity)
    with pytest.raises(UsageError):
        Resident(3)
    with pytest.raises(UsageError):
        holder("memory:", object())
    with pytest.raises(UsageError):
        holder(None, object())


def test_without_a_url_it_is_the_store_of_the_settings(tmp_path, monkeypatch):
    monkeypatch.setenv("TURNLOG_HOME", str(tmp_path))
    claim = Resident()
    claim.wait(add)
    claim.close()

    async def read():
        async with turnlog.open(home=tmp_path) as t:
            return await said(t)

    assert asyncio.run(read()) == ["hi"]


FORK = """
import asyncio, os, sys
from turnlog.adapters.resident import Resident
from turnlog.core.entries import User
KEY = "agent:main:test:direct:ann"
async def add(t):
    await t.append(KEY, User(content=str(os.getpid())))
async def count(t):
    row = await t.session(KEY)
    return len([e for e in await t.store.read(row.id) if isinstance(e, User)])
async def identity(t):
    return id(t)
claim, other = Resident(sys.argv[1]), Resident(sys.argv[1])
claim.wait(add)
other.wait(identity)
child = os.fork()
if child == 0:
    claim.wait(add)
    os._exit(claim.wait(identity) != other.wait(identity))
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
claim.wait(add)
print(claim.wait(count))
"""


@pytest.mark.parametrize("scheme", ["sqlite", "jsonl"])
def test_a_forked_child_opens_anew_and_everything_is_closed_at_the_end(scheme, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FORK, f"{scheme}:{tmp_path}/store"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "3"
    assert "Error" not in done.stderr
    assert not list(Path(tmp_path).glob("*-wal")) or os.path.getsize(next(Path(tmp_path).glob("*-wal"))) == 0


def test_an_adapter_without_its_framework_names_the_extra():
    code = (
        "import sys\n"
        "for name in ('agents', 'langgraph', 'claude_agent_sdk'): sys.modules[name] = None\n"
        "for name in ('openai_agents', 'langgraph', 'claude_agent_sdk'):\n"
        "    try: __import__('turnlog.adapters.' + name)\n"
        "    except ImportError as error: print(error)\n"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for extra in ("openai-agents", "langgraph", "claude"):
        assert f'pip install "turnlog[{extra}]"' in told
