"""The commands of a chat: /new, /sessions, /compact, /stop, /yes, /no, /status, /help.

A command is run and answered, but never stored and never shown to a model; so is an unknown one. It acts only on the
sessions of the chat it was written in.
"""

import re

from msgspec import Struct

from ..core import approvals, keys
from ..core.keys import SessionKey
from ..core.query import UNTRASHED, Query
from ..core.session import Session
from ..errors import TurnlogError
from ..library import Turnlog
from ..texts import Language, Texts

ALWAYS = ("always", "总是")
LISTED = 10
"""Sessions that /sessions lists."""

COMMAND = re.compile(r"/([A-Za-z_\u4e00-\u9fff]{1,32})(?:\s+(.*))?\s*\Z", re.DOTALL)
ALIASES = {
    "start": "help",  # what Telegram sends when somebody opens the chat
    "list": "sessions",
    "新会话": "new",
    "新建": "new",
    "会话": "sessions",
    "压缩": "compact",
    "停止": "stop",
    "同意": "yes",
    "拒绝": "no",
    "状态": "status",
    "帮助": "help",
}
_CHINESE = re.compile("[\u3400-\u9fff]")


class Sender(Struct, frozen=True):
    """Who wrote a command."""

    name: str
    """As the log names the person."""
    may_approve: bool = False
    """Whether the account names this person as somebody who may answer for calls that wait."""


class ChatCommand(Struct, frozen=True):
    name: str
    rest: str = ""


def parse(text: str) -> ChatCommand | None:
    """None: the text is not a command, and goes to the model. A path such as /etc/hosts is not a command."""
    found = COMMAND.match(text.strip())
    if found is None:
        return None
    name = found[1].lower()
    return ChatCommand(ALIASES.get(name, name), (found[2] or "").strip())


def language_of(text: str, hint: str) -> Language:
    return "zh" if hint.lower().startswith("zh") or _CHINESE.search(text) else "en"


def say(name: str, language: Language, /, **values: object) -> str:
    return Texts("channel", language)(name, **values)


async def run(t: Turnlog, place: SessionKey, command: ChatCommand, language: Language, sender: Sender) -> str:
    """Returns the reply."""
    try:
        if command.name in ("yes", "no"):
            return await _word(t, place, command, language, sender)
        return await _answer(t, place, command, language)
    except TurnlogError as error:
        return say("compact_failed" if command.name == "compact" else "error", language, why=str(error))


async def _answer(t: Turnlog, place: SessionKey, command: ChatCommand, language: Language) -> str:
    match command.name:
        case "new":
            row = await t.new(place, command.rest or None, may_move=False)
            return say("new", language, id=row.id)
        case "sessions":
            return await _sessions(t, place, language)
        case "compact":
            done = await t.compact(place, focus=command.rest)
            return say("compacted", language, before=done.tokens_before, after=done.tokens_after)
        case "stop":
            row = await _selected(t, place)
            return say("stopped" if row and await t.stop_anywhere(row.id) else "nothing_runs", language)
        case "status":
            return await _status(t, place, language)
        case "help":
            return say("help", language)
        case _:
            return say("unknown", language, name=command.name[:32])


async def _word(t: Turnlog, place: SessionKey, command: ChatCommand, language: Language, sender: Sender) -> str:
    """/yes [always] and /no [REASON]: about the call that waits longest."""
    row = await _selected(t, place)
    waiting = approvals.unanswered(approvals.asked(await t.sessions.read(row.id))) if row and row.waiting else []
    if row is None or not waiting:
        return say("approval_none", language)
    if not sender.may_approve:
        return say("approval_not_you", language)
    call, seq = waiting[0].call, waiting[0].seq
    if command.name == "yes":
        always = command.rest.lower() in ALWAYS
        if command.rest and not always:
            return say("approval_how", language)
        await t.approve(row, call, always=always, by=sender.name, request=seq)
        return say("approval_given", language)
    await t.deny(row, call, command.rest, by=sender.name, request=seq)
    return say("approval_denied", language)


async def _selected(t: Turnlog, place: SessionKey) -> Session | None:
    """Searches and does not open: a command must not begin a session."""
    found = await t.sessions.list(Query(key=keys.format(place), status="active", limit=1))
    return found.items[0] if found.items else None


async def _sessions(t: Turnlog, place: SessionKey, language: Language) -> str:
    rows = (await t.sessions.list(Query(key=keys.format(place), status=UNTRASHED, limit=LISTED))).items
    if not rows:
        return say("no_sessions", language)
    lines = [f"{'*' if row.status == 'active' else '-'} {row.id}  {row.label or row.title}".rstrip() for row in rows]
    return "\n".join((say("sessions", language), *lines))


async def _status(t: Turnlog, place: SessionKey, language: Language) -> str:
    row = await _selected(t, place)
    if row is None:
        return say("no_sessions", language)
    now = say("running" if t.queue.running(row.id) else "idle", language)
    if row.received:
        now = say("waiting", language, n=len(row.received))
    name = row.label or row.title
    return say(
        "status",
        language,
        id=row.id,
        title=f" ({name})" if name else "",
        messages=row.message_count,
        tokens=row.token_estimate,
        now=now,
    )
