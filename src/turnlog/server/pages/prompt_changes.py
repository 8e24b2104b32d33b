"""What the model saw at a turn, and what changed in it since the turn before."""

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any, Literal

from msgspec import Struct

from ...access import Access
from ...core import tokens
from ...core.entries import text_of
from ...core.session import Session
from ...errors import UsageError
from . import timeline as timelines
from .plot import PlotStep

COMPARED_MAX = 2_000
"""Messages of a prompt that are compared with the prompt before; a longer one is shown without a comparison."""


class SeenMessage(Struct, frozen=True):
    role: str
    pieces: list[tuple[str, str]]
    """(kind, text) of each block, as it is sent."""
    change: Literal["", "new", "gone"] = ""


class SeenPrompt(Struct, frozen=True, kw_only=True):
    n: int
    seq: int
    first: int
    last: int
    """The turns that can be shown."""
    system: str
    messages: list[SeenMessage]
    """Also those that are gone since the turn before, in their place."""
    tools: Sequence[Any]
    tokens: int
    count: int
    """Messages that were sent."""
    before: int | None = None
    """The turn that it is compared with."""
    system_changed: bool = False

    @property
    def new(self) -> int:
        return sum(message.change == "new" for message in self.messages)

    @property
    def gone(self) -> int:
        return sum(message.change == "gone" for message in self.messages)


async def seen_at(access: Access, row: Session, turns: list[PlotStep], turn: int | None) -> SeenPrompt | None:
    """The prompt at the start of a turn: of the newest one, or of the one asked for. None if there is none, or if its
    tail is larger than any prompt.
    """
    if not turns:
        return None
    index = next((n for n, step in enumerate(turns) if step.n == turn), None) if turn else len(turns) - 1
    if index is None:
        raise UsageError(f"there is no turn {turn}", hint=f"This session has turns {turns[0].n} to {turns[-1].n}.")
    step = turns[index]
    if await access.sessions.oversized_tail(row, step.seq):
        return None
    prompt = await access.prompt(row, at=step.seq)
    earlier = await access.prompt(row, at=turns[index - 1].seq) if index else None
    schemas = [{"name": tool.name, "input_schema": tool.input_schema} for tool in prompt.tools]
    now = [_message(message) for message in prompt.messages]
    then = [_message(message) for message in earlier.messages] if earlier else []
    is_compared = earlier is not None and max(len(now), len(then)) <= COMPARED_MAX
    return SeenPrompt(
        n=step.n,
        seq=step.seq,
        first=turns[0].n,
        last=turns[-1].n,
        system=prompt.system,
        messages=compared(then, now) if is_compared else now,
        tools=prompt.tools,
        tokens=tokens.of_messages(prompt.messages, system=prompt.system, tools=schemas),
        count=len(now),
        before=turns[index - 1].n if is_compared else None,
        system_changed=earlier is not None and earlier.system != prompt.system,
    )


def compared(then: Sequence[SeenMessage], now: Sequence[SeenMessage]) -> list[SeenMessage]:
    """The messages of now; new ones are marked, and those that are gone stand where they were."""
    matcher = SequenceMatcher(None, [repr(one) for one in then], [repr(one) for one in now], autojunk=False)
    found: list[SeenMessage] = []
    for what, first, last, start, stop in matcher.get_opcodes():
        if what == "equal":
            found += now[start:stop]
            continue
        found += [SeenMessage(one.role, one.pieces, "gone") for one in then[first:last]]
        found += [SeenMessage(one.role, one.pieces, "new") for one in now[start:stop]]
    return found


def _message(message: Any) -> SeenMessage:
    content = message["content"]
    return SeenMessage(message["role"], [("text", content)] if isinstance(content, str) else list(map(_piece, content)))


def _piece(block: dict[str, Any]) -> tuple[str, str]:
    kind = str(block.get("type"))
    match kind:
        case "text":
            return kind, str(block.get("text"))
        case "tool_use":
            return kind, f"{block.get('name')} {timelines.as_json(block.get('input'), timelines.INPUT_MAX_CHARS)}"
        case "tool_result":
            return kind, text_of(block.get("content"))
        case "image" | "document":
            return kind, ""
        case _:
            return kind, str(block.get("thinking") or "")
