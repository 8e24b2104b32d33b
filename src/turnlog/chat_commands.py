"""What people can say to a bot beside talking: /new, /sessions, /compact, /stop, /status, /help.

Commands are carried out and answered, never stored and never shown to a model; an unknown one is answered too. They
act on the place they were said in, and on no other.
"""

import re
from typing import Literal, TypeAlias

from msgspec import Struct

from .core import keys
from .core.keys import SessionKey
from .core.query import UNTRASHED, Query
from .core.session import Session
from .errors import TurnlogError
from .library import Turnlog

Language: TypeAlias = Literal["en", "zh"]
LISTED = 10
"""Sessions that /sessions names."""

COMMAND = re.compile(r"/([A-Za-z_\u4e00-\u9fff]{1,32})(?:\s+(.*))?\s*\Z", re.DOTALL)
NAMES = ("new", "sessions", "compact", "stop", "status", "help")
ALIASES = {
    "start": "help",  # what Telegram sends when somebody opens the chat
    "list": "sessions",
    "新会话": "new",
    "新建": "new",
    "会话": "sessions",
    "压缩": "compact",
    "停止": "stop",
    "状态": "status",
    "帮助": "help",
}
_CHINESE = re.compile("[\u3400-\u9fff]")

TEXTS: dict[str, tuple[str, str]] = {
    "new": ("A new conversation has begun ({id}).", "已开始新会话（{id}）。"),
    "no_sessions": ("There are no conversations here yet.", "这里还没有会话。"),
    "sessions": ("Conversations here, newest first:", "这里的会话，最新的在前："),
    "compacted": (
        "Older messages are summarised now: ~{before:,} → ~{after:,} tokens.",
        "较早的消息已压缩：~{before:,} → ~{after:,} tokens。",
    ),
    "compact_failed": ("Nothing was compacted: {why}", "没有压缩：{why}"),
    "stopped": ("Stopped.", "已停止。"),
    "nothing_runs": ("Nothing is running.", "没有正在进行的回答。"),
    "status": (
        "Conversation: {id}{title}\nMessages: {messages}, about {tokens:,} tokens\nNow: {now}",
        "会话：{id}{title}\n消息：{messages} 条，约 {tokens:,} tokens\n目前：{now}",
    ),
    "idle": ("waiting for you", "等待你的消息"),
    "running": ("answering", "正在回答"),
    "waiting": ("answering; {n} messages wait", "正在回答，{n} 条消息等待中"),
    "help": (
        "/new [label]  begin a new conversation\n/sessions  list the conversations here\n"
        "/compact [focus]  summarise what is old\n/stop  stop the answer\n/status  how things are\n/help  this text\n"
        "Everything else is said to the assistant.",
        "/new [名称]  开始新会话\n/sessions  列出这里的会话\n/compact [重点]  压缩较早的内容\n"
        "/stop  停止回答\n/status  当前状态\n/help  显示此帮助\n其他内容都会发给助手。",
    ),
    "unknown": ("There is no command /{name}. /help lists them.", "没有命令 /{name}。/help 列出所有命令。"),
    "error": ("That did not work: {why}", "未能完成：{why}"),
    "busy": (
        "Too many messages are waiting here. This one was not taken in; please send it again in a while.",
        "等待处理的消息太多，这一条没有收下，请稍后再发。",
    ),
    "failed": (
        "No answer could be made. What you wrote is kept and joins your next message.",
        "未能作出回答。你写的内容已保留，会与下一条消息合并。",
    ),
    "overflow": (
        "This does not fit the model, even shortened. Please send less at once, or begin a /new conversation.",
        "内容超出模型上限，缩短后仍放不下。请减少内容，或用 /new 开始新会话。",
    ),
    "interrupted": (
        "The answer was cut short by a restart. Please send the message again if it still matters.",
        "回答因重启而中断。如仍需要，请重新发送。",
    ),
}


class Command(Struct, frozen=True):
    name: str
    rest: str = ""


def parse(text: str) -> Command | None:
    """None: it is not a command, and is said to the model. A path such as /etc/hosts is none."""
    found = COMMAND.match(text.strip())
    if found is None:
        return None
    name = found[1].lower()
    return Command(ALIASES.get(name, name), (found[2] or "").strip())


def language_of(text: str, hint: str) -> Language:
    return "zh" if hint.lower().startswith("zh") or _CHINESE.search(text) else "en"


def say(name: str, language: str, /, **values: object) -> str:
    return TEXTS[name][language == "zh"].format(**values)


async def carry_out(t: Turnlog, place: SessionKey, command: Command, language: Language) -> str:
    """The answer."""
    try:
        return await _answer(t, place, command, language)
    except TurnlogError as error:
        return say("compact_failed" if command.name == "compact" else "error", language, why=str(error))


async def _answer(t: Turnlog, place: SessionKey, command: Command, language: Language) -> str:
    match command.name:
        case "new":
            row = await t.sessions.new(place, label=command.rest or None)
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


async def _selected(t: Turnlog, place: SessionKey) -> Session | None:
    """Looked for, not opened: asking must not begin a session."""
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
