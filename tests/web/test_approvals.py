"""The pages about approvals: the audit list for administrators, and undoing written files. In both languages."""

import os

import pytest

from ..server.running import running
from .browsing import needs_browser, visit

pytestmark = needs_browser


def shot(page, name):
    """Where somebody wants to look at the pages: SHOTS=folder."""
    folder = os.environ.get("SHOTS")
    return page.screenshot(path=f"{folder}/{name}.png", full_page=True) if folder else page.title()


@pytest.mark.parametrize("phone", [False, True])
def test_an_administrator_sees_who_approved_what_and_undoes_a_file(tmp_path, phone):
    with running(tmp_path / "home") as server:

        async def steps(visitor):
            page = visitor.page
            await visitor.goto("/chat/main")
            await visitor.say("write abc to a.txt")
            card = page.locator(".card.approval").last
            await card.wait_for()
            assert 'write_file(path="a.txt")' in await card.inner_text()
            await shot(page, f"card-{phone}")
            await card.get_by_role("button", name="Approve", exact=True).click()
            await visitor.rest()
            assert (server.home / "workspace" / "a.txt").read_text() == "abc"
            sid = page.url.rpartition("/")[2]
            await visitor.goto("/chats")
            await page.get_by_role("link", name="Approvals").click()
            row = page.locator("#rows tbody tr")
            await row.first.wait_for()
            assert await row.count() == 1
            said = await row.inner_text()
            assert "write_file" in said
            assert "approved ran" in " ".join(said.split())
            await row.locator("summary").click()
            assert "+abc" in await row.locator(".diff").inner_text()
            await shot(page, f"audit-{phone}")
            assert await visitor.axe() == []
            await page.get_by_label("Outcome").select_option("denied")
            await page.get_by_text("No call needed approval.").wait_for()
            await page.get_by_role("button", name="中文").click()
            await page.get_by_role("heading", name="批准记录").wait_for()
            assert await visitor.axe() == []
            await page.get_by_role("button", name="English").click()
            await visitor.goto(f"/session/main/{sid}/files")
            assert await visitor.axe() == []
            await shot(page, f"files-{phone}")
            (server.home / "workspace" / "a.txt").write_text("by a person")
            await page.get_by_role("button", name="Undo: a.txt").click()
            await page.get_by_role("alert").filter(has_text="has changed since").wait_for()
            visitor.trouble[:] = [text for text in visitor.trouble if "409" not in text]
            await page.get_by_role("button", name="Undo all the same").click()
            await page.get_by_role("status").filter(has_text="a.txt has its former content again").wait_for()
            assert not (server.home / "workspace" / "a.txt").exists()
            await page.get_by_text("No written file can be restored.").wait_for()

        visit(server, steps, **({"viewport": {"width": 390, "height": 844}} if phone else {}))


def test_always_everywhere_is_a_button_for_administrators_and_the_next_call_runs(tmp_path):
    with running(tmp_path / "home") as server:

        async def steps(visitor):
            page = visitor.page
            await visitor.goto("/chat/main")
            await visitor.say("write abc to docs/a.txt")
            card = page.locator(".card.approval").last
            await card.get_by_role("button", name="Always, everywhere").click()
            await visitor.rest()
            await visitor.goto("/chat/main")
            await visitor.ask("write abc to docs/b.txt")
            await page.locator("#log .msg.assistant", has_text="created docs/b.txt").last.wait_for()

        visit(server, steps)
        assert "docs/*" in (server.home / "config.toml").read_text()


def test_a_question_of_a_killed_server_can_be_answered_on_the_page_of_the_next_one(tmp_path):
    with running(tmp_path / "home") as server:

        async def ask(visitor):
            await visitor.say("write abc to a.txt")
            await visitor.page.locator(".card.approval").wait_for()
            asked.append(visitor.page.url.rpartition("/")[2])

        async def answer(visitor):
            page = visitor.page
            await visitor.goto(f"/chat/main/{asked[0]}")
            card = page.locator(".card.approval")
            await card.wait_for()
            assert (await page.title()).startswith("● ")
            assert "+abc" in await card.locator(".diff").inner_text()
            await shot(page, "card-after-kill")
            await card.get_by_role("button", name="Approve", exact=True).click()
            await page.locator("#log .msg.assistant", has_text="created a.txt").last.wait_for()
            await visitor.rest()
            assert await card.count() == 0
            assert not (await page.title()).startswith("● ")

        asked = []
        visit(server, ask)
        server.restart()
        visit(server, answer)
        assert (server.home / "workspace" / "a.txt").read_text() == "abc"


def test_a_question_does_not_take_the_focus_from_a_message_that_is_being_written(tmp_path):
    with running(tmp_path / "home") as server:

        async def steps(visitor):
            page = visitor.page
            await visitor.ask("hello")
            await page.fill("#message", "half a mes")
            body = {"message": "write abc to a.txt", "sessionId": page.url.rpartition("/")[2]}
            with server.client() as client, client.stream("POST", "/api/agents/main/chat", json=body):
                pass
            await page.locator(".card.approval").wait_for()
            await page.keyboard.type("sage ")
            assert await page.input_value("#message") == "half a message "
            assert not (server.home / "workspace" / "a.txt").exists()

        visit(server, steps)


def test_arguments_that_are_no_json_are_refused_in_the_readers_language(tmp_path):
    with running(tmp_path / "home") as server:

        async def steps(visitor):
            page = visitor.page
            await visitor.goto("/chat/main")
            await visitor.say("write abc to a.txt")
            card = page.locator(".card.approval")
            await card.locator(".edit summary").click()
            await card.locator(".edit textarea").fill("{path")
            await card.locator("[data-word=approved]").click()
            await page.locator("#notice.bad", has_text="参数不是有效的 JSON").wait_for()
            await card.locator("[data-word=denied]").click()
            await visitor.rest()

        visit(server, steps, locale="zh-CN")
        assert not (server.home / "workspace" / "a.txt").exists()
