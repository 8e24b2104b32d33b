"""The page of one session: its timeline, its tokens turn by turn, and what the model saw."""

from contextlib import aclosing
from typing import Annotated, Literal

from litestar import Response, get
from litestar.params import Parameter
from msgspec.structs import replace

from ...core.entries import Entry
from ...core.principals import owns
from ...core.session import Session
from ...core.usage import cost_of
from ...interchange.exporting import FORMATS
from ...sessions import Sessions
from ..service import AnyRequest, reading
from . import plot as plots, timeline as timelines
from .exchange import entry_json
from .prompt_changes import seen_at
from .view import ENTRIES_SHOWN, read_some, show, with_marks

PLOTTED_MAX = 5_000
"""Entries that a chart is made from; turns of older entries are left out, and the chart says so."""
ORIGINAL_MAX = 400
"""Messages shown under one compaction; the timeline shows all."""

Flag = Literal[0, 1]
Seq = Annotated[int | None, Parameter(ge=1, le=2**53)]


@get("/session/{agent:str}/{sid:str}")
async def session_page(
    request: AnyRequest,
    agent: str,
    sid: str,
    turn: Seq = None,
    before: Seq = None,
    at: Seq = None,
    json: Flag = 0,
) -> Response[str]:
    """`turn`: what the model saw then. `before`: an older part of the timeline. `at`: the part around an entry.
    `json`: entries as they are stored, instead of the timeline.
    """
    access, row = await reading(request, agent, sid)
    sessions = access.sessions
    end = before or (min(row.last_seq, at + ENTRIES_SHOWN // 2) + 1 if at else None)
    entries = await read_some(sessions, row, before=end)
    model = await access.model_of(row)
    found = await _steps(sessions, row)
    turns = [step for step in found if step.kind == "turn"]
    return await show(
        request,
        "session.html",
        agent=agent,
        row=row,
        model=model,
        items=timelines.timeline(await with_marks(sessions, row, entries), entries),
        older=entries[0].seq if entries and entries[0].seq > 1 else None,
        newest=end is None or end > row.last_seq,
        plot=plots.draw(found, model.window),
        steps=found[-plots.TURNS_DRAWN :],
        may_write=owns(access.principal, row),
        client=timelines.client_of(entries),
        saw=await seen_at(access, row, turns, turn),
        entries=[entry_json(entry) for entry in entries] if json else None,
        cost=cost_of(row.used),
        formats=FORMATS,
        before=before,
        at=at,
        shown_turn=turn or (len(turns) or 1),
    )


@get("/session/{agent:str}/{sid:str}/saw")
async def saw_part(request: AnyRequest, agent: str, sid: str, turn: Seq = None) -> Response[str]:
    access, row = await reading(request, agent, sid)
    turns = [step for step in await _steps(access.sessions, row) if step.kind == "turn"]
    saw = await seen_at(access, row, turns, turn)
    return await show(request, "part_saw.html", agent=agent, row=row, saw=saw, shown_turn=turn or len(turns))


async def _steps(sessions: Sessions, row: Session) -> list[plots.PlotStep]:
    found = plots.steps(await read_some(sessions, row, limit=PLOTTED_MAX))
    missed = row.turn_count - sum(step.kind == "turn" for step in found) if row.last_seq > PLOTTED_MAX else 0
    return [replace(step, n=step.n + missed) for step in found] if missed > 0 else found


@get("/session/{agent:str}/{sid:str}/original/{seq:int}")
async def original(request: AnyRequest, agent: str, sid: str, seq: int) -> Response[str]:
    """The messages that a compaction stands for."""
    access, row = await reading(request, agent, sid)
    sessions = access.sessions
    entries: list[Entry] = []
    async with aclosing(sessions.expand_pages(sid, seq)) as pages:
        async for page in pages:
            entries += page
            if len(entries) > ORIGINAL_MAX:
                break
    first = entries[:ORIGINAL_MAX]
    # Read again for the `received` entries that hold the text of user entries.
    shown = await read_some(sessions, row, after=first[0].seq - 1, before=first[-1].seq + 1) if first else []
    items = timelines.timeline(await with_marks(sessions, row, shown), shown)
    more = len(entries) > ORIGINAL_MAX
    [kept] = await sessions.fidelity(sid, seq)
    return await show(
        request, "part_original.html", agent=agent, row=row, kept=kept, items=items, more=more, may_write=False
    )


@get("/session/{agent:str}/{sid:str}/fidelity/{seq:int}")
async def fidelity(request: AnyRequest, agent: str, sid: str, seq: int) -> Response[str]:
    """What became of the identifiers that a compaction covers."""
    access, row = await reading(request, agent, sid)
    [kept] = await access.sessions.fidelity(sid, seq)
    return await show(request, "part_fidelity.html", row=row, kept=kept)
