"""ZeroClaw's `sessions.db`: rows of sessions, messages and session state, in both generations of its schema.

It stores only texts. A summary in `session_state` with the id of the last summarised message is a compaction. If the
summary is an assistant row, the boundary next to it may be after messages that no summary holds, so the row stays a
message and everything is shown.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ...core.entries import Assistant, Status, ToolResult, User
from .databases import Reader
from .draft import Draft, RecordReader, SourceRecord
from .plain import as_text

_MESSAGES = """
SELECT id, role, content, created_at, {meta} FROM session_messages WHERE session_id = ? ORDER BY id
"""


def is_ours(db: Reader) -> bool:
    """Whether this is a ZeroClaw database and not, for example, a Turnlog store, which has seqs."""
    columns = db.columns("session_messages")
    return {"id", "session_id", "role", "content"} <= columns and "seq" not in columns


def sessions(db: Reader) -> Iterator[dict[str, Any]]:
    """Every session's row, also of sessions that only messages name, because the schema allows that."""
    known = db.columns("sessions")
    names = sorted(known) or ["session_id"]
    listed = f"SELECT {', '.join(names)} FROM sessions ORDER BY session_id" if known else ""
    for row in db.rows(listed) if listed else ():
        yield dict(zip(names, row, strict=True))
    missing = "WHERE session_id NOT IN (SELECT session_id FROM sessions)" if known else ""
    for (name,) in db.rows(f"SELECT DISTINCT session_id FROM session_messages {missing} ORDER BY 1"):
        yield {"session_id": name}


def records(db: Reader, row: Mapping[str, Any]) -> Iterator[SourceRecord]:
    session = row["session_id"]
    yield SourceRecord("sessions", {"row": dict(row), "state": _states(db, session)})
    meta = "meta_json" if "meta_json" in db.columns("session_messages") else "NULL"
    for number, role, content, created, extra in db.rows(_MESSAGES.format(meta=meta), (session,)):
        value = {"id": number, "role": role, "content": content, "created_at": created, "meta_json": extra}
        yield SourceRecord(f"row {number}", value)


def _states(db: Reader, session: str) -> dict[str, Any]:
    if not db.columns("session_state"):
        return {}
    rows = db.rows("SELECT key, value_json FROM session_state WHERE session_id = ? ORDER BY key", (session,))
    return {key: _json(value) for key, value in rows}


def _json(value: Any) -> Any:
    try:
        return json.loads(value)
    except (TypeError, ValueError):
        return value


class ZeroClawReader(RecordReader):
    def __init__(self, draft: Draft) -> None:
        super().__init__(draft)
        self.state: Mapping[str, Any] = {}
        self.boundary = 0
        """0: there is no summary, or it was added."""

    def add(self, record: SourceRecord, fields: dict[str, Any]) -> None:
        if record.place == "sessions":
            self.state = fields["state"]
            self.boundary = _boundary(self.state)
            self.draft.keep({"session": fields["row"]}, fields["row"].get("created_at"))
            if fields["row"].get("status") == "inactive":
                self.draft.add(Status(value="inactive", reason="as in the source"))
        else:
            if self.boundary and fields["id"] > self.boundary:
                self.finish()
            _add(record, fields, self.draft)

    def finish(self) -> None:
        if self.boundary and not self.draft.compact(as_text(self.state.get("compaction_summary")), None):
            self.draft.note("a summary that covers nothing is kept in the session's state and not applied")
            self.draft.keep({"state": dict(self.state)})
        self.boundary = 0


def _boundary(state: Mapping[str, Any]) -> int:
    """The id of the last summarised message, if there is a summary."""
    after = state.get("compaction_after_message_id")
    if isinstance(after, str) and after.isdigit():
        after = int(after)
    return after if isinstance(after, int) and as_text(state.get("compaction_summary")).strip() else 0


def _add(record: SourceRecord, row: Mapping[str, Any], draft: Draft) -> None:
    content, at = as_text(row["content"]), row["created_at"]
    match row["role"]:
        case "user":
            draft.add(User(content=content, message_id=str(row["id"])), at)
        case "assistant":
            draft.add(Assistant(content=content), at)
        case "tool":
            draft.note("tool rows name no call; shown as results whose call is not known", record.place)
            draft.add(ToolResult(tool_use_id=f"row-{row['id']}", content=content), at)
        case role:
            draft.hide(f"rows with role {role} are", record, at)
            return
    left = {"meta_json": _json(row["meta_json"])}
    if row["role"] != "user":
        left["id"] = row["id"]
    draft.rest(record, left)
