"""Who asks: tokens with scopes, one-time sign-in codes, and cookies for the page.

Of each of them only a hash is kept, in the store's ledger, and it is looked up again for every request: what was
revoked is worthless at once, on every server of the store. A cookie is worth what its token is worth.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..core.keys import check_agent
from ..core.principals import Principal
from ..errors import NotFound, UsageError
from ..stores import Clock, Ledger
from ..stores.stamping import now_ms

TOKENS, CODES, COOKIES = "tokens", "signin", "cookies"
"""Spaces of the ledger."""
SCOPES = ("chat", "read", "admin")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}\Z")
CODE_TTL_S = 24 * 3600.0
"""A sign-in link that nobody used."""
COOKIE_TTL_S = 30 * 24 * 3600.0
COOKIE = "turnlog"
TOKENS_MAX = 1_000
"""What one ledger lists; more people than that want a sign-on of their own in front."""
RACES_MAX = 20


class Token(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of a token; not the token itself."""

    id: str
    name: str
    """The principal that it stands for; two tokens of one name share their sessions."""
    hash: str
    scopes: tuple[str, ...]
    agents: tuple[str, ...] | None = None
    created_at: int
    expires_at: int | None = None
    revoked_at: int | None = None

    @property
    def principal(self) -> Principal:
        agents = None if self.agents is None else frozenset(self.agents)
        return Principal(self.name, frozenset(self.scopes), agents)

    def is_live(self, now: int) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class Tokens:
    def __init__(self, ledger: Ledger, *, clock: Clock = now_ms) -> None:
        self._ledger = ledger
        self._clock = clock

    async def create(
        self,
        name: str,
        scopes: Sequence[str],
        *,
        agents: Sequence[str] | None = None,
        expires_at: int | None = None,
    ) -> tuple[Token, str]:
        """The token is given once and never again."""
        token = Token(
            id=secrets.token_hex(6),
            name=_checked_name(name),
            hash="",
            scopes=_checked_scopes(scopes),
            agents=None if agents is None else tuple(map(check_agent, agents)),
            created_at=self._clock(),
            expires_at=expires_at,
        )
        if expires_at is not None and expires_at <= token.created_at:
            raise UsageError("the token would have expired already", hint="Give a time to come.")
        secret = secrets.token_urlsafe(32)
        await self._ledger.put_if_absent(TOKENS, token.id, _plain(replace(token, hash=_hash(secret))))
        return token, f"tl_{token.id}_{secret}"

    async def list(self) -> list[Token]:
        facts = await self._ledger.list(TOKENS, limit=TOKENS_MAX)
        return sorted((_token(fact.value) for fact in facts), key=lambda token: token.created_at)

    async def revoke(self, token_id: str) -> Token:
        for _ in range(RACES_MAX):
            old = await self._ledger.get(TOKENS, token_id)
            if old is None:
                break
            token = replace(_token(old), revoked_at=self._clock())
            if await self._ledger.cas(TOKENS, token_id, old, _plain(token)):
                return token
        raise NotFound(f"there is no token {token_id[:40]!r}", hint="turnlog token list shows their ids.")

    async def find(self, token_id: str) -> Token | None:
        """If it is still worth anything."""
        value = await self._ledger.get(TOKENS, token_id)
        token = None if value is None else _token(value)
        return token if token and token.is_live(self._clock()) else None

    async def of_bearer(self, text: str) -> Token | None:
        kind, _, rest = text.partition("_")
        token_id, _, secret = rest.partition("_")
        token = await self.find(token_id) if kind == "tl" else None
        # An unknown id takes as long as a wrong secret.
        same = hmac.compare_digest(_hash(secret), token.hash if token else _hash(""))
        return token if same and secret else None

    async def make_code(self, token_id: str) -> str:
        """What a sign-in link carries. Good for one sign-in."""
        code = secrets.token_urlsafe(24)
        await self._ledger.put_if_absent(CODES, _hash(code), {"token": token_id}, ttl_s=CODE_TTL_S)
        return code

    async def redeem(self, code: str) -> str | None:
        """A cookie for a code; None if it is unknown or was used. Of two who come at once one gets in."""
        value = await self._ledger.get(CODES, _hash(code))
        if value is None or not await self._ledger.cas(CODES, _hash(code), value, None):
            return None
        token = await self.find(value["token"])
        return await self.make_cookie(token) if token else None

    async def make_cookie(self, token: Token) -> str:
        value = secrets.token_urlsafe(32)
        await self._ledger.put_if_absent(COOKIES, _hash(value), {"token": token.id}, ttl_s=COOKIE_TTL_S)
        return value

    async def of_cookie(self, value: str) -> Token | None:
        # Found by its hash: there is nothing left to compare, and so nothing to measure.
        fact = await self._ledger.get(COOKIES, _hash(value))
        return await self.find(fact["token"]) if fact else None

    async def drop_cookie(self, value: str) -> None:
        await self._ledger.delete(COOKIES, _hash(value))


def _hash(secret: str) -> str:
    """Plain SHA-256: these are 256 random bits, which no dictionary holds."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def _plain(token: Token) -> dict[str, object]:
    return msgspec.to_builtins(token)


def _token(value: object) -> Token:
    return msgspec.convert(value, Token)


def _checked_name(name: str) -> str:
    if not NAME.match(name):
        raise UsageError(
            f"{name[:80]!r} is not a name for a token", hint="Use 1 to 64 of A-Z, a-z, 0-9, '.', '_', '@' and '-'."
        )
    return name


def _checked_scopes(scopes: Sequence[str]) -> tuple[str, ...]:
    if not scopes or not set(scopes) <= set(SCOPES):
        raise UsageError("a token needs a scope", hint=f"Give one or more of {', '.join(SCOPES)}.")
    return tuple(scope for scope in SCOPES if scope in scopes)
