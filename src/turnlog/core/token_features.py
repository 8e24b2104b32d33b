"""Counts the features of a text that byte-pair tokenisers spend tokens on: words, digits, symbols, gaps, scripts.

What a feature costs differs between tokenisers; `token_families` has the prices.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, TypeAlias

from .chinese import count_in_words, count_kana_pairs, count_rare, only_han
from .frequent_words import FREQUENT_WORDS, latin_words
from .known_words import RUSSIAN, VIETNAMESE
from .letter_pairs import tokens_of_cyrillic, tokens_of_latin
from .token_counts import Counts

REMEMBERED: Final = 2_048
REMEMBERED_CHARS: Final = 1_000
"""The longest text that is kept to remember its count; the cache takes a few MB."""
REMEMBERED_LONG: Final = 32_768
"""Longer texts whose counts are remembered by hash and length, some 300 bytes each."""
WHOLE_CHARS: Final = 2_000
SAMPLE_CHARS: Final = 40_000
SAMPLES: Final = 47
PART_CHARS: Final = 500
"""What takes long to count is looked for in the whole of a short text, and in samples of a longer one: a third of it,
but at most SAMPLE_CHARS characters in SAMPLES parts. 47 is a prime number: the parts of a text that
repeats itself ten or twenty times would otherwise all begin at the same places of it.
"""


def _table(kinds: Mapping[bytes, bytes], default: bytes) -> bytes:
    table = bytearray(default * 256)
    for members, kind in kinds.items():
        for byte in members:
            table[byte] = kind[0]
    return bytes(table)


def _lead(first: int, last: int) -> bytes:
    return bytes(range(first, last + 1))


# The hard part. A text becomes one byte per character that names the character's kind: the first byte of a UTF-8
# sequence identifies the script well enough, and the continuation bytes are deleted in the same pass. Everything after
# is bytes.count, which scans 1 KB in about a microsecond; a regular expression takes tens of them to list the words.
# Kinds: a lower, A upper, 0 digit, "." symbol, l Latin like é, L Latin like ş, x Greek, c Cyrillic, m Armenian,
# y Hebrew, r Arabic, i Indic and Thai, v Vietnamese and rare scripts, p typographic signs, k kana, h Han, g Hangul,
# f full width, e emoji.
_KIND: Final = _table(
    {
        b"abcdefghijklmnopqrstuvwxyz": b"a",
        b"ABCDEFGHIJKLMNOPQRSTUVWXYZ": b"A",
        b"0123456789": b"0",
        b" \t": b" ",
        b"\r\n": b"\n",
        _lead(0xC3, 0xC3): b"l",
        _lead(0xC4, 0xCB): b"L",
        _lead(0xCC, 0xCF): b"x",
        _lead(0xD0, 0xD3): b"c",
        _lead(0xD4, 0xD5): b"m",
        _lead(0xD6, 0xD7): b"y",
        _lead(0xD8, 0xDF): b"r",
        _lead(0xE0, 0xE0): b"i",
        _lead(0xE1, 0xE1): b"v",
        b"\xc2\xe2": b"p",
        _lead(0xE3, 0xE3): b"k",
        _lead(0xE4, 0xE9): b"h",
        _lead(0xEA, 0xED): b"g",
        _lead(0xEF, 0xEF): b"f",
        _lead(0xF0, 0xFF) + b"\xee": b"e",
    },
    default=b".",
)
_CONTINUATION: Final = _lead(0x80, 0xBF)
_LETTERS: Final = _table({b"aAlLv": b"a"}, default=b" ")
_CONSONANTS: Final = _table({b"bcdfghjklmnpqrstvwxzBCDFGHJKLMNPQRSTVWXZ": b"c"}, default=b" ")
_OTHER_LETTERS: Final = _table({b"xymrig": b"a"}, default=b" ")
_SYMBOLS: Final = _table({b".": b"."}, default=b" ")
_LINES: Final = _table({b" ": b" ", b"\n": b"\n", b".": b"."}, default=b"a")


Vector: TypeAlias = tuple[float, ...]
"""The values of a `Counts` in their order. Those that are left out at its end are 0, as all of the second half are for
a text in ASCII.
"""


def count(text: str) -> Counts:
    return Counts(*vector(text))


def vector(text: str) -> Vector:
    return _count_once(text) if len(text) <= REMEMBERED_CHARS else _count_long(text)


_long: Final[dict[tuple[int, int], Vector]] = {}


def _count_long(text: str) -> Vector:
    """Two texts with one hash and one length would get one estimate, which harms nobody."""
    key = hash(text), len(text)
    if (found := _long.get(key)) is None:
        if len(_long) >= REMEMBERED_LONG:
            _long.clear()
        found = _long[key] = _count(text)
    return found


def _count(text: str) -> Vector:
    kinds = b" " + _kinds(text)
    plain: tuple[float, ...] = (*_words(text, kinds), *_digits(kinds), *_symbols(text, kinds), *_space(kinds))
    if text.isascii():
        return plain
    russian, spelt = _cyrillic(text) if b"c" in kinds else (0.0, 0.0)
    words = _others(kinds), russian, _vietnamese(text) if b"v" in kinds else 0.0, spelt
    scripts = (*map(kinds.count, _SCRIPTS), *words, kinds.count(b"i"), *_parts_of_scripts(text, kinds))
    return (*plain, *_signs(text, kinds), *_han(text, kinds), *_kana(text, kinds), *scripts)


def _others(kinds: bytes) -> int:
    return kinds.translate(_OTHER_LETTERS).count(b" a")


def _cyrillic(text: str) -> tuple[float, float]:
    looked_at, times = _sample(text)
    words = looked_at.lower().split()
    others = [word for word in words if word not in RUSSIAN]
    return times * (len(words) - len(others)), times * tokens_of_cyrillic(others)


def _vietnamese(text: str) -> float:
    looked_at, times = _sample(text)
    return times * sum(map(VIETNAMESE.__contains__, looked_at.lower().split()))


def _signs(text: str, kinds: bytes) -> tuple[float, ...]:
    joiners = text.count("\u200d") + text.count("\ufe0f")
    if b"p" not in kinds:
        return 0, 0, 0, 0, 0, 0, joiners
    pairs = kinds.count(b"pp")
    drawn = [_count_any(members, text) if pairs else 0.0 for members in (_LINE, _BAR, _REPEATED)]
    return kinds.count(b"p"), pairs, _count_any(_QUOTE, text), *drawn, joiners


_QUOTE: Final = re.compile("[\u2010-\u2027\xa0\xa7\xa9\xab\xb0\xb7\xbb]")
_LINE: Final = re.compile("[\u2500-\u254f]")
_BAR: Final = re.compile("[\u2550-\u259f]")
_REPEATED: Final = re.compile("([\u2500-\u259f])(?=\\1)")


def _kana(text: str, kinds: bytes) -> tuple[float, float]:
    kana = kinds.count(b"k")
    if not kana:
        return 0, 0
    looked_at, times = _sample(text)
    return kana, times * count_kana_pairs(looked_at)


def _parts_of_scripts(text: str, kinds: bytes) -> tuple[float, ...]:
    return tuple(_count_any(members, text) if kind in kinds else 0.0 for kind, members in _PARTS)


_PARTS: Final = (
    (b"i", re.compile("[\u0e00-\u0e7f]")),
    (b"i", re.compile("[\u0e80-\u0eff]")),
    (b"i", re.compile("[\u0980-\u09ff]")),
    (b"i", re.compile("[\u0a00-\u0aff]")),
    (b"i", re.compile("[\u0b00-\u0bff]")),
    (b"i", re.compile("[\u0c00-\u0cff]")),
    (b"i", re.compile("[\u0d00-\u0dff]")),
    (b"v", re.compile("[\u10a0-\u10ff]")),
    (b"v", re.compile("[\u1000-\u109f\u1200-\u139f\u1700-\u18af]")),
    (b"c", re.compile("[іїєґІЇЄҐәғқңөұүһӘҒҚҢӨҰҮҺјљњћђџѓќѕЈЉЊЋЂЏЃЌЅўЎҳҲӣӯҷ]")),
    (b"r", re.compile("[پچژگکیےںھٹڈڑ]")),
    (b"r", re.compile("[ەېۇۆۈۋڭێڵڕ]")),
)
_TRADITIONAL: Final = re.compile(
    "[這個們來為說國時會對學過發開動經還問題與機進現間無樣後當長實點關東話請檢設錯誤檔確認體業產電網頁資訊號應該處"
    "種類變數據讓從將並單書寫讀圖報紀錄門見親給頭萬車馬風飛語調試運維護總結構議論證爾圍統級約終組練義歷廣員區]"
)


def _count_any(members: re.Pattern[str], text: str) -> float:
    looked_at, times = _sample(text)
    return times * len(members.findall(looked_at))


_SCRIPTS: Final = (b"g", b"f", b"l", b"L", b"v", b"m", b"x", b"c", b"y", b"r", b"e")
_count_once: Final = lru_cache(REMEMBERED)(_count)
"""A message is counted when it is stored, when it is sent, and each time its prompt is measured."""


def _kinds(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass").translate(_KIND, _CONTINUATION)


def _words(text: str, kinds: bytes) -> tuple[float, ...]:
    letters = kinds.translate(_LETTERS)
    starts, long = letters.count(b" a"), letters.count(b"aaaaa")
    longer, clusters = (letters.count(b"aaaaaaaaa"), _clusters(text)) if long else (0, 0)
    capitals = _capitals(text, kinds) if b"A" in kinds else (0, 0, 0, 0.0)
    if not long:
        return starts, 0, 0, 0, *_uncommon(text, capitals[0]), 0.0, 0.0, *capitals, _mixed(kinds)
    return starts, long, longer, clusters, *_uncommon(text, capitals[0]), *_foreign(text), *capitals, _mixed(kinds)


def _capitals(text: str, kinds: bytes) -> tuple[int, int, int, float]:
    counts = kinds.count(b"aA"), kinds.count(b"AA"), kinds.count(b"AAAA")
    if b"AAA" not in kinds:
        return *counts, 0.0
    looked_at, times = _sample(text)
    return *counts, times * tokens_of_latin(latin_words(" ".join(_SHOUT.findall(looked_at))))


_SHOUT: Final = re.compile("[A-Z]{3,}")


def _mixed(kinds: bytes) -> int:
    return kinds.count(b"0a") + kinds.count(b"0A")


def _uncommon(text: str, humps: int) -> tuple[float, float, float]:
    looked_at, times = _sample(text)
    parted = _HUMP.sub(" ", looked_at) if humps else looked_at
    found = [word for word in latin_words(parted) if word not in FREQUENT_WORDS]
    return times * len(found), times * sum(map(len, found)), times * tokens_of_latin(found)


_HUMP: Final = re.compile("(?<=[a-z])(?=[A-Z])")


def _clusters(text: str) -> float:
    looked_at, times = _sample(text)
    return times * looked_at.encode("utf-8", "surrogatepass").translate(_CONSONANTS).count(b"cccc")


def _foreign(text: str) -> tuple[float, ...]:
    looked_at, times = _sample(text)
    return tuple(times * sum(map(looked_at.count, words)) for words in _FOREIGN)


def _sample(text: str) -> tuple[str, float]:
    """The text, or evenly spaced parts of a long one, and how many times larger the text is than that."""
    if len(text) <= WHOLE_CHARS:
        return text, 1.0
    size = min(SAMPLE_CHARS, max(WHOLE_CHARS, len(text) // 3))
    parts = min(SAMPLES, size // PART_CHARS)
    step, each = len(text) // parts, size // parts
    return " ".join(text[at : at + each] for at in range(0, step * parts, step)), len(text) / (each * parts)


_FOREIGN: Final = tuple(
    tuple(f" {word} " for word in words.split()) for words in ("de la que en el les des los", "der die und das ist den")
)


def _digits(kinds: bytes) -> tuple[int, ...]:
    if b"0" not in kinds:
        return 0, 0, 0
    grouped = kinds.replace(b"000", b"1").replace(b"00", b"1")
    # A blank before a word is part of the word's token; before a number it is a token of its own.
    return grouped.count(b"0") + grouped.count(b"1"), kinds.count(b"0"), kinds.count(b" 0")


def _symbols(text: str, kinds: bytes) -> tuple[float, ...]:
    runs, pairs = kinds.translate(_SYMBOLS).count(b" ."), kinds.count(b"..")
    joins, links = kinds.count(b".a") + kinds.count(b".A"), kinds.count(b"a.a")
    rulers = _rulers(text) if b"...." in kinds else 0.0
    return runs, pairs, rulers, joins, links, text.count("://"), *_separators(text)


def _rulers(text: str) -> float:
    """Pairs of symbols cost, but rulers such as "-----" are a single token whatever their length."""
    looked_at, times = _sample(text)
    return times * sum(map(looked_at.count, _RULERS))


_RULERS: Final = tuple(4 * symbol for symbol in "-=*#~_.+/<>!?")


def _separators(text: str) -> tuple[float, float]:
    return _count_any(_COMMA, text) if "," in text else 0.0, _count_any(_TAB, text) if "\t" in text else 0.0


_COMMA: Final = re.compile(",(?=[A-Za-z])")
_TAB: Final = re.compile(r"(?<![\n\t])\t|(?<=\n)\t(?=[^\w\s])")


def _space(kinds: bytes) -> tuple[int, ...]:
    if b"\n" not in kinds and b"  " not in kinds:
        return 0, 0, 0
    lines = kinds.translate(_LINES)
    # The end of a line, and the empty lines after it, are part of the symbol before them; after a word they are not.
    return lines.count(b"a\n"), lines.count(b".\n"), lines.count(b"  a") + lines.count(b"  .")


def _han(text: str, kinds: bytes) -> tuple[float, ...]:
    """Counts all Han characters, those outside of frequent words, and the rare ones.

    One feature is not enough: depending on the subject a character costs 0.6 to 1.1 tokens of o200k, 0.8 to 1.7 of
    cl100k. Each feature is part of the one before, so two of the prices are surcharges. With separate features, each
    weight would be learnt from fewer characters, and five short reports would determine none of them.
    """
    han = kinds.count(b"h")
    if not han:
        return 0, 0, 0, 0, 0
    looked_at, times = _sample(text)
    chinese = only_han(looked_at)
    loose, looser = (max(0.0, han - times * words) for words in count_in_words(chinese))
    rare = min(han, times * count_rare(chinese))
    return han, loose, looser, rare, _count_any(_TRADITIONAL, text) if rare else 0.0
