"""Decides how many tokens a text or a prompt is likely to cost, before any provider has said so.

The default estimator counts the pieces that byte-pair tokenisers cut a text into (words, groups of digits, runs of
symbols, gaps, characters of other scripts), priced for o200k, and learns one multiplier per class from what a model's
provider reports. It errs upwards: a prompt thought too small is refused by the provider, one thought too large is only
compacted a little early. Three estimators of the seed systems are kept to the letter, by name.

Refuses: to be exact, to bundle a vocabulary, to look at the pixels of an image, and to tell what was billed.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, cast

import msgspec

from ..errors import UsageError
from .han import count_in_words, drop_frequent

Message = Mapping[str, Any]

MESSAGE_TOKENS: Final = 4
"""Role and separators around one message."""
CALL_TOKENS: Final = 10
"""Framing of a tool call, a tool result or a tool definition, in place of its ids and tags."""
IMAGE_TOKENS: Final = 1_600
"""What the largest image costs: providers shrink anything larger, and its size is not in the message."""
SCALE_MIN: Final = 0.25
SCALE_MAX: Final = 4.0
"""No tokeniser in use lies outside; a report that does is no token count of that prompt."""
REMEMBERED: Final = 2_048
REMEMBERED_CHARS: Final = 1_000
"""Counts are remembered for so many texts of at most this length: a few MB."""


class Counts(msgspec.Struct, frozen=True):
    """Expected pieces per class, each priced in o200k tokens: their plain sum is the uncalibrated estimate."""

    words: float = 0.0
    digits: float = 0.0
    symbols: float = 0.0
    space: float = 0.0
    han: float = 0.0
    loose: float = 0.0
    rare: float = 0.0
    asian: float = 0.0
    other: float = 0.0
    fixed: float = 0.0


CLASSES: Final = len(Counts.__struct_fields__)


class Scale(msgspec.Struct, frozen=True):
    """One model's calibration: a multiplier per class of Counts, and the sums of the regression they come from.

    `gram` (row by row) and `moment` are sums over all reports: the size is the same after one and after a million.
    """

    weights: tuple[float, ...] = (1.0,) * CLASSES
    gram: tuple[float, ...] = (0.0,) * (CLASSES * CLASSES)
    moment: tuple[float, ...] = (0.0,) * CLASSES
    reports: int = 0


UNCALIBRATED: Final = Scale()


def _table(kinds: Mapping[bytes, bytes], default: bytes) -> bytes:
    table = bytearray(default * 256)
    for members, kind in kinds.items():
        for byte in members:
            table[byte] = kind[0]
    return bytes(table)


def _lead(first: int, last: int) -> bytes:
    return bytes(range(first, last + 1))


# The one hard thing. A text becomes one byte per character that names the character's kind: the first byte of a UTF-8
# sequence tells the script well enough, and the continuation bytes are deleted in the same pass. Everything after is
# bytes.count, which scans 1 KB in about a microsecond; a regular expression takes tens of them to list the words.
# a lower, A upper, 0 digit, "." symbol, l Latin like é, L Latin like ş, x Greek and Cyrillic, y Hebrew and Arabic,
# i Indic and Thai, v Vietnamese and rare scripts, p typographic signs, k kana, h Han, g Hangul, f full width, e emoji.
# The prices further down were fitted to o200k on 3,300 pieces of text in 60 kinds, and rounded up a little; later
# those of Han characters on 143 more (news, reviews, manuals, office, law, verse), of line ends on 73 of Python.
_KIND: Final = _table(
    {
        b"abcdefghijklmnopqrstuvwxyz": b"a",
        b"ABCDEFGHIJKLMNOPQRSTUVWXYZ": b"A",
        b"0123456789": b"0",
        b" \t": b" ",
        b"\r\n": b"\n",
        _lead(0xC3, 0xC3): b"l",
        _lead(0xC4, 0xCB): b"L",
        _lead(0xCC, 0xD5): b"x",
        _lead(0xD6, 0xDF): b"y",
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
_SYMBOLS: Final = _table({b".": b"."}, default=b" ")
_LINES: Final = _table({b" ": b" ", b"\n": b"\n", b".": b"."}, default=b"a")


def count(text: str) -> Counts:
    return _count_once(text) if len(text) <= REMEMBERED_CHARS else _count(text)


def _count(text: str) -> Counts:
    kinds = b" " + _kinds(text)
    words, digits, symbols, space = _words(kinds), _digits(kinds), _symbols(kinds), _space(kinds)
    if text.isascii():
        return Counts(words, digits, symbols, space)
    han, loose, rare = _han(text, kinds)
    symbols += 0.96 * kinds.count(b"p")
    return Counts(words, digits, symbols, space, han, loose, rare, _asian(kinds), _other(kinds))


_count_once: Final = lru_cache(REMEMBERED)(_count)
"""A message is counted when it is stored, when it is sent, and each time its prompt is looked at."""


def _kinds(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass").translate(_KIND, _CONTINUATION)


def _words(kinds: bytes) -> float:
    letters = kinds.translate(_LETTERS)
    starts, long = letters.count(b" a"), letters.count(b"aaaaa")
    if b"A" not in kinds:
        return 1.07 * starts + 0.19 * long
    return 1.07 * starts + 0.19 * long + 1.00 * kinds.count(b"aA") + 0.28 * kinds.count(b"AA")


def _digits(kinds: bytes) -> float:
    if b"0" not in kinds:
        return 0.0
    grouped = kinds.replace(b"000", b"1").replace(b"00", b"1")
    # A blank before a word is part of the word's token; before a number it is a token of its own.
    return 1.33 * (grouped.count(b"0") + grouped.count(b"1")) + 0.93 * kinds.count(b" 0")


def _symbols(kinds: bytes) -> float:
    runs = len(kinds.translate(_SYMBOLS).split())
    pairs = kinds.count(b"..")
    # Pairs cost, but rulers such as "-----" are a single token whatever their length.
    return 0.56 * runs + 0.50 * pairs - 0.41 * (kinds.count(b"....") if pairs > 1 else 0)


def _space(kinds: bytes) -> float:
    if b"\n" not in kinds and b"  " not in kinds:
        return 0.0
    lines = kinds.translate(_LINES)
    # The end of a line, and the empty lines after it, are part of the symbol before them; after a word they are not.
    ends = 1.50 * lines.count(b"a\n") + 0.30 * lines.count(b".\n")
    return ends + 0.80 * (lines.count(b"  a") + lines.count(b"  ."))


def _han(text: str, kinds: bytes) -> tuple[float, float, float]:
    """All Han characters, those outside of frequent words, and those that are rare.

    One class would not do: depending on the subject a character costs 0.6 to 1.1 tokens of o200k, 0.8 to 1.7 of cl100k.
    Each class lies within the one before, so two of the weights are surcharges. Were the classes apart, each weight
    would be seen in fewer characters, and five short reports would settle none of them.
    """
    han = kinds.count(b"h")
    if not han:
        return 0.0, 0.0, 0.0
    rare = _kinds(drop_frequent(text)).count(b"h")
    return 0.37 * han, 0.58 * (han - count_in_words(text)), 0.25 * rare


def _asian(kinds: bytes) -> float:
    return 0.79 * kinds.count(b"k") + 0.92 * kinds.count(b"g") + 0.60 * kinds.count(b"f")


def _other(kinds: bytes) -> float:
    latin = 2.10 * kinds.count(b"l") + 2.30 * kinds.count(b"L") + 0.10 * kinds.count(b"v")
    letters = 0.43 * kinds.count(b"x") + 0.55 * kinds.count(b"y") + 0.50 * kinds.count(b"i")
    return latin + letters + 2.65 * kinds.count(b"e")


def add(a: Counts, b: Counts) -> Counts:
    return Counts(*(x + y for x, y in zip(_vector(a), _vector(b), strict=True)))


def total(counts: Counts, scale: Scale = UNCALIBRATED) -> int:
    return round(_dot(_vector(counts), scale.weights))


def of_text(text: str, scale: Scale = UNCALIBRATED) -> int:
    return max(bool(text), total(count(text), scale))


def of_messages(
    messages: Iterable[Message],
    *,
    system: Any = "",
    tools: Iterable[Mapping[str, Any]] = (),
    scale: Scale = UNCALIBRATED,
) -> int:
    return total(count_prompt(messages, system=system, tools=tools), scale)


def count_prompt(messages: Iterable[Message], *, system: Any = "", tools: Iterable[Mapping[str, Any]] = ()) -> Counts:
    """What `calibrate` wants to see: all that the provider's input tokens stand for."""
    parts = [count_messages(messages)]
    if system:
        parts += [Counts(fixed=MESSAGE_TOKENS), _count_content(system)]
    parts += [add(Counts(fixed=CALL_TOKENS), count(_json(tool))) for tool in tools]
    return _sum(parts)


def count_messages(messages: Iterable[Message]) -> Counts:
    return _sum([add(Counts(fixed=MESSAGE_TOKENS), _count_content(message["content"])) for message in messages])


def _count_content(content: Any) -> Counts:
    if isinstance(content, str):
        return count(content)
    return _sum([_count_block(block) for block in content])


def _count_block(block: Mapping[str, Any]) -> Counts:
    match block:
        case {"type": "text", "text": str(text)} | {"type": "thinking", "thinking": str(text)}:
            return count(text)
        case {"type": "tool_use", "name": str(name), "input": arguments}:
            return add(Counts(fixed=CALL_TOKENS), count(name + _json(arguments)))
        case {"type": "tool_result"}:
            return add(Counts(fixed=CALL_TOKENS), _count_content(block.get("content") or ""))
        case {"type": "image"}:
            return Counts(fixed=IMAGE_TOKENS)
        case _:
            return count(_json(block))


def _sum(parts: Iterable[Counts]) -> Counts:
    columns = zip(*map(_vector, parts), strict=True)
    return Counts(*map(math.fsum, columns))


def quick(text: str) -> int:
    """Two tokens per seven UTF-8 bytes: no more than an index row needs, in less than a microsecond."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return -(-size * 2 // 7)


NOISE: Final = 0.05
"""Relative error that the class model leaves on one prompt of a few thousand characters."""
SPREAD_ALL: Final = 0.6
SPREAD_CLASS: Final = 0.4
"""How far, before any report, a tokeniser may lie from o200k as a whole, and a class from the whole."""
MEMORY: Final = 0.97
"""A provider may change the tokeniser behind a model's name: a report counts half after 23 newer ones."""


def calibrate(scale: Scale, counts: Counts, reported: int) -> Scale:
    """Learn from the input tokens that a provider reported for a prompt; `count_prompt` gives its counts."""
    pieces = _vector(counts)
    expected = sum(pieces)
    # Outside the bounds no weights explain it: usage without the cached part, a total over several calls, a zero.
    if not SCALE_MIN * expected <= reported <= SCALE_MAX * expected or reported <= 0:
        return scale
    row = [piece / reported for piece in pieces]
    gram = tuple(MEMORY * old + a * b for old, (a, b) in zip(scale.gram, _pairs(row), strict=True))
    moment = tuple(MEMORY * old + a for old, a in zip(scale.moment, row, strict=True))
    return Scale(_weights(gram, moment), gram, moment, scale.reports + 1)


def input_tokens(usage: Mapping[str, Any] | None) -> int:
    """What the provider says it took in, cached or not; 0 if it said nothing."""
    figures = usage or {}
    return sum(count for name in _INPUT if isinstance(count := figures.get(name), int))


_INPUT: Final = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


def _weights(gram: Sequence[float], moment: Sequence[float]) -> tuple[float, ...]:
    """Ridge regression towards 1 that lets all classes move together more easily than one alone.

    Deviations from 1 have the prior covariance SPREAD_ALL² everywhere plus SPREAD_CLASS² on the diagonal. Without the
    shared part five prompts would move only the classes they are made of, and the first prompt of another mix would
    still be counted as o200k.
    """
    one, every = SPREAD_CLASS**2, SPREAD_ALL**2
    shared = every / (one * (one + CLASSES * every))
    rows = [list(gram[i * CLASSES : (i + 1) * CLASSES]) for i in range(CLASSES)]
    target = [(moment[i] - sum(rows[i])) / NOISE**2 for i in range(CLASSES)]
    for i, row in enumerate(rows):
        rows[i] = [value / NOISE**2 - shared + (i == j) / one for j, value in enumerate(row)]
    return tuple(min(SCALE_MAX, max(SCALE_MIN, 1.0 + d)) for d in _solve(rows, target))


def _solve(rows: list[list[float]], target: list[float]) -> list[float]:
    """Gaussian elimination without pivoting, which is sound as the prior makes the matrix positive definite."""
    size = len(rows)
    for i in range(size):
        for k in range(i + 1, size):
            factor = rows[k][i] / rows[i][i]
            rows[k] = [b - factor * a for a, b in zip(rows[i], rows[k], strict=True)]
            target[k] -= factor * target[i]
    found = [0.0] * size
    for i in reversed(range(size)):
        found[i] = (target[i] - _dot(rows[i], found)) / rows[i][i]
    return found


def _vector(counts: Counts) -> tuple[float, ...]:
    return msgspec.structs.astuple(counts)


def _pairs(row: Sequence[float]) -> list[tuple[float, float]]:
    return [(a, b) for a in row for b in row]


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def estimate(
    messages: Iterable[Message],
    estimator: str = "calibrated",
    *,
    system: Any = "",
    tools: Iterable[Mapping[str, Any]] = (),
    scale: Scale = UNCALIBRATED,
) -> int:
    if estimator == "calibrated":
        return of_messages(messages, system=system, tools=tools, scale=scale)
    if estimator not in _COMPATIBLE:
        known = ", ".join(["calibrated", *_COMPATIBLE])
        raise UsageError(f"unknown token estimator {estimator!r}", hint=f"use one of: {known}")
    return _COMPATIBLE[estimator](messages, system)


def _chars4(messages: Iterable[Message], system: Any) -> int:
    """claw0: messages only; its status line shows system prompt and tools beside the total."""
    return sum(_chars4_block(block) for message in messages for block in _blocks(message["content"]))


def _chars4_block(block: Mapping[str, Any]) -> int:
    match block:
        case {"type": "text", "text": str(text)} | {"type": "tool_result", "content": str(text)}:
            return len(text) // 4
        case {"type": "tool_use", "input": arguments}:
            # Escaped and with blanks, unlike _json: claw0 measures Python's default dump.
            return len(json.dumps(arguments)) // 4
        case _:
            return 0


def _chars16(messages: Iterable[Message], system: Any) -> int:
    """ZeroClaw: the system prompt is one more message, and an empty one is none."""
    contents = [message["content"] for message in messages] + ([system] if system else [])
    return -(-sum(_chars(content) + 16 for content in contents) // 4)


def _chars(content: Any) -> int:
    return sum(len(block["text"] if block["type"] == "text" else _json(block)) for block in _blocks(content))


def _bytes4(messages: Iterable[Message], system: Any) -> int:
    """ZyHive: the bytes of each message's content as its file holds it."""
    return sum(len(_json(_as_stored(message)).encode("utf-8", "surrogatepass")) // 4 for message in messages)


def _as_stored(message: Message) -> Any:
    """A lone text of the user is a JSON string there, and an answer always a list of blocks, however it came to us."""
    match message:
        case {"role": "user", "content": [{"type": "text", "text": str(text)}]}:
            return text
        case {"role": "assistant", "content": content}:
            return _blocks(content)
        case _:
            return message["content"]


def _blocks(content: Any) -> Sequence[Mapping[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return cast(Sequence[Mapping[str, Any]], content)


def _json(value: Any) -> str:
    # Not msgspec's encoder: a model may emit half a surrogate pair, which that one refuses and this one passes on.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


_COMPATIBLE: Final[Mapping[str, Callable[[Iterable[Message], Any], int]]] = {
    "chars4": _chars4,
    "chars16": _chars16,
    "bytes4": _bytes4,
}
