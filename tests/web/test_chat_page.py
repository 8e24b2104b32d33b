"""The chat as people use it: acting on messages, several tabs, folded history, search, long chats, files, keys."""

import asyncio
import gzip
import re

import httpx
import pytest

import turnlog

from ..server.running import PATIENT, running, talk
from ..waiting import until
from .browsing import HARM, WAIT_MS, needs_browser, plant_folded, seed, visit
from .test_pages import sign_in

pytestmark = needs_browser
WEIGHT_MAX_BYTES = 150_000
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c636060606000000005"
    "0001a5f645400000000049454e44ae426082"
)


async def plant_long(library):
    """A chat of 5,000 messages."""
    row = await library.sessions.new("agent:main:web:direct:admin")
    for n in range(0, 2_500, 500):
        said = [
            (turnlog.User(content=f"question {k}"), turnlog.Assistant(content=f"answer {k}")) for k in range(n, n + 500)
        ]
        await library.append(row, *(body for pair in said for body in pair))
    await library.sessions.rename(row.id, "Long")
    return row.id


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """One server for all tests here; its model says again what it is told (offline)."""
    home = tmp_path_factory.mktemp("chat") / "home"

    async def plant(library, convlog):
        return await plant_folded(library, convlog), await plant_long(library)

    folded, long = seed(home, plant)
    with running(home) as server:
        server.folded, server.long = folded, long
        yield server


def tab(page):
    page.set_default_timeout(WAIT_MS)
    return page


def test_an_edited_message_is_another_version_and_both_can_be_read(site):
    async def steps(visitor):
        page = visitor.page
        await visitor.ask("My name is Zoe.")
        await visitor.ask("What is my name?")
        first = page.locator("#log .msg.user").first
        await first.get_by_role("button", name="Edit and send again").focus()
        await page.keyboard.press("Enter")
        await page.locator("#editing").wait_for()
        assert await page.input_value("#message") == "My name is Zoe."
        await page.fill("#message", "My name is Kim.")
        await page.keyboard.press("Enter")
        await page.locator("#log .msg.user", has_text="Kim").wait_for()
        await visitor.rest()
        await visitor.until("document.querySelectorAll('#log .msg.user').length === 1")
        pager = page.get_by_role("navigation", name="Versions of this message")
        assert "2/2" in await pager.inner_text()
        before = page.url
        await page.get_by_label("Version before").click()
        await page.locator("#log .msg.user", has_text="Zoe").wait_for()
        await visitor.until("document.querySelectorAll('#log .msg.user').length === 2")
        assert "at=" in page.url
        with site.client() as client:
            sid = before.rpartition("/")[2]
            rewinds = client.get(f"/api/agents/main/sessions/{sid}").text.count('"type":"rewind"')
            assert rewinds == 1
        await visitor.ask("And now?")
        await page.locator("#log .msg.user", has_text="And now?").wait_for()
        assert await page.locator("#log .msg.user", has_text="Zoe").count() == 1
        assert await page.locator("#log .msg.user", has_text="Kim").count() == 0
        assert page.url == before

    visit(site, steps)


def test_answer_again_fork_go_on_from_here_and_pin(site):
    async def steps(visitor):
        page = visitor.page
        await visitor.ask("Remember the word heron.")
        await visitor.ask("second question")
        answers = page.locator("#log .msg.assistant")
        await answers.last.get_by_role("button", name="Answer again").click()
        await page.locator("#log .versions", has_text="2/2").wait_for()
        await visitor.rest()
        mine = page.locator("#log .msg.user").first
        await mine.hover()
        await mine.get_by_role("button", name="Pin").click()
        await mine.get_by_role("button", name="Unpin").wait_for()
        await page.get_by_text("Pinned: it stays").wait_for()
        await answers.first.hover()
        await answers.first.get_by_role("button", name="Go on from here").click()
        await page.locator("#log .msg.user", has_text="second question").wait_for(state="detached")
        await page.locator("#toasts").get_by_role("button", name="Undo").click()
        await page.locator("#log .msg.user", has_text="second question").wait_for()
        old = page.url
        await answers.first.hover()
        await answers.first.get_by_role("button", name="Fork from here").click()
        await page.get_by_text("Forked from").wait_for()
        assert page.url != old
        await visitor.until("document.querySelectorAll('#log .msg.user').length === 1")

    visit(site, steps)


def test_markdown_is_rendered_while_it_streams_and_nothing_changes_when_it_ends(tmp_path):
    gate = tmp_path / "gate"
    text = "# Plan\n\nFirst **bold**.\n\n```python\ndef f():\n    return 1\n```\n\n- one\n- two"
    deltas = [text[at : at + 5] for at in range(0, len(text), 5)]
    script = [{"deltas": [*deltas, " "], "until": str(gate)}]
    with running(tmp_path / "home", script=script) as server:

        async def steps(visitor):
            page = visitor.page
            await visitor.say("go")
            body = page.locator("#live .msg.assistant .body")
            await page.locator("#live .body li", has_text="two").wait_for()
            assert await body.locator("h1", has_text="Plan").count() == 1
            assert await body.locator(".code .k").count() == 2
            inner = "(one) => one.innerHTML.replace(/\\s+/g, ' ').replaceAll('> <', '><')"
            streamed = await body.evaluate(inner)
            gate.touch()
            await page.locator("#log .msg.assistant .body").wait_for()
            await visitor.rest()
            assert await page.locator("#log .msg.assistant .body").evaluate(inner) == streamed
            await visitor.until("document.querySelectorAll('#live .msg').length === 0")

        visit(server, steps)


def test_with_several_workers_the_browser_that_asked_sees_the_answer_grow(tmp_path):
    """The live stream may be at another worker than the turn."""
    gate = tmp_path / "gate"
    script = [{"deltas": ["**one** ", "two ", "three"], "until": str(gate)}] * 3
    with running(tmp_path / "home", script=script, args=("--workers", "2")) as server:

        async def steps(visitor):
            page = visitor.page
            for n in range(3):
                gate.unlink(missing_ok=True)
                await visitor.goto("/chat/main")
                await visitor.say(f"question {n}")
                await page.locator("#live strong", has_text="one").wait_for()
                gate.touch()
                await page.locator("#log .msg.assistant", has_text="three").wait_for()
                await visitor.rest()

        visit(server, steps)


def test_what_wants_to_do_harm_does_none_while_it_streams(tmp_path):
    gate = tmp_path / "gate"
    harm = "\n\n".join(HARM[:7]) + "\n\nthe end"
    script = [{"deltas": [*(harm[at : at + 7] for at in range(0, len(harm), 7)), "."], "until": str(gate)}]
    with running(tmp_path / "home", script=script) as server:

        async def steps(visitor):
            page = visitor.page
            await visitor.say("go")
            await page.locator("#live .body", has_text="the end").wait_for()
            assert await page.locator("#live img, #live script, #live iframe, #live svg:not(.icon)").count() == 0
            gate.touch()
            await page.locator("#log .body", has_text="the end.").wait_for()

        visit(server, steps)


def test_another_tab_and_another_browser_follow_everything(site):
    async def steps(visitor):
        page = visitor.page
        await visitor.ask("the first message")
        other = tab(await page.context.new_page())
        await other.goto(page.url)
        home = tab(await page.context.new_page())
        await home.goto(site.base + "/chat/main")
        async with await page.context.browser.new_context(locale="en-US") as elsewhere:
            far = tab(await elsewhere.new_page())
            await far.request.post(
                f"{site.base}/signin", form={"token": site.token}, headers={"Origin": site.base}, max_redirects=0
            )
            await far.goto(page.url)
            await visitor.ask("the second message")
            for one in (other, far):
                await one.locator("#log .msg.user", has_text="the second message").wait_for()
                await one.locator("#log .msg.assistant").nth(1).wait_for()
            sid = page.url.rpartition("/")[2]
            await other.get_by_label("Actions", exact=True).click()
            await other.get_by_label("Rename").fill("Named elsewhere")
            await other.get_by_role("button", name="Save").click()
            for one in (page, other, far):
                await one.locator("#chat-head h1", has_text="Named elsewhere").wait_for()
            await home.locator("#session-list .name", has_text="Named elsewhere").wait_for()
            with site.client() as client:
                await asyncio.to_thread(client.delete, f"/api/agents/main/sessions/{sid}")
            for one in (page, other, far):
                await one.get_by_text("This chat was deleted.").wait_for()
            await home.locator(f'#session-list a[data-id="{sid}"]').wait_for(state="detached")

    visit(site, steps)


def test_what_nobody_has_read_in_this_browser_is_marked_until_it_is_opened(site):
    with site.client() as client:
        sid = talk(client, "from another device")[-1][1]["sessionId"]

        async def steps(visitor):
            page = visitor.page
            link = page.locator(f'#session-list a[data-id="{sid}"]')
            await link.wait_for()
            assert await page.locator(f'a.unread[data-id="{sid}"]').count() == 0
            await asyncio.to_thread(talk, client, "something new", sessionId=sid)
            await page.locator(f'a.unread[data-id="{sid}"]', has_text="unread").wait_for()
            await link.click()
            await page.locator("#log .msg.user", has_text="something new").wait_for()
            await page.locator(f'a.unread[data-id="{sid}"]').wait_for(state="detached")

        visit(site, steps)


def test_a_chat_is_in_the_list_of_another_tab_when_its_first_message_is_sent(site):
    async def steps(visitor):
        home = tab(await visitor.page.context.new_page())
        await home.goto(site.base + "/chat/main")
        await visitor.ask("a chat about pelicans")
        assert await visitor.page.locator("#chat-head h1").inner_text() == "a chat about pelicans"
        assert await visitor.page.title() == "a chat about pelicans · Turnlog"
        await home.locator("#session-list .name", has_text="a chat about pelicans").wait_for()

    visit(site, steps)


def test_the_tabs_of_a_browser_share_one_stream_and_the_next_one_takes_over(site):
    async def steps(visitor):
        page = visitor.page
        await visitor.ask("stay here")
        other = tab(await page.context.new_page())
        asked = []
        other.on("request", lambda request: asked.append(request.url))
        await other.goto(page.url)
        await other.locator("#log .msg.user", has_text="stay here").wait_for()
        assert [url for url in asked if "/live" in url] == []
        await page.close()
        await other.fill("#message", "on my own now")
        await other.press("#message", "Enter")
        await other.locator("#log .msg.assistant").nth(1).wait_for()
        await until(lambda: [url for url in asked if "/live" in url])

    visit(site, steps)


def test_folded_history_is_readable_above_a_divider_and_the_folding_is_undone(tmp_path):
    sid = seed(tmp_path / "home", plant_folded)
    with running(tmp_path / "home") as server:

        async def steps(visitor):
            page = visitor.page
            await visitor.goto(f"/chat/main/{sid}")
            divider = page.locator("#log .divider")
            assert "The model sees a summary of everything above" in await divider.inner_text()
            old = page.locator("#log .msg.past", has_text="the secret word is XYZZY-77")
            assert await old.count() == 1
            assert await page.locator("#log .msg:not(.past)", has_text="later words").count() == 1
            await divider.get_by_text("Summary", exact=True).click()
            await divider.locator(".fidelity", has_text="Identifiers").wait_for()
            assert "A word was given" in await divider.inner_text()
            await divider.get_by_role("button", name="Undo").click()
            await page.locator("#log .divider").wait_for(state="detached")
            await page.locator("#log .msg:not(.past)", has_text="the secret word is XYZZY-77").wait_for()

        visit(server, steps)


def test_a_match_in_folded_history_is_landed_on_and_the_next_one_follows(site):
    async def steps(visitor):
        page = visitor.page
        await page.keyboard.press("Control+k")
        await page.keyboard.type("XYZZY-77")
        await page.locator("#found mark").first.wait_for()
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("Enter")
        await page.locator(".msg:target").wait_for()
        assert "XYZZY-77" in await page.locator(".msg:target").inner_text()
        first = page.url
        await page.keyboard.press("F3" if await page.locator("#find-next").count() else "Shift+F3")
        await page.wait_for_url(lambda url: url != first)
        assert "XYZZY-77" in await page.locator(":target").inner_text()

    visit(site, steps)


@pytest.mark.parametrize("width", [1280, 390])
def test_a_toast_leaves_the_composer_free(site, width):
    async def steps(visitor):
        page = visitor.page
        module = "document.querySelector('link[href*=\"/toast\"]').href"
        await page.evaluate(f"import({module}).then((found) => found.toast('It was not sent.', {{ bad: true }}))")
        await page.locator(".toast").wait_for()
        box = await page.locator(".composer").bounding_box()
        toast = await page.locator(".toast").bounding_box()
        assert toast["y"] + toast["height"] <= box["y"]

    visit(site, steps, viewport={"width": width, "height": 800})


def test_a_chat_of_5000_messages_scrolls_and_holds_few_of_them_at_a_time(site):
    async def steps(visitor):
        page = visitor.page
        await visitor.goto(f"/chat/main/{site.long}")
        await page.locator("#log", has_text="answer 2499").wait_for()
        count = "() => document.querySelectorAll('#scroll .msg').length"
        most, seen = 0, set()
        for _ in range(9):
            before = await page.locator("#scroll .msg").first.get_attribute("id")
            await page.evaluate("() => { document.getElementById('scroll').scrollTop = 0; }")
            await page.wait_for_function("(id) => document.querySelector('#scroll .msg').id !== id", arg=before)
            most = max(most, await page.evaluate(count))
            seen.add(before)
        assert len(seen) == 9
        assert most < 900
        assert await page.locator(".gap").count() == 1
        await page.locator("#to-end").click()
        await page.locator("#log", has_text="answer 2499").wait_for()
        await visitor.goto(f"/chat/main/{site.long}?show=1003#e1003")
        await page.locator("#e1003", has_text="question 500").wait_for()
        assert await page.locator("#e1003").is_visible()
        assert await page.evaluate(count) < 200

    visit(site, steps)


def test_files_are_attached_and_limits_are_told_before_sending(site):
    async def steps(visitor):
        page = visitor.page
        notes = {"name": "notes.py", "mimeType": "text/x-python", "buffer": b"x = 1\n```\n"}
        picture = {"name": "dot.png", "mimeType": "image/png", "buffer": PIXEL}
        await page.set_input_files("#files", [notes, picture])
        await page.locator("#attached li").nth(1).wait_for()
        huge = {"name": "huge.txt", "mimeType": "text/plain", "buffer": b"x" * 1_100_000}
        await page.set_input_files("#files", huge)
        await page.get_by_text("huge.txt: That is too large").wait_for()
        await page.set_input_files("#files", {"name": "a.bin", "mimeType": "", "buffer": b"\xff\x00\xfe"})
        await page.get_by_text("a.bin is neither a picture").wait_for()
        assert await page.locator("#attached li").count() == 2
        await visitor.ask("look at these")
        said = page.locator("#log .msg.user")
        assert "x = 1" in await said.locator(".code").inner_text()
        assert await said.locator("img").evaluate("(one) => one.decode().then(() => one.naturalWidth)") == 1
        await said.get_by_role("button", name="Edit and send again").focus()
        await page.keyboard.press("Enter")
        await page.locator("#attached li img").wait_for()
        await page.keyboard.press("Escape")
        await page.locator("#editing").wait_for(state="hidden")

    visit(site, steps)


def test_commands_complete_and_do_what_they_say(site):
    async def steps(visitor):
        page = visitor.page
        await visitor.ask("hello there")
        await page.keyboard.type("/ren")
        await page.locator("#completion [role=option]", has_text="/rename").wait_for()
        await page.keyboard.press("Enter")
        assert await page.input_value("#message") == "/rename "
        await page.keyboard.type("By command")
        await page.keyboard.press("Enter")
        await page.locator("#chat-head h1", has_text="By command").wait_for()
        await page.keyboard.type("/nonsense")
        await page.keyboard.press("Enter")
        await page.get_by_text("There is no command /nonsense.").wait_for()
        await visitor.until("document.querySelectorAll('#log .msg.user').length === 1")
        await page.fill("#message", "")
        await page.keyboard.type("/fork")
        await page.keyboard.press("Enter")
        await page.get_by_text("Forked from").wait_for()

    visit(site, steps)


def test_drafts_are_kept_for_each_chat(site):
    async def steps(visitor):
        page = visitor.page
        await visitor.ask("a chat with a draft")
        await page.fill("#message", "half a thought")
        chat = page.url
        await visitor.goto("/chat/main")
        assert await page.input_value("#message") == ""
        await page.goto(chat)
        await page.wait_for_function("() => document.getElementById('message').value === 'half a thought'")

    visit(site, steps)


def test_the_keyboard_reaches_messages_their_actions_and_the_list_of_keys(site):
    async def steps(visitor):
        page = visitor.page
        await visitor.ask("walk to me")
        await page.keyboard.press("ArrowUp")
        await page.locator("#editing").wait_for()
        await page.keyboard.press("Escape")
        await page.locator("#editing").wait_for(state="hidden")
        await page.keyboard.press("Alt+ArrowUp")
        await page.keyboard.press("Alt+ArrowUp")
        assert await page.evaluate("() => document.activeElement.matches('.msg.user')")
        await page.keyboard.press("p")
        await page.locator("#log .msg.user .act.on").wait_for()
        await page.keyboard.press("Tab")
        await page.keyboard.press("ArrowRight")
        assert await page.evaluate("() => document.activeElement.dataset.edit > 0")
        await page.locator("#scroll").focus()
        await page.keyboard.press("?")
        await page.get_by_role("heading", name="Keyboard shortcuts").wait_for()
        await page.keyboard.press("Escape")
        await page.keyboard.press("/")
        assert await page.evaluate("() => document.activeElement.id") == "message"

    visit(site, steps)


def test_escape_stops_the_answer(tmp_path):
    gate = tmp_path / "gate"
    with running(tmp_path / "home", script=[{"deltas": ["one ", "two ", "three"], "until": str(gate)}]) as server:

        async def steps(visitor):
            await visitor.say("go")
            await visitor.page.locator("#live .body", has_text="two").wait_for()
            await visitor.page.keyboard.press("Escape")
            await visitor.rest()
            assert "interrupted" in await visitor.page.locator("#log .msg.assistant").inner_text()

        visit(server, steps)


def test_an_administrator_sees_only_their_own_chats_in_the_list(tmp_path):
    with running(tmp_path / "home") as server:
        with server.client(server.make_token("ann", "--scope", "chat")) as client:
            talk(client, "the chat of ann")
        with httpx.Client(base_url=server.base, **PATIENT) as client:
            sign_in(client, server.token)
            assert "the chat of ann" not in client.get("/chat/main").text
            assert "the chat of ann" not in client.get("/search?q=ann").text
            assert "the chat of ann" in client.get("/search?q=chat&whose=all").text


@pytest.mark.parametrize(("locale", "scheme"), [("en-US", "light"), ("zh-CN", "dark")])
def test_axe_finds_nothing_in_the_chat_in_search_and_in_the_keys(site, scheme, locale):
    async def steps(visitor):
        page = visitor.page
        for path in (f"/chat/main/{site.folded}", f"/chat/main/{site.folded}?show=3&q=XYZZY-77", "/search?q=XYZZY-77"):
            await visitor.goto(path)
            assert await visitor.axe() == [], path
        await visitor.goto(f"/chat/main/{site.folded}")
        await page.keyboard.press("Control+k")
        await page.keyboard.type("XYZZY")
        await page.locator("#found mark").first.wait_for()
        assert await visitor.axe() == []
        await page.keyboard.press("Escape")
        await page.locator("#scroll").focus()
        await page.keyboard.press("?")
        await page.locator("#keys[open]").wait_for()
        assert await visitor.axe() == []

    visit(site, steps, color_scheme=scheme, locale=locale)


def test_the_first_load_is_small(site, capsys):
    """As transferred, without pictures."""
    with httpx.Client(base_url=site.base, **PATIENT) as client:
        sign_in(client, site.token)
        page = client.get(f"/chat/main/{site.long}")
        sizes = {"page": len(gzip.compress(page.content, 5))}
        assert page.headers["content-encoding"] == "gzip"
        wanted = set(re.findall(r'(?:src|href)="(/static/[^"]+\.(?:js|css))"', page.text))
        modules = {path for path in wanted if path.endswith(".js")}
        while modules:
            path = modules.pop()
            answer = client.get(path)
            assert answer.headers["content-encoding"] == "gzip"
            sizes[path.rpartition("/")[2]] = int(answer.headers["content-length"])
            found = {f"{path.rpartition('/')[0]}/{name}" for name in re.findall(r'"\./(\w+\.js)"', answer.text)}
            modules |= {one for one in found if one.rpartition("/")[2] not in sizes}
        sheet = next(path for path in wanted if path.endswith(".css"))
        sizes["page.css"] = int(client.get(sheet).headers["content-length"])
    with capsys.disabled():
        print(f"\nfirst load, as transferred: {sum(sizes.values()):,} bytes in {len(sizes)} files")
    assert sum(sizes.values()) <= WEIGHT_MAX_BYTES


def test_a_refusal_and_its_hint_are_two_sentences(tmp_path):
    with running(tmp_path / "home") as server:

        async def steps(visitor):
            page = visitor.page
            await visitor.ask("hello")
            await page.fill("#message", "/compact ")
            await page.press("#message", "Enter")
            await page.get_by_text("nothing to compact. Continue the conversation first.").wait_for()
            visitor.trouble[:] = [text for text in visitor.trouble if "400" not in text]

        visit(server, steps)


def test_commands_of_a_chat_say_in_a_new_one_that_it_has_no_messages(site):
    async def steps(visitor):
        page = visitor.page
        for command in ("pin", "rewind", "undo", "compact", "fork", "retry", "rename", "delete", "details"):
            await page.fill("#message", f"/{command}")
            await page.keyboard.press("Enter")
            await page.locator("#alerts .toast", has_text="This chat has no messages yet.").wait_for()
            await page.locator("#alerts .toast-close").click()
            assert page.url.endswith("/chat/main")

    visit(site, steps)


@pytest.mark.parametrize("text", ["/usr/bin/env is missing", "//", "/ hm", "/compactt"])
def test_a_text_that_begins_with_a_slash_is_never_dropped_silently(site, text):
    async def steps(visitor):
        page = visitor.page
        await page.fill("#message", text)
        await page.keyboard.press("Enter")
        await page.locator("#alerts .toast", has_text=f"There is no command {text.split()[0]}.").wait_for()
        assert await page.input_value("#message") == text

    visit(site, steps)


def test_a_picture_without_words_says_what_is_missing(site):
    async def steps(visitor):
        page = visitor.page
        await page.set_input_files("#files", {"name": "dot.png", "mimeType": "image/png", "buffer": PIXEL})
        await page.locator("#attached li").wait_for()
        await page.press("#message", "Enter")
        await page.locator("#alerts .toast", has_text="Write something to go with the picture.").wait_for()
        assert await page.locator("#attached li").count() == 1

    visit(site, steps)


def test_two_sentences_in_chinese_are_joined_as_in_chinese(site):
    async def steps(visitor):
        page = visitor.page
        await visitor.ask("你好")
        await page.fill("#message", "/undo")
        await page.keyboard.press("Enter")
        told = page.locator("#alerts .toast", has_text="此会话中没有生效的压缩。没有可撤销的内容。")
        await told.wait_for()
        visitor.trouble.clear()  # the refusal is in the console

    visit(site, steps, locale="zh-CN")


def test_a_message_that_cannot_leave_says_so_and_stays(site):
    async def steps(visitor):
        page = visitor.page
        await page.route("**/chat/main/say", lambda route: route.abort())
        await page.fill("#message", "你好")
        await page.press("#message", "Enter")
        await page.locator("#alerts .toast", has_text="消息未发送：无法连接服务器").wait_for()
        assert await page.input_value("#message") == "你好"
        visitor.trouble.clear()  # the console says that the request was aborted

    visit(site, steps, locale="zh-CN")


def test_a_failure_that_was_answered_later_does_not_ask_for_another_try(tmp_path):
    script = [{"error": {"status": 401, "message": "bad key"}}, {"text": "better"}]
    with running(tmp_path / "home", script=script) as server:

        async def steps(visitor):
            page = visitor.page
            await visitor.ask("hello")
            await page.locator("#log .failed-hint", has_text="try again").wait_for()
            await visitor.ask("again")
            await page.locator("#log .msg.assistant", has_text="better").wait_for()
            await page.locator("#log .failed", has_text="bad key").wait_for()
            await page.locator("#log .failed-hint").wait_for(state="detached")

        visit(server, steps)


def test_commands_name_the_newest_message_while_a_turn_runs(tmp_path):
    script = [{"deltas": ["word "] * 40, "delay_ms": 50}]
    with running(tmp_path / "home", script=script) as server:

        async def steps(visitor):
            page = visitor.page
            await visitor.say("remember this")
            await page.locator("#live .streaming").wait_for()
            await page.fill("#message", "/pin")
            await page.press("#message", "Enter")
            await page.locator("#toasts .toast").wait_for()
            await visitor.rest()
            await page.locator("#log .msg.user .tag", has_text="pinned").wait_for()

        visit(server, steps)
