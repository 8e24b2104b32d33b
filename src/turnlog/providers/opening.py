"""Opens the provider of a model: PROVIDER:NAME, or a choice by the environment. Imports only that provider."""

import os
from collections.abc import Callable, Mapping
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
"""The accepted forms of a model's name."""
DEFAULT_NAMES = {"anthropic": "claude-sonnet-5", "openai": "gpt-5.5"}
"""Used if only the provider is named. Servers with one model, such as llama.cpp, ignore it."""


SHARED = ("anthropic", "openai")
"""APIs that serve many models with one key."""


def renamed(provider: Provider, name: str) -> Provider:
    """Another model of the same API, at the same address and with the same key and connections."""
    named: Callable[[str], Provider] = getattr(provider, "named")  # noqa: B009 - only providers of SHARED have it
    return named(name)


def choose(env: Mapping[str, str]) -> str:
    """Chooses the provider by the API keys in the environment."""
    if env.get("ANTHROPIC_API_KEY"):
        return "anthropic"
    if env.get("OPENAI_API_KEY") or env.get("OPENAI_BASE_URL"):
        return "openai"
    return "offline"


def public_name(name: str | None, env: Mapping[str, str]) -> str:
    """The name that the provider will give its model: PROVIDER:NAME, without the folder of a file. Opens nothing."""
    kind, _, rest = (name or choose(env)).partition(":")
    match kind:
        case "anthropic" | "openai":
            return f"{kind}:{_sdk_name(kind, rest, env)}"
        case "local" | "scripted" if rest:
            return f"{kind}:{Path(rest).name}"
        case "offline" | "local" if not rest:
            return kind
        case _:
            raise _unknown(name or kind)


def _sdk_name(kind: str, name: str, env: Mapping[str, str]) -> str:
    return name or env.get(f"{kind.upper()}_MODEL") or DEFAULT_NAMES[kind]


def open_provider(
    name: str | None = None,
    *,
    env: Mapping[str, str] | None = None,
    window: int | None = None,
    max_output: int | None = None,
) -> Provider:
    """Opens PROVIDER:NAME, or a choice by the environment. Nothing is connected or loaded before the first call."""
    env = os.environ if env is None else env
    kind, _, rest = (name or choose(env)).partition(":")
    match kind:
        case "anthropic" | "openai":
            return _open_sdk(kind, rest, env, window, max_output)
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


def _open_sdk(kind: str, name: str, env: Mapping[str, str], window: int | None, max_output: int | None) -> Provider:
    if kind == "anthropic":
        from .anthropic import AnthropicProvider as SdkProvider
    else:
        from .openai import OpenAIProvider as SdkProvider
    given = {word: env.get(f"{kind.upper()}_{word}") or None for word in ("API_KEY", "BASE_URL")}
    return SdkProvider(
        _sdk_name(kind, name, env),
        api_key=given["API_KEY"],
        base_url=given["BASE_URL"],
        window=window,
        max_output=max_output,
    )


def _unknown(name: str) -> UsageError:
    from difflib import get_close_matches

    kind = name.partition(":")[0].lower()
    known = {"claude": "anthropic", "gpt": "openai"}.get(kind.partition("-")[0])
    near = get_close_matches(kind, FORMS, 1, cutoff=0.5)
    meant = f"{known}:{name}" if known else FORMS[near[0]] if near else ""
    return UsageError(
        f"{name[:200]!r} is not a known model" + (f"; did you mean {meant}?" if meant else ""),
        hint=f"Use one of {', '.join(FORMS.values())}.",
    )
