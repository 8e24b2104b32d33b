"""Content is checked where it enters; what was stored before that never stops a session."""

import json
import sqlite3

import pytest

import turnlog
from turnlog import UsageError, User
from turnlog.testing import ScriptedProvider

from .talk import KEY, ask, log, opened, run, say, shown, url_at

BLANK = ["", " \n", [], [{"type": "text", "text": ""}], [{"type": "text", "text": " "}], None]


@pytest.mark.parametrize("content", [*BLANK, 5, b"x", ["hello"], {"a": 1}, [{"type": "nosuch"}]], ids=repr)
def test_a_message_without_words_or_of_no_known_kind_makes_nothing(content, url):
    async def main():
        async with opened(url) as t:
            with pytest.raises(UsageError) as raised:
                await say(t, content)
            assert raised.value.hint
            assert (await t.sessions.list()).total == 0
            with pytest.raises(UsageError):
                await t.append(KEY, User(content=content if content not in BLANK[:5] else 5))
            assert [entry.seq for entry in await log(t)] == [1, 2]

    run(main())


def test_openai_parts_can_be_sent(url):
    async def main():
        provider = ScriptedProvider([{"text": "ok"}])
        async with opened(url, provider) as t:
            await ask(t, [{"type": "input_text", "text": "look at this"}])
        assert shown(provider.prompts[0]) == [("user", "look at this")]

    run(main())


def test_a_reply_with_a_block_of_an_unknown_kind_is_kept_as_text(url):
    class Odd(ScriptedProvider):
        async def stream(self, prompt):
            yield turnlog.Assistant(content=[{"type": "text", "text": "yes"}, {"type": "hologram", "x": 1}])

    async def main():
        async with opened(url, Odd()) as t:
            await say(t, "hi")
            assert (await log(t))[-1].content[1] == {"type": "text", "text": '{"type": "hologram", "x": 1}'}

    run(main())


def test_an_unknown_status_is_refused_and_the_session_stays_selected(url):
    async def main():
        async with opened(url, ScriptedProvider([{"text": "a"}, {"text": "b"}])) as t:
            await ask(t, "one")
            row = (await t.session(KEY)).row
            with pytest.raises(UsageError, match="nosuch"):
                await t.sessions.set_status(row.id, "nosuch")
            assert (await t.session(KEY)).row == row
            await ask(t, "two")

    run(main())


def test_what_was_rewound_cannot_be_pinned(url):
    async def main():
        async with opened(url, ScriptedProvider([{"text": "a"}, {"text": "b"}])) as t:
            await ask(t, "one")
            await ask(t, "two")
            row = await t.sessions.rewind((await t.session(KEY)).id, 4)
            with pytest.raises(UsageError, match="rewound"):
                await t.sessions.pin(row.id, 5)
            assert (await t.sessions.pin(row.id, 3)).pins

    run(main())


DAMAGE = [
    {"type": "user", "content": 5},
    {"type": "user", "content": ["hello"]},
    {"type": "user", "content": {"a": 1}},
    {"type": "user", "content": [{"type": 5}]},
    {"type": "user", "content": [{"type": "text", "text": {"secret": 7}}]},
    {"type": "status", "value": "nosuch"},
    {"type": "title", "title": 5},
    {"type": "tool_result", "tool_use_id": 5, "content": "x"},
]


@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
@pytest.mark.parametrize("damage", DAMAGE, ids=str)
def test_stored_damage_never_stops_a_session(kind, damage, tmp_path):
    url = url_at(kind, tmp_path)

    async def main():
        async with opened(url, ScriptedProvider([{"text": "a"}, {"text": "b"}])) as t:
            await ask(t, "one")
            await ask(t, "two")
            row = await t.session(KEY)
        spoil(kind, tmp_path, row.id, damage)
        provider = ScriptedProvider([{"text": "c"}, {"text": "d"}, {"text": "e"}])
        async with opened(url, provider) as t:
            await ask(t, "three")
            assert shown(provider.prompts[0])[-1] == ("user", "three")
            end = (await t.sessions.get(row.id)).last_seq
            assert (await t.sessions.search("two"))[0].seq == 5
            fork = await t.sessions.fork(row.id)
            assert fork.last_seq == end >= 8
            await ask(t, "in the fork", where=fork.id)
            await t.sessions.rewind(row.id, 6)
            await t.sessions.reindex()
            await t.sessions.explain(row.id)
            assert (await t.sessions.list()).total == 2
            await t.sessions.set_status(row.id, "archived")

    run(main())


def spoil(kind, place, session_id, damage):
    """As a version without these checks stored it: entry 3, and in a database also what the row says of it."""
    if kind == "sqlite":
        with sqlite3.connect(place / "sessions.db") as db:
            [(line,)] = db.execute(
                "SELECT meta_json FROM session_messages WHERE session_id = ? AND seq = 3", [session_id]
            )
            db.execute("UPDATE session_messages SET meta_json = ? WHERE seq = 3", [spoilt(line, damage)])
            if damage["type"] == "status":
                db.execute(
                    "UPDATE sessions SET meta_json = json_set(meta_json, '$.status', 'nosuch'), status = 'nosuch'"
                )
        db.close()
        return
    [path] = place.rglob(f"{session_id}.jsonl")
    lines = path.read_text().splitlines()
    lines[2] = spoilt(lines[2], damage)
    path.write_text("\n".join(lines) + "\n")


def spoilt(line, damage):
    entry = json.loads(line)
    return json.dumps({"type": damage["type"], "seq": entry["seq"], "ts": entry["ts"], **damage}, separators=(",", ":"))
