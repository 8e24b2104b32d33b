"""Wrong addresses, missing rights, foreign or newer schemas, full disks, hostile text: a clear error, or correct."""

import asyncio
import inspect
import os
import shutil
import sys
from pathlib import Path

import psycopg
import pytest

import turnlog
from turnlog import Query, open_store
from turnlog.stores.postgres import schema
from turnlog.stores.postgres.errors import mapped
from turnlog.stores.postgres.pool import PostgresPool
from turnlog.testing import answered, entry, opened, raises, said

from .. import postgres
from ..test_faults import mounted


async def refusal(url, kind=turnlog.UsageError):
    error = await raises(kind, open_store(url).__aenter__())
    assert error.hint
    assert postgres.PASSWORD not in f"{error} {error.hint} {error.__cause__}"
    return str(error)


def refused(url, kind=turnlog.UsageError):
    return asyncio.run(refusal(url, kind))


async def use(url):
    async with open_store(url) as store:
        await store.append("s1", [opened("s1")])
        async with store.lease("s1") as lease:
            await store.append("s1", [said("hello"), answered("world")], lease=lease)
        await store.ledger.put_if_absent("a", "b", 1)
        assert len(await store.search("hello")) == 1
        await store.reindex()
        await store.delete("s1")


@pytest.mark.parametrize(
    "rest",
    [
        "?schema=Bad-Name",
        "?schema=pg_temp",
        "?pool=0",
        "?pool=many",
        "?lease_s=0.01",
        "?lease_s=nan",
        "?listen=maybe",
        "?nonsense=1",
        "?sslmode=sometimes",
        ":notaport/x",
    ],
)
def test_a_wrong_url_is_said_so(rest):
    refused(f"postgresql://u:{postgres.PASSWORD.replace(' ', '%20')}@127.0.0.1{rest}")


def test_a_mistyped_scheme_does_not_print_the_password():
    assert "secret" not in refused("postgre://u:secret@127.0.0.1/x")


def test_nobody_listening_is_unavailable():
    assert "reached" in refused("postgresql://127.0.0.1:1/x", turnlog.StoreUnavailable)


def test_a_name_that_does_not_resolve_is_unavailable():
    assert "reached" in refused("postgresql://no-such-host.invalid/x", turnlog.StoreUnavailable)


def test_wrong_passwords_users_and_databases_are_usage_errors(tmp_path):
    here = postgres.server()
    name = here.database(tmp_path)
    assert "login" in refused(here.url(name, tcp=True, password="wrong"))
    assert "login" in refused(here.url(name, tcp=True, user="nobody_here"))
    assert "no such database" in refused(here.url("no_such_database", tcp=True))


def test_an_owner_of_the_schema_and_a_mere_user_of_it_are_enough(tmp_path):
    """No superuser, no extension: what a managed service gives."""
    here = postgres.server()
    name = here.database(tmp_path)
    here.sql("CREATE ROLE maker LOGIN; CREATE ROLE worker LOGIN")
    assert "may not" in refused(here.url(name, user="maker"))
    here.sql(f"GRANT CREATE ON DATABASE {name} TO maker")
    asyncio.run(use(here.url(name, user="maker")))
    assert "may not" in refused(here.url(name, user="worker"))
    for grant in GRANTS:
        here.sql(grant.replace("APP_USER", "worker"), name)
    asyncio.run(use(here.url(name, user="worker")))
    here.sql(f"REVOKE CREATE ON DATABASE {name} FROM maker; DROP OWNED BY worker; DROP OWNED BY maker", name)
    here.sql("DROP ROLE maker; DROP ROLE worker")


GRANTS = [
    "GRANT USAGE ON SCHEMA turnlog TO APP_USER",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA turnlog TO APP_USER",
    "GRANT USAGE ON ALL SEQUENCES IN SCHEMA turnlog TO APP_USER",
]
"""As docs/operating/postgresql.md lists them."""


def test_the_documented_grants_are_the_tested_ones():
    page = (Path(__file__).parents[3] / "docs" / "operating" / "postgresql.md").read_text(encoding="utf-8")
    assert all(grant.replace("APP_USER", "app") in page for grant in GRANTS)


def shape_of(here, name):
    """Everything the migrations make."""
    columns = here.sql(
        "SELECT table_name, column_name, data_type, collation_name, is_nullable, column_default"
        " FROM information_schema.columns WHERE table_schema = 'turnlog' ORDER BY 1, 2",
        name,
    )
    indexes = here.sql("SELECT indexdef FROM pg_indexes WHERE schemaname = 'turnlog' ORDER BY 1", name)
    functions = here.sql(
        "SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'turnlog'::regnamespace ORDER BY 1", name
    )
    return columns, indexes, functions


def test_an_older_schema_is_brought_up_to_date_and_equals_a_fresh_one(tmp_path, monkeypatch):
    here = postgres.server()
    steps = schema.migrations()
    assert len(steps) > 1

    async def create(url):
        async with open_store(url):
            pass

    old, fresh = here.database(tmp_path / "old"), here.database(tmp_path / "fresh")
    with monkeypatch.context() as patch:
        patch.setattr(schema, "migrations", lambda *_: steps[:1])
        asyncio.run(create(here.url(old)))
    assert here.sql("SELECT value FROM turnlog.store_facts", old) == [(1,)]
    asyncio.run(use(here.url(old)))
    asyncio.run(use(here.url(fresh)))
    assert shape_of(here, old) == shape_of(here, fresh)


def test_a_newer_or_foreign_schema_is_left_alone(tmp_path):
    here = postgres.server()
    name = here.database(tmp_path)
    asyncio.run(use(here.url(name)))
    here.sql("UPDATE turnlog.store_facts SET value = 99", name)
    assert "newer Turnlog" in refused(here.url(name), turnlog.StoreUnavailable)
    here.sql("CREATE SCHEMA theirs; CREATE TABLE theirs.orders (id int)", name)
    assert "another program" in refused(here.url(name, schema="theirs"))
    asyncio.run(use(here.url(name, schema="second")))


def test_a_database_in_another_encoding_is_refused():
    here = postgres.server()
    if not here.sql("SELECT 1 FROM pg_database WHERE datname = 'latin'"):
        here.sql("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    assert "UTF8" in refused(here.url("latin"))


def test_a_missing_driver_is_said_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "turnlog.stores.postgres.store", None)
    assert "driver" in refused("postgresql://127.0.0.1/x")


def test_every_error_of_the_driver_becomes_one_of_ours():
    def tree(kind):
        return [kind, *(leaf for child in kind.__subclasses__() for leaf in tree(child))]

    kinds = {kind for _, kind in inspect.getmembers(psycopg.errors, inspect.isclass) if issubclass(kind, psycopg.Error)}
    assert len(kinds) > 200
    for kind in kinds | set(tree(psycopg.Error)):
        ours = mapped(kind("what the server said"))
        assert isinstance(ours, turnlog.TurnlogError), kind
        assert ours.hint, kind
        assert isinstance(ours.__cause__, kind)
    state = psycopg.errors
    assert isinstance(mapped(state.DiskFull("x")), turnlog.StoreUnavailable)
    assert isinstance(mapped(state.InsufficientPrivilege("x")), turnlog.UsageError)
    assert isinstance(mapped(state.DataCorrupted("x")), turnlog.Corrupt)
    assert isinstance(mapped(state.ReadOnlySqlTransaction("x")), turnlog.StoreUnavailable)
    assert isinstance(mapped(psycopg.OperationalError("x")), turnlog.StoreUnavailable)
    assert mapped(KeyError("x")).args == ("x",)


def test_a_full_disk_refuses_clearly_and_the_session_goes_on_when_there_is_space():
    """The disk of one tablespace, because a full disk of the log stops the whole server."""

    async def run(url, place):
        async with open_store(url) as store:
            await store.append("s1", [opened("s1")])
            acknowledged = 1
            async with store.lease("s1") as lease:
                ballast = place / "ballast"
                ballast.write_bytes(b"x" * 2_000_000)
                noise = os.urandom(40_000).hex()  # does not compress
                error = None
                for _ in range(600):
                    try:
                        await store.append("s1", [said(noise), answered(noise)], lease=lease)
                        acknowledged += 2
                    except turnlog.StoreUnavailable as refused:
                        error = refused
                        break
                assert error is not None, "the disk never got full"
                assert "space" in error.hint
                assert len(await store.read("s1")) == acknowledged
                ballast.unlink()
                await store.append("s1", [said("again")], expect=acknowledged, lease=lease)
            assert (await store.describe("s1")).last_seq == acknowledged + 1

    here = postgres.Server()
    try:
        # Not under tmp_path: the server runs as another user there, and must be let in.
        with mounted(here.root / "small", "-t", "tmpfs", "-o", "size=40m", "tmpfs") as place:
            folder = place / "space"
            folder.mkdir()
            if postgres.USER:
                shutil.chown(folder, postgres.USER)
            here.sql(f"CREATE TABLESPACE small LOCATION '{folder}'")
            here.sql("CREATE DATABASE full_one TEMPLATE template0 TABLESPACE small")
            asyncio.run(run(here.url("full_one"), place))
            here.stop()
    finally:
        here.remove()


def test_a_read_only_server_is_said_so_and_left_for_a_writable_one(tmp_path, monkeypatch):
    here = postgres.server()
    name = here.database(tmp_path)
    monkeypatch.setitem(PostgresPool.all.__kwdefaults__, "patience_s", 0.2)

    async def run():
        async with open_store(here.url(name)) as store:
            await store.append("s1", [opened("s1")])
        here.sql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        async with open_store(here.url(name)) as store:
            error = await raises(turnlog.StoreUnavailable, store.append("s1", [entry(type="title", title="x")]))
            assert "read-only" in str(error)
            assert "not known" not in str(error)
            here.sql(f"ALTER DATABASE {name} RESET default_transaction_read_only")
            await store.append("s1", [entry(type="title", title="x")], expect=1)

    asyncio.run(run())


def test_damage_is_named_and_the_rest_is_readable(tmp_path):
    here = postgres.server()
    name = here.database(tmp_path)

    async def talk():
        async with open_store(here.url(name)) as store:
            await store.append("s1", [opened("s1")])
            async with store.lease("s1") as lease:
                for n in range(5):
                    await store.append("s1", [said(f"q{n}"), answered(f"a{n}")], lease=lease)
            return await store.read("s1")

    async def look(line):
        async with open_store(here.url(name)) as store:
            error = await raises(turnlog.Corrupt, store.read("s1"))
            assert (error.line, error.after, error.before) == (line, 4, 6)
            loaded = await turnlog.Sessions(store).load("s1")
            assert loaded.entries == [e for e in entries if e.seq != 5]
            assert await store.search("q4")

    entries = asyncio.run(talk())
    here.sql("UPDATE turnlog.session_messages SET meta_json = replace(meta_json, 'a1', 'a2') WHERE seq = 5", name)
    asyncio.run(look(5))
    here.sql('UPDATE turnlog.session_messages SET meta_json = \'{"type":"hologram"}\' WHERE seq = 5', name)
    asyncio.run(look(5))
    here.sql("DELETE FROM turnlog.session_messages WHERE seq = 5", name)
    asyncio.run(look(0))


def test_hostile_names_are_found_again_and_hurt_nothing(tmp_path):
    words = [
        "a'b",
        "c\\d",
        "100%",
        "_",
        "x'); DROP TABLE turnlog.sessions; --",
        "并",
        "并发",
        "é",
        "'",
        '"',
        "\\",
        "&|!:*",
    ]

    async def run(url):
        async with open_store(url) as store:
            await store.append("s1", [opened("s1")])
            for word in [*words, "nul\x00and\ud800half"]:
                await store.append("s1", [entry(type="title", title=f"about {word} here")])
                for q in word.replace("\x00", "").replace("\ud800", "?").split():
                    assert (await store.find(Query(q=q))).total == 1, q
                    assert (await store.find(Query(q=q + "zz"))).total == 0
                await store.find(Query(q=word, prefix=word, label=word, key=word, ids=(word,)))
            async with store.lease("s1") as lease:
                for word in words:
                    await store.append("s1", [said(f"{word} nul\x00nul")], lease=lease)
            assert len(await store.search("nul")) == len(words) + 1  # the last title has it too
            assert len(await store.search("并")) == 4
            assert len(await store.search("并发")) == 2
            for (content,) in here.sql("SELECT turnlog.content(m) FROM turnlog.session_messages m", name):
                assert content is None or "nul" in content

    here, name = postgres.server(), postgres.server().database(tmp_path)
    asyncio.run(run(here.url(name)))


def test_more_different_words_than_an_index_holds_are_found_all_the_same(tmp_path):
    async def run(url):
        async with open_store(url) as store:
            await store.append("s1", [opened("s1")])
            async with store.lease("s1") as lease:
                text = " ".join(f"w{n:x}" for n in range(150_000))
                await store.append("s1", [said(text), said("plain " + "long" * 1000)], lease=lease)
            assert [hit.seq for hit in await store.search("w1869f")] == [2]
            assert await store.search("wxyz") == []
            assert [hit.seq for hit in await store.search("longlong*")] == [3]

    asyncio.run(run(postgres.url_of(tmp_path)))


def test_the_views_say_what_the_tables_of_the_sqlite_store_say(tmp_path):
    here = postgres.server()
    name = here.database(tmp_path)

    async def run():
        async with open_store(here.url(name), inject="assistant") as store:
            await store.append("s1", [opened("s1"), entry(type="selected", n=1)])
            async with store.lease("s1") as lease:
                for n in range(4):
                    await store.append("s1", [said(f"q{n}"), answered(f"a{n}")], lease=lease)
                fold = entry(type="compaction", summary="in short \x00", first_kept=7, covers=[2, 6])
                await store.append("s1", [fold], lease=lease)

    asyncio.run(run())
    assert here.sql("SELECT active_session_id FROM turnlog.session_index", name) == [("s1",)]
    facts = dict(here.sql("SELECT key, value_json FROM turnlog.session_state", name))
    (last,) = here.sql("SELECT id FROM turnlog.session_messages WHERE seq = 6", name)[0]
    assert facts == {"compaction_after_message_id": str(last), "compaction_summary": '"in short "'}
    roles = [role for (role,) in here.sql("SELECT role FROM turnlog.session_messages ORDER BY seq", name)]
    assert roles == [None, None, *["user", "assistant"] * 4, "assistant"]
    contents = [
        text for (text,) in here.sql("SELECT turnlog.content(m) FROM turnlog.session_messages m ORDER BY seq", name)
    ]
    assert contents[2:4] == ["q0", "a0"]
