"""Grown, changed, continued and cut sources."""

import asyncio
import json

import turnlog
from turnlog.interchange.importing import import_path
from turnlog.testing import entry


def line(number, role, text):
    return json.dumps({"type": role, "content": text, "ts": 1771100000 + number}) + "\n"


def start(tmp_path):
    path = tmp_path / "aaaabbbbcccc.jsonl"
    path.write_text(line(1, "user", "one") + line(2, "assistant", "two"), encoding="utf-8")
    return path


def test_a_source_that_has_grown_adds_only_what_is_new(tmp_path, run):
    path = start(tmp_path)

    def grow():
        with path.open("a", encoding="utf-8") as file:
            file.write(line(3, "user", "three") + line(4, "assistant", "four"))
        return path

    first, second, third = run(path, grow, path)
    assert [result.only().entries for result in (first, second, third)] == [4, 2, 0]
    assert second.log()[: len(first.log())] == first.log()
    assert [message["content"] for message in second.history()][::2] == ["one", "three"]


def test_a_source_caught_in_the_middle_of_a_turn_is_closed_and_goes_on_when_it_has_grown(tmp_path, run):
    path = start(tmp_path)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"type": "tool_use", "tool_use_id": "t1", "name": "look", "input": {}, "ts": 1771100003}))

    def grow(text):
        def append():
            with path.open("a", encoding="utf-8") as file:
                file.write(text)
            return path

        return append

    result = "\n" + json.dumps({"type": "tool_result", "tool_use_id": "t1", "content": "got", "ts": 1771100004}) + "\n"
    first, second, third, fourth = run(path, grow(result), grow(line(5, "assistant", "done")), path)
    assert not any(row.under_way for row in first.rows.values())
    assert "interrupted" in str(first.history())
    assert "got" in str(third.history())
    assert "interrupted" not in str(third.history())
    assert [message["role"] for message in third.history()] == ["user", "assistant", "user", "assistant"]
    assert not any(row.under_way for row in second.rows.values())
    assert fourth.only().entries == 0
    assert fourth.log() == third.log()


def test_a_half_written_last_line_is_left_out_and_taken_when_it_is_whole(tmp_path, run):
    path = start(tmp_path)
    whole = line(3, "user", "three")
    with path.open("a", encoding="utf-8") as file:
        file.write(whole[:20])

    def finish():
        with path.open("a", encoding="utf-8") as file:
            file.write(whole[20:])
        return path

    first, second = run(path, finish)
    assert "line 3: the end is torn or still being written" in first.notes()
    assert "three" not in str(first.history())
    assert "three" in str(second.history())
    assert "torn" not in second.notes()


def test_a_source_that_says_something_else_now_is_reported_and_nothing_is_touched(tmp_path, run):
    path = start(tmp_path)

    def change():
        path.write_text(path.read_text(encoding="utf-8").replace("two", "zwei"), encoding="utf-8")
        return path

    first, second = run(path, change)
    assert "has changed since the last import" in second.notes()
    assert second.only().entries == 0
    assert second.log() == first.log()


def test_a_session_that_was_continued_here_keeps_what_was_said_here(tmp_path):
    path = start(tmp_path)

    async def go():
        async with turnlog.open_store("memory:") as store:
            (first,) = await import_path(store, path)
            async with store.lease(first.id) as lease:
                await store.append(first.id, [entry(type="user", content="here")], lease=lease)
            (second,) = await import_path(store, path)
            assert (second.entries, second.notes[-1]) == (
                0,
                "this session was continued here; the source has nothing new",
            )
            with path.open("a", encoding="utf-8") as file:
                file.write(line(3, "user", "there"))
            (third,) = await import_path(store, path)
            assert third.entries == 0
            assert "changed" in third.notes[-1]
            assert "there" not in str(await store.read(first.id))

    asyncio.run(go())


def test_an_import_that_was_cut_off_goes_on_where_it_stopped(tmp_path):
    path = tmp_path / "ddddeeeeffff.jsonl"
    path.write_text("".join(line(n, "user" if n % 2 else "assistant", f"word {n}") for n in range(1, 1500)))

    async def go():
        async with turnlog.open_store("memory:") as store:
            seen = []

            class Dying:
                def __getattr__(self, name):
                    return getattr(store, name)

                async def append(self, *args, **options):
                    seen.append(1)
                    if len(seen) == 3:
                        raise OSError("gone")
                    return await store.append(*args, **options)

            try:
                await import_path(Dying(), path)
            except OSError:
                pass
            (again,) = await import_path(store, path)
            whole = await store.read(again.id)
            assert 0 < again.entries < 1501
            assert [e.seq for e in whole] == list(range(1, len(whole) + 1))
            assert [e.content for e in whole if hasattr(e, "content")] == [f"word {n}" for n in range(1, 1500)]

    asyncio.run(go())


def test_two_sources_of_one_name_in_two_places_are_told_apart_by_their_ids_or_places(tmp_path, run):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "chat.jsonl").write_text(line(1, "user", folder), encoding="utf-8")
        (tmp_path / folder / "aaaabbbbcccc.jsonl").write_text(line(1, "user", "same"), encoding="utf-8")
    result = run(tmp_path)
    assert len({outcome.id for outcome in result.imported}) == 3
