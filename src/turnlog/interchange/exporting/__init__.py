"""A session as text for other programs and for people.

`native`, `v3` and `flat` are exact: reading them gives the same entries, so secrets stay in them unless `mask` is set.
`json` holds the messages of the conversation in a provider's shape; `md` and `html` are for reading. In these three,
secrets of known shapes are masked. `Losses` names what a format cannot hold.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from itertools import chain
from typing import Literal, TypeAlias, get_args

import msgspec

from ...core import entries as kinds
from ...core.entries import MESSAGES, REFUSED_CONTENT, Entry
from ...core.masking import mask_all
from ...core.session import Session
from ...errors import UsageError
from . import lines, markdown, messages, web
from .writing import ExportWriter

ExportFormat: TypeAlias = Literal["native", "v3", "flat", "md", "json", "html"]
ExportShape: TypeAlias = Literal["anthropic", "openai"]
FORMATS: tuple[str, ...] = get_args(ExportFormat)
EXACT = ("native", "v3", "flat")
SHAPES: tuple[str, ...] = get_args(ExportShape)


def export(
    entries: Sequence[Entry],
    session: Session,
    format: str,  # noqa: A002 - export(…, format="md") reads as intended
    *,
    shape: str = "anthropic",
    mask: bool | None = None,
) -> Iterator[str]:
    """The text in pieces. `entries`: the whole transcript. `mask`: hide secrets; default in all but the
    exact formats.
    """
    writer = _writer(session, format, shape, mask)
    for number in range(writer.looks):
        writer.look(number, entries)
    return chain(writer.begin(), writer.write(entries), writer.end())


Pages: TypeAlias = Callable[[], AsyncIterator[Sequence[Entry]]]
"""Reads a transcript from its beginning, in parts."""


async def stream(
    pages: Pages,
    session: Session,
    format: str,  # noqa: A002 - the public name
    *,
    shape: str = "anthropic",
    mask: bool | None = None,
) -> AsyncGenerator[str]:
    """The same text, of a transcript that is never in memory as a whole: it is read once to write it, and before that
    as often as the format has to look ahead.
    """
    writer = _writer(session, format, shape, mask)
    for number in range(writer.looks):
        async for page in pages():
            await asyncio.to_thread(writer.look, number, page)
    yield "".join(writer.begin())
    async for page in pages():
        yield await asyncio.to_thread(_joined, writer, page)
    yield "".join(writer.end())


def _joined(writer: ExportWriter, page: Sequence[Entry]) -> str:
    return "".join(writer.write(page))


def _writer(session: Session, form: str, shape: str, mask: bool | None) -> ExportWriter:
    _check(form, shape)
    masked = mask if mask is not None else form not in EXACT
    if masked:
        session = msgspec.convert(mask_all(msgspec.to_builtins(session)), Session)
    match form:
        case "native" | "v3" | "flat":
            writer: ExportWriter = lines.LineWriter(form)
        case "json":
            writer = messages.MessagesWriter(session, shape)
        case "md":
            writer = markdown.MarkdownWriter(session)
        case _:
            writer = web.WebWriter(session)
    return _Masked(writer) if masked else writer


class _Masked(ExportWriter):
    """Hides secrets from another writer."""

    def __init__(self, writer: ExportWriter) -> None:
        self._writer = writer
        self.looks = writer.looks
        self.begin, self.end = writer.begin, writer.end

    def look(self, number: int, page: Sequence[Entry]) -> None:
        if not self._writer.looks_at_messages:  # then their secrets need not be looked for twice
            page = [entry for entry in page if not _is_plain_message(entry) or entry is page[-1]]
        self._writer.look(number, _mask(page))

    def write(self, page: Sequence[Entry]) -> Iterator[str]:
        return self._writer.write(_mask(page))


def _is_plain_message(entry: Entry) -> bool:
    return isinstance(entry, MESSAGES) and entry.after is None


def _mask(page: Sequence[Entry]) -> list[Entry]:
    return [msgspec.convert(mask_all(msgspec.to_builtins(entry)), Entry) for entry in page]


def _check(form: str, shape: str) -> None:
    if form not in FORMATS:
        raise UsageError(f"unknown format {form!r}", hint=f"Use one of {', '.join(FORMATS)}.")
    if shape not in SHAPES:
        raise UsageError(f"unknown shape {shape!r}", hint=f"Use one of {', '.join(SHAPES)}.")


class Losses:
    """The parts of a transcript that a format cannot hold, in words."""

    def __init__(self, format: str, *, shape: str = "anthropic") -> None:  # noqa: A002 - the public name
        _check(format, shape)
        self._format = format
        self._kinds = () if format in EXACT else _LOSSES if format != "json" else (*_LOSSES, *_JSON_LOSSES)
        if format == "json" and shape == "openai":
            self._kinds += messages.OPENAI_LOSSES
        self._found: set[str] = set()

    def look(self, page: Sequence[Entry]) -> None:
        missing = [(what, is_there) for what, is_there in self._kinds if what not in self._found]
        self._found.update(what for what, is_there in missing if any(map(is_there, page)))

    def words(self) -> list[str]:
        found = [what for what, _ in self._kinds if what in self._found]
        return [*found, "it cannot be imported again"] if self._format in ("md", "html") else found


def losses(entries: Sequence[Entry], format: str, *, shape: str = "anthropic") -> list[str]:  # noqa: A002 - the public name
    """Those of a whole transcript."""
    found = Losses(format, shape=shape)
    found.look(entries)
    return found.words()


def _is(*wanted: type[Entry]) -> Callable[[Entry], bool]:
    return lambda entry: isinstance(entry, wanted)


_LOSSES: tuple[tuple[str, Callable[[Entry], bool]], ...] = (
    ("rewound branches are left out", lambda entry: isinstance(entry, kinds.Rewind) or entry.after is not None),
    ("pins are left out", _is(kinds.Pin)),
    ("shortened tool results are whole", _is(kinds.Shortened)),
    ("foreign entries are left out", _is(kinds.Foreign)),
)
_JSON_LOSSES: tuple[tuple[str, Callable[[Entry], bool]], ...] = (
    ("undone compactions are left out", _is(kinds.Undo)),
    (
        "messages that the model refused are among the others",
        lambda e: isinstance(e, kinds.Failed) and e.code == REFUSED_CONTENT,
    ),
    ("why turns failed is left out", _is(kinds.Failed)),
    ("messages that were received and joined are one", _is(kinds.Received)),
    (
        "senders and ids of messages are left out",
        lambda e: isinstance(e, kinds.User) and bool(e.sender or e.message_id),
    ),
)
