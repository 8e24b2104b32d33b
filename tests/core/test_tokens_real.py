"""The estimator against real vocabularies, on whatever English, code and JSON the interpreter's own installation holds.

tiktoken fetches its vocabularies from the network; llama-index-core carries them as tiktoken's cache directory. To run:
`pip install tiktoken && pip install --no-deps llama-index-core` (12 MB; never imported, so without its dependencies).
"""

import importlib.util
import json
import runpy
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from benchmarks import unseen

from turnlog.core import tokens

tiktoken = pytest.importorskip("tiktoken", reason="tiktoken is not installed")

# Not an import: whether a test module can import its neighbour depends on pytest's import mode.
RECORDED = runpy.run_path(str(Path(__file__).with_name("test_tokens.py")))
TEXTS: dict[str, str] = RECORDED["TEXTS"]
CHUNK_CHARS = 8_000
Tokeniser = Callable[[str], int]


def cache() -> Path | None:
    spec = importlib.util.find_spec("llama_index")
    places = (spec and spec.submodule_search_locations) or ()
    return next((path for place in places if (path := Path(place) / "core/_static/tiktoken_cache").is_dir()), None)


def load(name: str) -> Tokeniser:
    directory = cache()
    if directory is None:
        pytest.skip("llama-index-core, which carries the vocabularies, is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", str(directory))
        encoding = tiktoken.get_encoding(name)
    return lambda text: len(encoding.encode_ordinary(text))


@pytest.fixture(scope="module")
def o200k() -> Tokeniser:
    return load("o200k_base")


@pytest.fixture(scope="module")
def cl100k() -> Tokeniser:
    return load("cl100k_base")


def chunks(pattern: str, most: int = 40) -> Iterator[str]:
    files = sorted(Path(sysconfig.get_path("stdlib")).glob(pattern))
    texts = (path.read_text("utf-8", "replace") for path in files)
    whole = (text[:CHUNK_CHARS] for text in texts if len(text) >= CHUNK_CHARS)
    return (chunk for chunk, _ in zip(whole, range(most), strict=False))


def english() -> list[str]:
    topics = importlib.import_module("pydoc_data.topics").topics
    return [text[:CHUNK_CHARS] for text in topics.values() if len(text) >= 4_000]


def ratio(texts: list[str], real: Tokeniser, scale: tokens.Scale = tokens.UNCALIBRATED) -> float:
    return sum(tokens.of_text(text, scale) for text in texts) / sum(map(real, texts))


def test_the_recorded_counts_are_what_the_vocabularies_give(o200k: Tokeniser, cl100k: Tokeniser) -> None:
    assert {name: (o200k(text), cl100k(text)) for name, text in TEXTS.items()} == RECORDED["O200K_AND_CL100K"]


def test_every_chunk_of_the_standard_library_is_within_bounds(o200k: Tokeniser) -> None:
    for text in chunks("*.py"):
        assert 0.85 <= ratio([text], o200k) <= 1.3, text[:200]


def test_python_on_average_is_within_twenty_percent(o200k: Tokeniser) -> None:
    assert ratio(list(chunks("*.py")), o200k) == pytest.approx(1, abs=0.20)


def test_english_is_within_twenty_percent(o200k: Tokeniser) -> None:
    for text in english():
        assert ratio([text], o200k) == pytest.approx(1, abs=0.20), text[:200]


@pytest.mark.parametrize("indent", [None, 2])
def test_json_is_within_twenty_percent(o200k: Tokeniser, indent: int | None) -> None:
    lines = [{"line": i, "text": line, "ok": i % 3 == 0} for i, line in enumerate(english()[0].splitlines())]
    assert ratio([json.dumps(lines, indent=indent)], o200k) == pytest.approx(1, abs=0.20)


def test_five_reports_teach_cl100k(cl100k: Tokeniser) -> None:
    scale = tokens.UNCALIBRATED
    prompts = [
        code[: 8_000 - 1_500 * n] + prose + TEXTS["chinese"] * (3 * n + 2) + TEXTS["mixed chinese english"] * n
        for n, (code, prose) in enumerate(zip(chunks("*.py", 5), english(), strict=False))
    ]
    for prompt in prompts:
        scale = tokens.calibrate(scale, tokens.count(prompt), cl100k(prompt))
    assert ratio([TEXTS["chinese"]], cl100k) < 0.9
    assert scale.reports == 5
    for texts in (english(), list(chunks("*.py")), [TEXTS["chinese"]]):
        assert ratio(texts, cl100k, scale) == pytest.approx(1, abs=0.10)
    # One short paragraph; and which texts of the standard library come before it depends on the interpreter.
    assert ratio([TEXTS["mixed chinese english"]], cl100k, scale) == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize("name", ["o200k", "cl100k"])
def test_texts_that_the_prices_were_not_fitted_to_are_seldom_far_off(name: str, request: pytest.FixtureRequest) -> None:
    real: Tokeniser = request.getfixturevalue(name)
    found = {kind: ratio(texts, real, tokens.Scale(family=name)) for kind, texts in unseen.rows().items()}
    assert min(found.values()) >= 0.7, found  # regular expressions
    assert sum(each >= 0.85 for each in found.values()) >= len(found) - 2, found  # property lists
    assert sum(abs(each - 1) <= 0.15 for each in found.values()) >= 0.85 * len(found), found
