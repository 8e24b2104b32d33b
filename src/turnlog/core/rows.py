"""A session's index row as lists show it: the names and the order that scripts and pages depend on."""

from typing import Any

from .session import Session


def row_of(session: Session, *, file_path: str | None = None) -> dict[str, Any]:
    """`file_path`: where the transcript is a file of its own; otherwise the field is left out."""
    row: dict[str, Any] = {
        "id": session.id,
        "agentId": session.agent,
        "key": session.key,
        "label": session.label,
        "title": session.title,
        "filePath": file_path,
        "messageCount": session.message_count,
        "turnCount": session.turn_count,
        "createdAt": session.created_at,
        "lastAt": session.last_at,
        "tokenEstimate": session.token_estimate,
        "status": session.status,
        "channel": session.channel,
        "compactions": session.compactions,
    }
    if file_path is None:
        del row["filePath"]
    return row
