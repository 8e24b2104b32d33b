"""The commands of the chat: one table of names, usage and help, and how a typed line finds its place in it.

`/help`, completion, the documentation's table and the errors are all made from this table.
"""

from collections.abc import Awaitable, Callable
from difflib import get_close_matches
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from . import context_commands as context, session_commands as sessions
from .escaping import inline
from .messages import Words

if TYPE_CHECKING:
    from .fronts import Front
    from .repl import Chat

Act: TypeAlias = "Callable[[Chat, Front, str], Awaitable[None]]"


class Command(Struct, frozen=True):
    name: str
    usage: str
    english: str
    chinese: str
    act: Act
    aliases: tuple[str, ...] = ()
    takes_session: bool = False
    needs_argument: bool = False

    def line(self, words: Words) -> str:
        return words.choose(self.english, self.chinese)


async def _help(chat: "Chat", front: "Front", rest: str) -> None:
    for line in help_lines(chat.words):
        front.show(line)


async def _quit(chat: "Chat", front: "Front", rest: str) -> None:
    chat.over = True


async def _stop(chat: "Chat", front: "Front", rest: str) -> None:
    if not chat.stop():
        front.show(chat.words("no_turn"))


TABLE: tuple[Command, ...] = (
    Command("new", "/new [label]", "start a new session here", "新建会话", sessions.new),
    Command("sessions", "/sessions", "list sessions, newest first", "列出会话，最新在前", sessions.list_, ("list",)),
    Command(
        "switch",
        "/switch X",
        "go to a session by id, key or label, or the beginning of one",
        "按 id、键或标签（或其开头）切换会话",
        sessions.switch,
        takes_session=True,
        needs_argument=True,
    ),
    Command("history", "/history [n]", "what was said, with markers", "显示对话和标记", sessions.history),
    Command("context", "/context", "what fills the window", "上下文占用情况", context.context),
    Command("compact", "/compact [focus]", "fold what is old under a summary", "压缩旧内容", context.compact),
    Command(
        "undo-compact", "/undo-compact", "take back the newest compaction", "撤销最近一次压缩", context.undo_compact
    ),
    Command("expand", "/expand [seq]", "what a compaction stands for", "查看压缩所代表的原文", context.expand),
    Command("rewind", "/rewind [n]", "go back n turns; nothing is removed", "回退 n 轮，不删除内容", context.rewind),
    Command("fork", "/fork [label]", "go on in a copy of this session", "在副本中继续", sessions.fork),
    Command("rename", "/rename T", "give this session a title", "为会话命名", sessions.rename, needs_argument=True),
    Command("pin", "/pin [seq]", "keep a message word for word [the last]", "固定一条消息，保留原文", context.pin),
    Command("unpin", "/unpin [seq]", "let it be folded again [the last]", "取消固定", context.unpin),
    Command("search", "/search WORDS", "search all sessions", "搜索所有会话", sessions.search, needs_argument=True),
    Command("recall", "/recall WORDS", "search the memory", "搜索记忆", sessions.recall, needs_argument=True),
    Command(
        "export",
        "/export md|jsonl|html",
        "write this session to a file",
        "导出会话",
        sessions.export,
        needs_argument=True,
    ),
    Command(
        "delete",
        "/delete X",
        "delete a session, after asking",
        "删除会话（会先询问）",
        sessions.delete,
        takes_session=True,
        needs_argument=True,
    ),
    Command("model", "/model [NAME]", "show or change the model", "查看或更换模型", context.model),
    Command("cost", "/cost", "tokens and money of this session", "本会话的用量与费用", context.cost),
    Command("stop", "/stop", "stop the running turn (Ctrl-C)", "停止当前一轮（Ctrl-C）", _stop),
    Command("help", "/help", "this list", "显示本列表", _help),
    Command("quit", "/quit", "leave (quit, exit, Ctrl-D)", "退出（quit、exit、Ctrl-D）", _quit, ("exit",)),
)
"""The most used first: this is the order of /help and of completion."""


def help_lines(words: Words) -> list[str]:
    room = max(len(command.usage) for command in TABLE)
    return [f"{command.usage:<{room}}  {command.line(words)}" for command in TABLE]


def matches(name: str) -> list[Command]:
    """The command of this name, else all that begin so."""
    wanted = name.lower()
    exact = [command for command in TABLE if wanted in (command.name, *command.aliases)]
    begun = [c for c in TABLE if any(known.startswith(wanted) for known in (c.name, *c.aliases))]
    return exact or (begun if wanted else [])


async def run(chat: "Chat", front: "Front", line: str) -> None:
    name, _, rest = line[1:].strip().partition(" ")
    found = matches(name)
    words = chat.words
    if len(found) > 1:
        names = ", ".join(f"/{command.name}" for command in found)
        front.show(words("ambiguous_command", name=inline(name), matches=names), "bad")
    elif not found:
        front.show(words("unknown", name=inline(f"/{name}", 60), hint=_hint(name, words)), "bad")
    elif found[0].needs_argument and not rest.strip():
        front.show(words("usage", usage=found[0].usage), "bad")
    else:
        await found[0].act(chat, front, rest.strip())


def _hint(name: str, words: Words) -> str:
    near = get_close_matches(name.lower(), [command.name for command in TABLE], n=1)
    return words("near", name=near[0]) if near else words("see_help")
