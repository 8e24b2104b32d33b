"""A session as text for other programs and for people.

`native`, `v3` and `flat` are exact: reading them gives the same entries, so secrets stay in them unless `mask` is set.
`json` holds the messages of the conversation in a provider's shape; `md` and `html` are for reading. In these three,
secrets of known shapes are masked. `losses` names what a format cannot hold.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeAlias, get_args

import msgspec

from ...core.entries import REFUSED_CONTENT, Entry, Failed, Foreign, Pin, Received, Rewind, Shortened, Undo, User
from ...core.masking import mask_all
from ...core.session import Session
from ...errors import UsageError
from . import lines, markdown, messages, web

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
    _check(format, shape)
    if mask if mask is not None else format not in EXACT:
        entries = [msgspec.convert(mask_all(msgspec.to_builtins(entry)), Entry) for entry in entries]
        session = msgspec.convert(mask_all(msgspec.to_builtins(session)), Session)
    match format:
        case "native" | "v3" | "flat":
            return lines.write(entries, format)
        case "json":
            return messages.write(entries, session, shape)
        case "md":
            return markdown.write(entries, session)
        case _:
            return web.write(entries, session)


def _check(form: str, shape: str) -> None:
    if form not in FORMATS:
        raise UsageError(f"unknown format {form!r}", hint=f"Use one of {', '.join(FORMATS)}.")
    if shape not in SHAPES:
        raise UsageError(f"unknown shape {shape!r}", hint=f"Use one of {', '.join(SHAPES)}.")


def losses(entries: Sequence[Entry], format: str, *, shape: str = "anthropic") -> list[str]:  # noqa: A002
    """The parts of this transcript that this format cannot hold, in words."""
    _check(format, shape)
    if format in EXACT:
        return []
    found = [what for what, is_there in _LOSSES if any(map(is_there, entries))]
    if format != "json":
        return [*found, "it cannot be imported again"]
    found += [what for what, is_there in _JSON_LOSSES if any(map(is_there, entries))]
    return found + messages.openai_losses(entries) if shape == "openai" else found


def _is(*kinds: type[Entry]) -> Callable[[Entry], bool]:
    return lambda entry: isinstance(entry, kinds)


_LOSSES: tuple[tuple[str, Callable[[Entry], bool]], ...] = (
    ("rewound branches are left out", lambda entry: isinstance(entry, Rewind) or entry.after is not None),
    ("pins are left out", _is(Pin)),
    ("shortened tool results are whole", _is(Shortened)),
    ("foreign entries are left out", _is(Foreign)),
)
_JSON_LOSSES: tuple[tuple[str, Callable[[Entry], bool]], ...] = (
    ("undone compactions are left out", _is(Undo)),
    (
        "messages that the model refused are among the others",
        lambda e: isinstance(e, Failed) and e.code == REFUSED_CONTENT,
    ),
    ("why turns failed is left out", _is(Failed)),
    ("messages that were received and joined are one", _is(Received)),
    ("senders and ids of messages are left out", lambda e: isinstance(e, User) and bool(e.sender or e.message_id)),
)
