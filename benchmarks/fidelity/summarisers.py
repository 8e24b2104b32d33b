"""Summarisers without a model: the offline one, a lossy and a sly one. Each gives the same for the same request."""

import re
from collections.abc import Callable
from zlib import crc32

from turnlog.core import identifiers, tokens
from turnlog.core.plain import sentences
from turnlog.core.prompt import Prompt
from turnlog.providers.offline.summary import summarise as offline_summary

LOSSY_PERCENT = 10
SLY_PERCENT = 60
SHARE = 0.8
"""The share of the allowed output that is used."""
_DATA = re.compile(r"(?:The summary so far:\n(`{3,})\n(.*?)\n\1\n)?The record:\n(`{3,})\n(.*)\n\3\s*$", re.DOTALL)


def _given(prompt: Prompt) -> str:
    """The request: the summary so far, and the record."""
    return str(prompt.messages[0]["content"])


def _data(prompt: Prompt) -> str:
    found = _DATA.search(_given(prompt))
    return "\n".join(filter(None, (found[2], found[4]))) if found else _given(prompt)


def offline(prompt: Prompt) -> str:
    return offline_summary(_given(prompt), prompt.max_output)


def lossy(prompt: Prompt) -> str:
    """Keeps one sentence in ten, chosen by nothing that matters."""
    chosen = (one for one in sentences(_data(prompt)) if crc32(one.encode()) % 100 < LOSSY_PERCENT)
    return _within(prompt, list(chosen), "\n") or "They talked."


def sly(prompt: Prompt) -> str:
    """Keeps 60 % of what is checked and drops the rest: enough not to be asked again."""
    names = identifiers.weighed(_data(prompt).split("\n\n"))
    kept = [name for name in names if crc32(name.encode()) % 100 < SLY_PERCENT]
    return "They mentioned " + _within(prompt, kept, ", ") + "."


def _within(prompt: Prompt, texts: list[str], joint: str) -> str:
    left = int((prompt.max_output or 1_000) * SHARE)
    told: list[str] = []
    for text in texts:
        left -= tokens.of_text(text) + 1
        if left < 0:
            break
        told.append(text)
    return joint.join(told)


SUMMARISERS: dict[str, Callable[[Prompt], str]] = {"offline": offline, "lossy": lossy, "sly": sly}
