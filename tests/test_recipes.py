"""The recipes of docs/how-to/sdks.md run as they are, against a server that stands for the model's."""

import asyncio
import os
import runpy
import threading
from pathlib import Path

import pytest

import turnlog
from tests.providers.wire import PROXIES, Refused, Said, Wire

from .shapes.test_calls import MESSAGE

RECIPES = Path(__file__).parents[1] / "examples" / "recipes"
LINES_MAX = 20
"""Of code, without the docstring and blank lines."""


@pytest.fixture(scope="module")
def wire():
    with Wire() as wire:
        yield wire


@pytest.fixture
def place(wire, tmp_path, monkeypatch):
    for name in (*PROXIES, *(name for name in os.environ if name.startswith("TURNLOG_"))):
        monkeypatch.delenv(name, raising=False)
    for name, value in {
        "TURNLOG_HOME": str(tmp_path),
        "TURNLOG_MODEL_NAME": "offline",
        "OPENAI_API_KEY": "k",
        "OPENAI_BASE_URL": wire.openai_url,
        "ANTHROPIC_API_KEY": "k",
        "ANTHROPIC_BASE_URL": wire.anthropic_url,
    }.items():
        monkeypatch.setenv(name, value)
    return tmp_path


def stored(user="ann"):
    with turnlog.connect() as t:
        return [(message["role"], message["content"]) for message in t.session(user).messages(shape="openai")]


SAID = [
    ("user", "My name is Ann."),
    ("assistant", "Hello Ann."),
    ("user", "And what is my name?"),
    ("assistant", "Ann."),
]


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.py")), ids=lambda path: path.stem)
def test_a_recipe_is_short_and_on_the_page(path):
    text = path.read_text(encoding="utf-8")
    assert len([line for line in text.splitlines()[1:] if line.strip()]) <= LINES_MAX
    assert text in (RECIPES.parents[1] / "docs" / "how-to" / "sdks.md").read_text(encoding="utf-8")


def test_openai(wire, place, capsys):
    pytest.importorskip("openai")
    wire.say(Said(text="Hello Ann."), Said(text="Ann."))
    runpy.run_path(str(RECIPES / "openai_sdk.py"))
    assert capsys.readouterr().out == "Hello Ann.\nAnn."
    assert wire.requests[-1].body["messages"][0] == {"role": "system", "content": "Be brief."}
    assert stored() == SAID


def test_anthropic(wire, place, capsys):
    pytest.importorskip("anthropic")
    for text in ("Hello Ann.", "Ann."):
        wire.say(Refused(200, {**MESSAGE, "content": [{"type": "text", "text": text}]}))
    runpy.run_path(str(RECIPES / "anthropic_sdk.py"))
    assert capsys.readouterr().out == "Hello Ann.\nAnn.\n"
    assert wire.requests[-1].body["system"] == "Be brief."
    assert stored() == SAID


def test_litellm(wire, place, capsys):
    pytest.importorskip("litellm", reason="its pins conflict with those of other packages under test")
    wire.say(Said(text="Hello Ann."), Said(text="Ann."))
    runpy.run_path(str(RECIPES / "litellm_model.py"))
    assert capsys.readouterr().out == "Hello Ann.\nAnn.\n"


def test_fastapi(place):
    pytest.importorskip("fastapi")
    from starlette.testclient import TestClient

    app = runpy.run_path(str(RECIPES / "fastapi_chat.py"))["app"]
    with TestClient(app) as client:
        assert client.post("/chat/ann", params={"text": "My name is Ann."}).status_code == 200
        assert "My name is Ann." in client.post("/chat/ann", params={"text": "And what is my name?"}).text
        assert "Ann" not in client.post("/chat/agent:main:app:direct:ann", params={"text": "What is my name?"}).text
    assert stored()[0] == ("user", "My name is Ann.")


PROGRAM = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]


def test_the_program_of_the_readme_in_a_handler_of_fastapi_and_in_two_threads(place, capsys):
    fastapi = pytest.importorskip("fastapi")
    from starlette.testclient import TestClient

    app = fastapi.FastAPI()

    @app.get("/sync")
    def in_a_thread_of_the_server():
        exec(PROGRAM, {})

    @app.get("/async")
    async def in_its_running_loop():
        exec(PROGRAM, {})

    with TestClient(app) as client:
        assert [client.get(path).status_code for path in ("/sync", "/async")] == [200, 200]
    threads = [threading.Thread(target=exec, args=(PROGRAM, {})) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    capsys.readouterr()
    said = [text for role, text in stored() if role == "user"]
    # Threads that share a session may share a turn; every message is there once all the same.
    assert "\n\n".join(said).count("My name is Ann.") == 4
    assert "\n\n".join(said).count("And what is my name?") == 4


def cells(path):
    return path.read_text(encoding="utf-8").split("# %%\n")[1:]


def test_the_notebook_and_the_program_under_ipython_with_a_running_loop(place, capsys):
    shell = pytest.importorskip("IPython.core.interactiveshell", reason="IPython is not among the packages for tests")
    ipython = shell.InteractiveShell.instance()

    async def main():
        for cell in (*cells(RECIPES / "notebook.py"), PROGRAM):
            (await ipython.run_cell_async(cell, transformed_cell=ipython.transform_cell(cell))).raise_error()

    try:
        asyncio.run(main())
    finally:
        shell.InteractiveShell.clear_instance()
    assert "“My name is Ann.”" in capsys.readouterr().out


def test_the_cells_of_the_notebook_run_inside_a_running_loop(place, capsys):
    names = {}

    async def main():
        for cell in cells(RECIPES / "notebook.py"):
            exec(cell, names)

    asyncio.run(main())
    assert "“My name is Ann.”" in capsys.readouterr().out
