"""The pages for operators, as a person sees them."""

import csv
import io
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

import turnlog

from ..server.running import PATIENT, running
from .browsing import HARM, needs_browser, plant_folded, plant_harm, seed, visit
from .test_pages import check_page, sign_in

OPUS = "anthropic:claude-opus-4"
COUNTED_SOON = {"turnlog.server.background.COUNT_EVERY_S": 0.1}


async def plant_states(library, convlog):
    """One session in each state, of several people."""
    ids = {}

    async def plant(name, key, *bodies):
        row = await library.sessions.new(key)
        await library.append(row, *bodies)
        await library.sessions.rename(row.id, name)
        ids[name] = row.id

    usage = {"input_tokens": 200_000, "output_tokens": 0}
    asked, answer = turnlog.User(content="q"), turnlog.Assistant(content="a", model=OPUS, usage=usage)
    await plant("answered", "agent:main:web:direct:admin", asked, answer)
    await plant("of ann", "agent:main:web:direct:ann", asked, answer, asked, turnlog.Assistant(content="b"))
    await plant("on telegram", "agent:main:telegram:direct:ann", asked, turnlog.Assistant(content="a"))
    await plant("broken", "agent:main:web:direct:bo", asked, turnlog.Failed(code="provider", reason="it is down"))
    await plant("thrown away", "agent:main:web:direct:bo", asked, answer)
    await library.sessions.set_status(ids["thrown away"], "trashed")
    return ids


async def rows(page, n):
    """Waits until the table has this many."""
    await page.locator(f"#rows tbody tr:nth-child({n}):last-child").wait_for()


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    home = tmp_path_factory.mktemp("operating") / "home"
    ids = seed(home, plant_states)
    with running(home) as server:
        yield server, ids


@pytest.fixture
def client(planted):
    server, _ = planted
    with httpx.Client(base_url=server.base, **PATIENT) as found:
        sign_in(found, server.token)
        yield found


@needs_browser
def test_sessions_are_filtered_by_state_by_person_and_to_my_own_and_the_address_keeps_it(planted):
    async def steps(visitor):
        page = visitor.page
        await visitor.goto("/chats")
        assert await page.get_by_role("heading", level=1).inner_text() == "Sessions"

        async def only(*names):
            for name in names:
                await page.locator("tbody [data-row]", has_text=name).wait_for()
            await rows(page, len(names))

        await only("answered", "of ann", "on telegram", "broken")
        row = page.locator("tbody tr", has_text="answered")
        assert await row.locator(".c-who").inner_text() == "admin"
        assert await row.locator(".c-used").inner_text() == "200k"
        assert await row.locator(".c-cost").inner_text() == "$1.00"
        assert await page.locator("tbody tr", has_text="of ann").locator(".c-cost").inner_text() == "$1.00"
        await page.get_by_label("Status").select_option("failed")
        await only("broken")
        assert await page.locator("tbody .tag.bad").inner_text() == "failed"
        await page.get_by_label("Status").select_option("trash")
        await only("thrown away")
        await page.get_by_label("Status").select_option("")
        await page.get_by_label("Who", exact=True).fill("ann")
        await only("of ann", "on telegram")
        await page.get_by_label("Channel").select_option("telegram")
        await only("on telegram")
        assert "who=ann" in page.url
        await page.reload()
        await only("on telegram")
        await visitor.goto("/chats?whose=mine")
        await only("answered")

    visit(planted[0], steps)


@needs_browser
@pytest.mark.parametrize("width", [390, 1440])
def test_the_list_of_sessions_scrolls_and_the_page_around_it_does_not(planted, width):
    server, _ = planted
    heights = "() => [document.documentElement.scrollHeight, window.innerHeight]"

    async def look(visitor):
        await visitor.goto("/chats")
        await rows(visitor.page, 4)
        page, window = await visitor.page.evaluate(heights)
        assert page == window
        last = visitor.page.locator("#rows tbody tr:last-child")
        await last.scroll_into_view_if_needed()
        assert (await last.bounding_box())["y"] < window

    visit(server, look, viewport={"width": width, "height": 420})


@needs_browser
@pytest.mark.parametrize("scripts", [True, False])
def test_on_a_phone_filters_are_behind_one_control_and_on_a_desk_they_are_there(planted, scripts):
    server, _ = planted
    size = {"width": 390, "height": 800}

    async def steps(visitor):
        page = visitor.page
        status, control = page.get_by_label("Status"), page.get_by_text("Filters", exact=True)
        await visitor.goto("/chats")
        assert not await status.is_visible()
        first = await page.locator("#rows tbody tr").first.bounding_box()
        assert first["y"] < size["height"] * 0.6
        await control.focus()
        await page.keyboard.press("Enter")
        await status.select_option("failed")
        if not scripts:
            await page.get_by_role("button", name="Filter", exact=True).click()
        await page.wait_for_url("**state=failed**")
        await page.reload()
        assert await page.get_by_text("Filters (1)").is_visible()
        assert await status.input_value() == "failed"  # a filter in use is not hidden
        await page.set_viewport_size({"width": 1280, "height": 800})
        await visitor.goto("/chats")
        assert not await control.is_visible()
        await status.select_option("trash")

    visit(server, steps, viewport=size, java_script_enabled=scripts)


@needs_browser
def test_several_sessions_are_archived_and_deleted_and_the_toast_takes_it_back(tmp_path):
    seed(tmp_path / "home", plant_states)
    with running(tmp_path / "home") as server:

        async def steps(visitor):
            page = visitor.page
            await visitor.goto("/chats")
            assert not await page.get_by_role("button", name="Archive").is_visible()
            await page.get_by_label("Choose “answered”").focus()
            await page.keyboard.press("Space")
            await page.get_by_label("Choose “broken”").check()
            await page.get_by_text("2 chosen").wait_for()
            await page.get_by_role("button", name="Delete").focus()
            await page.keyboard.press("Enter")
            await page.locator(".toast", has_text="Moved to the trash: 2").wait_for()
            await rows(page, 2)
            await page.locator(".toast").get_by_role("button", name="Undo").click()
            await page.locator(".toast", has_text="Restored: 2").wait_for()
            await rows(page, 4)
            await page.get_by_label("Choose all on this page").check()
            await page.get_by_text("4 chosen").wait_for()
            await page.get_by_role("button", name="Archive").click()
            await page.locator(".toast", has_text="Archived: 4").wait_for()
            await page.locator("tbody .tag", has_text="archived").nth(2).wait_for()
            await page.get_by_label("Status").select_option("archived")
            await rows(page, 4)

        visit(server, steps)


def test_undo_selects_a_session_again_unless_its_key_has_gone_on(tmp_path):
    async def plant(library, _):
        row = await library.sessions.open("agent:main:web:direct:admin")
        await library.append(row, turnlog.User(content="q"), turnlog.Assistant(content="a"))
        return row.id

    sid = seed(tmp_path / "home", plant)
    with running(tmp_path / "home") as server, httpx.Client(base_url=server.base, **PATIENT) as client:
        sign_in(client, server.token)

        def change(**fields):
            headers = {"Origin": server.base, "Accept": "application/json"}
            return client.post("/chats/many", data=fields, headers=headers)

        def status():
            return client.get(f"/api/agents/main/sessions/{sid}").json()["session"]["status"]

        told = change(do="archive", id=[sid, "ses-0000000000000-nobody"]).json()
        assert (told["done"], told["failed"], told["undo"]) == (1, 1, [f"{sid}:active"])
        assert status() == "archived"
        assert change(do="restore", id=told["undo"]).json()["done"] == 1
        assert status() == "active"
        assert change(do="sell", id=sid).status_code == 400
        assert change(do="trash").status_code == 400
        assert change(do="trash", id=[f"s{n}" for n in range(201)]).status_code == 400


def test_csv_has_the_sessions_of_the_filters_and_no_formula(tmp_path):
    async def plant(library, convlog):
        await plant_states(library, convlog)
        row = await library.sessions.new("agent:main:web:direct:admin")
        await library.sessions.rename(row.id, '=HYPERLINK("http://127.0.0.1/")')

    seed(tmp_path / "home", plant)
    with running(tmp_path / "home") as server, httpx.Client(base_url=server.base, **PATIENT) as client:
        sign_in(client, server.token)
        answer = client.get("/chats/sessions.csv")
        assert answer.headers["content-type"] == "text/csv; charset=utf-8"
        assert "attachment" in answer.headers["content-disposition"]
        rows = list(csv.DictReader(io.StringIO(answer.content.decode("utf-8-sig"))))
        assert len(rows) == 5
        found = {row["title"]: row for row in rows}
        assert '\'=HYPERLINK("http://127.0.0.1/")' in found
        assert found["answered"]["cost_usd"] == "1.000000"
        assert (found["broken"]["state"], found["broken"]["who"]) == ("failed", "bo")
        assert len(client.get("/chats/sessions.csv?who=ann").text.splitlines()) == 3
        assert client.get("/chats?state=odd").status_code == 400


def test_who_may_only_read_gets_their_agents_sessions_and_cannot_change_them(planted, client):
    server, ids = planted
    reader = server.make_token("eve", "--scope", "read", "--agent", "main")
    with httpx.Client(base_url=server.base, **PATIENT) as other:
        sign_in(other, reader)
        html = other.get("/chats").text
        assert "of ann" in html
        assert 'name="id"' not in html
        assert 'name="kind"' not in html
        headers = {"Origin": server.base, "Accept": "application/json"}
        told = other.post("/chats/many", data={"do": "trash", "id": ids["of ann"]}, headers=headers).json()
        assert (told["done"], told["failed"]) == (0, 1)
    assert client.get(f"/api/agents/main/sessions/{ids['of ann']}").json()["session"]["status"] != "trashed"


def test_nothing_on_the_pages_for_operators_can_be_run(tmp_path):
    ids = seed(tmp_path / "home", plant_harm)
    with running(tmp_path / "home") as server, httpx.Client(base_url=server.base, **PATIENT) as client:
        sign_in(client, server.token)
        for harm in HARM:
            for path in ("/chats", "/usage", "/failures"):
                given = {"q": harm, "who": harm, "channel": harm} if path == "/chats" else {"model": harm}
                answer = client.get(path, params=given)
                assert answer.status_code == 200
                check_page(answer.text)
        for sid in ids:
            for path in (f"/session/main/{sid}", f"/session/main/{sid}?json=1"):
                check_page(client.get(path).text)


async def plant_days(library, convlog):
    """Two agents' use of a model on several days, and a failure."""
    now = datetime.now(UTC)

    def at(days):
        return (now - timedelta(days=days, minutes=1)).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    for days in (0, 1, 3):
        row = await library.sessions.new("agent:main:web:direct:admin")
        cached = {"input_tokens": 50_000, "cache_read_input_tokens": 50_000, "output_tokens": 1_000}
        answer = turnlog.Assistant(content="a", model=OPUS, usage=cached, ts=at(days))
        await library.append(row, turnlog.User(content="q", ts=at(days)), answer)
    await plant_states(library, convlog)


@needs_browser
@pytest.mark.parametrize(("locale", "scheme"), [("en-US", "light"), ("zh-CN", "dark")])
def test_the_pages_for_operators_say_what_there_is_in_both_languages_and_colours(tmp_path, locale, scheme):
    seed(tmp_path / "home", plant_days)
    english = locale == "en-US"
    with running(tmp_path / "home", constants=COUNTED_SOON) as server:

        async def steps(visitor):
            page = visitor.page
            await visitor.goto("/chats")
            assert await visitor.axe() == []
            await page.get_by_role("link", name="Usage" if english else "用量", exact=True).focus()
            await page.keyboard.press("Enter")
            await page.wait_for_url("**/usage")
            while not await page.locator(".facts dd", has_text="903,000").count():
                await page.reload()  # it is counted in the background
            facts = await page.locator(".facts dd").all_inner_texts()
            assert facts[1] == "1"
            assert await page.locator(".day-plot svg").count() == 4
            assert await page.locator(".day-plot").nth(1).locator("rect[height]:not([height='0'])").count() == 3
            by_model = page.locator("#by-model + .scroll-x tbody tr", has_text=OPUS)
            assert "$" in await by_model.inner_text()
            for path in ("/usage", "/failures", "/tokens", "/well"):
                await visitor.goto(path)
                assert await visitor.axe() == [], path
                assert await page.locator("nav.operating [aria-current=page]").count() == 1
                for width in (390, 2560):
                    await page.set_viewport_size({"width": width, "height": 900})
                    taken, there = await visitor.width()
                    assert taken <= there, (path, width)
            await page.locator(".verdict.good").wait_for()
            await visitor.goto("/failures")
            await page.get_by_text("it is down").wait_for()

        visit(server, steps, locale=locale, color_scheme=scheme)


@needs_browser
def test_a_token_is_made_used_and_revoked_on_the_page(tmp_path):
    with running(tmp_path / "home") as server:

        async def steps(visitor):
            page = visitor.page
            await visitor.goto("/tokens")
            await page.get_by_text("You are signed in with it").wait_for()
            await page.get_by_label("Name").fill("ann")
            await page.get_by_label("Name").press("Enter")
            text = await page.get_by_label("Access token").input_value()
            async with httpx.AsyncClient(base_url=server.base, **PATIENT) as client:
                headers = {"Authorization": f"Bearer {text}"}
                assert (await client.get("/api/agents/main/sessions", headers=headers)).status_code == 200
                row = page.locator("tbody tr", has_text="ann")
                await visitor.goto("/tokens")
                assert text not in await page.content()
                while await row.get_by_text("never").count():
                    await page.reload()  # it is written by a task of its own
                assert await row.locator("time").count() == 2
                await row.get_by_text("Revoke…").click()
                await row.get_by_role("button", name="Revoke the token of ann").click()
                await row.get_by_text("revoked").wait_for()
                assert (await client.get("/api/agents/main/sessions", headers=headers)).status_code == 401
            await page.get_by_label("Name").fill("not a name")
            await page.get_by_role("button", name="Create token").click()
            await page.get_by_text("is not a name for a token").wait_for()
            visitor.trouble[:] = [text for text in visitor.trouble if "400" not in text]

        visit(server, steps)


def test_pages_for_administrators_are_closed_to_others(planted):
    server, _ = planted
    origin = {"Origin": server.base}
    with httpx.Client(base_url=server.base, **PATIENT) as client:
        sign_in(client, server.make_token("ron", "--scope", "read", "--agent", "elsewhere"))
        for path in ("/tokens", "/well"):
            assert client.get(path).status_code == 403
        assert client.post("/tokens", data={"name": "x", "scope": "admin"}, headers=origin).status_code == 403
        assert client.post("/usage/recount", headers=origin).status_code == 403
        assert "it is down" not in client.get("/failures").text
        assert OPUS not in client.get("/usage").text
        assert client.get("/usage?agent=main").status_code == 404
        sign_in(client, server.make_token("ada", "--scope", "admin", "--agent", "main"))
        assert client.get("/well").status_code == 200
        assert client.post("/tokens", data={"name": "x", "scope": "admin"}, headers=origin).status_code == 403
        sign_in(client, server.make_token("cy", "--scope", "chat"))
        for path in ("/usage", "/failures", "/chats/sessions.csv"):
            assert client.get(path).status_code == 403


def test_the_page_for_operators_is_all_in_chinese(planted):
    server, _ = planted
    with httpx.Client(base_url=server.base, **PATIENT, headers={"Accept-Language": "zh"}) as client:
        sign_in(client, server.token)
        page = client.get("/well").text
        assert "0 分钟" in page
        assert "metrics" not in page


async def plant_compacted(library, convlog):
    """Three turns, a compaction of the first two, and a turn after it."""
    sid = await plant_folded(library, convlog)
    usage = {"input_tokens": 200_000, "output_tokens": 0}
    after = (turnlog.User(content="after it"), turnlog.Assistant(content="yes", model=OPUS, usage=usage))
    await library.append(sid, *after)
    return sid


@needs_browser
def test_the_session_page_says_what_the_plot_shows_and_what_changed_since_the_turn_before(tmp_path):
    sid = seed(tmp_path / "home", plant_compacted)
    with running(tmp_path / "home") as server:

        async def steps(visitor):
            page = visitor.page
            await visitor.goto(f"/session/main/{sid}")
            assert await page.locator(".plot .legend li").count() >= 2
            assert "a compaction" in await page.locator(".legend").inner_text()
            assert await page.locator(".plot .drop .moment").count() == 1
            facts = await page.locator(".facts").inner_text()
            assert "$1.00" in facts
            changes = page.locator("#saw .changes")
            assert "Compared with turn 2:" in await changes.inner_text()
            assert "no longer sent" in await changes.inner_text()
            gone = page.locator("#saw .seen.gone", has_text="XYZZY-77").first
            await gone.locator("summary").focus()
            await page.keyboard.press("Enter")
            await gone.locator("pre").wait_for()
            assert await page.locator("#saw .seen.new", has_text="after it").count() == 1
            await page.get_by_label("Previous turn").click()
            await page.locator("#saw .changes", has_text="Compared with turn 1: 2 new").wait_for()
            await page.get_by_label("Previous turn").click()
            await page.get_by_text("There is no turn before this one.").wait_for()
            assert await visitor.axe() == []
            await page.get_by_role("link", name="As JSON").click()
            await page.locator(".entry pre", has_text='"summary": "A word was given: XYZZY-77."').wait_for()
            assert await visitor.axe() == []
            await page.get_by_text("Export", exact=True).click()
            async with page.expect_download() as told:
                await page.get_by_role("link", name="Turnlog (JSONL)").click()
            file = await (await told.value).path()
            await page.set_viewport_size({"width": 390, "height": 800})
            taken, there = await visitor.width()
            assert taken <= there
            await visitor.goto("/import")
            assert await visitor.axe() == []
            await page.get_by_label("File").set_input_files(
                {"name": "talk.jsonl", "mimeType": "application/json", "buffer": Path(file).read_bytes()}
            )
            await page.get_by_role("button", name="Import").click()
            await page.get_by_role("heading", name="Sessions: 1").wait_for()
            await page.locator(".imported a").click()
            await page.get_by_role("heading", level=1, name="Folded").wait_for()

        visit(server, steps)


def test_files_are_refused_with_a_reason_and_only_administrators_import(tmp_path):
    sid = seed(tmp_path / "home", plant_folded)
    with running(tmp_path / "home") as server, httpx.Client(base_url=server.base, **PATIENT) as client:
        sign_in(client, server.token)
        origin = {"Origin": server.base}
        for name, body in (("a.txt", b"no conversation"), ("b.db", b"SQLite format 3\x00 and more"), ("", b"")):
            answer = client.post("/import", files={"file": (name, body)}, headers=origin)
            assert answer.status_code == 400, name
            assert 'class="alert"' in answer.text
        answer = client.post(
            "/import", files={"file": ("../../x.json", b'[{"role": "user", "content": "hi"}]')}, headers=origin
        )
        assert answer.status_code == 200
        assert "entries added" in answer.text
        for form in ("native", "v3", "flat", "md", "json", "html"):
            answer = client.get(f"/session/main/{sid}/export/{form}")
            assert answer.headers["content-disposition"].startswith("attachment")
            assert "later words" in answer.text
        assert client.get(f"/session/main/{sid}/export/exe").status_code == 404
        assert client.get(f"/session/main/{sid}/json/2").json()["type"] == "selected"
        assert client.get(f"/session/main/{sid}/json/99").status_code == 404
        sign_in(client, server.make_token("ann", "--scope", "chat"))
        assert client.get(f"/session/main/{sid}/export/native").status_code == 404
        assert client.get(f"/session/main/{sid}/json/2").status_code == 404
        assert client.get("/import").status_code == 403
        assert client.post("/import", files={"file": ("a.json", b"[]")}, headers=origin).status_code == 403
