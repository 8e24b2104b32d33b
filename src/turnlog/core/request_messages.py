"""What a request says, message by message. A message that was read before is not read again: its raw bytes are enough.

Clients send the whole conversation with every request, so all but the last few messages are known. Their atoms are
found by a digest of their bytes; only messages that must be stored, or are new, are translated.
"""

from collections.abc import Callable, Iterable, MutableMapping, Sequence
from hashlib import blake2b
from typing import TypeAlias

from msgspec.structs import replace

from . import atoms
from .atoms import Atom
from .entries import Assistant, Message, ToolResult, tool_uses
from .matching import Decision, Words
from .path import Path

MessageReader: TypeAlias = Callable[[bytes], Sequence[Message]]
"""Translates one message of a wire to the bodies of entries; raises UsageError if it is none."""
KnownMessages: TypeAlias = MutableMapping[bytes, tuple[Atom, ...]]
"""Digest of a message's bytes → its atoms."""


class RequestMessages:
    def __init__(self, messages: Sequence[bytes], read: MessageReader, known: KnownMessages, *, wire: str = "") -> None:
        self._messages = messages
        self._read = read
        self._bodies: dict[int, Sequence[Message]] = {}
        self.atoms: list[Atom] = []
        self._starts: list[int] = []
        """The first atom of each message."""
        person = wire.encode()[:16]
        for n, raw in enumerate(messages):
            digest = blake2b(raw, digest_size=atoms.KEY_BYTES, person=person).digest()
            found = known.get(digest)
            if found is None:
                found = known[digest] = tuple(atom for body in self.bodies(n) for atom in atoms.of(body))
            self._starts.append(len(self.atoms))
            self.atoms += found
        self.keys = [atom.key for atom in self.atoms]

    def bodies(self, n: int) -> Sequence[Message]:
        """The n-th message as bodies of entries."""
        if n not in self._bodies:
            self._bodies[n] = self._read(self._messages[n])
        return self._bodies[n]

    def words(self, ask: str, *, asks: bool = True) -> Words:
        return Words(self.atoms, self.keys, ask, self.text, asks)

    def text(self, at: int) -> str:
        """The text of an atom, which is not a call."""
        return next(atoms.text(body) for body, _, last in self._from(self._message_of(at)) if at < last)

    def rest(self, decision: Decision) -> list[Message]:
        """The bodies to append: from an atom on. Calls that the log has keep the ids that they have there, and answers
        that this server gave keep their model.
        """
        start = decision.rest
        if start >= len(self.atoms):
            return []
        found: list[Message] = []
        for body, first, last in self._from(self._message_of(start)):
            if last > start and last > first:  # what has no words is not stored
                found.append(atoms.rest_of(body, max(0, start - first)))
        path = decision.path
        if path is None:
            return found
        return self._with_ids([_with_model(body, path) for body in found], decision, path)

    def _message_of(self, at: int) -> int:
        n = len(self._starts) - 1
        while self._starts[n] > at:
            n -= 1
        return n

    def _from(self, message: int) -> Iterable[tuple[Message, int, int]]:
        """Each body from this message on, with its first atom and the one after its last."""
        at = self._starts[message]
        for n in range(message, len(self._messages)):
            for body in self.bodies(n):
                end = at + len(atoms.of(body))
                yield body, at, end
                at = end

    def _with_ids(self, rest: list[Message], decision: Decision, path: Path) -> list[Message]:
        """A client may have changed the ids of calls, or another call with the same words may have been taken."""
        compared = range(decision.rest) if decision.compared is None else decision.compared
        pairs = zip(self.atoms[: decision.rest], compared, strict=False)
        ours = {theirs.id: path.atoms[n].id for theirs, n in pairs if theirs.id and theirs.id != path.atoms[n].id}
        if not ours:
            return rest
        given = {str(block.get("id")) for body in rest if isinstance(body, Assistant) for block in tool_uses(body)}
        return [
            replace(body, tool_use_id=ours[body.tool_use_id])
            if isinstance(body, ToolResult) and body.tool_use_id in ours and body.tool_use_id not in given
            else body
            for body in rest
        ]


def _with_model(body: Message, path: Path) -> Message:
    if not isinstance(body, Assistant):
        return body
    models = [path.own.get(atom.key) or _model_of_beginning(atom, body, path) for atom in atoms.of(body)]
    return replace(body, model=models[0]) if all(models) else body


def _model_of_beginning(atom: Atom, body: Assistant, path: Path) -> str | None:
    if atom.kind != "assistant":
        return None
    begun = atoms.text(body)
    return next((one.own for one in path.atoms if one.partial and one.partial.startswith(begun)), None)
