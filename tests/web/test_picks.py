"""The model and the agent of a chat, chosen in the composer: by mouse and by keyboard, in both languages."""

import pytest

import turnlog

from ..server.running import running
from .browsing import needs_browser, seed, visit

pytestmark = needs_browser
OTHER = "scripted:other.jsonl"
SEEN = """() => {
  window.seen = new Set();
  const look = () => document.querySelectorAll("#live .msg.assistant .note").forEach((one) => seen.add(one.innerText));
  new MutationObserver(look).observe(document.body, {childList: true, subtree: true});
}"""
"""Notes in running turns, which are over too soon to be waited for."""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    home = tmp_path_factory.mktemp("picks") / "home"
    home.mkdir()
    (home / "other.jsonl").write_text('{"text": "The other one says so."}\n' * 40)
    (home / "config.toml").write_text(
        f'[model]\nchoices = ["scripted:{home / "other.jsonl"}"]\n[agents.plain]\nmodels = []\n'
    )

    async def plant(library, convlog):
        row = await library.sessions.new("agent:main:web:direct:admin")
        await library.store.append(row.id, [turnlog.ModelChoice(model="anthropic:gone")])
        return row.id

    old = seed(home, plant)
    with running(home) as server:
        server.old = old
        yield server


def session_of(site, page):
    with site.client() as client:
        return client.get(f"/api/agents/main/sessions/{page.url.rpartition('/')[2]}").json()


def test_a_new_chat_begins_with_the_model_that_was_picked_by_mouse(site):
    async def steps(visitor):
        page = visitor.page
        pick = page.get_by_label("Model of this chat")
        assert await pick.locator("option").all_inner_texts() == ["offline", "other.jsonl"]
        await pick.select_option("other.jsonl")
        await page.get_by_text("other.jsonl answers from the next message on").wait_for()
        await visitor.ask("Who is there?")
        await page.locator("#log .msg.assistant", has_text="The other one says so.").wait_for()
        await page.locator("#chat-head", has_text=OTHER).wait_for()
        assert session_of(site, page)["session"]["model"] == OTHER
        await page.reload()
        assert await pick.input_value() == OTHER

    visit(site, steps)


def test_the_model_of_a_chat_is_changed_by_keys_alone_and_seen_in_another_tab(site):
    async def steps(visitor):
        page = visitor.page
        await visitor.ask("My name is Zoe.")
        second = await page.context.new_page()
        await second.goto(page.url)
        await page.bring_to_front()
        await page.focus("#message")
        for _ in range(6):
            if await page.evaluate("document.activeElement.id") == "pick-model":
                break
            await page.keyboard.press("Tab")
        await page.keyboard.press("o")  # the next that begins with it, as in every list
        await page.locator("#log .note", has_text="Model chosen").wait_for()
        assert session_of(site, page)["session"]["model"] == OTHER
        await second.locator("#log .note", has_text="Model chosen").wait_for()
        await second.wait_for_function(f"() => document.getElementById('pick-model').value === '{OTHER}'")
        await second.close()
        await page.fill("#message", "/model offl")
        await page.keyboard.press("Enter")
        await visitor.until("document.getElementById('pick-model').value === ''")
        await page.locator("#log .note", has_text="the agent's own").wait_for()
        assert "model" not in session_of(site, page)["session"]
        await page.fill("#message", "/model nonsense")
        await page.keyboard.press("Enter")
        await page.get_by_text("offers no model “nonsense”").wait_for()

    visit(site, steps)


def test_the_agent_of_a_new_chat_is_picked_in_the_composer_and_what_is_typed_goes_along(site):
    async def steps(visitor):
        page = visitor.page
        await page.fill("#message", "A question for the other agent")
        await page.get_by_label("Agent of this chat").select_option("plain")
        await page.wait_for_url("**/chat/plain")
        await visitor.until("document.getElementById('message')?.value === 'A question for the other agent'")
        assert await page.locator("#pick-model").count() == 0
        await page.keyboard.press("Enter")
        await page.locator("#log .msg.user", has_text="other agent").wait_for()
        await visitor.goto("/chat/main")
        assert await page.input_value("#message") == ""

    visit(site, steps)


def test_a_model_that_is_not_offered_any_more_is_said_to_be_gone_and_the_chat_goes_on(site):
    async def steps(visitor):
        page = visitor.page
        await visitor.goto(f"/chat/main/{site.old}")
        gone = "anthropic:gone (not offered any more)"
        assert await page.locator("#pick-model option:checked").inner_text() == gone
        await page.evaluate(SEEN)
        await visitor.ask("Who answers now?")
        await page.locator("#log .msg.assistant").wait_for()
        said = "The chosen model anthropic:gone is not offered any more, so the agent's own answers"
        await visitor.until("window.seen.size > 0")
        assert await page.evaluate("() => [...window.seen]") == [said]
        await page.locator("#chat-head", has_text="offline").wait_for()
        await page.get_by_label("Model of this chat").select_option("offline")
        await visitor.until("document.getElementById('log').dataset.model === ''")

    visit(site, steps)


@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
@pytest.mark.parametrize("color_scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_picks_are_accessible_and_fit(site, locale, color_scheme, width):
    async def steps(visitor):
        await visitor.page.get_by_label("此对话的模型" if locale == "zh-CN" else "Model of this chat").wait_for()
        assert await visitor.axe() == []
        taken, there = await visitor.width()
        assert taken <= there

    visit(site, steps, locale=locale, color_scheme=color_scheme, viewport={"width": width, "height": 800})
