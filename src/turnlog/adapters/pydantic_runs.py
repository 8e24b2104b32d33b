"""What was sent to a model of pydantic-ai instead of a conversation.

The messages that a history processor returns replace those of its run for good, also those that the run has added: a
result would no longer have the user's own words if they were summarised. So the messages that were replaced are kept
here until they are saved. The next call of the run begins with them again, and a save stores them.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace as changed
from typing import Any

from msgspec import Struct

from .framework import framework

with framework("pydantic-ai"):
    from pydantic_ai.conversation import Conversation
    from pydantic_ai.messages import ModelMessage

RUNS_MAX = 64
"""Runs whose replaced messages are kept; of older ones that were not saved, the result has what was sent."""


class SentMessages(Struct, frozen=True):
    run: str
    sent: list[ModelMessage]
    whole: list[ModelMessage]
    """What they stand for."""

    def restored(self, messages: Sequence[ModelMessage]) -> list[ModelMessage] | None:
        """The whole conversation, if `messages` begins with what was sent. pydantic-ai has filled in more of the last
        message since, such as its run.
        """
        end = len(self.sent) - 1
        if len(messages) <= end or [*map(id, messages[:end])] != [*map(id, self.sent[:end])]:
            return None
        last: Any = messages[end]
        if last is not self.sent[end] and last.run_id != self.run:
            return None
        original = self.whole[-1]
        if self.sent[end] is not original:
            last = changed(last, parts=original.parts) if isinstance(last, type(original)) else original
        return [*self.whole[:-1], last, *messages[end + 1 :]]


class SentRuns:
    def __init__(self) -> None:
        self._runs: OrderedDict[str, SentMessages] = OrderedDict()
        """By the id of the run, the latest last."""

    def add(self, run: str, sent: list[ModelMessage], whole: list[ModelMessage]) -> None:
        self._runs.pop(run, None)
        if [*map(id, sent)] != [*map(id, whole)]:
            self._runs[run] = SentMessages(run, sent, whole)
        if len(self._runs) > RUNS_MAX:
            self._runs.popitem(last=False)

    def whole(self, messages: list[ModelMessage]) -> tuple[list[ModelMessage], set[str]]:
        """(the messages with those that were replaced, the runs of these)."""
        runs: set[str] = set()
        for one in reversed([*self._runs.values()]):
            if (found := one.restored(messages)) is not None:
                messages = found
                runs.add(one.run)
        return messages, runs

    def restore(self, conversation: Conversation) -> set[str]:
        """Makes the conversation whole; the runs whose messages had been replaced."""
        whole, runs = self.whole(conversation.messages)
        if runs and (index := conversation.new_message_index) is not None:
            new = [*map(id, conversation.messages[index : index + 1])]
            places = (place for place, one in enumerate(whole) if id(one) in new or one.run_id in runs)
            conversation.new_message_index = next(places, len(whole))
        conversation.messages = whole
        return runs

    def forget(self, runs: set[str]) -> None:
        for run in runs:
            self._runs.pop(run, None)
