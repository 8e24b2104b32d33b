"""Claude Agent SDK: its session transcripts in a Turnlog store.

    ClaudeAgentOptions(session_store=TurnlogSessionStore("postgresql://…"))

A transcript is one session, and so is each transcript of a subagent. A line is one entry: lines of user and assistant
become messages, all others `foreign` entries. `load` gives every line back as it came, so a session that one host has
written can be resumed on another.

A line that comes again with the same `uuid` is not stored again, whichever process brings it: each append puts the fact
`s` (the SDK's summary) and expects the one that it has seen, so no other writer can come in between unnoticed.
"""

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple, NotRequired, TypeAlias, TypedDict, cast

import msgspec

from ..core import keys as session_keys
from ..core.entries import Assistant, Entry, Facts, Foreign, User
from ..core.query import Query
from ..core.session import Session, live_path, marks_of, on_path
from ..core.strict_json import fields_in
from ..errors import Conflict, NotFound
from ..library import Turnlog
from ..stores import Appended, GivenLease
from ..stores.finding import every_row
from .blocks import content_of
from .checkpoints import digest
from .framework import framework
from .not_storable import NotStorable
from .resident import holder
from .session_log import AGENT, SessionLog, check_id, key_of

with framework("claude"):
    _sdk: Any = import_module("claude_agent_sdk")

CHANNEL = "claude_agent_sdk"
APP = "claude-agent-sdk"
SUMMARY = "s"
TRANSCRIPTS_MAX = 256
"""The transcripts whose lines are remembered by `uuid`."""
RACES_MAX = 20
UUID_MAX_CHARS = 498
"""A fact is named by a longer one's digest."""
_HIDDEN = ("isMeta", "isCompactSummary")
"""Lines that the CLI wrote for itself: not a person's words."""

Line: TypeAlias = dict[str, Any]


class TranscriptKey(TypedDict):
    project_key: str
    session_id: str
    subpath: NotRequired[str]


class ListedSession(TypedDict):
    session_id: str
    mtime: int


class SummaryRow(TypedDict):
    session_id: str
    mtime: int
    data: dict[str, Any]


class TurnlogSessionStore:
    """A session store of the Claude Agent SDK, for asyncio and trio.

    `url`: the store; None means that of the settings, or if none was made there yet, one in memory that is private to
    this object: the CLI itself keeps every transcript on disk, and this is its copy. `store`: a Turnlog that the caller
    has opened, instead of a URL.
    """

    def __init__(self, url: str | None = None, *, store: Turnlog | None = None) -> None:
        self._holder = holder(url, store, if_absent="memory:")
        self._transcript: Callable[[session_keys.SessionKey], WrittenTranscript]
        self._transcript = lru_cache(TRANSCRIPTS_MAX)(WrittenTranscript)

    async def append(self, key: TranscriptKey, entries: Sequence[Line]) -> None:
        """Stores the lines that are new, all or none; durable on return."""
        place = _place(key)
        self._holder.check_open()
        if not entries:
            return
        lines = [_plain(line) for line in entries]
        await self._holder.call(
            lambda t: self._transcript(place).append(t, lines),
            lambda t: self._transcript(place).append_at_once(t, lines),
        )

    async def load(self, key: TranscriptKey) -> list[Line] | None:
        """All lines in order; None if nothing was stored under this key."""
        place = _place(key)
        return await self._holder.call(lambda t: _lines(t, self._transcript(place).log))

    async def list_sessions(self, project_key: str) -> list[ListedSession]:
        """The sessions of a project, without transcripts of subagents."""
        check_id("project key", project_key)
        rows = await self._holder.call(lambda t: _rows(t, _prefix(project_key)))
        return [{"session_id": place.peer, "mtime": row.last_at} for row, place in rows if place.thread is None]

    async def list_session_summaries(self, project_key: str) -> list[SummaryRow]:
        check_id("project key", project_key)
        return await self._holder.call(lambda t: _summaries(t, _prefix(project_key)))

    async def delete(self, key: TranscriptKey) -> None:
        """Deletes for good: one subagent's transcript, or a session with all of them."""
        place = _place(key)
        await self._holder.call(lambda t: self._delete(t, place))

    async def list_subkeys(self, key: TranscriptKey) -> list[str]:
        """The subpaths of a session's subagents."""
        prefix = f"{session_keys.format(_place(key))}:thread:"
        rows = await self._holder.call(lambda t: _rows(t, prefix))
        return sorted(place.thread for _, place in rows if place.thread is not None)

    async def _delete(self, t: Turnlog, place: session_keys.SessionKey) -> None:
        await self._transcript(place).log.delete(t)
        if place.thread is None:
            for _, inner in await _rows(t, f"{session_keys.format(place)}:thread:"):
                await self._transcript(inner).log.delete(t)

    def close(self) -> None:
        """Gives up the store. What is stored stays."""
        self._holder.close()

    async def aclose(self) -> None:
        await self._holder.aclose()


class WrittenTranscript:
    """One transcript, and what this process knows of it: its lines' ids and its summary, as of one entry."""

    def __init__(self, place: session_keys.SessionKey) -> None:
        self.log = SessionLog(place)
        self._place = place
        self._incarnation = ""
        self._seen: set[str] = set()
        self._summary: Any = None
        self._at: int | None = None

    async def append(self, t: Turnlog, lines: Sequence[Line]) -> bool:
        for _ in range(RACES_MAX):
            row = await self.log.open(t)
            try:
                is_known = row.incarnation == self._incarnation
                async with self.log.alone(t, None if is_known else row) as lease:
                    if not is_known:
                        await self._learn(t, row)
                    await self._append(t, row, lines, lease)
                return True
            except NotFound:  # deleted meanwhile
                self.log.forget()
            except Conflict:  # another process has written: its row says more than the one of an earlier call
                self._incarnation = ""
                self.log.forget()
        raise Conflict("too many changes of this transcript at once")

    async def _learn(self, t: Turnlog, row: Session) -> None:
        self._seen, self._summary, self._at = set(), None, None
        for fact in await t.store.facts(row.id, APP, incarnation=row.incarnation):
            if fact.key == SUMMARY:
                self._summary, self._at = fact.value, fact.seq
            else:
                self._seen.add(fact.key)
        self._incarnation = row.incarnation

    async def _append(self, t: Turnlog, row: Session, lines: Sequence[Line], lease: GivenLease) -> None:
        """Always with a lease, also if no line is a message: so nobody writes while another holds it."""
        new = list(_unseen(lines, self._seen))
        if not new:
            return
        if not self._is_folded and (earlier := await _lines(t, self.log)):
            self._summary = self._folded(None, earlier)
        change = self._change(new)
        self._written(
            change, await self.log.append_to(t, row, change.bodies, expect_fact=(APP, SUMMARY, self._at), lease=lease)
        )

    def append_at_once(self, t: Turnlog, lines: Sequence[Line]) -> bool | None:
        """The same without waiting; None if that is not possible."""
        if self._at is None or not self._is_folded:
            return None
        if new := list(_unseen(lines, self._seen)):
            change = self._change(new)
            appended = self.log.append_at_once(t, change.bodies, after=(self._incarnation, self._at))
            if appended is None:
                return None
            self._written(change, appended)
        return True

    def _change(self, new: Sequence[Line]) -> "_Change":
        summary = self._summary if self._place.thread else self._folded(self._summary or None, new)
        names = [name for line in new if (name := _name(line)) is not None]
        facts = Facts(app=APP, put={**dict.fromkeys(names, True), SUMMARY: summary or {}})
        return _Change([*map(_entry, new), facts], names, summary)

    def _written(self, change: "_Change", appended: Appended) -> None:
        self._seen.update(change.names)
        self._summary, self._at = change.summary, appended[-1].seq

    @property
    def _is_folded(self) -> bool:
        """Whether the summary is of all lines so far. Early versions of the SDK make none; later ones read all."""
        return bool(self._summary) or self._at is None or not _folds() or self._place.thread is not None

    def _folded(self, summary: Any, lines: Sequence[Line]) -> Any:
        if not _folds():
            return {}
        key = {"project_key": self._place.account, "session_id": self._place.peer}
        return _sdk.fold_session_summary(summary, key, lines)


class _Change(NamedTuple):
    bodies: list[Entry]
    names: list[str]
    """The facts that say that a line is stored."""
    summary: Any


def _folds() -> bool:
    return hasattr(_sdk, "fold_session_summary")


def _place(key: TranscriptKey) -> session_keys.SessionKey:
    return key_of(CHANNEL, key["session_id"], account=key["project_key"], thread=key.get("subpath"))


def _prefix(project: str) -> str:
    return f"agent:{AGENT}:{CHANNEL}:{session_keys.encode_part(project)}:direct:"


def _name(line: Line) -> str | None:
    """The key of the fact that says that this line is stored."""
    uuid = line.get("uuid")
    if not isinstance(uuid, str) or not uuid:
        return None
    return f"u|{uuid if len(uuid) <= UUID_MAX_CHARS else '#' + digest(uuid.encode('utf-8', 'surrogatepass'))}"


def _unseen(lines: Sequence[Line], seen: set[str]) -> Iterator[Line]:
    here: set[str] = set()
    for line in lines:
        name = _name(line)
        if name is None or (name not in seen and name not in here):
            yield line
        if name is not None:
            here.add(name)


def _plain(line: Any) -> Line:
    """A copy that the caller cannot change any more; NotStorable if JSON cannot hold the line."""
    with suppress(TypeError, ValueError, RecursionError):
        # Several times as fast as `json`. It also writes what is no JSON in some way, but then reads something else.
        copy = msgspec.json.decode(msgspec.json.encode(line))
        if copy == line:
            return copy
    try:
        return json.loads(json.dumps(line, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise NotStorable(f"a line cannot be stored: {error}") from error


def _entry(line: Line) -> Entry:
    """The entry of a line. `raw` is the line without the content that the entry holds already."""
    match line:
        case {"type": "user" | "assistant" as role, "message": {"content": str() | list(), **rest}}:
            if any(line.get(name) for name in _HIDDEN):
                return Foreign(raw={CHANNEL: line})
            given: Any = line["message"]["content"]
            content = content_of(given)
            return _message(role, content, rest, {**line, "message": rest} if content == given else line)
        case _:
            return Foreign(raw={CHANNEL: line})


def _message(role: str, content: Any, message: Line, raw: Line) -> Entry:
    if role == "user":
        return User(content=content, raw=raw)
    model, usage = message.get("model"), message.get("usage")
    return Assistant(
        content=content,
        model=model if isinstance(model, str) else None,
        usage=cast("dict[str, Any]", usage) if isinstance(usage, dict) else None,
        raw=raw,
    )


def _line(entry: Entry) -> Line | None:
    match entry:
        case Foreign(raw={"claude_agent_sdk": line}):
            return line
        case User(raw={"message": dict()}) | Assistant(raw={"message": dict()}):
            held: Line = entry.raw["message"]
            return entry.raw if "content" in held else {**entry.raw, "message": {**held, "content": entry.content}}
        case _:
            return None


async def _lines(t: Turnlog, log: SessionLog) -> list[Line] | None:
    row = await log.find(t)
    if row is None:
        return None
    with suppress(NotFound):
        entries = await t.store.read(row.id, incarnation=row.incarnation)
        if any(mark.kind == "rewind" for mark in row.marks):
            path = live_path(marks_of(entries), entries[-1].seq)
            entries = [entry for entry in entries if on_path(entry.seq, path)]
        lines = [line for entry in entries if (line := _line(entry)) is not None]
        if any(entry.erased for entry in entries):
            lines = _joined(entries, await _erased_parents(t, row, lines))
        return lines or None
    return None


async def _erased_parents(t: Turnlog, row: Session, lines: Sequence[Line]) -> set[str]:
    """Lines that were stored here, are named as parents, and are gone."""
    ids = {line.get("uuid") for line in lines}
    parents = [parent for line in lines if isinstance(parent := line.get("parentUuid"), str) and parent not in ids]
    if not parents:
        return set()
    names = {_name({"uuid": parent}) or "": parent for parent in parents}
    facts = await t.store.facts(row.id, APP, keys=list(names), incarnation=row.incarnation)
    return {names[fact.key] for fact in facts}


def _joined(entries: Sequence[Entry], erased: Collection[str]) -> list[Line]:
    """Their lines. Those that followed an erased one follow the line before it: each names its parent, and readers go
    from parent to parent.
    """
    lines: list[Line] = []
    adopted: dict[str, str | None] = {}
    last: str | None = None
    before_gap: str | None = None
    for entry in entries:
        if entry.erased:
            before_gap = last
        if (line := _line(entry)) is None:
            continue
        parent, name = line.get("parentUuid"), line.get("uuid")
        if isinstance(parent, str) and parent in erased:
            line = {**line, "parentUuid": adopted.setdefault(parent, before_gap)}
        lines.append(line)
        last = name if isinstance(name, str) else last
    return lines


async def _rows(t: Turnlog, prefix: str) -> list[tuple[Session, session_keys.SessionKey]]:
    rows = every_row(t.store.find, Query(key_prefix=prefix, status="active"))
    return [(row, session_keys.parse(row.key)) async for row in rows]


async def _summaries(t: Turnlog, prefix: str) -> list[SummaryRow]:
    """Each with the time of its row, the one that `list_sessions` tells."""
    found: list[SummaryRow] = []
    for row, place in await _rows(t, prefix):
        if place.thread is not None:
            continue
        with suppress(NotFound):
            facts = await t.store.facts(row.id, APP, keys=[SUMMARY], incarnation=row.incarnation)
            data: dict[str, Any] | None = fields_in(facts[0].value).get("data") if facts else None
            if data is not None:  # the SDK reads the sessions that have none
                found.append({"session_id": place.peer, "mtime": row.last_at, "data": data})
    return found
