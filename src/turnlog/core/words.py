"""Splits text into the words that a search compares, the same on every store.

Text is normalised (NFKC, case), and Latin and Greek letters lose their accents, which many people do not type. A run of
letters and digits is one token. In scripts that are written without blanks
(Chinese, Japanese, Thai, Lao, Burmese, Khmer), and in Korean, each character is one, so that words of any length are
found as tokens in a row. So an identifier, a path or a URL is found as a whole and by its parts.

Some words have further readings, which are indexed behind the text: the parts of `parseConfig`, `INV2041` and `64GB`,
1234567 for 1,234,567, and the day of 2026-12-01T08:00.
"""

import re
import unicodedata
from itertools import filterfalse

_JOINED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
"""Thai, Lao, Burmese, Khmer: with their vowel signs, which distinguish words."""
_HANGUL = "\uac00-\ud7af"
_HAN_AND_KANA = (
    "\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3100-\u318f\u31a0-\u31bf\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
ALONE = _HAN_AND_KANA + _HANGUL + _JOINED
"""Characters that are a token each, as the inside of a character class."""
TOKEN = re.compile(f"[{ALONE}]|[^\\W_{ALONE}]+")
SINGLE = re.compile(f"[{ALONE}]")

BORDER = "¦"
"""A token between readings: no text contains it as a token, so no phrase goes across it."""

_ASCII_WORD = re.compile(r"[A-Za-z0-9]+")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_AMOUNT = re.compile(r"[0-9]+[A-Za-z]{1,3}")
# These begin with a digit and look back from there: a pattern that begins by looking back is tried at every character.
_MOMENT = re.compile(r"(\d(?<![\w-].)\d{3})-(\d\d)-(\d\d)T\d", re.ASCII)
_GROUPED_NUMBER = re.compile(r"\d(?<![\w,.'’].)\d{0,2}(?:[,_'’]\d{3})+(?![\w])")
PARTED_MAX_CHARS = 64
PARTS_MAX = 6
"""A word of more parts is a hash or an encoding, which nobody remembers in parts."""


_WITH_ACCENTS = "\u00c0-\u024f\u0300-\u036f\u0370-\u03ff\u1e00-\u1fff\u0451"
_ACCENTED = re.compile(f"[{_WITH_ACCENTS}]")
_UNDIVIDED = {"æ": "ae", "œ": "oe", "ø": "o", "đ": "d", "ð": "d", "ħ": "h", "ı": "i", "ł": "l", "þ": "th", "ŧ": "t"}
"""Letters that Unicode does not divide into a letter and its mark."""


def _without_accents() -> dict[int, str]:
    found = {ord(letter): plain for letter, plain in _UNDIVIDED.items()}
    for code in (*range(0xC0, 0x250), *range(0x300, 0x400), *range(0x1E00, 0x2000), 0x451):
        parts = unicodedata.normalize("NFD", chr(code))
        plain = "".join(char for char in parts if not unicodedata.combining(char))
        if plain != chr(code):
            found[code] = plain
    return found


_PLAIN = _without_accents()


def normal(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


def fold(text: str) -> str:
    if text.isascii():
        return text.lower()
    folded = unicodedata.normalize("NFKC", text).casefold()
    return folded.translate(_PLAIN) if _ACCENTED.search(folded) else folded


_NO_LETTER_OR_DIGIT = {code: " " for code in range(128) if not chr(code).isalnum()}
_SIGNS = [code for code in range(256) if not chr(code).isalnum() or code > 127]
_CAPITALS, _DIGITS = bytes(range(65, 91)), bytes(range(48, 58))
_FOLDED = bytes.maketrans(_CAPITALS + bytes(_SIGNS), _CAPITALS.lower() + b" " * len(_SIGNS))
"""ASCII in small letters, with a blank for each sign."""
_SHAPES = bytes.maketrans(
    _CAPITALS + _CAPITALS.lower() + _DIGITS + bytes(_SIGNS), b"A" * 26 + b"a" * 26 + b"0" * 10 + b" " * len(_SIGNS)
)
"""ASCII with one sign for each kind of character."""


def tokenise(text: str) -> list[str]:
    """Most texts are ASCII. There, blanks for all other signs and a split take a tenth of the time of the pattern."""
    return parted(text).split() if text.isascii() else TOKEN.findall(fold(text))


def parted(text: str) -> str:
    """The tokens of an ASCII text with blanks between them."""
    return text.encode("ascii").translate(_FOLDED).decode("ascii")


def indexed(text: str) -> list[str]:
    """The tokens of a text and, after borders, its further readings."""
    found = tokenise(text)
    for run in readings(text):
        found.append(BORDER)
        found += run
    return found


def readings(text: str) -> list[list[str]]:
    """The further readings of the words of a text, each once."""
    if is_plain(text):
        return []
    plain = normal(text)
    runs = {parts: None for word in sorted(_mixed_words(plain)) if (parts := parts_of(word))}
    for number in _GROUPED_NUMBER.findall(plain):
        runs[(joined_number(number),)] = None
    runs.update(dict.fromkeys(_MOMENT.findall(plain)))
    return [list(run) for run in runs]


def is_plain(text: str) -> bool:
    """Whether it is ASCII without a word or number that has further readings, as most prose is. To see that takes a
    twentieth of the time of looking for the words.
    """
    if not text.isascii():
        return False
    shape = text.encode("ascii").translate(_SHAPES)
    if b"A" in shape and (b"aA" in shape or b"AAa" in shape):  # parseConfig, HTTPServer
        return False
    if b"0" not in shape:
        return True
    # INV2041 and 64GB, 1,234
    return not any(kind in shape for kind in (b"a0", b"A0", b"0a", b"0A", b"0 000"))


def has_digits(text: str) -> bool:
    """Of ASCII. Ten searches for one character are faster than one for a class of them."""
    return any(digit in text for digit in "0123456789")


def _mixed_words(plain: str) -> list[str]:
    """The ASCII words that may have several parts: not those in small letters, in capitals, or of digits."""
    words = set(plain.translate(_NO_LETTER_OR_DIGIT).split() if plain.isascii() else _ASCII_WORD.findall(plain))
    chosen = list(filterfalse(str.islower, words))
    if has_digits(plain):
        chosen += [word for word in words if word.islower() and not word.isalpha()]
    return [word for word in chosen if not (word.istitle() or word.isupper() if word.isalpha() else word.isdigit())]


def parts_of(word: str) -> tuple[str, ...]:
    """The parts of a word of several, in small letters: parseConfig, HTTPServer, INV2041, 64GB; none if it is one."""
    if len(word) > PARTED_MAX_CHARS:
        return ()
    parts = tuple(part.lower() for part in _PART.findall(word))
    has_meaning = any(len(part) >= 3 for part in parts) or _AMOUNT.fullmatch(word)
    return parts if 2 <= len(parts) <= PARTS_MAX and has_meaning else ()


def joined_number(word: str) -> str:
    """The digits of a number with separators for thousands; "" if it is none."""
    return re.sub(r"\D", "", word) if _GROUPED_NUMBER.fullmatch(word) else ""


def forms_of(word: str) -> tuple[str, ...]:
    """An English word and its regular forms (invoices, invoice; planned, plan, planning); other words alone."""
    if len(word) < 4 or not (word.isascii() and word.isalpha()):
        return (word,)
    forms: dict[str, None] = {word: None}
    for stem in _stems(word):
        forms.update(dict.fromkeys((stem, *_inflected(stem))))
    return tuple(forms)


def _stems(word: str) -> list[str]:
    stems = [word]
    if word.endswith("ies") and len(word) > 4:
        stems = [word[:-3] + "y"]
    elif word.endswith(("sses", "xes", "zes", "ches", "shes")):
        stems = [word[:-2]]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        stems = [word[:-1]]
    elif word.endswith("ied") and len(word) > 4:
        stems = [word[:-3] + "y"]
    elif word.endswith(("ed", "ing")) and len(word) > 5:
        bare = word[: -2 if word.endswith("ed") else -3]
        doubled = len(bare) > 3 and bare[-1] == bare[-2] and bare[-1] not in "lsz"
        stems = [bare[:-1]] if doubled else [bare, bare + "e"]
    return [stem for stem in stems if len(stem) >= 3]


def _inflected(stem: str) -> list[str]:
    if stem.endswith("y") and stem[-2] not in "aeiou":
        return [stem[:-1] + "ies", stem[:-1] + "ied", stem + "ing"]
    if stem.endswith("e"):
        return [stem + "s", stem + "d", stem[:-1] + "ing"]
    plural = stem + ("es" if stem.endswith(("s", "x", "z", "ch", "sh")) else "s")
    doubled = stem + stem[-1] if stem[-1] in "bdgmnprt" and stem[-2] in "aeiou" and stem[-3] not in "aeiou" else stem
    return [plural, *dict.fromkeys((stem + "ed", stem + "ing", doubled + "ed", doubled + "ing"))]
