"""What a client may send: sizes, and requests per second."""

from .buckets import Buckets as Buckets
from .problems import Refusal, later

BODY_MAX_BYTES = 24 * 1024 * 1024
"""A request. It holds pictures in base64, which is a third larger."""
TEXT_MAX_BYTES = 1024 * 1024
"""A message, and the context that comes with it."""
IMAGES_MAX = 20
"""In one message; providers accept about as many."""
FAILURES_PER_S = 2.0
FAILURES_BURST = 120.0
"""Wrong tokens from one address. Tokens cannot be guessed; this limits the load of attempts."""


def too_many(what: str = "too many requests") -> Refusal:
    return later(what, "Wait as long as Retry-After says, then send more slowly.", status=429, code="rate")


def too_large(what: str, limit: int) -> Refusal:
    return Refusal(f"{what} is larger than {limit:,} bytes", status=413, code="too_large", hint="Send less at once.")


def check_text(what: str, text: str) -> str:
    if len(text) > TEXT_MAX_BYTES or len(text.encode("utf-8", "replace")) > TEXT_MAX_BYTES:
        raise too_large(what, TEXT_MAX_BYTES)
    return text
