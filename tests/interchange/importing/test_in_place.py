"""A directory opened in place and the same directory imported are one conversation."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest

import turnlog
from turnlog.core import history
from turnlog.interchange.importing import import_path
from turnlog.testing import check_messages, entry

TRANSCRIPTS = Path(__file__).parents[2] / "transcripts"
LAYOUTS = {
    "pi": "pi",
    "openclaw": "openclaw",
    "zyhive": "zyhive",
    "claw0": "claw0/.sessions",
    "claw0-keyed": "claw0-keyed/.sessions",
}


async def histories(url):
    """By the text of the first message: ids differ between the two."""
    found = {}
    async with turnlog.open(url) as t:
        for row in (await t.sessions.list()).items:
            messages = (await t.sessions.history(row.id)).messages
            check_messages(messages)
            found[json.dumps(messages[0], ensure_ascii=False)] = messages
    return found


async def imported(path):
    found = {}
    async with turnlog.open_store("memory:") as store:
        for result in await import_path(store, path):
            if result.id:
                messages = history.build(await store.read(result.id)).messages
                found[json.dumps(messages[0], ensure_ascii=False)] = messages
    return found


async def go_on(url):
    """Everything a session can do, in files that know nothing of it."""
    async with turnlog.open(url) as t:
        for row in (await t.sessions.list()).items:
            async with t.store.lease(row.id) as lease:
                say = [entry(type="user", content="On."), entry(type="assistant", content="Right.")]
                await t.store.append(row.id, say, lease=lease)
                last = (await t.store.describe(row.id)).last_seq
                await t.store.append(row.id, [entry(type="pin", target=last - 1)], lease=lease)
                await t.store.append(row.id, say, lease=lease)
                boundary = (await t.store.describe(row.id)).boundary
                fold = {"first_kept": last + 2, "covers": [min(2, boundary), last + 1]}
                await t.store.append(row.id, [entry(type="compaction", summary="All of it.", **fold)], lease=lease)
                await t.store.append(row.id, [entry(type="user", content="More.")], lease=lease)
                await t.store.append(row.id, [entry(type="rewind", to=last + 4)], lease=lease)
                await t.store.append(row.id, say, lease=lease)


DIFFERS = ("openclaw", "import", False)
"""Its summary names no entry that exists: in place it hides everything before it, as in OpenClaw; imported, nothing."""
CASES = [(layout, folder, on) for layout in LAYOUTS for folder in (".", "import") for on in (False, True)]


@pytest.mark.parametrize(("layout", "folder", "continued"), [case for case in CASES if case != DIFFERS])
def test_both_ways_give_the_same_history(layout, folder, continued, tmp_path):
    root = tmp_path / "foreign"
    shutil.copytree(TRANSCRIPTS / folder / layout, root / layout)
    place = root / LAYOUTS[layout]
    url = f"jsonl:{place}"

    async def go():
        if continued:
            await go_on(url)
        return await histories(url), await imported(place)

    in_place, read = asyncio.run(go())
    assert in_place
    # What a program has put aside is no session in place, and is imported.
    assert {first: messages for first, messages in read.items() if first in in_place} == in_place
