"""Search: titles and messages of all sessions that somebody may see, and the way to the message in its chat."""

import json
from typing import Annotated, Literal
from urllib.parse import urlencode

from litestar import Response, get
from litestar.params import Parameter
from markupsafe import Markup, escape
from msgspec import Struct
from msgspec.structs import replace

from ...access import Access
from ...core.query import UNTRASHED, Hit, Query
from ...core.rows import Session
from ...core.snippets import SNIPPET_CHARS
from ...errors import NotFound, UsageError
from ..markdown import honest
from ..service import AnyRequest, acting, reading, service_of
from .view import own_homes, path_to, show

TITLES_SHOWN = 8
HITS_SHOWN = 40
MARKS_MAX = 20
"""Different matched words that are marked in a chat."""

SearchText = Annotated[str, Parameter(max_length=1_000)]
Whose = Literal["mine", "all"]
Role = Literal["", "user", "assistant", "tool", "summary"]


class FoundMessage(Struct, frozen=True):
    """A message with the words that were looked for."""

    path: str
    snippet: Markup
    title: str
    role: str
    time: str
    state: str


class FindInChat(Struct, frozen=True, kw_only=True):
    """Where the words are in one chat."""

    words: str
    count: int
    position: int
    """Of the message that is shown, from 1; 0: another one is."""
    previous: str
    next: str
    marks: str
    """The matched texts, as JSON."""
    close: str


@get("/search")
async def search_page(
    request: AnyRequest,
    q: SearchText = "",
    agent: Annotated[str, Parameter(max_length=64)] = "",
    whose: Whose = "mine",
    role: Role = "",
    within: Annotated[str, Parameter(max_length=64)] = "",
) -> Response[str]:
    """`within`: only this session."""
    agent = agent or service_of(request).agents[0]
    access = acting(request, "chat", "read", agent=agent)
    if within:
        await reading(request, agent, within)
    homes = own_homes(access.principal, agent) if whose == "mine" else ()
    scope = Query(agent=agent, status=UNTRASHED, homes=homes, id=within or None)
    words = q.strip()
    # The newest sessions, if there are no words.
    titled = replace(scope, q=words or None, limit=TITLES_SHOWN)
    titles = (await access.sessions.list(titled)).items if not within else []
    hits = await _messages(access, scope, words, role) if words else []
    chosen = {"q": q, "agent": agent, "whose": whose, "role": role, "within": within}
    return await show(request, "search.html", part="part_found.html", titles=titles, hits=hits, chosen=chosen)


async def _messages(access: Access, scope: Query, words: str, role: str) -> list[FoundMessage]:
    rows: dict[str, Session] = {}
    found: list[FoundMessage] = []
    for hit in await _hits(access, words, scope):
        if (role and hit.role != role) or hit.role == "title" or len(found) >= HITS_SHOWN:
            continue
        try:
            row = rows.get(hit.session_id) or await access.sessions.get(hit.session_id)
        except NotFound:
            continue  # deleted meanwhile
        rows[row.id] = row
        found.append(FoundMessage(_way(row, hit.seq, words), marked(hit), row.title, hit.role, hit.time, hit.state))
    return found


async def _hits(access: Access, words: str, scope: Query) -> list[Hit]:
    try:
        return await access.sessions.search(words, scope=scope)
    except UsageError:
        return []  # there is no word to search for; titles are searched all the same


def _way(row: Session, seq: int, words: str) -> str:
    """The address of a message in its chat."""
    return f"{path_to('chat', row.agent, row.id)}?{urlencode({'show': seq, 'q': words})}#e{seq}"


def marked(hit: Hit) -> Markup:
    """The snippet with its matches marked. Each piece is made harmless by itself, so that no place moves."""
    html, at = Markup(""), 0
    for start, end in hit.matches:
        html += escape(honest(hit.snippet[at:start])) + Markup("<mark>{}</mark>").format(honest(hit.snippet[start:end]))
        at = end
    return html + escape(honest(hit.snippet[at : SNIPPET_CHARS * 3]))


async def find_in_chat(access: Access, row: Session, words: str, seq: int | None) -> FindInChat | None:
    """The messages of this chat with these words, and the one before and after `seq`."""
    words = words.strip()
    if not words:
        return None
    hits = [hit for hit in await _hits(access, words, Query(id=row.id)) if hit.role != "title"]
    seqs = sorted({hit.seq for hit in hits})
    texts = list(dict.fromkeys(hit.snippet[a:b] for hit in hits for a, b in hit.matches))[:MARKS_MAX]
    earlier = [one for one in seqs if seq is not None and one < seq]
    later = [one for one in seqs if seq is None or one > seq]
    return FindInChat(
        words=words,
        count=len(seqs),
        position=seqs.index(seq) + 1 if seq in seqs else 0,
        previous=_way(row, earlier[-1], words) if earlier else "",
        next=_way(row, later[0], words) if later else "",
        marks=json.dumps(texts),
        close=path_to("chat", row.agent, row.id),
    )
