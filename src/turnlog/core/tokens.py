"""Estimates how many tokens a text or a prompt costs, before a provider has reported it.

The default estimator counts features of the text (`token_features`), at the prices of the model's family of tokenisers
(`token_families`), and learns one multiplier per class of features from the usage that the model's provider reports.
Where the tokeniser itself is installed, it counts instead. The estimate errs upwards: a prompt estimated too small is
refused by the provider, one estimated too large is only compacted a little early. Three estimators of the seed systems
are kept exactly, by name.

It contains no vocabulary, does not look at the pixels of an image, and does not say what was billed.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import zip_longest
from operator import add as plus, mul
from typing import Any, Final, TypeAlias, cast

import msgspec

from ..errors import UsageError
from .token_counts import Counts
from .token_families import CLASS_OF, CLASSES, PRICES, UNKNOWN, family_of
from .token_features import REMEMBERED, REMEMBERED_CHARS, Vector, count as count_features, vector as vector_of

Message = Mapping[str, Any]

MESSAGE_TOKENS: Final = 4
"""Role and separators around one message."""
CALL_TOKENS: Final = 10
"""The framing of a tool call, a tool result or a tool definition, instead of its ids and tags."""
IMAGE_TOKENS: Final = 1_600
"""The cost of the largest image: providers shrink larger ones, and the size is not in the message."""
SCALE_MIN: Final = 0.25
SCALE_MAX: Final = 4.0
"""No tokeniser in use is outside; a report outside is not the token count of that prompt."""

Tokeniser: TypeAlias = Callable[[str], int]
"""Counts the tokens of a text exactly."""


class Scale(msgspec.Struct, frozen=True):
    """How one model counts: its family, and what was learnt from its reports, a multiplier per class of features.

    `gram` (row by row) and `moment` are sums over all reports: the size is the same after one and after a million.
    """

    weights: tuple[float, ...] = (1.0,) * CLASSES
    gram: tuple[float, ...] = (0.0,) * (CLASSES * CLASSES)
    moment: tuple[float, ...] = (0.0,) * CLASSES
    reports: int = 0
    family: str = UNKNOWN
    tokeniser: Tokeniser | None = None
    """The model's own tokeniser, if it is installed here; it is never stored."""


UNCALIBRATED: Final = Scale()


def prior(model: str) -> Scale:
    """How a model of this name probably counts, before it has reported anything."""
    return Scale(family=family_of(model))


def count(text: str, tokeniser: Tokeniser | None = None) -> Counts:
    return count_features(text) if tokeniser is None else Counts(exact=tokeniser(text))


def add(a: Counts, b: Counts) -> Counts:
    return Counts(*map(plus, _vector(a), _vector(b)))


def total(counts: Counts, scale: Scale = UNCALIBRATED) -> int:
    return _total(_vector(counts), scale)


def _total(counts: Vector, scale: Scale) -> int:
    return max(0, round(_dot(counts, _prices(scale.family, scale.weights))))


def of_text(text: str, scale: Scale = UNCALIBRATED) -> int:
    return max(bool(text), _total(_count_text(text, scale.tokeniser), scale))


def price_of_text(text: str) -> float:
    """What a text adds to an uncalibrated estimate, which is the rounded sum of its texts and its framing."""
    return _price_once(text) if len(text) <= REMEMBERED_CHARS else _price(text)


def _price(text: str) -> float:
    return _dot(vector_of(text), _prices(UNCALIBRATED.family, UNCALIBRATED.weights))


_price_once: Final = lru_cache(REMEMBERED)(_price)


@lru_cache(64)
def _prices(family: str, weights: tuple[float, ...]) -> tuple[float, ...]:
    """The price of each feature for a model."""
    return tuple(price * weights[kind] for price, kind in zip(PRICES[family], CLASS_OF, strict=True))


def _pieces(counts: Counts, family: str) -> list[float]:
    """The tokens of each class, by the prices of a family."""
    pieces = [0.0] * CLASSES
    for number, price, kind in zip(_vector(counts), _prices(family, UNCALIBRATED.weights), CLASS_OF, strict=True):
        pieces[kind] += number * price
    return [max(0.0, piece) for piece in pieces]


def of_messages(
    messages: Iterable[Message],
    *,
    system: Any = "",
    tools: Iterable[Mapping[str, Any]] = (),
    scale: Scale = UNCALIBRATED,
) -> int:
    return _total(_count_prompt(messages, system, tools, scale.tokeniser), scale)


def count_prompt(
    messages: Iterable[Message],
    *,
    system: Any = "",
    tools: Iterable[Mapping[str, Any]] = (),
    tokeniser: Tokeniser | None = None,
) -> Counts:
    """The counts for `calibrate`: everything that the provider's input tokens include."""
    return Counts(*_count_prompt(messages, system, tools, tokeniser))


def count_messages(messages: Iterable[Message], tokeniser: Tokeniser | None = None) -> Counts:
    return Counts(*_count_messages(messages, tokeniser))


def _count_prompt(
    messages: Iterable[Message], system: Any, tools: Iterable[Mapping[str, Any]], tokeniser: Tokeniser | None
) -> Vector:
    parts = [_count_messages(messages, tokeniser)]
    if system:
        parts.append(_with_fixed(_count_content(system, tokeniser), MESSAGE_TOKENS))
    parts += [_with_fixed(_count_text(_json(tool), tokeniser), CALL_TOKENS) for tool in tools]
    return _sum(parts)


def _count_messages(messages: Iterable[Message], tokeniser: Tokeniser | None) -> Vector:
    parts = [_count_content(message["content"], tokeniser) for message in messages]
    return _with_fixed(_sum(parts), MESSAGE_TOKENS * len(parts))


def _count_text(text: str, tokeniser: Tokeniser | None) -> Vector:
    return vector_of(text) if tokeniser is None else _vector(Counts(exact=tokeniser(text)))


def _count_content(content: Any, tokeniser: Tokeniser | None) -> Vector:
    if isinstance(content, str):
        return _count_text(content, tokeniser)
    return _sum([_count_block(block, tokeniser) for block in content])


def _count_block(block: Mapping[str, Any], tokeniser: Tokeniser | None) -> Vector:
    if block.get("type") == "text" and isinstance(text := block.get("text"), str):  # nearly all are
        return _count_text(text, tokeniser)
    match block:
        case {"type": "thinking", "thinking": str(text)}:
            return _count_text(text, tokeniser)
        case {"type": "tool_use", "name": str(name), "input": arguments}:
            return _with_fixed(_count_text(name + _json(arguments), tokeniser), CALL_TOKENS)
        case {"type": "tool_result"}:
            return _with_fixed(_count_content(block.get("content") or "", tokeniser), CALL_TOKENS)
        case {"type": "image"}:
            return _with_fixed((), IMAGE_TOKENS)
        case _:
            return _count_text(_json(block), tokeniser)


_ZEROS: Final = (0.0,) * len(msgspec.structs.fields(Counts))
_FIXED: Final = [field.name for field in msgspec.structs.fields(Counts)].index("fixed")


def _with_fixed(counts: Vector, fixed: int) -> Vector:
    whole = counts + _ZEROS[len(counts) :]
    return (*whole[:_FIXED], whole[_FIXED] + fixed, *whole[_FIXED + 1 :])


def _sum(parts: Sequence[Vector]) -> Vector:
    """Exact, so that the order of the parts does not matter."""
    if len(parts) <= 1:
        return parts[0] if parts else ()
    # Most texts are ASCII, and their vectors are half as long: the others' second halves are added apart.
    begin = tuple(map(math.fsum, zip(*parts, strict=False)))
    size = len(begin)
    rest = [part[size:] for part in parts if len(part) > size]
    return (*begin, *map(math.fsum, zip_longest(*rest, fillvalue=0.0))) if rest else begin


def quick(text: str) -> int:
    """Two tokens per seven UTF-8 bytes: precise enough for an index row, in less than a microsecond."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return -(-size * 2 // 7)


NOISE: Final = 0.05
"""The relative error of the class model on one prompt of a few thousand characters."""
SPREAD_ALL: Final = 0.6
SPREAD_CLASS: Final = 0.4
SPREAD_KNOWN: Final = 0.1
"""How far a model may differ from the prices as a whole, and a class from the whole, before any report: much if its
family is unknown, little if it is known.
"""
UNCERTAIN_TOKENS: Final = 20
"""The framing of a few messages: a report on little text says little about the text."""
MEMORY: Final = 0.97
"""A provider may change the tokeniser behind a model's name: a report counts half after 23 newer ones."""


def calibrate(scale: Scale, counts: Counts, reported: int) -> Scale:
    """Learn from the input tokens that a provider reported for a prompt, or for what was added to one.

    `count_prompt` gives the counts of a prompt, `count_messages` those of what a later prompt has more.
    """
    pieces = _pieces(counts, scale.family)
    expected = _dot(_vector(counts), _prices(scale.family, UNCALIBRATED.weights))
    # Outside these bounds no weights explain it: usage without the cached part, a total over several calls, a zero.
    if not SCALE_MIN * expected <= reported <= SCALE_MAX * expected or reported <= 0:
        return scale
    row = [piece / (reported + UNCERTAIN_TOKENS) for piece in pieces]
    said = reported / (reported + UNCERTAIN_TOKENS)
    gram = tuple(MEMORY * old + a * b for old, (a, b) in zip(scale.gram, _pairs(row), strict=True))
    moment = tuple(MEMORY * old + a * said for old, a in zip(scale.moment, row, strict=True))
    spread = SPREAD_CLASS if scale.family == UNKNOWN else SPREAD_KNOWN
    return msgspec.structs.replace(
        scale, weights=_weights(gram, moment, spread), gram=gram, moment=moment, reports=scale.reports + 1
    )


def input_tokens(usage: Mapping[str, Any] | None) -> int:
    """The input tokens that the provider reported, cached or not; 0 if it reported none."""
    if not usage:
        return 0
    taken = 0
    for name in _INPUT:
        if isinstance(count := usage.get(name), int):
            taken += count
    return taken


def context_tokens(usage: Mapping[str, Any] | None) -> int:
    """The tokens of prompt and answer that the provider reported, cached input counted once; 0 if it reported none."""
    taken = input_tokens(usage)
    given = (usage or {}).get("output_tokens")
    # Some servers report only output tokens: that says nothing about the prompt's size.
    return taken + given if taken and isinstance(given, int) else taken


_INPUT: Final = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


def _weights(gram: Sequence[float], moment: Sequence[float], spread: float) -> tuple[float, ...]:
    """Ridge regression towards 1 that lets all classes move together more easily than one alone.

    Deviations from 1 have the prior covariance SPREAD_ALL² everywhere plus spread² on the diagonal. Without the
    shared part five prompts would move only the classes they are made of, and the first prompt of another mix would
    still be counted as o200k.
    """
    one, every = spread**2, SPREAD_ALL**2
    shared = every / (one * (one + CLASSES * every))
    rows = [list(gram[i * CLASSES : (i + 1) * CLASSES]) for i in range(CLASSES)]
    target = [(moment[i] - sum(rows[i])) / NOISE**2 for i in range(CLASSES)]
    for i, row in enumerate(rows):
        rows[i] = [value / NOISE**2 - shared + (i == j) / one for j, value in enumerate(row)]
    return tuple(min(SCALE_MAX, max(SCALE_MIN, 1.0 + d)) for d in _solve(rows, target))


def _solve(rows: list[list[float]], target: list[float]) -> list[float]:
    """Gaussian elimination without pivoting, which is safe because the prior makes the matrix positive definite."""
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
    return sum(map(mul, a, b))


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
        raise UsageError(f"unknown token estimator {estimator!r}", hint=f"Use one of {known}.")
    return _COMPATIBLE[estimator](messages, system)


def _chars4(messages: Iterable[Message], system: Any) -> int:
    """claw0: messages only; its status line shows system prompt and tools separately from the total."""
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
    """ZeroClaw: the system prompt is one more message; an empty one does not count."""
    contents = [message["content"] for message in messages] + ([system] if system else [])
    return -(-sum(_chars(content) + 16 for content in contents) // 4)


def _chars(content: Any) -> int:
    return sum(len(block["text"] if block["type"] == "text" else _json(block)) for block in _blocks(content))


def _bytes4(messages: Iterable[Message], system: Any) -> int:
    """ZyHive: the bytes of each message's content as its file holds it."""
    return sum(len(_json(_as_stored(message)).encode("utf-8", "surrogatepass")) // 4 for message in messages)


def _as_stored(message: Message) -> Any:
    """In ZyHive's files a single text of the user is a JSON string, and an answer is always a list of blocks."""
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
