"""The prompt of a session: of one of our agents, or of the client whose calls the session keeps."""

from ..core import history, oversized, prompt as prompts, relayed
from ..core.entries import Entry
from ..core.guard import Limits
from ..core.history import History
from ..core.prompt import Prompt, ToolDefinition
from ..core.relayed import RelayedHead
from ..core.session import Session
from ..sessions import Sessions
from .parts import Agents


async def prompt_of(sessions: Sessions, agents: Agents, row: Session, *, at: int | None, with_reply: bool) -> Prompt:
    """Exactly what would be sent now, or was sent when the log ended at `at`.

    `with_reply`: user rows are written with their reply, so that a call is made while they are only `received`.
    """
    if (head := await _head(sessions, row, at)) is None:
        agent = await agents.of(row)
        limits = agent.limits
        found = await _history(sessions, row, limits, limits.system, limits.with_note(), at, with_reply)
        return prompts.assemble(found, tools=agent.toolbox.specs, max_output=agent.max_output)
    # A client's own system text, tools and parameters, as they came with its request.
    agent = await agents.upstream(None)
    return prompts.assemble(
        await _history(sessions, row, agent.limits, head.system, note=False, at=at, with_reply=False),
        tools=[ToolDefinition.of(tool) for tool in head.tools],
        max_output=head.max_output or agent.max_output,
        may_call=head.parameters.tool_choice != "none",
        parameters=head.parameters,
    )


async def _head(sessions: Sessions, row: Session, at: int | None) -> RelayedHead | None:
    notes: list[Entry] = []
    async for page in sessions.pages(row, before=None if at is None else at + 1):
        notes += relayed.notes_of(page)
    if (call := relayed.newest_call(notes)) is None:
        return None
    return relayed.head_of(call, (await sessions.read(row, after=call.head - 1, limit=1))[0])


async def _history(
    sessions: Sessions, row: Session, limits: Limits, system: str, note: bool, at: int | None, with_reply: bool
) -> History:
    """A tail that is larger than any prompt is shown as the turn would fold it, if it can be cut."""
    tail = await sessions.oversized_tail(row, at)
    if tail is not None and (folded := oversized.after_fold(tail, limits)):
        return history.build(folded, system=system, inject=limits.inject, note=note)
    return await sessions.history(
        row.id,
        system=system,
        inject=limits.inject,
        note=note,
        at=at,
        with_reply=with_reply,
        incarnation=row.incarnation,
    )
