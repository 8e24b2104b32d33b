"""What the log keeps when a call for a client ends: the pieces of its answer, or what was said before it broke."""

from ..core import events, turns
from ..core.entries import Assistant, Entry, Failed
from . import answer_pieces
from .journal import FAILED_REASON_MAX_CHARS, Journal
from .relay_call import RelayCall
from .upstream import Upstream


async def keep(journal: Journal, *last: Entry, fails: bool = False) -> None:
    """Stores these last entries of a call. The last of them marks the end, and is stored only if the call failed or has
    no word of an answer.

    Open calls get no result here: the client has them, and sends results or something else.
    """
    await journal.refresh()  # a running append may have succeeded
    if turns.last_role(journal.transcript) == "assistant" and isinstance(journal.stored[-1], Assistant):
        return
    await journal.append(*(last if fails or len(last) == 1 else last[:-1]))


def partial(call: RelayCall, upstream: Upstream, stop: str) -> list[Entry]:
    text = "".join(piece.text for piece in call.pieces)
    if not text.strip():
        return []
    said = Assistant(content=[{"type": "text", "text": text}], model=upstream.agent.provider.model, stop=stop)
    return [*pieces(call, upstream, said), said]


def pieces(call: RelayCall, upstream: Upstream, reply: Assistant) -> list[Entry]:
    """In which pieces the answer came, if the log is to keep that."""
    kept = answer_pieces.note(call.pieces, reply) if upstream.keeps_pieces and call.stored else None
    return [kept] if kept else []


def failed(error: Exception) -> Failed:
    """Refused content is not left out of a relay's history: the client sends it again with every request."""
    code = events.code_of(error)
    return Failed(
        code="provider" if code == events.REFUSED_CONTENT else code, reason=str(error)[:FAILED_REASON_MAX_CHARS]
    )
