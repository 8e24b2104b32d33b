"""Sessions in the frameworks' own tables are imported, and the adapters continue them: same key, equal items."""

import asyncio
import json
import sqlite3

import pytest

import turnlog
from turnlog.adapters.framework_tables import import_framework, is_framework

from ..cli.running import run
from ..stores import postgres

ITEMS = [
    {"role": "user", "content": "What is 2 + 2?"},
    {"type": "reasoning", "id": "rs_1", "summary": []},
    {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 2, "b": 2}', "id": "fc_1"},
    {"type": "function_call_output", "call_id": "c1", "output": "4"},
    {"role": "assistant", "content": [{"type": "output_text", "text": "4 \u00e9 \U0001f600", "annotations": []}]},
]


def theirs_in(kind, tmp_path):
    """Where the framework keeps its tables: (what the import is given, what SQLAlchemy is given)."""
    if kind == "sqlite":
        return f"{tmp_path}/theirs.db", f"sqlite+aiosqlite:///{tmp_path}/theirs.db"
    server = postgres.server()
    url = server.url(server.database(tmp_path))
    return url, url.replace("postgresql://", "postgresql+psycopg://")


def into(tmp_path):
    return turnlog.open(f"sqlite:{tmp_path}/ours.db", home=tmp_path / "home", store_durability="os")


@pytest.mark.parametrize(
    ("kind", "base"), [("SQLiteSession", "sqlite"), ("SQLAlchemySession", "sqlite"), ("SQLAlchemySession", "postgres")]
)
def test_sessions_of_openai_agents_go_on(kind, base, tmp_path):
    agents = pytest.importorskip("agents")
    adapter = pytest.importorskip("turnlog.adapters.openai_agents")
    path, address = theirs_in(base, tmp_path)
    engines = []

    def theirs(name):
        if kind == "SQLiteSession":
            return agents.SQLiteSession(name, path)
        from agents.extensions.memory import SQLAlchemySession
        from sqlalchemy.ext.asyncio import create_async_engine

        if not engines:
            engines.append(create_async_engine(address))
        return SQLAlchemySession(name, engine=engines[0], create_tables=True)

    async def work():
        for name in ("ann", "bob: weird/id"):
            await theirs(name).add_items(ITEMS)
        assert is_framework(str(path))
        async with into(tmp_path) as t:
            done = await import_framework(t, str(path))
            assert [one.entries for one in done] == [len(ITEMS)] * 2
            assert [one.entries for one in await import_framework(t, str(path))] == [0, 0]
            session = adapter.TurnlogSession("bob: weird/id", store=t)
            assert await session.get_items() == ITEMS
            await theirs("ann").add_items(ITEMS[:1])
            again = await import_framework(t, str(path))
            assert sorted(one.entries for one in again) == [0, 1]
            await session.add_items(ITEMS[:1])
            assert await session.get_items() == [*ITEMS, ITEMS[0]]
            assert [one.notes for one in await import_framework(t, str(path))] == [(), ()]
            await session.pop_item()
            await session.pop_item()
            await session.add_items([{"role": "user", "content": "other"}])
            assert any("differs" in note for one in await import_framework(t, str(path)) for note in one.notes)
            assert len(await t.sessions.search("2 + 2")) >= 1
        for engine in engines:
            await engine.dispose()

    asyncio.run(work())


def saver_of(base, path):
    if base == "sqlite":
        from langgraph.checkpoint.sqlite import SqliteSaver as Saver
    else:
        from langgraph.checkpoint.postgres import PostgresSaver as Saver
    return Saver.from_conn_string(path)


@pytest.mark.parametrize("base", ["sqlite", "postgres"])
def test_threads_of_langgraph_go_on(base, tmp_path):
    pytest.importorskip("langgraph.graph")
    adapter = pytest.importorskip("turnlog.adapters.langgraph")
    from langchain_core.messages import AIMessage, HumanMessage
    from langgraph.graph import START, MessagesState, StateGraph

    def answer(state):
        return {"messages": [AIMessage(f"answer {len(state['messages'])}")]}

    def graph(saver):
        made = StateGraph(MessagesState)
        made.add_node("answer", answer)
        made.add_edge(START, "answer")
        return made.compile(checkpointer=saver)

    path, _ = theirs_in(base, tmp_path)
    config = {"configurable": {"thread_id": "ann"}}
    with saver_of(base, path) as saver:
        saver.setup()
        for n in range(3):
            graph(saver).invoke({"messages": [HumanMessage(f"question {n}")]}, config)
        before = [(one.config, one.checkpoint, one.metadata, one.parent_config, one.pending_writes)
                  for one in saver.list(config)]  # fmt: skip

    async def work():
        async with into(tmp_path) as t:
            [done] = await import_framework(t, str(path))
            assert (done.entries, done.notes) == (len(before), ())
            assert [one.entries for one in await import_framework(t, str(path))] == [0]
            ours = adapter.TurnlogSaver(store=t)
            after = [(one.config, one.checkpoint, one.metadata, one.parent_config, one.pending_writes)
                     async for one in ours.alist(config)]  # fmt: skip
            assert after == before
            end = await graph(ours).ainvoke({"messages": [HumanMessage("on")]}, config)
            assert [one.content for one in end["messages"]][-2:] == ["on", "answer 7"]
            assert len(await t.sessions.search("question")) >= 3

    asyncio.run(work())


@pytest.mark.parametrize(
    ("kind", "base"),
    [
        ("SqliteSessionService", "sqlite"),
        ("DatabaseSessionService", "sqlite"),
        ("DatabaseSessionService", "postgres"),
    ],
)
def test_sessions_of_adk_go_on(kind, base, tmp_path):
    pytest.importorskip("google.adk")
    adapter = pytest.importorskip("turnlog.adapters.google_adk")
    from google.adk.events import Event, EventActions
    from google.genai import types

    path, address = theirs_in(base, tmp_path)
    if kind == "SqliteSessionService":
        from google.adk.sessions.sqlite_session_service import SqliteSessionService

        theirs = SqliteSessionService(path)
    else:
        from google.adk.sessions.database_session_service import DatabaseSessionService

        theirs = DatabaseSessionService(address)
    place = {"app_name": "app", "user_id": "ann", "session_id": "one"}

    async def work():
        session = await theirs.create_session(**place, state={"k": 1, "user:u": 2, "app:a": 3})
        for n in range(3):
            said = types.Content(role="user", parts=[types.Part(text=f"question {n}")])
            actions = EventActions(state_delta={"n": n, "user:m": n})
            await theirs.append_event(session, Event(author="user", invocation_id="i", content=said, actions=actions))
        wanted = await theirs.get_session(**place)
        await theirs.close()
        async with into(tmp_path) as t:
            assert [one.entries for one in await import_framework(t, str(path))] == [3]
            assert [one.entries for one in await import_framework(t, str(path))] == [0]
            found = await adapter.TurnlogSessionService(store=t).get_session(**place)
            assert found.state == wanted.state
            assert found.events == wanted.events

    asyncio.run(work())


def test_the_command_imports_tables_and_refuses_others(tmp_path):
    path = tmp_path / "items.db"
    with sqlite3.connect(path) as db:
        db.execute(
            "CREATE TABLE agent_messages (id INTEGER PRIMARY KEY, session_id TEXT, message_data TEXT, created_at)"
        )
        rows = [("ann", json.dumps(ITEMS[0])), ("ann", "{torn"), ("ann", json.dumps(ITEMS[4]))]
        for name, data in rows:
            db.execute("INSERT INTO agent_messages (session_id, message_data, created_at) VALUES (?, ?, ?)",
                       (name, data, "2026-01-02 03:04:05"))  # fmt: skip
    done = run("sessions", "import", str(path), "--json", home=tmp_path)
    [one] = json.loads(done.stdout)["sessions"]
    assert (one["entries"], len(one["notes"])) == (2, 1)
    shown = json.loads(run("sessions", "show", one["id"], "--json", home=tmp_path).stdout)
    assert shown["session"]["key"] == "agent:main:openai_agents:direct:ann"
    assert [e["ts"] for e in shown["entries"] if e["type"] == "user"] == ["2026-01-02T03:04:05.000Z"]
    with sqlite3.connect(tmp_path / "other.db") as db:
        db.execute("CREATE TABLE things (id)")
    assert not is_framework(str(tmp_path / "other.db"))
    assert not is_framework(str(tmp_path / "nosuch"))
    assert run("sessions", "import", str(tmp_path / "nosuch"), home=tmp_path).returncode == 2
