"""The status line: agent · title · model · context · next compaction · cost · cache. Measured after each turn."""

from typing import TYPE_CHECKING

from ...core import context, prices
from ...core.context import Split
from ...core.entries import Transcript
from ...core.events import UsageReport
from ...core.guard import Limits
from ...core.session import Session
from ...texts import Texts
from ..escaping import cut, inline, width

if TYPE_CHECKING:
    from ...library import Turnlog

TITLE_ROOM = 30


class Gauge:
    """What the status line shows. Cost and cache count from the start of this chat: a resume does not read the past."""

    def __init__(self, words: Texts) -> None:
        self._words = words
        self.model = ""
        self.is_unasked = False
        """Whether `tools.approval` is `none`."""
        self.split: Split | None = None
        self.turns_left: int | None = None
        self.usage = UsageReport()
        self.dollars: float | None = 0.0

    def add(self, report: UsageReport) -> None:
        names = UsageReport.__struct_fields__
        self.usage = UsageReport(**{name: getattr(self.usage, name) + getattr(report, name) for name in names})
        spent = prices.cost(self.model, {name: getattr(report, name) for name in names})
        self.dollars = None if spent is None or self.dollars is None else self.dollars + spent

    async def measure(self, t: "Turnlog", row: Session) -> None:
        self.model = (await t.model_of(row)).name
        self.is_unasked = (await t.agent(row.agent)).approval.mode == "none"
        self.split, entries, limits = await split_of(t, row)
        self.turns_left = context.turns_left(entries, limits, self.split.total)

    def line(self, row: Session, columns: int) -> str:
        """Whole parts only: on a narrow screen the least useful ones are left out."""
        parts = self._parts(row)
        for name in ("cache", "cost", "next", "title", "agent"):
            if width(_joined(parts)) <= columns:
                break
            parts.pop(name, None)
        return cut(_joined(parts), columns)

    def _parts(self, row: Session) -> dict[str, str]:
        words, split = self._words, self.split
        title = inline(row.label or row.title, TITLE_ROOM)
        parts = {"agent": row.agent, "title": title, "model": inline(self.model)}
        if self.is_unasked:
            parts["approval"] = words("status_approval")
        if split:
            share = words("status_context", share=split.share)
            parts["context"] = f"{share} ({_short(split.total)}/{_short(split.window)})"
        if self.turns_left is not None:
            parts["next"] = words("status_next", n=self.turns_left)
        if self.dollars:
            parts["cost"] = f"~${self.dollars:.2f}"
        if self.usage.cache_read_input_tokens:
            parts["cache"] = words("status_cache", share=cached_share(self.usage))
        return parts


def _joined(parts: dict[str, str]) -> str:
    return " · ".join(filter(None, parts.values()))


def cached_share(usage: UsageReport) -> float:
    """The share of the input tokens that came from the provider's cache."""
    taken = usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens
    return usage.cache_read_input_tokens / taken if taken else 0.0


def _short(count: int) -> str:
    return str(count) if count < 1_000 else f"{count / 1_000:.1f}k"


async def split_of(t: "Turnlog", row: Session) -> tuple[Split, Transcript, Limits]:
    limits = await t.limits(row)
    entries = (await t.sessions.load(row.id)).entries
    return context.split(entries, limits), entries, limits
