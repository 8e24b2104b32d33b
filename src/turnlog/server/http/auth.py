"""Authentication: tokens with scopes, one-time sign-in codes, and cookies for the page.

Only hashes are kept, in the store's ledger, and they are looked up again for every request, in memory only where the
store hears of every change (`Ledger.get`): a revoked token stops working at once, on every server of the store. A
cookie is valid as long as its token.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from ...core.keys import check_agent
from ...core.principals import Principal
from ...errors import NotFound, UsageError
from ...stores import Clock, Ledger, facts
from ...stores.stamping import now_ms

TOKENS, CODES, COOKIES = "tokens", "signin", "cookies"
FIRST = "first"
"""The ledger's space for the claim to create the first token: of several servers that start at once, one creates it."""
USED = "used"
"""The ledger's space for the last use of each token."""
USED_EVERY_MS = 60_000
"""A use is written at most this often: the time of the last one is that coarse."""
TOKEN_SPACES = (TOKENS, CODES, COOKIES, FIRST, USED)
FIRST_S = 60.0
"""A claim of a server that died before the token was made ends after this; the next start makes it."""
SCOPES = ("chat", "read", "admin")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}\Z")
CODE_TTL_S = 24 * 3600.0
"""How long a sign-in link works."""
COOKIE_TTL_S = 30 * 24 * 3600.0
COOKIE = "turnlog"
LANGUAGE = "turnlog_language"
"""The cookie with the language that somebody chose on the page."""
TOKENS_MAX = 1_000
"""One listing of the ledger; with more users, put a single sign-on in front."""
RACES_MAX = 20


class Token(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A token as it is stored: its hash and its rights."""

    id: str
    name: str
    """The name of the principal; two tokens of one name share their sessions."""
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


class Pass(Struct, frozen=True):
    """A code or a cookie."""

    token: str
    """The id of its token."""


class FirstToken(Struct, frozen=True):
    """The claim to make the first token."""

    state: Literal["making", "made"]


class LastUse(Struct, frozen=True):
    """When a token was last used; Unix ms."""

    at: int


class Tokens:
    def __init__(self, ledger: Ledger, *, clock: Clock = now_ms) -> None:
        self._ledger = ledger
        self._clock = clock
        self._used: dict[str, int] = {}

    async def create(
        self,
        name: str,
        scopes: Sequence[str],
        *,
        agents: Sequence[str] | None = None,
        expires_at: int | None = None,
    ) -> tuple[Token, str]:
        """Gives the token's text, which is not stored."""
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
            raise UsageError("the token would have expired already", hint="Give a time in the future.")
        secret = secrets.token_urlsafe(32)
        await self._ledger.put_if_absent(TOKENS, token.id, facts.write(replace(token, hash=_hash(secret))))
        return token, f"tl_{token.id}_{secret}"

    @asynccontextmanager
    async def first(self) -> AsyncGenerator[bool]:
        """Whether the first token is to be made here and now. It counts as made if the block ends without an error."""
        making = facts.write(FirstToken("making"))
        is_first = await self._ledger.put_if_absent(FIRST, FIRST, making, ttl_s=FIRST_S) is None
        yield is_first
        if is_first:
            await self._ledger.cas(FIRST, FIRST, making, facts.write(FirstToken("made")))

    async def list(self) -> list[Token]:
        found = await self._ledger.list(TOKENS, limit=TOKENS_MAX)
        tokens = (_token(fact.key, fact.value) for fact in found)
        return sorted((token for token in tokens if token), key=lambda token: token.created_at)

    async def revoke(self, token_id: str) -> Token:
        for _ in range(RACES_MAX):
            old = await self._ledger.get(TOKENS, token_id)
            known = _token(token_id, old)
            if known is None:
                break
            token = replace(known, revoked_at=self._clock())
            if await self._ledger.cas(TOKENS, token_id, old, facts.write(token)):
                return token
        raise NotFound(f"there is no token {token_id[:40]!r}", hint="turnlog token list shows their ids.")

    def is_use_due(self, token_id: str) -> bool:
        """Whether `note_use` has something to write."""
        return self._clock() - self._used.get(token_id, 0) >= USED_EVERY_MS

    async def note_use(self, token_id: str) -> None:
        """Of several servers, one writes it."""
        now = self._used[token_id] = self._clock()
        old = await self._ledger.get(USED, token_id)
        known = facts.read(USED, token_id, old, LastUse)
        if known is None or now - known.at >= USED_EVERY_MS:
            await self._ledger.cas(USED, token_id, old, facts.write(LastUse(now)))

    async def last_used(self) -> dict[str, int]:
        """Token id → Unix ms."""
        found = await self._ledger.list(USED, limit=TOKENS_MAX)
        uses = {fact.key: facts.read(USED, fact.key, fact.value, LastUse) for fact in found}
        return {key: use.at for key, use in uses.items() if use}

    async def find(self, token_id: str) -> Token | None:
        """The token, if it is neither revoked nor expired."""
        token = _token(token_id, await self._ledger.get(TOKENS, token_id, from_memory=True))
        return token if token and token.is_live(self._clock()) else None

    async def of_bearer(self, text: str) -> Token | None:
        kind, _, rest = text.partition("_")
        token_id, _, secret = rest.partition("_")
        token = await self.find(token_id) if kind == "tl" else None
        # Compared also for an unknown id, so that it takes as long as a wrong secret.
        same = hmac.compare_digest(_hash(secret), token.hash if token else _hash(""))
        return token if same and secret else None

    async def make_code(self, token_id: str) -> str:
        """The code of a sign-in link; it works once."""
        code = secrets.token_urlsafe(24)
        await self._ledger.put_if_absent(CODES, _hash(code), facts.write(Pass(token_id)), ttl_s=CODE_TTL_S)
        return code

    async def redeem(self, code: str) -> str | None:
        """A cookie for a code; None if it is unknown or was used. Of two requests at once, one gets a cookie."""
        value = await self._ledger.get(CODES, _hash(code))
        if value is None or not await self._ledger.cas(CODES, _hash(code), value, None):
            return None
        token = await self._token_of(CODES, _hash(code), value)
        return await self.make_cookie(token) if token else None

    async def make_cookie(self, token: Token) -> str:
        value = secrets.token_urlsafe(32)
        await self._ledger.put_if_absent(COOKIES, _hash(value), facts.write(Pass(token.id)), ttl_s=COOKIE_TTL_S)
        return value

    async def of_cookie(self, value: str) -> Token | None:
        # Found by its hash: there is no comparison whose time could be measured.
        key = _hash(value)
        return await self._token_of(COOKIES, key, await self._ledger.get(COOKIES, key, from_memory=True))

    async def _token_of(self, space: str, key: str, value: object) -> Token | None:
        """The token of a code or a cookie."""
        pass_ = facts.read(space, key, value, Pass)
        return await self.find(pass_.token) if pass_ else None

    async def drop_cookie(self, value: str) -> None:
        await self._ledger.delete(COOKIES, _hash(value))


def _hash(secret: str) -> str:
    """Plain SHA-256 is enough: secrets are 256 random bits, which cannot be guessed."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def _token(token_id: str, value: object) -> Token | None:
    """A fact that cannot be read counts as no token."""
    return facts.read(TOKENS, token_id, value, Token)


def _checked_name(name: str) -> str:
    if not NAME.match(name):
        raise UsageError(
            f"{name[:80]!r} is not a name for a token", hint="Use 1 to 64 of A-Z, a-z, 0-9, '.', '_', '@' and '-'."
        )
    return name


def _checked_scopes(scopes: Sequence[str]) -> tuple[str, ...]:
    hint = f"Give one or more of {', '.join(SCOPES)}."
    if not scopes:
        raise UsageError("a token needs a scope", hint=hint)
    if unknown := [scope for scope in scopes if scope not in SCOPES]:
        raise UsageError(f"{unknown[0][:80]!r} is not a scope", hint=hint)
    return tuple(scope for scope in SCOPES if scope in scopes)
