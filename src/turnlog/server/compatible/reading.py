"""Reads what the two wires have in common: the body, its fields, the name of a session, the head.

The body is taken apart lazily: each message stays raw JSON until somebody needs it, because a client sends its whole
history with every request and most of it is known already.
"""

import json
import zlib
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Raw, Struct

from ...core import content as contents, strict_json
from ...core.entries import Block, Message, text_of
from ...core.parameters import Parameters, forces_call
from ...errors import UsageError
from ...turns.context_edits import NO_EDITS, ContextEdits
from ..http.limits import too_large
from ..http.problems import Refusal
from ..service import AnyRequest
from .errors import InvalidField

BODY_MAX_BYTES = 50 * 1024 * 1024
"""A whole history with pictures, after decoding. Vendors accept 32 MB and more."""
MESSAGES_MAX = 100_000
TOOLS_MAX = 512
NAME_MAX_CHARS = 256
IGNORED_MAX = 40
"""Names in the header `turnlog-ignored`."""
NAME_HEADERS = ("x-session-id", "session-id", "session_id", "x-claude-code-session-id")
HANDLE_HEADER = "turnlog-session"
STORE_HEADER = "turnlog-store"
TURN_HEADER = "x-codex-turn-metadata"
RETRY_HEADER = "x-stainless-retry-count"
"""The vendors' SDKs count in it how often they sent this request before."""
NAMING_FIELDS = ("user", "safety_identifier", "prompt_cache_key")
"""RequestFields that name a session only if `[api] session_from` says so."""

Read: TypeAlias = Callable[[bytes], list[Message]]
T = TypeVar("T")
_FIELDS = msgspec.json.Decoder(dict[str, Raw])
_LIST = msgspec.json.Decoder(list[Raw])


class WireRequest(Struct, frozen=True, kw_only=True):
    """A request after its wire has read it."""

    model: str
    is_stream: bool = False
    system: str
    vendor_system: str = ""
    tools: list[dict[str, Any]] = []
    parameters: Parameters = Parameters()
    param_names: Mapping[str, str] = {}
    """Our name of a parameter → its name in the request, where they differ."""
    max_output: int | None = None
    messages: list[bytes]
    read: Read
    name: str | None
    is_stored: bool
    ignored: tuple[str, ...]
    includes_usage: bool = False
    after: tuple[str, int] | None = None
    """(session, turn) of the answer that these messages follow."""
    tip: str | None = None
    """The session that these messages are appended to."""
    point: tuple[str, int] | None = None
    """(session, entry): these messages follow everything up to that entry."""
    echo: dict[str, Any] = {}
    """What the log keeps of the request so that its answer can be told again (`response_objects`)."""
    edits: ContextEdits = NO_EDITS
    """What is to be done to the context first."""
    edit_kinds: tuple[str, ...] = ()
    """The types of the edits that the answer tells about."""

    @property
    def is_compaction(self) -> bool:
        """Whether a compaction is asked for, and no answer."""
        return self.edits.compacts_now

    def kept_parameters(self) -> dict[str, Any]:
        """The parameters as the log keeps them."""
        kept = {**msgspec.to_builtins(self.parameters), "max_output": self.max_output}
        kept.pop("user", None)
        return kept


async def body_of(request: AnyRequest) -> bytes:
    """The decoded body; refuses one that is too large after decoding."""
    data = await request.body()
    match request.headers.get("content-encoding", "identity").strip().lower():
        case "identity" | "":
            return data
        case "gzip" | "x-gzip":
            return _gunzipped(data)
        case "zstd":
            return _unzstd(data)
        case _:
            raise _unknown_encoding()


def _gunzipped(data: bytes) -> bytes:
    unpack = zlib.decompressobj(wbits=31)
    try:
        found = unpack.decompress(data, BODY_MAX_BYTES + 1)
    except zlib.error as error:
        raise InvalidField("the body is not what Content-Encoding says") from error
    if len(found) > BODY_MAX_BYTES:
        raise too_large("the decoded body", BODY_MAX_BYTES)
    if not unpack.eof or unpack.unused_data:
        raise InvalidField("the body is not what Content-Encoding says")
    return found


def _unzstd(data: bytes) -> bytes:
    try:
        import zstandard
    except ImportError as error:
        raise _unknown_encoding() from error
    try:
        with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
            found = reader.read(BODY_MAX_BYTES + 1)
    except zstandard.ZstdError as error:
        raise InvalidField("the body is not what Content-Encoding says") from error
    if len(found) > BODY_MAX_BYTES:
        raise too_large("the decoded body", BODY_MAX_BYTES)
    return found


def _unknown_encoding() -> Refusal:
    return Refusal("the body's Content-Encoding is not known here", status=415, code="encoding", hint="Use gzip.")


def whole_number(value: Any) -> Any:
    """A number without a fraction as an int: JSON has one kind of numbers, and some programs write 5.0 for 5."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


class RequestFields:
    """The fields of a request; each is decoded when it is taken, and those never taken are known at the end."""

    def __init__(self, body: bytes) -> None:
        try:
            self._raw = _FIELDS.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self._raw = {name: Raw(encoded(value)) for name, value in _slowly(body, dict).items()}
        self._taken: set[str] = set()

    def take(self, name: str, kind: type[T], default: T | None = None) -> T | None:
        """null counts as not given."""
        self._taken.add(name)
        raw = self._raw.get(name)
        if raw is None:
            return default
        found = decode(bytes(raw), Any, name)
        if found is None:
            return default
        try:
            return msgspec.convert(whole_number(found) if kind is int else found, kind)
        except msgspec.ValidationError as error:
            raise InvalidField(f"{name}: {error}", param=name) from error

    def needed(self, name: str, kind: type[T]) -> T:
        found = self.take(name, kind)
        if found is None:
            raise InvalidField(f"{name} is required", param=name, code="missing_required_parameter")
        return found

    def number(self, name: str, low: float, high: float) -> float | None:
        found = self.take(name, float)
        if found is not None and not low <= found <= high:
            raise InvalidField(f"{name} must be between {low:g} and {high:g}", param=name)
        return found

    def count(self, name: str) -> int | None:
        found = self.take(name, int)
        if found is not None and found < 1:
            raise InvalidField(f"{name} must be at least 1", param=name)
        return found

    def raw(self, name: str) -> bytes | None:
        """A field as the client wrote it."""
        self._taken.add(name)
        found = self._raw.get(name)
        return None if found is None else bytes(found)

    def messages(self, name: str = "messages", *, may_be_empty: bool = False) -> list[bytes]:
        self._taken.add(name)
        raw = self._raw.get(name, Raw(b"[]"))
        try:
            found = _LIST.decode(raw)
        except msgspec.MsgspecError:
            found = [Raw(encoded(value)) for value in _slowly(bytes(raw), list, name)]
        if not found and not may_be_empty:
            raise InvalidField("there are no messages", param=name, code="missing_required_parameter")
        if len(found) > MESSAGES_MAX:
            raise InvalidField(f"there are more than {MESSAGES_MAX:,} messages", param=name)
        return [bytes(raw) for raw in found]

    def refuse(self, *names: str) -> None:
        """RequestFields that would change what the answer is."""
        for name in names:
            if self.take(name, object) not in (None, False, [], {}):
                raise unsupported(name)

    def rest(self) -> list[str]:
        """RequestFields that nobody took and that have a value."""
        return [name for name, raw in self._raw.items() if name not in self._taken and bytes(raw) != b"null"]


def _slowly(body: bytes, kind: type, param: str | None = None) -> Any:
    """For half characters, which JSON allows and the fast decoder refuses."""
    try:
        found = strict_json.decode(body)
    except msgspec.MsgspecError as error:
        raise InvalidField("the body is not JSON", hint="Send an object, in UTF-8.", param=param) from error
    if not isinstance(found, kind):
        what = f"{param} must be a list" if param else "the body is not a JSON object"
        raise InvalidField(what, hint="Send an object, in UTF-8.", param=param)
    return found


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


def unsupported(name: str, hint: str = "") -> InvalidField:
    return InvalidField(f"{name} is not supported", hint=hint, param=name, code="unsupported_parameter")


def decode(raw: bytes, kind: Any, where: str) -> Any:
    try:
        return strict_json.decode(raw, kind)
    except msgspec.MsgspecError as error:
        raise InvalidField(f"{where}: {error}", param=where) from error


@contextmanager
def located(where: str) -> Generator[None]:
    """Names the message or item in errors of reading it."""
    try:
        yield
    except UsageError as error:
        code = error.code if isinstance(error, InvalidField) else None
        raise InvalidField(f"{where}: {error}", hint=error.hint, param=where, code=code) from error


def reader(messages: Sequence[bytes], read: Read, name: str = "messages", numbers: Sequence[int] = ()) -> Read:
    """Reads one of these messages. `numbers`: of each message in the field `name`, if they are not its own."""

    def read_one(raw: bytes) -> list[Message]:
        try:
            return read(raw)
        except UsageError:
            at = messages.index(raw) if raw in messages else 0
            with located(f"{name}[{numbers[at] if numbers else at}]"):
                raise

    return read_one


def check_last(role: Any, number: int, hint: str, name: str = "messages") -> None:
    """An answer cannot be continued."""
    if role == "assistant":
        what = "item" if name == "input" else "message"
        raise InvalidField(
            f"the last {what} is the assistant's, which cannot be continued", hint=hint, param=f"{name}[{number}]"
        )


content_of = contents.accepted
"""Text or blocks, checked; a UsageError says what is wrong."""


def system_text(value: Any) -> list[str]:
    """The texts of a system prompt, block by block."""
    if isinstance(value, str):
        return [value] if value.strip() else []
    blocks = cast("list[Block]", content_of(value))
    if any(block.get("type") != "text" for block in blocks):
        raise InvalidField("a system prompt holds text only")
    return [text for block in blocks if (text := text_of([block])).strip()]


def own_tool(name: Any, description: Any, schema: Any, where: str) -> dict[str, Any]:
    """A tool in our own form."""
    if not isinstance(name, str) or not 0 < len(name) <= NAME_MAX_CHARS:
        raise InvalidField("a tool needs a name", param=f"{where}.name")
    if schema is not None and not isinstance(schema, dict):
        raise InvalidField("the schema of a tool is an object", param=where)
    contents.check_json(schema, where)
    words = description if isinstance(description, str) else ""
    return {"name": name, "description": words, "input_schema": cast("dict[str, Any]", schema or {})}


def check_choice(given: Parameters, tools: Sequence[Mapping[str, Any]]) -> None:
    """A call that is asked for needs its tool: without it the answer would be another one."""
    names = {str(tool.get("name")) for tool in (*tools, *given.server_tools)}
    if forces_call(given) and (not names or (given.tool and given.tool not in names)):
        what = f"there is no tool {given.tool[:80]!r}" if names else "there are no tools"
        raise InvalidField(f"tool_choice asks for a call, but {what}", param="tool_choice")


def check_tools(tools: Sequence[Any]) -> None:
    if len(tools) > TOOLS_MAX:
        raise InvalidField(f"there are more than {TOOLS_MAX} tools", param="tools")


def check_names(tools: Sequence[Mapping[str, Any]]) -> None:
    names = [tool["name"] for tool in tools]
    if len(set(names)) < len(names):
        raise InvalidField("two tools have the same name", param="tools")


def session_name(headers: Mapping[str, str], metadata: Mapping[str, Any], more: Mapping[str, Any]) -> str | None:
    """What the client calls its conversation. `more`: fields that the settings allow as names."""
    named: list[Any] = [headers.get(header) for header in NAME_HEADERS]
    # Claude Code writes JSON into the user's id.
    named += [metadata.get("session_id"), _in_json(metadata.get("user_id"), "session_id"), *more.values()]
    found = next((name for name in named if isinstance(name, str) and name), None)
    return None if found is None else checked_name(found)


def _in_json(value: Any, name: str) -> Any:
    """A field of an object that a client wrote as text."""
    if not isinstance(value, str) or not value.startswith("{"):
        return None
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", found).get(name) if isinstance(found, dict) else None


def turn_id(headers: Mapping[str, str]) -> str:
    """The client's own id of the turn that it asks for; Codex sends one."""
    found = _in_json(headers.get(TURN_HEADER), "turn_id")
    return found[:NAME_MAX_CHARS] if isinstance(found, str) else ""


def checked_name(name: str) -> str:
    if len(name) > NAME_MAX_CHARS or any(ord(letter) < 32 or 127 <= ord(letter) < 160 for letter in name):
        raise InvalidField(
            "the name of a session is too long or has control characters",
            hint=f"Use 1 to {NAME_MAX_CHARS} characters.",
            code="invalid_session_name",
        )
    return name


def is_stored(headers: Mapping[str, str], store: bool | None, store_false: str) -> bool:
    if headers.get(STORE_HEADER, "").strip().lower() == "none":
        return False
    return not (store is False and store_false == "nothing")


def ignored_header(names: Collection[str]) -> str:
    """As a header: only names that are plain ASCII, and not too many."""
    plain = [name for name in dict.fromkeys(names) if name.isascii() and name.isprintable() and len(name) <= 64]
    return ",".join(name.replace(",", "_").replace(" ", "_") for name in plain[:IGNORED_MAX])
