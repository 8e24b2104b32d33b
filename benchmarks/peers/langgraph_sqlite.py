"""langgraph `SqliteSaver`: a checkpoint is the whole message list, so an append costs the session, not the turn.

Promises: WAL with SQLite's default `synchronous=FULL`, on the disk when `put` returns; a lock within the process.
Called without a graph around it, which would only add to the cost.
"""

import time
from pathlib import Path

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver

from benchmarks.workload import summarise, time_turns, turns

CONFIG = {"configurable": {"thread_id": "bench", "checkpoint_ns": ""}}


def messages_of(user: str, assistant: str) -> list:
    return [HumanMessage(user), AIMessage(assistant)]


def database(place: str) -> str:
    return str(Path(place) / "checkpoints.db")


def put(saver: SqliteSaver, config: dict, messages: list, step: int) -> dict:
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {"messages": messages}
    checkpoint["channel_versions"] = {"messages": step}
    return saver.put(config, checkpoint, {"source": "loop", "step": step}, {"messages": step})


def build(place: str, messages: int) -> dict[str, float]:
    with SqliteSaver.from_conn_string(database(place)) as saver:
        put(saver, CONFIG, [message for turn in turns(messages // 2) for message in messages_of(*turn)], 1)
    return {}


def append(place: str, count: int) -> dict[str, float]:
    with SqliteSaver.from_conn_string(database(place)) as saver:
        saved = saver.get_tuple(CONFIG)
        messages = saved.checkpoint["channel_values"]["messages"]
        config, step = saved.config, 1

        def one(user: str, assistant: str) -> None:
            nonlocal config, step
            step += 1
            messages.extend(messages_of(user, assistant))
            config = put(saver, config, messages, step)

        return time_turns(one, count, warmup=1)


def resume(place: str, times: int) -> dict[str, float]:
    samples = []
    for _ in range(times):
        with SqliteSaver.from_conn_string(database(place)) as saver:
            begin = time.perf_counter_ns()
            assert saver.get_tuple(CONFIG).checkpoint["channel_values"]["messages"]
            samples.append(time.perf_counter_ns() - begin)
    return summarise(samples)
