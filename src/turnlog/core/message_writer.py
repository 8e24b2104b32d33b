"""Puts messages into the order and the form that every provider accepts.

Neighbours of one role are merged, results of calls come first in the message after their calls, blank texts are left
out, and blocks that cannot stay as they are become text.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from .entries import Block, Content, clean
from .plain import as_json, as_text, fence

CONTINUES = "(The conversation continues.)"
EMPTY = "(empty message)"
PICTURES = ("image", "document")

ApiMessage: TypeAlias = dict[str, Any]


class MessageWriter:
    """Collects messages in order and merges neighbours of one role; results of calls come first in the next message."""

    def __init__(self) -> None:
        self.messages: list[ApiMessage] = []
        self.role = ""
        self.texts: list[str] = []
        self.blocks: list[Block] | None = None
        self.debts: list[Block] = []
        self.blank = False

    def resume(self, messages: Sequence[ApiMessage]) -> None:
        """Goes on after these messages, of which the last is an answer."""
        self.messages = [*messages]
        self.role, self.texts, self.blocks, self.blank = "assistant", [], None, True

    @property
    def has_answer(self) -> bool:
        """Whether the newest message is an answer with nothing owed: the next user message begins a message."""
        return self.role == "assistant" and not self.debts

    def add_user(self, content: Content) -> None:
        self.pay()
        self.blank = True
        self._add("user", clean_content(content))

    def add_assistant(self, content: Content) -> None:
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        self._add("assistant", clean_content(content, calls=True))

    def owe(self, results: Iterable[Block]) -> None:
        self.debts.extend(results)

    def pay(self) -> None:
        if self.debts:
            debts, self.debts = self.debts, []
            self._add("user", debts)

    def _add(self, role: str, content: Content) -> None:
        if not content:
            return
        if role != self.role:
            self._flush()
            self.role = role
        if isinstance(content, str) and self.blocks is None:
            self.texts.append(content)
            return
        if self.blocks is None:
            self.blocks = [{"type": "text", "text": text} for text in self.texts]
        self.blocks.extend([{"type": "text", "text": content}] if isinstance(content, str) else content)

    def _flush(self) -> None:
        if self.blocks is not None:
            self.messages.append({"role": self.role, "content": self.blocks})
        elif self.texts:
            self.messages.append({"role": self.role, "content": "\n\n".join(self.texts)})
        self.texts, self.blocks = [], None

    def finish(self) -> list[ApiMessage]:
        self.pay()
        self._flush()
        if self.messages and self.messages[0]["role"] == "assistant":
            self.messages.insert(0, {"role": "user", "content": CONTINUES})
        if not self.messages and self.blank:
            self.messages.append({"role": "user", "content": EMPTY})
        return self.messages


def clean_content(content: Content, *, calls: bool = False) -> Content:
    """`calls`: whether tool calls may stay, because pairing has checked them."""
    if isinstance(content, str):
        return clean(content) if content.strip() else ""
    return [good for block in content if (good := _clean_block(block, calls))]


def _clean_block(block: Block, calls: bool) -> Block | None:
    kind = block.get("type")
    if kind == "text":
        text = block.get("text")
        if not text or (isinstance(text, str) and text.isspace()):
            return None
        if not isinstance(text, str):
            return {"type": "text", "text": clean(as_json(block))}
        good = clean(text)
        return block if good is text else {**block, "text": good}
    if kind == "tool_result":
        # A result inside a user entry has no call: pairing only knows tool_result entries.
        return {"type": "text", "text": f"[Tool result]\n{fence(clean(as_text(block.get('content') or '')))}"}
    if not kind or not isinstance(kind, str) or (kind == "tool_use" and not calls):
        return {"type": "text", "text": clean(as_json(block))}
    return block if kind in PICTURES else _clean_deep(block)


def _clean_deep(block: Block) -> Block:
    try:
        as_json(block).encode()
    except UnicodeEncodeError:
        return json.loads(as_json(block).encode("utf-8", "replace"))
    return block
