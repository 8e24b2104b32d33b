"""Native transcripts that another program wrote anew, and every flipped bit in one."""

import asyncio
import json

import apsw
import pytest

import turnlog
from turnlog import open_store
from turnlog.interchange import doctor
from turnlog.testing import answered, entry, opened, raises, said

PATH = "agents/main/sessions/s1.jsonl"
CALL = {"type": "tool_use", "id": "c1", "name": "look", "input": {"zoom": 1.0, "at": "中😀", "deep": {"b": 1, "a": 2}}}
SHORT = [
    [opened("s1"), entry(type="selected", n=1)],
    [said("héllo")],
    [entry(type="assistant", content=[CALL], model="m"), entry(type="tool_result", tool_use_id="c1", content="x\ny")],
    [said("c\ud800"), answered("done")],
]


def long_log(turns=400):
    """More than a bisection walks through line by line."""
    return [[opened("s1")], *([said(f"question {n} " + "é" * 60), answered(f"answer {n}")] for n in range(turns))]


async def write(root, appends, url=""):
    async with open_store(url or f"jsonl:{root}", durability="os") as store:
        async with store.lease("s1") as lease:
            for bodies in appends:
                await store.append("s1", bodies, lease=lease)
        return await store.read("s1")


def reversed_keys(value):
    if isinstance(value, dict):
        return {key: reversed_keys(value[key]) for key in reversed(list(value))}
    return [reversed_keys(item) for item in value] if isinstance(value, list) else value


def as_whole_numbers(value):
    """As JavaScript writes them."""
    if isinstance(value, dict):
        return {key: as_whole_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_whole_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


FORMS = {
    "blanks": json.dumps,
    "sorted": lambda value: json.dumps(value, sort_keys=True, ensure_ascii=True),
    "reversed": lambda value: json.dumps(reversed_keys(value)),
    "wide": lambda value: "  " + json.dumps(value, separators=("  ,  ", "  :  ")) + "\t\r",
    "javascript": lambda value: json.dumps(as_whole_numbers(value), separators=(",", ":")),
}


def rewrite(path, form, *, end="\n"):
    lines = [form(json.loads(line)) for line in path.read_text().splitlines()]
    path.write_text("\n".join(lines) + end)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("appends", [SHORT, long_log()], ids=["short", "long"])
def test_a_file_that_another_program_wrote_anew_is_read_whole_and_in_every_part(tmp_path, form, appends):
    entries = asyncio.run(write(tmp_path, appends))
    rewrite(tmp_path / PATH, FORMS[form])

    async def look():
        async with open_store(f"jsonl:{tmp_path}", durability="os") as store:
            assert await store.read("s1") == entries
            for seq in range(0, len(entries) + 1, max(1, len(entries) // 9)):
                assert await store.read("s1", after=seq) == entries[seq:]
                assert await store.read("s1", before=seq + 1) == entries[:seq]
                assert await store.read("s1", after=seq, limit=1) == entries[seq : seq + 1]
            new = await store.append("s1", [entry(type="title", title="on")])
            assert await store.read("s1") == [*entries, *new]

    asyncio.run(look())
    assert not [p for p in doctor.examine(tmp_path).problems if "checksum" in p.what]


def test_a_last_line_without_its_newline_is_kept_and_gone_on_with(tmp_path):
    entries = asyncio.run(write(tmp_path, SHORT))
    rewrite(tmp_path / PATH, json.dumps, end="")
    notices = []

    async def look():
        async with open_store(f"jsonl:{tmp_path}", durability="os", on_notice=notices.append) as store:
            assert await store.read("s1") == entries
            new = await store.append("s1", [entry(type="title", title="on")])
            assert await store.read("s1") == [*entries, *new]
        async with open_store(f"jsonl:{tmp_path}") as store:
            assert await store.read("s1") == [*entries, *new]

    asyncio.run(look())
    assert notices == []


def test_a_file_written_anew_in_its_place_while_it_is_open_is_read_from_the_start(tmp_path):
    async def look():
        async with open_store(f"jsonl:{tmp_path}", durability="os") as store:
            async with store.lease("s1") as lease:
                for bodies in SHORT:
                    await store.append("s1", bodies, lease=lease)
            entries, row = await store.read("s1"), await store.describe("s1")
            size = (tmp_path / PATH).stat().st_size  # the new first line ends where the whole file did
            rewrite(tmp_path / PATH, lambda value: json.dumps(value).ljust(size - 1))
            assert await store.read("s1") == entries
            assert await store.describe("s1") == row
            new = await store.append("s1", [entry(type="title", title="on")])
            assert new[0].seq == len(entries) + 1

    asyncio.run(look())


def test_a_type_that_a_newer_version_wrote_never_stops_a_session(tmp_path):
    entries = asyncio.run(write(tmp_path, SHORT))
    newer = {"type": "hologram", "seq": len(entries) + 1, "ts": "2030-01-01T00:00:00.000Z", "light": [1, 2]}
    with (tmp_path / PATH).open("a") as file:
        file.write(json.dumps(newer) + "\n")

    async def look():
        async with open_store(f"jsonl:{tmp_path}", durability="os") as store:
            loaded = await turnlog.Sessions(store).load("s1")
            assert not loaded.damage
            assert loaded.entries[-1] == turnlog.Foreign(
                seq=newer["seq"], ts=newer["ts"], raw=newer, unknown={"type": "hologram"}
            )
            async with store.lease("s1") as lease:
                await store.append("s1", [said("on")], lease=lease)
            assert [e.seq for e in await store.read("s1", after=len(entries))] == [newer["seq"], newer["seq"] + 1]

    asyncio.run(look())
    (found,) = [p for p in doctor.examine(tmp_path).problems if "hologram" in p.what]
    assert "unknown type" in found.what
    assert found.repair.startswith("none needed")


def test_no_flipped_bit_is_silent(tmp_path):
    """Each is named by the store and by `doctor`, or changes no value. All bits: see the tests of the codec."""
    entries = asyncio.run(write(tmp_path, SHORT))
    path = tmp_path / PATH
    data = path.read_bytes()

    async def look():
        async with open_store(f"jsonl:{tmp_path}", durability="os") as store:
            try:
                return "the same" if await store.read("s1") == entries else "something else"
            except turnlog.StoreError as error:
                return str(error)

    version, newline = data.index(b'"version":') + len('"version":'), len(data) - 1
    flips = [(place, place % 8) for place in range(0, len(data), 7)]
    for place, bit in (*flips, *((version, bit) for bit in range(8)), *((newline, bit) for bit in range(8))):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :])
        told = asyncio.run(look())
        if told != "the same":
            assert str(path) in told, f"byte {place}, bit {bit}"
            assert any(problem.needs_repair for problem in doctor.examine(path).problems), f"byte {place}, bit {bit}"


def test_a_damaged_seq_does_not_hide_its_neighbours(tmp_path):
    """A bisection looks at the middle of the file first."""
    entries = asyncio.run(write(tmp_path, long_log()))
    path = tmp_path / PATH
    lines = path.read_bytes().split(b"\n")
    for number in range(380, 420):
        lines[number] = lines[number].replace(b'"seq":%d' % (number + 1), b'"seq":%d' % (number + 301))
    path.write_bytes(b"\n".join(lines))

    async def look():
        async with open_store(f"jsonl:{tmp_path}") as store:
            for after in (100, 450, 700):
                assert await store.read("s1", after=after, limit=5) == entries[after : after + 5]
                assert await store.read("s1", after=after, before=after + 4) == entries[after : after + 3]
            assert (await raises(turnlog.Corrupt, store.read("s1", after=300))).line == 381
            loaded = await turnlog.Sessions(store).transcript("s1")
            assert loaded.entries == entries[:380] + entries[420:]

    asyncio.run(look())


@pytest.mark.parametrize(
    "change",
    [
        "meta_json = replace(meta_json, 'question 2', 'question 3')",
        "meta_json = replace(meta_json, 'content', 'cOntent')",
        'meta_json = replace(meta_json, \'"type":"user"\', \'"type":"usar"\')',
        "meta_json = '5'",
    ],
)
def test_a_changed_row_of_a_database_is_named_and_the_rest_is_readable(tmp_path, change):
    url = f"sqlite:{tmp_path}/s.db"
    entries = asyncio.run(write(tmp_path, long_log(5), url))
    assert not doctor.examine(tmp_path).problems
    db = apsw.Connection(str(tmp_path / "s.db"))
    db.execute(f"UPDATE session_messages SET {change} WHERE seq = 6")
    db.close()

    async def look():
        async with open_store(url) as store:
            error = await raises(turnlog.Corrupt, store.read("s1"))
            assert (error.after, error.before) == (5, 7)
            assert (await turnlog.Sessions(store).load("s1")).entries == [e for e in entries if e.seq != 6]
            await store.search("question")

    asyncio.run(look())
    (found,) = doctor.examine(tmp_path).problems
    assert found.needs_repair
    assert "session s1, entry 6" in found.where


def test_entries_without_a_checksum_are_read_and_counted(tmp_path):
    entries = asyncio.run(write(tmp_path, SHORT))
    rewrite(tmp_path / PATH, lambda value: json.dumps({k: v for k, v in value.items() if k != "crc32"}))

    async def look():
        async with open_store(f"jsonl:{tmp_path}") as store:
            assert await store.read("s1") == entries

    asyncio.run(look())
    (found,) = doctor.examine(tmp_path).problems
    assert f"no checksum: {len(entries)} entries" in found.what
    assert not found.needs_repair


@pytest.mark.parametrize("place", ["middle", "end"])
@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"   ",
        b"[1, 2]",
        b"rubbish",
        b'{"type":"title","seq":4,"ts":"2026-01-01T00:00:00.000Z"}',
        b'{"type":"user","seq":4,"ts":"2026-01-01T00:00:00.000Z"}',
        b'{"type":"status","seq":4,"ts":"2026-01-01T00:00:00.000Z","value":"nosuch"}',
        b'{"type":"title","seq":99,"ts":"2026-01-01T00:00:00.000Z","title":"x"}',
    ],
)
def test_where_a_store_cannot_read_on_the_doctor_finds_the_reason(tmp_path, line, place):
    asyncio.run(write(tmp_path, SHORT))
    path = tmp_path / PATH
    lines = path.read_bytes().splitlines()
    at = 3 if place == "middle" else len(lines)
    path.write_bytes(b"\n".join([*lines[:at], line, *lines[at + 1 :]]) + b"\n")

    async def look():
        async with open_store(f"jsonl:{tmp_path}", durability="os") as store:
            await raises(turnlog.Corrupt, store.read("s1"))

    asyncio.run(look())
    assert any(problem.needs_repair for problem in doctor.examine(path).problems)
