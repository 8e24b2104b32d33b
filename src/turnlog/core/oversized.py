"""A tail that no model can be sent: it is folded by its newest part alone, so that a session of any size can go on.

A log that was never compacted, an import for example, may have a tail of hundreds of megabytes. No window holds a
hundredth of that, so all but its end has to be folded before the first call, and it is folded without being read: the
digest shows the first message and as many of the newest ones as it has room for. Nothing is lost: the entry says what
it covers, the originals stay in the log and are found by search, and the compaction can be undone like any other.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import takewhile
from typing import Any, cast

from msgspec.structs import astuple, replace

from . import approvals, compaction, history, summaries
from .compaction import Plan
from .entries import MESSAGES, Compaction, Entry, Received
from .events import Event
from .guard import again_shortened
from .history import View
from .measuring import CHARS_PER_TOKEN, Limits, size_after
from .message_writer import PICTURES
from .rescue import DIGEST_SHARE
from .session import Session

TAIL_MAX_BYTES = 16_000_000
"""The most of a tail that a turn holds: about four million tokens, more than any window."""
LEFT_BYTES = 4_000_000
"""What is left of a longer one: about a million tokens, so that a model still sees everything that would fit."""
FRAME_BYTES = 100
PICTURE_SHARE = 4
"""A picture is bytes without words: nothing is counted, cleaned or split in it, so it weighs a quarter."""


def weight(entry: Entry | Event) -> int:
    """About the bytes of an entry or an event, as far as they cost memory and time in a turn."""
    return FRAME_BYTES + _size(astuple(entry))


def weight_after(entries: Sequence[Entry], seq: int) -> int:
    """Of the entries at the end of a list that come after this one."""
    return sum(map(weight, takewhile(lambda entry: entry.seq > seq, reversed(entries))))


def text_bytes(text: str) -> int:
    return len(text) if text.isascii() else 2 * len(text)


def _size(values: Iterable[Any]) -> int:
    size = 0
    for value in values:  # most are texts, or None
        if isinstance(value, str):
            size += text_bytes(value)
        elif isinstance(value, dict):
            block = cast("dict[str, Any]", value)
            inner = _size(block.values())
            size += inner // PICTURE_SHARE if block.get("type") in PICTURES else inner
        elif isinstance(value, list | tuple):
            size += _size(cast("Sequence[Any]", value))
    return size


def begins_turn(part: Sequence[Entry]) -> bool:
    """Whether a turn begins in this part of a log, after its first message: then the tail can be cut there."""
    return any(index > 0 for index in compaction.turn_starts(history.survey(list(part))))


def fold(
    row: Session, known: Sequence[Entry], first: Sequence[Entry], previous: Compaction | None, limits: Limits
) -> list[Entry]:
    """What is to be appended; nothing if the tail cannot be cut.

    `known`: the newest entries of the log, and earlier ones that are pinned or named by them. `first`: the first
    message of the tail, with the entries that it names. `previous`: the compaction that counts now.
    """
    begin = _newest_from(known)
    transcript = [entry for entry in known if entry.seq >= begin or not isinstance(entry, MESSAGES)]
    view = history.survey(transcript)
    cut = _cut(view, {*limits.waiting, *approvals.open_calls(transcript)})
    if cut == 0:
        return []
    start = row.boundary if row.boundary > 1 else max(1, row.first_message)
    first_kept = view.tail[cut].seq
    received = {entry.seq: entry for entry in first if isinstance(entry, Received)}
    plan = Plan(
        first_kept=first_kept,
        covers=(start, first_kept - 1),
        fold=[*(entry for entry in first if isinstance(entry, MESSAGES) and entry.seq < begin), *view.tail[:cut]],
        kept=view.tail[cut:],
        previous=previous,
        view=replace(view, received={**view.received, **received}),
        transcript=transcript,
    )
    digest = summaries.digest(plan, int(limits.window * DIGEST_SHARE) * CHARS_PER_TOKEN, unread=begin - start)
    body = compaction.complete(plan, digest, trigger="rescue", tokens_before=row.token_estimate, tokens_after=0)
    along = again_shortened(plan)
    after = size_after(list(known), [replace(body, seq=row.last_seq + 1), *along], limits)
    return [replace(body, tokens_after=after), *along]


def _newest_from(known: Sequence[Entry]) -> int:
    """The seq from which on no entry is missing."""
    seqs = [entry.seq for entry in known]
    return next(
        (seq for before, seq in zip(reversed(seqs[:-1]), reversed(seqs), strict=False) if before < seq - 1), seqs[0]
    )


def _cut(view: View, waiting: Collection[str]) -> int:
    """The first place where not more than `LEFT_BYTES` remain: where a turn begins, or else where a cut is allowed."""
    allowed = compaction.seams(view.tail, waiting)
    starts = set(compaction.turn_starts(view))
    room, least = LEFT_BYTES, len(view.tail)
    while least > 0 and (room := room - weight(view.tail[least - 1])) >= 0:
        least -= 1
    whole = [index for index in allowed if index in starts]
    for places in (whole, allowed):
        if fitting := [index for index in places if index >= least]:
            return fitting[0]
    return (whole or allowed or [0])[-1]
