"""A log without its words: a few hundred bytes for each entry, however large it is.

Which entries count, and how each of them is shown, follows from the order and the kinds of entries. So a log that is
too large to be held is read page by page, and these questions are asked of its outline.
"""

from msgspec.structs import replace

from .entries import Block, Content, Entry, User
from .erasing import emptied
from .user_content import has_results


def bare(entry: Entry) -> Entry:
    """The entry without words and time. `survey` and `compaction.explain` say the same of it."""
    if entry.blank is None:
        return replace(entry, ts="", raw=None, unknown=None)
    found = replace(emptied(entry), ts="", erased=entry.erased)
    return replace(found, content=_bare_content(entry)) if isinstance(entry, User) else found


def _bare_content(entry: User) -> Content | None:
    """Keeps the places of results that another program wrote into a user message, which is split at them."""
    if entry.content is None or isinstance(entry.content, str) or not has_results(entry):
        return None if entry.content is None else ""
    return [_bare_block(block) for block in entry.content]


def _bare_block(block: Block) -> Block:
    return {name: block[name] for name in ("type", "tool_use_id") if name in block}
