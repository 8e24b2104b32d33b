"""Which shape a dict has, told by its fields."""

from ..core.strict_json import fields_in, list_in
from . import MessageDict, MessageShape

OPENAI_ROLES = ("tool", "system", "developer", "function")
_OPENAI_PARTS = frozenset({"image_url", "input_audio", "file"})
_RESPONSES_PARTS = frozenset({"input_text", "output_text", "input_image", "input_file", "refusal"})
BLOCK_PARTS = _OPENAI_PARTS | _RESPONSES_PARTS
"""Parts of messages in OpenAI's shapes that Anthropic's shape does not have."""
_OPENAI_FIELDS = frozenset({"tool_calls", "function_call", "refusal", "name", "audio"})


def shape_of(message: MessageDict) -> MessageShape | None:
    """The shape that only this dict can have; None if several shapes write it alike."""
    kind = message.get("type")
    if kind not in (None, "message"):
        return "responses"
    if message.get("role") in OPENAI_ROLES or not _OPENAI_FIELDS.isdisjoint(message):
        return "openai"
    parts = {fields_in(part).get("type") for part in list_in(message.get("content"))}
    if parts & _OPENAI_PARTS:
        return "openai"
    if parts & _RESPONSES_PARTS:
        return "responses"
    return "anthropic" if kind == "message" or parts - {"text", None} else None
