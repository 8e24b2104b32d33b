"""The pages as documents: who gets which, what is in their headers, and that nothing in them can be run."""

import re

import httpx
import pytest

import turnlog
from turnlog.convlog import Record
from turnlog.core.entries import Opened

from ..server.running import PATIENT, running
from .browsing import HARM, WORD, plant_folded, plant_harm, seed
from .test_markdown import Tags


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    home = tmp_path_factory.mktemp("web") / "home"
    ids = seed(home, plant_harm)
    ids.append(seed(home, plant_folded))
    with running(home) as server:
        yield server, ids


@pytest.fixture
def site(planted):
    server, ids = planted
    with httpx.Client(base_url=server.base, **PATIENT) as client:
        sign_in(client, server.token)
        yield client, server, ids


def sign_in(client, token):
    done = client.post("/signin", data={"token": token}, headers={"Origin": str(client.base_url).rstrip("/")})
    assert done.status_code == 303, done.text
    assert done.headers["location"] == "/"


def every_page(client, ids):
    paths = [
        "/chat/main",
        "/search?q=alert",
        "/search?q=w*&whose=all",
        "/chat/main?trash=1",
        "/chats",
        "/chats?q=alert",
    ]
    for sid in ids:
        paths += [
            f"/chat/main/{sid}",
            f"/chat/main/{sid}?show=3&q=alert",
            f"/chat/main/{sid}/window?before=9",
            f"/session/main/{sid}",
            f"/session/main/{sid}?turn=1",
            f"/chats/session/main/{sid}",
        ]
    table = client.get("/chats?kind=log").text
    paths += [path.replace("&amp;", "&") for path in re.findall(r'href="(/chats/log/[^"]+)"', table)]
    return paths


def test_nothing_in_any_page_can_be_run_or_fetched(site):
    client, _, ids = site
    paths = every_page(client, ids)
    assert sum("/chats/log/" in path for path in paths) == len(HARM) + 1
    for path in paths:
        answer = client.get(path)
        assert answer.status_code == 200, (path, answer.text[:500])
        check_page(answer.text)
        assert len(answer.content) < 2_000_000


def check_page(html):
    parser = Tags()
    parser.feed(html)
    assert "\u202e" not in html
    for tag, attributes in parser.found:
        assert tag not in ("iframe", "object", "embed", "base", "style")
        assert not [name for name in attributes if name.startswith("on") or name in ("style", "srcdoc")]
        for name in ("src", "href", "action", "hx-get", "hx-post"):
            value = attributes.get(name) or ""
            outside = tag == "a" and "noreferrer" in (attributes.get("rel") or "")
            assert value.startswith(("/", "#")) or not value or (outside and value.startswith("http"))
        if tag == "script":
            assert (attributes.get("src") or "").startswith("/static/")
        if tag == "img":
            assert re.match(r"/static/\w+/icon.svg$", attributes.get("src") or "")


def test_a_text_of_1_mb_is_cut_in_the_page_and_whole_at_its_own_address(site):
    client, _, ids = site
    sid = ids[len(HARM)]
    page = client.get(f"/chat/main/{sid}").text
    assert len(page) < 500_000
    (path,) = set(re.findall(rf'href="(/session/main/{sid}/entry/3)"', page))
    whole = client.get(path)
    assert whole.headers["content-type"] == "text/plain; charset=utf-8"
    assert whole.text == WORD


def test_pages_allow_no_script_but_their_own(site):
    client, _, ids = site
    for path in ("/chat/main", f"/session/main/{ids[0]}", "/chats", "/signin", "/chat/main/none"):
        answer = client.get(path)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"


def test_whoever_is_not_signed_in_is_led_to_the_sign_in_page(planted):
    server, ids = planted
    for path in ("/", "/chat/main", f"/session/main/{ids[0]}", "/chats", f"/session/main/{ids[0]}/original/6"):
        answer = httpx.get(server.base + path, headers={"Accept": "text/html"}, **PATIENT)
        assert (answer.status_code, answer.headers.get("location")) == (303, "/signin")
    wrong = httpx.post(server.base + "/signin", data={"token": "tl_no_no"}, **PATIENT)
    assert wrong.status_code == 401
    assert "set-cookie" not in wrong.headers


def test_a_piece_of_a_page_leads_the_whole_page_to_sign_in(planted):
    server, _ = planted
    answer = httpx.get(server.base + "/signin", headers={"HX-Request": "true"}, **PATIENT)
    assert answer.headers["hx-redirect"] == "/signin"


def test_others_sessions_do_not_exist_and_chats_is_for_administrators(planted):
    server, ids = planted
    with httpx.Client(base_url=server.base, **PATIENT) as client:
        sign_in(client, server.make_token("ann", "--scope", "chat"))
        assert "My own" not in client.get("/chat/main").text
        for path in (f"/chat/main/{ids[0]}", f"/session/main/{ids[0]}", f"/session/main/{ids[0]}/entry/2"):
            assert client.get(path).status_code == 404
        for path in ("/chats", f"/chats/session/main/{ids[0]}", "/chats/log/main?channel=web-admin"):
            assert client.get(path).status_code == 403
        for action in ("rename", "undo", "trash", "erase", "fork"):
            done = client.post(f"/session/main/{ids[0]}/{action}", headers={"Origin": server.base}, data={"title": "x"})
            assert done.status_code == 404
        assert 'href="/chats"' not in client.get("/chat/main").text


def test_who_may_only_read_sees_the_sessions_of_their_agents_in_chats_and_no_log(planted):
    server, ids = planted
    with httpx.Client(base_url=server.base, **PATIENT) as client:
        sign_in(client, server.make_token("ron", "--scope", "read", "--agent", "main"))
        assert 'href="/chats"' in client.get("/chat/main").text
        for path in ("/chats", "/chats?kind=log", "/chats?sort=messages", "/chats?q=alert", "/chats?channel=web"):
            page = client.get(path)
            assert page.status_code == 200, path
            assert "/chats/log/" not in page.text
            assert 'value="log"' not in page.text
        table = client.get("/chats").text
        assert all(f"/chats/session/main/{sid}" in table for sid in ids)
        drawer = client.get(f"/chats/session/main/{ids[-1]}")
        assert drawer.status_code == 200
        assert "<form" not in re.search(r'<div class="drawer-acts">.*?</div>', drawer.text, re.S)[0]
        assert client.get("/chats/log/main?channel=web-admin").status_code == 403
        assert client.get("/chats?agent=other").status_code == 404
        assert client.get("/api/conversations").status_code == 403
        sign_in(client, server.make_token("rob", "--scope", "read", "--agent", "elsewhere"))
        assert "/chats/session/" not in client.get("/chats").text


def test_who_may_only_read_gets_no_form_that_writes(planted):
    server, ids = planted
    with httpx.Client(base_url=server.base, **PATIENT) as client:
        sign_in(client, server.make_token("rita", "--scope", "read"))
        page = client.get(f"/chat/main/{ids[-1]}").text
        assert 'id="composer"' not in page
        assert "/undo" not in page
        done = client.post(f"/session/main/{ids[-1]}/undo", headers={"Origin": server.base})
        assert done.status_code == 403


def test_a_form_of_another_site_does_nothing(site):
    client, _, ids = site
    for origin in ("http://evil.example", "null"):
        done = client.post(f"/session/main/{ids[0]}/erase", headers={"Origin": origin})
        assert done.status_code == 403
    assert client.get(f"/chat/main/{ids[0]}").status_code == 200


@pytest.mark.parametrize("path", ["//evil.example", "https://evil.example", "/\\evil.example", "/\t/evil.example", "x"])
def test_a_form_leads_to_no_other_site(site, path):
    client, server, _ = site
    done = client.post("/static/preferences", data={"theme": "dark", "next": path}, headers={"Origin": server.base})
    assert done.headers["location"] == "/"


@pytest.mark.parametrize("path", ["/static/../pages.py", "/static/%2e%2e%2fpages.py", "/static/nothing.js", "/static/"])
def test_only_the_files_of_the_page_are_served(site, path):
    client, _, _ = site
    assert client.get(path).status_code in (404, 405)


def test_files_of_the_page_can_be_kept_and_are_renewed_when_they_change(site):
    client, _, _ = site
    page = client.get("/chat/main").text
    found = re.findall(r'(?:src|href)="(/static/[^"]+)"', page)
    assert len(found) >= 4
    for path in found:
        answer = client.get(path)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
        assert re.match(r"/static/[0-9a-f]{12}/", path)


def test_what_does_not_exist_is_a_page_that_says_so(site):
    client, _, _ = site
    answer = client.get("/chat/main/none", headers={"Accept-Language": "zh"})
    assert answer.status_code == 404
    assert "操作未成功" in answer.text
    assert client.get("/session/main/none?turn=x").status_code in (400, 404)


BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.mark.parametrize("path", ["/nowhere", "/chats/none/at/all", "/<script>alert(1)</script>", "/apix/../nowhere"])
def test_a_browser_gets_an_unknown_page_as_a_page_in_its_language(site, path):
    client, _, _ = site
    for language, words in (("en", "There is no such page."), ("zh", "没有这个页面。")):
        answer = client.get(path, headers={**BROWSER, "Accept-Language": language})
        assert answer.status_code == 404
        assert answer.headers["content-type"].startswith("text/html")
        assert words in answer.text
        assert 'href="/"' in answer.text
        check_page(answer.text)
    wrong = client.get("/signout", headers=BROWSER)
    assert wrong.status_code == 405
    assert "POST" in wrong.headers["allow"]
    assert "There is no such page." in wrong.text


@pytest.mark.parametrize(
    "path", ["/api/nowhere", "/api", "/api/agents/main/sessions/none", "/metrics/x", "/channels/x"]
)
def test_programs_get_a_problem_whatever_they_accept(site, path):
    client, _, _ = site
    answer = client.get(path, headers=BROWSER)
    assert answer.status_code in (404, 405)
    assert answer.headers["content-type"] == "application/problem+json"
    assert client.get("/nowhere").headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("sort", ["last", "messages", "tokens"])
def test_the_pages_of_chats_hold_everything_once_in_each_order(tmp_path, sort):
    """Sessions and logs alike; all of them have the same time, and many the same numbers."""

    async def plant(library, convlog):
        moment = "2026-01-01T00:00:00.000Z"
        for n in range(100):
            sid, key = f"s{n:03}", "agent:main:web:direct:admin"
            said = [turnlog.User(ts=moment, content="q"), turnlog.Assistant(ts=moment, content="a" * 40)] * (n % 3)
            opened = Opened(ts=moment, id=sid, key=key, agent="main", channel="web", label=f"row-{n:03}")
            async with library.store.lease(sid) as lease:
                await library.store.append(sid, [opened, *said], lease=lease)
        for n in range(100, 120):
            record = Record(
                ts=moment,
                role="user",
                content="hi",
                channel_id=f"row-{n:03}",
                channel_type="web",
            )
            for _ in range(n % 4 + 1):
                await convlog.write("main", f"row-{n:03}", record)

    seed(tmp_path / "home", plant)
    with (
        running(tmp_path / "home") as server,
        httpx.Client(base_url=server.base, **PATIENT) as client,
    ):
        sign_in(client, server.token)
        seen, path = [], f"/chats?sort={sort}"
        while path:
            page = client.get(path).text
            seen += re.findall(r"<bdi>(row-\d{3})", page)
            more = re.findall(r'href="(/chats\?[^"]*sa=[^"]+)"', page)
            path = more[0].replace("&amp;", "&") if more else None
        assert sorted(seen) == [f"row-{n:03}" for n in range(120)]


def test_an_administrator_of_several_agents_sees_the_chats_of_all_of_them(tmp_path):
    async def plant(library, convlog):
        for agent in ("main", "ops", "other"):
            await library.sessions.new(f"agent:{agent}:web:direct:admin", label=f"at-{agent}")

    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text("[agents.ops]\n[agents.other]\n")
    seed(home, plant)
    with running(home) as server:
        token = server.make_token("several", "--scope", "admin", "--agent", "main", "--agent", "ops")
        with server.client(token) as client:
            for path in ("/chats", "/chats?sort=tokens", "/chats?q=at"):
                page = client.get(path).text
                assert set(re.findall(r"at-\w+", page)) == {"at-main", "at-ops"}
            assert client.get("/chats?agent=other").status_code == 404


def test_a_long_session_costs_a_part_of_it(tmp_path):
    async def plant(library, convlog):
        row = await library.sessions.new("agent:main:web:direct:admin")
        for n in range(0, 1_000, 100):
            said = [(turnlog.User(content=f"q{k}"), turnlog.Assistant(content=f"a{k}")) for k in range(n, n + 100)]
            await library.append(row, *(body for pair in said for body in pair))
        return row.id

    sid = seed(tmp_path / "home", plant)
    with (
        running(tmp_path / "home") as server,
        httpx.Client(base_url=server.base, **PATIENT) as client,
    ):
        sign_in(client, server.token)
        page = client.get(f"/chat/main/{sid}").text
        assert ">a999<" in page.replace("<p>", ">").replace("</p>", "<")
        assert ">a1<" not in page.replace("<p>", ">").replace("</p>", "<")
        older = client.get(f"/session/main/{sid}?at=4").text
        assert "<p>a1</p>" in older


@pytest.mark.parametrize(
    ("path", "fields", "english", "chinese"),
    [
        ("rename", {"title": " "}, "a title cannot be empty", "标题不能为空"),
        ("undo", {}, "no compaction is active in this session", "此会话中没有生效的压缩"),
        ("pin", {"seq": "0"}, "has no entry 0", "没有条目 0"),
        ("nonsense", {}, "there is no such action", "没有这个操作"),
    ],
)
def test_a_refused_form_says_why_in_the_readers_language(site, path, fields, english, chinese):
    client, _, (sid, *_) = site
    origin = str(client.base_url).rstrip("/")
    for language, words in (("en", english), ("zh", chinese)):
        for accept in ("application/json", "text/html"):
            headers = {"Accept": accept, "Accept-Language": language, "Origin": origin}
            answer = client.post(f"/session/main/{sid}/{path}", data=fields, headers=headers)
            assert answer.status_code in (400, 404)
            assert words in answer.text
            assert (english in answer.text) == (language == "en")


def test_a_script_of_the_page_is_refused_in_its_language_and_a_program_in_english(site):
    client, server, (sid, *_) = site
    path, body = f"/api/agents/main/sessions/{sid}/approvals/x", {"word": "approved", "seq": 3}
    headers = {"Accept-Language": "zh-CN", "Origin": str(client.base_url).rstrip("/")}
    assert "没有等待答复的调用" in client.post(path, json=body, headers=headers).json()["detail"]
    with server.client() as program:
        told = program.post(path, json=body, headers={"Accept-Language": "zh-CN"}).json()
        assert told["detail"] == "no call 'x' waits for an answer"
    too_large = client.post("/chat/main/say", content=b"x" * 25_200_000, headers=headers)
    assert too_large.status_code == 413
    assert too_large.json()["detail"].startswith("请求超过")


def test_an_address_with_a_wrong_value_is_explained_to_people(site):
    client, _, (sid, *_) = site
    for path in (f"/chat/main/{sid}?at=0", "/usage?days=x"):
        answer = client.get(path, headers=BROWSER)
        assert answer.status_code == 400
        assert "This address has a value that the page does not take." in answer.text
        assert "openapi" not in answer.text


def test_a_refused_file_is_named_as_its_owner_knows_it(site):
    client, _, _ = site
    headers = {**BROWSER, "Origin": str(client.base_url).rstrip("/")}
    for body, why in ((b"", "is empty"), (b"garbage", "is not a transcript of a known kind")):
        answer = client.post("/import", files={"file": ("talk.jsonl", body)}, headers=headers)
        assert answer.status_code == 400
        assert f"<bdi>talk.jsonl {why}</bdi>" in answer.text
