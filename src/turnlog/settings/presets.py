"""The presets: settings that make Turnlog behave like another program. `session.preset` chooses one."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

_CLAW0: dict[str, Any] = {
    "store.url": "jsonl:{home}?dialect=flat&layout=claw0",
    "compaction.triggers": ("overflow", "manual"),
    "compaction.keep": "fraction:0.5",
    "compaction.inject": "pair",
    "compaction.estimator": "chars4",
    "compaction.summary_tokens": 2_048,
    "compaction.identifiers": "require",
    "compaction.history_note": False,
    "model.window": 180_000,
    "model.max_output": 8_096,
    "session.new_makes": "label",
}

PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "default": {},
        "zeroclaw": {
            "session.stored": "text",
            "session.user_row": "with_reply",
            "session.key_format": "zeroclaw",
            "compaction.triggers": ("tokens:12000", "overflow", "manual"),
            "compaction.keep": "from_last_user",
            "compaction.inject": "assistant",
            "compaction.when": "in_loop",
            "compaction.estimator": "chars16",
            "compaction.summary_chars": 6_000,
            "compaction.identifiers": "require",
            "compaction.history_note": False,
        },
        "sessions": {
            "session.key_format": "zeroclaw",
            "compaction.triggers": ("messages:40", "overflow", "manual"),
            "compaction.inject": "system",
            "compaction.estimator": "chars16",
            "compaction.summary_chars": 6_000,
            "compaction.identifiers": "require",
            "compaction.history_note": False,
        },
        "zyhive": {
            "store.url": "jsonl:{home}?dialect=v3&layout=zyhive",
            "compaction.triggers": ("tokens:80000", "overflow", "manual"),
            "compaction.keep": "turns:20",
            "compaction.inject": "system",
            "compaction.when": "after_turn",
            "compaction.estimator": "bytes4",
            "compaction.summary_words": 500,
            "compaction.identifiers": "require",
            "compaction.history_note": False,
            "session.new_makes": "id",
        },
        "claw0": _CLAW0,
        "claw0-keyed": {
            **_CLAW0,
            "store.url": "jsonl:{home}?dialect=flat&layout=claw0-keyed",
            "session.key_format": "triple",
            "session.user_row": "with_reply",
            "session.new_makes": "key",
        },
        "openclaw": {
            "store.url": "jsonl:{home}?dialect=v3&layout=openclaw",
            "compaction.triggers": ("window:20000", "overflow", "manual"),
            "session.reset": "daily:04:00",
        },
    }
)
