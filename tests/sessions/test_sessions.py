"""Everything that is not a turn, on every store."""

import asyncio
import functools
import inspect
import threading
from collections import Counter
from unittest.mock import patch

import pytest
from msgspec.structs import replace

import turnlog
from turnlog import Query, Sessions, open_store
from turnlog.codecs import native
from turnlog.core import compaction, fidelity, paging
from turnlog.core.compaction import Keep
from turnlog.core.principals import Principal
from turnlog.core.query import UNTRASHED
from turnlog.core.session import describe
from turnlog.sessions.copying import copy, digest
from turnlog.sessions.expiry import expire
from turnlog.sessions.selection import BEFORE_KEPT, change, chosen, following
from turnlog.testing import FixedClock, answered, check_messages, entry, raises, said

from ..stores import postgres

URLS = {
    "memory": "memory:",
    "jsonl": "jsonl:{}/store",
    "sqlite": "sqlite:{}/sessions.db",
    "postgresql": postgres.Urls(),
}
KEY = "agent:main:cli:direct:user"


def on_every_store(test):
    @pytest.mark.parametrize("kind", URLS)
    @functools.wraps(test)
    def run(kind, tmp_path):
        async def go():
            async with open_store(URLS[kind].format(tmp_path), durability="os") as store:
                await test(Sessions(store), store)

        asyncio.run(go())

    del run.__wrapped__
    return run


async def talk(store, session_id, turns, start=1):
    async with store.lease(session_id) as lease:
        for n in range(start, start + turns):
            await store.append(session_id, [said(f"q{n}"), answered(f"a{n}")], lease=lease)


async def fold(store, sessions, session_id, keep=2, summary="in short"):
    plan = compaction.plan((await sessions.load(session_id)).entries, Keep("messages", keep))
    async with store.lease(session_id) as lease:
        body = compaction.complete(plan, summary, trigger="manual", tokens_before=100, tokens_after=10)
        return (await store.append(session_id, [body], lease=lease))[0]


def texts(messages):
    return [m["content"] if isinstance(m["content"], str) else m["content"][-1].get("text") for m in messages]


@on_every_store
async def test_open_creates_once_and_then_resumes(sessions, store):
    first = await sessions.open(KEY)
    assert (first.status, first.key, first.agent, first.channel) == ("active", KEY, "main", "cli")
    await talk(store, first.id, 2)
    again = await sessions.open("main:cli:user")
    assert (again.id, again.message_count, again.title) == (first.id, 4, "q1")


@on_every_store
async def test_racing_openers_in_one_process_get_one_session(sessions, store):
    rows = await asyncio.gather(*(sessions.open(f"main:cli:p{n % 3}") for n in range(30)))
    assert len({row.id for row in rows}) == 3
    assert (await store.find(Query())).total == 3


@on_every_store
async def test_racing_news_leave_exactly_one_selected(sessions, store):
    await asyncio.gather(*(sessions.new(KEY, label=f"l{n}") for n in range(8)))
    assert (await store.find(Query(key=KEY))).total == 8
    row = await sessions.open(KEY)
    actives = (await store.find(Query(key=KEY, status="active"))).items
    assert [active.id for active in actives] == [row.id]


@on_every_store
async def test_new_and_select_move_the_key_and_open_follows(sessions, store):
    one = await sessions.open(KEY)
    two = await sessions.new(KEY, label="experiments")
    assert (await sessions.open(KEY)).id == two.id
    assert (await sessions.get(one.id)).status == "inactive"
    back = await sessions.select(one.id)
    assert back.status == "active"
    assert (await sessions.open(KEY)).id == one.id
    assert (await sessions.get(two.id)).status == "inactive"
    mine = await sessions.new(KEY, session_id="my-own-id", select=False)
    assert (mine.id, mine.status) == ("my-own-id", "inactive")
    await raises(turnlog.Conflict, sessions.new(KEY, session_id="my-own-id"))
    await raises(turnlog.UsageError, sessions.new(KEY, session_id="../x"))
    await raises(turnlog.UsageError, sessions.new(KEY, label="\n"))
    await raises(turnlog.UsageError, sessions.open("nonsense"))


@on_every_store
async def test_a_remembered_row_is_no_reason_to_revive_a_session_that_was_archived_since(sessions, store):
    first = await sessions.open(KEY)
    remembering = Sessions(store, row_here={first.id: first}.get)
    await store.append(first.id, [turnlog.Status(value="archived")])  # by a program that does not ask the ledger
    second = await remembering.new(KEY, session_id="second")
    assert (await sessions.get(first.id)).status == "archived"
    assert (await sessions.open(KEY)).id == second.id


@on_every_store
async def test_a_remembered_row_that_has_grown_since_is_deactivated_all_the_same(sessions, store):
    first = await sessions.open(KEY)
    remembering = Sessions(store, row_here={first.id: first}.get)
    await talk(store, first.id, 1)
    second = await remembering.new(KEY, session_id="second")
    assert [row.id for row in (await store.find(Query(key=KEY, status="active"))).items] == [second.id]


@on_every_store
async def test_a_remembered_row_that_was_archived_then_hides_no_session_that_is_active_now(sessions, store):
    first = await sessions.open(KEY)
    archived = (await store.append(first.id, [turnlog.Status(value="archived")])).row
    await store.append(first.id, [turnlog.Status(value="active")])
    remembering = Sessions(store, row_here={first.id: archived}.get)
    second = await remembering.new(KEY, session_id="second")
    assert [row.id for row in (await store.find(Query(key=KEY, status="active"))).items] == [second.id]


@on_every_store
async def test_a_remembered_row_of_an_earlier_selection_proves_nothing(sessions, store):
    """Its process saw it before another one was selected, and it again."""
    first = await sessions.open(KEY)
    second = await sessions.new(KEY)
    await sessions.select(first.id)
    remembering = Sessions(store, row_here={first.id: first, second.id: second}.get)
    third = await remembering.new(KEY, session_id="third")
    assert [row.id for row in (await store.find(Query(key=KEY, status="active"))).items] == [third.id]


@on_every_store
async def test_making_or_selecting_a_session_does_not_touch_the_time_of_another(sessions, store):
    first = await sessions.open(KEY)
    await talk(store, first.id, 1)
    spoken = (await sessions.get(first.id)).last_at
    await asyncio.sleep(0.005)
    second = await sessions.new(KEY)
    row = await sessions.get(first.id)
    assert (row.status, row.last_at) == ("inactive", spoken)
    assert describe(None, await store.read(first.id)) == row
    made = (await sessions.get(second.id)).last_at
    await sessions.select(first.id)
    assert (await sessions.get(second.id)).last_at == made
    await asyncio.sleep(0.005)
    archived = await sessions.set_status(second.id, "archived")
    assert archived.last_at > made, "what is done to a session itself counts"


@on_every_store
async def test_two_sessions_in_one_millisecond_get_two_ids(sessions, store):
    sessions = Sessions(store, clock=FixedClock())
    ids = {(await sessions.new(KEY)).id for _ in range(50)}
    assert len(ids) == 50
    unlucky = iter([b"aaaaaa", b"aaaaaa", b"bbbbbb"])
    same = Sessions(store, clock=FixedClock(), random=lambda n: next(unlucky))
    assert (await same.new(KEY, select=False)).id != (await same.new(KEY, select=False)).id


@on_every_store
async def test_a_lost_selection_is_rebuilt_from_the_log(sessions, store):
    await sessions.open(KEY)
    two = await sessions.new(KEY)
    await sessions.new(KEY, select=False)
    await store.ledger.delete("selected", KEY)
    assert (await sessions.open(KEY)).id == two.id
    await store.ledger.delete("selected", KEY)
    assert (await sessions.select(two.id)).selected_n == two.selected_n + 1


class Counted:
    """A store that counts what is asked of it."""

    def __init__(self, store):
        self._store = store
        self.asked = Counter()

    def __getattr__(self, name):
        found = getattr(self._store, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def counting(*given, **options):
            self.asked[name] += 1
            return await found(*given, **options)

        return counting


@on_every_store
async def test_what_a_new_session_costs_does_not_depend_on_how_many_its_key_has(sessions, store):
    counted = Counted(store)
    sessions = Sessions(counted)

    async def cost(action):
        counted.asked.clear()
        await action()
        return dict(counted.asked)

    async def put_away_and_open():
        await sessions.set_status((await sessions.open(KEY)).id, "archived")
        await sessions.open(KEY)

    async def renew():
        await sessions.renew(await sessions.open(KEY), "daily")

    costs = []
    for more in (20, 40):
        for _ in range(more):
            await sessions.new(KEY)
        costs.append([await cost(action) for action in (lambda: sessions.new(KEY), put_away_and_open, renew)])
    assert costs[0] == costs[1]
    assert not any(asked.get("find") for asked in costs[0])
    assert (await store.find(Query(key=KEY, status="active"))).total == 1


@on_every_store
async def test_a_rewind_reads_what_it_skips_and_a_little_more_however_long_the_log_is(sessions, store):
    row = await sessions.open(KEY)
    read = Counter()
    plain = native.decode_lines

    def counting(data):
        found = plain(data)
        read["entries"] += len(found)
        return found

    costs = []
    for start in (1, 301):
        await talk(store, row.id, 300, start=start)
        end = (await store.describe(row.id)).last_seq
        with patch.object(native, "decode_lines", counting):
            read.clear()
            await sessions.rewind(row.id, end - 40)
            costs.append(read["entries"])
        await sessions.rewind(row.id, end)
    assert max(costs) < 300
    assert await store.describe(row.id) == describe(None, await store.read(row.id))


@on_every_store
async def test_a_renewed_key_gets_a_new_session_and_not_an_earlier_one(sessions, store):
    one = await sessions.open(KEY)
    two = await sessions.new(KEY)
    three = await sessions.renew(two, "daily")
    assert three.id not in (one.id, two.id)
    assert [(await sessions.get(row.id)).status for row in (one, two, three)] == ["inactive", "archived", "active"]


@on_every_store
async def test_a_key_goes_back_to_what_was_selected_before_a_deleted_session(sessions, store):
    rows = [await sessions.new(KEY) for _ in range(4)]
    await sessions.select(rows[1].id)
    await sessions.delete(rows[1].id)
    assert (await sessions.open(KEY)).id == rows[3].id
    await sessions.set_status(rows[2].id, "trashed")
    await sessions.delete(rows[3].id)
    assert (await sessions.open(KEY)).id == rows[0].id
    await sessions.delete(rows[0].id)
    assert (await sessions.open(KEY)).id not in [row.id for row in rows]


@on_every_store
async def test_however_many_selections_were_cut_by_crashes_only_the_last_is_active_in_the_end(sessions, store):
    """Facts of an older version do not say what was selected before."""
    for key, known in ((KEY, True), ("agent:main:cli:direct:other", False)):
        await sessions.new(key)
        active = await sessions.new(key)
        for row in [await sessions.new(key, select=False) for _ in range(BEFORE_KEPT + 3)]:
            old = await chosen(store.ledger, key)
            new, _ = await following(store, key, old, row.id, {}.get)
            assert await change(store.ledger, key, old, new if known else replace(new, before=None))
        assert (await sessions.get(active.id)).status == "active"
        assert (await sessions.open(key)).id == row.id
        assert [r.id for r in (await store.find(Query(key=key, status="active"))).items] == [row.id]
        last = await sessions.new(key)
        assert len((await chosen(store.ledger, key)).before) <= BEFORE_KEPT
        assert [r.id for r in (await store.find(Query(key=key, status="active"))).items] == [last.id]


@on_every_store
async def test_a_session_that_is_left_while_it_is_put_away_can_be_opened_again(sessions, store):
    await sessions.open(KEY)
    two = await sessions.new(KEY)
    await sessions._deselect(two)  # and the process died
    assert (await sessions.open(KEY)).id == two.id
    await sessions._deselect(two, forget=True)
    assert (await sessions.open(KEY)).id == two.id
    assert (await store.find(Query(key=KEY, status="active"))).total == 1


@on_every_store
async def test_a_selection_cut_by_a_crash_is_finished_by_the_next_opener(sessions, store):
    one = await sessions.open(KEY)
    two = await sessions.new(KEY, select=False)
    old = await store.ledger.get("selected", KEY)
    await store.ledger.cas("selected", KEY, old, {"id": two.id, "n": 7})
    assert (await sessions.open(KEY)).id == two.id
    assert (await sessions.get(two.id)).selected_n == 7
    assert (await sessions.get(one.id)).status == "inactive"
    await store.ledger.cas("selected", "agent:main:cli:direct:new", None, {"id": "promised", "n": 1})
    assert (await sessions.open("main:cli:new")).id == "promised"


@on_every_store
async def test_resolve_takes_id_key_label_or_a_unique_beginning(sessions, store):
    one = await sessions.new(KEY, session_id="ses-1", label="my-project")
    await sessions.new(KEY, session_id="ses-2", label="my-garden")
    other = await sessions.open("main:cli:bob")
    assert (await sessions.resolve("ses-1")).id == one.id
    assert (await sessions.resolve("my-p")).id == one.id
    assert (await sessions.resolve("my-project")).id == one.id
    assert (await sessions.resolve("main:cli:bob")).id == other.id
    assert (await sessions.resolve("agent:main:cli:direct:bo")).id == other.id
    assert (await sessions.resolve(KEY)).id == "ses-2"
    error = await raises(turnlog.Ambiguous, sessions.resolve("my-"))
    assert sorted(error.matches) == ["ses-1", "ses-2"]
    assert "my-garden" in str(error)
    await raises(turnlog.NotFound, sessions.resolve("zzz"))
    await raises(turnlog.NotFound, sessions.resolve(""))
    await raises(turnlog.NotFound, sessions.resolve("my-p", key="main:cli:bob"))
    await raises(turnlog.NotFound, sessions.resolve("../x"))


@on_every_store
async def test_a_title_given_by_hand_stays(sessions, store):
    row = await sessions.open(KEY)
    await talk(store, row.id, 1)
    assert (await sessions.get(row.id)).title == "q1"
    assert (await sessions.rename(row.id, "  My\nproject ")).title == "My project"
    await store.append(row.id, [entry(type="title", title="automatic", by="auto")])
    assert (await sessions.get(row.id)).title == "My project"
    long = await sessions.rename(row.id, "家" * 100)
    assert len(long.title) == 60
    assert long.title.endswith("…")
    await raises(turnlog.UsageError, sessions.rename(row.id, " \n "))
    await raises(turnlog.NotFound, sessions.rename("nobody", "x"))


@on_every_store
async def test_delete_is_final_and_the_key_starts_anew(sessions, store):
    row = await sessions.open(KEY)
    await sessions.delete(row.id)
    await raises(turnlog.NotFound, sessions.get(row.id))
    await raises(turnlog.NotFound, sessions.delete(row.id))
    assert (await sessions.open(KEY)).id != row.id


@on_every_store
async def test_an_archived_session_is_kept_and_its_key_gets_a_new_one(sessions, store):
    row = await sessions.open(KEY)
    await talk(store, row.id, 1)
    archived = await sessions.set_status(row.id, "archived", "idle for an hour")
    assert archived.status == "archived"
    fresh = await sessions.open(KEY)
    assert fresh.id != row.id
    assert (await sessions.get(row.id)).message_count == 2
    assert [r.id for r in (await sessions.list(Query(status="archived"))).items] == [row.id]
    assert (await sessions.select(row.id)).status == "active"


@on_every_store
async def test_load_reads_the_tail_and_builds_what_the_whole_log_builds(sessions, store):
    row = await sessions.open(KEY)
    await talk(store, row.id, 10)
    await sessions.pin(row.id, 5)
    received = (await store.append(row.id, [entry(type="received", content="while you worked")]))[0].seq
    async with store.lease(row.id) as lease:
        await store.append(row.id, [entry(type="user", **{"from": [received]}), answered("yes")], lease=lease)
    await fold(store, sessions, row.id)
    loaded = await sessions.load(row.id)
    assert len(loaded.entries) < 10
    built = await sessions.history(row.id)
    assert built == turnlog.core.history.build(await store.read(row.id))
    check_messages(built.messages)
    shown = str(built.messages)
    assert "while you worked" in shown
    assert "in short" in shown
    assert "q2" in shown, "the pin"
    assert "q3" not in shown


@on_every_store
async def test_a_compaction_can_be_explained_expanded_and_undone_without_losing_later_turns(sessions, store):
    row = await sessions.open(KEY)
    await talk(store, row.id, 6)
    before = await sessions.history(row.id)
    await fold(store, sessions, row.id)
    await talk(store, row.id, 1, start=7)
    await fold(store, sessions, row.id, summary="shorter")
    states = {c.seq: (c.state, c.by) for c in await sessions.explain(row.id)}
    assert [s for s, _ in states.values()].count("compacted") == 12
    assert states[3] == ("compacted", 15)
    assert states[14] == ("compacted", 18)
    assert states[16] == ("tail", None)
    assert [e.seq for e in await sessions.expand(row.id)] == [13, 14]
    assert [e.seq for e in await sessions.expand(row.id, 15)] == list(range(3, 13))
    assert (await sessions.undo(row.id)).compactions == 1
    assert (await sessions.undo(row.id)).compactions == 0
    after = await sessions.history(row.id)
    assert after.messages[: len(before.messages)] == before.messages
    assert texts(after.messages)[-2:] == ["q7", "a7"]
    await raises(turnlog.UsageError, sessions.undo(row.id))
    await raises(turnlog.UsageError, sessions.expand(row.id))
    await raises(turnlog.UsageError, sessions.expand(row.id, 3))


@on_every_store
async def test_what_was_shown_at_an_earlier_entry_can_be_shown_again(sessions, store):
    row = await sessions.open(KEY)
    await talk(store, row.id, 2)
    then = await sessions.history(row.id)
    await talk(store, row.id, 4, start=3)
    await fold(store, sessions, row.id)
    assert await sessions.history(row.id, at=6) == then


@on_every_store
async def test_rewind_goes_back_to_the_end_of_a_turn_and_forward_again(sessions, store):
    row = await sessions.open(KEY)
    await talk(store, row.id, 3)
    error = await raises(turnlog.UsageError, sessions.rewind(row.id, 5))
    assert "4" in error.hint
    await raises(turnlog.UsageError, sessions.rewind(row.id, 99))
    back = await sessions.rewind(row.id, 4)
    assert back.message_count == 6, "it never shrinks"
    await talk(store, row.id, 1, start=9)
    assert texts((await sessions.history(row.id)).messages) == ["q1", "a1", "q9", "a9"]
    states = [c.state for c in await sessions.explain(row.id)]
    assert states.count("rewound") == 4
    await sessions.rewind(row.id, 8)
    assert texts((await sessions.history(row.id)).messages) == ["q1", "a1", "q2", "a2", "q3", "a3"]
    await sessions.rewind(row.id, 2)
    assert (await sessions.history(row.id)).messages == []


@on_every_store
async def test_a_fork_shares_the_past_and_leaves_the_source_alone(sessions, store):
    row = await sessions.open(KEY)
    await talk(store, row.id, 6)
    await fold(store, sessions, row.id)
    await sessions.pin(row.id, 4)
    before = await digest(store, row.id)
    fork = await sessions.fork(row.id, label="what if")
    assert fork.forked_from.id == row.id
    assert (fork.status, fork.label) == ("inactive", "what if")
    assert await sessions.history(fork.id) == await sessions.history(row.id)
    await talk(store, fork.id, 1, start=9)
    assert await digest(store, row.id) == before
    assert (await sessions.open(KEY)).id == row.id
    early = await sessions.fork(row.id, at=6)
    assert texts((await sessions.history(early.id)).messages) == ["q1", "a1", "q2", "a2"]
    assert (await sessions.select(fork.id)).status == "active"
    await raises(turnlog.UsageError, sessions.fork(row.id, at=99))
    await raises(turnlog.NotFound, sessions.fork("nobody"))


def small_pages():
    return patch.multiple(paging, FIRST_ENTRIES=2, FEW_ENTRIES=2, PAGE_ENTRIES=3)


async def long_talk(sessions, store):
    """A message waits in it, another one was taken by a turn several pages later, and one was rewound."""
    row = await sessions.open(KEY)
    await store.append(row.id, [entry(type="received", content="early"), entry(type="received", content="waits")])
    await talk(store, row.id, 6)
    async with store.lease(row.id) as lease:
        taken = entry(**{"type": "user", "from": [3]})
        await store.append(row.id, [taken, answered("yes"), said("no"), answered("oh")], lease=lease)
    return await sessions.rewind(row.id, 18)


@on_every_store
async def test_a_fork_that_is_written_in_parts_is_the_same_as_one_written_at_once(sessions, store):
    row = await long_talk(sessions, store)
    whole = await sessions.fork(row.id)
    with small_pages():
        parts = await sessions.fork(row.id)
    assert (whole.forked_from.in_parts, parts.forked_from.in_parts) == (False, True)
    assert (await store.read(whole.id))[1:] == (await store.read(parts.id))[1:]
    same = {"id": "", "stamped": "", "forked_from": None, "created_at": 0, "last_at": 0}
    assert replace(parts, **same) == replace(whole, **same)
    assert await sessions.history(parts.id) == await sessions.history(row.id)
    await store.reindex()
    assert await store.describe(parts.id) == parts


@on_every_store
async def test_half_a_fork_is_in_the_trash_and_deleted_if_its_process_lives(sessions, store):
    row = await long_talk(sessions, store)
    append = store.append
    seen = []

    async def few(session_id, bodies, **options):
        if len(seen) == 3:
            raise turnlog.StoreUnavailable("the disk is full")
        seen.append(session_id)
        return await append(session_id, bodies, **options)

    with small_pages(), patch.object(store, "append", few):
        await raises(turnlog.StoreUnavailable, sessions.fork(row.id))
    await raises(turnlog.NotFound, store.describe(seen[0]))
    seen.clear()

    async def dies(session_id, **options):
        raise turnlog.StoreUnavailable("nobody is left to do it")

    with small_pages(), patch.object(store, "append", few), patch.object(store, "delete", dies):
        await raises(turnlog.StoreUnavailable, sessions.fork(row.id))
    half = await store.describe(seen[0])
    assert (half.status, half.last_seq, half.lacks_copies, half.unfinished) == ("trashed", 9, True, False)
    assert half.under_way  # its last copy is a question
    await store.reindex()
    assert await store.describe(half.id) == half
    assert [found.id for found in (await sessions.list(Query(unfinished=True))).items] == [row.id]
    assert half.id not in {found.id for found in (await sessions.list(Query(status=UNTRASHED))).items}
    later = half.last_at + 31 * 86_400_000
    [gone] = await expire(sessions, store, ttl_days=None, trash_days=30, clock=lambda: later, apply=True)
    assert (gone.session_id, gone.action) == (half.id, "delete")
    await raises(turnlog.NotFound, store.describe(half.id))


@on_every_store
async def test_pins_name_messages_only(sessions, store):
    row = await sessions.open(KEY)
    await talk(store, row.id, 1)
    assert (await sessions.pin(row.id, 3)).pins == ((5, 3),)
    for target in (0, 1, 2, 5, 99):
        await raises(turnlog.UsageError, sessions.pin(row.id, target))
    await raises(turnlog.UsageError, sessions.unpin(row.id, 4))
    assert (await sessions.unpin(row.id, 3)).pins == ()


@on_every_store
async def test_pins_stay_within_their_budget(sessions, store):
    row = await sessions.open(KEY)
    async with store.lease(row.id) as lease:
        for n in range(3):
            await store.append(row.id, [said(f"{n} " + "word " * 100), answered("ok")], lease=lease)
    careful = Sessions(store, pin_tokens=250)
    await careful.pin(row.id, 3)
    await careful.pin(row.id, 5)
    error = await raises(turnlog.UsageError, careful.pin(row.id, 7))
    assert "budget" in str(error)
    await careful.unpin(row.id, 3)
    assert len((await careful.pin(row.id, 7)).pins) == 2


@on_every_store
async def test_edits_of_history_wait_for_a_running_turn(sessions, store):
    row = await sessions.open(KEY)
    await talk(store, row.id, 5)
    await fold(store, sessions, row.id)
    turnlog.sessions.EDIT_WAIT_S, old = 0.05, turnlog.sessions.EDIT_WAIT_S
    try:
        async with store.lease(row.id):
            await raises(turnlog.Busy, sessions.undo(row.id))
            await raises(turnlog.Busy, sessions.rewind(row.id, 4))
            await sessions.rename(row.id, "this may go on")
    finally:
        turnlog.sessions.EDIT_WAIT_S = old


@on_every_store
async def test_a_principal_sees_and_changes_only_what_is_theirs(owner, store):
    ann = owner.acting_for(Principal("ann"))
    bob = owner.acting_for(Principal("bob"))
    reader = owner.acting_for(Principal("eve", frozenset({"read"}), frozenset({"main"})))
    hers = await ann.new("agent:main:web:direct:ann", label="mine")
    await owner.open("agent:ops:web:direct:ann")
    async with store.lease(hers.id) as lease:
        await store.append(hers.id, [said("secret 123")], lease=lease)
    for act in (
        bob.get(hers.id),
        bob.load(hers.id),
        bob.read(hers.id),
        bob.transcript(hers.id),
        bob.rename(hers.id, "x"),
        bob.delete(hers.id),
        bob.fork(hers.id),
        bob.select(hers.id),
        bob.pin(hers.id, 2),
        bob.undo(hers.id),
        bob.explain(hers.id),
        bob.history(hers.id),
        bob.resolve("mine"),
        bob.resolve(hers.id),
        reader.get((await owner.open("agent:ops:cli:direct:x")).id),
    ):
        await raises(turnlog.NotFound, act)
    await raises(turnlog.NotFound, bob.open("agent:main:web:direct:ann"))
    await raises(turnlog.NotFound, bob.new("agent:main:web:direct:ann"))
    await raises(turnlog.Denied, bob.reindex())
    await raises(turnlog.NotFound, reader.open("agent:ops:web:direct:eve"))
    assert (await bob.list()).total == 0
    assert [r.id for r in (await ann.list()).items] == [hers.id]
    assert await bob.search("secret") == []
    assert len(await ann.search("secret")) == len(await reader.search("secret")) == 1
    assert (await reader.get(hers.id)).id == hers.id
    await raises(turnlog.Denied, reader.rename(hers.id, "x"))
    await raises(turnlog.Denied, reader.list(Query(agent="ops")))
    two = owner.acting_for(Principal("eve", frozenset({"read"}), frozenset({"main", "ops"})))
    assert (await two.list()).total == 3
    await raises(turnlog.Denied, two.list(Query(agent=("ops", "other"))))
    assert (await two.list(Query(agent="ops"))).total == 2
    assert (await owner.acting_for(Principal("eve", frozenset({"read"}))).list()).total == 3


@pytest.mark.parametrize("source", URLS)
@pytest.mark.parametrize("target", URLS)
def test_a_copy_is_equal_resumable_and_adds_nothing_when_repeated(source, target, tmp_path):
    async def go():
        async with (
            open_store(URLS[source].format(tmp_path / "a"), durability="os") as one,
            open_store(URLS[target].format(tmp_path / "b"), durability="os") as two,
        ):
            sessions = Sessions(one)
            rows = [await sessions.new(f"main:cli:p{n}") for n in range(4)]
            for n, row in enumerate(rows):
                await talk(one, row.id, 3 + n)
                await sessions.pin(row.id, 3)
            await fold(one, sessions, rows[0].id)
            await sessions.rewind(rows[1].id, 4)
            async with one.lease(rows[2].id) as lease:
                await one.append(rows[2].id, [said("\ud800 and \x00")], lease=lease)
            # As if an earlier copy had been cut off in the middle of a session.
            partial = await one.read(rows[3].id, limit=4)
            async with two.lease(rows[3].id) as lease:
                await two.append(rows[3].id, partial, lease=lease)
            seen = []
            report = await copy(one, two, progress=lambda done, total: seen.append((done, total)))
            assert (report.sessions, seen[-1]) == (4, (4, 4))
            for row in rows:
                ours, theirs = await one.read(row.id), await two.read(row.id)
                assert [replace(theirs[0], incarnation=None), *theirs[1:]] == [
                    replace(ours[0], incarnation=None),
                    *ours[1:],
                ]
                assert replace(await two.describe(row.id), stamped="") == replace(
                    await one.describe(row.id), stamped=""
                )
                assert (await Sessions(two).open(row.key)).id == row.id
            again = await copy(one, two)
            assert (again.entries, again.facts, again.digest) == (0, 0, report.digest)
            await two.append(rows[0].id, [entry(type="title", title="changed")])
            await one.append(rows[0].id, [entry(type="title", title="otherwise")])
            error = await raises(turnlog.Conflict, copy(one, two))
            assert rows[0].id in str(error)

    asyncio.run(go())


@pytest.mark.parametrize("kind", ["memory", "jsonl", "sqlite"])
def test_a_number_is_searched_in_words_and_not_in_the_time_that_an_id_holds(kind, tmp_path):
    async def main():
        url = {"memory": "memory:", "jsonl": f"jsonl:{tmp_path}/j", "sqlite": f"sqlite:{tmp_path}/s.db"}[kind]
        async with turnlog.open_store(url) as store:
            sessions = Sessions(store, clock=lambda: 1_794_832_055_529)
            made = await sessions.new("agent:main:cli:direct:ann")
            own = await sessions.new("agent:main:cli:direct:bob", session_id="my-chat")
            await sessions.rename(own.id, "invoice 4711")
            for number in ("1794", "832", "529"):
                assert (await sessions.list(Query(q=number))).items == []
            assert [row.id for row in (await sessions.list(Query(q="4711"))).items] == ["my-chat"]
            assert [row.id for row in (await sessions.list(Query(q=made.id[:12]))).items] == [made.id]
            assert [row.id for row in (await sessions.list(Query(q="my-ch"))).items] == ["my-chat"]
            assert (await sessions.list(Query(q="my-ch nowhere"))).total == 0

    asyncio.run(main())


@on_every_store
async def test_the_identifiers_of_a_compaction_are_counted_beside_the_event_loop(sessions, store):
    """A large log takes many seconds, and others must be answered meanwhile."""
    counted_in = []

    def noted(*args, report=fidelity.report):
        counted_in.append(threading.current_thread())
        return report(*args)

    row = await sessions.open(KEY)
    await talk(store, row.id, 3)
    async with store.lease(row.id) as lease:
        fold = entry(type="compaction", summary="S", first_kept=5, covers=[3, 4])
        await store.append(row.id, [fold], lease=lease)
    with patch.object(fidelity, "report", noted):
        [one] = await sessions.fidelity(row.id)
    assert one.covers == (3, 4)
    assert counted_in
    assert threading.main_thread() not in counted_in
