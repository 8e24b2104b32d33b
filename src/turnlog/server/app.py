"""The application: routes, errors as problems, and the front door before all of it."""

from typing import Any

from litestar import Litestar, Request, Response, Router, get
from litestar.datastructures import State
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.types import ASGIApp

from .. import __version__
from ..errors import TurnlogError, UsageError
from . import openapi, pages_view, problems
from .admin import Conversations, SignIn
from .channels_api import arrive
from .chat import Chat
from .front import FrontDoor
from .health import count, healthz, readyz
from .pages import ROUTES
from .service import Asked, Service, service_of
from .sessions_api import SessionsApi


def create_app(service: Service) -> ASGIApp:
    """What a server runs. The service is opened and closed by whoever made it."""
    settings = service.turnlog.settings.server
    return FrontDoor(create_router(service), service, hosts=(*settings.hosts, settings.host), rate=float(settings.rate))


def create_router(service: Service | None) -> Litestar:
    """Without a service: only to be described."""
    return Litestar(
        route_handlers=[
            Router("/api/agents/{agent:str}", route_handlers=[Chat]),
            Router("/api/agents/{agent:str}/sessions", route_handlers=[SessionsApi]),
            Router("/api/sessions/{agent:str}", route_handlers=[SessionsApi]),
            Conversations,
            SignIn,
            arrive,
            healthz,
            readyz,
            count,
            description,
            *ROUTES,
        ],
        state=State({"service": service}),
        exception_handlers={Exception: answer_error},
        openapi_config=OpenAPIConfig(
            title="Turnlog",
            version=__version__,
            operation_id_creator=openapi.operation_id,
            path="/api/schema",
            render_plugins=[JsonRenderPlugin()],
        ),
        request_class=StrictRequest,
        request_max_body_size=None,
        logging_config=None,
    )


class StrictRequest(Request[Any, Any, Any]):
    """Bytes that are no text, and brackets without end, are the client's mistakes and not ours."""

    async def json(self) -> Any:
        try:
            return await super().json()
        except (UnicodeDecodeError, RecursionError) as error:
            raise UsageError("the body is not JSON", hint="Send an object, in UTF-8.") from error


@get("/openapi.json", include_in_schema=False, sync_to_thread=False)
def description(request: Asked) -> Response[dict[str, Any]]:
    return Response(openapi.describe(request.app))


MACHINES = ("/api", "/channels/", "/metrics", "/openapi.json", "/healthz", "/readyz")
"""Paths for programs, whatever they say they accept."""


def answer_error(request: Asked, error: Exception) -> Response[bytes] | Response[str]:
    """As a problem; to a person who went astray with a browser, as a page."""
    if "text/html" in request.headers.get("accept", "") and not request.url.path.startswith(MACHINES):
        return pages_view.answer_error(request, error)
    problem = problems.of(error)
    if problem.status >= 500:
        unexpected = None if isinstance(error, TurnlogError) else error
        service_of(request).log.error("failed", path=request.url.path, error=str(error), exc_info=unexpected)
    return Response(
        problems.encode(problem),
        status_code=problem.status,
        media_type=problems.MEDIA_TYPE,
        headers=problems.headers_of(error),
    )
