"""The JSONL store passes the whole contract in every dialect and layout, unchanged and without exceptions."""

from turnlog import open_store
from turnlog.testing import StoreContract


class TestV3(StoreContract):
    def open(self, place, **options):
        return open_store(f"jsonl:{place}/store?dialect=v3", durability="os", **options)


class TestFlat(StoreContract):
    def open(self, place, **options):
        return open_store(f"jsonl:{place}/store?dialect=flat", durability="os", **options)


class TestZyhive(StoreContract):
    def open(self, place, **options):
        return open_store(f"jsonl:{place}/store?dialect=v3&layout=zyhive", durability="os", **options)


class TestOpenclaw(StoreContract):
    def open(self, place, **options):
        return open_store(f"jsonl:{place}/store?layout=openclaw", durability="os", **options)


class TestPi(StoreContract):
    def open(self, place, **options):
        return open_store(f"jsonl:{place}/store?layout=pi", durability="os", **options)


class TestClaw0(StoreContract):
    def open(self, place, **options):
        return open_store(f"jsonl:{place}/store?dialect=flat&layout=claw0", durability="os", **options)


class TestClaw0Keyed(StoreContract):
    def open(self, place, **options):
        return open_store(f"jsonl:{place}/store?layout=claw0-keyed", durability="full", **options)
