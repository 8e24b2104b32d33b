"""Whether an entry may be pinned: it must be a message that the model sees, and the pins must fit their budget."""

from ..core import compaction, history, tokens
from ..core.entries import MESSAGES, Entry, Transcript
from ..core.session import Session, check_entry
from ..errors import UsageError
from ..stores import Store
from . import reading


async def check_message(store: Store, row: Session, target: int) -> None:
    check_entry(row, target)
    found = await reading.read(store, row, after=target - 1, limit=1)
    if not found or not isinstance(found[0], MESSAGES):
        raise UsageError(f"entry {target} is not a message", hint="Pin a user, assistant or tool_result entry.")


def check_shown(log: Transcript, target: int) -> None:
    state = next((found.state for found in compaction.explain(log) if found.seq == target), "none")
    if state in ("rewound", "left_out"):
        why = "was rewound" if state == "rewound" else "is left out, because the model refused it"
        raise UsageError(f"entry {target} {why}, so it cannot be pinned", hint="Pin a message that the model sees.")


async def check_budget(store: Store, row: Session, target: int, budget: int) -> None:
    entries: list[Entry] = []
    while missing := history.missing(entries, [*row.pins, (target, target)]):
        for seq in missing:
            entries += await reading.read(store, row, after=seq - 1, limit=1)
    view = history.survey(sorted(entries, key=lambda entry: entry.seq))
    messages = (entry for entry in entries if isinstance(entry, MESSAGES))
    size = sum(tokens.of_text(history.as_text(history.whole_content(entry, view))) for entry in messages)
    if size > budget:
        raise UsageError(
            f"the pins would take about {size:,} tokens; the budget is {budget:,}",
            hint="Unpin something first, or raise compaction.pin_budget.",
        )
