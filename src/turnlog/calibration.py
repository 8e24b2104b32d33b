"""What reported usage has taught about each model's tokeniser, kept in the ledger from one process to the next."""

import msgspec

from .core import tokens
from .core.entries import Assistant
from .core.guard import Limits
from .core.prompt import Prompt
from .core.tokens import UNCALIBRATED, Scale
from .stores import Ledger

SCALES = "scales"
"""The ledger's space for: model → its Scale."""
ALWAYS = 20
EVERY = 10
"""The first reports of a model all count, later ones now and then: counting a long prompt takes milliseconds."""


class Calibration:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._scales: dict[str, Scale] = {}
        self._reports: dict[str, int] = {}
        self._unsaved: set[str] = set()

    async def of(self, model: str) -> Scale:
        if model not in self._scales:
            kept = await self._ledger.get(SCALES, model)
            self._scales[model] = UNCALIBRATED if kept is None else _read(kept)
        return self._scales[model]

    def learn(self, model: str, prompt: Prompt, limits: Limits, reply: Assistant) -> Scale:
        """The model's scale after this reply."""
        scale = self._scales.get(model, limits.scale)
        reported = tokens.input_tokens(reply.usage)
        if limits.estimator != "calibrated" or not reported:
            return scale
        seen = self._reports[model] = self._reports.get(model, 0) + 1
        if seen > ALWAYS and seen % EVERY:
            return scale
        counts = tokens.count_prompt(prompt.messages, system=prompt.system, tools=limits.tools)
        self._scales[model] = tokens.calibrate(scale, counts, reported)
        self._unsaved.add(model)
        return self._scales[model]

    async def save(self) -> None:
        """What two processes learn at the same time is not added up: the later one stays, and both are good."""
        for model in list(self._unsaved):
            self._unsaved.discard(model)
            old = await self._ledger.get(SCALES, model)
            await self._ledger.cas(SCALES, model, old, msgspec.to_builtins(self._scales[model]))


def _read(kept: object) -> Scale:
    try:
        scale = msgspec.convert(kept, Scale)
    except msgspec.ValidationError:
        return UNCALIBRATED  # of another version: it is learnt again within a few replies
    same = len(scale.weights) == len(UNCALIBRATED.weights) and len(scale.gram) == len(UNCALIBRATED.gram)
    return scale if same else UNCALIBRATED
