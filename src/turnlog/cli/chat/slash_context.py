"""Commands of the chat about what the model sees: context, compaction, pins, rewinding, model and cost."""

from typing import TYPE_CHECKING

from ...core import context as contexts, prices, turns
from ...core.context import Split
from ...core.entries import Assistant, Received, Transcript, User, text_of
from ...core.events import UsageReport, of_usage
from ...core.session import on_path
from ...core.turns import parts_of
from ...core.user_content import user_content
from ...errors import UsageError
from ...texts import Texts
from ..escaping import inline
from .status import cached_share, split_of
from .transcript_view import TEXT_COLUMN, lines_of, path_of

if TYPE_CHECKING:
    from .console import Console
    from .loop import Chat

BAR_CELLS = 30
DIGITS_MAX = 15
FEW_MESSAGES = 4
"""With `keep = fraction`, fewer messages than this are not worth a compaction; other rules decide that themselves."""


async def context(chat: "Chat", console: "Console", rest: str) -> None:
    split, entries, limits = await split_of(chat.t, chat.row)
    for line in context_lines(split, contexts.turns_left(entries, limits, split.total), chat.words):
        console.show(line)
    if limits.believed:
        console.show(chat.words("window_learnt", n=limits.window, believed=limits.believed))


def context_lines(split: Split, turns_left: int | None, words: Texts) -> list[str]:
    filled = min(BAR_CELLS, int(BAR_CELLS * split.share))
    lines = [
        f"Context usage: ~{split.total:,} / {split.window:,} tokens",
        f"[{'#' * filled}{'-' * (BAR_CELLS - filled)}] {split.share:.1%}",
        words("messages_in_tail", n=split.messages),
    ]
    parts = ("system", "tools", "pins", "summary", "tail")
    uncounted = {part: f"  ({words('not_counted')})" for part in ("system", "tools") if split.uncounted}
    lines += [f"  {part:<8} ~{getattr(split, part):,}{uncounted.get(part, '')}" for part in parts]
    return lines if turns_left is None else [*lines, words("next_compaction", n=turns_left)]


async def compact(chat: "Chat", console: "Console", rest: str) -> None:
    before, _, limits = await split_of(chat.t, chat.row)
    if limits.keep.kind == "fraction" and before.messages <= FEW_MESSAGES:
        console.show(chat.words("too_few"), "bad")
        return
    console.show(chat.words("compacting"), "quiet")
    report = await chat.t.compact(chat.row, focus=rest)
    await chat.refresh()
    shown = (await chat.t.history(chat.row)).messages
    text = chat.words(
        "compacted_now",
        first=report.covers[0],
        last=report.covers[1],
        before=report.tokens_before,
        after=report.tokens_after,
        n=before.messages,
        m=len(shown),
    )
    console.show(text)


async def undo_compact(chat: "Chat", console: "Console", rest: str) -> None:
    chat.row = await chat.t.sessions.undo(chat.row.id)
    console.show(chat.words("undone"))
    await chat.refresh()


async def expand(chat: "Chat", console: "Console", rest: str) -> None:
    for line in lines_of(await chat.t.sessions.expand(chat.row.id, number(rest, "/expand [seq]")), chat.words):
        console.show(line, hang=TEXT_COLUMN)


def number(text: str, usage: str) -> int | None:
    """From 1 on; None: not given. 0 would count as not given where the number has a default."""
    if not text:
        return None
    if not text.isdecimal() or len(text) > DIGITS_MAX or not int(text):
        raise UsageError(f"{text[:40]!r} is not a number from 1 on", hint=f"Usage: {usage}")
    return int(text)


async def rewind(chat: "Chat", console: "Console", rest: str) -> None:
    """Goes back before a turn, and puts its message at the prompt to be edited."""
    count = number(rest, "/rewind [n]") or 1
    entries = (await chat.t.sessions.transcript(chat.row.id)).entries
    place = place_before(entries, count)
    if place is None:
        there = len(turns.live_starts(entries))
        console.show(chat.words("few_turns", n=there) if there else chat.words("no_turns"), "bad")
        return
    start, to = place
    back = chat.row.last_seq
    chat.row = await chat.t.sessions.rewind(chat.row.id, to)
    console.show(chat.words("rewound", n=count, id=chat.row.id, back=back))
    chat.draft = _words_at(entries, start)
    await chat.refresh()


def place_before(entries: Transcript, count: int) -> tuple[int, int] | None:
    """(first entry of the turn `count` turns ago, the entry to go back to); None if there are fewer turns."""
    path = path_of(entries)
    starts = turns.live_starts(entries)
    if not 1 <= count <= len(starts):
        return None
    start = starts[-count]
    return start, max((seq for seq in turns.ends(entries) if seq < start and on_path(seq, path)), default=1)


def _words_at(entries: Transcript, seq: int) -> str:
    received = {entry.seq: entry for entry in entries if isinstance(entry, Received)}
    return next((text_of(user_content(e, received)) for e in entries if e.seq == seq and isinstance(e, User)), "")


async def pin(chat: "Chat", console: "Console", rest: str) -> None:
    seq = number(rest, "/pin [seq]")
    if seq is None:
        seq = last_said((await chat.t.sessions.transcript(chat.row.id)).entries)
    chat.row = await chat.t.sessions.pin(chat.row.id, seq)
    console.show(chat.words("pinned", seq=seq))


def last_said(entries: Transcript) -> int:
    """The seq of the user's last message that was not rewound; 0 if there is none."""
    path = path_of(entries)
    return max((e.seq for e in entries if isinstance(e, User) and parts_of(e)[1] and on_path(e.seq, path)), default=0)


async def unpin(chat: "Chat", console: "Console", rest: str) -> None:
    seq = number(rest, "/unpin [seq]")
    if seq is None and not chat.row.pins:
        console.show(chat.words("nothing_pinned"))
        return
    seq = seq or chat.row.pins[-1][1]
    chat.row = await chat.t.sessions.unpin(chat.row.id, seq)
    console.show(chat.words("unpinned", seq=seq))


async def model(chat: "Chat", console: "Console", rest: str) -> None:
    """Chooses a model for the session; one that the agent does not offer, only for this chat."""
    if not rest:
        await _show_models(chat, console)
        return
    is_offered = rest in chat.t.models(chat.row.agent)
    if not is_offered:
        from ...providers.opening import open_provider

        await open_provider(rest).close()  # an unknown model is an error before the chat ends
    chat.row = await chat.t.choose_model(chat.row, rest if is_offered else "")
    if is_offered:
        console.show(chat.words("model_changed", model=inline(rest)))
        await chat.refresh()
    else:
        chat.model = rest
        chat.over = True


async def _show_models(chat: "Chat", console: "Console") -> None:
    own, *others = chat.t.models(chat.row.agent)
    now = chat.gauge.model or chat.row.model or own
    console.show(chat.words("model_now", model=inline(now)))
    if rest := [name for name in (own, *others) if name != now]:
        console.show(chat.words("models_offered", models=inline(", ".join(rest))), "quiet")


async def cost(chat: "Chat", console: "Console", rest: str) -> None:
    """The usage of the whole session, by model."""
    entries = (await chat.t.sessions.transcript(chat.row.id)).entries
    lines = cost_lines(entries, chat.words)
    for line in lines or [chat.words("no_usage")]:
        console.show(line)


def cost_lines(entries: Transcript, words: Texts) -> list[str]:
    by_model: dict[str, list[Assistant]] = {}
    for entry in entries:
        if isinstance(entry, Assistant) and entry.usage:
            by_model.setdefault(entry.model or "?", []).append(entry)
    return [_cost_line(name, answers, words) for name, answers in by_model.items()]


def _cost_line(name: str, answers: list[Assistant], words: Texts) -> str:
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
