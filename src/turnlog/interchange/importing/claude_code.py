"""Claude Code: one record per line, a tree by `uuid` and `parentUuid`, messages in Anthropic's shape.

It writes a line for each block of an answer, and a tool's result is a child of the call's line. So a parent that is not
the last line does not mean a branch. A branch begins where a person asked again from further back.
"""

from collections.abc import Mapping
from typing import Any

from ...core.entries import Assistant, Block, Title, User, text_of
from ...core.strict_json import fields_in
from .draft import Draft, RecordReader, SourceRecord
from .plain import as_content, result_of, text, without

STEADY = ("sessionId", "cwd", "version", "gitBranch", "userType", "entrypoint")


class ClaudeCodeReader(RecordReader):
    def __init__(self, draft: Draft) -> None:
        super().__init__(draft)
        self.seqs: dict[str, int] = {}
        """uuid → seq of the last entry made from that line."""
        self.last_said = 0
        """The last entry that was not a tool's result."""
        self.folding: Mapping[str, Any] | None = None
        self.side: bool | None = None
        """Whether this is a subagent's own file; in other files, a subagent's messages are not part of the
        conversation.
        """

    def add(self, record: SourceRecord, line: Mapping[str, Any]) -> None:
        at = line.get("timestamp")
        message = fields_in(line.get("message"))
        kind = line.get("type")
        if self.side is None and message:
            self.side = bool(line.get("isSidechain"))
        if line.get("isSidechain") and not self.side:
            self.draft.hide("what subagents said is", record, at)
        elif kind == "system" and line.get("subtype") == "compact_boundary":
            self.draft.keep(line, at)
            self.folding = line
        elif kind in ("user", "assistant") and message:
            self._message(record, line, message, at)
        elif kind == "summary" and isinstance(line.get("summary"), str):
            self.draft.add(Title(title=line["summary"], by="auto"), at)
            self.draft.rest(record, without(line, "type", "summary"))
        else:
            self.draft.hide(f"lines of type {kind} are", record, at)
        if isinstance(line.get("uuid"), str):
            self.seqs[line["uuid"]] = self.draft.last_seq

    def _message(self, record: SourceRecord, line: Mapping[str, Any], message: Mapping[str, Any], at: Any) -> None:
        content = as_content(message.get("content"))
        if line.get("isCompactSummary") and self._fold(text_of(content), at):
            pass
        elif line["type"] == "assistant":
            body = Assistant(
                content=content,
                model=text(message.get("model")),
                usage=fields_in(message.get("usage")) or None,
                stop=text(message.get("stop_reason")),
            )
            self.last_said = self.draft.add(body, at)
        else:
            self._user(record, line, content, at)
        left = without(line, "type", "message", "timestamp", "toolUseResult")
        left["message"] = without(message, "role", "content", "model", "usage", "stop_reason", "type") or None
        # toolUseResult repeats the result for Claude Code's own display, including whole files.
        if "toolUseResult" in line:
            self.draft.note("toolUseResult, a second copy of tool results, was left out")
        self.draft.rest(record, left, steady=STEADY)

    def _user(self, record: SourceRecord, line: Mapping[str, Any], content: str | list[Block], at: Any) -> None:
        results = [] if isinstance(content, str) else [b for b in content if b.get("type") == "tool_result"]
        said = content if isinstance(content, str) else [b for b in content if b.get("type") != "tool_result"]
        for block in results:
            self.draft.add(result_of(block), at)
        if said or not results:
            if not results:
                self._branch(record, line)
            self.last_said = self.draft.add(User(content=said, message_id=text(line.get("uuid"))), at)

    def _branch(self, record: SourceRecord, line: Mapping[str, Any]) -> None:
        parent = line.get("parentUuid")
        if parent is None:
            if self.draft.first_message:  # lines without a message before it do not make a branch
                self.draft.follow(1, record.place)
        elif parent not in self.seqs:
            self.draft.note("its parent is missing; shown after the line before it", record.place)
        elif self.seqs[parent] < self.last_said:
            self.draft.follow(self.seqs[parent], record.place)

    def _fold(self, summary: str, at: Any) -> bool:
        boundary, self.folding = self.folding, None
        before = fields_in(boundary.get("compactMetadata")).get("preTokens") if boundary else 0
        if boundary and self.draft.compact(summary, None, at=at, tokens_before=before):
            self.last_said = self.draft.last_seq
            return True
        self.draft.note("a summary without its boundary is shown as a message")
        return False
