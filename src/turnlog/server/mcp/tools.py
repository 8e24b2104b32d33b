"""The tools that other programs' models may call, with the rights of one principal: everything goes through `Access`.

Five look things up, `pin` and `unpin` change one thing. Every answer has a limit that fits into a model's context; what
is cut says how to read on. Arguments are checked against the schema that clients are told, and never coerced.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal, TypeAlias, get_type_hints

import msgspec
from msgspec import Meta, Struct

from ...access import Access
from ...core.entries import MESSAGES, Entry, clean
from ...core.history import survey
from ...core.plain import shorten
from ...core.query import UNTRASHED, Hit, Query, named_status
from ...core.search import understand
from ...core.searchable import SERVED_TOOLS, role_of, text_of_entry
from ...core.session import Session
from ...core.snippets import excerpt
from ...core.states import LogStates
from ...errors import NotFound, UsageError
from ...tools.history import said_in
from . import answers

SESSIONS_SHOWN, SESSIONS_MAX = 20, 50
HITS_SHOWN, HITS_MAX = 8, 20
HITS_CHARS = 6_000
"""The size of an answer of `search`, shared by its hits."""
HIT_MIN_CHARS, HIT_MAX_CHARS = 200, 1_000
MESSAGES_SHOWN, MESSAGES_MAX = 20, 50
ENTRIES_READ = 200
"""The entries that one call of `read` looks at: most are messages, the others have no words."""
READ_CHARS = 12_000
MESSAGE_MIN_CHARS = 300
"""What a long message gets at least; then the next ones wait for the next call."""
SUMMARY_CHARS = 6_000
PINS_CHARS = 3_000
MEMO_CHARS = 1_000
WORDS_MAX_CHARS = 1_000
NAME_MAX_CHARS = 400
SEQ_MAX = 2**53 - 1
"""The largest number that every client can write."""

SessionName = Annotated[
    str,
    Meta(min_length=1, max_length=NAME_MAX_CHARS, description="its id, key or label, or a unique beginning of one"),
]
Words = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=WORDS_MAX_CHARS,
        description='words or a question; "a phrase", begin*, -without, from:NAME, after:DATE, before:DATE',
    ),
]
AgentName = Annotated[str, Meta(max_length=64, description="only sessions of this agent")]
FirstSeq = Annotated[int, Meta(ge=1, le=SEQ_MAX, description="the first message; without it, the last ones")]
Seq = Annotated[int, Meta(ge=1, le=SEQ_MAX, description="the number (seq) of a message")]


class Arguments(Struct, kw_only=True, forbid_unknown_fields=True):
    """What a tool is called with."""


class ListArguments(Arguments, kw_only=True):
    words: Annotated[str, Meta(max_length=WORDS_MAX_CHARS, description="words of title, label or key")] | None = None
    agent: AgentName | None = None
    channel: Annotated[str, Meta(max_length=64, description="cli, app, api, web …")] | None = None
    status: Literal["active", "inactive", "archived", "trashed", "untrashed", "all"] = "untrashed"
    limit: Annotated[int, Meta(ge=1, le=SESSIONS_MAX)] = SESSIONS_SHOWN
    cursor: Annotated[str, Meta(max_length=NAME_MAX_CHARS, description="next of the last answer")] | None = None


class SearchArguments(Arguments, kw_only=True):
    words: Words
    session: SessionName | None = None
    agent: AgentName | None = None
    limit: Annotated[int, Meta(ge=1, le=HITS_MAX)] = HITS_SHOWN


class ReadArguments(Arguments, kw_only=True):
    session: SessionName
    from_seq: FirstSeq | None = None
    limit: Annotated[int, Meta(ge=1, le=MESSAGES_MAX)] = MESSAGES_SHOWN
    skip_chars: Annotated[int, Meta(ge=0, le=SEQ_MAX, description="characters to skip of the first message")] = 0


class ContextArguments(Arguments, kw_only=True):
    session: SessionName


class RecallArguments(Arguments, kw_only=True):
    words: Words
    agent: Annotated[str, Meta(max_length=64, description="whose memory [main]")] = "main"
    limit: Annotated[int, Meta(ge=1, le=HITS_MAX)] = HITS_SHOWN


class PinArguments(Arguments, kw_only=True):
    session: SessionName
    seq: Seq


_SCHEMA_HINT = "Its input schema says what it takes."
RunServed: TypeAlias = Callable[[Access, Any], Awaitable[answers.AnyAnswer]]


class ServedTool(Struct, frozen=True):
    name: str
    title: str
    description: str
    takes: type[Arguments]
    gives: type[answers.AnyAnswer]
    run: RunServed
    reads: bool = True

    async def call(self, access: Access, given: Mapping[str, Any]) -> answers.AnyAnswer:
        try:
            arguments = msgspec.convert(dict(given), self.takes)
        except msgspec.ValidationError as error:
            raise UsageError(f"{self.name} was called with wrong arguments: {error}", hint=_SCHEMA_HINT) from error
        return await self.run(access, arguments)


async def list_sessions(access: Access, asked: ListArguments) -> answers.SessionsAnswer:
    page = await access.sessions.list(
        Query(
            q=asked.words or None,
            agent=asked.agent,
            channel=asked.channel,
            status=named_status(asked.status),
            limit=asked.limit,
            cursor=asked.cursor,
        )
    )
    return answers.SessionsAnswer(
        sessions=list(map(answers.told_session, page.items)), total=page.total, next=page.next
    )


async def search(access: Access, asked: SearchArguments) -> answers.SearchAnswer:
    within = await access.sessions.resolve(asked.session) if asked.session else None
    scope = Query(id=within.id) if within else Query(agent=asked.agent, status=UNTRASHED)
    hits = await access.sessions.search(asked.words, scope=scope)
    shown = hits[: asked.limit]
    rows = await _rows_of(access, {hit.session_id for hit in shown})
    width = max(HIT_MIN_CHARS, min(HIT_MAX_CHARS, HITS_CHARS // max(1, len(shown))))
    there = [hit for hit in shown if hit.session_id in rows]
    told = [await _told_hit(access, rows[hit.session_id], hit, asked.words, width) for hit in there]
    return answers.SearchAnswer(hits=told, more=len(hits) - len(shown))


async def _rows_of(access: Access, ids: set[str]) -> dict[str, Session]:
    """Without those that were deleted meanwhile."""
    found: dict[str, Session] = {}
    for one in ids:
        with suppress(NotFound):
            found[one] = await access.sessions.get(one)
    return found


async def _told_hit(access: Access, row: Session, hit: Hit, words: str, width: int) -> answers.ToldHit:
    """The text around a hit, longer than the store's own snippet, which is for lists."""
    entries = await access.sessions.read(row, after=hit.seq - 1, before=hit.seq + 1)
    text = text_of_entry(entries[0], {}) if entries else ""
    found = excerpt(text, understand(words), width).text if text else hit.snippet
    return answers.ToldHit(
        session=row.id,
        title=clean(row.title),
        seq=hit.seq,
        role=hit.role,
        time=hit.time,
        state=hit.state,
        text=clean(found),
    )


async def read(access: Access, asked: ReadArguments) -> answers.ReadAnswer:
    row = await access.sessions.resolve(asked.session)
    first = asked.from_seq or max(1, row.last_seq - ENTRIES_READ + 1)
    entries = await access.sessions.read(row, after=first - 1, limit=ENTRIES_READ)
    said = [(entry, text) for entry in entries if (text := said_in(entry))]
    chosen = said[: asked.limit] if asked.from_seq else said[-asked.limit :]
    messages = _told(row, chosen, READ_CHARS, asked.skip_chars)
    looked_at = entries[-1].seq if entries else row.last_seq
    if len(messages) < len(chosen):
        looked_at = chosen[len(messages)][0].seq - 1
    elif asked.from_seq and len(chosen) < len(said):
        looked_at = said[len(chosen)][0].seq - 1
    return answers.ReadAnswer(
        session=row.id,
        title=clean(row.title),
        messages=messages,
        last_seq=row.last_seq,
        next_seq=looked_at + 1 if looked_at < row.last_seq else None,
    )


async def context(access: Access, asked: ContextArguments) -> answers.ContextAnswer:
    row = await access.sessions.resolve(asked.session)
    loaded = await access.sessions.load(row)
    view = survey(loaded.entries)
    tail = [entry for entry in loaded.entries if entry.seq in {message.seq for message in view.tail}]
    said = [(entry, text) for entry in tail if (text := _words(entry, view.received))]
    newest = said[-MESSAGES_SHOWN:]
    messages = _newest(row, newest, READ_CHARS)
    pins = [(entry, text) for entry in view.pins if (text := _words(entry, view.received))]
    return answers.ContextAnswer(
        session=row.id,
        title=clean(row.title),
        summary=clean(shorten(view.compaction.summary, SUMMARY_CHARS)) if view.compaction else "",
        pins=_told(row, pins, PINS_CHARS),
        messages=messages,
        left_out=len(said) - len(messages),
        tokens=row.token_estimate,
    )


def _words(entry: Entry, received: Mapping[int, Entry]) -> str:
    """Of a message whose words other entries hold, those entries' words."""
    named: tuple[int, ...] = getattr(entry, "from_", ())
    own = said_in(entry)
    return own or "\n\n".join(said_in(received[seq]) for seq in named if seq in received)


def _newest(row: Session, said: Sequence[tuple[Entry, str]], chars: int) -> list[answers.ToldMessage]:
    """As many as fit, counted from the end."""
    while len(found := _told(row, said, chars)) < len(said):
        said = said[len(said) - len(found) :]
    return found


def _told(row: Session, said: Sequence[tuple[Entry, str]], chars: int, skip: int = 0) -> list[answers.ToldMessage]:
    """Each message gets its share of the characters; short ones leave theirs to the others."""
    states = LogStates(row)
    found: list[answers.ToldMessage] = []
    left = chars
    for n, (entry, text) in enumerate(said):
        if left < MESSAGE_MIN_CHARS and found:
            break
        width = max(MESSAGE_MIN_CHARS, left // (len(said) - n))
        rest = text[skip:] if n == 0 else text
        shown = rest[:width] if skip and n == 0 else shorten(rest, width)
        state = states.of(entry.seq) if isinstance(entry, MESSAGES) else "tail"
        time = entry.ts
        found.append(
            answers.ToldMessage(
                seq=entry.seq, role=role_of(entry), time=time, state=state, text=clean(shown), chars=len(text)
            )
        )
        left -= len(shown)
    return found


async def recall(access: Access, asked: RecallArguments) -> answers.RecallAnswer:
    found = await access.remembered(asked.agent, asked.words, limit=asked.limit)
    memos = [
        answers.ToldMemo(agent=memo.agent, time=answers.moment(memo.ts), text=clean(shorten(memo.text, MEMO_CHARS)))
        for memo in found
    ]
    return answers.RecallAnswer(memos=memos)


async def pin(access: Access, asked: PinArguments) -> answers.PinAnswer:
    row = await access.sessions.resolve(asked.session)
    if asked.seq not in {target for _, target in row.pins}:
        row = await access.sessions.pin(row.id, asked.seq)
    return _pinned(row)


async def unpin(access: Access, asked: PinArguments) -> answers.PinAnswer:
    row = await access.sessions.resolve(asked.session)
    return _pinned(await access.sessions.unpin(row.id, asked.seq))


def _pinned(row: Session) -> answers.PinAnswer:
    return answers.PinAnswer(session=row.id, pinned=sorted(target for _, target in row.pins))


def _served(run: RunServed, title: str, description: str, *, reads: bool = True) -> ServedTool:
    """The tool of a function: its name, what it takes and what it gives are the function's own."""
    hints = get_type_hints(run)
    takes, gives = hints["asked"], hints["return"]
    return ServedTool(run.__name__, title, description, takes=takes, gives=gives, run=run, reads=reads)


_SEQS = "Messages are numbered (seq); `search` and `read` tell the numbers."
TOOLS: dict[str, ServedTool] = {
    tool.name: tool
    for tool in (
        _served(
            list_sessions,
            "List sessions",
            "List the stored sessions (conversations), newest first, with their ids, titles and sizes.",
        ),
        _served(
            search,
            "Search sessions",
            "Find what was said in stored sessions, also what was summarised there and no longer shown. "
            "Best hits first; each tells its session and its number (seq), for `read`.",
        ),
        _served(
            read,
            "Read a session",
            f"Read messages of a stored session in full, from a number on, or the last ones. {_SEQS}",
        ),
        _served(
            context,
            "Where a session stands",
            "What the model of a stored session is shown now: the summary of what was compacted, the "
            "pinned messages, and the last messages. The way to catch up with a session.",
        ),
        _served(
            recall,
            "Recall from memory",
            "Look into the long-term memory, which keeps exchanges where no sessions are kept. For "
            "sessions, use `search`.",
        ),
        _served(
            pin,
            "Pin a message",
            f"Keep a message of a session word for word in its prompt, also when the session is compacted. {_SEQS}",
            reads=False,
        ),
        _served(unpin, "Unpin a message", "No longer keep this message word for word.", reads=False),
    )
}
assert tuple(TOOLS) == SERVED_TOOLS, "search knows these tools by their names"


def schema_of(kind: type[Struct]) -> dict[str, Any]:
    """The JSON schema of a Struct, with the Struct itself at the top, where clients expect an object."""
    (told,), parts = msgspec.json.schema_components((kind,), ref_template="#/$defs/{name}")
    name = told["$ref"].rpartition("/")[2]
    own: dict[str, Any] = parts.pop(name)
    return {**own, **({"$defs": parts} if parts else {})}
