r"""Keeps formulas as they were written: markdown would drop their backslashes and read their underscores.

A formula is `$$…$$`, `\(…\)`, `\[…\]`, or `$…$` without a blank at its inner edges and without a digit after it, so
that prices are not formulas. It ends in the paragraph in which it begins.
"""

import re

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline

_FORMULA = re.compile(
    r"\$\$(?:[^$\\]|\\.)+\$\$"
    r"|\$(?!\s)(?:[^$\\\n]|\\.)+(?<!\s)\$(?!\d)"
    r"|\\\((?:[^\\]|\\(?!\)).)+?\\\)"
    r"|\\\[(?:[^\\]|\\(?!\]).)+?\\\]",
    re.DOTALL,
)
FORMULA_MAX_CHARS = 1_000


def keep_formulas(parser: MarkdownIt) -> None:
    parser.inline.ruler.before("escape", "formula", _take)


def _take(state: StateInline, silent: bool) -> bool:
    if state.src[state.pos] not in "$\\":
        return False
    found = _FORMULA.match(state.src, state.pos, min(state.posMax, state.pos + FORMULA_MAX_CHARS))
    if found is None:
        return False
    if not silent:
        token = state.push("text", "", 0)
        token.content = found[0]
    state.pos = found.end()
    return True
