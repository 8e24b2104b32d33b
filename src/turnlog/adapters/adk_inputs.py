"""What a caller of Google's ADK gives to be stored, as JSON: an event, and the changes of a state."""

from typing import Any, cast

from msgspec import Struct

from .adk_events import EventJson
from .adk_state import StateChange
from .framework import framework
from .not_storable import NotStorable, is_endless

with framework("adk"):
    from google.adk.events.event import Event
    from pydantic import BaseModel
    from pydantic_core import to_jsonable_python

TEMP = "temp:"


class EventInput(Struct, frozen=True):
    event: Event
    stored: EventJson
    size: int
    """About the length of its largest parts."""
    change: StateChange


def event_input(event: Event, delta: dict[str, Any]) -> EventInput:
    """The event with its JSON; NotStorable if JSON cannot hold it. `delta`: its changes of the state.

    Parts that hold what they hold in a new event are left out of the JSON: ADK gives them back.
    """
    size = 0
    # Here may be any value; ADK writes null for a NaN in it, and says nothing.
    loose: list[Any] = [event.custom_metadata, getattr(event, "output", None)]
    for part in (event.content.parts if event.content else None) or ():
        size += len(part.text or "")
        if part.inline_data:
            size += len(part.inline_data.data or b"")
        if part.function_call:
            loose.append(part.function_call.args)
        if part.function_response:
            loose.append(part.function_response.response)
    unused = {name for name, fields in _UNUSED.items() if getattr(getattr(event, name), "__dict__", None) == fields}
    if "actions" not in unused:
        loose += [value for name, value in event.actions if name != "state_delta"]
    try:
        stored = event.model_dump(mode="json", exclude_none=True, exclude=unused)
        is_finite = not is_endless(stored) and not any(is_endless(_plain(value)) for value in loose if value)
    except (ValueError, RecursionError) as error:
        raise NotStorable(f"an event cannot be stored: {error}") from error
    if not is_finite:
        raise NotStorable("an event cannot be stored: JSON has no NaN and no infinity")
    return EventInput(event, stored, size, state_change(delta) if delta else StateChange())


_UNUSED = {name: vars(value) for name, value in Event() if isinstance(value, BaseModel)}
"""What the parts of a new event hold: its actions and the place in a workflow, if this version of ADK has one."""


def state_change(delta: dict[str, Any]) -> StateChange:
    """The changes of each state. Values that JSON does not know are stored as ADK's own services do."""
    try:
        values = {str(name): _plain(value) for name, value in delta.items()}
    except (ValueError, RecursionError) as error:
        raise NotStorable(f"the state cannot be stored: {error}") from error
    if is_endless(values):
        raise NotStorable("the state cannot be stored: JSON has no NaN and no infinity")
    found = StateChange({}, {}, {})
    for name, value in values.items():
        if name.startswith("app:"):
            found.app[name[4:]] = value
        elif name.startswith("user:"):
            found.user[name[5:]] = value
        elif not name.startswith(TEMP):
            found.session[name] = value
    return found


def _plain(value: Any) -> Any:
    try:
        return to_jsonable_python(value, serialize_unknown=True)
    except UnicodeDecodeError:  # bytes that are no text
        return to_jsonable_python(value, serialize_unknown=True, bytes_mode="base64")
    except UnicodeEncodeError:  # half a character in a name: pydantic cannot write it, JSON can
        match value:
            case dict():
                fields = cast("dict[Any, Any]", value)
                return {str(name): _plain(inner) for name, inner in fields.items()}
            case list() | tuple():
                return [_plain(inner) for inner in cast("list[Any]", value)]
            case _:
                raise NotStorable("the state cannot be stored: a name in it has half a character") from None
