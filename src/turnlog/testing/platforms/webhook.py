"""A program that gets answers at its reply_url, checks their signatures and accepts each id once."""

from typing import Any

from . import Platform, PlatformRequest


class WebhookPlatform(Platform):
    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def answer(self, call: PlatformRequest) -> tuple[int, Any]:
        needed = ("webhook-id", "webhook-timestamp", "webhook-signature")
        if not all(call.headers.get(name) for name in needed):
            return 401, {"error": "not signed"}
        if call.headers["webhook-id"] not in self.seen:
            self.seen.add(call.headers["webhook-id"])
            self.sent.append(call.fields())
        return 200, {}
