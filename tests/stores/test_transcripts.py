"""Files written by each format must load for ever: tests/transcripts is only ever added to."""

import asyncio
import shutil
from pathlib import Path

import turnlog
from turnlog.core import compaction, history
from turnlog.core.entries import Entry
from turnlog.testing import check_messages, entry

HERE = Path(__file__).parents[1] / "transcripts"
SESSION = "ses-1767261600000-abc123"


def test_a_transcript_of_format_1_is_read_continued_and_never_rewritten(tmp_path):
    root = tmp_path / "store"
    shutil.copytree(HERE / "native-1", root)
    path = root / "agents/main/sessions" / f"{SESSION}.jsonl"
    before = path.read_bytes()

    async def look():
        async with turnlog.open_store(f"jsonl:{root}") as store:
            sessions = turnlog.Sessions(store)
            entries = await store.read(SESSION)
            assert {type(e) for e in entries} == set(Entry.__args__), "every type of entry is in it"
            row = await store.describe(SESSION)
            assert (row.title, row.status, row.message_count, row.turn_count) == (
                "Ausflug an den See",
                "archived",
                9,
                4,
            )
            assert (row.boundary, row.pins, row.label) == (1, (), "Ausflug")
            built = await sessions.history(SESSION)
            check_messages(built.messages)
            assert built == history.build(entries)
            assert "你好" in str(built.messages)
            assert "Thanks!" not in str(built.messages), "it was rewound"
            assert [c.seq for c in compaction.explain(entries) if c.state == "rewound"] == [17, 18]
            assert [hit.seq for hit in await store.search("明天")] == [3]
            await store.append(SESSION, [entry(type="title", title="on")])
        assert path.read_bytes().startswith(before)

    asyncio.run(look())
