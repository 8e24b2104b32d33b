"""The forms that change a session."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from litestar import Response, post
from msgspec import Struct

from ...access import Access
from ...core.entries import text_of
from ...core.session import Session
from ...errors import NotFound
from ...sessions import Sessions
from ..service import AnyRequest, service_of, writing
from .entry import content_of
from .signin import form_of
from .view import HEADERS, lead_to, local_path, path_to, wants_json

FOCUS_MAX_CHARS = 2_000
SEQ_MAX_DIGITS = 16


@post("/session/{agent:str}/{sid:str}/{action:str}", status_code=200)
async def act(request: AnyRequest, agent: str, sid: str, action: str) -> Response[Any]:
    """Carries out a form of the page. The browser then goes to where the outcome can be seen; a script is told the
    address.
    """
    to = await _act(request, agent, sid, action)
    return Response({"to": to}, headers=HEADERS) if wants_json(request) else lead_to(to)


class SubmittedForm(Struct, frozen=True):
    """A form about one session, and who sent it."""

    request: AnyRequest
    access: Access
    row: Session
    fields: Mapping[str, str]

    @property
    def sessions(self) -> Sessions:
        return self.access.sessions

    @property
    def chat(self) -> str:
        return path_to("chat", self.row.agent, self.row.id)

    @property
    def back(self) -> str:
        return local_path(self.fields.get("next") or self.chat)

    def seq(self, name: str = "seq") -> int:
        """Zero names no entry, which is refused where it is used."""
        text = self.fields.get(name, "")
        return int(text) if text.isdecimal() and text.isascii() and len(text) < SEQ_MAX_DIGITS else 0


async def _act(request: AnyRequest, agent: str, sid: str, action: str) -> str:
    access, row = await writing(request, agent, sid)
    if action not in (*CHANGES, *ACTIONS):
        raise NotFound("there is no such action", hint="Use the buttons of the page.")
    form = SubmittedForm(request, access, row, await form_of(request))
    if action in ACTIONS:
        to = await ACTIONS[action](form)
    else:
        await CHANGES[action](form)
        to = form.back
    service_of(request).changes.look()
    return to


async def _fork(form: SubmittedForm) -> str:
    forked = await form.sessions.fork(form.row.id, at=form.seq("at") or None)
    return path_to("chat", forked.agent, forked.id)


async def _rewind(form: SubmittedForm) -> str:
    await form.sessions.rewind(form.row.id, form.seq())
    return form.chat


async def _regenerate(form: SubmittedForm) -> str:
    """Begins the turn of this user entry anew, with the same words; what came of it stays in the log."""
    service = service_of(form.request)
    service.check_open()
    turn = form.seq()
    content = await content_of(form.sessions, form.row, turn)
    sender = form.access.principal.name
    accept = partial(form.access.accept_after, form.row, turn - 1, content, sender=sender)
    await service.accept(form.row, text_of(content), sender, accept)
    return form.chat


async def _retry(form: SubmittedForm) -> None:
    service_of(form.request).check_open()
    await form.access.accept_retry(form.row)


async def _trash(form: SubmittedForm) -> str:
    await form.sessions.set_status(form.row.id, "trashed", "deleted on the page")
    return form.back if form.fields.get("next") else path_to("chat", form.row.agent)


async def _restore(form: SubmittedForm) -> str:
    await form.sessions.set_status(form.row.id, "inactive", "restored on the page")
    return form.chat


async def _erase(form: SubmittedForm) -> str:
    await form.sessions.delete(form.row.id)
    return path_to("chat", form.row.agent)


CHANGES: Mapping[str, Callable[[SubmittedForm], Awaitable[object]]] = {
    "rename": lambda form: form.sessions.rename(form.row.id, form.fields.get("title", "")),
    "model": lambda form: form.access.choose_model(form.row, form.fields.get("model", "")),
    "pin": lambda form: form.sessions.pin(form.row.id, form.seq()),
    "unpin": lambda form: form.sessions.unpin(form.row.id, form.seq()),
    "compact": lambda form: form.access.compact(form.row, focus=form.fields.get("focus", "")[:FOCUS_MAX_CHARS]),
    "undo": lambda form: form.sessions.undo(form.row.id),
    "discard": lambda form: form.sessions.discard(form.row.id),
    "retry": _retry,
}
"""Their outcome can be seen where the form came from."""
ACTIONS: Mapping[str, Callable[[SubmittedForm], Awaitable[str]]] = {
    "fork": _fork,
    "rewind": _rewind,
    "regenerate": _regenerate,
    "trash": _trash,
    "restore": _restore,
    "erase": _erase,
}
"""Each gives the address where its outcome can be seen."""
