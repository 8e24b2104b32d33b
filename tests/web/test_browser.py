"""The page in a real browser: what somebody sees who uses it."""

import asyncio
import re

import pytest

import turnlog
from turnlog.convlog import Record

from ..server.running import SESSIONS, running, talk, wait_until
from .browsing import HARM, needs_browser, plant_folded, plant_harm, seed, visit

pytestmark = needs_browser
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
WORDS = [f"word{n}" for n in range(40)]


@pytest.fixture
def gate(tmp_path):
    """The last word of an answer waits until this file is there."""
    return tmp_path / "gate"


def words_until(gate):
    return {"deltas": [f"{word} " for word in WORDS], "until": str(gate)}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A server with the offline model; tests begin sessions of their own in it."""
    home = tmp_path_factory.mktemp("browser") / "home"
    with running(home) as server:
        yield server


def test_the_link_signs_in_once_and_then_no_more(tmp_path):
    with running(tmp_path / "home") as server:
        link = re.search(r"(/signin\?code=\S+)", server.said)[1]

        async def first(visitor):
            await visitor.goto(link)
            await visitor.page.wait_for_url("**/chat/main")
            cookie = next(one for one in await visitor.page.context.cookies() if one["name"] == "turnlog")
            assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
            await visitor.page.get_by_role("button", name=re.compile("Sign out")).click()
            await visitor.page.wait_for_url("**/signin")
            await visitor.goto("/chat/main")
            assert visitor.page.url.endswith("/signin")

        visit(server, first, signed_in=False)

        async def again(visitor):
            await visitor.goto(link)
            await visitor.page.get_by_role("alert").wait_for()
            assert "once" in await visitor.page.get_by_role("alert").inner_text()
            visitor.trouble[:] = [text for text in visitor.trouble if "401" not in text]

        visit(server, again, signed_in=False)


def test_a_chat_streams_calls_tools_and_gets_a_title(site):
    async def steps(visitor):
        page = visitor.page
        await visitor.sign_in_by_form()
        await visitor.ask("My name is Ada.")
        await visitor.ask("What is my name?")
        await page.locator("#log .msg.assistant", has_text="Ada").last.wait_for()
        assert "/chat/main/ses-" in page.url
        assert await page.locator("#chat-head h1").inner_text() == "My name is Ada."
        assert await page.title() == "My name is Ada. · Turnlog"
        assert await page.locator("#session-list a[aria-current]").inner_text() != ""
        await visitor.say("write # Notes to notes.txt")
        await page.get_by_role("button", name="Approve").click()
        await visitor.rest()
        await visitor.ask("read notes.txt")
        card = page.locator("#log .call").last
        assert "read_file" in await card.inner_text()
        await card.locator("summary").click()
        assert "# Notes" in await card.locator("pre").last.inner_text()
        assert await page.locator("#live").inner_text() == ""
        used = await page.get_by_role("meter").get_attribute("aria-valuenow")
        assert int(used) > 100

    visit(site, steps, signed_in=False)


def test_a_question_is_a_card_in_two_browsers_and_one_answer_updates_both(tmp_path):
    with running(tmp_path / "home") as server:

        async def steps(visitor):
            page = visitor.page
            await visitor.goto("/chat/main")
            await visitor.say("write abc to a.txt")
            card = page.locator(".card.approval")
            await card.wait_for()
            assert "+abc" in await card.locator(".diff").inner_text()
            other = await page.context.new_page()
            await other.goto(page.url)
            theirs = other.locator(".card.approval")
            await theirs.wait_for()
            assert "waits for you" in await other.locator("#session-list").inner_text()
            assert (await other.title()).startswith("●")
            await theirs.get_by_role("button", name="Approve").click()
            for one in (page, other):
                await one.locator("#log .msg.assistant", has_text="created a.txt").last.wait_for()
                assert await one.locator(".approval-answer").count() == 0
                assert not (await one.title()).startswith("●")

        visit(server, steps)
        assert (server.home / "workspace" / "a.txt").read_text() == "abc"


def test_two_quick_messages_in_a_new_chat_are_one_session_in_their_order(tmp_path):
    with running(tmp_path / "home") as server:

        async def steps(visitor):
            page, typed = visitor.page, asyncio.Event()

            async def hold(route):
                await typed.wait()
                await route.continue_()

            await page.route("**/chat/main/say", hold)
            for words in ("My name is Ada.", "What is my name?"):
                await page.fill("#message", words)
                await page.press("#message", "Enter")
            typed.set()
            await page.locator("#log .msg.assistant", has_text="Ada").last.wait_for()
            await visitor.rest()
            await visitor.until("document.querySelectorAll('#log .msg.user .body').length === 2")
            assert re.search(r"/chat/main/ses-\d{13}-[a-z0-9]{6}$", page.url)
            said = await page.locator("#log .msg.user .body").all_inner_texts()
            assert [words.strip() for words in said] == ["My name is Ada.", "What is my name?"]

        visit(server, steps)
        with server.client() as client:
            assert client.get("/api/agents/main/sessions").json()["total"] == 1


def test_a_reload_in_mid_stream_loses_nothing_and_says_nothing_twice(tmp_path, gate):
    with running(tmp_path / "home", script=[words_until(gate)]) as server:

        async def steps(visitor):
            page = visitor.page
            await visitor.say("go")
            await page.locator("#live .streaming", has_text="word38").wait_for()
            await page.reload()
            await page.locator("#live .streaming", has_text="word38").wait_for()
            assert await page.locator("main .msg.user").count() == 1
            await page.get_by_role("button", name="Stop").wait_for()
            gate.touch()
            await page.locator("#log .msg.assistant", has_text="word39").wait_for()
            await visitor.rest()
            text = await page.locator("#log .msg.assistant .body").inner_text()
            assert text.split() == WORDS
            await visitor.until("document.querySelectorAll('#live .msg').length === 0")

        visit(server, steps)


def test_stopping_keeps_what_was_said(tmp_path, gate):
    with running(tmp_path / "home", script=[words_until(gate)]) as server:

        async def steps(visitor):
            page = visitor.page
            await visitor.say("go")
            await page.locator("#live .streaming", has_text="word3 ").wait_for()
            await page.get_by_role("button", name="Stop").click()
            await visitor.rest()
            answer = page.locator("#log .msg.assistant")
            assert "word3" in await answer.inner_text()
            assert "interrupted" in await answer.inner_text()
            assert "word39" not in await answer.inner_text()

        visit(server, steps)


def test_a_refused_message_is_edited_and_the_next_one_replaces_it(tmp_path):
    refused = {"error": {"status": 400, "code": "content_filter", "message": "The response was filtered"}}
    with running(tmp_path / "home", script=[refused, {"text": "better"}]) as server:

        async def steps(visitor):
            page = visitor.page
            await visitor.say("odd words")
            await page.get_by_role("button", name="Edit", exact=True).click()
            await visitor.until("document.querySelector('#message').value === 'odd words'")
            await visitor.say("good words")
            await page.locator("#log .msg.assistant", has_text="better").wait_for()
            await visitor.rest()
            await visitor.until("!document.querySelector('#log').innerText.includes('odd words')")

        visit(server, steps)


def test_a_message_in_mid_stream_is_answered_next(tmp_path, gate):
    with running(tmp_path / "home", script=[words_until(gate), {"text": "second answer"}]) as server:

        async def steps(visitor):
            page = visitor.page
            await visitor.say("first")
            await page.locator("#live .streaming", has_text="word3 ").wait_for()
            await visitor.say("second")
            sid = page.url.rpartition("/")[2]
            with server.client() as client:
                await asyncio.to_thread(wait_until, lambda: '"received"' in client.get(f"{SESSIONS}/{sid}").text)
            gate.touch()
            await page.locator("#log .msg.assistant", has_text="second answer").wait_for()
            await visitor.rest()
            await visitor.until("document.querySelectorAll('#log .msg').length === 4")
            await visitor.until("document.querySelectorAll('#live .msg').length === 0")

        visit(server, steps)


def test_a_turn_that_fails_says_why_and_the_words_stay(tmp_path):
    refusal = {"error": {"status": 401, "message": "bad key"}}
    with running(tmp_path / "home", script=[refusal, {"text": "better"}]) as server:

        async def steps(visitor):
            page = visitor.page
            await visitor.ask("hello")
            assert "bad key" in await page.locator("#log .failed").inner_text()
            await visitor.ask("again")
            await page.locator("#log .msg.assistant", has_text="better").wait_for()
            await visitor.until("document.querySelectorAll('#log .msg.user').length === 2")

        visit(server, steps)


def test_a_real_event_source_gets_every_event_once_and_in_order(tmp_path):
    script = [{"deltas": [f"{n} " for n in range(120)], "delay_ms": 3}]
    with running(tmp_path / "home", script=script) as server:

        async def steps(visitor):
            await visitor.say("go")
            await visitor.page.wait_for_url("**/chat/main/ses-*")
            sid = visitor.page.url.rpartition("/")[2]
            heard = await visitor.page.evaluate(
                """(sid) => new Promise((resolve) => {
                    const heard = [];
                    const listen = (after) => {
                        const source = new EventSource(`/api/agents/main/chat/stream?sessionId=${sid}${after}`);
                        let n = 0;
                        source.onmessage = (event) => {
                            const told = JSON.parse(event.data);
                            heard.push([event.lastEventId, told]);
                            const over = ["done", "error", "stopped", "idle"].includes(told.type);
                            if (!over && ++n < 15) return;
                            source.close();
                            if (over) resolve(heard); else listen(`&after=${event.lastEventId}`);
                        };
                    };
                    listen("");
                })""",
                sid,
            )
            ids = [int(at.partition("-")[2]) for at, _ in heard]
            assert ids == sorted(set(ids))
            text = "".join(told["text"] for _, told in heard if told["type"] == "text_delta")
            assert text.split() == [str(n) for n in range(120)]
            assert heard[-1][1]["type"] == "done"
            await visitor.rest()

        visit(server, steps)


def test_an_open_page_survives_a_restart_of_the_server(tmp_path, gate):
    with running(tmp_path / "home", script=[words_until(gate), {"text": "after the restart"}]) as server:

        async def steps(visitor):
            page = visitor.page
            await visitor.say("go")
            await page.locator("#live .streaming", has_text="word3 ").wait_for()
            server.args[server.args.index("--port") + 1] = server.base.rpartition(":")[2]
            await asyncio.to_thread(server.restart)
            await page.locator("#log .msg.assistant", has_text="after the restart").wait_for()
            await visitor.until("document.querySelectorAll('#log .msg.user').length === 1")
            visitor.trouble[:] = [text for text in visitor.trouble if "net::ERR_" not in text]

        visit(server, steps)


def test_rename_fork_trash_restore_and_erase(site):
    async def steps(visitor):
        page = visitor.page
        await visitor.ask("My name is Grace.")
        first = page.url
        await page.get_by_label("Actions", exact=True).click()
        await page.get_by_label("Rename").fill("Named <b>by hand</b>")
        await page.get_by_role("button", name="Save").click()
        await page.locator("#chat-head h1", has_text="Named <b>by hand</b>").wait_for()
        await page.get_by_label("Actions", exact=True).click()
        await page.get_by_role("button", name="Fork A new session").click()
        await page.get_by_text("Forked from").wait_for()
        assert page.url != first
        await visitor.ask("What is my name?")
        await page.locator("#log .msg.assistant", has_text="Grace").last.wait_for()
        fork = page.url
        await page.get_by_label("Actions", exact=True).click()
        await page.get_by_role("button", name="Delete").click()
        await page.wait_for_url("**/chat/main")
        path = fork.removeprefix(site.base)
        assert await page.locator(f'#session-list a[href="{path}"]').count() == 0
        await page.get_by_role("link", name="Trash").click()
        await page.locator(f'#session-list a[href="{path}"]').click()
        await page.get_by_role("button", name="Restore").click()
        await page.locator("#composer").wait_for()
        await page.get_by_label("Actions", exact=True).click()
        await page.get_by_role("button", name="Delete").click()
        await page.wait_for_url("**/chat/main")
        await visitor.goto(path)
        await page.locator(".confirm summary").click()
        await page.get_by_role("button", name="Delete for good").click()
        await page.wait_for_url("**/chat/main")
        answer = await page.request.get(fork)
        assert answer.status == 404

    visit(site, steps)


def test_searching_finds_titles_and_messages_while_typing_and_lands_on_the_message(site):
    async def steps(visitor):
        page = visitor.page
        await visitor.ask("The password of the gate is marmalade-42.")
        await visitor.goto("/chats")
        await page.keyboard.press("Control+k")
        await page.locator("#found", has_text="The password of the gate").wait_for()
        await page.keyboard.type("marmalade")
        await page.locator("#found mark", has_text="marmalade").first.wait_for()
        await page.locator("#found .found-text", has_text="People").first.click()
        await page.locator(".msg.user:target", has_text="marmalade-42").wait_for()
        assert "of" in await page.locator("#find").inner_text()
        assert await page.evaluate("() => [...CSS.highlights.get('found')].map(String)") != []
        await visitor.goto("/chat/main")
        await page.keyboard.press("Control+k")
        await page.keyboard.type("zzzz-nothing")
        await page.get_by_text("Nothing matches").wait_for()
        await page.keyboard.press("Escape")
        await page.locator("#search").wait_for(state="hidden")

    visit(site, steps)


async def plant_chats(library, convlog):
    for n, (channel, tokens) in enumerate((("web", 100), ("cli", 31_000), ("telegram", 61_000))):
        row = await library.sessions.new(f"agent:main:{channel}:direct:u{n}")
        usage = {"input_tokens": tokens, "output_tokens": 0}
        talk = [(turnlog.User(content=f"q{k}"), turnlog.Assistant(content="a", usage=usage)) for k in range(3 - n)]
        await library.append(row, *(body for pair in talk for body in pair))
        await library.sessions.rename(row.id, f"about {channel}")
    record = Record(
        ts="2026-01-01T00:00:00.000Z", role="user", content="a needle", channel_id="", channel_type="slack", sender="bo"
    )
    await convlog.write("main", "slack-C1", record)
    return await plant_folded(library, convlog)


def test_chats_filters_sorts_and_warns(tmp_path):
    seed(tmp_path / "home", plant_chats)
    with running(tmp_path / "home") as server:

        async def steps(visitor):
            page = visitor.page
            await visitor.goto("/chats")
            names = page.locator("tbody [data-row] bdi")
            assert await names.count() == 5

            async def only(name):
                await page.locator("tbody tr:only-child [data-row]", has_text=name).wait_for()

            await page.get_by_label("Channel").select_option("cli")
            await only("about cli")
            assert await page.locator("tbody .badge").get_attribute("class") == "badge amber"
            assert "channel=cli" in page.url
            await page.get_by_label("Channel").select_option("")
            await page.get_by_label("Type").select_option("log")
            await only("slack-C1")
            assert await page.locator("#rows-status").inner_text() == "1 in all"
            await page.get_by_label("Type").select_option("session")
            await page.get_by_label("Sort").select_option("tokens")
            await page.locator("tbody tr:first-child .badge.red").wait_for()
            assert (await names.all_inner_texts())[:2] == ["about telegram", "about cli"]
            await page.get_by_label("Sort").select_option("messages")
            await page.locator("tbody tr:first-child", has_text="about web").wait_for()
            await page.get_by_label("Type").select_option("")
            await page.get_by_label("Keyword").fill("needle")
            await only("slack-C1")
            await page.get_by_label("Keyword").fill("no such thing")
            await page.get_by_text("Nothing matches these filters.").wait_for()
            await page.get_by_role("link", name="Clear filters").click()
            await page.locator("[data-row]", has_text="slack-C1").click()
            await page.locator("#drawer", has_text="a needle").wait_for()

        visit(server, steps)


def test_a_compaction_shows_its_original_and_is_undone(tmp_path):
    sid = seed(tmp_path / "home", plant_folded)
    with running(tmp_path / "home") as server:

        async def steps(visitor):
            page = visitor.page
            await visitor.goto("/chats")
            await page.locator("[data-row]", has_text="Folded").click()
            fold = page.locator("#drawer .fold")
            await fold.wait_for()
            assert "40,000 → 9,000 tokens" in await fold.inner_text()
            assert "secret word" not in await page.locator("#drawer").inner_text()
            await fold.get_by_text("Show original").click()
            await fold.get_by_text("the secret word is XYZZY-77").wait_for()
            figures = await fold.locator(".fidelity").inner_text()
            assert re.search(r"Identifiers: \d+; \d+ still in the prompt, \d+ found by search, 0 lost\.", figures)
            await fold.get_by_role("button", name="Undo this compaction").click()
            await page.locator("#drawer .fold.undone").wait_for()
            assert "the secret word is XYZZY-77" in await page.locator("#drawer-log").inner_text()
            await visitor.goto(f"/session/main/{sid}")
            assert "the secret word" in await page.locator("#saw").inner_text()

        visit(server, steps)


def test_the_drawer_shows_new_entries_by_themselves(site):
    with site.client() as client:
        told = talk(client, "the first message")
        sid = told[-1][1]["sessionId"]

        async def steps(visitor):
            await visitor.goto("/chats")
            await visitor.page.locator(f'[data-row][href$="{sid}"]').click()
            await visitor.page.locator("#drawer", has_text="the first message").wait_for()
            await asyncio.to_thread(talk, client, "the second message", sessionId=sid)
            await visitor.page.locator("#drawer-log .msg.user", has_text="the second message").wait_for()
            await visitor.page.keyboard.press("Escape")
            await visitor.page.locator("#drawer .drawer-scroll").wait_for(state="detached")

        visit(site, steps)


def test_the_session_view_shows_what_the_model_saw(site):
    with site.client() as client:
        sid = talk(client, "alpha one")[-1][1]["sessionId"]
        talk(client, "beta two", sessionId=sid)

        async def steps(visitor):
            page = visitor.page
            await visitor.goto(f"/session/main/{sid}")
            assert await page.locator(".plot .bar").count() == 2
            saw = page.locator("#saw")
            assert "beta two" in await saw.inner_text()
            await page.get_by_label("Previous turn").click()
            await page.get_by_text("What the model saw at turn 1").wait_for()
            assert "alpha one" in await saw.inner_text()
            assert "beta two" not in await saw.inner_text()
            await asyncio.to_thread(talk, client, "gamma three", sessionId=sid)
            await page.locator("#timeline .msg.user", has_text="gamma three").wait_for()

        visit(site, steps)


def test_chinese_by_the_browser_and_by_choice(site):
    async def chinese(visitor):
        page = visitor.page
        assert await page.get_attribute("html", "lang") == "zh-Hans"
        await visitor.ask("我叫小雅。")
        await visitor.ask("我叫什么名字？")
        await page.locator("#log .msg.assistant", has_text="小雅").last.wait_for()
        await page.get_by_role("button", name="English").click()
        await page.locator("#composer textarea[placeholder^='Write']").wait_for()
        await visitor.until("document.querySelectorAll('#log .msg').length === 4")

    visit(site, chinese, locale="zh-CN")


def test_colours_follow_the_system_and_a_choice_and_keep_what_was_typed(site):
    async def steps(visitor):
        page = visitor.page
        colour = "() => getComputedStyle(document.body).backgroundColor"
        dark = await page.evaluate(colour)
        await page.fill("#message", "half a thought")
        await page.get_by_role("button", name="Switch to light colours").click()
        assert await page.evaluate(colour) != dark
        assert await page.input_value("#message") == "half a thought"
        await page.wait_for_load_state("networkidle")
        await page.reload()
        assert await page.get_attribute("html", "data-theme") == "light"

    visit(site, steps, color_scheme="dark")


def test_a_phone_has_room_for_everything(site):
    with site.client() as client:
        sid = talk(client, "a" * 3_000)[-1][1]["sessionId"]

    async def steps(visitor):
        page = visitor.page
        for path in ("/chat/main", f"/chat/main/{sid}", f"/session/main/{sid}", "/chats", f"/chats/session/main/{sid}"):
            await visitor.goto(path)
            taken, there = await visitor.width()
            assert taken <= there == 390, path
        await visitor.goto(f"/chat/main/{sid}")
        small = await page.evaluate(
            """() => [...document.querySelectorAll(
                    'button, a.button, summary.button, input:not([type=hidden], [type=file]), textarea')]
                .filter((one) => one.offsetParent && one.getBoundingClientRect().width)
                .filter((one) => one.getBoundingClientRect().height < 43.5).map((one) => one.outerHTML.slice(0, 120))"""
        )
        assert small == []
        assert not await page.locator("#sessions").is_visible()
        await page.get_by_label("Show sessions").click()
        assert await page.locator("#sessions").is_visible()
        await page.get_by_label("Close").click()
        assert not await page.locator("#sessions").is_visible()

    visit(site, steps, **PHONE)


def test_the_keyboard_is_enough(site):
    async def steps(visitor):
        page = visitor.page
        focused = (
            "() => document.activeElement.id || document.activeElement.className || document.activeElement.tagName"
        )
        await visitor.goto("/chat/main")
        assert await page.evaluate(focused) == "message"
        await page.keyboard.type("My name is Kim.")
        await page.keyboard.press("Shift+Enter")
        await page.keyboard.type("Second line")
        await page.keyboard.press("Enter")
        await page.locator("#log .msg.user", has_text="Second line").wait_for()
        await visitor.rest()
        await page.keyboard.press("Control+k")
        assert await page.evaluate("() => document.activeElement.type") == "search"
        await page.keyboard.press("Escape")
        await page.get_by_label("Actions", exact=True).focus()
        await page.keyboard.press("Enter")
        await page.locator(".menu:not(.context) .menu-body").wait_for()
        await page.keyboard.press("Escape")
        await page.locator(".menu:not(.context) .menu-body").wait_for(state="hidden")

    visit(site, steps)


def test_reading_needs_no_script(tmp_path):
    sid = seed(tmp_path / "home", plant_folded)
    with running(tmp_path / "home") as server:

        async def steps(visitor):
            page = visitor.page
            await visitor.goto(f"/chat/main/{sid}")
            assert "kept words" in await page.locator("#log").inner_text()
            await page.get_by_role("button", name="Undo this compaction").click()
            await page.locator(".fold.undone").wait_for()
            await visitor.goto("/chats?kind=session")
            await page.locator("[data-row]").click()
            await page.get_by_role("heading", name="Folded").wait_for()
            await page.get_by_role("button", name="中文").click()
            await page.locator("html[lang=zh-Hans]").wait_for()

        visit(server, steps, java_script_enabled=False)


@pytest.mark.parametrize(("scheme", "rules"), [("light", None), ("dark", ["color-contrast"])])
def test_axe_finds_nothing_serious_on_any_page(tmp_path, scheme, rules):
    """Every rule in one colour scheme, and in the other those that are about colours."""
    folded = seed(tmp_path / "home", plant_folded)
    with running(tmp_path / "home") as server:

        async def steps(visitor):
            page = visitor.page
            await visitor.goto("/signin")
            assert await visitor.axe(rules) == []
            await visitor.goto("/chat/main")
            assert await visitor.axe(rules) == []
            await visitor.say("write # Notes to notes.txt")
            await visitor.page.get_by_role("button", name="Approve").click()
            await visitor.rest()
            await visitor.ask("read nothing.txt")
            await page.locator("#log .call summary").first.click()
            await page.get_by_label("Actions", exact=True).click()
            assert await visitor.axe(rules) == []
            for path in (f"/session/main/{folded}", f"/chat/main/{folded}", "/chat/main/none"):
                await visitor.goto(path)
                assert await visitor.axe(rules) == [], path
            await visitor.goto("/chats")
            await page.locator("[data-row]", has_text="Folded").click()
            await page.locator("#drawer .fold").wait_for()
            assert await visitor.axe(rules) == []
            visitor.trouble[:] = [text for text in visitor.trouble if "404" not in text]

        visit(server, steps, color_scheme=scheme)


def test_what_wants_to_do_harm_does_none_on_any_page(tmp_path):
    ids = seed(tmp_path / "home", plant_harm)
    with running(tmp_path / "home") as server:

        async def steps(visitor):
            page = visitor.page
            for sid in ids:
                for path in (f"/chat/main/{sid}", f"/session/main/{sid}"):
                    await visitor.goto(path)
                    taken, there = await visitor.width()
                    assert taken <= there, path
            await visitor.goto("/chats")
            for row in await page.locator("[data-row]").all():
                await row.click()
                await page.locator("#drawer .drawer-head").wait_for()
            taken, there = await visitor.width()
            assert taken <= there
            await visitor.goto("/chat/main")
            for harm in HARM[:7]:
                await visitor.ask(harm)
            await visitor.until("document.querySelectorAll('#log .msg.user').length === 7")
            assert await page.locator("#log img, #log script, #log iframe, #log svg:not(.icon)").count() == 0

        visit(server, steps)
