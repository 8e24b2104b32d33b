"""The page with the files that tools wrote in a session: each can get its former content back, for 30 days."""

from litestar import Response, get, post

from ...access import Access
from ...core.principals import owns
from ...core.session import Session
from ...errors import TurnlogError
from ..http import problems
from ..http.problems import Problem
from ..service import AnyRequest, reading, writing
from .signin import form_of
from .view import show


@get("/session/{agent:str}/{sid:str}/files")
async def files_page(request: AnyRequest, agent: str, sid: str) -> Response[str]:
    access, row = await reading(request, agent, sid)
    return await _show(request, access, row)


@post("/session/{agent:str}/{sid:str}/files", status_code=200)
async def undo_on_page(request: AnyRequest, agent: str, sid: str) -> Response[str]:
    """Undoes the newest change of one file. A file that has changed since asks for confirmation."""
    access, row = await writing(request, agent, sid)
    form = await form_of(request)
    path = form.get("path", "")[:4_096]
    try:
        await access.undo_file(row, path, force=form.get("force") == "1")
    except TurnlogError as error:
        return await _show(request, access, row, failed=path, problem=problems.of(error))
    return await _show(request, access, row, undone=path)


async def _show(
    request: AnyRequest,
    access: Access,
    row: Session,
    *,
    undone: str = "",
    failed: str = "",
    problem: Problem | None = None,
) -> Response[str]:
    return await show(
        request,
        "files.html",
        problem=problem,
        agent=row.agent,
        row=row,
        files=await access.former_files(row),
        may_write=owns(access.principal, row),
        undone=undone,
        failed=failed,
    )
