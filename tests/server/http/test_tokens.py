"""Tokens, sign-in codes and cookies, on every ledger."""

import asyncio
from datetime import UTC, datetime

import pytest

from turnlog import NotFound, UsageError, open_store
from turnlog.cli.commands.serve import parse_expiry
from turnlog.core import keys, principals
from turnlog.core.principals import Principal
from turnlog.core.session import Session
from turnlog.server.http.auth import Tokens
from turnlog.testing import FixedClock

STORES = {"jsonl": "jsonl:{}/s", "sqlite": "sqlite:{}/s.db", "memory": "memory:"}


def with_tokens(store, tmp_path, work):
    async def go():
        clock = FixedClock()
        async with open_store(STORES[store].format(tmp_path), durability="os", clock=clock) as opened:
            await work(Tokens(opened.ledger, clock=clock), clock)

    asyncio.run(go())


@pytest.mark.parametrize("store", STORES)
def test_a_token_is_known_until_it_expires_or_is_revoked_and_never_stored(store, tmp_path):
    async def work(tokens, clock):
        made, text = await tokens.create("ann", ["chat", "read"], agents=["main"], expires_at=clock() + 1000)
        clock.advance(ms=1)
        other, second = await tokens.create("bob", ["admin"])
        assert (await tokens.of_bearer(text)).principal == Principal(
            "ann", frozenset({"chat", "read"}), frozenset({"main"})
        )
        for wrong in ("", text[:-1], text + "x", text.replace("tl_", "xx_"), f"tl_{made.id}_", f"tl_{made.id}", "tl__"):
            assert await tokens.of_bearer(wrong) is None
        assert await tokens.of_bearer(f"tl_{other.id}_{text.split('_', 2)[2]}") is None
        assert [token.name for token in await tokens.list()] == ["ann", "bob"]
        assert text.split("_", 2)[2] not in repr(await tokens.list())
        clock.advance(s=2)
        assert await tokens.of_bearer(text) is None
        await tokens.revoke(other.id)
        assert await tokens.of_bearer(second) is None
        with pytest.raises(NotFound):
            await tokens.revoke("nothing")

    with_tokens(store, tmp_path, work)
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or b"tl_" not in path.read_bytes()


@pytest.mark.parametrize("store", STORES)
def test_a_code_is_good_for_one_cookie_and_a_cookie_for_what_its_token_is(store, tmp_path):
    async def work(tokens, clock):
        made, _ = await tokens.create("ann", ["chat"])
        code = await tokens.make_code(made.id)
        got = await asyncio.gather(*(tokens.redeem(code) for _ in range(5)))
        [cookie] = [value for value in got if value]
        assert await tokens.redeem(code) is None
        assert (await tokens.of_cookie(cookie)).name == "ann"
        assert await tokens.of_cookie("") is await tokens.of_cookie(cookie + "x") is None
        late = await tokens.make_code(made.id)
        clock.advance(hours=25)
        assert await tokens.redeem(late) is None
        await tokens.revoke(made.id)
        assert await tokens.of_cookie(cookie) is None
        assert await tokens.redeem(await tokens.make_code(made.id)) is None

    with_tokens(store, tmp_path, work)


@pytest.mark.parametrize(
    ("name", "scopes", "agents"),
    [("", ["chat"], None), ("a b", ["chat"], None), ("a", [], None), ("a", ["root"], None), ("a", ["chat"], ["../x"])],
)
def test_a_token_that_means_nothing_is_refused(name, scopes, agents, tmp_path):
    async def work(tokens, clock):
        with pytest.raises(UsageError):
            await tokens.create(name, scopes, agents=agents)
        with pytest.raises(UsageError):
            await tokens.create("late", ["chat"], expires_at=clock() - 1)

    with_tokens("memory", tmp_path, work)


def test_an_expiry_is_a_span_or_a_moment():
    now = datetime(2026, 1, 1, tzinfo=UTC)
    day = 24 * 3600 * 1000
    start = int(now.timestamp() * 1000)
    assert parse_expiry("30d", now) == start + 30 * day
    assert parse_expiry("12h", now) == start + day // 2
    assert parse_expiry("2026-01-02", now) == parse_expiry("2026-01-02T00:00:00Z", now) == start + day
    for bad in ("", "soon", "30", "d", "-1d", "30y"):
        with pytest.raises(UsageError):
            parse_expiry(bad, now)


def test_seeing_is_not_owning():
    hers = keys.parse("agent:main:web:direct:ann")
    row = Session(id="s", key=keys.format(hers), agent="main", channel="web")
    assert principals.owns(Principal("ann"), row)
    assert principals.owns(Principal("x", frozenset({"admin"})), row)
    assert not principals.owns(Principal("eve", frozenset({"read", "chat"})), row)
    assert not principals.owns(Principal("ann", frozenset({"read"})), row)
    assert not principals.owns(Principal("ann", frozenset({"chat"}), frozenset({"ops"})), row)
