"""A backup holds all of a store, also of one in use; restoring it anywhere gives the same; damage is noticed."""

import asyncio
import gzip
import json

import pytest

import turnlog
from turnlog.convlog import Record, open_convlog
from turnlog.core import paging
from turnlog.errors import Conflict, Corrupt, StoreUnavailable, UsageError
from turnlog.interchange.backup import archive, backup, check, restore
from turnlog.memory import open_memory, place_of
from turnlog.server.http.auth import TOKEN_SPACES, Tokens
from turnlog.sessions import copying
from turnlog.stores import facts as ledger_facts
from turnlog.stores.disk import files
from turnlog.testing import entry, opened

from ..stores import postgres

KEY = "agent:main:telegram:direct:5"


@pytest.fixture(params=["sqlite", "jsonl", "postgresql"])
def url(request, tmp_path):
    if request.param == "postgresql":
        return postgres.url_of(tmp_path)
    return f"jsonl:{tmp_path}/files" if request.param == "jsonl" else f"sqlite:{tmp_path}/one/sessions.db"


async def fill(url, home):
    """Two sessions, a token, a channel's record, a memo."""
    async with turnlog.open(url, home=home, model_name="offline") as t:
        for text in ("My name is Ada.", "half a \ud800 character"):
            [_ async for _ in t.send(KEY, text, dedupe_id=text[:5])]
        await t.session("ann").ask("hello")
        await t.session("ann").rename("Greeting")
        token = await Tokens(t.ledger(*TOKEN_SPACES)).create("bot", ["chat"])
    async with open_convlog(url) as convlog:
        for text in ("hi", "hello"):
            record = Record(ts="2026-01-01T00:00:00.000Z", role="user", content=text, channel_id="", channel_type="t")
            await convlog.write("main", "telegram-5", record)
    async with open_memory(place_of(url)) as memory:
        await memory.save("main", "owner", "The dog is called Rex.", ts=1_700_000_000_000)
    return token[1]


async def held(url):
    """All that a store holds, without what each store decides by itself."""
    async with turnlog.open_store(url, create=False) as store:
        ids = sorted([one async for one in copying.all_ids(store)])
        logs = {one: await copying.digest(store, one) for one in ids}
        facts = {(space, f.key): f.value for space in copying.SPACES for f in await store.ledger.list(space)}
    async with open_convlog(url) as convlog:
        said = [(r.ts, r.content) for r in (await convlog.messages("main", "telegram-5")).items]
    async with open_memory(place_of(url)) as memory:
        memos = [(memo.owner, memo.ts, memo.text) for memo in await memory.list()]
        recalled = [memo.text for memo in await memory.recall("main", "owner", "what is the dog called?")]
    return logs, facts, said, memos, recalled


def test_facts_of_the_ledger_are_backed_up_and_copied_however_many_there_are(url, tmp_path, monkeypatch):
    monkeypatch.setattr(ledger_facts, "PAGE", 3)
    keys = [f"k{number:02}" for number in range(10)]

    async def main():
        async with turnlog.open_store(url) as store:
            for key in keys:
                assert await store.ledger.put_if_absent("delivered", key, {"at": key}) is None
        summary = await backup(url, tmp_path / "many.backup")
        assert summary.counts.facts == len(keys)
        target = f"jsonl:{tmp_path}/copy"
        assert (await copying.copy_between(url, target)).facts == len(keys)
        async with turnlog.open_store(target) as store:
            assert [fact.key for fact in await store.ledger.list("delivered")] == keys

    asyncio.run(main())


def test_a_restore_gives_all_that_was_backed_up_into_another_kind_of_store(url, tmp_path):
    target = f"jsonl:{tmp_path}/restored" if not url.startswith("jsonl") else f"sqlite:{tmp_path}/restored/sessions.db"

    async def main():
        secret = await fill(url, tmp_path)
        summary = await backup(url, tmp_path / "monday.backup")
        done = await restore(tmp_path / "monday.backup", target)
        again = await restore(tmp_path / "monday.backup", target)
        assert (done.sessions, done.said, done.memos) == (2, 2, 1)
        assert done.entries == summary.counts.entries > 6
        assert (again.entries, again.facts, again.said, again.memos) == (0, 0, 0, 0)
        assert await held(target) == await held(url)
        async with turnlog.open(target, home=tmp_path, model_name="offline") as t:
            assert await Tokens(t.ledger(*TOKEN_SPACES)).find(secret.split("_")[1])
            [_ async for _ in t.send(KEY, "My name is Ada.", dedupe_id="My na")]  # was delivered before the backup
            assert (await t.session(KEY)).message_count == 4
            assert "Ada" in await t.session(KEY).ask("What is my name?")

    asyncio.run(main())


def test_the_digest_is_that_of_a_copy(url, tmp_path):
    async def main():
        await fill(url, tmp_path)
        summary = await backup(url, tmp_path / "a")
        assert summary.digest == (await copying.copy_between(url, f"sqlite:{tmp_path}/copy.db")).digest

    asyncio.run(main())


def test_a_backup_of_a_store_in_use_holds_whole_appends_and_no_deleted_session(url, tmp_path, monkeypatch):
    monkeypatch.setattr(paging, "FIRST_ENTRIES", 3)
    monkeypatch.setattr(paging, "PAGE_ENTRIES", 3)
    pair = [entry(type="title", title="a"), entry(type="title", title="b")]

    async def main():
        async with turnlog.open_store(url) as store:
            for name in ("gone", "grows"):
                await store.append(name, [opened(name), *pair * 3])

            async def work(number, total):  # between two sessions of the backup
                if number == 1:
                    await store.append("grows", pair)

            loop = asyncio.get_running_loop()
            read, seen = copying.pages, []

            async def pages(source, session_id, **options):
                async for page in read(source, session_id, **options):
                    yield page
                    if session_id == "gone" and not seen:
                        seen.append(await store.delete("gone"))
                    if session_id == "grows":
                        await store.append("grows", pair)

            monkeypatch.setattr("turnlog.interchange.backup.pages", pages)
            summary = await backup(url, tmp_path / "b", progress=lambda *done: loop.create_task(work(*done)))
            assert summary.counts.sessions == 1
        assert (await restore(tmp_path / "b", f"sqlite:{tmp_path}/new.db")).sessions == 1
        async with turnlog.open_store(f"sqlite:{tmp_path}/new.db") as store:
            log = await store.read("grows")
            assert len(log) % 2 == 1
            with pytest.raises(turnlog.NotFound):
                await store.describe("gone")

    asyncio.run(main())


def test_a_backup_holds_what_is_written_to_while_sessions_and_conversations_are_listed(url, tmp_path, monkeypatch):
    monkeypatch.setattr("turnlog.stores.finding.PAGE_MAX", 2)
    monkeypatch.setattr("turnlog.interchange.backup.PAGE_MAX", 2)

    async def say(convlog, number):
        ts = f"2026-01-01T00:00:{number:02}.000Z"
        record = Record(ts=ts, role="user", content="hi", channel_id="", channel_type="t")
        await convlog.write("main", f"telegram-{number % 10}", record)

    async def main():
        async with turnlog.open_store(url) as store, open_convlog(url) as convlog:
            for number in range(5):
                await store.append(f"s{number}", [opened(f"s{number}")])
                await say(convlog, number)
            find, read = type(store).find, type(convlog).messages

            async def found(self, query):  # the oldest session moves to the front
                page = await find(self, query)
                await store.append("s0", [entry(type="title", title="x")])
                return page

            async def messages(self, *place, **options):
                await say(convlog, 40)
                return await read(self, *place, **options)

            monkeypatch.setattr(type(store), "find", found)
            monkeypatch.setattr(type(convlog), "messages", messages)
            summary = await backup(url, tmp_path / "b")
            monkeypatch.undo()
        assert summary.counts.sessions == 5
        await restore(tmp_path / "b", f"sqlite:{tmp_path}/new/sessions.db")
        async with open_convlog(f"sqlite:{tmp_path}/new/sessions.db") as convlog:
            assert len((await convlog.list()).items) == 5

    asyncio.run(main())


def test_equal_memos_are_restored_as_often_as_they_were_there(tmp_path):
    one, two = f"sqlite:{tmp_path}/one/sessions.db", f"sqlite:{tmp_path}/two/sessions.db"

    async def main():
        await fill(one, tmp_path)
        async with open_memory(place_of(one)) as memory:
            for _ in range(2):
                await memory.save("main", "owner", "The dog is called Rex.", ts=1_700_000_000_000)
        await backup(one, tmp_path / "b")
        assert [(await restore(tmp_path / "b", two)).memos for _ in range(2)] == [3, 0]

    asyncio.run(main())


def rewritten(path, change):
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    path.write_bytes(gzip.compress(b"".join(change(lines))))


def counted_in_words(last):
    return json.dumps({**json.loads(last), "counts": {"sessions": "three"}}).encode() + b"\n"


DAMAGE = {
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:-40]),
    "no last line": lambda path: rewritten(path, lambda lines: lines[:-1]),
    "a changed word": lambda path: rewritten(path, lambda lines: [line.replace(b"Ada", b"Eve") for line in lines]),
    "a lost line": lambda path: rewritten(path, lambda lines: [*lines[:3], *lines[4:]]),
    "no counts": lambda path: rewritten(path, lambda lines: [*lines[:-1], lines[-1].replace(b'"counts"', b'"other"')]),
    "counts of another kind": lambda path: rewritten(path, lambda lines: [*lines[:-1], counted_in_words(lines[-1])]),
    "more after the end": lambda path: rewritten(path, lambda lines: [*lines, b"{}\n"]),
    "not JSON": lambda path: rewritten(path, lambda lines: [*lines[:2], b"nonsense\n", *lines[2:]]),
    "half a character": lambda path: rewritten(path, lambda lines: [*lines[:2], b'{"a":"\xff"}\n', *lines[2:]]),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_backup_is_refused_and_nothing_is_restored(damage, tmp_path):
    async def main():
        await fill(f"sqlite:{tmp_path}/one.db", tmp_path)
        await backup(f"sqlite:{tmp_path}/one.db", tmp_path / "b")
        DAMAGE[damage](tmp_path / "b")
        with pytest.raises(Corrupt):
            await restore(tmp_path / "b", f"sqlite:{tmp_path}/new.db")
        assert not (tmp_path / "new.db").exists()

    asyncio.run(main())


def test_a_session_that_went_another_way_is_kept_and_named(tmp_path):
    one, two = f"sqlite:{tmp_path}/one.db", f"sqlite:{tmp_path}/two.db"

    async def main():
        for url, title in ((one, "old"), (two, "new")):
            async with turnlog.open_store(url) as store:
                await store.append("s", [opened("s"), entry(type="title", title=title)])
        await backup(one, tmp_path / "b")
        with pytest.raises(Conflict, match="session s"):
            await restore(tmp_path / "b", two)
        async with turnlog.open_store(two) as store:
            assert (await store.describe("s")).title == "new"

    asyncio.run(main())


def test_a_store_that_went_on_since_the_backup_keeps_what_came_later(tmp_path):
    url = f"sqlite:{tmp_path}/one.db"

    async def main():
        async with turnlog.open_store(url) as store:
            await store.append("s", [opened("s"), entry(type="title", title="a")])
            await backup(url, tmp_path / "b")
            await store.append("s", [entry(type="title", title="later")])
        assert (await restore(tmp_path / "b", url)).entries == 0
        async with turnlog.open_store(url) as store:
            assert (await store.describe("s")).title == "later"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (None, "there is no file"),
        ('{"type":"session"}', "is not a backup"),
        ('{"turnlog":"backup","version":99}', "version 99"),
    ],
    ids=["missing", "another kind", "a newer version"],
)
def test_another_file_is_a_usage_error(line, says, tmp_path):
    if line is not None:
        (tmp_path / "b").write_bytes(gzip.compress(f"{line}\n".encode()))
    with pytest.raises(UsageError, match=says):
        check(tmp_path / "b")


def test_a_backup_that_fails_leaves_the_former_one_and_no_other_file(tmp_path, monkeypatch):
    url = f"sqlite:{tmp_path}/data/one.db"
    place = tmp_path / "backups"
    place.mkdir()

    async def main():
        await fill(url, tmp_path)
        await backup(url, place / "b")
        before = (place / "b").read_bytes()

        def full(self, counts, digest):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(archive.ArchiveWriter, "finish", full)
        with pytest.raises(StoreUnavailable, match="No space left"):
            await backup(url, place / "b")
        assert [path.name for path in place.iterdir()] == ["b"]
        assert (place / "b").read_bytes() == before
        assert (place / "b").stat().st_mode & 0o777 == 0o600

    asyncio.run(main())


def test_a_store_that_is_not_there_is_not_created(tmp_path):
    with pytest.raises(StoreUnavailable):
        asyncio.run(backup(f"sqlite:{tmp_path}/none.db", tmp_path / "b"))
    assert list(tmp_path.iterdir()) == []


def test_a_restore_reads_the_file_twice_to_prove_it_and_to_write_it(url, tmp_path, monkeypatch):
    opened_files = []
    real = gzip.open

    def counted(path, *args):
        opened_files.append(path)
        return real(path, *args)

    async def main():
        await fill(url, tmp_path)
        await backup(url, tmp_path / "a")
        monkeypatch.setattr(gzip, "open", counted)
        await restore(tmp_path / "a", f"sqlite:{tmp_path}/other.db")

    asyncio.run(main())
    assert len(opened_files) == 2


def test_a_backup_replaces_a_backup_and_no_other_file(tmp_path):
    database, old = tmp_path / "sessions.db", tmp_path / "old.backup"
    url = f"sqlite:{database}"
    asyncio.run(fill(url, tmp_path))
    before = database.read_bytes()
    (tmp_path / "letter.txt").write_text("Dear Ann")
    (tmp_path / "letter.gz").write_bytes(gzip.compress(b"Dear Ann"))
    for other in (database, tmp_path / "letter.txt", tmp_path / "letter.gz", tmp_path):
        with pytest.raises(UsageError, match="is not a backup"):
            asyncio.run(backup(url, other))
    assert database.read_bytes() == before
    assert (tmp_path / "letter.txt").read_text() == "Dear Ann"
    old.touch()
    made = asyncio.run(backup(url, old))
    old.write_bytes(old.read_bytes()[:-30])  # damaged
    assert asyncio.run(backup(url, old)).digest == made.digest
    assert check(old).digest == made.digest


def test_what_a_killed_backup_has_left_is_removed_by_the_next_one_but_not_what_another_writes(tmp_path):
    url, path = f"sqlite:{tmp_path}/one/sessions.db", tmp_path / "b.backup"
    abandoned, written, other = (
        tmp_path / name for name in (".b.backup.x.part", ".b.backup.y.part", ".c.backup.z.part")
    )
    for part in (abandoned, written, other):
        part.write_bytes(b"x")

    async def main():
        await fill(url, tmp_path)
        with written.open("rb") as file:
            assert files.lock(file.fileno(), wait=False)
            await backup(url, path)

    asyncio.run(main())
    assert (abandoned.exists(), written.exists(), other.exists()) == (False, True, True)
    check(path)
