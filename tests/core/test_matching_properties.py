"""Generated conversations and edits: whatever session a request is found to go on, the prompt holds its words and no
others. MATCHING_CASES sets the number of requests; `make torture` sends a million."""

import json
import os
import random
import re

import pytest
from msgspec.structs import replace

from turnlog.core import atoms, history, matching
from turnlog.core.carried import carried, pruned
from turnlog.core.entries import Assistant, Foreign, Opened, Rewind, ToolResult, User, tool_uses
from turnlog.core.marks import live_path, marks_of, on_path
from turnlog.core.matching import PlacedSession
from turnlog.core.path import Path, of_log
from turnlog.core.request_messages import RequestMessages

CASES = int(os.environ.get("MATCHING_CASES", "4000"))
WORLDS = 8
REQUESTS = 40
"""In one world: several conversations of one client at one place."""
WORDS = ["hi", "yes", "no", "go on", "read it", "positive", "count\nto three", "ok", "日本", "x" * 300, " lead"]


def stamped(log, bodies):
    return [*log, *(replace(one, seq=n) for n, one in enumerate(bodies, len(log) + 1))]


class World:
    """The sessions of one place, as logs, and the conversations as their client has them."""

    def __init__(self, seed, named):
        self.random = random.Random(seed)
        self.named = named
        self.logs = {}
        self.paths = {}
        self.known = {}
        self.conversations = [[]]
        self.originals = {}
        self.kept = []
        self.answers = 0

    def word(self):
        text = self.random.choice(WORDS)
        return text if self.random.random() < 0.6 else f"{text} {self.random.randrange(50)}"

    def is_likely(self, chance):
        return self.random.random() < chance

    # The client's side: a conversation is a list of bodies.

    def next_request(self):
        if self.is_likely(0.15):
            self.conversations.append([] if self.is_likely(0.5) else list(self.random.choice(self.conversations)))
        talk = self.random.choice(self.conversations)
        if self.is_likely(0.35):
            self.edit(talk)
        while talk and isinstance(talk[-1], Assistant) and not tool_uses(talk[-1]) and self.is_likely(0.05):
            talk.pop()
        self.make_ready(talk)
        return talk, [self.rewritten(body) for body in talk] if self.is_likely(0.4) else list(talk)

    def make_ready(self, talk):
        """A request ends with something to answer, and each call of its last answer has a result."""
        if talk and isinstance(talk[-1], Assistant):
            for block in tool_uses(talk[-1]):
                long = "line of output\n" * 60 if self.is_likely(0.5) else self.word()
                talk.append(ToolResult(tool_use_id=block["id"], content=long))
        if not talk or not isinstance(talk[-1], ToolResult) or self.is_likely(0.1):
            talk.append(User(content=self.word(), sender="system" if self.is_likely(0.1) else None))

    def edit(self, talk):
        if not talk:
            return
        at = self.random.randrange(len(talk))
        match self.random.choice(["insert", "drop", "replace", "reorder", "prune", "prune", "restore", "beginning"]):
            case "insert":
                talk.insert(at, User(content=self.word()))
            case "drop":
                del talk[at]
            case "replace" if isinstance(talk[at], ToolResult):
                talk[at] = ToolResult(tool_use_id=talk[at].tool_use_id, content=self.word())
            case "replace":
                talk[at] = type(talk[at])(content=self.word())
            case "reorder":
                other = self.random.randrange(len(talk))
                talk[at], talk[other] = talk[other], talk[at]
            case "prune":
                talk[:] = [self.pruned(body) for body in talk]
            case "restore":
                talk[:] = [self.originals.get(id(body), body) for body in talk]
            case "beginning" if isinstance(talk[at], Assistant) and isinstance(talk[at].content, str):
                talk[at] = Assistant(content=talk[at].content[: self.random.randrange(1, 40)])
            case _:
                pass

    def pruned(self, body):
        """An old result cleared, or cleared in another way than before."""
        body = self.originals.get(id(body), body)
        if not isinstance(body, ToolResult) or len(body.content) < 400:
            return body
        short = ToolResult(tool_use_id=body.tool_use_id, content=self.random.choice(["[cleared]", "", "gone " * 10]))
        self.kept.append(short)  # so that its id stays its own
        self.originals[id(short)] = body
        return short

    def rewritten(self, body):
        """The same words, as another library writes them."""
        match body:
            case User() if isinstance(body.content, str):
                content = [{"type": "text", "text": body.content, "cache_control": {"type": "ephemeral"}}]
                return User(content=content if self.is_likely(0.5) else body.content + "  \n", sender=body.sender)
            case Assistant() if isinstance(body.content, str):
                think = {"type": "thinking", "thinking": "hm", "signature": "s"}
                return Assistant(content=[think, {"type": "text", "text": body.content + " "}])
            case Assistant():
                blocks = [
                    {**block, "input": {"a": block["input"]["a"], "b": 1}} if block["type"] == "tool_use" else block
                    for block in body.content
                ]
                return Assistant(content=blocks)
            case ToolResult() if isinstance(body.content, str):
                blocks = [{"type": "text", "text": body.content}, {"type": "text", "text": ""}]
                return ToolResult(tool_use_id=body.tool_use_id, content=blocks)
            case _:
                return body

    # The server's side.

    def send(self, request):
        bodies = {repr(body).encode(): [body] for body in request}
        said = RequestMessages([repr(body).encode() for body in request], bodies.__getitem__, self.known)
        if not said.atoms:
            return None
        busy = {one for one in self.paths if self.is_likely(0.1)}
        placed = [PlacedSession(path, one in busy) for one, path in reversed(self.paths.items())]
        decision = matching.decide(placed, said.words(""), named=self.named)
        session = self.carry_out(decision, said)
        self.check(decision, said, session, request)
        return session

    def carry_out(self, decision, said):
        note = Foreign(raw={"turnlog": "request", "ask": "x"})
        bodies = [*pruned(decision), note, *said.rest(decision)]
        if decision.path is None or decision.kind == "forked":
            session = f"s{len(self.logs)}"
            past = self.logs[decision.path.session_id][: decision.to] if decision.path else []
            log = [Opened(seq=1, id=session, key="k", agent="main", channel="api"), *past[1:]]
            self.logs[session] = stamped(log, bodies)
            self.paths[session] = of_log(session, self.logs[session])
            return session
        session = decision.path.session_id
        if decision.to is not None:
            log = self.logs[session]
            live = live_path(marks_of(log), len(log))
            dropped = [entry for entry in log[decision.to :] if on_path(entry.seq, live)]
            bodies = [Rewind(to=decision.to), *carried(dropped, decision.to, decision.path.by_client), *bodies]
        before = len(self.logs[session])
        self.logs[session] = stamped(self.logs[session], bodies)
        self.grow(session, before)
        return session

    def grow(self, session, before):
        path = self.paths.pop(session)
        if not path.grow(self.logs[session][before:]):
            path = of_log(session, self.logs[session])
        self.paths[session] = path  # the newest now
        if self.is_likely(0.1):
            self.check_path(session)

    def check_path(self, session):
        whole = of_log(session, self.logs[session])
        assert columns(self.paths[session]) == columns(whole), "a path that grew is the path of the log"

    def check(self, decision, said, session, request):
        path, log = self.paths[session], self.logs[session]
        assert len(path.keys) == len(said.keys)
        cut = {n for n, key in enumerate(path.keys) if key != said.keys[n]}
        assert all(said.atoms[n].kind == "result" for n in cut)
        if decision.path is not None and not self.named:
            assert any(key in decision.path.own for key in said.keys) or any(
                one.partial for one in decision.path.atoms
            ), "without a name only an answer tells a session"
        plain, at = [], 0
        for body in request:
            if size := len(atoms.of(body)):  # what has no words is not stored
                plain.append(shortened(body, log[path.seqs[at] - 1]) if at in cut else body)
                at += size
        if cut and len({body.tool_use_id for body in results_of(plain)}) < len(results_of(plain)):
            return  # two results of one call are one if they are equal, and pruned results may differ
        assert as_words(history.build(log).messages) == as_words(history.build(stamped([], plain)).messages)

    def answer(self, session, talk):
        self.answers += 1
        text = self.word() if self.is_likely(0.3) else f"answer {self.answers} with some words"
        stop = self.random.choice(["end_turn"] * 8 + ["interrupted", "error"])
        content = text
        if self.is_likely(0.4):
            call = {"type": "tool_use", "id": f"c{self.answers}", "name": "read", "input": {"b": 1.0, "a": self.word()}}
            content, stop = ([{"type": "text", "text": text}, call] if self.is_likely(0.5) else [call]), "tool_use"
        before = len(self.logs[session])
        self.logs[session] = stamped(self.logs[session], [Assistant(content=content, model="m", stop=stop)])
        self.grow(session, before)
        known = text[: self.random.randrange(1, 9)].rstrip() or text
        talk.append(Assistant(content=known if stop in atoms.PARTIAL else content))


def columns(path: Path):
    ids, ends = [atom.id for atom in path.atoms], [end.kept for end in path.ends]
    return path.keys, path.seqs, ids, path.branches, path.own, ends, path.shortened()


def as_words(messages):
    """(kind, words) of each part of a prompt, without ids and spaces."""
    found = []
    for message in messages:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks:
            match block["type"]:
                case "text":
                    if found and found[-1][0] == message["role"]:
                        found[-1] = (message["role"], f"{found[-1][1]} {flat(block['text'])}")
                    else:
                        found.append((message["role"], flat(block["text"])))
                case "tool_use":
                    given = {**block["input"], "b": float(block["input"]["b"])}
                    found.append(("tool_use", flat(json.dumps([block["name"], given], sort_keys=True))))
                case "tool_result":
                    found.append(("tool_result", flat(history.as_text(block["content"]))))
                case _:
                    pass
    return found


def results_of(bodies):
    return [body for body in bodies if isinstance(body, ToolResult)]


def shortened(body, stored):
    """A result that the client pruned is shown as the beginning and end of the original, as long as the client's."""
    [theirs], [ours] = atoms.of(body), atoms.of(stored)
    assert theirs.size * matching.PRUNED_TO <= ours.size
    return replace(body, content=history.cut_content(stored.content, max(1, theirs.size)))


def flat(text):
    return re.sub(r"\s+", " ", text.replace(history.NO_OUTPUT, "")).strip()


@pytest.mark.parametrize("part", range(WORLDS))
def test_a_prompt_holds_the_words_of_its_request_and_no_others(part):
    sent = 0
    seed = part
    while sent < CASES // WORLDS:
        world = World(seed, named=bool(seed % 2))
        for _ in range(REQUESTS):
            talk, request = world.next_request()
            session = world.send(request)
            sent += 1
            if session is not None and world.is_likely(0.9):
                world.answer(session, talk)
        for session in world.logs:
            world.check_path(session)
        seed += WORLDS * 2 if part % 2 else WORLDS
