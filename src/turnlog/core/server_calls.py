"""Calls of tools that a model API runs itself, such as its web search: which of them can be sent back to it."""

import re
from collections.abc import Sequence

from .entries import Block

_SERVER_ID = re.compile(r"srvtoolu_[a-zA-Z0-9_]+")


_SERVER_TOOLS = ("web_search", "web_fetch", "code_execution", "bash_code_execution", "text_editor_code_execution")
"""A result has the type of its tool and this ending: `_tool_result`."""


def complete_calls(blocks: Sequence[Block]) -> frozenset[int]:
    """The complete calls of tools that the API runs itself, and their results, by object identity."""
    made = [block for block in blocks if block.get("type") == "server_tool_use"]
    came = [block for block in blocks if str(block.get("type")).endswith("_tool_result")]
    kept: list[Block] = []
    for call in made:
        results = [block for block in came if block.get("tool_use_id") == call.get("id")]
        alike = [block for block in made if block.get("id") == call.get("id")]
        if len(alike) == len(results) == 1 and _is_server_call(call, results[0]):
            kept += [call, results[0]]
    return frozenset(map(id, kept))


def _is_server_call(call: Block, result: Block) -> bool:
    call_id, name = call.get("id"), call.get("name")
    return (
        isinstance(call_id, str)
        and _SERVER_ID.fullmatch(call_id) is not None
        and name in _SERVER_TOOLS
        and result.get("type") == f"{name}_tool_result"
        and isinstance(call.get("input"), dict)
        and isinstance(result.get("content"), list | dict)
    )


FIELDS = ("type", "id", "name", "input", "tool_use_id", "content")
