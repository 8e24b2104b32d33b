"""The limits of one model and one policy, and the size of a prompt by them."""

import json
from collections.abc import Sequence
from itertools import takewhile
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from . import compaction, history, tokens
from .compaction import Keep, Trigger
from .entries import Assistant, Compaction, Entry, Message, Shortened, Transcript, Undo
from .history import History, TailCache, View
from .tokens import context_tokens

RESULT_SHARE = 0.3
RESULT_MAX_CHARS = 50_000
"""A tool result over 30 % of the window, at most this many characters, is shortened on overflow."""
CHARS_PER_TOKEN = 4
KEEP_SHARE = 0.4
"""The largest share of the window for a kept tail that is given in tokens."""


class Limits(Struct, frozen=True, kw_only=True):
    """The limits of one model and one policy."""

    window: int
    believed: int = 0
    """The window according to the model or the settings, if a smaller one was learnt; 0: it is `window`."""
    triggers: tuple[Trigger, ...] = (Trigger("window", 16_384),)
    keep: Keep = Keep("tokens", 20_000)
    inject: str = "user"
    estimator: str = "calibrated"
    scale: tokens.Scale = tokens.UNCALIBRATED
    system: str = ""
    tools: tuple[dict[str, Any], ...] = ()
    result_chars: int = 0
    """The characters shown of a shortened tool result; 0: 30 % of the window, at most 50,000."""
    summary_tokens: int = 0
    """The maximum tokens of a summary; 0: 20 % of the window."""
    identifiers: Literal["append", "require"] = "append"
    """Identifiers that a summary lacks are added to it, or it is refused."""
    history_note: bool = False
    """Whether a line after the summary names the history tools, in calls that have both of them."""
    waiting: frozenset[str] = frozenset()

    def with_note(self) -> bool:
        return self.history_note and {tool.get("name") for tool in self.tools} >= history.HISTORY_TOOLS

    def result_limit(self) -> int:
        share = int(self.window * CHARS_PER_TOKEN * RESULT_SHARE)
        return self.result_chars or min(share, RESULT_MAX_CHARS)

    def narrowed(self, window: int) -> "Limits":
        """The limits for a window that turned out to be smaller than believed."""
        keep = Keep("tokens", min(self.keep.n, int(KEEP_SHARE * window))) if self.keep.kind == "tokens" else self.keep
        summary = min(self.summary_tokens, window // 5)
        return replace(self, window=window, believed=self.window, keep=keep, summary_tokens=summary)

    def summary_limit(self) -> int:
        return self.summary_tokens or self.window // 5


def shown(transcript: Transcript, limits: Limits, view: View | None = None, cache: TailCache | None = None) -> History:
    """What a call with these limits shows the model."""
    note = limits.with_note()
    return history.build(transcript, system=limits.system, inject=limits.inject, note=note, view=view, cache=cache)


def of_history(past: History, limits: Limits) -> int:
    return tokens.estimate(past.messages, limits.estimator, system=past.system, tools=limits.tools, scale=limits.scale)


def measure(transcript: Transcript, limits: Limits, view: View | None = None, cache: TailCache | None = None) -> int:
    """The size of the next request: the last reported usage, plus an estimate of everything after it.

    Only the calibrated estimator uses the reported usage; the compatible ones must give the figures of the systems they
    imitate. A report from before the newest compaction, shortening or undo says nothing about the prompt now.
    """
    view = view or history.survey(transcript)
    if limits.estimator == "calibrated" and (anchor := _anchor(transcript, view)):
        seq, reported = anchor
        sent = (entry for entry in view.tail if entry.seq > seq and not _is_unsent(entry))
        later = [{"role": "user", "content": history.shown_content(entry, view)} for entry in sent]
        return reported + tokens.of_messages(later, scale=limits.scale)
    return of_history(shown(transcript, limits, view, cache), limits)


def _is_unsent(entry: Message) -> bool:
    """Whether it is the partial text of a failed call, which is only shown to people."""
    return isinstance(entry, Assistant) and entry.stop == "error"


def _anchor(transcript: Transcript, view: View) -> tuple[int, int] | None:
    for entry in reversed(view.tail):
        if isinstance(entry, Assistant) and (reported := context_tokens(entry.usage)):
            return None if _is_reshaped_after(transcript, entry.seq) else (entry.seq, reported)
    return None


def _is_reshaped_after(transcript: Transcript, seq: int) -> bool:
    later = takewhile(lambda entry: entry.seq > seq, reversed(transcript))
    return any(isinstance(entry, Compaction | Shortened | Undo) for entry in later)


def entry_size(limits: Limits, view: View) -> compaction.MessageSize:
    return compaction.sizer(view, limits.estimator, limits.scale)


def size_after(transcript: Transcript, bodies: Sequence[Entry], limits: Limits) -> int:
    """The size of the prompt once these entries are in the log."""
    return of_history(shown_with(transcript, bodies, limits), limits)


def shrinks(transcript: Transcript, bodies: Sequence[Entry], limits: Limits) -> bool:
    """Whether the prompt is shorter once these entries are in the log, by its length and not by an estimate."""
    return length(shown_with(transcript, bodies, limits)) < length(shown(transcript, limits))


def length(past: History) -> int:
    return len(past.system) + len(json.dumps(past.messages, default=str))


def shown_with(transcript: Transcript, bodies: Sequence[Entry], limits: Limits) -> History:
    end = transcript[-1].seq
    added = [replace(body, seq=end + n) for n, body in enumerate(bodies, 1)]
    return shown([*transcript, *added], limits)
