"""What a prompt lets the offline model see, sorted by who said it. A fixed number of passes, whatever its length."""

from collections.abc import Iterator
from typing import Any, cast

from msgspec import Struct

from ..core.entries import text_of
from ..core.history import ASSISTANT_SUMMARY, PAIR_ACKNOWLEDGED, PAIR_SUMMARY, PINS_NOTE, SUMMARY_NOTE
from ..core.prompt import Prompt

_SUMMARY_NOTES = (SUMMARY_NOTE, PAIR_SUMMARY, ASSISTANT_SUMMARY)
_NOTES = (PINS_NOTE, *_SUMMARY_NOTES)


class Result(Struct, frozen=True):
    tool: str
    text: str
    failed: bool


class Sight(Struct, frozen=True):
    """Oldest first, everywhere."""

    ask: str
    """What the newest message says besides tool results; nothing if it only brings those."""
    results: list[Result]
    """What the newest message brings of tools."""
    picture: bool
    said: list[str]
    """The user's words before that."""
    answered: list[str]
    outputs: list[str]
    """All that tools gave."""
    pins: str
    summary: str
    messages: int

    @property
    def is_first(self) -> bool:
        return not (self.answered or self.summary or self.pins)


def look(prompt: Prompt) -> Sight:
    turns = [(str(message["role"]), _blocks(message["content"])) for message in prompt.messages]
    lead = _lead_of(prompt.system)
    for index, (role, blocks) in enumerate(turns[:2]):  # further down these words are somebody's quotation
        found = [_lead_of(text) if text.startswith(_NOTES) else {} for text in map(_text, blocks)]
        lead.update(pair for part in found for pair in part.items())
        turns[index] = role, [block for block, part in zip(blocks, found, strict=True) if not part]
    tools = {str(b.get("id")): str(b.get("name")) for _, blocks in turns for b in blocks if b.get("type") == "tool_use"}
    results = [[_result(b, tools) for b in blocks if b.get("type") == "tool_result"] for _, blocks in turns]
    said = ["\n\n".join(filter(None, map(_text, blocks))) for role, blocks in turns if role == "user"]
    return Sight(
        ask=said[-1] if said else "",
        results=results[-1] if results else [],
        picture=bool(turns) and any(block.get("type") == "image" for block in turns[-1][1]),
        said=[text for text in said[:-1] if text],
        answered=[text for role, blocks in turns if role == "assistant" for block in blocks if (text := _text(block))],
        outputs=[result.text for found in results for result in found],
        pins=lead.get("pins", ""),
        summary=lead.get("summary", ""),
        messages=len(turns),
    )


def sources(sight: Sight, system: str) -> Iterator[tuple[str, str]]:
    """(where, text): the user's own words before all, newest first; what the model itself said comes late."""
    yield from (("from_you", text) for text in reversed(sight.said))
    yield "from_pins", sight.pins
    yield "from_summary", sight.summary
    yield from (("from_tool", text) for text in reversed(sight.outputs))
    yield from (("from_me", text) for text in reversed(sight.answered))
    yield "from_system", system


def _lead_of(text: str) -> dict[str, str]:
    """Pins and summary, wherever the settings put them."""
    found: dict[str, str] = {}
    if (at := text.find(PINS_NOTE)) >= 0:
        found["pins"] = text[at + len(PINS_NOTE) :].partition(SUMMARY_NOTE)[0]
    for note in _SUMMARY_NOTES:
        if (at := text.find(note)) >= 0:
            found["summary"] = text[at + len(note) :]
    return found


def _blocks(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else cast("list[dict[str, Any]]", content)


def _text(block: dict[str, Any]) -> str:
    text = str(block.get("text", "")) if block.get("type") == "text" else ""
    return "" if text == PAIR_ACKNOWLEDGED else text


def _result(block: dict[str, Any], tools: dict[str, str]) -> Result:
    call = str(block.get("tool_use_id"))
    return Result(tools.get(call, call), text_of(block.get("content")), bool(block.get("is_error")))
