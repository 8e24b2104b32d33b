"""Answers that somebody wrote down beforehand, in order: for tests and demonstrations.

A script is a file of JSON lines, one reply each; lines with `"for": "summary"` wait for the summariser, all others for
turns. What was used is counted in FILE.position, so that the next process goes on where this one stopped, and no two
processes get the same line. Past the end every reply is "ok". Looks at no prompt, and so answers anything.
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
from ..core.prompt import Prompt
from ..errors import ContextOverflow, ProviderBusy, ProviderRefused, UsageError
from . import Delta

Purpose: TypeAlias = Literal["turn", "summary"]


class Call(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool call; without an id it is given one of its own each time."""

    name: str
    input: dict[str, Any] = {}
    id: str = ""


class Failure(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a provider might answer instead; status, code and text decide what it means, as with a real one."""

    message: str = ""
    status: int | None = None
    code: str = ""
    retry_after_s: float | None = None


class Reply(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of a script: a text, tool calls, or an error, which comes after its deltas."""

    text: str = ""
    tool_calls: tuple[Call, ...] = ()
    error: Failure | None = None
    deltas: tuple[str, ...] = ()
    usage: Usage | None = None
    delay_ms: int = 0
    """Passes before each piece of the answer; before the answer, if it has no pieces."""
    purpose: Purpose = field(default="turn", name="for")


PAST_THE_END = Reply(text="ok")


async def play(reply: Reply, model: str) -> AsyncGenerator[Delta | Assistant]:
    pieces = reply.deltas or ((reply.text,) if reply.text and not reply.error else ())
    for piece in pieces:
        await asyncio.sleep(reply.delay_ms / 1000)
        yield Delta(text=piece)
    if not pieces:
        await asyncio.sleep(reply.delay_ms / 1000)
    _raise_failure(reply.error)
    text = _text_of(reply)
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    blocks += [_call_block(call) for call in reply.tool_calls]
    stop = "tool_use" if reply.tool_calls else "end_turn"
    yield Assistant(content=blocks, model=model, usage=reply.usage, stop=stop)


async def say(reply: Reply) -> str:
    """The reply as a summary."""
    await asyncio.sleep(reply.delay_ms / 1000)
    _raise_failure(reply.error)
    return _text_of(reply)


def _text_of(reply: Reply) -> str:
    return reply.text or "".join(reply.deltas)


def _call_block(call: Call) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.id or f"call_{uuid.uuid4().hex}", "name": call.name, "input": call.input}


def _raise_failure(error: Failure | None) -> None:
    if error is None:
        return
    verdict = classify(status=error.status, code=error.code, text=error.message)
    match verdict.kind:
        case "overflow":
            raise ContextOverflow(error.message, tokens=verdict.tokens, window=verdict.window)
        case "busy":
            raise ProviderBusy(error.message, retry_after_s=error.retry_after_s)
        case _:
            raise ProviderRefused(error.message)


class ScriptProvider:
    """`scripted:FILE`. The file is read again for each reply, so that a script can be added to while it plays."""

    def __init__(self, path: str | Path, *, window: int | None = None) -> None:
        self._path = Path(path)
        self.window = window
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
    """Replies used of each queue."""

    turn: int = 0
    summary: int = 0


def take(path: Path, purpose: Purpose) -> Reply:
    """The next reply, counted as used before anybody else can look."""
    with _open_script(path) as file:
        # The script is locked and not the position, which is replaced whole and so is another file each time.
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


def _read_script(path: Path, file: BinaryIO) -> list[Reply]:
    return [
        _parse(path, number, line)
        for number, line in enumerate(file, 1)
        if line.strip() and not line.lstrip().startswith(b"#")
    ]


def _parse(path: Path, number: int, line: bytes) -> Reply:
    try:
        return msgspec.json.decode(line, type=Reply)
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
        raise UsageError(f"cannot read {place}: {error}", hint="Delete it to play from the first line.") from error


def _write_position(path: Path, used: _Position) -> None:
    """Whole or not at all. Only the holder of the lock is here, so one name for the temporary file is enough."""
    place = _position_of(path)
    temporary = place.with_name(place.name + ".tmp")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(msgspec.json.encode(used))
        os.replace(temporary, place)
    except OSError as error:
        raise UsageError(
            f"cannot write {place}: {error.strerror or error}", hint="Put the script where it can be written beside."
        ) from error
