"""Texts that the prices of `core/token_families` were not fitted to: 36 kinds of rows, and 35 paragraphs.

The rows are generated from a fixed seed with words of Python's documentation, some 1,500 characters of each kind. The
paragraphs are in `unseen_paragraphs.json`, one to ten lines each. `benchmarks/estimates.py` measures both.
"""

import importlib
import json
import random
import re
from collections.abc import Callable
from pathlib import Path

SIZE_CHARS = 1_500
chance = random.Random(57)


def number(most: int) -> int:
    return chance.randrange(most)


def hexadecimal(size: int) -> str:
    return chance.randbytes(size).hex()


def documentation() -> list[str]:
    topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    return re.findall(r"[A-Za-z]+", " ".join(topics[name] for name in sorted(topics)))


WORDS = documentation()


def word() -> str:
    return chance.choice(WORDS).lower()


def some(count: int) -> str:
    return " ".join(word() for _ in range(count))


def camel() -> str:
    return word() + word().title()


ROWS: dict[str, Callable[[int], str]] = {
    "git log": lambda _: (
        f"commit {hexadecimal(20)}\nAuthor: {word().title()} {word().title()} <{word()}@{word()}.org>\n"
        f"Date:   Tue Nov {number(30)} {number(24):02}:{number(60):02}:11 2026 +0100\n\n    {some(7).capitalize()}\n\n"
    ),
    "http headers": lambda _: (
        f"< HTTP/1.1 {200 + number(300)} OK\n< Content-Type: application/{word()}; charset=utf-8\n< ETag: "
        f'"{hexadecimal(8)}"\n< Cache-Control: max-age={number(9999)}, must-revalidate\n< X-{word().title()}: '
        f"{word()}\n"
    ),
    "environment": lambda _: f"{word().upper()}_{word().upper()}={chance.choice(('true', word(), hexadecimal(6)))}\n",
    "ps": lambda i: (
        f"www-data {number(99999):>7} {number(99) / 10:>4} {number(99) / 10:>4} {number(10**6):>7} {number(10**5):>6} ?"
        f"        Sl   {number(24):02}:{number(60):02}   {i % 9}:{number(60):02} /usr/bin/{word()} --{word()}="
        f"{word()}\n"
    ),
    "subtitles": lambda i: (
        f"{i}\n00:{number(60):02}:{number(60):02},{number(1000):03} --> 00:{number(60):02}:{number(60):02},500"
        f"\n{some(8)}\n\n"
    ),
    "bibtex": lambda _: (
        f"@article{{{word()}{1990 + number(36)},\n  title = {{{some(6).title()}}},\n  author = {{{word().title()}, "
        f"{word().title()[0]}.}},\n  volume = {{{number(99)}}},\n  doi = {{10.{number(9999)}/{word()}."
        f"{number(9999)}}}\n}}\n"
    ),
    "graphql": lambda _: (
        f"query {camel()}($id: ID!) {{\n  {word()}(id: $id) {{\n    {camel()}\n    {word()} {{ {word()} "
        f"{word()} }}\n  }}\n}}\n"
    ),
    "terraform": lambda _: (
        f'resource "aws_{word()}_{word()}" "{word()}" {{\n  {word()} = "{word()}"\n  count  = {number(9)}\n  t'
        f"ags = {{ Name "
        f'= "${{var.{word()}}}-{word()}" }}\n}}\n\n'
    ),
    "vcard": lambda _: (
        f"BEGIN:VCARD\nVERSION:3.0\nFN:{word().title()} {word().title()}\nTEL;TYPE=CELL:+1-555-{number(999):03}-"
        f"{number(9999):04}\nEMAIL:{word()}@{word()}.net\nEND:VCARD\n"
    ),
    "calendar": lambda _: (
        f"BEGIN:VEVENT\nUID:{hexadecimal(8)}@{word()}.com\nDTSTART:202611{number(28) + 1:02}T{number(24):02}0000Z\n"
        f"SUMMARY:{some(4).title()}\nEND:VEVENT\n"
    ),
    "regular expressions": lambda _: (
        f'^(?P<{word()}>[a-z0-9_]+)\\s*=\\s*"([^"\\\\]|\\\\.)*"$|(?<!{word()})\\b{word()}{{{number(9)},}}\\d+\n'
    ),
    "shell session": lambda _: (
        f"$ cd ~/{word()}/{word()} && ls -la | grep {word()}\n{word()}: cannot access '{word()}': No such file"
        f" or directory\n"
    ),
    "pytest": lambda _: (
        f"tests/{word()}/test_{word()}.py::test_{word()}_{word()}[{word()}-{number(99)}] "
        f"{chance.choice(('PASSED', 'FAILED', 'SKIPPED'))} [{number(100):>3}%]\n"
    ),
    "imports": lambda _: f"import {{ {camel()}, {camel()} as {word()} }} from '@{word()}/{word()}-{word()}';\n",
    "lua": lambda _: f"local {word()} = {word()}.{word()} or {{}}\nif not {word()} then return nil, '{some(3)}' end\n",
    "haskell": lambda _: (
        f"{camel()} :: Maybe a -> [b] -> Either String (a, b)\n{camel()} xs = foldr (\\x y -> x : y) [] $ {word()} xs\n"
    ),
    "c": lambda _: (
        f"static int {word()}_{word()}(struct {word()} *{word()[:3]}, size_t len)\n{{\n\tif (!len || len > "
        f"{word().upper()}_MAX)\n"
        f"\t\treturn -EINVAL;\n\treturn {word()}_{word()}(&p->{word()}, 0x{hexadecimal(2)});\n}}\n\n"
    ),
    "go errors": lambda _: (
        f'if err := {word()}.{word().title()}(ctx, {word()}); err != nil {{\n\treturn fmt.Errorf("{some(2)}: %'
        f'w", err)\n}}\n'
    ),
    "kotlin": lambda _: (
        f"data class {word().title()}{word().title()}(val {word()}: Int = {number(99)}, val {word()}: List<Str"
        f"ing>? = null)\n"
    ),
    "svg": lambda _: (
        f'<path d="M{number(999) / 10} {number(999) / 10}c-{number(99) / 100}-.{number(99)} {number(9)}.{number(9)}-'
        f'{number(99) / 10} {number(9)}z" fill="#{hexadecimal(3)}"/>\n'
    ),
    "scss": lambda _: (
        f".{word()}-{word()} {{\n  &:hover {{ color: rgba($black, .{number(9)}); }}\n  margin: {number(9)}px a"
        f"uto {number(9)}rem;\n}}\n"
    ),
    "property list": lambda _: (
        f"\t<key>{camel()}</key>\n\t<string>{word()}.{word()}</string>\n\t<{chance.choice(('true', 'false'))}/>\n"
    ),
    "coordinates": lambda _: f"[{number(180 * 10**6) / 10**6}, {-number(90 * 10**6) / 10**6}],",
    "scores": lambda i: (
        f"{i + 1}.  {word().title()} {word().title()}  {number(99)}-{number(99)}  ({number(1000) / 10}%)  W"
        f"{number(9)} L{number(9)}\n"
    ),
    "shopping": lambda _: (
        f"{number(9) + 1}x {word()} {word()}, {number(900) + 50} g @ ${number(99)}.{number(90) + 10}/kg\n"
    ),
    "questions": lambda _: f"Q: {some(7).capitalize()}?\nA) {some(2)}  B) {some(2)}  C) {some(2)}\n",
    "chat": lambda i: (
        f"[{number(24):02}:{number(60):02}] <{word()}{i % 4}> {some(5)} "
        f"{chance.choice(('lol', ':)', '?', 'brb', '...'))}\n"
    ),
    "front matter": lambda _: (
        f'---\ntitle: "{some(4).title()}"\ntags: [{word()}, {word()}]\ndraft: false\n---\n\n# {word().title()}'
        f"\n\n{some(12)}\n\n"
    ),
    "escaped": lambda _: f'\\"{word()}\\": \\"{some(3)}\\",\\n\\t\\u00{hexadecimal(1)} ',
    "query string": lambda _: f"{word()}={word()}%20{word()}&{word()}%5B%5D={number(999)}&q=%22{word()}%22&",
    "dns": lambda _: (
        f"{word()}.example.com.\t{number(9999)}\tIN\t{chance.choice(('A', 'MX', 'TXT', 'CNAME'))}\t{word()}."
        f"{word()}.net.\n"
    ),
    "mail quote": lambda _: f"> > {some(8)}\n> {some(7)}\n\n{some(6).capitalize()}.\n\n-- \n{word().title()}\n",
    "constants": lambda i: f"#define {word().upper()}_{word().upper()}_{word().upper()} (1 << {i % 32})\n",
    "tokens": lambda _: f"{word()} {word()}({word()}, {word()}) -> {word()} | {word()} ;; ",
    "abbreviations": lambda _: f"{word()[:3].upper()}/{word()[:2].upper()} {word()[:4]}. {word()[:3]}. ",
    "mixed numbers": lambda _: (
        f"{word()} {number(10 ** chance.randrange(1, 7)):,}{chance.choice((' km', '%', ' MB', '€', ' x', 'k'))}, "
    ),
}


def rows() -> dict[str, list[str]]:
    chance.seed(57)
    return {name: [_filled(row)] for name, row in ROWS.items()}


def _filled(row: Callable[[int], str]) -> str:
    text = ""
    for number_of_row in range(SIZE_CHARS):
        if len(text) >= SIZE_CHARS:
            break
        text += row(number_of_row)
    return text


def paragraphs() -> dict[str, list[str]]:
    found: dict[str, str] = json.loads(Path(__file__).with_name("unseen_paragraphs.json").read_text("utf-8"))
    return {name: [text] for name, text in found.items()}
