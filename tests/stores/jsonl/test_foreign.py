"""Directories of other tools: opened in place, left alone until something is said, gone on with, and still theirs."""

import asyncio
import json
from pathlib import Path

import pytest

import turnlog
from turnlog import Query, open_store
from turnlog.codecs.lines import timestamp
from turnlog.core import compaction, history, tokens
from turnlog.core.compaction import Keep
from turnlog.settings.presets import PRESETS
from turnlog.testing import FixedClock, answered, check_messages, entry, opened, raises, said

HERE = Path(__file__).parents[2] / "transcripts"
LAYOUTS = ("pi", "openclaw", "zyhive", "claw0", "claw0-keyed")
PI = "0199a000-0000-7000-8000-00000000000"
CLAW = "0199b000-0000-7000-8000-00000000000"


def run(coroutine):
    return asyncio.run(coroutine)


def snapshot(root):
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def shown(entries):
    built = history.build(entries)
    check_messages(built.messages)
    return [(message["role"], message["content"]) for message in built.messages]


def words(entries):
    return json.dumps(shown(entries), ensure_ascii=False)


async def everything(store):
    sessions = turnlog.Sessions(store)
    rows = (await store.find(Query(limit=200))).items
    return {row.id: await sessions.transcript(row.id) for row in rows}


def call(name, call_id):
    return {"type": "tool_use", "id": call_id, "name": name, "input": {"path": call_id}}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_looking_at_a_directory_of_another_tool_changes_nothing_in_it(place, layout):
    root = place(layout)
    before = snapshot(root)

    async def look():
        async with open_store(f"jsonl:{root}") as store:
            for session_id in await everything(store):
                await store.describe(session_id)
                await store.read(session_id, limit=1)
            await store.search("question")
            assert await store.ledger.get("selected", "nobody") is None
            await store.reindex()

    run(look())
    assert snapshot(root) == before
    assert not list(root.rglob(".turnlog"))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_continued_begins_with_the_bytes_that_were_there_and_reads_the_same_again(place, layout):
    root = place(layout)
    before = snapshot(root)
    two = entry(type="assistant", content=[{"type": "text", "text": "both"}, call("read", "x1"), call("read", "x2")])
    bodies = [
        said("we go on"),
        two,
        entry(type="tool_result", tool_use_id="x1", content="one", is_error=True),
        entry(type="tool_result", tool_use_id="x2", content=[{"type": "text", "text": "two"}]),
        answered("and that was it"),
        entry(type="pin", target=2),
        entry(type="title", title="Gone on with"),
    ]

    async def go_on():
        async with open_store(f"jsonl:{root}") as store:
            found = {}
            for session_id, loaded in (await everything(store)).items():
                async with store.lease(session_id) as lease:
                    await store.append(session_id, bodies[:3], lease=lease)
                    for body in bodies[3:]:
                        await store.append(session_id, [body], lease=lease)
                found[session_id] = await turnlog.Sessions(store).transcript(session_id)
                assert found[session_id].entries[: len(loaded.entries)] == loaded.entries
                assert "we go on" in words(found[session_id].entries)
            return found

    async def look():
        async with open_store(f"jsonl:{root}") as store:
            return await everything(store)

    found = run(go_on())
    again = run(look())
    assert {name: loaded.entries for name, loaded in found.items()} == {
        n: loaded.entries for n, loaded in again.items()
    }
    for name, data in before.items():
        if name.endswith(".jsonl"):
            whole = data[: data.rfind(b"\n") + 1]
            assert (root / name).read_bytes().startswith(whole)
    ours = {path.relative_to(root).parts for path in root.rglob("*") if path.is_file()} - {
        Path(name).parts for name in before
    }
    assert all(".turnlog" in parts for parts in ours), "our own files are where the other tool does not look"


EXPECTED = {
    ("pi", f"{PI}1"): (
        "Which port|I will look.|port = 8099|8099.|about another|Now look|A picture|Two things|Ran `ls`|One file.",
        "left on another branch|so was this answer",
    ),
    ("pi", f"{PI}2"): ("Questions 1 to 4 were answered.|question 5|answer 7", "question 4|answer 3"),
    ("pi", f"{PI}3"): ("The first was answered.|second|from a hook|two", "one"),
    ("openclaw", f"{CLAW}1"): ("hello from the group|Hello, group.|still there?|Yes.", ""),
    ("openclaw", f"{CLAW}2-topic-7"): ("no index knows me|I do.", ""),
    ("zyhive", "ses-1767261600000"): (
        "payment.py|import lock|def lock_all|锁的顺序不对|按顺序加锁",
        "interrupted",
    ),
    ("zyhive", "ses-1767261700000"): ("前10条已压缩|question 6|answer 12|and now?", "question 5|answer 5"),
    ("zyhive", "tg-42"): ("All of it.|go on", "deleted file|but this"),
    ("claw0", "a1b2c3d4e5f6"): ("What is in|I will read it.|key|nothing|A key and nothing.", "interrupted"),
    ("claw0", "00ff00ff00ff"): ("one|two", "torn"),
    ("claw0-keyed", "abc123abc123"): (
        "hello|Hi there!|read config.json|tu_001|The key is value.",
        "interrupted|not part of",
    ),
    ("claw0-keyed", "def456def456"): ("anybody?", ""),
}
"""(words in the order they are shown, words that are not)."""


def test_every_fixture_is_shown_as_its_own_tool_should_have_shown_it(place):
    for layout in LAYOUTS:
        root = place(layout)

        async def look(root=root):
            async with open_store(f"jsonl:{root}") as store:
                return await everything(store)

        found = run(look())
        assert set(found) == {name for where, name in EXPECTED if where == layout}
        for session_id, loaded in found.items():
            text = words(loaded.entries)
            there, absent = (wanted.split("|") for wanted in EXPECTED[layout, session_id])
            places = [text.find(word) for word in there]
            assert -1 not in places, (layout, session_id, there[places.index(-1)], text)
            assert places == sorted(places), (layout, session_id, text)
            assert not [word for word in absent if word and word in text], (layout, session_id, text)


def test_one_line_is_one_entry_and_damage_costs_its_line_only(place):
    root = place("pi")

    async def look():
        async with open_store(f"jsonl:{root}") as store:
            assert [e.seq for e in await store.read(f"{PI}1")] == list(range(1, 19))
            error = await raises(turnlog.Corrupt, store.read(f"{PI}2"))
            assert (error.line, error.after, error.before) == (15, 14, 16)
            assert [e.seq for e in await store.read(f"{PI}2", after=15)] == [16, 17]
            for after in range(19):
                assert [e.seq for e in await store.read(f"{PI}1", after=after)] == list(range(after + 1, 19))
                assert [e.seq for e in await store.read(f"{PI}1", before=after + 1)] == list(range(1, after + 1))
            states = {c.seq: c.state for c in compaction.explain(await store.read(f"{PI}1"))}
            assert [seq for seq, state in states.items() if state == "rewound"] == [8, 9]

    run(look())


def test_a_session_without_a_header_has_one_all_the_same(place):
    root = place("claw0")

    async def look():
        async with open_store(f"jsonl:{root}") as store:
            entries = await store.read("a1b2c3d4e5f6")
            assert [e.seq for e in entries] == list(range(1, 9))
            assert (entries[0].label, entries[0].key) == ("my-project", "agent:main:cli:direct:user")
            assert await store.read("a1b2c3d4e5f6", before=2) == entries[:1]
            assert await store.read("a1b2c3d4e5f6", after=1, limit=1) == entries[1:2]
            assert entries[1].ts == timestamp(1767261600.5) == "2026-01-01T10:00:00.500Z"

    run(look())


def test_the_session_used_last_is_gone_on_with_by_its_key(place):
    for layout, key, name in (
        ("claw0", "agent:main:cli:direct:user", "a1b2c3d4e5f6"),
        ("claw0-keyed", "main:cli:user", "abc123abc123"),
        ("pi", "agent:main:pi:direct:%2Fhome%2Fann%2Fshop", f"{PI}2"),
        ("openclaw", "agent:main:telegram:group:-100:thread:17", f"{CLAW}1"),
    ):
        root = place(layout)

        async def look(root=root, key=key):
            async with open_store(f"jsonl:{root}") as store:
                return (await turnlog.Sessions(store).open(key)).id

        assert run(look()) == name


def old_claw0_reads(path):
    """The reading rule of the older lesson, as its document gives it."""
    messages, pending = [], []
    for line in path.read_text(encoding="utf-8").strip().splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        kind = record.get("type")
        if kind in ("user", "assistant", "tool_result") and pending:
            messages.append(("assistant", pending))
            pending = []
        if kind in ("user", "assistant"):
            messages.append((kind, record.get("content", "")))
        elif kind == "tool_use":
            pending.append(record.get("tool_use_id", ""))
        elif kind == "tool_result":
            messages.append(("user", record.get("output", "")))
    return messages


def new_claw0_reads(path):
    """The reading rule of the newer lesson."""
    messages = []
    for line in path.read_text(encoding="utf-8").strip().split("\n"):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        kind = record.get("type")
        if kind == "user":
            messages.append(("user", record["content"]))
        elif kind == "assistant":
            messages.append(("assistant", record["content"]))
        elif kind == "tool_use":
            messages.append(("assistant", [record["tool_use_id"], record["name"], record["input"]]))
        elif kind == "tool_result":
            messages.append(("user", (record["tool_use_id"], record["content"])))
    return messages


@pytest.mark.parametrize(
    ("layout", "session_id", "read"),
    [("claw0", "a1b2c3d4e5f6", new_claw0_reads), ("claw0-keyed", "abc123abc123", old_claw0_reads)],
)
def test_claw0_reads_what_we_added_and_nothing_else(place, layout, session_id, read):
    root = place(layout)
    path = next(path for path in root.rglob(f"*{session_id}.jsonl") if ".turnlog" not in path.parts)
    before = read(path)

    async def go_on():
        async with open_store(f"jsonl:{root}") as store, store.lease(session_id) as lease:
            await store.append(session_id, [entry(type="received", content="more")])
            last = (await store.describe(session_id)).last_seq
            await store.append(session_id, [entry(type="user", **{"from": [last]})], lease=lease)
            calls = entry(type="assistant", content=[call("read", "n1")])
            await store.append(session_id, [calls], lease=lease)
            await store.append(session_id, [entry(type="tool_result", tool_use_id="n1", content="out")], lease=lease)
            await store.append(session_id, [answered("done"), entry(type="pin", target=2)], lease=lease)
            await store.append(session_id, [entry(type="status", value="archived")])

    run(go_on())
    new = read(path)[len(before) :]
    out = ("user", ("n1", "out")) if layout == "claw0" else ("user", "out")
    assert new == [
        ("user", "more"),
        ("assistant", [call("read", "n1")]),
        out,
        ("assistant", [{"type": "text", "text": "done"}]),
    ]


def test_the_indexes_of_other_tools_are_gone_on_with_and_keep_what_we_do_not_know(place):
    def index(root, name):
        return json.loads((root / name).read_text(encoding="utf-8"))

    async def go_on(root, session_id):
        async with open_store(f"jsonl:{root}") as store, store.lease(session_id) as lease:
            await store.append(session_id, [said("more"), answered("yes")], lease=lease)
            return await store.describe(session_id)

    root = place("claw0")
    row = run(go_on(root, "a1b2c3d4e5f6"))
    rows = index(root, ".sessions/agents/main/sessions.json")
    assert set(rows) == {"a1b2c3d4e5f6", "00ff00ff00ff"}, "a file that it had forgotten is in it again"
    known = rows["a1b2c3d4e5f6"]
    assert (known["label"], known["colour"], known["message_count"]) == ("my-project", "green", 9)
    assert known["created_at"] == "2026-01-01T10:00:00+00:00"
    assert known["last_active"] == timestamp(row.last_at)

    root = place("claw0-keyed")
    run(go_on(root, "abc123abc123"))
    rows = index(root, ".sessions/sessions.json")
    assert rows["main:cli:user"]["mood"] == "good"
    assert rows["main:cli:user"]["message_count"] == 3, "two turns were there, and one was added"
    assert rows["main:cli:user_101500"]["transcript_file"] == "main_cli_user_101500_def456def456.jsonl"

    root = place("zyhive")
    run(go_on(root, "ses-1767261600000"))
    rows = index(root, "agents/xiuliu/sessions/sessions.json")["sessions"]
    assert rows["ses-gone"] == index(HERE / "zyhive", "agents/xiuliu/sessions/sessions.json")["sessions"]["ses-gone"]
    known = rows["ses-1767261600000"]
    assert (known["titledAtMsgCount"], known["source"], known["messageCount"]) == (4, "web", 8)
    assert known["createdAt"] == 1767261600000

    root = place("openclaw")
    run(go_on(root, f"{CLAW}1"))
    rows = index(root, "agents/main/sessions/sessions.json")
    assert rows["agent:main:main"] == {
        "sessionId": "0199b000-0000-7000-8000-0000000000ff", "updatedAt": 1767261600000, "thinkingLevel": "high"
    }  # fmt: skip
    known = rows["agent:main:telegram:group:-100:thread:17"]
    assert known["skillsSnapshot"] == {"prompt": "x" * 50}
    assert known["updatedAt"] > 1767261605000


def test_a_deleted_session_leaves_the_other_tools_index_too(place):
    root = place("claw0")

    async def delete():
        async with open_store(f"jsonl:{root}") as store:
            await store.delete("a1b2c3d4e5f6")

    run(delete())
    rows = json.loads((root / ".sessions/agents/main/sessions.json").read_bytes())
    assert "a1b2c3d4e5f6" not in rows
    assert not list(root.rglob("a1b2c3d4e5f6.jsonl"))


@pytest.mark.parametrize("garbage", [b"", b'{"a1b2c3d4e5f6": {"label"', b"[]", b"\xff\xfe"])
def test_an_index_that_cannot_be_read_hides_nothing_and_is_kept(place, garbage):
    root = place("claw0")
    path = root / ".sessions/agents/main/sessions.json"
    path.write_bytes(garbage)

    async def look():
        async with open_store(f"jsonl:{root}") as store:
            assert set(await everything(store)) == {"a1b2c3d4e5f6", "00ff00ff00ff"}
            assert path.read_bytes() == garbage
            await store.append("a1b2c3d4e5f6", [entry(type="title", title="x")])

    run(look())
    assert set(json.loads(path.read_bytes())) == {"a1b2c3d4e5f6", "00ff00ff00ff"}
    aside = [p.read_bytes() for p in (root / ".sessions/.turnlog").glob("sessions.json.*")]
    assert aside == ([garbage] if garbage else [])


def test_a_compaction_in_a_zyhive_file_counts_and_the_whole_stays_readable(place):
    """Its firstKeptEntryId names a message with an id: the prompt begins there, the log holds all of it."""
    root = place("zyhive")

    async def look():
        async with open_store(f"jsonl:{root}") as store:
            entries = await store.read("ses-1767261700000")
            built = history.build(entries, inject="system")
            assert "前10条已压缩" in built.system
            assert built.messages[0] == {"role": "user", "content": "question 6"}
            assert sum("question" in str(getattr(e, "content", "")) for e in entries) == 12

    run(look())


def test_zyhive_compacts_after_turn_23_and_its_line_names_message_4(tmp_path):
    """14,000 characters a question: 3,507 tokens a turn by bytes4."""
    url = f"jsonl:{tmp_path}?dialect=v3&layout=zyhive"
    keep = Keep("turns", 20)

    async def talk():
        async with open_store(url, durability="os", clock=FixedClock()) as store:
            await store.append("ses-1", [opened("ses-1"), entry(type="selected", n=1)])
            async with store.lease("ses-1") as lease:
                for n in range(23):
                    question = f"{n + 1:02d}" + "x" * 13_998
                    await store.append("ses-1", [said(question)], lease=lease)
                    await store.append("ses-1", [entry(type="assistant", content="ok", stop="end_turn")], lease=lease)
                entries = await store.read("ses-1")
                size = tokens.estimate(history.build(entries).messages, estimator="bytes4")
                plan = compaction.plan(entries, keep)
                done = compaction.complete(
                    plan, "Questions 1 to 3.", trigger="tokens", tokens_before=size, tokens_after=70_000
                )
                await store.append("ses-1", [done], lease=lease)
                await store.append("ses-1", [said("next")], lease=lease)
            return await store.describe("ses-1"), await store.read("ses-1")

    row, entries = run(talk())
    lines = [json.loads(line) for line in (tmp_path / "agents/main/sessions/ses-1.jsonl").read_text().splitlines()]
    (fold,) = [line for line in lines if line["type"] == "compaction"]
    messages = [line for line in lines if line["type"] == "message"]
    assert len(messages) == 47
    assert fold["firstKeptEntryId"] == messages[6]["id"]
    assert messages[6]["message"]["content"].startswith("04")
    assert fold["tokensBefore"] > fold["tokensAfter"] == 70_000
    assert row.message_count == 47
    assert json.loads((tmp_path / "agents/main/sessions/sessions.json").read_bytes())["sessions"]["ses-1"][
        "messageCount"
    ] == 47  # fmt: skip
    built = history.build(entries, inject="system")
    assert "Questions 1 to 3." in built.system
    assert len(built.messages) == 41
    assert str(built.messages[0]["content"]).startswith("04")
    assert str(entries[2].content).startswith("01"), "the raw text of turn 1 is still there"

    async def again():
        async with open_store(f"jsonl:{tmp_path}") as store:
            assert await store.read("ses-1") == entries
            assert await store.describe("ses-1") == row

    run(again())


@pytest.mark.parametrize("preset", ["zyhive", "claw0", "claw0-keyed", "openclaw"])
def test_each_preset_runs_on_the_files_of_its_system(tmp_path, preset):
    """Three turns, a tool round, restart; a compaction, restart: the same history each time."""

    async def turn(t, n):
        session = await t.sessions.open("agent:main:cli:direct:user")
        async with t.store.lease(session.id) as lease:
            await t.store.append(session.id, [said(f"question {n}")], lease=lease)
            calls = [{"type": "text", "text": "let me see"}, call("read_file", f"c{n}"), call("read_file", f"d{n}")]
            await t.store.append(session.id, [entry(type="assistant", content=calls, stop="tool_use")], lease=lease)
            for name in ("c", "d"):
                result = entry(type="tool_result", tool_use_id=f"{name}{n}", content=f"result {name}{n}")
                await t.store.append(session.id, [result], lease=lease)
            await t.store.append(session.id, [answered(f"answer {n}")], lease=lease)
        return session.id

    async def start(*steps):
        async with turnlog.open(home=tmp_path / "home", session_preset=preset) as t:
            session_id = ""
            for step in steps:
                session_id = await turn(t, step)
            session_id = session_id or (await t.sessions.open("agent:main:cli:direct:user")).id
            return session_id, await t.sessions.history(session_id)

    async def fold(session_id):
        async with turnlog.open(home=tmp_path / "home", session_preset=preset) as t, t.store.lease(session_id) as lease:
            plan = compaction.plan(await t.store.read(session_id), Keep("turns", 1))
            done = compaction.complete(plan, "What was said.", trigger="manual", tokens_before=100, tokens_after=10)
            await t.store.append(session_id, [done], lease=lease)
            return await t.sessions.history(session_id)

    assert PRESETS[preset]["store.url"].startswith("jsonl:")
    first, before = run(start(1, 2, 3))
    again, after = run(start())
    assert (first, before) == (again, after)
    assert len(before.messages) == 12
    check_messages(before.messages)
    folded = run(fold(first))
    assert run(start()) == (first, folded)
    shown = folded.system + json.dumps(folded.messages)
    assert "What was said." in shown
    assert "question 1" not in shown
    assert "result d3" in shown
    _, last = run(start(4))
    check_messages(last.messages)


ZYHIVE = "agents/xiuliu/sessions/sessions.json"
TITLED = "ses-1767261600000"


def zyhive_rows(root):
    return json.loads((root / ZYHIVE).read_text(encoding="utf-8"))["sessions"]


def change_zyhive_row(root, **fields):
    rows = zyhive_rows(root)
    rows[TITLED] |= fields
    (root / ZYHIVE).write_text(json.dumps({"sessions": rows}, ensure_ascii=False))


@pytest.mark.parametrize("overridden", [{}, {"titleOverridden": True}, {"titleOverridden": False}])
def test_a_title_in_the_index_of_zyhive_is_listed_and_never_overwritten_by_an_append(place, overridden):
    root = place("zyhive")
    title = "支付：一个自己的标题"  # not the first words, which would be its title anyway
    change_zyhive_row(root, title=title, **overridden)

    async def go_on():
        async with open_store(f"jsonl:{root}") as store:
            (row,) = (await store.find(Query(q="自己的标题"))).items
            assert (row.id, row.title) == (TITLED, title)
            assert (await store.describe(TITLED)).title == title
            async with store.lease(TITLED) as lease:
                await store.append(TITLED, [said("more"), answered("yes")], lease=lease)
            assert (await store.describe(TITLED)).title == title

    for _ in range(2):
        run(go_on())
        known = zyhive_rows(root)[TITLED]
        assert known["title"] == title
        assert {field: known[field] for field in overridden} == overridden
        assert known.keys() & {"titleOverridden"} == overridden.keys()


def test_a_title_given_there_later_is_seen_and_one_given_here_is_entered_there_once(place):
    root = place("zyhive")

    async def listed(store):
        return {row.id: row.title for row in (await store.find(Query(limit=200))).items}[TITLED]

    async def rename():
        async with open_store(f"jsonl:{root}") as store:
            await listed(store)
            change_zyhive_row(root, title="Renamed there")
            assert await listed(store) == (await store.describe(TITLED)).title == "Renamed there"
            await store.append(TITLED, [entry(type="title", title="Renamed here")])
            assert await listed(store) == "Renamed here"

    async def go_on():
        async with open_store(f"jsonl:{root}") as store, store.lease(TITLED) as lease:
            assert await listed(store) == "Renamed here"
            await store.append(TITLED, [said("more")], lease=lease)

    run(rename())
    assert (zyhive_rows(root)[TITLED]["title"], zyhive_rows(root)[TITLED]["titleOverridden"]) == ("Renamed here", True)
    change_zyhive_row(root, title="Renamed there again")
    run(go_on())
    assert zyhive_rows(root)[TITLED]["title"] == "Renamed there again"


def test_a_label_that_openclaw_changed_since_is_left_alone(place):
    root = place("openclaw")
    path = root / "agents/main/sessions/sessions.json"

    async def go_on():
        async with open_store(f"jsonl:{root}") as store, store.lease(f"{CLAW}1") as lease:
            assert (await store.describe(f"{CLAW}1")).label == "Family"
            rows = json.loads(path.read_text())
            rows["agent:main:telegram:group:-100:thread:17"]["label"] = "Relatives"
            path.write_text(json.dumps(rows))
            await store.append(f"{CLAW}1", [said("more")], lease=lease)

    run(go_on())
    assert json.loads(path.read_text())["agent:main:telegram:group:-100:thread:17"]["label"] == "Relatives"
