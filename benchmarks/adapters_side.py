"""Sessions of agent frameworks: the same calls on the framework's own SQLite store and on Turnlog's adapter for it.

Both promise that what was written is on the disk when the call returns (SQLite's `synchronous=FULL`).
"""

import time
from pathlib import Path
from typing import Any

from benchmarks.workload import summarise, time_turns_async, turns

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


async def agents_append(place: str, own: bool, count: int) -> dict[str, float]:
    session = agents_session(place, own)
    found = await time_turns_async(lambda user, assistant: session.add_items(items(user, assistant)), count)
    session.close()
    return found


async def agents_get(place: str, own: bool, limit: int | None, times: int) -> dict[str, float]:
    session = agents_session(place, own)
    samples = []
    for _ in range(times):
        begin = time.perf_counter_ns()
        assert await session.get_items(limit)
        samples.append(time.perf_counter_ns() - begin)
    session.close()
    return summarise(samples)


async def agents_pop(place: str, own: bool, count: int) -> dict[str, float]:
    session = agents_session(place, own)
    samples = []
    for _ in range(count):
        begin = time.perf_counter_ns()
        assert await session.pop_item()
        samples.append(time.perf_counter_ns() - begin)
    session.close()
    return summarise(samples)


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


def graph_invoke(place: str, own: bool, count: int) -> dict[str, float]:
    saver = saver_of(place, own)
    graph = graph_of(saver)
    samples = []
    for user, _ in turns(count):
        begin = time.perf_counter_ns()
        graph.invoke({"messages": [("user", user)]}, CONFIG)
        samples.append(time.perf_counter_ns() - begin)
    close(saver)
    return summarise(samples)


def graph_get(place: str, own: bool, times: int) -> dict[str, float]:
    """The newest checkpoint, with a saver that knows nothing yet."""
    samples = []
    for _ in range(times):
        saver = saver_of(place, own)
        if not own:
            saver.get_tuple({"configurable": {"thread_id": "another"}})  # opens the store
        begin = time.perf_counter_ns()
        assert saver.get_tuple(CONFIG)
        samples.append(time.perf_counter_ns() - begin)
        close(saver)
    return summarise(samples)


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


async def adk_append(place: str, kind: str, count: int) -> dict[str, float]:
    """One event."""
    service = adk_service(place, kind)
    session = await service.get_session(**WHO)
    samples = []
    for turn in turns(count // 2):
        for event in adk_events(*turn):
            begin = time.perf_counter_ns()
            await service.append_event(session, event)
            samples.append(time.perf_counter_ns() - begin)
    await service.close()
    return summarise(samples)


async def adk_get(place: str, kind: str, times: int) -> dict[str, float]:
    """The whole session."""
    service = adk_service(place, kind)
    samples = []
    for _ in range(times):
        begin = time.perf_counter_ns()
        assert (await service.get_session(**WHO)).events
        samples.append(time.perf_counter_ns() - begin)
    await service.close()
    return summarise(samples)


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
