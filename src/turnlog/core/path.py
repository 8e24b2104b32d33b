"""The live path of a session as a list of atoms: what a client's next request is compared with.

A path is made from a log and then grows with each append, so the log need not be read again, unless a rewind leads to a
branch that the path does not know.
"""

from bisect import bisect_left
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, cast

from msgspec import Struct

from . import answers, atoms, turns
from .atoms import Atom
from .entries import (
    REFUSED_CONTENT,
    Assistant,
    Compaction,
    Entry,
    Failed,
    Foreign,
    Message,
    Opened,
    Received,
    Rewind,
    Shortened,
    ToolResult,
    Transcript,
    Undo,
    User,
    tool_uses,
)
from .marks import live_path, marks_of, on_path
from .user_content import parted, user_content

REQUEST = "request"
"""The `foreign` entry of one call for a client: who asked, with which head and parameters."""
HEAD = "head"
"""The `foreign` entry that holds a head, once for each digest and session."""
_UNSENT = ("overflow", REFUSED_CONTENT)
"""Failures after which history shows the turn's words cut or not at all."""


class TurnEnd(Struct, frozen=True, gc=False):
    """A place to which a path can go back."""

    kept: int
    """The number of atoms before it."""
    seq: int


class AskedCall(Struct, frozen=True, gc=False):
    """The newest call for a client in a session."""

    turn: int
    """The seq of its `foreign` entry."""
    ask: str
    """The digest of everything that was asked."""
    ts: str
    branch: int
    is_turn: bool = False
    """Whether it is a turn of an agent, with calls that run here."""


def note_of(entry: Entry, kind: str) -> Mapping[str, Any] | None:
    """The fields of a `foreign` entry that Turnlog itself wrote."""
    raw: Any = entry.raw if isinstance(entry, Foreign) and not entry.unknown else None
    if not isinstance(raw, dict):
        return None
    fields = cast("dict[str, Any]", raw)
    return fields if fields.get("turnlog") == kind else None


def said_until(note: Mapping[str, Any], seq: int) -> int:
    """The last entry that the request with this note at `seq` appended itself."""
    said = note.get("said")
    return seq + said if isinstance(said, int) else seq


def answer_to(note: Mapping[str, Any], log: Transcript) -> Assistant | None:
    """The answer to a call; None while there is none. `log`: from the call's note on."""
    after = said_until(note, log[0].seq)
    said: list[Assistant] = []
    for entry in log[1:]:
        if note_of(entry, REQUEST) is not None:
            break
        if isinstance(entry, Assistant) and entry.seq > after and entry.stop != "error":
            said.append(entry)
    if not said or not note.get("agent"):
        return said[-1] if said else None
    return None if tool_uses(said[-1]) else answers.told_as_one(said)


class Path:
    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.keys: list[bytes] = []
        self.atoms: list[Atom] = []
        self.seqs: list[int] = []
        """The entry of each atom."""
        self.branches: list[int] = []
        """The client of each atom: the call at which that client joined the session; 0: the first one."""
        self.ends: list[TurnEnd] = [TurnEnd(0, 1)]
        self.own: dict[bytes, str] = {}
        """Every answer that this server gave in this session, rewound or not, and its model."""
        self.told: set[bytes] = set()
        """Answers that a client brought along: they prove nothing."""
        self.heads: dict[str, int] = {}
        """Digest of each head that the log holds, and its entry."""
        self._shortenings: list[Shortened] = []
        self.undone: dict[int, int] = {}
        """Marks that were undone, and the entry that undid each."""
        self._fixed_at = 0
        """The newest compaction or undo: what was in effect before it must be read from the log."""
        self.call: AskedCall | None = None
        self.branch = 0
        self.role: turns.Role = ""
        self.is_unsent = False
        """Whether history does not show the words of the newest turn as they are, because it failed."""
        self.is_lost = False
        """Whether what was said first is in a session that is gone: no request can be compared with it."""
        self.last_seq = 0
        self.answered_at = ""
        """When the newest answer was stored."""
        self._received: dict[int, Received] = {}
        self._turn_after: int | None = None
        self._turn: list[Assistant] = []
        """What an agent said in the newest turn, which its client has as one message."""

    @property
    def is_unanswered(self) -> bool:
        """Whether its newest words got no answer, and are still shown as they are."""
        return self.role in ("user", "tool") or (self.role == "failed" and not self.is_unsent)

    def shortened(self, to: int | None = None, *, without: Container[int] = ()) -> dict[int, int]:
        """Results of which a part is shown, and the characters of each; `to`: if the path went back to there,
        `without`: if these shortenings were undone.
        """
        limits: dict[int, int] = {}
        for entry in self._in_effect(to):
            for target in entry.targets if entry.seq not in without else ():
                limits[target] = min(entry.limit, limits.get(target, entry.limit))
        return limits

    def pruned(self, to: int | None = None) -> list[Shortened]:
        """The shortenings that stand for results which a client sent pruned."""
        return [entry for entry in self._in_effect(to) if entry.by_client]

    @property
    def is_cut_short(self) -> bool:
        """Whether the newest call is over without a whole answer."""
        return self.role == "failed" or bool(self.atoms and self.atoms[-1].partial is not None)

    @property
    def by_client(self) -> set[int]:
        """The same, whether they are in effect or undone."""
        return {entry.seq for entry in self._shortenings if entry.by_client}

    def _in_effect(self, to: int | None) -> list[Shortened]:
        at = self.last_seq if to is None else to
        return [entry for entry in self._shortenings if entry.seq <= at < self.undone.get(entry.seq, at + 1)]

    def grow(self, entries: Iterable[Entry]) -> bool:
        """Adds what was appended. False: the path is of no use any more, and must be made from the log again."""
        for entry in entries:
            if entry.after is not None and entry.after != entry.seq - 1:
                return False
            if isinstance(entry, Rewind):
                if not self._go_back(entry.to):
                    return False
            elif isinstance(entry, Undo):
                return False  # it may be a shortening that is undone; this is rare
            self.add(entry)
        return True

    def _go_back(self, to: int) -> bool:
        """Only to an entry that the path knows: the end of a turn."""
        end = next((end for end in reversed(self.ends) if end.seq <= to), None)
        if end is None or self._fixed_at > to or (end.kept < len(self.seqs) and self.seqs[end.kept] <= to):
            return False
        self._cut(end.kept)
        self._shortenings = [entry for entry in self._shortenings if entry.seq <= to]
        self._turn_after, self._turn = None, []
        self.role, self.is_unsent = "", False
        return True

    def _cut(self, kept: int) -> None:
        for column in (self.keys, self.atoms, self.seqs, self.branches):
            del column[kept:]
        while self.ends and self.ends[-1].kept > kept:
            self.ends.pop()

    def add(self, entry: Entry, *, is_live: bool = True) -> None:
        self.last_seq = entry.seq
        if isinstance(entry, Received):
            self._received[entry.seq] = entry  # a turn that is not rewound may be made from it
        if isinstance(entry, Foreign):
            self._add_note(entry, is_live)
        elif is_live:
            self._add_live(entry)
        elif isinstance(entry, Assistant):
            for atom in atoms.of(entry):
                self._remember(atom)

    def _add_live(self, entry: Entry) -> None:
        match entry:
            case User() | Assistant() | ToolResult():
                self._add_message(entry)
            case Shortened() if not entry.plain:
                self._shortenings.append(entry)
            case Compaction():
                self._shortenings, self._fixed_at = [], entry.seq  # it ends earlier shortenings
            case Undo():
                self._fixed_at = entry.seq
            case Failed():
                self.is_unsent = entry.code in _UNSENT
            case _:
                pass
        self.role = turns.after(self.role, entry)
        if self.role not in turns.UNDER_WAY:
            if self.ends and self.ends[-1].kept == len(self.keys):
                self.ends.pop()
            self.ends.append(TurnEnd(len(self.keys), entry.seq))

    def _add_message(self, entry: User | Assistant | ToolResult) -> None:
        self.is_unsent = False
        if isinstance(entry, User) and entry.content is None:
            entry = User(seq=entry.seq, ts=entry.ts, sender=entry.sender, content=user_content(entry, self._received))
        if isinstance(entry, Assistant):
            self.answered_at = entry.ts
        if self._is_of_turn(entry):
            self._add_to_turn(entry)
            return
        for part in parted(entry):
            self._add_atoms(part)

    def _is_of_turn(self, entry: User | Assistant | ToolResult) -> bool:
        if self._turn_after is None or entry.seq <= self._turn_after:
            return False
        if isinstance(entry, User):  # said by somebody else, after the turn or during it
            self._turn_after, self._turn = None, []
        return self._turn_after is not None

    def _add_to_turn(self, entry: User | Assistant | ToolResult) -> None:
        if not isinstance(entry, Assistant) or entry.stop == "error":
            return
        if self._turn:
            before = len(self.keys) - len(atoms.of(answers.told_as_one(self._turn)))
            for column in (self.keys, self.atoms, self.seqs, self.branches):
                del column[before:]
        self._turn.append(entry)
        self._add_atoms(answers.told_as_one(self._turn))

    def _add_atoms(self, body: Message) -> None:
        for atom in atoms.of(body):
            self._remember(atom)
            self.keys.append(atom.key)
            self.atoms.append(atom)
            self.seqs.append(body.seq)
            self.branches.append(self.branch)

    def _remember(self, atom: Atom) -> None:
        if atom.own is not None:
            self.own[atom.key] = atom.own
        elif atom.kind in ("assistant", "call"):
            self.told.add(atom.key)

    def _add_note(self, entry: Foreign, is_live: bool) -> None:
        if head := note_of(entry, HEAD):
            self.heads[str(head.get("digest"))] = entry.seq
        elif is_live and (asked := note_of(entry, REQUEST)):
            branch = asked.get("branch", 0)
            self.branch = entry.seq if branch == "new" else branch if isinstance(branch, int) else 0
            self._turn_after, self._turn = said_until(asked, entry.seq) if asked.get("agent") else None, []
            self.call = AskedCall(entry.seq, str(asked.get("ask")), entry.ts, self.branch, self._turn_after is not None)

    def begin_with(self, said: Sequence[Atom]) -> None:
        """What was said before the log of a fork begins; no entry here holds it."""
        for atom in said:
            self._remember(atom)
        self.keys, self.atoms = [atom.key for atom in said], list(said)
        self.seqs, self.branches = [0] * len(said), [0] * len(said)


def of_log(session_id: str, log: Transcript, said: Sequence[Atom] | None = None) -> Path:
    """The path of a whole log. `said`: what a fork left in its source, if it did."""
    path = Path(session_id)
    live = live_path(marks_of(log), log[-1].seq) if log else []
    joins = summary_of_source(log)
    path.is_lost = bool(joins) and said is None
    for entry in reversed(log):
        if isinstance(entry, Undo) and on_path(entry.seq, live):
            path.undone[entry.target] = entry.seq
    for entry in log:
        if entry.seq == joins and said is not None:
            path.begin_with(said)
        is_undone = isinstance(entry, Compaction) and entry.seq in path.undone
        path.add(entry, is_live=entry.seq >= joins and on_path(entry.seq, live) and not is_undone)
    return path


def summary_of_source(log: Transcript) -> int:
    """The entry of a fork that stands for what it did not copy; 0: there is none, or it was undone."""
    origin = log[0].forked_from if log and isinstance(log[0], Opened) else None
    if origin is None or not origin.compaction:
        return 0
    live = live_path(marks_of(log), log[-1].seq)
    copies = (entry.seq for entry in log if isinstance(entry, Compaction) and entry.seq <= origin.copied)
    return next((seq for seq in copies if on_path(seq, live)), 0)


def said_before(path: Path, seq: int) -> Sequence[Atom] | None:
    """The atoms before this entry, if a turn ended there."""
    kept = bisect_left(path.seqs, seq)
    return path.atoms[:kept] if any(end.kept == kept for end in path.ends) else None
