"""Slack's Web API, as far as a chatting bot needs it, and its events."""

import itertools
import json
from typing import Any

from turnlog.testing.platforms import JsonFields, Platform, PlatformRequest


class SlackPlatform(Platform):
    def __init__(self, token: str = "xoxb-test") -> None:
        super().__init__()
        self.token = token
        self.names: dict[str, str] = {"U1": "Ann", "U2": "Bob"}
        self.notes: list[tuple[str, str]] = []
        """What single people were shown: (user, text)."""
        self._numbers = itertools.count(1)

    def event(
        self, words: str, *, channel: str = "D1", user: str = "U1", kind: str = "message", **more: Any
    ) -> JsonFields:
        """The event that Slack would deliver if somebody said this."""
        number = next(self._numbers)
        types = {"D": "im", "C": "channel", "G": "group"}
        event: JsonFields = {
            "type": kind,
            "channel": channel,
            "channel_type": types.get(channel[0], "channel"),
            "user": user,
            "text": words,
            "ts": f"1700000000.{number:06d}",
            **more,
        }
        return {
            "type": "event_callback",
            "team_id": "T1",
            "api_app_id": "A1",
            "event": event,
            "event_id": f"Ev{number:08d}",
            "event_time": 1_700_000_000,
            "authorizations": [{"team_id": "T1", "user_id": "UBOT", "is_bot": True}],
        }

    def press(self, label: str, *, user: str = "U1", channel: str = "") -> JsonFields:
        """The payload that Slack would deliver if somebody pressed this button of the newest message that has it."""
        message = next(one for one in reversed(self.sent) if label in buttons(one))
        where = channel or message["channel"]
        return {
            "type": "block_actions",
            "user": {"id": user, "username": "ann", "name": self.names.get(user, "x"), "team_id": "T1"},
            "api_app_id": "A1",
            "token": "old",
            "container": {"type": "message", "message_ts": message["ts"], "channel_id": where, "is_ephemeral": False},
            "trigger_id": f"t{next(self._numbers)}",
            "team": {"id": "T1", "domain": "d"},
            "channel": {"id": where, "name": "directmessage"},
            "message": {"type": "message", "ts": message["ts"], "text": message["text"]},
            "response_url": "https://hooks.slack.test/actions/1",
            "actions": [{**buttons(message)[label], "block_id": "b", "action_ts": "1700000002.000001"}],
        }

    def answer(self, call: PlatformRequest) -> tuple[int, Any]:
        if call.headers.get("authorization") != f"Bearer {self.token}":
            return 200, {"ok": False, "error": "invalid_auth"}
        method = call.path.rpartition("/")[2]
        match method:
            case "chat.postMessage":
                return self._take(call.fields())
            case "chat.update":
                fields = call.fields()
                found = next((one for one in self.sent if one["ts"] == fields.get("ts")), None)
                if found is None or found["channel"] != fields.get("channel"):
                    return 200, {"ok": False, "error": "message_not_found"}
                found.update(text=fields["text"], blocks=fields.get("blocks", []))
                return 200, {"ok": True, "channel": found["channel"], "ts": found["ts"], "text": found["text"]}
            case "chat.postEphemeral":
                fields = call.fields()
                self.notes.append((fields["user"], fields["text"]))
                return 200, {"ok": True, "message_ts": "1"}
            case "users.info":
                user = call.query.get("user", "")
                if user not in self.names:
                    return 200, {"ok": False, "error": "user_not_found"}
                profile = {"display_name": self.names[user], "real_name": self.names[user]}
                return 200, {"ok": True, "user": {"id": user, "name": "x", "profile": profile}}
            case "auth.test":
                return 200, {"ok": True, "user_id": "UBOT", "bot_id": "B1"}
            case "assistant.threads.setStatus":
                return 200, {"ok": True}
            case _:
                return 200, {"ok": False, "error": "unknown_method"}

    def _take(self, fields: JsonFields) -> tuple[int, Any]:
        text = fields.get("text")
        if not fields.get("channel"):
            return 200, {"ok": False, "error": "channel_not_found"}
        if not text:
            return 200, {"ok": False, "error": "no_text"}
        if len(text) > 40_000:
            return 200, {"ok": False, "error": "msg_too_long"}
        if not _valid(fields.get("blocks") or []):
            return 200, {"ok": False, "error": "invalid_blocks"}
        ts = f"1700000001.{next(self._numbers):06d}"
        self.sent.append({**fields, "ts": ts})
        return 200, {"ok": True, "channel": fields["channel"], "ts": ts, "message": {"text": text, "ts": ts}}


def buttons(message: JsonFields) -> dict[str, JsonFields]:
    """By label: the buttons of a message."""
    rows = [one["elements"] for one in _blocks(message) if one["type"] == "actions"]
    return {one["text"]["text"]: one for row in rows for one in row}


def _blocks(message: JsonFields) -> list[JsonFields]:
    return _read(message.get("blocks") or [])


def _read(blocks: Any) -> list[JsonFields]:
    """The library sends forms, in which blocks are JSON."""
    return json.loads(blocks) if isinstance(blocks, str) else blocks


def _valid(given: Any) -> bool:
    for block in _read(given):
        if block["type"] == "section" and not 0 < len(block["text"]["text"]) <= 3_000:
            return False
        elements = block.get("elements", [])
        if len({one["action_id"] for one in elements}) < len(elements):
            return False
        if any(len(one["text"]["text"]) > 75 or len(one["value"]) > 2_000 for one in elements):
            return False
    return True
