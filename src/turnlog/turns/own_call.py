"""Makes a model call of the user's own agent loop fit, and checks what its functions return."""

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any, TypeAlias

from ..core.arguments import shown
from ..core.entries import Assistant
from ..core.events import Event, Tell
from ..core.guard import Limits
from ..core.history import History
from ..core.prompt import Prompt
from ..errors import ProviderRefused, TurnlogError, UsageError
from . import guarded_call
from .compactor import Compactor
from .guarded_call import Attempt
from .journal import Journal

OwnCall: TypeAlias = Callable[[History], Awaitable[Assistant | str]]
Summarise: TypeAlias = Callable[[Prompt], Awaitable[str]]


def summariser(summarise: Summarise) -> Summarise:
    """The user's function; any exception of it counts as a failed summary, and the guard continues without it."""

    async def call(prompt: Prompt) -> str:
        try:
            return await summarise(prompt)
        except TurnlogError:
            raise
        except Exception as error:
            raise ProviderRefused(
                f"{type(error).__name__}: {error}", hint="Your own model call failed. The message is stored; try again."
            ) from error

    return call


async def fit(
    journal: Journal, limits: Limits, attempt: Attempt, compactor: Compactor, tell: Tell | None = None
) -> Assistant:
    """The answer of the call that went through. Without `tell`, nobody hears how it was made to fit."""
    fitted = await guarded_call.run(journal, limits, attempt, compactor, tell or _tell_nobody, compact_first=True)
    return fitted.reply


def on_history(call: OwnCall) -> Attempt:
    """The user's function, which gets the history."""

    async def attempt(shown: History, tell: Tell) -> Assistant:
        return _reply_of(await _awaited(call(shown)))

    return attempt


def _tell_nobody(event: Event) -> None:
    """The user's loop gets no events about how the call is made to fit."""


def _awaited(made: Any) -> Awaitable[Any]:
    if not isawaitable(made):
        raise UsageError("`call` returned nothing to await", hint="Give guard an async function.")
    return made


def _reply_of(answer: Any) -> Assistant:
    if isinstance(answer, str):
        return Assistant(content=answer, stop="end_turn")
    if not isinstance(answer, Assistant):
        raise UsageError(f"`call` returned {shown(answer)}", hint="Return a text, or turnlog.Assistant(content=…).")
    return answer
