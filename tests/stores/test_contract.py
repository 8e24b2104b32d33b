"""Every store passes the shipped contract, unchanged."""

import pytest

from turnlog import open_store
from turnlog.testing import StoreContract

from . import postgres
from .postgres.pooler import Pooler


class TestMemory(StoreContract):
    durable = False

    def open(self, place, **options):
        return open_store("memory:", **options)


class TestJsonl(StoreContract):
    def open(self, place, **options):
        return open_store(f"jsonl:{place}/store", **options)


class TestJsonlOs(StoreContract):
    def open(self, place, **options):
        return open_store(f"jsonl:{place}/store", durability="os", **options)


class TestSqlite(StoreContract):
    def open(self, place, **options):
        return open_store(f"sqlite:{place}/memory/sessions.db", **options)


class TestSqliteOs(StoreContract):
    def open(self, place, **options):
        return open_store(f"sqlite:{place}/memory/sessions.db", durability="os", **options)


class TestPostgres(StoreContract):
    def open(self, place, **options):
        return open_store(postgres.url_of(place), **options)


class TestPostgres16(StoreContract):
    def open(self, place, **options):
        return open_store(postgres.url_of(place, version=16), **options)


class TestPostgresOs(StoreContract):
    def open(self, place, **options):
        return open_store(postgres.url_of(place, listen="off", pool=2), durability="os", **options)


@pytest.fixture(scope="class")
def pooler(request):
    here = postgres.server()
    with Pooler(here.root / f".s.PGSQL.{here.port}") as running:
        request.cls.port = running.port
        yield
        assert running.transactions


@pytest.mark.usefixtures("pooler")
class TestPostgresBehindAPooler(StoreContract):
    """In transaction mode: no two statements need to run on the same connection."""

    def open(self, place, **options):
        schema = postgres.name_of(place)
        url = postgres.server().url("postgres", tcp=True, port=self.port, listen="off", schema=schema)
        return open_store(url, **options)
