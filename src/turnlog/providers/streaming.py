"""What the providers share: from a prompt to the pieces of an answer, and from a refusal to an error."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any, Protocol

from msgspec.structs import replace

from ..core.entries import Assistant, Block, text_of
from ..core.overflow import ProviderRefusal
from ..core.prompt import Prompt
from ..core.wires import Wire, fit
from ..errors import ContentRefused, ContextOverflow, ProviderBusy, ProviderError, ProviderRefused, TurnlogError
from . import Delta


class ArrivingAnswer(Protocol):
    """One answer as its pieces arrive."""

    def take(self, event: dict[str, Any]) -> list[Delta]: ...
    def finish(self, model: str) -> Assistant: ...


async def answered(
    prompt: Prompt,
    wire: Wire,
    model: str,
    answer: ArrivingAnswer,
    events: Callable[[Prompt], AsyncGenerator[dict[str, Any], None]],
) -> AsyncGenerator[Delta | Assistant, None]:
    """`events`: what the API sends to a prompt that was made to fit it."""
    fitted = fit(prompt, wire)
    if fitted.repairs:
        yield Delta(repairs=fitted.repairs)
    async with aclosing(events(fitted.prompt)) as arriving:
        async for event in arriving:
            for delta in answer.take(event):
                yield _with_real_call(delta, fitted.names) if delta.call and fitted.names else delta
    yield with_real_names(answer.finish(model), fitted.names)


async def summary_from(pieces: AsyncGenerator[Delta | Assistant, None]) -> str:
    async with aclosing(pieces):
        async for piece in pieces:
            if isinstance(piece, Assistant):
                return text_of(piece.content)
    raise cut_short()


def cut_short() -> ProviderBusy:
    return ProviderBusy("the provider's answer ended before it was complete")


def refused(
    refusal: ProviderRefusal,
    message: str,
    *,
    retry_after_s: float | None = None,
    hint: str = "",
    status: int | None = None,
) -> TurnlogError:
    error = _refused(refusal, message, retry_after_s, hint)
    if isinstance(error, ProviderError):
        error.status = status or 0
    return error


def _refused(refusal: ProviderRefusal, message: str, retry_after_s: float | None, hint: str) -> TurnlogError:
    match refusal.kind:
        case "overflow":
            return ContextOverflow(message, tokens=refusal.tokens, window=refusal.window)
        case "busy":
            return ProviderBusy(message, retry_after_s=retry_after_s)
        case "content":
            return ContentRefused(message)
        case _:
            return ProviderRefused(message, hint=hint)


def with_real_names(reply: Assistant, names: Mapping[str, str]) -> Assistant:
    """`names`: name as sent → own name (`core/wires`). The log keeps the tools' own names."""
    if not names or isinstance(reply.content, str):
        return reply
    return replace(reply, content=[_with_real_name(block, names) for block in reply.content])


def _with_real_call(delta: Delta, names: Mapping[str, str]) -> Delta:
    assert delta.call is not None
    name = names.get(delta.call.name)
    return delta if name is None else replace(delta, call=replace(delta.call, name=name))


def _with_real_name(block: Block, names: Mapping[str, str]) -> Block:
    if block.get("type") != "tool_use" or block.get("name") not in names:
        return block
    return {**block, "name": names[block["name"]]}
