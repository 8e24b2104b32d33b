"""Questions of paused turns to the people in a chat: each is put once, and a button below it answers it.

    a call waits ─ put ─▶ a fact (QUESTIONS), a message with buttons ─ press ─▶ an answer ─▶ the message says whose

A button carries a word and the name of the fact, nothing else. The fact says which question of which session was put
to which chat of which account. So a press from elsewhere, or for a question that is over, changes nothing. The settings
of the account that brought the press say who may answer.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from ..core import approvals
from ..core.approvals import BY_TURNLOG, ApprovalRecord
from ..core.entries import Approval
from ..core.history import name_of
from ..core.plain import shorten
from ..errors import Conflict, NotFound
from ..library import Turnlog
from ..stores import Clock, facts
from ..texts import Language, Texts
from . import Button, ButtonChannel, Press
from .accounts import Account
from .delivery import outgoing_of
from .outbox import KEPT_S, Outbox, PendingReply

QUESTIONS = "questions"
"""The ledger's space for: a question's name → its ChatQuestion."""
SHOWN_MAX_CHARS = 1_200
"""The shown part of a call that waits: it must fit into one message of every platform."""
PATTERN_MAX_CHARS = 300
"""A longer pattern is not offered in a chat: nobody reads it there."""
VALUE = re.compile(r"turnlog:(yes|always|no):([0-9a-f]{32})\Z")


class ChatQuestion(Struct, frozen=True, kw_only=True):
    """A question that was put to a chat. It holds no words: they are in the log."""

    kind: str
    account: str | None
    chat: str
    session: str
    incarnation: str | None
    call: str
    seq: int
    """Of its entry."""
    agent: str
    channel_id: str
    language: Language = "en"

    @property
    def name(self) -> str:
        what = (self.kind, self.account, self.chat, self.session, self.incarnation, self.call, self.seq)
        return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:32]

    @property
    def reply_id(self) -> str:
        return f"question|{self.name}"


class PressOutcome(Struct, frozen=True, kw_only=True):
    note: str
    """What the person who pressed is told."""
    text: str = ""
    """The question with its answer; empty: the message stays as it is."""
    question: ChatQuestion | None = None
    """The question that this press has answered, if it has."""
    word: str = ""


class ChatQuestions:
    def __init__(
        self, t: Turnlog, outbox: Outbox, accounts: Mapping[tuple[str, str | None], Account], clock: Clock
    ) -> None:
        self._t = t
        self._outbox = outbox
        self._accounts = accounts
        self._clock = clock

    async def ask(self, pending: PendingReply, session: str, incarnation: str | None) -> None:
        """Puts every question that waits in this session to the chat of this message; again, it does nothing."""
        try:
            row = await self._t.store.describe(session, incarnation=incarnation)
            if not row.waiting:
                return
            first = min(one.seq for one in row.approvals)
            entries = await self._t.store.read(row.id, after=first - 1, incarnation=row.incarnation)
        except NotFound:
            return
        for request in approvals.unanswered(approvals.asked(entries)):
            await self._put(pending, _question(pending, row.id, row.incarnation, request), request)

    async def _put(self, pending: PendingReply, question: ChatQuestion, request: Approval) -> None:
        ttl_s = max(0.0, (request.expires - self._clock()) / 1000) + KEPT_S
        await self._t.store.ledger.put_if_absent(QUESTIONS, question.name, facts.write(question), ttl_s=ttl_s)
        reply = outgoing_of(pending, question_text(request, pending.language))
        shown = _buttons(request, question) if self._channel(pending) else ()
        await self._outbox.put(question.reply_id, replace(reply, buttons=shown))

    def _channel(self, pending: PendingReply) -> ButtonChannel | None:
        account = self._accounts.get((pending.kind, pending.account))
        return account.channel if account is not None and isinstance(account.channel, ButtonChannel) else None

    async def press(self, account: Account, press: Press) -> PressOutcome:
        found = VALUE.match(press.value)
        question = await self._find(account, press, found[2]) if found else None
        if found is None or question is None:
            return PressOutcome(note=Texts("channel", "en")("approval_none"))
        say = Texts("channel", question.language)
        if press.sender_id not in account.settings.approvers:
            return PressOutcome(note=say("approval_not_you"))
        try:
            is_first = await self._answer(question, found[1], who(account, press.sender_id, press.sender_name))
            note, text = await self._outcome(question)
        except NotFound:
            return PressOutcome(note=say("approval_none"))
        if not is_first:
            return PressOutcome(note=say("approval_before", what=note), text=text)
        return PressOutcome(note=note, text=text, question=question, word=found[1])

    async def _find(self, account: Account, press: Press, name: str) -> ChatQuestion | None:
        """None: nothing was asked under this name in this chat of this account."""
        found = facts.read(QUESTIONS, name, await self._t.store.ledger.get(QUESTIONS, name), ChatQuestion)
        here = (account.kind, account.name, press.address.chat)
        return found if found and (found.kind, found.account, found.chat) == here else None

    async def _answer(self, question: ChatQuestion, word: str, by: str) -> bool:
        """False: it had an answer before, or its turn has ended."""
        row = await self._t.store.describe(question.session, incarnation=question.incarnation)
        try:
            if word == "no":
                await self._t.deny(row, question.call, by=by, request=question.seq)
            else:
                await self._t.approve(row, question.call, always=word == "always", by=by, request=question.seq)
        except (Conflict, NotFound):
            return False
        return True

    async def _outcome(self, question: ChatQuestion) -> tuple[str, str]:
        """(what became of it, the question with that)"""
        entries = await self._t.store.read(question.session, after=question.seq - 1, incarnation=question.incarnation)
        request, record = cast("Approval", entries[0]), approvals.records(entries)[0]
        note = outcome_text(record, question.language)
        return note, f"{question_text(request, question.language, is_open=False)}\n\n{note}"

    async def close(self, pending: PendingReply, session: str, incarnation: str | None, seq: int) -> None:
        """Shows in the message of this question that it was answered elsewhere, and takes its buttons away."""
        if channel := self._channel(pending):
            entries = await self._t.store.read(session, after=seq - 1, before=seq + 1, incarnation=incarnation)
            question = _question(pending, session, incarnation, cast("Approval", entries[0]))
            if number := await self._outbox.sent_as(question.reply_id):
                await channel.edit(pending.address, number, (await self._outcome(question))[1])


def _question(pending: PendingReply, session: str, incarnation: str | None, request: Approval) -> ChatQuestion:
    return ChatQuestion(
        kind=pending.kind,
        account=pending.account,
        chat=pending.address.chat,
        session=session,
        incarnation=incarnation,
        call=request.call,
        seq=request.seq,
        agent=pending.agent,
        channel_id=pending.channel_id,
        language=pending.language,
    )


def _buttons(request: Approval, question: ChatQuestion) -> tuple[Button, ...]:
    say, name = Texts("channel", question.language), question.name
    always = Button(label=say("approval_always_button"), value=f"turnlog:always:{name}")
    return (
        Button(label=say("approval_yes_button"), value=f"turnlog:yes:{name}", style="good"),
        *((always,) if _is_offered(request) else ()),
        Button(label=say("approval_no_button"), value=f"turnlog:no:{name}", style="bad"),
    )


def _is_offered(request: Approval) -> bool:
    return 0 < len(request.always) <= PATTERN_MAX_CHARS


def question_text(request: Approval, language: Language, *, is_open: bool = True) -> str:
    say = Texts("channel", language)
    what = shorten(request.preview or json.dumps(request.input, ensure_ascii=False), SHOWN_MAX_CHARS)
    lines = [say("approval_asks", tool=request.tool, why=say.reason(request.why)), what]
    if is_open and _is_offered(request):
        lines.append(say("approval_always_means", pattern=request.always))
    if is_open:
        lines.append(say("approval_how"))
    return "\n".join(lines)


def outcome_text(record: ApprovalRecord, language: Language) -> str:
    say = Texts("channel", language)
    if record.state == "approved":
        return say("approval_given_by", by=record.by)
    if record.by == BY_TURNLOG:
        return say("approval_late")
    return say("approval_denied_by", by=record.by) if record.by else say("approval_ended")


def who(account: Account, sender: str, name: str = "") -> str:
    """The person in the log: the id first, for people choose their names themselves."""
    known, shown = f"{account.full_name}:{sender}", name_of(name)
    return f"{known} ({shown})" if shown and shown != sender else known
