"""Sessions of agent frameworks: the same calls on the framework's own SQLite store and on Turnlog's adapter for it.

Both promise that what was written is on the disk when the call returns (SQLite's `synchronous=FULL`).
"""

import time
from pathlib import Path
from typing import Any

from benchmarks.workload import summarise, turns

SESSION = "bench"


def items(user: str, assistant: str) -> list[Any]:
    return [{"role": "user", "content": user}, {"role": "assistant", "content": assistant}]


def agents_session(place: str, own: bool) -> Any:
    if own:
        from agents import SQLiteSession

        return SQLiteSession(SESSION, Path(place) / "sessions.db")
    from turnlog.adapters.openai_agents import TurnlogSession

    return TurnlogSession(SESSION, f"sqlite:{place}/turnlog.db")


async def agents_build(place: str, own: bool, messages: int) -> dict[str, float]:
    session = agents_session(place, own)
    await session.add_items([item for turn in turns(messages // 2) for item in items(*turn)])
    session.close()
    return {}


def saver_of(place: str, own: bool) -> Any:
    if own:
        import sqlite3

        from langgraph.checkpoint.sqlite import SqliteSaver

        return SqliteSaver(sqlite3.connect(Path(place) / "checkpoints.db", check_same_thread=False))
    from turnlog.adapters.langgraph import TurnlogSaver

    return TurnlogSaver(f"sqlite:{place}/turnlog.db")


def graph_of(saver: Any) -> Any:
    from langchain_core.messages import AIMessage
    from langgraph.graph import START, MessagesState, StateGraph

    answers = iter([answer for _, answer in turns(2_000)])
    builder = StateGraph(MessagesState)
    builder.add_node("chat", lambda state: {"messages": [AIMessage(next(answers))]})
    builder.add_edge(START, "chat")
    return builder.compile(checkpointer=saver)


CONFIG: Any = {"configurable": {"thread_id": SESSION}}


def graph_build(place: str, own: bool, invocations: int) -> dict[str, float]:
    """The bytes on the disk after this many invocations of a graph, each of them a question and its answer."""
    saver = saver_of(place, own)
    graph = graph_of(saver)
    for user, _ in turns(invocations):
        graph.invoke({"messages": [("user", user)]}, CONFIG)
    close(saver)
    return {"bytes": sum(path.stat().st_size for path in Path(place).rglob("*") if path.is_file())}


def close(saver: Any) -> None:
    if hasattr(saver, "close"):
        saver.close()
    else:
        saver.conn.close()


WHO = {"app_name": "bench", "user_id": "user", "session_id": SESSION}


def adk_service(place: str, kind: str) -> Any:
    """`kind`: ADK's two services on SQLite, `sqlite` and `database`, or `turnlog`."""
    match kind:
        case "sqlite":
            from google.adk.sessions.sqlite_session_service import SqliteSessionService

            return SqliteSessionService(f"{place}/adk.db")
        case "database":
            from google.adk.sessions import DatabaseSessionService

            return DatabaseSessionService(f"sqlite+aiosqlite:///{Path(place) / 'sessions.db'}")
        case _:
            from turnlog.adapters.google_adk import TurnlogSessionService

            return TurnlogSessionService(f"sqlite:{place}/turnlog.db")


def adk_events(user: str, assistant: str) -> list[Any]:
    from google.adk.events import Event
    from google.genai.types import Content, Part

    return [
        Event(author="user", content=Content(role="user", parts=[Part(text=user)])),
        Event(author="main", content=Content(role="model", parts=[Part(text=assistant)])),
    ]


async def adk_build(place: str, kind: str, events: int) -> dict[str, float]:
    service = adk_service(place, kind)
    session = await service.create_session(**WHO)
    for turn in turns(events // 2):
        for event in adk_events(*turn):
            await service.append_event(session, event)
    await service.close()
    return {}


async def claude_append(place: str, count: int) -> dict[str, float]:
    """20 lines of a transcript. The SDK has no store on a disk to compare with."""
    from turnlog.adapters.claude_agent_sdk import TurnlogSessionStore

    store = TurnlogSessionStore(f"sqlite:{place}/turnlog.db")
    key: Any = {"project_key": "bench", "session_id": SESSION}
    samples = []
    for number, (user, _) in enumerate(turns(count)):
        lines = [
            {"type": "user", "uuid": f"{number}-{line}", "message": {"role": "user", "content": user[:400]}}
            for line in range(20)
        ]
        begin = time.perf_counter_ns()
        await store.append(key, lines)
        samples.append(time.perf_counter_ns() - begin)
    store.close()
    return summarise(samples)
