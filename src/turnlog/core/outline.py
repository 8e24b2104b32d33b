"""A log without its words: a few hundred bytes for each entry, however large it is.

Which entries count, and how each of them is shown, follows from the order and the kinds of entries. So a log that is
too large to be held is read page by page, and these questions are asked of its outline.
"""

from msgspec.structs import replace

from .entries import Assistant, Block, Content, Entry, Facts, Foreign, Title, ToolResult, User, tool_uses
from .erasing import emptied, item_fields
from .user_content import has_results


def bare(entry: Entry) -> Entry:
    """The entry without words and time. `survey` and `compaction.explain` say the same of it."""
    if entry.blank is None:
        return replace(entry, ts="", raw=None, unknown=None)
    found = replace(emptied(entry), ts="", erased=entry.erased)
    return replace(found, content=_bare_content(entry)) if isinstance(entry, User) else found


def for_erasing(entry: Entry) -> Entry:
    """The entry with its time, and of its words only names: `erasing.plan` gives the same plan for it."""
    if entry.blank is None or entry.erased:
        return entry
    found = replace(emptied(entry), erased=False)
    match entry:
        case Assistant():
            return replace(found, content=[_bare_call(block) for block in tool_uses(entry)])
        case User():
            return replace(found, content=_bare_content(entry))
        case ToolResult():
            return replace(found, tool_use_id=entry.tool_use_id)
        case Facts():
            return replace(found, app=entry.app, put=dict.fromkeys(entry.put), drop=entry.drop)
        case Title():
            return replace(found, by=entry.by)
        case Foreign() if entry.unknown is None:
            return replace(found, raw={"item": item_fields(entry)})
        case _:
            return found


def _bare_call(block: Block) -> Block:
    return {name: block[name] for name in ("type", "id") if name in block}


def _bare_content(entry: User) -> Content | None:
    """Keeps the places of results that another program wrote into a user message, which is split at them."""
    if entry.content is None or isinstance(entry.content, str) or not has_results(entry):
        return None if entry.content is None else ""
    return [_bare_block(block) for block in entry.content]


def _bare_block(block: Block) -> Block:
    return {name: block[name] for name in ("type", "tool_use_id") if name in block}
