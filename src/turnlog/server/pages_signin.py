"""Signing in with the one-time link or a token, signing out, and what somebody likes: language and colours.

The link's page redeems nothing by itself: whatever looks a link up before a person does would use it up.
"""

from typing import Any

from litestar import Response, get, post
from litestar.datastructures import Cookie

from . import admin
from .auth import COOKIE
from .pages_view import HEADERS, LANGUAGE, THEME, lead_to, local_path, preference, show, wants_part
from .service import Asked, service_of


@get("/signin")
async def sign_in_page(request: Asked, code: str = "") -> Response[str]:
    if wants_part(request):
        # A piece of a page was asked for by somebody whose cookie is worth nothing any more.
        return Response("", headers={**HEADERS, "HX-Redirect": "/signin"}, media_type="text/html")
    return await show(request, "signin.html", code=code[:200], refused=False)


@post("/signin", status_code=200)
async def sign_in(request: Asked) -> Response[str]:
    form = await form_of(request)
    cookie = await admin.cookie_for(
        service_of(request), code=form.get("code") or None, token=form.get("token", "").strip() or None
    )
    if cookie is None:
        return await show(request, "signin.html", 401, code="", refused=True)
    return lead_to("/", [admin.cookie_header(request, cookie)])


@post("/signout", status_code=200)
async def sign_out(request: Asked) -> Response[str]:
    if value := request.cookies.get(COOKIE):
        await service_of(request).tokens.drop_cookie(value)
    return lead_to("/signin", [admin.cookie_header(request, "")])


@post("/static/preferences", status_code=200)
async def prefer(request: Asked) -> Response[str]:
    """Below /static because the sign-in page has it too."""
    form = await form_of(request)
    cookies: list[Cookie] = []
    if form.get("language") in ("en", "zh"):
        cookies.append(preference(LANGUAGE, form["language"]))
    if form.get("theme") in ("light", "dark"):
        cookies.append(preference(THEME, form["theme"]))
    return lead_to(local_path(form.get("next", "/")), cookies)


async def form_of(request: Asked) -> dict[str, str]:
    """The fields that are text, each once."""
    found: Any = await request.form()
    return {name: value for name, value in found.items() if isinstance(value, str)}
