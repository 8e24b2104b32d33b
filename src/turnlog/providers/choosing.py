"""Which model a name means: PROVIDER:NAME, or what the environment speaks for. Imports only the one that is meant."""

import os
from collections.abc import Mapping
from pathlib import Path

from ..errors import UsageError
from . import Provider

FORMS = {
    "anthropic": "anthropic[:NAME]",
    "openai": "openai[:NAME]",
    "local": "local[:PATH.gguf]",
    "offline": "offline",
    "scripted": "scripted:FILE",
}
"""What a model may be called."""
ANTHROPIC_NAME = "claude-sonnet-5"
OPENAI_NAME = "gpt-5.5"
"""Where only the provider is named. Servers with one model, such as llama.cpp, do not look at it."""


def choose(env: Mapping[str, str]) -> str:
    """The provider that the environment speaks for."""
    if env.get("ANTHROPIC_API_KEY"):
        return "anthropic"
    if env.get("OPENAI_API_KEY") or env.get("OPENAI_BASE_URL"):
        return "openai"
    return "offline"


def open_provider(
    name: str | None = None,
    *,
    env: Mapping[str, str] | None = None,
    window: int | None = None,
    max_output: int | None = None,
) -> Provider:
    """PROVIDER:NAME, or what the environment speaks for. Nothing is connected or loaded before the first call."""
    env = os.environ if env is None else env
    kind, _, rest = (name or choose(env)).partition(":")
    match kind:
        case "anthropic":
            return _open_anthropic(rest, env, window, max_output)
        case "openai":
            return _open_openai(rest, env, window, max_output)
        case "local":
            from .local import LocalProvider

            return LocalProvider(Path(rest).expanduser() if rest else None, window=window, max_output=max_output)
        case "offline" if not rest:
            from .offline import OfflineProvider

            return OfflineProvider(window=window, max_output=max_output)
        case "scripted" if rest:
            from .scripted import ScriptProvider

            return ScriptProvider(Path(rest).expanduser(), window=window)
        case _:
            raise _unknown(name or kind)


def _open_anthropic(name: str, env: Mapping[str, str], window: int | None, max_output: int | None) -> Provider:
    from .anthropic import AnthropicProvider

    return AnthropicProvider(
        name or env.get("ANTHROPIC_MODEL") or ANTHROPIC_NAME,
        api_key=env.get("ANTHROPIC_API_KEY") or None,
        base_url=env.get("ANTHROPIC_BASE_URL") or None,
        window=window,
        max_output=max_output,
    )


def _open_openai(name: str, env: Mapping[str, str], window: int | None, max_output: int | None) -> Provider:
    from .openai import OpenAIProvider

    return OpenAIProvider(
        name or env.get("OPENAI_MODEL") or OPENAI_NAME,
        api_key=env.get("OPENAI_API_KEY") or None,
        base_url=env.get("OPENAI_BASE_URL") or None,
        window=window,
        max_output=max_output,
    )


def _unknown(name: str) -> UsageError:
    from difflib import get_close_matches

    kind = name.partition(":")[0].lower()
    known = {"claude": "anthropic", "gpt": "openai"}.get(kind.partition("-")[0])
    nearest = known or next(iter(get_close_matches(kind, FORMS, 1, cutoff=0.3)), "offline")
    meant = f"{nearest}:{name}" if known else FORMS[nearest]
    return UsageError(
        f"{name[:200]!r} names no model that can be used; did you mean {meant}?",
        hint=f"Use one of {', '.join(FORMS.values())}.",
    )
