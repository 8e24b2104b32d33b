"""Transcripts as nobody should write them: damaged imports, other programs' blocks, ids and names of every kind.

One seed makes one transcript, always the same one. Entries are valid as entries, and nothing else about them is: what a
store can hold is what can come out of here.
"""

import base64
from random import Random

from turnlog.core.entries import (
    Assistant,
    Compaction,
    Failed,
    Pin,
    Received,
    Rewind,
    Shortened,
    ToolResult,
    Undo,
    Unpin,
    User,
)
from turnlog.core.history import INJECTS
from turnlog.core.prompt import ToolDefinition
from turnlog.testing import opened

ODD = (
    "\ud800",
    "\udfff",
    "\x00",
    "\u200d",
    "\u202e",
    "👩‍👩‍👧",
    "é",
    "中",
    "\u2028",
    "\\",
    '"',
    "`" * 4,
    "\n",
    "\t",
    "Ā",
)
BLANK = ("", " ", "\n\t", "\u00a0", "\u3000", "\x1f")
IDS = (
    *("x", "x_2", "x_2_2", "a.b", "a_b", "a_2e_b", "functions.read:0", "functions_read_0", "toolu_01", "y" * 40),
    *("y" * 41, "z" * 64, "z" * 65, "z" * 5000, "é", "é?", "\ud800", "a b", " ", "call|fc_1", "", "None", "0"),
)
NAMES = (
    *("read", "functions.list_dir", "functions_list_dir", "server.tool", "a b", "n" * 64, "n" * 65, "n" * 500, "读"),
    *("\ud800", " ", "", "mcp/x", "x", "-", "tool\n", "$web", "Read", "read."),
)
BEGINNINGS = (
    *(
        b"\x89PNG\r\n\x1a\n....",
        b"\xff\xd8\xff\xe0..",
        b"GIF89a..",
        b"RIFF....WEBPVP8 ",
        b"RIFF....WAVEfmt ",
        b"II*\x00..",
    ),
    *(b"BM......", b"%PDF-1.7 ..", b"<svg xmlns=''/>", b"\x00" * 9, b"", b"\x89PNG", b"words", b"\x00\x00\x01\x00.."),
)
FORMS = (
    *("image/png", "image/jpeg", "image/jpg", "IMAGE/PNG", "image/gif", "image/webp", "image/tiff", "image/bmp"),
    *("image/svg+xml", "application/pdf", "text/plain", "", "png", None, 5, "image/png; x=1"),
)
ADDRESSES = (
    *("https://example.com/a.png", "http://example.com/a.png", "ftp://x/y", "file:///etc/passwd", "", "x", "https://"),
    *("https://exa mple.com", "data:image/png;base64,iVBORw0KGgo=", "data:image/tiff;base64,SUkqAA==", "data:,x"),
    *("data:image/png;base64,%%%", "https://example.com/\ud800", "HTTPS://EXAMPLE.COM/A.PNG", "\u2028"),
)
PDFS = ("JVBERi0=", "AA==", "!")
CODES = ("interrupted", "provider", "overflow", "stopped", "tool_limit", "refused_content")


class Hostile:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.words = 0
        self.log = [opened("s1")]
        self.tools = tuple(
            ToolDefinition(name=name, description=self.text())
            for name in dict.fromkeys(self.random.choices(NAMES, k=self.random.randrange(5)))
            if name
        )
        self.inject = self.random.choice(INJECTS)
        self.system = self.random.choice(("", " ", "Be kind.", "\ud800"))
        for _ in range(self.random.randrange(1, 14)):
            self.step()
        if self.random.random() < 0.5:
            self.add(User(content="go on"))

    def one(self, *makers):
        return self.random.choice(makers)()

    def add(self, body):
        body = body.__class__(**{name: getattr(body, name) for name in body.__struct_fields__ if name != "seq"},
                              seq=len(self.log) + 1)  # fmt: skip
        self.log.append(body)

    def step(self):
        random = self.random
        kinds = ("user", "answer", "call", "result", "results", "shape", "failed", "turn")
        match random.choices(kinds, (4, 4, 5, 5, 2, 2, 1, 3))[0]:
            case "user" if random.random() < 0.2:
                self.add(Received(content=self.content()))
                self.add(User(from_=(len(self.log),), sender=random.choice((None, "Ann", "\ud800"))))
            case "user":
                self.add(User(content=self.content()))
            case "answer":
                self.add(Assistant(content=self.content(), stop=random.choice((None, "end_turn", "error", "x"))))
            case "call":
                blocks = [self.block() for _ in range(random.randrange(3))]
                self.add(Assistant(content=[*blocks, *(self.call() for _ in range(random.randrange(1, 4)))]))
            case "result":
                self.add(self.result())
            case "results":
                self.add(User(content=[self.result_block() for _ in range(random.randrange(1, 4))]))
            case "shape":
                self.add(self.shape())
            case "failed":
                self.add(Failed(code=random.choice(CODES)))
            case _:
                self.turn()

    def turn(self):
        """One as it should be, but for what is in it."""
        self.add(User(content=self.content()))
        calls = [self.call() for _ in range(self.random.randrange(3))]
        self.add(Assistant(content=[*self.blocks(), *calls]))
        for call in calls:
            if isinstance(call.get("id"), str):
                self.add(ToolResult(tool_use_id=call["id"], content=self.content(), is_error=self.maybe()))
        self.add(Assistant(content=self.content()))

    def shape(self):
        end = len(self.log)
        at = self.random.randint(1, end)
        return self.one(
            lambda: Rewind(to=at),
            lambda: Compaction(summary=self.text(), first_kept=at, covers=(1, max(1, at - 1))),
            lambda: Undo(target=at),
            lambda: Pin(target=at),
            lambda: Unpin(target=at),
            lambda: Shortened(targets=(at,), limit=self.random.choice((0, 1, 50))),
        )

    def maybe(self):
        return self.random.random() < 0.3

    def text(self):
        if self.random.random() < 0.1:
            return self.random.choice(BLANK)
        self.words += 1
        return f"word{self.words:04d}q" + "".join(self.random.choices(ODD, k=self.random.randrange(3)))

    def content(self):
        return self.text() if self.random.random() < 0.4 else self.blocks()

    def blocks(self):
        return [self.block() for _ in range(self.random.randrange(4))]

    def block(self, depth=0):
        makers = (self.said, self.said, self.picture, self.document, self.thought, self.odd, self.server, self.found)
        block = self.one(*makers, *((self.call, self.result_block) if depth < 2 else ()))
        if self.random.random() < 0.15:
            block = {**block, self.random.choice(("cache_control", "id", "x", "caller", "citations")): self.value()}
        if self.random.random() < 0.05 and block:
            block = {name: value for name, value in block.items() if name != self.random.choice(list(block))}
        return block

    def value(self):
        return self.random.choice(
            (None, 0, 1.5, True, "", "x", [], {}, {"type": "ephemeral"}, [{"type": "char_location"}], {"enabled": True})
        )

    def said(self):
        return {"type": "text", "text": self.text()}

    def picture(self):
        data = self.random.choice(BEGINNINGS)
        encoded = base64.b64encode(data).decode()
        encoded = self.one(lambda: encoded, lambda: encoded, lambda: encoded[:-1], lambda: encoded + "\n", lambda: "é%")
        base = {"type": "base64", "media_type": self.random.choice(FORMS), "data": encoded}
        address = {"type": "url", "url": self.random.choice(ADDRESSES)}
        other = self.random.choice(
            ({"type": "file", "file_id": "f"}, None, "x", {}, {"type": "base64"}, {"type": "url"})
        )
        return {"type": "image", "source": self.random.choices((base, address, other), (5, 2, 1))[0]}

    def document(self):
        source = self.one(
            lambda: {"type": "text", "media_type": "text/plain", "data": self.text()},
            lambda: {"type": "content", "content": self.random.choice(([], [self.said()], [self.picture()], "x", 5))},
            lambda: self.picture()["source"],
            lambda: {"type": "base64", "media_type": "application/pdf", "data": self.random.choice(PDFS)},
            lambda: None,
        )
        extra = {"title": self.random.choice((None, "", "T\ud800", 5))} if self.maybe() else {}
        return {"type": "document", "source": source, **extra} | (
            {"citations": {"enabled": True}} if self.maybe() else {}
        )

    def thought(self):
        signature = self.random.choice(("", "c2ln", None, '{"id": "rs_1"}', 5, "sig\ud800"))
        return self.one(
            lambda: {"type": "thinking", "thinking": self.text(), "signature": signature},
            lambda: {"type": "thinking", "thinking": self.value()},
            lambda: {"type": "redacted_thinking", "data": signature},
        )

    def odd(self):
        kind = self.random.choice(
            ("audio", "reasoning", "input_text", "image_url", "container_upload", "", None, 5, "\ud800")
        )
        return self.random.choice(({"type": kind, "x": self.value()}, {}, {"text": "no type"}, {"type": kind}))

    def server(self):
        call_id = self.random.choice(("srvtoolu_1", "srvtoolu_2", "x", "srvtoolu_é"))
        return self.one(
            lambda: {"type": "server_tool_use", "id": call_id, "name": "web_search", "input": {"query": "q"}},
            lambda: {"type": "web_search_tool_result", "tool_use_id": call_id, "content": []},
            lambda: {"type": "code_execution_tool_result", "tool_use_id": call_id, "content": {}},
            lambda: {
                "type": "server_tool_use",
                "id": call_id,
                "name": self.random.choice(NAMES),
                "input": self.value(),
            },
        )

    def found(self):
        content = self.random.choice(([], [{"type": "text", "text": "found"}], [{"type": "image"}], "x", None))
        return {
            "type": "search_result",
            "source": "s",
            "title": self.random.choice(("t", "\ud800", 5)),
            "content": content,
        }

    def call(self):
        given = self.random.choice(
            ({}, {"a": 1}, {"a": 2}, {"\ud800": ["\udfff"]}, None, "x", [1], {"a": float("nan")})
        )
        call = {"type": "tool_use", "id": self.random.choice(IDS), "name": self.random.choice(NAMES), "input": given}
        return call if self.random.random() < 0.95 else {**call, self.random.choice(("id", "name")): self.value()}

    def result(self):
        return ToolResult(tool_use_id=self.random.choice(IDS), content=self.content(), is_error=self.maybe())

    def result_block(self):
        content = self.random.choice((self.text(), None, 5, [], [self.said(), self.picture()], {}, [5], ["x"]))
        block = {"type": "tool_result", "tool_use_id": self.random.choice(IDS), "content": content}
        return {**block, "is_error": self.random.choice((True, False, None, "yes"))} if self.maybe() else block
