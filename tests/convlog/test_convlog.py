"""The convlog: what was said on each channel, apart from transcripts, for administrators only."""

import ast
import asyncio
import json
from pathlib import Path
from urllib.parse import quote

import pytest

import turnlog
from turnlog.convlog import ConvLog, Filter, Record, channel_of, file_name, files, open_convlog
from turnlog.core import keys, masking
from turnlog.errors import UsageError

from ..server.running import CHAT, SESSIONS, running, talk, wait_until
from ..stores.postgres import Urls

STORES = {
    "jsonl": "jsonl:{}/store",
    "sqlite": "sqlite:{}/store/sessions.db",
    "memory": "memory:",
    "postgresql": Urls(),
    "postgresql-16": Urls(version=16),
}


def record(n, channel="telegram-5", role="user", content=None, sender="ann", kind="telegram"):
    return Record(
        ts=f"2026-01-01T00:00:{n:02}.000Z",
        role=role,
        content=content or f"message {n}",
        channel_id=channel,
        channel_type=kind,
        sender=sender,
    )


async def filled(log):
    for n in range(5):
        await log.write("main", "telegram-5", record(n, sender="ann" if n % 2 == 0 else "bot"))
    await log.write("main", "web-w1", record(7, "web-w1", kind="web", sender="bob", content="Ångström and 你好"))
    await log.write("ops", "web-w1", record(3, "web-w1", kind="web", sender="cleo"))


@pytest.mark.parametrize("store", STORES)
def test_lines_written_at_the_same_time_are_all_kept(store, tmp_path):
    channels = ("web-b", "web-a", "web-c")

    async def go():
        async with open_convlog(STORES[store].format(tmp_path)) as log:
            lines = [record(n % 60, channel, content=f"line {n}") for n in range(80) for channel in channels]
            gone = asyncio.create_task(log.write("main", "web-a", record(0, "web-a", content="left")))
            writing = [asyncio.create_task(log.write("main", line.channel_id, line)) for line in lines]
            await asyncio.sleep(0)
            gone.cancel()
            await asyncio.gather(gone, *writing, return_exceptions=True)
            for channel in channels:
                found = (await log.messages("main", channel, limit=200)).items
                kept = [line.content for line in found if line.content != "left"]
                said = [line.content for line in lines if line.channel_id == channel]
                # Files are written by threads: who needs an order waits for the line before.
                assert kept == said or (store == "jsonl" and sorted(kept) == sorted(said))

    asyncio.run(go())


@pytest.mark.parametrize("store", STORES)
def test_conversations_are_listed_newest_first_filtered_and_paged(store, tmp_path):
    async def go():
        async with open_convlog(STORES[store].format(tmp_path)) as log:
            await filled(log)
            whole = await log.list()
            assert [(row.agent_id, row.channel_id, row.message_count) for row in whole.items] == [
                ("main", "web-w1", 1),
                ("main", "telegram-5", 5),
                ("ops", "web-w1", 1),
            ]
            assert whole.total == 3
            first = await log.list(limit=2)
            assert (first.total, first.items) == (3, whole.items[:2])
            rest = await log.list(limit=2, cursor=first.next)
            assert (rest.items, rest.next) == (whole.items[2:], None)

            async def found(**wanted):
                return [(row.agent_id, row.channel_id) for row in (await log.list(Filter(**wanted))).items]

            assert await found(agents=frozenset({"ops"})) == [("ops", "web-w1")]
            assert await found(agents=frozenset()) == []
            assert await found(channel_type="telegram") == [("main", "telegram-5")]
            assert await found(sender="cleo") == [("ops", "web-w1")]
            assert await found(q="MESSAGE 4") == [("main", "telegram-5")]
            assert await found(q="ångSTRÖM") == await found(q="你好") == [("main", "web-w1")]
            assert await found(q="%") == await found(q="_") == []
            assert await found(sender="ann", q="message 1") == [("main", "telegram-5")]
            for bad in ("x", "1.x", "9" * 30 + ".a.b"):
                with pytest.raises(UsageError):
                    await log.list(cursor=bad)

    asyncio.run(go())


@pytest.mark.parametrize("store", STORES)
def test_messages_are_paged_oldest_first(store, tmp_path):
    async def go():
        async with open_convlog(STORES[store].format(tmp_path)) as log:
            await filled(log)
            got, cursor = [], None
            while True:
                page = await log.messages("main", "telegram-5", limit=2, cursor=cursor)
                assert page.total == 5
                got += page.items
                if (cursor := page.next) is None:
                    break
            assert [item.content for item in got] == [f"message {n}" for n in range(5)]
            assert (await log.messages("main", "telegram-5", Filter(sender="bot"))).total == 2
            assert (await log.messages("main", "telegram-5", Filter(q="E 3"))).total == 1
            assert (await log.messages("ops", "telegram-5")).items == []
            with pytest.raises(UsageError):
                await log.messages("main", "telegram-5", limit=0)

    asyncio.run(go())


@pytest.mark.parametrize("store", ["jsonl", "sqlite", "postgresql"])
def test_what_was_written_is_there_for_the_next_process_and_private(store, tmp_path):
    async def go():
        url = STORES[store].format(tmp_path)
        async with open_convlog(url) as log, open_convlog(url) as other:
            await filled(log)
            await other.write("main", "telegram-5", record(9))
            assert (await log.messages("main", "telegram-5")).total == 6
        async with open_convlog(url) as log:
            assert (await log.list()).total == 3

    asyncio.run(go())
    for path in (tmp_path / "store").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_torn_line_costs_that_line_only(tmp_path):
    async def go():
        async with open_convlog(f"jsonl:{tmp_path}") as log:
            await log.write("main", "web-a", record(1, "web-a"))
            path = tmp_path / "agents" / "main" / "convlogs" / "web-a.jsonl"
            with path.open("ab") as file:
                file.write(b'{"ts": "2026')
            await log.write("main", "web-a", record(2, "web-a"))
            assert [item.content for item in (await log.messages("main", "web-a")).items] == ["message 1", "message 2"]

    asyncio.run(go())


@pytest.mark.parametrize("store", STORES)
def test_secrets_are_masked_and_odd_text_is_kept_safely(store, tmp_path):
    async def go():
        async with open_convlog(STORES[store].format(tmp_path)) as log:
            secret = "tl_0123456789ab_" + "s3cret" * 6
            for text in (f"key {secret} ok", "\ud800 lone", "nul \x00 here", "<img src=x onerror=1>"):
                await log.write("main", "web-a", record(1, "web-a", content=text, sender=secret))
            page = await log.messages("main", "web-a")
            said = [item.content for item in page.items]
            assert said[1:] == ["? lone", "nul \x00 here", "<img src=x onerror=1>"]
            assert masking.mask(secret) in said[0]
            assert "s3cret" not in repr(page)

    asyncio.run(go())


def test_two_places_never_share_a_conversation_or_a_file():
    texts = [
        "agent:main:telegram:direct:5",
        "agent:main:telegram:group:-1005",
        "agent:main:telegram:a:direct:5",
        "agent:main:telegram:direct:a-5",
        "agent:main:telegram-a:direct:5",
        "agent:main:telegram:group:5:thread:7",
        "agent:main:telegram:group:5~7",
        "agent:main:telegram:group:5-7",
        "agent:main:telegram@a:direct:5",
        "agent:main:telegram:direct:%2F",
        "agent:main:telegram:direct:..",
        "agent:main:telegram:direct:" + "x" * 500,
        "agent:main:telegram:direct:" + "x" * 501,
    ]
    channels = [channel_of(keys.parse(text)) for text in texts]
    names = [file_name(channel) for channel in channels]
    assert channels[:2] == ["telegram-5", "telegram--1005"]
    assert len(set(channels)) == len(texts)
    assert len(set(names)) == len(texts)
    assert len({name.lower() for name in names}) == len(texts)
    for name in [*names, file_name("..."), file_name("a/b"), file_name("../x"), file_name("."), file_name("\x00")]:
        assert "/" not in name
        assert "\x00" not in name
        assert not name.startswith(".")
        assert len(name.encode()) <= 200


def test_the_web_chat_is_written_down_and_no_agent_ever_sees_it(tmp_path):
    store = f"jsonl:{tmp_path}/data"
    with running(tmp_path / "home", script=[], store=store) as server, server.client() as client:
        talk(client, "said in w1: apricot", key="agent:main:web:direct:w1")
        talk(client, "said in telegram: walnut", key="agent:main:telegram:direct:5")
        server.write({"text": "the answer to w2"})
        sid = talk(client, "said in w2: cherry", key="agent:main:web:direct:w2")[-1][1]["sessionId"]
        folder = tmp_path / "data" / "agents" / "main" / "convlogs"
        lines = wait_until(lambda: _lines(folder / "web-w2.jsonl", 2))
        assert [(line["role"], line["sender"], line["content"]) for line in lines] == [
            ("user", "admin", "said in w2: cherry"),
            ("assistant", "main", "the answer to w2"),
        ]
        assert list(lines[0]) == ["ts", "role", "content", "channelId", "channelType", "sender"]
        for other in ("telegram-5.jsonl", "web-w1.jsonl"):  # each conversation is written by a task of its own
            told = wait_until(lambda name=other: _lines(folder / name, 2))
            assert [line["role"] for line in told] == ["user", "assistant"]
        assert len(list(folder.iterdir())) == 3
        for request in server.logged():
            text = json.dumps(request)
            assert sum(fruit in text for fruit in ("apricot", "walnut", "cherry")) == 1
            assert "convlog" not in text
        for path in (tmp_path / "data" / "agents" / "main" / "sessions").glob("ses-*.jsonl"):
            assert sum(fruit in path.read_text() for fruit in ("apricot", "walnut", "cherry")) == 1
        before = client.get("/api/agents/main/conversations/web-w2").json()
        assert client.delete(f"{SESSIONS}/{sid}").status_code == 204
        assert client.get("/api/agents/main/conversations/web-w2").json() == before
        assert before["total"] == 2


def _lines(path, count):
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines] if len(lines) >= count else None


def test_administrators_list_filter_and_page_conversations_over_http(tmp_path):
    (tmp_path / "config.toml").write_text("[agents.ops]\n")
    with running(tmp_path, script=[]) as server, server.client() as client:
        for n in range(3):
            talk(client, f"hello {n}", key="agent:main:web:direct:w1")
        talk(client, "hello ops", path="/api/agents/ops/chat", key="agent:ops:web:direct:w9")
        for place, total in (("main/conversations/web-w1", 6), ("ops/conversations/web-w9", 2)):
            wait_until(lambda at=place, count=total: client.get(f"/api/agents/{at}").json().get("total") == count)
        whole = client.get("/api/conversations").json()
        assert [row["channelId"] for row in whole["conversations"]] == ["web-w9", "web-w1"]
        assert whole["conversations"][1]["messageCount"] == 6
        assert list(whole["conversations"][0]) == [
            "channelId",
            "channelType",
            "agentId",
            "messageCount",
            "firstAt",
            "lastAt",
        ]

        def found(**params):
            return [row["channelId"] for row in client.get("/api/conversations", params=params).json()["conversations"]]

        assert found(agentId="ops") == ["web-w9"]
        assert found(channelType="telegram") == []
        assert found(channelType="web", q="HELLO 2") == ["web-w1"]
        assert found(sender="admin") == ["web-w9", "web-w1"]
        page = client.get("/api/conversations", params={"limit": 1}).json()
        assert client.get("/api/conversations", params={"limit": 1, "cursor": page["next"]}).json()["next"] is None
        messages = client.get("/api/agents/main/conversations/web-w1", params={"limit": 4}).json()
        assert (len(messages["messages"]), messages["total"], messages["next"]) == (4, 6, "4")
        assert client.get("/api/conversations", params={"cursor": "x"}).status_code == 400
        assert client.get("/api/conversations", params={"agentId": "none"}).status_code == 404
        limited = server.make_token("boss", "--scope", "admin", "--agent", "main")
        with server.client(limited) as other:
            rows = other.get("/api/conversations").json()["conversations"]
            assert [row["agentId"] for row in rows] == ["main"]
            assert other.get("/api/agents/ops/conversations/web-w9").status_code == 404


ODD = ("webhook-a/b", "webhook-a//b", "webhook-/a/", "webhook-a%2Fb", "webhook-a.b/../c", "web-你 好/?#", "web-a\nb")


def test_a_conversation_whose_id_has_slashes_and_other_signs_is_found_by_that_id(tmp_path):
    async def fill():
        async with turnlog.open(home=tmp_path) as t, open_convlog(t.settings.store_url()) as log:
            for n, channel in enumerate(ODD):
                await log.write("main", channel, record(n, channel))

    asyncio.run(fill())
    with running(tmp_path, script=[]) as server, server.client() as client:
        for n, channel in enumerate(ODD):
            page = client.get(f"/api/agents/main/conversations/{quote(channel, safe='')}").json()
            assert [m["content"] for m in page["messages"]] == [f"message {n}"], channel
        plain = client.get("/api/agents/main/conversations/webhook-a/b").json()
        assert [m["content"] for m in plain["messages"]] == ["message 0"]
        assert client.get("/api/agents/main/conversations/webhook-a%2Fb", params={"limit": 1}).json()["total"] == 1
        for path in ("/api/conversations", "/api/agents/main/conversations"):
            found, cursor = [], None
            while cursor or not found:
                page = client.get(path, params={"limit": 1, **({"cursor": cursor} if cursor else {})}).json()
                found += [row["channelId"] for row in page["conversations"]]
                cursor = page["next"]
            assert found == list(reversed(ODD))


def test_only_the_edges_know_the_convlog():
    """Whoever runs turns, tools and models cannot reach it, for they do not know of it."""
    root = Path(turnlog.__file__).parent
    for path in root.rglob("*.py"):
        parts = path.relative_to(root).parts
        if parts[0] in ("server", "channels", "cli", "convlog") or parts[:2] == ("interchange", "backup"):
            continue
        named = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
        assert not [node for node in named if "convlog" in (node.module or "")], path
        assert not [node for node in named if any("convlog" in alias.name for alias in node.names)], path


def test_a_long_answer_is_written_down_whole(tmp_path):
    with running(tmp_path, script=[{"deltas": ["y" * 1000] * 300}]) as server, server.client() as client:
        talk(client, "long", path=CHAT)
        found = wait_until(
            lambda: (m := client.get("/api/agents/main/conversations/web-admin").json())["total"] == 2 and m
        )
        assert len(found["messages"][1]["content"]) == 300_000


def test_only_the_files_that_were_read_last_are_remembered(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "KEPT_BYTES", 3_000)

    async def go():
        backend = files.FileBackend(tmp_path)
        log = ConvLog(backend)
        for n in range(20):
            await log.write("main", f"web-{n}", record(n, f"web-{n}", content="x" * 900))
        for _ in range(2):
            assert {one.message_count for one in (await log.list()).items} == {1}
            assert sum(size for _, size, _ in backend._known.values()) <= 3_000
        await log.write("main", "web-3", record(30, "web-3", content="again"))
        assert (await log.list()).items[0].message_count == 2
        assert (await log.list(Filter(q="again"))).total == 1
        assert [one.content for one in (await log.messages("main", "web-3")).items] == ["x" * 900, "again"]
        await log.write("main", "web-3", record(31, "web-3", content="y" * 9_000))
        assert len((await log.messages("main", "web-3")).items) == 3  # larger than all that is remembered
        assert len(backend._known) == 1

    asyncio.run(go())
