"""What a damaged page of a database may hold never stops the index of words."""

from turnlog.stores.sqlite import searching


class Damaged:
    """A database whose rows hold other values than were written."""

    def one(self, sql, values=()):
        return 0

    def all(self, sql, values=()):
        if "length(meta_json)" in sql:
            return [(1, None), (2, 5)]
        return [(1, "s", b""), (2, None, b"{}"), (3, "s", b"7")]

    def run(self, sql, values=()):
        self.ran = values


def test_rows_that_are_no_entries_are_passed_over():
    db = Damaged()
    assert searching.index_some(db)
    assert db.ran == (3,)


def test_the_name_of_a_call_is_looked_for_in_entries_only():
    class Lines(Damaged):
        def all(self, sql, values=()):
            return [(b"",), (b"3",), (b"not JSON, but c1",)]

    assert searching._earlier(Lines(), "s")("c1", 9) == ""
