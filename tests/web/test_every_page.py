"""Every page, in both languages and both colours: what axe-core finds, its width on a phone, and what is shown while an
answer is on its way.
"""

import asyncio

import pytest

from ..screenshots import fill, pages
from ..server.running import running
from .browsing import needs_browser, visit

pytestmark = needs_browser


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    home = tmp_path_factory.mktemp("pages") / "home"
    session = asyncio.run(fill(home))
    with running(home, env={"TURNLOG_MODEL_CHOICES": "openai:gpt-5-mini"}) as server:
        server.session = session
        yield server


@pytest.mark.parametrize(("locale", "color_scheme"), [("en-US", "light"), ("zh-CN", "dark")])
def test_every_page_is_accessible_and_fits_a_phone(site, locale, color_scheme):
    async def steps(visitor):
        found = {}
        for path in (
            *pages(site.session),
            "/search?q=harbour",
            *(f"/session/main/{site.session}/{one}" for one in ("erasing", "files")),
        ):
            await visitor.page.set_viewport_size({"width": 1280, "height": 800})
            await visitor.goto(path)
            found[path] = await visitor.axe()
            await visitor.page.set_viewport_size({"width": 390, "height": 844})
            taken, there = await visitor.width()
            found[path] += [f"{taken} px wide"] if taken > there else []
        assert {path: troubles for path, troubles in found.items() if troubles} == {}

    visit(site, steps, locale=locale, color_scheme=color_scheme)


def test_a_skeleton_stands_for_a_part_that_is_on_its_way(site):
    async def steps(visitor):
        page, gate = visitor.page, asyncio.Event()

        async def hold(route):
            await gate.wait()
            await route.continue_()

        await visitor.goto("/chats")
        await page.route("**/chats/session/**", hold)
        await page.get_by_role("link", name="Refactor the parser").click()
        await page.locator("#drawer.loading > .skeleton").wait_for()
        assert await page.locator("#drawer").get_attribute("aria-busy") == "true"
        gate.set()
        await page.locator("#drawer .drawer-head").wait_for()
        await visitor.until("!document.querySelector('#drawer .skeleton, #drawer[aria-busy]')")

    visit(site, steps)


def test_the_menu_shows_where_one_is_on_a_phone(site):
    async def steps(visitor):
        await visitor.goto("/well")
        here = visitor.page.locator("nav.operating [aria-current]")
        await visitor.until("document.querySelector('nav.operating').scrollLeft > 0")
        box = await here.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390

    visit(site, steps, viewport={"width": 390, "height": 844})


SEEN = """() => new MutationObserver(() => document.querySelector("main.leaving > .skeleton") && window.seen())
  .observe(document.body, { childList: true, subtree: true })"""


def test_a_skeleton_stands_for_a_page_that_is_on_its_way(site):
    """The page is held back until the skeleton is there: without it, it would never come."""

    async def steps(visitor):
        page, gate = visitor.page, asyncio.Event()

        async def hold(route):
            await gate.wait()
            await route.continue_()

        await visitor.goto("/failures")
        await page.expose_function("seen", gate.set)
        await page.evaluate(SEEN)
        await page.route("**/well", hold)
        await page.locator("nav.operating a", has_text="Is everything well?").click(no_wait_after=True)
        await page.wait_for_url("**/well")
        await page.locator("main h1").wait_for()
        assert gate.is_set()

    visit(site, steps)


def test_the_bar_of_chosen_rows_follows_a_filter(site):
    async def steps(visitor):
        page = visitor.page
        await visitor.goto("/chats")
        await page.locator("#rows input[type=checkbox][name=id]").first.check()
        await page.locator(".many.ready").wait_for()
        await page.fill("#f-q", "Refactor")
        await visitor.until("document.querySelectorAll('#rows tbody tr').length === 1")
        await visitor.until("!document.querySelector('.many.ready')")

    visit(site, steps)
