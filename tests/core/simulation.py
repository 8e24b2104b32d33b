"""A session driven by random steps, through the same gates as a store: what crashes, users and compactions can do."""

from hypothesis import strategies as st
from msgspec.structs import replace

from turnlog.core import admission, compaction, earlier_entries, history, session, summaries, turns
from turnlog.core.compaction import Keep
from turnlog.core.entries import (
    MESSAGES,
    Assistant,
    Compaction,
    Failed,
    Pin,
    Received,
    Rewind,
    Shortened,
    Title,
    ToolResult,
    Undo,
    Unpin,
    User,
)
from turnlog.errors import UsageError
from turnlog.testing import opened

KEEPS = (Keep("from_last_user"), Keep("turns", 2), Keep("messages", 3), Keep("fraction", 0.5), Keep("tokens", 30))

steps = st.lists(
    st.one_of(
        st.tuples(st.just("user"), st.sampled_from(["text", "blocks", "received", "heard", "blank"])),
        st.tuples(st.just("assistant"), st.sampled_from(["text", "thinking", "blank", "string"])),
        st.tuples(st.just("call"), st.integers(1, 3), st.booleans()),
        st.tuples(st.just("result"), st.integers(0, 3), st.booleans()),
        st.tuples(st.just("failed"), st.sampled_from(["interrupted", "provider", "overflow", "refused_content"])),
        st.tuples(st.just("compact"), st.sampled_from(KEEPS)),
        st.tuples(st.just("undo"), st.none()),
        st.tuples(st.just("rewind"), st.integers(0, 40)),
        st.tuples(st.just("pin"), st.integers(0, 40)),
        st.tuples(st.just("unpin"), st.integers(0, 40)),
        st.tuples(st.just("shorten"), st.integers(0, 40)),
        st.tuples(st.just("plain"), st.integers(0, 40)),
        st.tuples(st.just("title"), st.none()),
    ),
    max_size=40,
)
"""Without regard to what makes sense: a result may come before its call, twice, late, or never."""


_turn = st.just((("user", "text"), ("assistant", "text")))
_mark = st.one_of(
    st.tuples(st.just("rewind"), st.integers(0, 40)),
    st.tuples(st.just("rewind"), st.integers(0, 40)),
    st.tuples(st.just("pin"), st.integers(0, 40)),
    st.tuples(st.just("unpin"), st.integers(0, 40)),
    st.tuples(st.just("compact"), st.sampled_from(KEEPS)),
    st.tuples(st.just("undo"), st.none()),
)
shaping = st.lists(_turn | st.tuples(_mark), min_size=10, max_size=60).map(
    lambda found: [s for some in found for s in some]
)
"""Whole turns and what shapes a log: rewinds in all directions, compactions and undos, pins."""


class Simulation:
    """The summariser echoes everything it is given, so whatever is lost was lost by us."""

    def __init__(self):
        self.log = []
        self.row = None
        self.words = {}
        self.calls = []
        self.add(opened("s1"))

    def add(self, *bodies):
        admission.admit(self.row, bodies, leased=True)
        last = self.log[-1].seq if self.log else 0
        entries = [replace(body, seq=last + n, ts="2026-01-01T00:00:00.000Z") for n, body in enumerate(bodies, 1)]
        log = self.log
        self.row = earlier_entries.row_after(
            self.row,
            entries,
            lambda wanted: [one for first, last in wanted for one in log[first - 1 : last]],
            lambda: log,
        )
        self.log = [*log, *entries]
        return entries

    def word(self):
        return f"w{len(self.words) + 1:04d}q"

    def say(self, body, word):
        (entry,) = self.add(body)
        if word:
            self.words[entry.seq] = word

    def run(self, steps):
        for name, *args in steps:
            getattr(self, name)(*args)
        return self

    def user(self, how):
        word = self.word()
        match how:
            case "text":
                self.say(User(content=f"say {word}"), word)
            case "blocks":
                self.say(User(content=[{"type": "text", "text": word}, {"type": "text", "text": " "}]), word)
            case "received":
                (received,) = self.add(Received(content=word))
                self.say(User(from_=(received.seq,)), word)
            case "heard":
                self.add(Received(content="never taken", mode="heard"))
                heard, received = self.add(Received(content=word, mode="heard"), Received(content="asked"))
                self.say(User(from_=(heard.seq, received.seq)), word)
            case _:
                self.say(User(content=" \n"), "")

    def assistant(self, how):
        word = self.word()
        match how:
            case "text":
                self.say(Assistant(content=[{"type": "text", "text": word}], stop="end_turn"), word)
            case "thinking":
                thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
                self.say(Assistant(content=[thought, {"type": "text", "text": word}]), word)
            case "string":
                self.say(Assistant(content=word), word)
            case _:
                self.say(Assistant(content=[{"type": "text", "text": ""}]), "")

    def call(self, count, fresh):
        word = self.word()
        blocks = [{"type": "text", "text": word}]
        for n in range(count):
            call_id = f"c{len(self.calls)}" if fresh or not self.calls else self.calls[-1]
            blocks.append({"type": "tool_use", "id": call_id, "name": "look", "input": {"at": f"{word}.{n}"}})
            self.calls.append(call_id)
        self.say(Assistant(content=blocks, stop="tool_use"), word)

    def result(self, which, is_error):
        call_id = self.calls[-1 - which % len(self.calls)] if self.calls else "nobody"
        word = self.word()
        self.say(ToolResult(tool_use_id=call_id, content=f"got {word}", is_error=is_error), word)

    def failed(self, code):
        self.add(Failed(code=code))

    def title(self, _):
        self.add(Title(title="t"))

    def compact(self, keep):
        plan = compaction.plan(self.log, keep)
        if plan is not None:
            asked = summaries.ask(plan.fold, plan.view, previous=plan.previous.summary if plan.previous else "")
            self.add(compaction.complete(plan, asked.text, trigger="manual", tokens_before=100, tokens_after=50))

    def undo(self, _):
        stack = session.active(self.row.marks, self.row.last_seq)
        if stack:
            self.add(Undo(target=stack[-1].seq))

    def rewind(self, which):
        ends = sorted(turns.ends(self.log))
        self.add(Rewind(to=ends[which % len(ends)]))

    def pin(self, which):
        messages = [e for e in self.log if isinstance(e, MESSAGES)]
        if messages:
            self.add(Pin(target=messages[which % len(messages)].seq))

    def unpin(self, which):
        if self.row.pins:
            self.add(Unpin(target=self.row.pins[which % len(self.row.pins)][1]))

    def shorten(self, which):
        results = [e for e in self.log if isinstance(e, ToolResult)]
        if results:
            self.add(Shortened(targets=(results[which % len(results)].seq,), limit=1000))

    def plain(self, which):
        messages = [e for e in self.log if isinstance(e, MESSAGES)]
        if messages:
            self.add(Shortened(targets=(messages[which % len(messages)].seq,), limit=0, plain=True))

    def tail(self):
        """What `Sessions.load` reads: from the boundary on, and the few entries it needs from before."""
        entries = [e for e in self.log if e.seq >= self.row.read_from]
        while wanted := history.missing(entries, self.row.pins):
            entries = [e for e in self.log if e.seq in wanted] + entries
        return entries


def is_refused(simulation, *bodies):
    try:
        admission.admit(simulation.row, bodies, leased=True)
    except UsageError:
        return True
    return False


__all__ = ["Compaction", "Simulation", "is_refused", "steps"]
