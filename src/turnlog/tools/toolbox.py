"""The tools of one agent, and the only place where a call becomes a result.

Everything a tool does ends in a result: an unknown name, a wrong input, an exception, a call that hangs, an endless
output. Only the cancellation of the caller is passed on.
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
from . import input_schema
from .approval import RUN, ApprovalPolicy, Judgement, judge
from .base import Context, Tool, suggestion
from .content import bound
from .functions import tool

ERROR_MAX_CHARS = 10_000
"""The length of an exception's message: some contain their whole input."""

PREVIEW_S = 5.0
"""How long a tool may take to say what a call would change; the person is asked without it then."""
PREVIEW_MAX_CHARS = 20_000
"""More than a person reads before answering."""

GRACE_S = 1.0
"""How long a cancelled call may take to end before it is abandoned."""


class Toolbox:
    def __init__(self, tools: Iterable[Tool | Callable[..., Any]] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._left_behind: set[asyncio.Task[Any]] = set()
        made = [each if isinstance(each, Tool) else tool(each) for each in tools]
        # Sorted by name: the order is part of every prompt, and caches need it to be stable.
        for each in sorted(made, key=lambda each: each.spec.name):
            if each.spec.name in self._tools:
                raise UsageError(f"there are two tools named {each.spec.name!r}", hint="Give one of them another name.")
            self._tools[each.spec.name] = each

    @property
    def specs(self) -> tuple[prompt.ToolDefinition, ...]:
        return tuple(each.spec for each in self._tools.values())

    def is_parallel(self, name: str) -> bool:
        return name in self._tools and self._tools[name].parallel

    def subset(self, names: Sequence[str]) -> "Toolbox":
        for name in names:
            if name not in self._tools:
                raise UsageError(f"there is no tool named {name!r}", hint=suggestion(name, self._tools))
        return Toolbox(self._tools[name] for name in dict.fromkeys(names))

    def judge(self, call: Block, policy: ApprovalPolicy, allowed: Sequence[str] = ()) -> Judgement:
        """Whether this call may run. A call that cannot be run needs no approval: its result is an error."""
        known, given = self._tools.get(str(call.get("name", ""))), call.get("input")
        if known is None or _misfit(known, given):
            return RUN
        return judge(known, cast("dict[str, Any]", given), policy, allowed)

    def misfit(self, name: str, given: dict[str, Any]) -> str:
        """Why this tool cannot run with these arguments; empty if it can, or if there is no such tool."""
        known = self._tools.get(name)
        return "" if known is None else _misfit(known, given)

    def place(self, name: str) -> str | None:
        """Where this tool works; None if there is no such tool."""
        return self._tools[name].place if name in self._tools else None

    async def preview(self, call: Block) -> str:
        """What the call would change; empty if the tool cannot tell."""
        known, given = self._tools.get(str(call.get("name", ""))), call.get("input")
        if known is None or known.preview is None or not isinstance(given, dict):
            return ""
        try:
            async with asyncio.timeout(PREVIEW_S):
                return shorten(await known.preview(cast("dict[str, Any]", given)), PREVIEW_MAX_CHARS)
        except Exception as error:  # noqa: BLE001 - the call itself will tell what is wrong
            return shorten(_explain(error), ERROR_MAX_CHARS)

    async def run(self, call: Block, context: Context) -> ToolResult:
        """`call`: a tool_use block, as the model wrote it."""
        name, given = str(call.get("name", "")), call.get("input")
        known = self._tools.get(name)
        if known is None:
            refusal = f"there is no tool named {name!r}. {suggestion(name, self._tools)}"
            content, failed = shorten(refusal, ERROR_MAX_CHARS), True
        elif why := _misfit(known, given):
            content, failed = shorten(why, min(ERROR_MAX_CHARS, known.cap_chars)), True
        else:
            content, failed = await self._bounded(known, cast("dict[str, Any]", given), context)
        return ToolResult(tool_use_id=str(call.get("id", "")), content=content, is_error=failed)

    async def _bounded(self, known: Tool, given: dict[str, Any], context: Context) -> tuple[Content, bool]:
        """Runs the call in its own task, because a tool may ignore its cancellation; the caller waits no longer than
        the limit.
        """
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
        self._left_behind.add(task)  # a task without a reference could be garbage-collected while it cleans up
        task.add_done_callback(self._left_behind.discard)
        task.cancel()
        await asyncio.wait({task}, timeout=GRACE_S)


def _misfit(known: Tool, given: Any) -> str:
    """Why a call with this input cannot run; empty if it can."""
    if not isinstance(given, dict) or INVALID_INPUT in given:
        return _not_json(given)
    try:
        if known.check is not None:
            known.check(cast("dict[str, Any]", given))
        else:
            input_schema.check(known.spec.input_schema, cast("dict[str, Any]", given))
    except Exception as error:  # noqa: BLE001 - types of the developer may raise anything
        return _explain(error)
    return ""


def _not_json(given: Any) -> str:
    written = str(cast("dict[str, Any]", given)[INVALID_INPUT] if isinstance(given, dict) else given)
    return f"the input is not a JSON object; write it again, whole and well-formed. It was: {shorten(written, 500)}"


async def _outcome(known: Tool, given: dict[str, Any], context: Context) -> tuple[Content, bool]:
    """(content, whether it failed). SystemExit is caught: functions written for a command line raise it as an error."""
    try:
        return bound(await known.run(given, context), known.cap_chars), False
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a failing tool is a result
        return shorten(_explain(error), min(ERROR_MAX_CHARS, known.cap_chars)), True


def _explain(error: BaseException) -> str:
    """One or two sentences for the model."""
    try:
        message = _without_places(str(error))
    except Exception:  # noqa: BLE001 - an exception whose text cannot be computed
        message = ""
    if not isinstance(error, TurnlogError):
        return f"{type(error).__name__}: {message}" if message else type(error).__name__
    if error.hint == type(error).hint:
        return message
    return f"{message.rstrip('.')}. {error.hint}"


def _without_places(message: str) -> str:
    """Removes paths of this machine, which a model or a provider need not know."""
    places = [os.path.expanduser("~"), sys.prefix, sys.base_prefix, tempfile.gettempdir(), os.path.abspath(os.curdir)]
    for place in sorted(places, key=len, reverse=True):
        if len(place) > 1:
            message = re.sub(re.escape(place) + r"(?![\w.-])", "…", message)
    return message
