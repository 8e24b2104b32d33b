"""The conversation as Markdown. Calls, results and summaries are fenced, so that nothing in them is formatted."""

from collections.abc import Iterator

from ...core.history import fence
from ...core.session import Session
from .timeline import ExportedItem, TimelineWriter, printable


class MarkdownWriter(TimelineWriter):
    def begin(self) -> Iterator[str]:
        session = self.session
        yield f"# {title_of(session)}\n\n"
        yield f"Session `{session.id}` · `{printable(session.key)}` · {session.message_count} messages\n"

    def item(self, item: ExportedItem) -> str:
        return f"\n{_part(item)}\n"


def title_of(session: Session) -> str:
    return " ".join(printable(session.title or session.label or session.id).split())


def _part(item: ExportedItem) -> str:
    match item.kind:
        case "user" | "assistant":
            return f"## {item.who} · {item.ts}\n\n{item.text}"
        case "image":
            return f"## {item.who} · {item.ts}\n\n*(an image)*"
        case "compaction":
            return f"---\n\n**{item.who}** · {item.ts}\n\n{fence(item.text)}\n\n---"
        case "failed":
            return f"*{item.who}. {item.text}*"
        case _:
            return f"**{item.who}** · {item.ts}\n\n{fence(item.text)}"
