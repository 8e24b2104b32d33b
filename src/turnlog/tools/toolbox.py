"""The tools of one agent, and the one place where a call becomes a result.

Nothing a tool does leaves here but as a result: an unknown name, an input that does not fit, an exception, a call that
hangs, an output without end. Only the cancellation of the caller passes.
"""

import asyncio
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from ..core import prompt
from ..core.entries import Block, Content, ToolResult
from ..core.history import shorten
from ..core.prompt import INVALID_INPUT
from ..errors import TurnlogError, UsageError
from .base import Context, Tool, suggestion
from .content import bound
from .functions import tool

ERROR_MAX_CHARS = 10_000
"""Of an exception's message: some carry the whole of what they choked on."""

GRACE_S = 1.0
"""How long a cancelled call may take to end before it is left behind."""


class Toolbox:
    def __init__(self, tools: Iterable[Tool | Callable[..., Any]] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._left_behind: set[asyncio.Task[Any]] = set()
        made = [each if isinstance(each, Tool) else tool(each) for each in tools]
        # By name and not as given: the order is part of every prompt, and caches want it to stay.
        for each in sorted(made, key=lambda each: each.spec.name):
            if each.spec.name in self._tools:
                raise UsageError(f"there are two tools named {each.spec.name!r}", hint="Give one of them another name.")
            self._tools[each.spec.name] = each

    @property
    def specs(self) -> tuple[prompt.Tool, ...]:
        return tuple(each.spec for each in self._tools.values())

    def is_parallel(self, name: str) -> bool:
        return name in self._tools and self._tools[name].parallel

    def subset(self, names: Sequence[str]) -> "Toolbox":
        for name in names:
            if name not in self._tools:
                raise UsageError(f"there is no tool named {name!r}", hint=suggestion(name, self._tools))
        return Toolbox(self._tools[name] for name in dict.fromkeys(names))

    async def run(self, call: Block, context: Context) -> ToolResult:
        """`call`: a tool_use block, as the model wrote it."""
        name, given = str(call.get("name", "")), call.get("input")
        known = self._tools.get(name)
        if known is None:
            refusal = f"there is no tool named {name!r}. {suggestion(name, self._tools)}"
            content, failed = shorten(refusal, ERROR_MAX_CHARS), True
        elif not isinstance(given, dict) or INVALID_INPUT in given:
            content, failed = _not_json(given), True
        else:
            content, failed = await self._bounded(known, cast("dict[str, Any]", given), context)
        return ToolResult(tool_use_id=str(call.get("id", "")), content=content, is_error=failed)

    async def _bounded(self, known: Tool, given: dict[str, Any], context: Context) -> tuple[Content, bool]:
        """A task of its own, because a tool may not heed its cancellation; nobody waits for it longer than said."""
        task = asyncio.create_task(_outcome(known, given, context))
        try:
            await asyncio.wait({task}, timeout=known.timeout_s)
        except asyncio.CancelledError:
            await self._leave(task)
            raise
        if not task.done():
            await self._leave(task)
            return f"no answer within {known.timeout_s:g} s; what was begun may still go on", True
        return ("the tool cancelled itself", True) if task.cancelled() else task.result()

    async def _leave(self, task: asyncio.Task[Any]) -> None:
        self._left_behind.add(task)  # a task that nobody holds could vanish while it cleans up
        task.add_done_callback(self._left_behind.discard)
        task.cancel()
        await asyncio.wait({task}, timeout=GRACE_S)


def _not_json(given: Any) -> str:
    written = str(cast("dict[str, Any]", given)[INVALID_INPUT] if isinstance(given, dict) else given)
    return f"the input is not a JSON object; write it again, whole and well-formed. It was: {shorten(written, 500)}"


async def _outcome(known: Tool, given: dict[str, Any], context: Context) -> tuple[Content, bool]:
    """(content, whether it failed). SystemExit is caught: in functions made for a command line it means no more."""
    try:
        return bound(await known.run(given, context), known.cap_chars), False
    except (Exception, SystemExit) as error:
        return shorten(_explain(error), min(ERROR_MAX_CHARS, known.cap_chars)), True


def _explain(error: BaseException) -> str:
    """One or two sentences for the model."""
    try:
        message = _without_places(str(error))
    except Exception:
        message = ""  # an exception whose own text cannot be had
    if not isinstance(error, TurnlogError):
        return f"{type(error).__name__}: {message}" if message else type(error).__name__
    if error.hint == type(error).hint:
        return message
    return f"{message.rstrip('.')}. {error.hint}"


def _without_places(message: str) -> str:
    """Where this machine keeps its files is nothing a model, or a provider, needs to know."""
    places = [os.path.expanduser("~"), sys.prefix, sys.base_prefix, tempfile.gettempdir(), os.path.abspath(os.curdir)]
    for place in sorted(places, key=len, reverse=True):
        if len(place) > 1:
            message = re.sub(re.escape(place) + r"(?![\w.-])", "…", message)
    return message
