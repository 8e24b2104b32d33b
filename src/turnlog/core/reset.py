"""When a key gets a new session automatically, as `session.reset` says: off, idle:60, daily:04:00."""

from ..errors import UsageError


def parse_reset(text: str) -> tuple[str, int]:
    """("off", 0), ("idle", minutes) or ("daily", minutes after midnight)."""
    kind, _, rest = text.partition(":")
    hour, _, minute = rest.partition(":")
    match kind:
        case "off" if not rest:
            return "off", 0
        case "idle" if rest.isdecimal() and int(rest) > 0:
            return "idle", int(rest)
        case "daily" if hour.isdecimal() and minute.isdecimal() and int(hour) < 24 and int(minute) < 60:
            return "daily", int(hour) * 60 + int(minute)
        case _:
            raise UsageError(f"{text!r} is not a way to reset sessions", hint="Write off, idle:60 or daily:04:00.")
