"""Every store passes the shipped contract, unchanged."""

from turnlog import open_store
from turnlog.testing import StoreContract

from . import postgres


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
