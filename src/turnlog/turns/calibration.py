"""How each model counts tokens, learnt from the usage it reports, and how large its window is, learnt from refusals.

A scale is learnt from what a request has in addition to the request before it, not from the whole request. Otherwise a
long constant beginning, such as tools and system prompt, would decide how the growing rest is estimated. A process
reads scales and windows from the ledger once. It saves windows when they change, and scales when it closes.
"""

from collections import OrderedDict
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ..core import tokens
from ..core.entries import Assistant
from ..core.guard import Limits
from ..core.paging import size_of, weight
from ..core.prompt import Prompt
from ..core.tokens import UNCALIBRATED, Counts, Scale
from ..stores import Clock, Ledger, facts

SCALES = "scales"
"""The ledger's space for: model → its Scale."""
ALWAYS = 20
EVERY = 10
"""The first 20 reports of a model are all used, later ones one in ten: counting a long prompt takes milliseconds."""
GROWTH_MIN_TOKENS = 200
"""A request that has grown by less is skipped, and the next one is compared with the same earlier request."""
COMPARED_SESSIONS = 64
COMPARED_BYTES = 32 * 2**20
"""The sessions whose earlier request is remembered, and about what these requests take."""
MODELS_KEPT = 1_000
"""The models that are remembered: clients of a relay may name any."""


WINDOWS = "windows"
"""The ledger's space for: address and model → the learnt window, and until when it is valid."""
LEARNT_FOR_MS = 7 * 24 * 3600 * 1000
"""A week: servers change, and a learnt window is only a lower bound."""


class LearntWindow(Struct, frozen=True):
    window: int
    until: int
    """Unix ms."""


class Windows:
    """Windows that are smaller than the settings say, by the address and name of the model."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self._known: dict[str, LearntWindow | None] = {}

    async def of(self, place: str) -> int | None:
        if place not in self._known:
            kept = await self._ledger.get(WINDOWS, place)
            _make_room(self._known)
            self._known[place] = facts.read(WINDOWS, place, kept, LearntWindow)
        found = self._known[place]
        return found.window if found and found.until > self._clock() else None

    async def learn(self, place: str, window: int) -> None:
        await self._keep(place, LearntWindow(window, self._clock() + LEARNT_FOR_MS))

    async def outgrow(self, place: str, taken: int) -> None:
        """The model accepted a prompt of this many tokens: a learnt window that is smaller is forgotten."""
        window = await self.of(place)
        if window is not None and taken > window:
            await self._keep(place, None)

    async def _keep(self, place: str, found: LearntWindow | None) -> None:
        self._known[place] = found
        old = await self._ledger.get(WINDOWS, place)
        if found is not None:
            await self._ledger.cas(WINDOWS, place, old, facts.write(found), ttl_s=LEARNT_FOR_MS / 1000)
        elif old is not None:
            await self._ledger.cas(WINDOWS, place, old, None)


class _Request(Struct, frozen=True):
    """A request whose size was reported."""

    model: str
    prompt: Prompt
    counts: Counts
    reported: int
    size: int
    """About the bytes of the prompt."""

    def begins(self, prompt: Prompt) -> bool:
        """Whether the prompt is this one with messages added."""
        mine = self.prompt
        same = mine.system == prompt.system and mine.tools == prompt.tools
        return same and prompt.messages[: len(mine.messages)] == mine.messages


def _make_room(known: dict[str, Any]) -> list[str]:
    """Forgets the models that were met first, if there are too many; returns their names."""
    gone = list(known)[: max(0, len(known) + 1 - MODELS_KEPT)]
    for name in gone:
        del known[name]
    return gone


class Calibration:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._scales: dict[str, Scale] = {}
        self._reports: dict[str, int] = {}
        self._unsaved: set[str] = set()
        self._earlier: OrderedDict[str, _Request] = OrderedDict()
        self._bytes = 0

    async def of(self, model: str) -> Scale:
        if model not in self._scales:
            for gone in _make_room(self._scales):
                self._reports.pop(gone, None)
                self._unsaved.discard(gone)
            self._scales[model] = _read(model, await self._ledger.get(SCALES, model))
        return self._scales[model]

    def learn(self, session_id: str, model: str, prompt: Prompt, limits: Limits, reply: Assistant) -> Scale:
        """The model's scale after this reply."""
        scale = self._scales.get(model, limits.scale)
        reported = tokens.input_tokens(reply.usage)
        if limits.estimator != "calibrated" or not reported:
            return scale
        seen = self._reports[model] = self._reports.get(model, 0) + 1
        if seen > ALWAYS and seen % EVERY:
            return scale
        lesson = self._lesson(session_id, model, prompt, limits, reported)
        if lesson is None:
            return scale
        self._scales[model] = tokens.calibrate(scale, *lesson)
        self._unsaved.add(model)
        return self._scales[model]

    def _lesson(
        self, session_id: str, model: str, prompt: Prompt, limits: Limits, reported: int
    ) -> tuple[Counts, int] | None:
        """What was added since an earlier request, and its tokens; the whole if there is none. None: too little."""
        tokeniser = limits.scale.tokeniser
        earlier = self._earlier.get(session_id)
        if earlier is None or earlier.model != model or not earlier.begins(prompt):
            counts = tokens.count_prompt(prompt.messages, system=prompt.system, tools=limits.tools, tokeniser=tokeniser)
            self._remember(session_id, _Request(model, prompt, counts, reported, weight(prompt)))
            return counts, reported
        grown = reported - earlier.reported
        if grown < GROWTH_MIN_TOKENS:
            return None
        new = prompt.messages[len(earlier.prompt.messages) :]
        added = tokens.count_messages(new, tokeniser)
        counts = tokens.add(earlier.counts, added)
        self._remember(session_id, _Request(model, prompt, counts, reported, earlier.size + size_of(new)))
        return added, grown

    def _remember(self, session_id: str, request: _Request) -> None:
        if before := self._earlier.pop(session_id, None):
            self._bytes -= before.size
        self._earlier[session_id] = request
        self._bytes += request.size
        while len(self._earlier) > COMPARED_SESSIONS or self._bytes > COMPARED_BYTES:
            self._bytes -= self._earlier.popitem(last=False)[1].size

    async def save(self) -> None:
        """If two processes learn at the same time, the later one is kept; both are good."""
        for model in list(self._unsaved):
            self._unsaved.discard(model)
            old = await self._ledger.get(SCALES, model)
            await self._ledger.cas(SCALES, model, old, facts.write(replace(self._scales[model], tokeniser=None)))


def _read(model: str, kept: object) -> Scale:
    """A scale of another version, or one that cannot be read, is learnt again within a few replies."""
    known = tokens.prior(model)
    scale = facts.read(SCALES, model, kept, Scale) or known
    same = len(scale.weights) == len(UNCALIBRATED.weights) and len(scale.gram) == len(UNCALIBRATED.gram)
    return scale if same and scale.family == known.family else known
