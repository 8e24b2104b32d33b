"""An administrator erases words on the page: the form, the list, the confirmation, in both languages."""

import pytest

from ..server.running import SESSIONS, running
from .browsing import needs_browser, plant_folded, plant_harm, seed, visit

pytestmark = needs_browser


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    home = tmp_path_factory.mktemp("erasing") / "home"
    ids = seed(home, plant_harm)
    with running(home) as server:
        server.harmful = ids
        yield server


def test_words_are_listed_then_erased_after_a_confirmation(tmp_path):
    home = tmp_path / "home"
    sid = seed(home, plant_folded)
    with running(home) as server:

        async def steps(visitor):
            page = visitor.page
            await visitor.goto(f"/session/main/{sid}")
            await page.get_by_role("link", name="Erase words…").click()
            await page.get_by_label("Every entry that contains this text").fill("xyzzy-77")
            await page.get_by_role("button", name="List the places").click()
            table = page.locator("#places table")
            await table.locator("tbody tr").nth(2).wait_for()
            assert await table.locator("tbody tr").count() == 3
            assert "tick “Also entries that still count”" in await table.inner_text()
            assert "listed only" in await table.inner_text()
            assert "XYZZY" not in (await table.inner_text()).upper()
            assert await visitor.axe() == []
            box = await page.get_by_label("Also summaries").bounding_box()
            label = await page.locator("label.tick", has_text="Also summaries").bounding_box()
            assert box["width"] < 30
            assert box["x"] - label["x"] < 10, "each box is at the beginning of its line"

            await page.get_by_role("button", name="Erase for good").click()
            await page.get_by_role("alert").wait_for()
            assert "still counts" in await page.get_by_role("alert").inner_text()
            visitor.trouble[:] = [text for text in visitor.trouble if "400" not in text]

            assert await page.get_by_label("Every entry that contains this text").input_value() == "xyzzy-77"
            await page.get_by_label("Also entries that still count").check()
            await page.get_by_label("Also summaries").check()
            await page.get_by_role("button", name="List the places").click()
            await page.get_by_role("button", name="Erase for good").click()
            await page.get_by_role("heading", name="Erased", level=1).wait_for()
            assert await page.get_by_role("button", name="Erase for good").count() == 0
            await page.locator(".crumb a").click()
            await page.locator("#timeline-log", has_text="[erased]").wait_for()
            assert "XYZZY" not in (await page.content()).upper()

        visit(server, steps)
        with server.client() as client:
            assert "XYZZY" not in client.get(f"{SESSIONS}/{sid}").text


def test_entries_by_number_in_chinese_on_a_phone(site):
    sid = site.harmful[0]

    async def steps(visitor):
        page = visitor.page
        await visitor.goto(f"/session/main/{sid}/erasing")
        await page.get_by_label("或按编号选择条目").fill("3，4-5")
        await page.get_by_label("包括仍然有效的条目").check()
        await page.get_by_role("button", name="列出相关位置").click()
        assert await page.locator("#places tbody tr").count() >= 3
        assert "将被擦除" in await page.locator("#places").inner_text()
        taken, there = await visitor.width()
        assert taken <= there
        await page.get_by_role("button", name="永久擦除").click()
        await page.get_by_role("heading", name="已擦除", level=1).wait_for()

    visit(site, steps, locale="zh-CN", viewport={"width": 390, "height": 844})


def test_what_was_typed_stays_text_and_wrong_numbers_are_explained(site):
    harm = '"><img src=x onerror=alert(1)></textarea><script>alert(1)</script>'

    async def steps(visitor):
        page = visitor.page
        await visitor.goto(f"/session/main/{site.harmful[1]}/erasing")
        await page.get_by_label("Every entry that contains this text").fill(harm)
        await page.get_by_role("button", name="List the places").click()
        await page.get_by_text("Nothing found.").wait_for()
        assert await page.get_by_label("Every entry that contains this text").input_value() == harm
        await page.get_by_label("Every entry that contains this text").fill("")
        for numbers in ("3-x", "1-99999999", "²", "0"):
            await page.get_by_label("Or entries by their numbers").fill(numbers)
            await page.get_by_role("button", name="List the places").click()
            await page.get_by_role("alert").wait_for()
        visitor.trouble[:] = [text for text in visitor.trouble if "400" not in text]

    visit(site, steps)


def test_the_page_is_for_administrators(site):
    path = f"/session/main/{site.harmful[2]}"
    with site.client(site.make_token("reader", "--scope", "read")) as reader:
        assert "erasing" not in reader.get(path).text
        assert reader.get(f"{path}/erasing").status_code == 403
        assert reader.post(f"{path}/erasing", data={"text": "zebra"}).status_code == 403
