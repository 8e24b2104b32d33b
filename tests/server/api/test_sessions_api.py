"""Sessions over HTTP: lists, whole histories, titles, deletion, compaction, forks, tails; on both of their paths."""

import threading

import pytest
from httpx_sse import connect_sse

from turnlog import Assistant, User

from ...web.browsing import seed
from ..running import CHAT, SESSIONS, kinds, running, talk, turnlog, wait_until

ALIAS = "/api/sessions/main"
ROW = [
    *("id", "agentId", "key", "label", "title", "messageCount", "turnCount", "createdAt", "lastAt"),
    *("tokenEstimate", "status", "channel", "compactions"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("sessions"), script=[], args=["--preset", "sessions"]) as server:
        yield server


@pytest.fixture
def client(server):
    with server.client() as client:
        yield client


@pytest.fixture
def sid(client):
    return talk(client, "something to look at")[-1][1]["sessionId"]


def test_a_list_is_sorted_stable_paged_and_counted(client):
    for n in range(7):
        talk(client, f"topic number {n} zebra{n % 2}")
    whole = client.get(SESSIONS, params={"limit": 200}).json()
    assert whole["total"] == len(whole["sessions"])
    assert all(list(row) == ROW for row in whole["sessions"])
    moments = [row["lastAt"] for row in whole["sessions"]]
    assert moments == sorted(moments, reverse=True)
    for _ in range(10):
        assert client.get(SESSIONS, params={"limit": 200}).json() == whole
    pages, cursor = [], None
    while True:
        page = client.get(SESSIONS, params={"limit": 3, **({"cursor": cursor} if cursor else {})}).json()
        assert page["total"] == whole["total"]
        pages += page["sessions"]
        if (cursor := page["next"]) is None:
            break
    assert pages == whole["sessions"]
    found = client.get(SESSIONS, params={"q": "zebra1"}).json()
    assert found["total"] == 3
    assert client.get(SESSIONS, params={"status": "active"}).json()["total"] == 1
    assert client.get(ALIAS, params={"limit": 200}).json() == whole


@pytest.mark.parametrize("base", [SESSIONS, ALIAS])
def test_the_trash_is_listed_only_when_it_is_asked_for(server, client, base):
    kept, thrown = (talk(client, "about giraffes")[-1][1]["sessionId"] for _ in range(2))
    trash = {"next": "/"}
    assert client.post(f"/session/main/{thrown}/trash", data=trash, headers={"Origin": server.base}).status_code == 303

    def listed(**params):
        page = client.get(base, params={"q": "giraffes", **params}).json()
        ids = {row["id"] for row in page["sessions"]}
        assert page["total"] == len(ids)
        return (kept in ids, thrown in ids)

    assert listed() == listed(status="untrashed") == (True, False)
    assert listed(status="trashed") == (False, True)
    assert listed(status="all") == (True, True)
    told = turnlog(["sessions", "list", "--q", "giraffes", "--json", "--home", str(server.home)], server.env)
    assert kept in told.stdout
    assert thrown not in told.stdout
    told = turnlog(["sessions", "list", "--status", "all", "--json", "--home", str(server.home)], server.env)
    assert thrown in told.stdout
    for page in ("/chats", "/chat/main", "/list/main?q=giraffes"):
        assert thrown not in client.get(page).text
    assert thrown in client.get("/chats?state=trash").text
    assert client.get(f"{base}/{thrown}").json()["session"]["status"] == "trashed"
    for sid in (kept, thrown):
        assert client.delete(f"{base}/{sid}").status_code == 204


@pytest.mark.parametrize(
    "params",
    [{"limit": 0}, {"limit": 201}, {"limit": "x"}, {"cursor": "nonsense"}, {"status": "odd"}, {"q": "x" * 1001}],
)
def test_a_bad_question_is_400(client, params):
    answer = client.get(SESSIONS, params=params)
    assert answer.status_code == 400
    assert answer.json()["code"] == "usage"


@pytest.mark.parametrize("base", [SESSIONS, ALIAS])
def test_a_session_is_shown_renamed_and_erased_on_both_paths(client, base):
    sid = talk(client, "look at me")[-1][1]["sessionId"]
    shown = client.get(f"{base}/{sid}").json()
    assert [entry["type"] for entry in shown["entries"]] == ["session", "selected", "user", "assistant"]
    assert shown["next"] is None
    assert shown["session"]["title"] == "look at me"
    assert client.patch(f"{base}/{sid}", json={"title": "  a better  title "}).json()["title"] == "a better title"
    assert client.patch(f"{base}/{sid}", json={"title": " "}).status_code == 400
    assert len(client.patch(f"{base}/{sid}", json={"title": "long " * 100}).json()["title"]) <= 60
    gone = client.delete(f"{base}/{sid}")
    assert (gone.status_code, gone.content) == (204, b"")
    assert client.delete(f"{base}/{sid}").status_code == 404
    for path in (SESSIONS, ALIAS):
        assert client.get(f"{path}/{sid}").status_code == 404


def test_history_is_read_back_page_by_page(client, sid):
    for n in range(6):
        talk(client, f"m{n}", sessionId=sid)
    whole = client.get(f"{SESSIONS}/{sid}").json()["entries"]
    assert [entry["seq"] for entry in whole] == list(range(1, len(whole) + 1))
    pages, before = [], None
    while True:
        page = client.get(f"{SESSIONS}/{sid}", params={"limit": 4, **({"before": before} if before else {})}).json()
        pages = page["entries"] + pages
        if (before := page["next"]) is None:
            break
    assert pages == whole


def test_a_compaction_folds_is_shown_and_is_taken_back(server, client, sid):
    for n in range(30):
        talk(client, f"about item{n:05} " + "word " * 60, sessionId=sid)
    names = " ".join(f"item{n:05}" for n in range(30))
    server.write({"text": f"They spoke of {names}.", "for": "summary"})
    before = client.get(f"{SESSIONS}/{sid}").json()
    dry = client.post(f"{SESSIONS}/{sid}/compact", json={"dryRun": True, "focus": "items"})
    assert dry.json()["applied"] is False
    server.write({"text": f"They spoke of {names}.", "for": "summary"})
    done = client.post(f"{SESSIONS}/{sid}/compact", json={}).json()
    assert done["applied"] is True
    assert done["tokens_after"] < done["tokens_before"]
    after = client.get(f"{SESSIONS}/{sid}").json()
    assert after["entries"][: len(before["entries"])] == before["entries"]
    assert after["entries"][-1]["type"] == "compaction"
    assert after["session"]["compactions"] == before["session"]["compactions"] + 1
    assert after["session"]["messageCount"] == before["session"]["messageCount"]
    states = {row["state"] for row in client.get(f"{SESSIONS}/{sid}/coverage").json()["entries"]}
    assert "compacted" in states
    prompt = client.get(f"{SESSIONS}/{sid}/prompt").json()
    assert list(prompt) == ["system", "messages", "tools"]
    assert names in prompt["system"]
    seq = after["entries"][-1]["seq"]
    assert names not in client.get(f"{SESSIONS}/{sid}/prompt", params={"at": seq - 1}).json()["system"]
    undone = client.post(f"{SESSIONS}/{sid}/undo-compact").json()
    assert undone["compactions"] == before["session"]["compactions"]
    assert client.get(f"{SESSIONS}/{sid}/prompt").json()["messages"][0]["content"].startswith("something")
    assert client.post(f"{SESSIONS}/{sid}/undo-compact").status_code == 409


def test_a_message_after_an_entry_that_ends_no_turn_is_a_conflict_and_nothing_is_stored(client, sid):
    before = client.get(f"{SESSIONS}/{sid}").json()["entries"]
    for to in (3, 10_000):
        asked = {"message": "again", "sessionId": sid, "rewindTo": to}
        answer = client.post("/api/agents/main/chat", json=asked)
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert client.get(f"{SESSIONS}/{sid}").json()["entries"] == before


def test_a_fork_shares_the_past_and_a_rewind_goes_back(client, sid):
    talk(client, "second", sessionId=sid)
    fork = client.post(f"{SESSIONS}/{sid}/fork", json={"at": 4, "label": "try"}).json()
    assert (fork["label"], fork["messageCount"]) == ("try", 2)
    assert client.post(f"{SESSIONS}/{sid}/fork").json()["messageCount"] == 4
    assert client.post(f"{SESSIONS}/{sid}/fork", json={"at": 99}).status_code == 409
    assert client.post(f"{SESSIONS}/{sid}/rewind", json={"to": 4}).status_code == 200
    assert "second" not in str(client.get(f"{SESSIONS}/{sid}/prompt").json()["messages"])
    assert client.post(f"{SESSIONS}/{sid}/rewind", json={"to": 3}).status_code == 409
    states = [row["state"] for row in client.get(f"{SESSIONS}/{sid}/coverage").json()["entries"]]
    assert "rewound" in states


def test_new_entries_are_told_as_they_are_stored(server, client, sid):
    seen = []

    def look():
        with (
            server.client() as other,
            connect_sse(other, "GET", f"{SESSIONS}/{sid}/events", params={"after": 2}) as source,
        ):
            for event in source.iter_sse():
                seen.append((event.id, event.json()))
                if len(seen) == 4:
                    return

    thread = threading.Thread(target=look)
    thread.start()
    wait_until(lambda: len(seen) == 2)
    talk(client, "one more", sessionId=sid)
    thread.join(120)
    assert [place for place, _ in seen] == ["3", "4", "5", "6"]
    assert kinds(seen) == ["user", "assistant", "user", "assistant"]


def test_a_tail_ends_when_its_session_is_erased(server, client, sid):
    ended = []

    def look():
        with server.client() as other, connect_sse(other, "GET", f"{SESSIONS}/{sid}/events") as source:
            listening.set()
            ended.extend(source.iter_sse())
            ended.append("end")

    listening = threading.Event()
    thread = threading.Thread(target=look)
    thread.start()
    listening.wait(120)
    client.delete(f"{SESSIONS}/{sid}")
    thread.join(120)
    assert ended == ["end"]


def test_erasing_a_session_in_mid_turn_ends_the_turn_and_it_never_comes_back(server, client, tmp_path):
    server.write({"deltas": ["a "] * 50, "until": str(tmp_path / "never")})
    with connect_sse(client, "POST", CHAT, json={"message": "long"}) as source:
        sid = source.response.headers["turnlog-session"]
        told = source.iter_sse()
        next(told)
        assert client.delete(f"{SESSIONS}/{sid}").status_code == 204
        assert [event.json()["type"] for event in told][-1] in ("stopped", "error")
    assert client.get(f"{SESSIONS}/{sid}").status_code == 404
    assert sid not in client.get(SESSIONS, params={"limit": 200}).text


@pytest.mark.parametrize("title", ["\u200b", "\u202e \u202c", "\x00"])
def test_a_title_of_which_nothing_can_be_seen_is_refused(client, sid, title):
    before = client.get(f"{SESSIONS}/{sid}").json()["session"]["title"]
    assert client.patch(f"{SESSIONS}/{sid}", json={"title": title}).status_code in (400, 409)
    assert client.get(f"{SESSIONS}/{sid}").json()["session"]["title"] == before


def test_a_tail_from_beyond_the_end_tells_what_comes_next(client, sid):
    with connect_sse(client, "GET", f"{SESSIONS}/{sid}/events", params={"after": 10**9}) as source:
        told = source.iter_sse()
        assert client.patch(f"{SESSIONS}/{sid}", json={"title": "told at once"}).status_code == 200
        assert next(told).json()["title"] == "told at once"


def test_half_a_character_is_shown_as_it_is_stored(tmp_path):
    """JSON has an escape for it; UTF-8 has no bytes."""

    async def plant(library, convlog):
        row = await library.sessions.new("agent:main:web:direct:admin")
        said = "half \ud83d and nul \x00"
        await library.append(row, User(content=said), Assistant(content=[{"type": "text", "text": said}]))
        return row.id

    sid = seed(tmp_path, plant)
    with running(tmp_path) as server, server.client() as client:
        shown = client.get(f"{SESSIONS}/{sid}")
        assert shown.status_code == 200
        entries = shown.json()["entries"]
        assert entries[2]["content"] == entries[3]["content"][0]["text"] == "half \ud83d and nul \x00"
        with connect_sse(client, "GET", f"{SESSIONS}/{sid}/events", params={"after": 0}) as source:
            told = source.iter_sse()
            assert [next(told).json() for _ in entries] == entries
        for part in ("prompt", "coverage"):
            assert client.get(f"{SESSIONS}/{sid}/{part}").status_code == 200
        assert client.post(f"{SESSIONS}/{sid}/fork").status_code == 200


def test_methods_and_paths_that_are_not_there_are_problems_too(client):
    answer = client.put(SESSIONS)
    assert answer.status_code == 405
    assert "GET" in answer.headers["allow"]
    assert answer.headers["content-type"] == "application/problem+json"
    assert client.get("/api/agents/main/nothing").json()["code"] == "not_found"
    assert client.get("/api/agents/nobody/sessions").status_code == 404
    assert client.get("/api/agents/BAD!/sessions").status_code == 400
    assert client.get(f"{CHAT}/status").status_code == 400
