"""Makes a framework's own list of messages fit a model's window, with the guard of Turnlog's own turns.

    items ──▶ transient transcript ──▶ guard.protect ──▶ what is shown ──▶ items

The transcript exists for one call. Items that stay are given back word for word, results that were shortened with their
cut text, and everything that was folded as one item of the user, with the summary. `fit` needs no model: it shortens,
then folds into a digest. `guarded` also makes the call, asks for summaries, and goes on when the model refuses.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from ..core import compaction, guard, overflow, plain
from ..core.entries import Assistant, Compaction, Content, Entry, Foreign, ToolResult, Transcript
from ..core.guard import Compact, Limits, Rescue, Send, Shorten
from ..core.history import SUMMARY_NOTE, View, fence, pins_text, shown_content, survey
from ..core.strict_json import fields_in
from ..errors import ContextOverflow, ProviderError, TurnlogError, UsageError

ANSWER_TOKENS = 16_384
"""What `fit` leaves free for the answer, at most a quarter of the window."""

NO_RESULT = "interrupted: no result of this call was recorded"
NO_CALL = "[Result of a tool call that is not part of this history]"

I = TypeVar("I")  # noqa: E741 - an item
R = TypeVar("R")


class Dialect(Protocol[I]):
    """How one framework writes its messages."""

    def split(self, items: Sequence[I]) -> list[I]:
        """The items, each of them one message or one result of a tool: results are shortened one by one."""
        ...

    def join(self, items: list[I]) -> list[I]:
        """The opposite of `split`."""
        ...

    def entry(self, item: I) -> Entry:
        """The message as the guard sees it."""
        ...

    def is_instruction(self, item: I) -> bool:
        """Whether it stays, whatever is folded around it."""
        ...

    def words(self, item: I) -> Any:
        """The content of an instruction."""
        ...

    def cut(self, item: I, content: Content) -> I:
        """The same result with less text."""
        ...

    def summary(self, text: str) -> I:
        """A message of the user that stands for what was folded."""
        ...

    def finish(self, items: list[I], transcript: Transcript, limits: Limits) -> list[I]:
        """Mends what the framework or its API would refuse."""
        ...


class FitDraft(Struct, Generic[I], frozen=True):
    """The items of one call and the transcript that stands for them: an entry for each item, in their order, with the
    summary that was known before; entries after that were added by the guard.
    """

    items: list[I]
    transcript: list[Entry]
    known_seq: int = 0
    """The entry that is the known summary; 0: there is none."""

    def with_known(self, body: Compaction, made_at: int) -> "FitDraft[I]":
        """`made_at`: how many of the items there were when it was made. The guard counts those after it as new."""
        place = min(max(made_at, body.first_kept), len(self.items))
        after = [replace(entry, seq=entry.seq + 1) for entry in self.transcript[place:]]
        transcript = [*self.transcript[:place], replace(body, seq=place + 1), *after]
        return FitDraft(self.items, transcript, place + 1)

    def among_items(self, body: Compaction) -> Compaction:
        """The compaction as if the entries were the items alone."""
        if not 0 < self.known_seq < body.first_kept:
            return body
        first = body.first_kept - 1
        return replace(body, first_kept=first, covers=(body.covers[0], first - 1))

    @property
    def of_items(self) -> list[Entry]:
        """The entries of the items, and those that the guard has added."""
        return [entry for entry in self.transcript if entry.seq != self.known_seq]

    def with_added(self, bodies: Sequence[Entry]) -> "FitDraft[I]":
        end = self.transcript[-1].seq if self.transcript else 0
        added = [replace(body, seq=end + n) for n, body in enumerate(bodies, 1)]
        return FitDraft(self.items, [*self.transcript, *added], self.known_seq)


def drafted(items: Sequence[I], dialect: Dialect[I]) -> FitDraft[I]:
    items = dialect.split(items)
    entries = [
        Foreign(seq=seq, raw={}) if dialect.is_instruction(item) else _unmeasured(dialect.entry(item), seq)
        for seq, item in enumerate(items, 1)
    ]
    return FitDraft(list(items), entries)


def _unmeasured(entry: Entry, seq: int) -> Entry:
    """Without what the provider counted: that was for the messages of another call, perhaps with a summary."""
    if isinstance(entry, Assistant):
        return replace(entry, seq=seq, ts="", usage=None)
    return replace(entry, seq=seq, ts="")


def bounds_of(items: Sequence[I], dialect: Dialect[I], limits: Limits) -> Limits:
    """The limits for these items: instructions among them count like the system prompt."""
    split = dialect.split(items)
    instructions = [plain.as_json(dialect.words(item)) for item in split if dialect.is_instruction(item)]
    return replace(limits, inject="user", system="\n\n".join([limits.system, *instructions]).strip())


def fit(items: Sequence[Any], dialect: "str | Dialect[Any]", limits: Limits) -> list[Any]:
    """The same conversation in a form that fits `limits`, without a model call.

    `dialect`: `"responses"` (items of OpenAI's Responses API, as openai-agents has them), `"openai"` (Chat
    Completions), `"anthropic"`, `"gemini"` (contents of Google's GenAI), `"langchain"`, `"pydantic_ai"`, or your own.
    ContextOverflow if nothing helps.
    """
    found = _dialect(dialect)
    limits = bounds_of(items, found, limits)
    return written(_fitted(drafted(items, found), limits), found, limits)


def _dialect(dialect: "str | Dialect[Any]") -> Dialect[Any]:
    if not isinstance(dialect, str):
        return dialect
    from .dialects import DIALECTS

    if dialect not in DIALECTS:
        raise UsageError(f"unknown dialect {dialect!r}", hint=f"Use one of {', '.join(DIALECTS)}.")
    return DIALECTS[dialect]()


def _too_large(step: Send, limits: Limits) -> ContextOverflow | None:
    room = limits.window - compaction.reserve(ANSWER_TOKENS, limits.window)
    return ContextOverflow(tokens=step.tokens, window=room) if step.tokens > room else None


def _fitted(draft: FitDraft[I], limits: Limits) -> FitDraft[I]:
    steps = guard.protect(draft.transcript, limits, compact_first=False)
    step = next(steps)
    while True:
        match step:
            case Send():
                if (refused := _too_large(step, limits)) is None:
                    return draft
                step = steps.throw(refused)
            case Shorten() | Rescue():
                draft = draft.with_added(step.bodies)
                step = steps.send(draft.transcript)
            case Compact():
                step = steps.send(None)  # there is no model to ask


def written(draft: FitDraft[I], dialect: Dialect[I], limits: Limits) -> list[I]:
    """The items that the transcript shows."""
    view = survey(draft.transcript)
    boundary = view.compaction.first_kept if view.compaction else 0
    by_seq = {entry.seq: entry for entry in view.tail}
    kept: list[I] = []
    lead: list[I] = []
    for item, entry in zip(draft.items, draft.of_items, strict=False):
        if entry.seq >= boundary:
            kept.append(_shown(item, by_seq.get(entry.seq, entry), view, dialect))
        elif dialect.is_instruction(item):
            lead.append(item)
    if view.compaction is not None:
        lead.append(dialect.summary(summary_text(view)))
    return dialect.join(dialect.finish([*lead, *kept], draft.transcript, limits))


def summary_text(view: View) -> str:
    """Pinned messages and the summary, as quoted data."""
    assert view.compaction is not None
    quoted = f"{SUMMARY_NOTE}\n{fence(view.compaction.summary)}"
    return "\n\n".join(part for part in (pins_text(view), quoted) if part)


def _shown(item: I, entry: Entry, view: View, dialect: Dialect[I]) -> I:
    if isinstance(entry, ToolResult) and entry.seq in view.shortened:
        content = shown_content(entry, view)
        return item if content == entry.content else dialect.cut(item, content)
    return item


class GuardedSteps(Struct, Generic[I, R], frozen=True, kw_only=True):
    """What `guarded` does for one call."""

    attempt: Callable[[list[I]], Awaitable[R]]
    """Makes the call. Any exception of it that says that the prompt is too large is acted on."""
    compact: Callable[[FitDraft[I], Compact], Awaitable["list[Entry]"]]
    """Asks for a summary and stores it, if it can be stored; ProviderError if there is no good one."""
    hears_refusals: bool = True
    """If not, a prompt that is too large for the window counts as refused."""


async def guarded(draft: FitDraft[I], dialect: Dialect[I], limits: Limits, steps: GuardedSteps[I, R]) -> R:
    """Makes the call fit: as it is, with shortened results, with a summary, with a digest."""
    plan = guard.protect(draft.transcript, limits, compact_first=True)
    try:
        step = next(plan)
        while True:
            match step:
                case Send():
                    try:
                        if not steps.hears_refusals and (refused := _too_large(step, limits)):
                            raise refused
                        return await steps.attempt(written(draft, dialect, limits))
                    except Exception as error:
                        refused = refusal_of(error)
                        if refused is None:
                            raise
                    step = plan.throw(refused)
                case Shorten() | Rescue():
                    draft = draft.with_added(step.bodies)
                    step = plan.send(draft.transcript)
                case Compact():
                    try:
                        draft = draft.with_added(await steps.compact(draft, step))
                        step = plan.send(draft.transcript)
                    except ProviderError:
                        step = plan.send(None)
    except ContextOverflow:
        if steps.hears_refusals:
            raise
        return await steps.attempt(written(draft, dialect, limits))  # the least that can be sent: the model decides
    finally:
        plan.close()


def refusal_of(error: Exception) -> ContextOverflow | None:
    """Whether an exception of a model call says that the prompt was too large; with the sizes that it names."""
    if isinstance(error, ContextOverflow):
        return error
    if isinstance(error, TurnlogError):
        return None
    status, code, text = _told(error)
    if status is None and not code and not _is_of_a_provider(error):
        return None
    verdict = overflow.classify(status=status, code=code, text=text)
    if verdict.kind != "overflow":
        return None
    found = ContextOverflow(text[:500], tokens=verdict.tokens, window=verdict.window)
    found.__cause__ = error
    return found


def _told(error: Exception) -> tuple[int | None, str, str]:
    """(status, code, text) of an exception of OpenAI's, Anthropic's or a similar package."""
    status: Any = getattr(error, "status_code", None) or getattr(error, "code", None)
    body = fields_in(getattr(error, "body", None))
    found = fields_in(body.get("error")) or body
    codes = [getattr(error, "code", None), found.get("code"), found.get("type")]
    code = next((one for one in codes if isinstance(one, str) and one in overflow.OVERFLOW_CODES), "")
    return status if isinstance(status, int) and status >= 400 else None, code, str(found.get("message") or error)


def _is_of_a_provider(error: Exception) -> bool:
    packages = {base.__module__.partition(".")[0] for base in type(error).__mro__}
    return not packages.isdisjoint(("openai", "anthropic", "litellm", "google", "groq", "mistralai", "botocore"))


__all__ = ["Dialect", "FitDraft", "GuardedSteps", "drafted", "fit", "guarded", "refusal_of", "written"]
