"""`turnlog chat -r`: choose a session by title, first and last message; rename or delete sessions there."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct
from prompt_toolkit.application import Application
from prompt_toolkit.filters import Condition, FilterOrBool
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import FormattedTextControl, Layout, Window
from prompt_toolkit.styles import Style

from ...core import names
from ...core.entries import MESSAGES, text_of
from ...core.query import PAGE_MAX, UNTRASHED, Query
from ...core.session import Session
from ...errors import TurnlogError
from ...texts import Texts
from ..escaping import inline, pad, width
from ..options import Flags
from ..session_names import age
from .terminal import make_output

if TYPE_CHECKING:
    from ...library import Turnlog

SHOWN = 6
"""Sessions on the screen at once, two lines each."""
NEAR_END = 12
"""Entries read from the end to find the last message."""
STYLE = Style.from_dict({"here": "bold ansigreen", "quiet": "ansibrightblack"})

PickerMode: TypeAlias = Literal["search", "rename", "delete"]


class Preview(Struct, frozen=True):
    row: Session
    first: str = ""
    last: str = ""

    @property
    def haystack(self) -> str:
        row = self.row
        return "\n".join((row.title, row.label or "", self.first, self.last)).casefold()

    def has(self, word: str) -> bool:
        return word in self.haystack or self.row.id.casefold().startswith(word)


async def preview_of(t: "Turnlog", row: Session) -> Preview:
    """Reads the first and the last message, and not the whole session."""
    first = await t.sessions.read(row.id, after=row.first_message - 1, limit=1) if row.first_message else []
    recent = await t.sessions.read(row.id, before=row.last_seq + 1, limit=NEAR_END) if first else []
    said = [text_of(entry.content) for entry in (*first, *recent) if isinstance(entry, MESSAGES)]
    said = [text for text in said if text.strip()]
    return Preview(row, inline(said[0], 200), inline(said[-1], 200)) if said else Preview(row)


class Picker:
    """The list on the screen, and what the keys do to it."""

    def __init__(self, t: "Turnlog", words: Texts, columns: int) -> None:
        self._t = t
        self._words = words
        self._columns = columns
        self.all: list[Preview] = []
        self.typed = ""
        self.mode: PickerMode = "search"
        self.at = 0
        self._query = ""

    @property
    def matching(self) -> list[Preview]:
        query = (self.typed if self.mode == "search" else self._query).casefold().split()
        return [item for item in self.all if all(map(item.has, query))]

    @property
    def current(self) -> Preview | None:
        found = self.matching
        self.at = max(0, min(self.at, len(found) - 1))
        return found[self.at] if found else None

    def move(self, by: int) -> None:
        self.at += by
        _ = self.current

    def enter(self, mode: PickerMode) -> None:
        """Switches from searching to renaming or deleting the current session."""
        if self.current is not None:
            self._query, self.mode = self.typed, mode
            self.typed = self.current.row.title if mode == "rename" else ""

    def leave(self) -> None:
        """Switches back to the search."""
        self.mode, self.typed = "search", self._query

    async def carry_out(self) -> None:
        """Renames or deletes the current session, at Enter."""
        chosen = self.current
        if chosen is not None and self.mode == "rename" and self.typed.strip():
            renamed = await self._t.sessions.rename(chosen.row.id, self.typed)
            self.all = [Preview(renamed, p.first, p.last) if p is chosen else p for p in self.all]
        elif chosen is not None and self.mode == "delete" and self.typed.strip().lower() in ("y", "yes"):
            await self._t.sessions.delete(chosen.row.id)
            self.all = [item for item in self.all if item is not chosen]
        self.leave()

    def text(self) -> StyleAndTextTuples:
        current, found = self.current, self.matching
        first = max(0, min(self.at - SHOWN // 2, len(found) - SHOWN))
        lines: StyleAndTextTuples = []
        for item in found[first : first + SHOWN]:
            lines += self._item(item, item is current)
        count = f"{self.at + 1 if found else 0}/{len(found)}"
        lines.append(("class:quiet", inline(f"{count}  {self._words('pick')}", self._columns - 1) + "\n"))
        lines.append(("", inline(f"{self._question()}{self.typed}", self._columns - 1)))
        lines.append(("[SetCursorPosition]", ""))
        return lines

    def _question(self) -> str:
        current = self.current
        if self.mode == "search" or current is None:
            return "› "
        if self.mode == "rename":
            return self._words("pick_rename") + " "
        return self._words("pick_delete", name=inline(current.row.title or current.row.id, 30)) + " "

    def _item(self, item: Preview, is_current: bool) -> StyleAndTextTuples:
        row, room = item.row, self._columns - 1
        mark = "❯ " if is_current else "  "
        facts = f"{age(row.last_at)} · {row.message_count}"
        name = " · ".join(filter(None, (row.label, row.title))) or row.id
        title = pad(mark + inline(name, max(1, room - width(facts) - 3)), room - width(facts))
        said = inline(f"{item.first} … {item.last}" if item.last != item.first else item.first, room - 4)
        style = "class:here" if is_current else ""
        return [(style, title), ("class:quiet", f"{facts}\n"), ("class:quiet", f"    {said}\n")]


async def pick_session(t: "Turnlog", flags: Flags, words: Texts) -> str | None:
    """The id of the chosen session; None if none was chosen."""
    output = make_output()
    picker = Picker(t, words, output.get_size().columns)
    app: Application[str | None] = Application(
        layout=Layout(Window(FormattedTextControl(picker.text, focusable=True), wrap_lines=False)),
        key_bindings=_bindings(picker),
        style=STYLE,
        output=output,
        erase_when_done=True,
    )
    loading = asyncio.create_task(_load(t, flags, picker, app))
    try:
        return await app.run_async()
    finally:
        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)


async def _load(t: "Turnlog", flags: Flags, picker: Picker, app: "Application[str | None]") -> None:
    page = await t.sessions.list(Query(agent=flags.agent_name, channel="cli", status=UNTRASHED, limit=PAGE_MAX))
    picker.all = [Preview(row) for row in page.items]
    app.invalidate()
    for number, row in enumerate(page.items):
        try:
            picker.all = [p if p.row.id != row.id else await preview_of(t, p.row) for p in picker.all]
        except TurnlogError:
            continue  # damaged, or deleted meanwhile: it is listed without a preview
        if number % SHOWN == 0:
            app.invalidate()
    app.invalidate()


def _bindings(picker: Picker) -> KeyBindings:
    keys = KeyBindings()
    searching = Condition(lambda: picker.mode == "search")

    def bind(name: str, act: Callable[[], None], when: FilterOrBool = True) -> None:
        def pressed(event: KeyPressEvent) -> None:
            act()

        keys.add(name, filter=when)(pressed)

    for name, by in {"up": -1, "c-p": -1, "down": 1, "c-n": 1}.items():
        bind(name, partial(picker.move, by))
    bind("c-r", partial(picker.enter, "rename"), searching)
    bind("c-d", partial(picker.enter, "delete"), searching)

    @keys.add("enter", filter=searching)
    def _(event: KeyPressEvent) -> None:
        if picker.current is not None:
            event.app.exit(result=picker.current.row.id)

    @keys.add("enter", filter=~searching)
    async def _(event: KeyPressEvent) -> None:
        await picker.carry_out()
        event.app.invalidate()

    @keys.add("escape", eager=True)
    @keys.add("c-c")
    def _(event: KeyPressEvent) -> None:
        if picker.mode == "search":
            event.app.exit(result=None)
        else:
            picker.leave()

    @keys.add("backspace")
    def _(event: KeyPressEvent) -> None:
        picker.typed = picker.typed[:-1]

    @keys.add(Keys.Any)
    def _(event: KeyPressEvent) -> None:
        if names.is_one_line(event.data):
            picker.typed += event.data
            picker.at = 0 if picker.mode == "search" else picker.at

    return keys
