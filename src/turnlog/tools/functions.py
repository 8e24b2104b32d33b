"""Python functions as tools: the schema comes from type hints, the description from the docstring.

A parameter may have any type that msgspec can check: numbers, text, None, Literal, Enum, lists, dicts, tuples, Structs,
dataclasses, TypedDicts, unions of them. `Annotated[int, "how many"]` describes a parameter, and so does a section
"Args:" or ":param name:" of the docstring. A parameter annotated with Context gets the context and is not shown.
"""

import inspect
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Union, cast, get_args, get_origin, overload

import msgspec
from msgspec import UNSET, Struct, UnsetType

from ..core import prompt
from ..core.arguments import checked
from ..core.entries import Content
from ..errors import UsageError
from .base import NAME, OUTPUT_MAX_CHARS, TIMEOUT_S, Context, Effect, Tool
from .content import as_content
from .threads import Threads

_NO_NAME = "Give the tool a name of 1 to 64 letters, digits, _ and -: tool(function, name=…)."
_ARGS = re.compile(r"^(?:Args|Arguments|Parameters):\s*$\n((?:^[ \t]+.*\n?|^\s*\n)+)", re.MULTILINE)
_ARG = re.compile(r"^(\s+)(\w+)\s*(?:\([^)]*\))?:\s*(.+)$")
_PARAM = re.compile(r"^:param\s+(?:[^:]*\s)?(\w+):\s*(.+(?:\n[ \t]+.+)*)", re.MULTILINE)
_SECTION = re.compile(r"^(?::\w+.*:|\w+:\s*$)")


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    function: Callable[..., Any],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    parallel: bool = False,
    timeout_s: float = TIMEOUT_S,
    cap_chars: int = OUTPUT_MAX_CHARS,
    effects: Sequence[Effect] | None = None,
    approval: bool | Callable[[dict[str, Any]], Any] | None = None,
) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    parallel: bool = False,
    timeout_s: float = TIMEOUT_S,
    cap_chars: int = OUTPUT_MAX_CHARS,
    effects: Sequence[Effect] | None = None,
    approval: bool | Callable[[dict[str, Any]], Any] | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...
@checked
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    parallel: bool = False,
    timeout_s: float = TIMEOUT_S,
    cap_chars: int = OUTPUT_MAX_CHARS,
    effects: Sequence[Effect] | None = None,
    approval: bool | Callable[[dict[str, Any]], Any] | None = None,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Makes a tool of a function; also a decorator, with and without arguments.

    A plain function runs in its own thread. At its timeout the caller continues and the thread is abandoned, because
    nothing can stop it. An async function is cancelled, and must not block.

    `effects`: any of "reads", "writes", "runs"; calls that write or run wait for a person's approval, as the setting
    `tools.approval` says. `approval`: True, or a function of the arguments, if calls wait whatever the setting says;
    False if they never do. A function with neither runs at once.
    Example: `now = turnlog.tool(lambda: "noon", name="now", description="Says the time.")`
    """
    if function is None:
        return partial(
            tool,
            name=name,
            description=description,
            parallel=parallel,
            timeout_s=timeout_s,
            cap_chars=cap_chars,
            effects=effects,
            approval=approval,
        )
    name = name or str(getattr(function, "__name__", ""))
    if not NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot be the name of a tool", hint=_NO_NAME)
    form = _Form(name, function)
    text = inspect.getdoc(function) or ""
    spec = prompt.ToolDefinition(
        name=name, description=description or _summary(text), input_schema=form.schema(_described(text))
    )
    return Tool(
        spec=spec,
        run=_Call(function, form).run,
        parallel=parallel,
        timeout_s=timeout_s,
        cap_chars=cap_chars,
        effects=None if effects is None else _effects(name, effects),
        approval=approval,
        check=form.read,
    )


def _effects(name: str, effects: Sequence[str]) -> tuple[Effect, ...]:
    known: tuple[Effect, ...] = get_args(Effect)
    for each in effects:
        if each not in known:
            raise UsageError(f"{name}: {each!r} is not an effect", hint=f"Use any of {', '.join(known)}.")
    return tuple(each for each in known if each in effects)


class _Call:
    def __init__(self, function: Callable[..., Any], form: "_Form") -> None:
        self._function = function
        self._form = form
        self._threads = Threads()
        self._is_async = inspect.iscoroutinefunction(function)

    async def run(self, given: dict[str, Any], context: Context) -> Content:
        call = partial(self._function, **self._form.arguments(given, context))
        value = call() if self._is_async else await self._threads.call(call)
        if inspect.isawaitable(value):
            value = await value
        # In a thread, because the function may return a large value.
        return value if isinstance(value, str) else await self._threads.call(partial(as_content, value))


class _Form:
    """A function's parameters as one Struct, which msgspec can describe and check.

    A parameter with a default stays unset here: the function has the default already, and a Struct could not hold every
    default that Python allows.
    """

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self._contexts: list[str] = []
        self._defaults: dict[str, Any] = {}
        self._hints: dict[str, Any] = {}
        hints = _hints_of(name, function)
        for parameter in inspect.signature(function).parameters.values():
            self._add(name, parameter, hints.get(parameter.name, Any))
        fields = [self._field(parameter) for parameter in self._hints]
        self._struct: type[Struct] = msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)
        self._check(name)

    def _add(self, name: str, parameter: inspect.Parameter, hint: Any) -> None:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise UsageError(f"{name}: {parameter} cannot be described", hint="Give each parameter a name and a type.")
        if hint is Context:
            self._contexts.append(parameter.name)
            return
        if parameter.default is not parameter.empty:
            self._defaults[parameter.name] = parameter.default
        # `limit: int = None` means that None is allowed, whatever the hint says.
        self._hints[parameter.name] = Union[hint, None] if parameter.default is None else hint  # noqa: UP007 - some hints have no |

    def _field(self, parameter: str) -> Any:
        hint = self._hints[parameter]
        if parameter in self._defaults:
            return parameter, Union[hint, UnsetType], UNSET  # noqa: UP007, hint is a value and may not know |
        return parameter, hint

    def _check(self, name: str) -> None:
        for parameter, hint in self._hints.items():
            try:
                msgspec.json.schema(hint)
                msgspec.json.Decoder(hint)  # unions that can be described but not distinguished
            except (TypeError, NameError) as error:
                raise UsageError(
                    f"{name}: parameter {parameter!r} has a type that no schema can describe: {error}",
                    hint="Use text, numbers, lists, dicts, Literal, Enum, dataclasses or Structs.",
                ) from error

    def schema(self, described: Mapping[str, str]) -> dict[str, Any]:
        whole = msgspec.json.schema(self._struct)
        kinds: dict[str, Any] = whole["$defs"]
        schema: dict[str, Any] = kinds.pop(whole["$ref"].rpartition("/")[2])
        del schema["title"]
        for parameter, hint in self._hints.items():
            shown: dict[str, Any] = schema["properties"][parameter]
            if text := _annotation(hint) or described.get(parameter, ""):
                shown.setdefault("description", text)
            if parameter in self._defaults:
                shown.update(_default(self._defaults[parameter]))
        return {**schema, "$defs": kinds} if kinds else schema

    def read(self, given: dict[str, Any]) -> Struct:
        """The input, checked. Text that spells a number is accepted: models often write it so."""
        try:
            return msgspec.convert(given, self._struct, strict=False)
        except msgspec.ValidationError as error:
            raise UsageError(f"the input does not fit: {error}", hint=self._expectation()) from error

    def arguments(self, given: dict[str, Any], context: Context) -> dict[str, Any]:
        """The checked and converted arguments."""
        known = self.read(given)
        values = {name: value for name in self._hints if (value := getattr(known, name)) is not UNSET}
        return {**values, **dict.fromkeys(self._contexts, context)}

    def _expectation(self) -> str:
        fields = [f"{name} (optional)" if name in self._defaults else name for name in self._hints]
        return f"The fields are: {', '.join(fields)}." if fields else "It takes no fields."


def _hints_of(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    """The type hints of the function, or of a callable object's `__call__`."""
    plain = inspect.unwrap(function)
    while isinstance(plain, partial):
        plain = cast("partial[Any]", plain).func
    target = plain if inspect.isroutine(plain) else type(plain).__call__
    try:
        return typing.get_type_hints(target, include_extras=True)
    except NameError as error:
        raise UsageError(
            f"{name}: {error}", hint="Define the types of its parameters at the top of a module."
        ) from error


def _annotation(hint: Any) -> str:
    """The plain text in Annotated; msgspec.Meta has put its own description into the schema already."""
    if get_origin(hint) is Annotated:
        return next((part for part in get_args(hint)[1:] if isinstance(part, str)), "")
    inner: tuple[Any, ...] = get_args(hint) if get_origin(hint) is Union else ()
    return next((text for text in map(_annotation, inner) if text), "")


def _default(value: Any) -> dict[str, Any]:
    if value is None:
        return {}  # leaving it out says the same
    try:
        return {"default": msgspec.json.decode(msgspec.json.encode(value))}
    except TypeError:
        return {}


def _summary(text: str) -> str:
    """The first paragraph, on one line."""
    lines: list[str] = []
    for line in text.splitlines():
        if not line.strip() or _SECTION.match(line):
            break
        lines.append(line.strip())
    return " ".join(lines)


def _described(text: str) -> dict[str, str]:
    found = {name: " ".join(words.split()) for name, words in _PARAM.findall(text)}
    section = _ARGS.search(text + "\n")
    return found | (_args(section[1]) if section else {})


def _args(section: str) -> dict[str, str]:
    """Lines at the section's own indent begin a parameter; deeper ones continue it."""
    found: dict[str, str] = {}
    indent, name = "", ""
    for line in section.splitlines():
        begins = _ARG.match(line)
        if begins and len(begins[1]) <= len(indent or begins[1]):
            indent, name = begins[1], begins[2]
            found[name] = begins[3].strip()
        elif name and line.strip():
            found[name] += " " + line.strip()
    return found
