"""Commands of the chat about what the model sees: context, compaction, pins, rewinding, model and cost."""

from typing import TYPE_CHECKING

from ..core import context as contexts, prices, turns
from ..core.context import Split
from ..core.entries import MESSAGES, Assistant, Received, Transcript, User, text_of, user_content
from ..core.events import UsageReport, of_usage
from ..core.session import on_path
from ..errors import UsageError
from .escaping import inline
from .messages import Words
from .spoken import lines_of, path_of, turn_starts
from .status import cached_share, split_of

if TYPE_CHECKING:
    from .fronts import Front
    from .repl import Chat

BAR_CELLS = 30
FEW_MESSAGES = 4
"""A part of so few is nothing; other ways to keep messages say for themselves whether anything is left to fold."""


async def context(chat: "Chat", front: "Front", rest: str) -> None:
    split, entries, limits = await split_of(chat.t, chat.row)
    for line in context_lines(split, contexts.turns_left(entries, limits, split.total), chat.words):
        front.show(line)


def context_lines(split: Split, turns_left: int | None, words: Words) -> list[str]:
    filled = min(BAR_CELLS, int(BAR_CELLS * split.share))
    lines = [
        f"Context usage: ~{split.total:,} / {split.window:,} tokens",
        f"[{'#' * filled}{'-' * (BAR_CELLS - filled)}] {split.share:.1%}",
        words("messages_in_tail", n=split.messages),
    ]
    parts = ("system", "tools", "pins", "summary", "tail")
    lines += [f"  {part:<8} ~{getattr(split, part):,}" for part in parts]
    return lines if turns_left is None else [*lines, words("next_compaction", n=turns_left)]


async def compact(chat: "Chat", front: "Front", rest: str) -> None:
    before, _, limits = await split_of(chat.t, chat.row)
    if limits.keep.kind == "fraction" and before.messages <= FEW_MESSAGES:
        front.show(chat.words("too_few"), "bad")
        return
    front.show(chat.words("compacting"), "quiet")
    report = await chat.t.compact(chat.row, focus=rest)
    await chat.refresh()
    shown = (await chat.t.history(chat.row)).messages
    told = chat.words(
        "compacted_now",
        first=report.covers[0],
        last=report.covers[1],
        before=report.tokens_before,
        after=report.tokens_after,
        n=before.messages,
        m=len(shown),
    )
    front.show(told)


async def undo_compact(chat: "Chat", front: "Front", rest: str) -> None:
    chat.row = await chat.t.sessions.undo(chat.row.id)
    front.show(chat.words("undone"))
    await chat.refresh()


async def expand(chat: "Chat", front: "Front", rest: str) -> None:
    for line in lines_of(await chat.t.sessions.expand(chat.row.id, _number(rest, "/expand [seq]"))):
        front.show(line)


def _number(text: str, usage: str) -> int | None:
    if not text:
        return None
    if not text.isdecimal():
        raise UsageError(f"{text[:40]!r} is not a number", hint=f"Usage: {usage}")
    return int(text)


async def rewind(chat: "Chat", front: "Front", rest: str) -> None:
    """The words of the turn that it goes back to are put at the prompt, to be said differently."""
    count = _number(rest, "/rewind [n]") or 1
    entries = (await chat.t.sessions.transcript(chat.row.id)).entries
    place = place_before(entries, count)
    if place is None:
        front.show(chat.words("no_turns"), "bad")
        return
    start, to = place
    back = chat.row.last_seq
    chat.row = await chat.t.sessions.rewind(chat.row.id, to)
    front.show(chat.words("rewound", n=count, seq=to, id=chat.row.id, back=back))
    chat.draft = _words_at(entries, start)
    await chat.refresh()


def place_before(entries: Transcript, count: int) -> tuple[int, int] | None:
    """(where the turn began that many turns ago, the entry to go back to); None if there are fewer."""
    path = path_of(entries)
    starts = turn_starts([entry for entry in entries if isinstance(entry, MESSAGES) and on_path(entry.seq, path)])
    if not 1 <= count <= len(starts):
        return None
    start = starts[-count]
    return start, max((seq for seq in turns.ends(entries) if seq < start and on_path(seq, path)), default=1)


def _words_at(entries: Transcript, seq: int) -> str:
    received = {entry.seq: entry for entry in entries if isinstance(entry, Received)}
    return next((text_of(user_content(e, received)) for e in entries if e.seq == seq and isinstance(e, User)), "")


async def pin(chat: "Chat", front: "Front", rest: str) -> None:
    seq = _number(rest, "/pin [seq]")
    if seq is None:
        recent = await chat.t.sessions.read(chat.row.id, before=chat.row.last_seq + 1, limit=50)
        seq = next((entry.seq for entry in reversed(recent) if isinstance(entry, MESSAGES)), 0)
    chat.row = await chat.t.sessions.pin(chat.row.id, seq)
    front.show(chat.words("pinned", seq=seq))


async def unpin(chat: "Chat", front: "Front", rest: str) -> None:
    seq = _number(rest, "/unpin [seq]")
    if seq is None and not chat.row.pins:
        front.show(chat.words("nothing_pinned"))
        return
    seq = seq or chat.row.pins[-1][1]
    chat.row = await chat.t.sessions.unpin(chat.row.id, seq)
    front.show(chat.words("unpinned", seq=seq))


async def model(chat: "Chat", front: "Front", rest: str) -> None:
    from ..providers.choosing import choose, open_provider

    if not rest:
        import os

        named = chat.t.settings.model.name or choose(os.environ)
        front.show(chat.words("model_now", model=inline(chat.gauge.model or named)))
        return
    await open_provider(rest).close()  # a name that names nothing is refused before the chat is left
    chat.model = rest
    chat.over = True


async def cost(chat: "Chat", front: "Front", rest: str) -> None:
    """Over the whole session, by model."""
    entries = (await chat.t.sessions.transcript(chat.row.id)).entries
    lines = cost_lines(entries, chat.words)
    for line in lines or [chat.words("no_usage")]:
        front.show(line)


def cost_lines(entries: Transcript, words: Words) -> list[str]:
    by_model: dict[str, list[Assistant]] = {}
    for entry in entries:
        if isinstance(entry, Assistant) and entry.usage:
            by_model.setdefault(entry.model or "?", []).append(entry)
    return [_cost_line(name, answers, words) for name, answers in by_model.items()]


def _cost_line(name: str, answers: list[Assistant], words: Words) -> str:
    reports = [of_usage(answer) for answer in answers]
    total = UsageReport(**{f: sum(getattr(r, f) for r in reports) for f in UsageReport.__struct_fields__})
    dollars = prices.cost(name, {f: getattr(total, f) for f in UsageReport.__struct_fields__})
    return words(
        "cost_line",
        model=inline(name),
        turns=len(answers),
        input=total.input_tokens + total.cache_read_input_tokens + total.cache_creation_input_tokens,
        cached=f"{cached_share(total):.0%}",
        output=total.output_tokens,
        cost="" if dollars is None else words("cost_price", usd=dollars),
    )
