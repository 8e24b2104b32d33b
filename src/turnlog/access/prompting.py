"""The prompt of a session: of one of our agents, or of the client whose calls the session keeps."""

from ..core import prompt as prompts
from ..core.prompt import Prompt, ToolDefinition
from ..core.relayed import RelayedHead, newest_head
from ..core.session import Session
from ..sessions import Sessions
from ..turns.agent import Agent
from .parts import Agents


async def prompt_of(sessions: Sessions, agents: Agents, row: Session, *, at: int | None, with_reply: bool) -> Prompt:
    """Exactly what would be sent now, or was sent when the log ended at `at`.

    `with_reply`: user rows are written with their reply, so that a call is made while they are only `received`.
    """
    log = (await sessions.transcript(row.id, incarnation=row.incarnation)).entries
    head = newest_head(log if at is None else [entry for entry in log if entry.seq <= at])
    if head is not None:
        return await _relayed(sessions, await agents.upstream(None), row, head, at)
    agent = await agents.of(row)
    found = await sessions.history(
        row.id,
        system=agent.limits.system,
        inject=agent.limits.inject,
        note=agent.limits.with_note(),
        at=at,
        with_reply=with_reply,
        incarnation=row.incarnation,
    )
    return prompts.assemble(found, tools=agent.toolbox.specs, max_output=agent.max_output)


async def _relayed(sessions: Sessions, agent: Agent, row: Session, head: RelayedHead, at: int | None) -> Prompt:
    """With the client's own system text, tools and parameters, as they came with its request."""
    found = await sessions.history(
        row.id, system=head.system, inject=agent.limits.inject, at=at, incarnation=row.incarnation
    )
    return prompts.assemble(
        found,
        tools=[ToolDefinition.of(tool) for tool in head.tools],
        max_output=head.max_output or agent.max_output,
        may_call=head.parameters.tool_choice != "none",
        parameters=head.parameters,
    )
