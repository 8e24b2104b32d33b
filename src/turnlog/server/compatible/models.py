"""Which model a request means, and the list of models.

The first that fits: an agent · an alias of `[api.models]`, exact before pattern · PROVIDER:NAME of an API whose key the
server has · any other name at the default provider. `local:` and `scripted:` name files of the server, so a request can
name them only as the settings do.
"""

import os
from collections.abc import Mapping
from fnmatch import fnmatchcase
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from litestar import Response, get
from msgspec import Struct

from ...core.entries import clean
from ...core.principals import Principal
from ...errors import Denied, TurnlogError, UsageError
from ...providers.opening import DEFAULT_NAMES, choose
from ...providers.windows import of_claude, of_gpt
from ...settings import Settings
from ..service import AnyRequest, acting, service_of
from . import errors
from .errors import Unknown

AGENT_PREFIXES = ("agent:", "turnlog/")
DEFAULTS = ("default", "main's model")
"""Values of an alias that mean the model of the settings."""
APIS = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}
CREATED = 1_767_225_600
"""Models have no age here; clients want a time. The beginning of 2026."""


class Target(Struct, frozen=True):
    """An agent, or a model."""

    agent: str = ""
    model: str | None = None
    """PROVIDER:NAME; None: the model of the settings."""


def default_model(settings: Settings, env: Mapping[str, str] | None = None) -> str:
    return settings.model.name or choose(os.environ if env is None else env)


def may_relay(settings: Settings) -> bool:
    """Whether clients may use models directly: by default only while the server listens on loopback."""
    if settings.api.relay is not None:
        return settings.api.relay
    return _is_loopback(settings.server.host)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_upstreams(settings: Settings, env: Mapping[str, str] | None = None) -> None:
    """Raises UsageError if the server would call itself: the variables for its clients are set for the server too."""
    env = os.environ if env is None else env
    own = (default_model(settings, env), settings.model.summary_model, *settings.api.models.values())
    models = (*own, *(agent.model for agent in settings.agents.values()))
    for kind in APIS:
        name = f"{kind.upper()}_BASE_URL"
        if any(model and model.partition(":")[0] == kind for model in models) and _is_own(env.get(name, ""), settings):
            raise UsageError(
                f"{name} is the address of this server: it would call itself",
                hint=f"{name} is for clients; start the server without it: env -u {name} turnlog serve",
            )


def _is_own(address: str, settings: Settings) -> bool:
    try:
        parts, own = urlsplit(address), settings.server
        return parts.port == own.port and (_is_loopback(parts.hostname or "") or parts.hostname == own.host)
    except ValueError:  # not an address
        return False


def target_of(settings: Settings, name: str, who: Principal) -> Target:
    """Raises Unknown if nothing fits, and Denied for a relay that is not allowed."""
    if not name or clean(name) != name:  # nothing, or half a character, which no upstream can be sent
        raise _unknown(clean(name))
    target = _found(settings, name)
    if target.agent:
        if target.agent not in ("main", *settings.agents) or (
            who.agents is not None and target.agent not in who.agents
        ):
            raise _unknown(name)
        return target
    if who.agents is not None:
        raise _unknown(name)  # a token with a list of agents may use these agents only
    if not may_relay(settings):
        raise Denied(
            "this server does not relay to models",
            hint="Use an agent: model, or set [api] relay = true on the server.",
        )
    return target


def _found(settings: Settings, name: str) -> Target:
    for prefix in AGENT_PREFIXES:
        if name.startswith(prefix):
            return Target(agent=name.removeprefix(prefix) or "?")
    if alias := _alias(settings.api.models, name):
        if alias in DEFAULTS:
            return Target()
        agent = next((alias.removeprefix(prefix) for prefix in AGENT_PREFIXES if alias.startswith(prefix)), "")
        return Target(agent=agent) if agent else Target(model=alias)
    return Target(model=_direct(settings, name))


def _alias(aliases: Mapping[str, str], name: str) -> str | None:
    if name in aliases:
        return aliases[name]
    literal = {pattern: pattern.replace("[", "[[]").replace("?", "[?]") for pattern in aliases if "*" in pattern}
    fitting = [pattern for pattern, only_star in literal.items() if fnmatchcase(name, only_star)]
    return aliases[max(fitting, key=len)] if fitting else None


def _direct(settings: Settings, name: str) -> str | None:
    named = {settings.model.name, *(own.model for own in settings.agents.values())}
    kind, colon, rest = name.partition(":")
    if name in named or name == "offline":
        return name
    if colon and kind in APIS and rest:
        if not _has_key(kind):
            raise _unknown(name)
        return name
    default = default_model(settings)
    kind = default.partition(":")[0]
    if kind not in APIS:
        return settings.model.name
    return f"{kind}:{name}"


def _has_key(kind: str) -> bool:
    others = {"openai": "OPENAI_BASE_URL", "anthropic": "ANTHROPIC_AUTH_TOKEN"}
    return bool(os.environ.get(APIS[kind]) or os.environ.get(others[kind]))


def _unknown(name: str) -> Unknown:
    return Unknown(
        f"The model {name[:200]!r} does not exist or you do not have access to it.",
        hint="Name models in [api.models]; GET /v1/models lists those that there are.",
        code="model_not_found",
        param="model",
    )


class ModelEntry(Struct, frozen=True):
    """One line of the list."""

    id: str
    window: int | None = None
    output: int | None = None


def listed(settings: Settings, who: Principal) -> list[ModelEntry]:
    """Agents and aliases that this principal may use."""
    agents = [name for name in dict.fromkeys(("main", *settings.agents)) if who.agents is None or name in who.agents]
    found = [_entry(f"agent:{name}", _agent_model(settings, name), settings) for name in agents]
    if who.agents is not None or not may_relay(settings):
        return found
    default = default_model(settings)
    kind, _, name = default.partition(":")
    plain = (name if kind in APIS else "") or DEFAULT_NAMES.get(kind, kind)  # other names are files of the server
    names = dict.fromkeys([plain, *(alias for alias in settings.api.models if "*" not in alias)])
    return [*(_entry(name, _alias(settings.api.models, name) or default, settings) for name in names), *found]


def _agent_model(settings: Settings, name: str) -> str:
    own = settings.agents.get(name)
    return (own and own.model) or default_model(settings)


def _entry(name: str, model: str, settings: Settings) -> ModelEntry:
    kind, _, rest = model.partition(":")
    plain = rest or DEFAULT_NAMES.get(kind, kind)
    size = of_claude(plain) if kind == "anthropic" else None
    window = settings.model.window or (size.window if size else of_gpt(plain) if kind == "openai" else None)
    return ModelEntry(name, window, settings.model.max_output or (size.output if size else None))


def as_openai(entry: ModelEntry) -> dict[str, Any]:
    return {"id": entry.id, "object": "model", "created": CREATED, "owned_by": "turnlog", **_sizes(entry)}


def as_anthropic(entry: ModelEntry) -> dict[str, Any]:
    return {
        "type": "model",
        "id": entry.id,
        "display_name": entry.id,
        "created_at": "2026-01-01T00:00:00Z",
        **_sizes(entry),
    }


def _sizes(entry: ModelEntry) -> dict[str, Any]:
    sizes = {"context_window": entry.window, "max_output_tokens": entry.output}
    return {name: size for name, size in sizes.items() if size}


@get("/v1/models", operation_id="listModels", summary="The models that a request may name", tags=["compatible"])
async def list_models(request: AnyRequest) -> Response[bytes]:
    found = listed(service_of(request).settings, acting(request, "chat").principal)
    if _is_anthropic(request):
        rows = [as_anthropic(entry) for entry in found]
        ends = {"first_id": found[0].id if found else None, "last_id": found[-1].id if found else None}
        return answer({"data": rows, "has_more": False, **ends})
    return answer({"object": "list", "data": [as_openai(entry) for entry in found]})


@get("/v1/models/{name:path}", operation_id="getModel", summary="One model", tags=["compatible"])
async def get_model(request: AnyRequest, name: str) -> Response[bytes]:
    wanted = name.removeprefix("/")
    who = acting(request, "chat").principal
    settings = service_of(request).settings
    entry = next((entry for entry in listed(settings, who) if entry.id == wanted), None)
    if entry is None:
        try:
            target = target_of(settings, wanted, who)
        except TurnlogError as error:
            raise _unknown(wanted) from error
        model = _agent_model(settings, target.agent) if target.agent else target.model or default_model(settings)
        entry = _entry(wanted, model, settings)
    return answer(as_anthropic(entry) if _is_anthropic(request) else as_openai(entry))


def _is_anthropic(request: AnyRequest) -> bool:
    return errors.family_of(request.url.path, "anthropic-version" in request.headers) == "anthropic"


def answer(body: dict[str, Any]) -> Response[bytes]:
    return Response(errors.encode(body), media_type="application/json")
