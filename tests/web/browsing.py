"""A real browser on a real server, and a home with things in it that want to do harm."""

import asyncio
import os
import shutil
import threading
from functools import lru_cache
from pathlib import Path

import pytest

import turnlog
from turnlog.convlog import Record, open_convlog

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
AXE = Path(__file__).with_name("axe.min.js")
WAIT_MS = 120_000
"""Longer than any machine takes, however busy."""

try:
    from playwright.async_api import async_playwright
except ImportError:
    async_playwright = None

needs_browser = pytest.mark.skipif(
    CHROMIUM is None or async_playwright is None, reason="needs chromium and the package playwright"
)


class _Browser:
    """One for all tests of this process, driven by a loop in a thread of its own: in this one tests start theirs."""

    def __init__(self):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.run(self._open())

    async def _open(self):
        self._playwright = await async_playwright().start()
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        self.chromium = await self._playwright.chromium.launch(executable_path=CHROMIUM, args=sandbox)

    def run(self, steps):
        return asyncio.run_coroutine_threadsafe(steps, self._loop).result()

    async def _close(self):
        await self.chromium.close()
        await self._playwright.stop()

    def close(self):
        self.run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@lru_cache(maxsize=1)
def _browser():
    return _Browser()


def close_browser():
    if _browser.cache_info().currsize:
        _browser().close()
        _browser.cache_clear()


class Visitor:
    """One page of one visitor, and everything about it that should not have happened."""

    def __init__(self, server, page):
        self.server = server
        self.page = page
        self.trouble = []
        self.asked = []
        page.set_default_timeout(WAIT_MS)
        page.on("pageerror", lambda error: self.trouble.append(str(error)))
        page.on("console", self._hear)
        page.on("dialog", self._refuse)
        page.on("request", lambda request: self.asked.append(request.url))

    def _hear(self, said):
        # htmx reports a request that a newer one has replaced (hx-sync) as an error.
        if said.type in ("error", "warning") and not said.text.startswith("htmx: htmx:error: signal is aborted"):
            self.trouble.append(said.text)

    async def _refuse(self, dialog):
        self.trouble.append(f"dialog {dialog.message}")
        await dialog.dismiss()

    async def goto(self, path):
        await self.page.goto(self.server.base + path)

    async def sign_in(self):
        """As by the form, without its page."""
        done = await self.page.request.post(
            f"{self.server.base}/signin",
            form={"token": self.server.token},
            headers={"Origin": self.server.base},
            max_redirects=0,
        )
        assert done.status == 303
        await self.goto("/chat/main")

    async def sign_in_by_form(self):
        await self.goto("/signin")
        await self.page.fill("#token", self.server.token)
        await self.page.press("#token", "Enter")
        await self.page.wait_for_url("**/chat/main")

    async def say(self, text):
        await self.page.fill("#message", text)
        await self.page.press("#message", "Enter")
        await self.page.locator("#live .msg.user, #log .msg.user").first.wait_for()

    async def rest(self):
        """Until no turn runs any more."""
        await self.page.wait_for_selector("main.chat:not(.busy)")

    async def until(self, condition):
        """Until this is true of the page: what follows the end of a turn is drawn a moment later."""
        await self.page.wait_for_function(f"() => {condition}")

    async def ask(self, text):
        await self.say(text)
        await self.page.wait_for_selector("main.busy, main.chat:not(.busy)")
        await self.rest()

    async def axe(self, rules=None):
        """What axe-core finds that is serious, by all its rules or by some."""
        options = {"resultTypes": ["violations"], **({"runOnly": rules} if rules else {})}
        await self.page.evaluate(AXE.read_text())
        found = await self.page.evaluate("(options) => axe.run(document, options)", options)
        return [
            f"{one['id']}: {[node['html'][:200] for node in one['nodes'][:3]]}"
            for one in found["violations"]
            if one["impact"] in ("serious", "critical")
        ]

    async def width(self):
        """(what the page takes, what there is)."""
        return tuple(await self.page.evaluate("() => [document.documentElement.scrollWidth, window.innerWidth]"))


def visit(server, steps, *, signed_in=True, **options):
    """Runs `steps(visitor)` as a visitor of its own. Nothing may be refused, thrown or fetched from elsewhere."""

    async def work():
        async with await _browser().chromium.new_context(**{"locale": "en-US", **options}) as context:
            visitor = Visitor(server, await context.new_page())
            if signed_in:
                await visitor.sign_in()
            await steps(visitor)
            assert visitor.trouble == [], visitor.trouble
            assert [url for url in visitor.asked if not url.startswith(server.base)] == []

    _browser().run(work())


RTL = "\u202egpj.exe \u2066\u05e9\u05dc\u05d5\u05dd\u2069"
UNSEEN = "\u200b\u200b\u2060\ufeff"
HARM = (
    "<img src=x onerror=alert(1)>",
    "[click](javascript:alert(1)) [data](data:text/html,<script>alert(1)</script>)",
    "![beacon](http://127.0.0.1:9/pixel.png)",
    "</textarea></title></script><script>alert(1)</script>",
    '" onmouseover="alert(1)" x="',
    "<svg/onload=alert(1)> <iframe src=javascript:alert(1)> <a href='java\tscript:alert(1)'>x</a>",
    "{{ 7*7 }} ${7*7} <b hx-get=/signout hx-trigger=load>",
    RTL,
    UNSEEN,
)
WORD = "w" * 1_000_000


def seed(home, work):
    """`work(library, convlog)` on the store of that home, before a server has it."""

    async def run():
        async with (
            turnlog.open(home=home) as library,
            open_convlog(library.settings.store_url()) as convlog,
        ):
            return await work(library, convlog)

    return asyncio.run(run())


async def plant_harm(library, convlog):
    """One session a piece of harm, everywhere where somebody can put words; and one with a word of 1 MB."""
    ids = []
    for index, harm in enumerate((*HARM, WORD)):
        row = await library.sessions.new("agent:main:web:direct:admin")
        call = {"type": "tool_use", "id": f"c{index}", "name": harm[:60], "input": {"path": harm[:5000]}}
        await library.append(
            row,
            turnlog.User(content=harm, sender=harm[:200]),
            turnlog.Assistant(content=[{"type": "text", "text": harm}, call], model=harm[:50], stop="tool_use"),
            turnlog.ToolResult(tool_use_id=f"c{index}", content=harm),
            turnlog.Assistant(content=[{"type": "thinking", "thinking": harm[:5000]}, {"type": "text", "text": harm}]),
            turnlog.Failed(code="provider", reason=harm[:500]),
        )
        if index != HARM.index(UNSEEN):
            await library.sessions.rename(row.id, harm)
        ids.append(row.id)
        record = Record(
            ts="2026-01-01T00:00:00.000Z",
            role="user",
            content=harm,
            channel_id="",
            channel_type="web",
            sender=harm[:200],
        )
        await convlog.write("main", f"web-{index}-{harm[:60]}", record)
    return ids


async def plant_folded(library, convlog):
    """A session with a compaction that counts."""
    row = await library.sessions.new("agent:main:web:direct:admin")
    await library.sessions.rename(row.id, "Folded")
    said = [turnlog.User(content="the secret word is XYZZY-77"), turnlog.Assistant(content="noted XYZZY-77")]
    await library.append(row, *said, turnlog.User(content="later words"), turnlog.Assistant(content="kept words"))
    last = (await library.sessions.get(row.id)).last_seq
    body = turnlog.Compaction(
        summary="A word was given: XYZZY-77.",
        first_kept=last - 1,
        covers=(last - 3, last - 2),
        tokens_before=40_000,
        tokens_after=9_000,
    )
    await library.append(row, body)
    return row.id
