"""The OpenAPI description of the routes under /v1. Their bodies are the vendors'; only what is ours is described."""

from typing import Any

TAG = "compatible"
_OBJECT: dict[str, Any] = {"type": "object"}
_FRAMES: dict[str, Any] = {
    "schema": {"type": "object", "description": "Server-sent events, as the vendor's API sends."}
}
_ERROR: dict[str, Any] = {
    "type": "object",
    "description": "In the shape of OpenAI, or of Anthropic on its routes. The message holds the hint.",
    "properties": {
        "error": {
            "type": "object",
            "properties": {"message": {"type": "string"}, "type": {"type": "string"}},
            "required": ["message", "type"],
        }
    },
    "required": ["error"],
}
_WORDS: dict[str, Any] = {
    "type": "string",
    "pattern": r"\S",
    "description": "A message may be empty if another one in the request has words.",
}
_STREAMS = ("chatCompletions", "createMessage", "createResponse", "getResponse")
_METADATA: dict[str, Any] = {
    "type": "object",
    "propertyNames": {"minLength": 1, "maxLength": 64},
    "additionalProperties": {"type": "string", "maxLength": 512},
    "maxProperties": 16,
}
_PAGE: dict[str, Any] = {
    "after": {"type": "string"},
    "limit": {"type": "integer", "minimum": 1, "maximum": 100},
    "order": {"enum": ["asc", "desc"]},
}
_INPUTS = ("createResponse", "countInputTokens", "compactResponse")
_QUERIES = {
    "getResponse": {"stream": {"type": "boolean"}, "starting_after": {"type": "integer", "minimum": 0}},
    "listInputItems": _PAGE,
    "listItems": _PAGE,
}
"""What a query of these routes may hold."""


def complete(method: str, operation: dict[str, Any]) -> None:
    name: str = operation["operationId"]
    content: dict[str, Any] = {"application/json": {"schema": _OBJECT}}
    if name in _STREAMS:
        content["text/event-stream"] = _FRAMES
    operation["responses"] = {
        "200": {"description": "As the vendor's API answers.", "content": content},
        "default": {"description": "An error.", "content": {"application/json": {"schema": _ERROR}}},
    }
    operation["security"] = [{"bearer": []}, {"key": []}]
    operation.pop("deprecated", None)
    if name == "getModel":
        operation["parameters"] = [{"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}]
    for parameter in operation.get("parameters", ()):
        for noise in ("deprecated", "allowEmptyValue", "allowReserved"):
            parameter.pop(noise, None)
    operation.setdefault("parameters", []).extend(
        {"name": field, "in": "query", "required": False, "schema": schema}
        for field, schema in _QUERIES.get(name, {}).items()
    )
    if not operation["parameters"]:
        del operation["parameters"]
    if method == "post" and name != "cancelResponse":
        needed = name != "createConversation"
        operation["requestBody"] = {"required": needed, "content": {"application/json": {"schema": _body(name)}}}


def _body(name: str) -> dict[str, Any]:
    """A request that is certainly accepted; docs/reference/http.md says what else is."""
    message = {
        "type": "object",
        "properties": {"role": {"enum": ["user"]}, "content": _WORDS},
        "required": ["role", "content"],
    }
    if name in ("createConversation", "updateConversation"):
        if name == "updateConversation":
            return {"type": "object", "properties": {"metadata": _METADATA}, "required": ["metadata"]}
        return {"type": "object", "properties": {"metadata": {"anyOf": [_METADATA, {"type": "null"}]}}}
    if name == "createItems":
        held = {"items": {"type": "array", "items": message, "minItems": 1, "maxItems": 20}}
        return {"type": "object", "properties": held, "required": ["items"]}
    fields: dict[str, Any] = {
        "model": {"type": "string", "minLength": 1},
        "messages": {"type": "array", "items": message, "minItems": 1},
    }
    if name == "createMessage":
        fields["max_tokens"] = {"type": "integer", "minimum": 1}
    if name in _INPUTS:
        fields["input"] = {"oneOf": [_WORDS, fields.pop("messages")]}
    return {"type": "object", "properties": fields, "required": list(fields)}
