"""The application: routes, errors as problem documents, and the gate before all of it."""

from typing import Any

from litestar import Litestar, Request, Response, Router, get
from litestar.datastructures import State
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.types import ASGIApp

from .. import __version__
from ..errors import TurnlogError
from .api.admin import ConversationsController, SignIn, approval_audit, erase_everywhere
from .api.channels import arrive
from .api.chat import ChatController, offered_models
from .api.direct_chat import DirectChat
from .api.health import count, healthz, readyz
from .api.sessions import SessionsApi
from .compatible import addresses, errors, routes
from .http import openapi, problems
from .http.auth import COOKIE
from .http.bodies import decode_body
from .http.gate import Gate
from .mcp.http import McpEndpoint, answer_mcp
from .pages import ROUTES, view
from .service import AnyRequest, Service, service_of


def create_app(service: Service) -> ASGIApp:
    """The application of a server. The caller opens and closes the service."""
    settings = service.settings.server
    routes = DirectChat(create_router(service), answer_error)
    return Gate(routes, service, hosts=(*settings.hosts, settings.host), rate=float(settings.rate))


def create_router(service: Service | None) -> Litestar:
    """Without a service, it can only be described (OpenAPI)."""
    return Litestar(
        route_handlers=[
            Router("/api/agents/{agent:str}", route_handlers=[ChatController, offered_models]),
            Router("/api/agents/{agent:str}/sessions", route_handlers=[SessionsApi]),
            Router("/api/sessions/{agent:str}", route_handlers=[SessionsApi]),
            ConversationsController,
            SignIn,
            approval_audit,
            erase_everywhere,
            arrive,
            healthz,
            readyz,
            count,
            description,
            answer_mcp,
            *routes.ROUTES,
            ROUTES,
        ],
        state=State({"service": service, "mcp": McpEndpoint(service) if service else None}),
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
    """Bodies are decoded here, because the framework would coerce their fields (0 to false, "5" to 5)."""

    async def json(self) -> Any:
        field = self.route_handler.parsed_data_field
        return decode_body(await self.body(), field.annotation if field else Any)


@get("/openapi.json", include_in_schema=False, sync_to_thread=False)
def description(request: AnyRequest) -> Response[dict[str, Any]]:
    return Response(openapi.describe(request.app))


MACHINES = ("/api", "/v1/", "/mcp", "/channels/", "/metrics", "/openapi.json", "/healthz", "/readyz")
"""Paths for programs: their errors are never pages, whatever the Accept header says."""


def answer_error(request: AnyRequest, error: Exception) -> Response[bytes] | Response[str]:
    """A problem document; for a browser on a path of the page, a page."""
    if "text/html" in request.headers.get("accept", "") and not request.url.path.startswith(MACHINES):
        return view.answer_error(request, error)
    problem = problems.of(error)
    if COOKIE in request.cookies:  # a script of the page asks
        problem = problems.for_people(problem, view.frame_of(request).t)
    is_compatible = request.url.path.startswith(addresses.PREFIX)
    if problem.status >= 500 and not (is_compatible and errors.told(error).status < 500):
        unexpected = None if isinstance(error, TurnlogError) else error
        service_of(request).log.error("failed", path=request.url.path, error=str(error), exc_info=unexpected)
    if is_compatible:
        return routes.answer_error(request, error)
    return Response(
        problems.encode(problem),
        status_code=problem.status,
        media_type=problems.MEDIA_TYPE,
        headers=problems.headers_of(error),
    )
