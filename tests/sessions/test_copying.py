"""Copies of a store: every space of the ledger that the source writes is either copied or left behind on purpose."""

import ast
import asyncio
import importlib
from pathlib import Path

import pytest

import turnlog
from turnlog.core import paging
from turnlog.sessions import copying
from turnlog.testing import entry, opened

SRC = Path(turnlog.__file__).parent
WRITING = ("put_if_absent", "cas")


def spaces_written():
    for path in SRC.rglob("*.py"):
        parts = path.relative_to(SRC).with_suffix("").parts
        if parts[0] in ("testing", "stores") or parts == ("sessions", "copying"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in WRITING:
                assert isinstance(node.args[0], ast.Name), f"{path.name}: name the space by a constant"
                yield getattr(importlib.import_module(".".join(("turnlog", *parts))), node.args[0].id)


def test_every_space_of_the_ledger_is_copied_or_left_behind_on_purpose():
    assert set(spaces_written()) == {*copying.SPACES, *copying.LEFT_BEHIND}
    assert not set(copying.SPACES) & set(copying.LEFT_BEHIND)


def test_a_delivery_that_was_answered_is_not_answered_again_by_a_copy(tmp_path):
    key = "agent:main:telegram:direct:5"

    async def main():
        one, two = f"sqlite:{tmp_path}/one.db", f"jsonl:{tmp_path}/two"
        async with turnlog.open(one, home=tmp_path, model_name="offline") as t:
            [_ async for _ in t.send(key, "hello", dedupe_id="d1")]
        async with turnlog.open_store(one) as source, turnlog.open_store(two) as target:
            await turnlog.copy(source, target)
        async with turnlog.open(two, home=tmp_path, model_name="offline") as t:
            [_ async for _ in t.send(key, "hello", dedupe_id="d1")]
            return (await t.session(key)).message_count

    assert asyncio.run(main()) == 2


def titles(count, word):
    return [opened("s"), *(entry(type="title", title=f"{word} {n}") for n in range(1, count))]


@pytest.mark.parametrize("replaced", ["source", "target"])
def test_a_session_that_is_replaced_while_it_is_copied_gets_nothing_of_the_other(replaced, monkeypatch):
    monkeypatch.setattr(paging, "FIRST_ENTRIES", 3)
    monkeypatch.setattr(paging, "PAGE_ENTRIES", 3)

    async def main():
        async with turnlog.open_store("memory:") as source, turnlog.open_store("memory:") as target:
            await source.append("s", titles(8, "old"))
            append, chosen = target.append, source if replaced == "source" else target

            async def append_and_replace(*args, **kwargs):
                monkeypatch.setattr(target, "append", append)
                done = await append(*args, **kwargs)
                await chosen.delete("s")
                await chosen.append("s", titles(8 if replaced == "source" else 3, "new"))
                return done

            monkeypatch.setattr(target, "append", append_and_replace)
            with pytest.raises(turnlog.NotFound):
                await copying.copy_session(source, target, "s")
            return [getattr(one, "title", "") for one in await target.read("s")]

    word = "old" if replaced == "source" else "new"
    assert asyncio.run(main()) == ["", f"{word} 1", f"{word} 2"]
