"""pydantic-ai: its conversations in a Turnlog store.

    store = TurnlogConversationStore("sqlite:app.db")
    conversation = await store.load("ann") or Conversation(conversation_id="ann")
    await store.save(await agent.run(question, conversation=conversation))

Each conversation is one session (`pydantic_conversations`), so it has a title, is found by search and is shown on the
page. pydantic-ai's own rules decide what is new and where a history branches; this module stores it.

`fits(store)` is a history processor that makes each request fit. Its summaries are compactions of the session: the
stored conversation keeps every message, and an undo shows them to the model again.
"""

import json
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from msgspec.structs import replace

from ..core.entries import Compaction
from ..core.history import survey
from ..core.session import Session, active
from ..errors import Conflict, NotFound, TurnlogError, UsageError
from ..library import Turnlog
from ..turns.own_call import Summarise
from .blocks import copied
from .call_guard import CallGuard, CallSession, KnownSummary
from .framework import framework
from .not_storable import NotStorable, is_endless
from .pydantic_conversations import FoundItem, Json, PydanticConversations, RevisionConflict
from .pydantic_messages import PydanticDialect, dumped
from .pydantic_runs import SentRuns
from .resident import holder
from .session_log import check_id

with framework("pydantic-ai"):
    from pydantic import TypeAdapter
    from pydantic_ai import AgentRunResult, RunContext, UserError
    from pydantic_ai.conversation import Conversation
    from pydantic_ai.conversation_store import (
        ConversationConflict as _TheirConflict,
        ConversationEntry,
        ConversationRecord,
        ConversationStore,
    )
    from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter


class ConversationConflict(Conflict, _TheirConflict):
    """The conversation was saved or deleted since it was loaded, or exists already."""

    hint = "Load it again before saving."

    def __init__(self, message: str = "", *, hint: str = "", conversation_id: str = "") -> None:
        _TheirConflict.__init__(self, conversation_id)
        self.message = message or (type(self).__doc__ or "")
        self.args = (self.message,)
        self.hint = hint or self.hint


class ConversationUsage(UsageError, UserError):
    """This call of a conversation store cannot be carried out."""


class EntryGone(NotFound, KeyError):
    """There is no such entry of a conversation."""

    hint = "Load the conversation again; what was deleted cannot be restored."

    def __str__(self) -> str:
        return str(self.args[0])


class TurnlogConversationStore(ConversationStore):
    """A conversation store of pydantic-ai. `url`: the store; None means that of the settings. `store`: a Turnlog that
    the caller has opened, instead of a URL.

    Deleting a conversation deletes its messages for good. Forks have copies of their own.
    """

    def __init__(self, url: str | None = None, *, store: Turnlog | None = None) -> None:
        self.holder = holder(url, store)
        self.conversations = PydanticConversations()
        self.sent_runs = SentRuns()

    async def load(
        self, conversation_id: str, *, limit: int | None = None, scope: str | None = None
    ) -> Conversation | None:
        with _errors_of_ours():
            return await super().load(conversation_id, limit=limit, scope=scope)

    async def load_entries(
        self, conversation_id: str, *, limit: int | None = None, scope: str | None = None
    ) -> list[ConversationEntry] | None:
        with _errors_of_ours():
            return await super().load_entries(conversation_id, limit=limit, scope=scope)

    async def save(
        self, conversation: Conversation | AgentRunResult[Any], *, scope: str | None = None
    ) -> list[ConversationEntry]:
        with _errors_of_ours():
            whole = conversation.conversation if isinstance(conversation, AgentRunResult) else conversation
            runs = self.sent_runs.restore(whole)
            if not runs:
                return await super().save(conversation, scope=scope)
            stored = await super().save(whole, scope=scope)
            self.sent_runs.forget(runs)
            if isinstance(conversation, AgentRunResult) and whole.revision is not None:
                conversation._conversation_saved(whole.revision)  # pyright: ignore[reportPrivateUsage] - as their save
            return stored

    async def branch(self, conversation_id: str, **how: Any) -> Conversation:
        with _errors_of_ours():
            return await super().branch(conversation_id, **how)

    async def fork(self, conversation_id: str, **how: Any) -> Conversation:
        with _errors_of_ours():
            return await super().fork(conversation_id, **how)

    async def list_conversations(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> list[ConversationRecord]:
        with _errors_of_ours():
            return await super().list_conversations(scope=scope, limit=limit)

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        check_id("conversation id", conversation_id)
        found = await self.holder.call(lambda t: self.conversations.record(t, conversation_id))
        return None if found is None else _records().validate_python(found)

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        found = await self.holder.call(self.conversations.records)
        records = [_records().validate_python(one) for one in found if scope is None or one["scope"] == scope]
        records.sort(key=lambda record: record.updated_at, reverse=True)
        return records[:limit]

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        check_id("conversation id", record.conversation_id)
        written = _json(_records(), record)
        items = [_item(entry) for entry in new_entries]
        try:
            await self.holder.call(lambda t: self.conversations.write(t, written, items, expected_revision))
        except RevisionConflict as error:
            raise _conflict(record.conversation_id) from error

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        check_id("conversation id", conversation_id)
        try:
            await self.holder.call(lambda t: self.conversations.delete(t, conversation_id, expected_revision))
        except RevisionConflict as error:
            raise _conflict(conversation_id) from error

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        try:
            return _entry(await self.holder.call(lambda t: self.conversations.entry(t, entry_id)))
        except NotFound as error:
            raise EntryGone(str(error)) from error

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        if head_id is None or limit == 0:
            return []
        try:
            found = await self.holder.call(lambda t: self.conversations.history(t, head_id, limit))
        except NotFound as error:
            raise EntryGone(str(error)) from error
        messages = _messages([one.held for one in found])
        return [_entry(one.held, message) for one, message in zip(found, messages, strict=True)]

    def close(self) -> None:
        """Gives up the store. What is stored stays."""
        self.holder.close()

    async def aclose(self) -> None:
        await self.holder.aclose()


@contextmanager
def _errors_of_ours() -> Generator[None]:
    """pydantic-ai's part of a store raises its own errors; here they are also Turnlog's."""
    try:
        yield
    except TurnlogError:
        raise
    except _TheirConflict as error:
        raise _conflict(error.conversation_id) from error
    except UserError as error:
        raise ConversationUsage(str(error)) from error


def _conflict(conversation_id: str) -> ConversationConflict:
    message = f"Conversation {conversation_id[:80]!r} was saved or deleted since it was loaded, or exists already."
    return ConversationConflict(message, conversation_id=conversation_id)


@cache
def _records() -> TypeAdapter[ConversationRecord]:
    return TypeAdapter(ConversationRecord)


def _json(adapter: TypeAdapter[Any], value: Any) -> Any:
    """The value as JSON; NotStorable if JSON cannot hold it."""
    try:
        if is_endless(adapter.dump_python(value)):
            raise NotStorable("a message cannot be stored: JSON has no NaN and no infinity")
        return adapter.dump_python(value, mode="json")
    except (ValueError, RecursionError) as error:
        raise NotStorable(f"a message cannot be stored: {error}") from error


def _item(entry: ConversationEntry) -> Json:
    [message] = _json(ModelMessagesTypeAdapter, [entry.message])
    size = len(json.dumps(message))
    return {"id": entry.id, "parent": entry.parent_id, "kind": entry.kind, "message": message, "size": size}


def _entry(held: Json, message: ModelMessage | None = None) -> ConversationEntry:
    if message is None:
        [message] = _messages([held])
    return ConversationEntry(id=held["id"], parent_id=held["parent"], message=message, kind=held["kind"])


def _messages(held: Iterable[Json]) -> list[ModelMessage]:
    """For the caller alone: what a message takes over as it is, such as the arguments of a call, is copied."""
    return ModelMessagesTypeAdapter.validate_python([copied(one["message"]) for one in held])


def fits(
    store: TurnlogConversationStore, *, summarise: Summarise | None = None, window: int | None = None
) -> Callable[[RunContext[Any], list[ModelMessage]], Awaitable[list[ModelMessage]]]:
    """A history processor that makes each request fit: shortened, then with a summary of what is older.

    Agent(model, capabilities=[ProcessHistory(fits(store, window=128_000))])

    `summarise`: who writes summaries instead of the model of the settings. `window`: the size of the agent's window.
    """
    guard = CallGuard(store.holder, PydanticDialect(), _text, summarise=summarise, window=window)

    async def fitted(ctx: RunContext[Any], messages: list[ModelMessage]) -> list[ModelMessage]:
        messages, _ = store.sent_runs.whole(messages)
        name = ctx.conversation_id
        session = _call_session(store, name) if name else None
        system = str(getattr(messages[-1], "instructions", None) or "") if messages else ""
        sent = await guard.run(messages, system, (), _as_they_are, session, hears_refusals=False)
        store.sent_runs.add(ctx.run_id or "", sent, messages)
        return sent

    return fitted


async def _as_they_are(messages: list[Any]) -> list[Any]:
    return messages


def _text(item: Any) -> str:
    return json.dumps(dumped(item.message), sort_keys=True)


def _call_session(store: TurnlogConversationStore, conversation: str) -> CallSession:
    async def known(t: Turnlog, items: Sequence[Any]) -> KnownSummary | None:
        row, chain = await _stored(store, t, conversation)
        marks = active(row.marks, row.last_seq) if row else []
        if row is None or not marks:
            return None
        [made] = await t.store.read(row.id, after=marks[-1].seq - 1, limit=1, incarnation=row.incarnation)
        before = sum(one.seq < row.boundary for one in chain)
        if not isinstance(made, Compaction) or not before or not _begins_with(items, chain[:before]):
            return None
        first = next((place for place, item in enumerate(items, 1) if item.origin == before), 0)
        if first <= 1:
            return None
        then = sum(one.seq < made.seq for one in chain)
        made_at = sum(item.origin < then for item in items)
        return KnownSummary(replace(made, first_kept=first, covers=(1, first - 1)), made_at)

    async def keep(t: Turnlog, items: Sequence[Any], body: Compaction) -> bool:
        row, chain = await _stored(store, t, conversation)
        covered: int = items[body.first_kept - 1].origin
        is_inside = body.first_kept > 1 and items[body.first_kept - 2].origin == covered
        if row is None or is_inside or not 0 < covered < len(chain) or not _begins_with(items, chain[:covered]):
            return False
        kept = chain[covered].seq
        if kept <= row.boundary:
            return False
        start = survey((await t.sessions.load(row)).entries).start
        log = store.conversations.log_of(conversation)
        await log.append(t, [replace(body, first_kept=kept, covers=(start, kept - 1))], row=row)
        return True

    return CallSession(known=known, keep=keep)


async def _stored(
    store: TurnlogConversationStore, t: Turnlog, conversation: str
) -> tuple[Session | None, list[FoundItem]]:
    record = await store.conversations.record(t, conversation)
    row = await store.conversations.log_of(conversation).find(t)
    if record is None or row is None or record["head_id"] is None:
        return None, []
    return row, await store.conversations.history(t, record["head_id"])


def _begins_with(items: Sequence[Any], chain: Sequence[FoundItem]) -> bool:
    """Whether the messages of a request are those of this history."""
    whole = {item.origin: item.whole for item in items if item.whole is not None}
    if any(place not in whole for place in range(len(chain))):
        return False
    return all(dumped(whole[place]) == one.held["message"] for place, one in enumerate(chain))
