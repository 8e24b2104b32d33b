"""Other tools' directories when something is wrong with them: clear, nothing overwritten, nothing followed out."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time

import pytest

import turnlog
from turnlog import Query, open_store
from turnlog.core import history
from turnlog.stores.jsonl import appending, lines, transcript
from turnlog.testing import answered, check_messages, opened, raises, said

from ...waiting import GIVES_UP_S
from .test_foreign import HERE, everything, run, snapshot

MB = int(os.environ.get("FOREIGN_MB", "24"))
FILES = int(os.environ.get("FOREIGN_FILES", "1500"))
ROOM_MB = 160
"""What looking at a file may take beyond what the interpreter takes anyhow, however large the file is."""


async def refused(url, **options):
    return await raises(turnlog.UsageError, open_store(url, **options).__aenter__())


async def append(url, session_id, *bodies, **options):
    async with open_store(url, durability="os", **options) as store, store.lease(session_id) as lease:
        return await store.append(session_id, list(bodies), lease=lease)


def claw0_file(root):
    return root / ".sessions/agents/main/sessions/00ff00ff00ff.jsonl"


def test_a_torn_last_line_is_dropped_before_the_next_append_only(place):
    root = place("claw0")
    path = claw0_file(root)
    before = path.read_bytes()
    notices = []
    run(append(f"jsonl:{root}", "00ff00ff00ff", said("on"), on_notice=notices.append))
    data = path.read_bytes()
    whole = before[: before.rfind(b"\n") + 1]
    assert data.startswith(whole)
    assert b"torn of" not in data
    assert json.loads(data[len(whole) :])["content"] == "on"
    assert "torn" in " ".join(notice.what for notice in notices)


def test_a_line_that_its_owner_is_writing_is_waited_for(place, monkeypatch):
    monkeypatch.setattr(transcript, "SETTLED_S", 3_600)
    monkeypatch.setattr(appending, "OWNER_TRIES", 3_600)
    root = place("claw0")
    path = claw0_file(root)
    os.utime(path, (time.time(), time.time()))

    async def both():
        async with open_store(f"jsonl:{root}") as store, store.lease("00ff00ff00ff") as lease:
            ours = asyncio.create_task(store.append("00ff00ff00ff", [said("ours")], lease=lease))
            await asyncio.sleep(0.3)
            assert not ours.done()
            with path.open("ab") as file:
                file.write(b'f", "ts": 1767261603}\n')
            await asyncio.wait_for(ours, GIVES_UP_S)
            loaded = await turnlog.Sessions(store).transcript("00ff00ff00ff")
            assert [e.content for e in loaded.entries[-2:]] == ["torn off", "ours"]

    run(both())


def test_an_owner_that_does_not_stop_writing_is_left_alone(place, monkeypatch):
    monkeypatch.setattr(transcript, "SETTLED_S", 3_600)
    monkeypatch.setattr(appending, "OWNER_TRIES", 3)
    root = place("claw0")
    path = claw0_file(root)
    os.utime(path, (time.time(), time.time()))
    before = path.read_bytes()
    error = run(raises(turnlog.Busy, append(f"jsonl:{root}", "00ff00ff00ff", said("on"))))
    assert str(path) in str(error)
    assert path.read_bytes() == before


def test_what_its_owner_wrote_since_the_last_look_comes_first(place):
    root = place("pi")
    session_id = "0199a000-0000-7000-8000-000000000001"
    path = next(root.rglob(f"*{session_id}.jsonl"))
    line = {"type": "message", "id": "abcdabcd", "parentId": "a000000f", "timestamp": "2026-01-01T11:00:00.000Z",
            "message": {"role": "user", "content": "from pi", "timestamp": 1}}  # fmt: skip

    async def both():
        async with open_store(f"jsonl:{root}") as store, store.lease(session_id) as lease:
            assert len(await store.read(session_id)) == 18
            with path.open("a") as file:
                file.write(json.dumps(line) + "\n")
            await store.append(session_id, [said("from us")], lease=lease)
            entries = await store.read(session_id)
            assert [e.content for e in entries[-2:]] == ["from pi", "from us"]
            assert [e.after for e in entries[-2:]] == [None, None]

    run(both())


def test_a_whole_last_line_that_lacks_its_newline_is_kept(place):
    root = place("claw0-keyed")
    path = root / ".sessions/transcripts/main_cli_user_abc123abc123.jsonl"
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    before = path.read_bytes()

    async def look():
        async with open_store(f"jsonl:{root}") as store:
            loaded = (await everything(store))["abc123abc123"]
            assert loaded.entries[-1].content == "The key is value."
            assert (await store.read("abc123abc123", after=6))[0].seq == 7
            assert (await store.read("abc123abc123", after=5, before=7))[0].seq == 6
        assert path.read_bytes() == before
        async with open_store(f"jsonl:{root}") as store, store.lease("abc123abc123") as lease:
            await store.append("abc123abc123", [said("on")], lease=lease)
            assert [e.content for e in (await store.read("abc123abc123"))[-2:]] == ["The key is value.", "on"]

    run(look())
    assert path.read_bytes().startswith(before + b"\n")


def test_an_append_of_ours_that_was_cut_never_counted(tmp_path):
    for dialect in ("v3", "flat"):
        url = f"jsonl:{tmp_path}/{dialect}?dialect={dialect}"
        run(append(url, "s1", opened("s1"), said("kept")))
        path = tmp_path / dialect / "agents/main/sessions/s1.jsonl"
        whole = path.read_bytes()
        run(append(url, "s1", said("a"), answered("b"), said("c")))
        data = path.read_bytes()
        ends = range(len(whole), len(data))
        for end in (at for at in ends if at % 40 == 0 or data[at - 1 : at] == b"\n" or at == ends[-1]):
            path.write_bytes(data[:end])
            os.utime(path, (1, 1))
            (path.parent / "sessions.index.jsonl").unlink(missing_ok=True)
            found = run(read_all(url))
            # Only a newline is missing at the very end: the append was written, if not acknowledged.
            expected = ["kept", "a", "b", "c"] if end == ends[-1] else ["kept"]
            assert [text(e) for e in found[1:]] == expected, end
        path.write_bytes(data[:-20])
        os.utime(path, (1, 1))
        run(append(url, "s1", said("d")))
        assert [text(e) for e in run(read_all(url))[1:]] == ["kept", "d"]


def text(item):
    return item.content if isinstance(item.content, str) else item.content[0]["text"]


async def read_all(url):
    async with open_store(url, durability="os") as store:
        return await store.read("s1")


def test_a_directory_of_another_kind_is_refused_and_left_alone(tmp_path, place):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/thesis.tex").write_text("precious")
    for layout in ("zyhive", "openclaw", "pi", "turnlog"):
        error = run(refused(f"jsonl:{tmp_path}/thesis?layout={layout}"))
        assert "thesis.tex" in str(error)
    assert os.listdir(tmp_path / "thesis") == ["thesis.tex"]
    root = place("zyhive")
    before = snapshot(root)
    for layout in ("openclaw", "turnlog"):
        assert "zyhive" in str(run(refused(f"jsonl:{root}?layout={layout}")))
    assert "claw0" in str(run(refused(f"jsonl:{place('claw0')}?layout=claw0-keyed")))
    assert snapshot(root) == before
    assert "klingon" in str(run(refused(f"jsonl:{tmp_path}/x?layout=klingon")))
    assert "klingon" in str(run(refused(f"jsonl:{tmp_path}/x?dialect=klingon")))
    assert "flat" in str(run(refused(f"jsonl:{tmp_path}/x?dialect=flat&layout=zyhive")))
    assert not (tmp_path / "x").exists()


def test_files_of_every_dialect_may_lie_in_our_own_layout(tmp_path):
    folder = tmp_path / "agents/main/sessions"
    folder.mkdir(parents=True)
    shutil.copy(HERE / "native-1/agents/main/sessions/ses-1767261600000-abc123.jsonl", folder)
    shutil.copy(next((HERE / "pi").rglob("*1.jsonl")), folder / "from-pi.jsonl")
    shutil.copy(next((HERE / "claw0").rglob("a1*.jsonl")), folder / "from-claw0.jsonl")
    (tmp_path / "turnlog.json").write_text('{"turnlog": 1}')

    async def look():
        async with open_store(f"jsonl:{tmp_path}") as store:
            for session_id, loaded in (await everything(store)).items():
                check_messages(history.build(loaded.entries).messages)
                async with store.lease(session_id) as lease:
                    await store.append(session_id, [said("on")], lease=lease)
                    assert (await store.read(session_id))[-1].content == "on"
            assert (await store.find(Query())).total == 3

    run(look())
    kinds = {path.stem: json.loads(path.read_text().splitlines()[-1]) for path in folder.glob("*-*.jsonl")}
    assert kinds["ses-1767261600000-abc123"]["seq"] > 20
    assert kinds["from-pi"]["message"]["content"] == "on"
    assert kinds["from-claw0"] == {"type": "user", "content": "on", "ts": kinds["from-claw0"]["ts"]}


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32", "latin-1", "utf-8-sig"])
def test_another_encoding_is_named_or_understood(place, encoding):
    root = place("claw0")
    path = claw0_file(root)
    lines = [
        {"type": "user", "content": "grün", "ts": 1767261600},
        {"type": "user", "content": "plain", "ts": 1767261601},
    ]
    path.write_bytes("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode(encoding))
    os.utime(path, (1, 1))
    before = path.read_bytes()

    async def look():
        async with open_store(f"jsonl:{root}") as store:
            return (await everything(store)).get("00ff00ff00ff")

    loaded = run(look())
    assert path.read_bytes() == before
    if encoding == "utf-8-sig":
        assert [e.content for e in loaded.entries[1:]] == ["grün", "plain"]
    elif encoding == "latin-1":
        assert [e.content for e in loaded.entries if hasattr(e, "content")] == ["plain"]
        assert "not UTF-8" in str(loaded.damage[0])
    elif loaded is not None:
        assert loaded.damage


def test_links_are_not_followed_out_of_the_tree(place, tmp_path):
    secret = tmp_path / "secret.jsonl"
    secret.write_text('{"type": "user", "content": "secret", "ts": 1}\n')
    folder = tmp_path / "outside/sessions"
    folder.mkdir(parents=True)
    shutil.copy(secret, folder / "s9.jsonl")
    root = place("claw0")
    agents = root / ".sessions/agents"
    (agents / "main/sessions/linked.jsonl").symlink_to(secret)
    (agents / "other").symlink_to(tmp_path / "outside")
    (agents / "third").mkdir()
    (agents / "third/sessions").symlink_to(folder)
    notices = []

    async def look():
        async with open_store(f"jsonl:{root}", on_notice=notices.append) as store:
            assert set(await everything(store)) == {"a1b2c3d4e5f6", "00ff00ff00ff"}
            assert await store.search("secret") == []
            await raises(turnlog.NotFound, store.read("linked"))
            await raises(turnlog.TurnlogError, store.append("linked", [opened("linked")]))

    run(look())
    assert "linked.jsonl" in " ".join(notice.where for notice in notices)
    assert secret.read_text().count("\n") == 1
    (root / ".sessions/agents/main/sessions.json").unlink()
    (root / ".sessions/agents/main/sessions.json").symlink_to(tmp_path / "elsewhere.json")
    run(append(f"jsonl:{root}", "a1b2c3d4e5f6", said("on")))
    assert not (tmp_path / "elsewhere.json").exists()


def test_files_that_may_only_be_read_are_read(place):
    if os.geteuid() == 0:
        pytest.skip("root may write everything")
    root = place("pi")
    for path in [*root.rglob("*"), root]:
        path.chmod(0o500 if path.is_dir() else 0o400)
    assert run(look_at(root))


async def look_at(root):
    async with open_store(f"jsonl:{root}") as store:
        return await everything(store)


def test_a_half_copied_directory_shows_what_is_there(place):
    root = place("zyhive")
    folder = root / "agents/xiuliu/sessions"
    for path in folder.glob("*.jsonl"):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        os.utime(path, (1, 1))
    (folder / "empty.jsonl").touch()
    (folder / "sessions.json").write_bytes((folder / "sessions.json").read_bytes()[:100])
    before = snapshot(root)
    notices = []

    async def look():
        async with open_store(f"jsonl:{root}", on_notice=notices.append) as store:
            found = await everything(store)
            assert set(found) == {"ses-1767261600000", "ses-1767261700000", "tg-42"}
            assert all(not loaded.damage for loaded in found.values())
            await raises(turnlog.NotFound, store.read("empty"))

    run(look())
    assert snapshot(root) == before
    assert "sessions.json" in notices[0].where


def test_many_small_files_are_listed_and_progress_is_told(tmp_path):
    folder = tmp_path / ".sessions/agents/main/sessions"
    folder.mkdir(parents=True)
    for n in range(FILES):
        (folder / f"{n:012x}.jsonl").write_text(json.dumps({"type": "user", "content": f"q{n}", "ts": n + 1}) + "\n")
    steps = []

    async def look():
        async with open_store(f"jsonl:{tmp_path}", progress=lambda done, total: steps.append((done, total))) as store:
            return (await store.find(Query(limit=10))).total

    assert run(look()) == FILES
    assert steps[-1][0] == steps[-1][1] == sum(path.stat().st_size for path in folder.iterdir())
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)


LOOK = """
import asyncio, json, resource, sys
from turnlog import open_store
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
steps = []
async def main():
    async with open_store("jsonl:" + sys.argv[1], progress=lambda done, total: steps.append(done)) as store:
        row = await store.describe("big")
        tail = await store.read("big", after=row.last_seq - 2)
        async with store.lease("big") as lease:
            from turnlog.testing import said
            await store.append("big", [said("on")], lease=lease)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(json.dumps([row.message_count, len(tail), len(steps), (peak - before) // 1024]))
asyncio.run(main())
"""


@pytest.mark.parametrize("dialect", ["v3", "flat"])
def test_a_large_file_is_opened_in_bounded_memory_and_shows_progress(tmp_path, dialect):
    folder = tmp_path / "agents/main/sessions"
    folder.mkdir(parents=True)
    words = "word " * 200
    count = 0
    with (folder / "big.jsonl").open("w") as file:
        if dialect == "v3":
            file.write('{"type":"session","version":3,"id":"big","timestamp":"2026-01-01T10:00:00.000Z","cwd":""}\n')
        while file.tell() < MB * 1024 * 1024:
            for _ in range(1000):
                count += 1
                parent = f'"{count - 1:08x}"' if count > 1 else "null"
                if dialect == "v3":
                    file.write(f'{{"type":"message","id":"{count:08x}","parentId":{parent},"timestamp":"2026-01-01T10:00:00.000Z",'
                               f'"message":{{"role":"user","content":"{words}"}}}}\n')  # fmt: skip
                else:
                    file.write(f'{{"type":"user","content":"{words}","ts":1767261600}}\n')
    (tmp_path / "turnlog.json").write_text('{"turnlog": 1}')
    done = subprocess.run(
        [sys.executable, "-c", LOOK, str(tmp_path)], capture_output=True, text=True, check=True, env={**os.environ}
    )
    messages, tail, steps, grown_mb = json.loads(done.stdout)
    assert (messages, tail) == (count, 2)
    assert steps >= MB // 2
    assert grown_mb < ROOM_MB, f"{grown_mb} MB for a file of {MB} MB"


def test_a_line_of_absurd_length_costs_itself_only(tmp_path, monkeypatch):
    for module in (transcript, lines):
        monkeypatch.setattr(module, "LINE_MAX_BYTES", 3_000_000)
    folder = tmp_path / ".sessions/agents/main/sessions"
    folder.mkdir(parents=True)
    user = '{"type":"user","content":"%s","ts":1767261600}\n'
    (folder / "s1.jsonl").write_text(user % "one" + user % ("x" * 9_000_000) + user % "two")

    async def look():
        async with open_store(f"jsonl:{tmp_path}") as store:
            loaded = (await everything(store))["s1"]
            assert [e.content for e in loaded.entries[1:]] == ["one", "two"]
            assert loaded.damage[0].line == 2

    run(look())
