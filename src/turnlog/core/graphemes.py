"""Where a text can be cut without tearing a visible character apart: an emoji, a flag, a letter and its marks."""

from itertools import takewhile

_VISIBLE = r"(?:\X(?<=\p{ccc=Virama}))*\X"
"""`\\X` alone parts two Indic consonants that a virama joins into one sign."""


def cut_before(text: str, end: int) -> int:
    """The last boundary between two visible characters up to `end`; 0 inside the first one."""
    if end >= len(text) or text[end - 1 : end + 1].isascii():
        return min(end, len(text))
    import regex  # takes 15 ms to load, and most texts are cut at a blank or not at all

    ends = (found.end() for found in regex.finditer(_VISIBLE, text))
    return max(takewhile(end.__ge__, ends), default=0)
