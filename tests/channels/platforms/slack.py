"""Slack's Web API, as far as a chatting bot needs it, and its events."""

import itertools
from typing import Any

from turnlog.testing.platforms import JsonFields, Platform, PlatformRequest


class SlackPlatform(Platform):
    def __init__(self, token: str = "xoxb-test") -> None:
        super().__init__()
        self.token = token
        self.names: dict[str, str] = {"U1": "Ann", "U2": "Bob"}
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

    def answer(self, call: PlatformRequest) -> tuple[int, Any]:
        if call.headers.get("authorization") != f"Bearer {self.token}":
            return 200, {"ok": False, "error": "invalid_auth"}
        method = call.path.rpartition("/")[2]
        match method:
            case "chat.postMessage":
                return self._take(call.fields())
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
        ts = f"1700000001.{next(self._numbers):06d}"
        self.sent.append({**fields, "ts": ts})
        return 200, {"ok": True, "channel": fields["channel"], "ts": ts, "message": {"text": text, "ts": ts}}
