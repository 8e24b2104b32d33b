"""Turns of agent frameworks are their own: a server that starts on the same store leaves them alone."""

import asyncio

import pytest

import turnlog
from turnlog.core.entries import User
from turnlog.core.keys import FRAMEWORKS


@pytest.mark.parametrize("channel", sorted(FRAMEWORKS))
def test_a_start_neither_marks_nor_answers_what_a_framework_left_open(channel, tmp_path):
    async def main():
        async with turnlog.open(f"sqlite:{tmp_path}/a.db", model_name="offline") as t:
            await t.append(f"agent:main:{channel}:direct:ann", User(content="hi"))
            await t.append("agent:main:cli:direct:ann", User(content="hi"))
            assert await t.resume(rerun=True) == 1
            await t.drain(60)
            rows = {row.channel: row.last_role for row in (await t.sessions.list()).items}
            assert rows == {channel: "user", "cli": "assistant"}

    asyncio.run(main())
