"""Scripted answers, in order: for tests and demonstrations.

A script is a file of JSON lines, one reply each. Lines with `"for": "summary"` are for the summariser, all others for
turns. FILE.position counts the used replies, so that the next process continues where this one stopped, and no two
processes get the same line. After the end every reply is "ok". The prompt is ignored.
"""

import asyncio
import fcntl
import os
import uuid
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias

import msgspec
from msgspec import Struct, field

from ..core.entries import Assistant, Usage
from ..core.overflow import classify
from ..core.parameters import ALL
from ..core.prompt import Prompt
from ..errors import UsageError
from . import CallPiece, Delta
from .streaming import refused

Purpose: TypeAlias = Literal["turn", "summary"]


class ScriptedCall(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool call; without an id it gets a new one each time."""

    name: str
    input: dict[str, Any] = {}
    id: str = ""


class ScriptedFailure(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A provider's error; status, code and text decide what it means, as with a real provider."""

    message: str = ""
    status: int | None = None
    code: str = ""
    retry_after_s: float | None = None


class ScriptedReply(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of a script: a text, tool calls, or an error, which comes after its deltas."""

    text: str = ""
    thinking: str = ""
    tool_calls: tuple[ScriptedCall, ...] = ()
    error: ScriptedFailure | None = None
    deltas: tuple[str, ...] = ()
    usage: Usage | None = None
    stop: str | None = None
    """Why the answer ended, if its content does not say: "refusal" of a filter, "max_tokens" …"""
    delay_ms: int = 0
    """The delay before each piece of the answer, or before the answer if it has no pieces."""
    until: str = ""
    """A file: the last piece of the answer waits until it is there."""
    purpose: Purpose = field(default="turn", name="for")


PAST_THE_END = ScriptedReply(text="ok")
LOOK_AGAIN_S = 0.01
"""Between two looks for the file that an answer waits for: far less than a person or a test notices."""


async def play(reply: ScriptedReply, model: str) -> AsyncGenerator[Delta | Assistant]:
    if reply.thinking:
        yield Delta(thinking=reply.thinking)
    pieces = reply.deltas or ((reply.text,) if reply.text and not reply.error else ())
    for number, piece in enumerate(pieces, 1):
        await _pause(reply, last=number == len(pieces))
        yield Delta(text=piece)
    if not pieces:
        await _pause(reply)
    _raise_failure(reply.error)
    text = _text_of(reply)
    blocks: list[dict[str, Any]] = [{"type": "thinking", "thinking": reply.thinking}] if reply.thinking else []
    blocks += [{"type": "text", "text": text}] if text else []
    for number, call in enumerate(reply.tool_calls):
        call_id = call.id or f"call_{uuid.uuid4().hex}"
        written = msgspec.json.encode(call.input).decode()
        for piece in ("", written[: len(written) // 2], written[len(written) // 2 :]):
            yield Delta(call=CallPiece(number, call_id, call.name, piece))
        blocks.append({"type": "tool_use", "id": call_id, "name": call.name, "input": call.input})
    stop = reply.stop or ("tool_use" if reply.tool_calls else "end_turn")
    yield Assistant(content=blocks, model=model, usage=reply.usage, stop=stop)


async def say(reply: ScriptedReply) -> str:
    """The reply as a summary."""
    await _pause(reply)
    _raise_failure(reply.error)
    return _text_of(reply)


async def _pause(reply: ScriptedReply, *, last: bool = True) -> None:
    await asyncio.sleep(reply.delay_ms / 1000)
    while last and reply.until and not os.path.exists(reply.until):  # noqa: ASYNC110  another process makes it
        await asyncio.sleep(LOOK_AGAIN_S)


def _text_of(reply: ScriptedReply) -> str:
    return reply.text or "".join(reply.deltas)


def _raise_failure(error: ScriptedFailure | None) -> None:
    if error is None:
        return
    verdict = classify(status=error.status, code=error.code, text=error.message)
    raise refused(verdict, error.message, retry_after_s=error.retry_after_s, status=error.status)


class ScriptProvider:
    """`scripted:FILE`. The file is read again for each reply, so lines can be added while it is used."""

    def __init__(self, path: str | Path, *, window: int | None = None) -> None:
        self._path = Path(path)
        self.window = window
        self.takes = ALL
        self.model = f"scripted:{self._path.name}"
        with _open_script(self._path) as file:
            _read_script(self._path, file)

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Delta | Assistant]:
        reply = await asyncio.to_thread(take, self._path, "turn")
        async with aclosing(play(reply, self.model)) as pieces:
            async for piece in pieces:
                yield piece

    async def summarise(self, prompt: Prompt) -> str:
        return await say(await asyncio.to_thread(take, self._path, "summary"))

    async def close(self) -> None:
        """Nothing is kept open between replies."""


class _Position(Struct, frozen=True, forbid_unknown_fields=True):
    """The number of used replies per purpose."""

    turn: int = 0
    summary: int = 0


def take(path: Path, purpose: Purpose) -> ScriptedReply:
    """The next reply, counted as used before another process can read it."""
    with _open_script(path) as file:
        # The lock is on the script and not on the position, which is replaced by another file each time.
        fcntl.flock(file, fcntl.LOCK_EX)
        queue = [reply for reply in _read_script(path, file) if reply.purpose == purpose]
        used = _read_position(path)
        count: int = getattr(used, purpose)
        if count >= len(queue):
            return PAST_THE_END
        _write_position(path, msgspec.structs.replace(used, **{purpose: count + 1}))
        return queue[count]


@contextmanager
def _open_script(path: Path) -> Generator[BinaryIO]:
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"cannot read the script {path}: {reason}", hint="Use scripted:FILE.") from error


def _read_script(path: Path, file: BinaryIO) -> list[ScriptedReply]:
    return [
        _parse(path, number, line)
        for number, line in enumerate(file, 1)
        if line.strip() and not line.lstrip().startswith(b"#")
    ]


def _parse(path: Path, number: int, line: bytes) -> ScriptedReply:
    try:
        return msgspec.json.decode(line, type=ScriptedReply)
    except msgspec.MsgspecError as error:
        raise UsageError(
            f"{path}, line {number}: {error}",
            hint='A line is {"text": …}, {"tool_calls": [{"name": …, "input": {…}}]} or {"error": {"message": …}}.',
        ) from error


def _position_of(path: Path) -> Path:
    return path.with_name(path.name + ".position")


def _read_position(path: Path) -> _Position:
    place = _position_of(path)
    try:
        return msgspec.json.decode(place.read_bytes(), type=_Position)
    except FileNotFoundError:
        return _Position()
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(f"cannot read {place}: {error}", hint="Delete it to start from the first line.") from error


def _write_position(path: Path, used: _Position) -> None:
    """Replaces the file atomically. Only the holder of the lock is here, so one name for the temporary file
    is enough.
    """
    place = _position_of(path)
    temporary = place.with_name(place.name + ".tmp")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(msgspec.json.encode(used))
        os.replace(temporary, place)
    except OSError as error:
        raise UsageError(
            f"cannot write {place}: {error.strerror or error}", hint="Put the script into a writable directory."
        ) from error
