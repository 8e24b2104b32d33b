"""The OpenAPI description: generated from the routes, and completed with what all of them share."""

from typing import Any

import msgspec
from litestar import Litestar
from litestar.handlers import HTTPRouteHandler
from litestar.types import Method
from litestar.types.internal_types import PathParameterDefinition
from msgspec import Struct

from ...access.auditing import AuditPage
from . import bodies, compatible_openapi as compatible
from .problems import Problem

PROBLEMS = {
    "400": "The request cannot be carried out as it is.",
    "401": "No token, or one that is not known.",
    "403": "The token does not allow this, or the request came from another site or for another host.",
    "404": "There is no such thing, for this token.",
    "408": "The request took too long to arrive.",
    "409": "Somebody else was faster, a turn is running, or the Idempotency-Key was used for another request.",
    "413": "The body, the message or the prompt is too large.",
    "429": "Too many requests, or too many messages wait in this session. See Retry-After.",
    "500": "The server failed.",
    "502": "The model's provider failed.",
    "503": "The store cannot be written, or the server is closing or full. See Retry-After.",
}
_TEXT: dict[str, Any] = {"schema": {"type": "string"}}
_FRAMES: dict[str, Any] = {
    "schema": {
        "type": "object",
        "description": "One event. `data` is a JSON object with `type`; docs/reference/http.md lists them.",
        "properties": {"id": {"type": "string"}, "data": {"type": "string"}, "event": {"const": "message"}},
        "required": ["data"],
    }
}
_STREAMS = {"chat", "rejoin", "events", "retry"}
_EITHER = {"EraseBody": ("seqs", "text")}
"""Bodies that need exactly one of these fields, which their types cannot say."""
_OPEN = {"healthz", "readyz", "signIn", "signOut"}


def operation_id(handler: HTTPRouteHandler, method: Method, path: list[str | PathParameterDefinition]) -> str:
    """The handler's name; routes at the second path of sessions get another one."""
    name = handler.handler_name
    words = name.split("_")
    short = words[0] + "".join(map(str.capitalize, words[1:]))
    return f"{short}Session" if "agents" in path else f"{short}SessionToo"


def describe(app: Litestar) -> dict[str, Any]:
    found = app.openapi_schema.to_schema()
    found.pop("servers", None)
    found["info"]["description"] = "Sessions for LLM agents over HTTP. docs/reference/http.md explains it."
    parts = found.setdefault("components", {})
    parts["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "cookie": {"type": "apiKey", "in": "cookie", "name": "turnlog"},
        "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
    }
    parts["schemas"] = _schemas(set(parts["schemas"]))
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    parts["responses"] = {f"Problem{s}": {"description": text, "content": content} for s, text in PROBLEMS.items()}
    for methods in found["paths"].values():
        for method, operation in methods.items():
            if compatible.TAG in operation.get("tags", ()):
                compatible.complete(method, operation)
            else:
                _complete(method, operation)
    return found


def _schemas(names: set[str]) -> dict[str, Any]:
    """Made by msgspec, which also checks bodies: the framework omits patterns and the refusal of unknown fields."""
    known = (*vars(bodies).values(), AuditPage, Problem)
    kinds = [kind for kind in known if isinstance(kind, type) and issubclass(kind, Struct)]
    wanted = [kind for kind in kinds if kind.__name__ in names or kind is Problem]
    _, found = msgspec.json.schema_components(wanted, ref_template="#/components/schemas/{name}")
    for name, fields in _EITHER.items():
        found[name]["oneOf"] = [{"required": [field]} for field in fields]
    return dict(sorted(found.items()))


def _complete(method: str, operation: dict[str, Any]) -> None:
    name: str = operation["operationId"]
    answers: dict[str, Any] = {status: it for status, it in operation["responses"].items() if status < "400"}
    if name.removesuffix("SessionToo").removesuffix("Session") in _STREAMS:
        answers = {"200": {"description": "Server-sent events.", "content": {"text/event-stream": _FRAMES}}}
    if name == "metrics":
        answers = {"200": {"description": "The counts.", "content": {"text/plain": _TEXT}}}
    operation["responses"] = {**answers, **{s: {"$ref": f"#/components/responses/Problem{s}"} for s in PROBLEMS}}
    operation["security"] = [] if name in _OPEN else [{"bearer": []}, {"cookie": []}]
    if "204" in answers:
        answers["204"].pop("content", None)
    for parameter in operation.get("parameters", []):
        _tidy(parameter)
    operation.pop("deprecated", None)
    if method == "post" and name not in ("signIn",):
        operation.setdefault("parameters", []).append(_IDEMPOTENCY)


def _tidy(parameter: dict[str, Any]) -> None:
    for noise in ("deprecated", "allowEmptyValue", "allowReserved"):
        parameter.pop(noise, None)
    schema = parameter["schema"]
    schema.pop("description", None)
    # `null` means that a parameter is left out; a query string has no null.
    for kind in schema.pop("oneOf", []):
        if kind != {"type": "null"}:
            schema.update(kind)


_IDEMPOTENCY: dict[str, Any] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same key and body give the first answer; another body is a conflict.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200},
}


if __name__ == "__main__":
    import sys

    from ..app import create_router

    text = msgspec.json.format(msgspec.json.encode(describe(create_router(None))), indent=1)
    sys.stdout.buffer.write(text + b"\n")
