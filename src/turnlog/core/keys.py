"""Where a message belongs: Inbound → SessionKey, and keys as text.

Only this module creates keys. Two different raw ids never share a key: each part is percent-encoded where it could be
mistaken for punctuation, and nothing is trimmed, lower-cased or replaced.
"""

import re
from functools import lru_cache
from typing import Any, Literal, TypeAlias, get_args

from msgspec import Struct

from ..errors import UsageError
from .arguments import Typed

AGENT_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}\Z")
SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")
MADE_ID = re.compile(r"ses-[0-9]{13}-[a-z0-9]{6}\Z")
"""The form of the ids that Turnlog makes. Only such a text is read as an id without being asked to."""
DEFAULT_AGENT = "main"
APP_CHANNEL = "app"
"""The channel of sessions that a program names itself."""
KEY_MAX_CHARS = 1024
"""A key is an index column and part of every session header; platforms' ids are far shorter."""

PARSED = 4_096
"""Keys whose parts are remembered, a few hundred bytes each: a turn asks for the parts of one key several times."""

ID_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"

ChatKind: TypeAlias = Literal["direct", "group"]
ChatType: TypeAlias = Literal["direct", "group", "thread", "unknown"]

DmScope: TypeAlias = Literal["per-account-channel-peer", "per-channel-peer", "per-peer", "main"]
DM_SCOPES: tuple[DmScope, ...] = get_args(DmScope)
API = "api"
"""The channel of clients that speak the protocol of OpenAI or Anthropic and run their own loop."""
FRAMEWORKS = frozenset({"openai_agents", "langgraph", "claude_agent_sdk", "google_adk", "pydantic_ai"})
"""The channels of sessions that agent frameworks write through an adapter. Their turns are the framework's own: nobody
else marks them as cut short, runs them again or answers them.
"""
KEY_FORMATS = ("canonical", "triple", "zeroclaw")

_FIRST_WORDS = ("agent", "direct", "group", "thread")
"""The words that other formats begin with: an agent with such a name cannot be written as a triple."""

CHAT_TYPES: dict[str, ChatType] = {
    **dict.fromkeys(("direct", "dm", "private", "p2p", "c2c"), "direct"),
    **dict.fromkeys(("group", "channel", "supergroup", "room"), "group"),
    **dict.fromkeys(("thread", "topic"), "thread"),
}


class Inbound(Struct, metaclass=Typed, frozen=True):
    """One incoming message, normalised by an edge. Empty strings count as absent."""

    channel: str
    account: str | None = None
    chat_type: str | None = None
    chat_id: str | None = None
    thread_id: str | None = None
    sender_id: str | None = None
    message_id: str | None = None
    dedupe_id: str | None = None
    text: str = ""
    blocks: tuple[dict[str, Any], ...] = ()


class SessionKey(Struct, metaclass=Typed, frozen=True, kw_only=True):
    """The place of a conversation, as raw parts."""

    agent: str
    channel: str
    kind: ChatKind
    peer: str
    account: str | None = None
    thread: str | None = None

    def __str__(self) -> str:
        return format(self)


class SessionById(Struct, metaclass=Typed, frozen=True):
    """A session by its id, which may have any form that ids may have."""

    id: str


def named(text: str) -> SessionKey | SessionById:
    """What a text means where a program names a session: an id of Turnlog's own form, a key that begins with `agent:`,
    and otherwise the name of a person or thing that the default agent talks with.
    """
    if MADE_ID.match(text):
        return SessionById(text)
    return parse(text) if text.startswith("agent:") else app_key(text)


def app_key(user: str, *, agent: str = DEFAULT_AGENT, channel: str = APP_CHANNEL) -> SessionKey:
    """The key of the direct chat with this user. The text is never read as an id or a key."""
    check_agent(agent)
    for name, value in (("user", user), ("channel", channel)):
        if not value:
            raise UsageError(f"the {name} of a session is empty", hint='Give a name, such as t.session("ann").')
    return _checked(SessionKey(agent=agent, channel=channel, kind="direct", peer=user))


def resolve(inbound: Inbound, *, agent: str = "main", dm_scope: str = "per-account-channel-peer") -> SessionKey:
    """Thread before group before direct."""
    check_agent(agent)
    if dm_scope not in DM_SCOPES:
        raise UsageError(f"unknown dm_scope {dm_scope!r}", hint=f"Use one of {', '.join(DM_SCOPES)}.")
    channel = _need(inbound.channel, "channel")
    thread = inbound.thread_id or None
    if _is_direct(inbound):
        peer = _need(inbound.sender_id or inbound.chat_id, "sender_id")
        return _direct_key(agent, channel, inbound.account or None, peer, thread, dm_scope)
    peer = _need(inbound.chat_id, "chat_id")
    return _checked(
        SessionKey(
            agent=agent, channel=channel, account=inbound.account or None, kind="group", peer=peer, thread=thread
        )
    )


def chat_type(raw: str | None) -> ChatType:
    return CHAT_TYPES.get((raw or "").lower(), "unknown")


def _is_direct(inbound: Inbound) -> bool:
    match chat_type(inbound.chat_type):
        case "direct":
            return True
        case "group" | "thread":
            return False
        case _:
            # A group on an unknown platform must never join a private session.
            return not inbound.chat_id or inbound.chat_id == inbound.sender_id


def _direct_key(
    agent: str, channel: str, account: str | None, peer: str, thread: str | None, dm_scope: str
) -> SessionKey:
    match dm_scope:
        case "per-channel-peer":
            account = None
        case "per-peer":
            channel, account = "any", None
        case "main":
            channel, account, peer = "any", None, "main"
        case _:
            pass
    return _checked(SessionKey(agent=agent, channel=channel, account=account, kind="direct", peer=peer, thread=thread))


def _need(value: str | None, name: str) -> str:
    if not value:
        raise UsageError(f"an inbound message of this kind needs {name}", hint=f"Set {name}.")
    return value


def _checked(key: SessionKey) -> SessionKey:
    if len(format(key)) > KEY_MAX_CHARS:
        raise UsageError(f"the session key is longer than {KEY_MAX_CHARS} characters", hint="Use shorter ids.")
    return key


def format(key: SessionKey, style: str = "canonical") -> str:  # noqa: A001 - keys.format(key) reads as intended
    """The key as text. `triple` cannot express groups and threads; such keys stay canonical."""
    match style:
        case "canonical":
            return _canonical(key)
        case "triple":
            plain = key.kind == "direct" and not key.thread and key.agent not in _FIRST_WORDS
            return _joined(key.agent, key.channel, key.peer) if plain else _canonical(key)
        case "zeroclaw":
            if key.thread:
                return _joined("thread", key.channel, key.peer, key.thread)
            return _joined(key.kind, key.channel, key.peer)
        case _:
            raise UsageError(f"unknown key format {style!r}", hint=f"Use one of {', '.join(KEY_FORMATS)}.")


def shown(text: str, style: str) -> str:
    """A canonical key as it is shown to people: in that style, unless it would then mean another place."""
    key = parse(text)
    found = format(key, style)
    return found if parse(found, agent=key.agent) == key else text


@lru_cache(PARSED)
def _canonical(key: SessionKey) -> str:
    account = (key.account,) if key.account else ()
    thread = ("thread", key.thread) if key.thread else ()
    return _joined("agent", key.agent, key.channel, *account, key.kind, key.peer, *thread)


def _joined(*parts: str) -> str:
    return ":".join(map(encode_part, parts))


@lru_cache(PARSED)
def parse(text: str, *, agent: str = "main") -> SessionKey:
    """Reads any of the three formats. `agent` is used if the format does not name one."""
    if len(text) > KEY_MAX_CHARS:
        raise UsageError(f"the session key is longer than {KEY_MAX_CHARS} characters", hint="Use shorter ids.")
    raw = text.split(":")
    if "" in raw:
        raise _not_a_key(text)
    parts = [decode_part(part) for part in raw]
    match parts:
        case ["agent", name, channel, ("direct" | "group") as kind, peer]:
            key = SessionKey(agent=name, channel=channel, kind=kind, peer=peer)
        case ["agent", name, channel, account, ("direct" | "group") as kind, peer]:
            key = SessionKey(agent=name, channel=channel, account=account, kind=kind, peer=peer)
        case ["agent", name, channel, ("direct" | "group") as kind, peer, "thread", thread]:
            key = SessionKey(agent=name, channel=channel, kind=kind, peer=peer, thread=thread)
        case ["agent", name, channel, account, ("direct" | "group") as kind, peer, "thread", thread]:
            key = SessionKey(agent=name, channel=channel, account=account, kind=kind, peer=peer, thread=thread)
        case ["thread", channel, chat, thread]:
            key = SessionKey(agent=agent, channel=channel, kind="group", peer=chat, thread=thread)
        case [("direct" | "group") as kind, channel, peer]:
            key = SessionKey(agent=agent, channel=channel, kind=kind, peer=peer)
        case [name, channel, peer]:
            key = SessionKey(agent=name, channel=channel, kind="direct", peer=peer)
        case _:
            raise _not_a_key(text)
    check_agent(key.agent)
    return _checked(key)


def peer_of(text: str) -> str:
    """Who or what the conversation is with; empty if the text is no key, as in logs of other programs."""
    try:
        return parse(text).peer
    except UsageError:
        return ""


def _not_a_key(text: str) -> UsageError:
    return UsageError(
        f"{text[:80]!r} is not a session key",
        hint="Write agent:<agent>:<channel>:direct:<peer> or <agent>:<channel>:<peer>.",
    )


def encode_part(part: str) -> str:
    if part.isalnum():
        return part
    return "".join(encode_char(char) if _must_encode(char) else char for char in part)


def _must_encode(char: str) -> bool:
    control = char < " " or "\x7f" <= char < "\xa0"
    return char in ":/%" or char.isspace() or control or "\ud800" <= char <= "\udfff"


def encode_char(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))


_ENCODED = re.compile(r"(?:%[0-9A-Fa-f]{2})+")


def decode_part(part: str) -> str:
    return _ENCODED.sub(_decode_run, part)


def _decode_run(run: re.Match[str]) -> str:
    data = bytes.fromhex(run[0].replace("%", ""))
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return run[0]  # not Turnlog's: leave it unchanged


def check_agent(agent: str) -> str:
    if not AGENT_ID.match(agent):
        raise UsageError(
            f"{agent[:80]!r} is not an agent id",
            hint="Agent ids are 1 to 64 of a-z, 0-9, _ and -, beginning with a letter or digit.",
        )
    return agent


def check_session_id(session_id: str) -> str:
    """Checks an id before every use, because one store uses ids as file names. Every store calls this."""
    if not SESSION_ID.match(session_id):
        raise UsageError(
            f"{session_id[:80]!r} is not a session id",
            hint="Session ids are 1 to 64 of A-Z, a-z, 0-9, _ and -, beginning with a letter or digit.",
        )
    return session_id


def session_id(now_ms: int, random: bytes) -> str:
    """`random`: six bytes. There are 36^6 suffixes per millisecond; stores refuse an id that exists already."""
    return f"ses-{now_ms:013d}-" + "".join(ID_ALPHABET[byte % 36] for byte in random[:6])
