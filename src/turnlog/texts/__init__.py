"""Everything that the page, the terminal and the channels say to people, in English and in Chinese.

Each part has its table in a module of its own: name → (English, Chinese). A test checks that every text exists in both
languages with the same placeholders, and that every text is used. Lines that programs read are not here, because they
are not translated.
"""

import os
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from .approval import REASONS
from .channel import CHANNEL
from .page import PAGE
from .refusals import in_chinese
from .terminal import TERMINAL

Language: TypeAlias = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")
Part: TypeAlias = Literal["page", "terminal", "channel"]
ACCEPTED_MAX_CHARS = 200
"""How much of an Accept-Language header is read."""

TABLE: Mapping[Part, Mapping[str, tuple[str, str]]] = {"page": PAGE, "terminal": TERMINAL, "channel": CHANNEL}


class Texts:
    """The texts of one part in one language: `texts("rename")`, `texts("total", n=3)`. Escapes nothing."""

    def __init__(self, part: Part, language: Language = "en") -> None:
        self.language: Language = language
        self._table = TABLE[part]
        self._index = LANGUAGES.index(language)

    def reason(self, why: str) -> str:
        """Why a call waits. The log has it in English; words that are not Turnlog's stay as they are."""
        return REASONS.get(why, why) if self.language == "zh" else why

    def refusal(self, text: str) -> str:
        """Why something was refused or failed, and what helps. Errors have it in English."""
        return in_chinese(text) if self.language == "zh" else text

    def known(self, name: str) -> bool:
        return name in self._table

    def __call__(self, name: str, /, **values: Any) -> str:
        text = self._table[name][self._index]
        return text.format_map(values) if values else text


def words_here() -> Texts:
    """The texts of the terminal in which this process runs."""
    return Texts("terminal", of_locale(os.environ))


def of_locale(env: Mapping[str, str]) -> Language:
    locale = env.get("LC_ALL") or env.get("LC_MESSAGES") or env.get("LANG") or ""
    return "zh" if locale.lower().startswith("zh") else "en"


def of_header(chosen: str | None, accepted: str) -> Language:
    """The language that somebody chose on the page, else the first one of Accept-Language that there is."""
    liked = (part.partition(";")[0].strip().lower()[:2] for part in accepted[:ACCEPTED_MAX_CHARS].split(","))
    for name in (chosen, *liked):
        for language in LANGUAGES:
            if name == language:
                return language
    return "en"
