"""One session from all sides: its timeline, tokens turn by turn, what the model saw; and what can be done with it."""

from typing import Annotated, Any

from litestar import Response, get, post
from litestar.params import Parameter
from msgspec.structs import replace

from ..core import tokens
from ..core.entries import Entry, User, text_of, user_content
from ..core.principals import owns
from ..core.session import Session
from ..errors import NotFound, UsageError
from ..sessions import Sessions
from . import pages_plot as plots, pages_timeline as timelines
from .markdown import honest
from .pages_signin import form_of
from .pages_view import ENTRIES_SHOWN, HEADERS, lead_to, local_path, model_of, path_to, read_some, show
from .service import Asked, Service, service_of, who_asks

PLOTTED_MAX = 5_000
"""Entries that a plot is made from; the turns of older ones are left out, and it says so."""
ORIGINAL_MAX = 400
"""Messages shown under one compaction; the timeline has all."""

Seq = Annotated[int | None, Parameter(ge=1, le=2**53)]


@get("/session/{agent:str}/{sid:str}")
async def session_page(
    request: Asked, agent: str, sid: str, turn: Seq = None, before: Seq = None, at: Seq = None
) -> Response[str]:
    """`turn`: what the model saw then. `before`: an older part of the timeline. `at`: the part around an entry."""
    service, who = service_of(request), who_asks(request, "chat", "read")
    row = await service.row(who, agent, sid)
    gate = service.gate(who)
    end = before or (min(row.last_seq, at + ENTRIES_SHOWN // 2) + 1 if at else None)
    entries = await read_some(gate, row, before=end)
    model = await model_of(service, agent)
    found = await _steps(gate, row)
    turns = [step for step in found if step.kind == "turn"]
    return await show(
        request,
        "session.html",
        agent=agent,
        row=row,
        model=model,
        items=timelines.timeline(row, entries),
        older=entries[0].seq if entries and entries[0].seq > 1 else None,
        newest=end is None or end > row.last_seq,
        plot=plots.draw(found, model.window),
        steps=found[-plots.TURNS_DRAWN :],
        may_write=owns(who, row),
        saw=await _saw(service, row, turns, turn),
        shown_turn=turn or (len(turns) or 1),
    )


@get("/session/{agent:str}/{sid:str}/saw")
async def saw_part(request: Asked, agent: str, sid: str, turn: Seq = None) -> Response[str]:
    service, who = service_of(request), who_asks(request, "chat", "read")
    row = await service.row(who, agent, sid)
    turns = [step for step in await _steps(service.gate(who), row) if step.kind == "turn"]
    saw = await _saw(service, row, turns, turn)
    return await show(request, "part_saw.html", agent=agent, row=row, saw=saw, shown_turn=turn or len(turns))


async def _steps(gate: Sessions, row: Session) -> list[plots.Step]:
    found = plots.steps(await read_some(gate, row, limit=PLOTTED_MAX))
    missed = row.turn_count - sum(step.kind == "turn" for step in found) if row.last_seq > PLOTTED_MAX else 0
    return [replace(step, n=step.n + missed) for step in found] if missed > 0 else found


async def _saw(service: Service, row: Session, turns: list[plots.Step], turn: int | None) -> dict[str, Any] | None:
    """The prompt that began a turn: the newest one, unless another is asked for."""
    if not turns:
        return None
    step = next((step for step in turns if step.n == turn), None) if turn else turns[-1]
    if step is None:
        raise UsageError(f"there is no turn {turn}", hint=f"This session has turns {turns[0].n} to {turns[-1].n}.")
    prompt = await service.turnlog.prompt(row, at=step.seq)
    schemas = [{"name": tool.name, "input_schema": tool.input_schema} for tool in prompt.tools]
    size = tokens.of_messages(prompt.messages, system=prompt.system, tools=schemas)
    messages = [(message["role"], _pieces(message["content"])) for message in prompt.messages]
    return {
        "n": step.n,
        "seq": step.seq,
        "first": turns[0].n,
        "last": turns[-1].n,
        "system": prompt.system,
        "messages": messages,
        "tools": prompt.tools,
        "tokens": size,
    }


def _pieces(content: Any) -> list[tuple[str, str]]:
    """(kind, text) for each block, as it is sent."""
    if isinstance(content, str):
        return [("text", content)]
    return [_piece(block) for block in content]


def _piece(block: dict[str, Any]) -> tuple[str, str]:
    kind = str(block.get("type"))
    match kind:
        case "text":
            return kind, str(block.get("text"))
        case "tool_use":
            return kind, f"{block.get('name')} {timelines.as_json(block.get('input'), timelines.INPUT_MAX_CHARS)}"
        case "tool_result":
            return kind, text_of(block.get("content"))
        case "image" | "document":
            return kind, ""
        case _:
            return kind, str(block.get("thinking") or "")


@get("/session/{agent:str}/{sid:str}/original/{seq:int}")
async def original(request: Asked, agent: str, sid: str, seq: int) -> Response[str]:
    """The messages that a compaction stands for."""
    service, who = service_of(request), who_asks(request, "chat", "read")
    row = await service.row(who, agent, sid)
    entries = await service.gate(who).expand(sid, seq)
    items = timelines.timeline(row, await _whole(service.gate(who), row, entries[:ORIGINAL_MAX]))
    more = len(entries) > ORIGINAL_MAX
    return await show(
        request, "part_original.html", agent=agent, row=row, seq=seq, items=items, more=more, may_write=False
    )


async def _whole(gate: Sessions, row: Session, entries: list[Entry]) -> list[Entry]:
    """With the words that user entries leave to `received` ones."""
    return await read_some(gate, row, after=entries[0].seq - 1, before=entries[-1].seq + 1) if entries else []


@get("/session/{agent:str}/{sid:str}/entry/{seq:int}")
async def entry_text(request: Asked, agent: str, sid: str, seq: int) -> Response[str]:
    """The whole text of one entry, as text and nothing else."""
    service, who = service_of(request), who_asks(request, "chat", "read")
    row = await service.row(who, agent, sid)
    found = await read_some(service.gate(who), row, after=seq - 1, before=seq + 1)
    entry = next((entry for entry in found if entry.seq == seq), None)
    if entry is None:
        raise NotFound(f"there is no entry {seq}", hint=f"The session has entries 1 to {row.last_seq}.")
    received = {e.seq: e for e in found if e.seq != seq}
    content = user_content(entry, received) if isinstance(entry, User) else getattr(entry, "content", "")  # type: ignore[arg-type]
    headers = {**HEADERS, "Content-Disposition": "inline"}
    return Response(honest(text_of(content)), media_type="text/plain", headers=headers)


@post("/session/{agent:str}/{sid:str}/{action:str}", status_code=200)
async def act(request: Asked, agent: str, sid: str, action: str) -> Response[str]:
    """What the forms of the page do. Afterwards the browser is led to where the outcome can be seen."""
    service, who = service_of(request), who_asks(request, "chat")
    row = await service.row(who, agent, sid, write=True)
    form = await form_of(request)
    gate = service.gate(who)
    chat, back = path_to("chat", agent, sid), local_path(form.get("next", "") or path_to("chat", agent, sid))
    match action:
        case "rename":
            await gate.rename(sid, form.get("title", ""))
        case "fork":
            at = form.get("at", "")
            forked = await gate.fork(sid, at=int(at) if at.isdecimal() and len(at) < 16 else None)
            return lead_to(path_to("chat", agent, forked.id))
        case "compact":
            await service.turnlog.compact(row)
        case "undo":
            await gate.undo(sid)
        case "trash":
            await gate.set_status(sid, "trashed", "deleted on the page")
            return lead_to(back if form.get("next") else path_to("chat", agent))
        case "restore":
            await gate.set_status(sid, "inactive", "restored on the page")
            return lead_to(chat)
        case "erase":
            await gate.delete(sid)
            return lead_to(path_to("chat", agent))
        case _:
            raise NotFound("there is no such action", hint="Use the buttons of the page.")
    return lead_to(back)
