"""Signing in with the one-time link or a token, signing out, and preferences: language and colours.

Opening the link does not redeem its code, only the form does: programs that fetch links in advance must not use it up.
"""

from typing import Any

from litestar import Response, get, post
from litestar.datastructures import Cookie

from ..api import admin
from ..http.auth import COOKIE, LANGUAGE
from ..service import AnyRequest, service_of
from .view import HEADERS, THEME, lead_to, local_path, preference, show, wants_part


@get("/signin")
async def sign_in_page(request: AnyRequest, code: str = "") -> Response[str]:
    if wants_part(request):
        # htmx asked for a part of a page, and the cookie has expired.
        return Response("", headers={**HEADERS, "HX-Redirect": "/signin"}, media_type="text/html")
    return await show(request, "signin.html", code=code[:200], refused=False)


@post("/signin", status_code=200)
async def sign_in(request: AnyRequest) -> Response[str]:
    form = await form_of(request)
    cookie = await admin.cookie_for(
        service_of(request), code=form.get("code") or None, token=form.get("token", "").strip() or None
    )
    if cookie is None:
        return await show(request, "signin.html", status=401, code="", refused=True)
    return lead_to("/", [admin.cookie_header(request, cookie)])


@post("/signout", status_code=200)
async def sign_out(request: AnyRequest) -> Response[str]:
    if value := request.cookies.get(COOKIE):
        await service_of(request).tokens.drop_cookie(value)
    return lead_to("/signin", [admin.cookie_header(request, "")])


@post("/static/preferences", status_code=200)
async def prefer(request: AnyRequest) -> Response[str]:
    """Below /static, because the sign-in page needs it without a token."""
    form = await form_of(request)
    cookies: list[Cookie] = []
    if form.get("language") in ("en", "zh"):
        cookies.append(preference(LANGUAGE, form["language"]))
    if form.get("theme") in ("light", "dark"):
        cookies.append(preference(THEME, form["theme"]))
    return lead_to(local_path(form.get("next", "/")), cookies)


async def pairs_of(request: AnyRequest) -> list[tuple[str, str]]:
    """The text fields of a form, which may come several times."""
    found: Any = await request.form()
    return [(name, value) for name, value in found.multi_items() if isinstance(value, str)]


async def form_of(request: AnyRequest) -> dict[str, str]:
    """The last value of each text field of a form."""
    return dict(await pairs_of(request))
