"""Makes the pictures of docs/images: python -m tests.screenshots (`make screenshots`). With `--all DIR` it also makes
one of every page, in both colours and at the width of a desk and of a phone, to be looked at.

A real server with a store that was filled by the library, a real browser, and a real terminal.
"""

import asyncio
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import turnlog

from .cli import screenshot
from .server.running import running
from .web.browsing import close_browser, visit

IMAGES = Path(__file__).parents[1] / "docs" / "images"
WINDOW = 200_000
MODEL = "anthropic:claude-sonnet-4"
CHOICES = "anthropic:claude-sonnet-4,openai:gpt-5-mini"
ADMIN = "agent:main:web:direct:admin"
TURNS = (
    ("Help me write the release notes for Harbour 2.4.", "Gladly. Which changes shall they name?", 5_400),
    ("Here is the list of merged changes.", "I grouped them: *Added*, *Changed*, *Fixed*. 41 entries in all.", 21_600),
    ("Move the new upgrade guide to the top.", "Done. It links `docs/upgrade.md` in the first line.", 27_300),
    ("Which of the fixes are security fixes?", "Two: the token in the log, and the path in `export`.", 33_700),
    ("Write a sentence on each of them.", "Both are described without details that help an attacker.", 40_100),
    ("Is the list of contributors complete?", "Yes: 12 people, in alphabetical order.", 46_500),
    ("Shorten the section Changed to ten lines.", "It has ten lines now; the rest is linked.", 53_100),
)
LATER = (
    ("When does it go out?", "2.4 goes out on **Thursday, 19 November**, and `docs/upgrade.md` is linked.", 15_800),
    (
        "Is it ready?",
        "It is ready to publish. Two things to check before Thursday:\n\n"
        "1. the link to `docs/upgrade.md` works;\n2. the date in the heading is right.",
        19_120,
    ),
)
SUMMARY = """## Goal
- Release notes for Harbour 2.4, published on Thursday, 19 November.
## Done
- Entries are grouped (Added, Changed, Fixed), `docs/upgrade.md` is linked at the top, Changed has ten lines.
- Two security fixes are described; 12 contributors are listed.
"""
OTHERS = (
    ("agent:main:telegram:direct:42", "Delivery of order 5512", "Where is my order 5512?", 64_200),
    ("agent:main:cli:direct:user", "Refactor the parser", "The parser has three modes.", 38_400),
    ("agent:main:slack:group:C1", "Who is on call this week?", "Who is on call this week?", 4_100),
    ("agent:main:feishu:direct:ou1", "报销流程", "报销流程是什么?", 2_900),
    ("agent:main:discord:group:7", "Plugin crashes on start", "The plugin crashes on start.", 31_800),
    (ADMIN, "Plan the Hangzhou trip 杭州旅行计划", "Plan three days in Hangzhou.", 6_300),
)


async def talk(t, row, question, answer, tokens):
    usage = {"input_tokens": tokens - 60, "output_tokens": 60}
    reply = turnlog.Assistant(content=answer, stop="end_turn", usage=usage, model=MODEL)
    await t.append(row, turnlog.User(content=question), reply)


async def fill(home):
    """Sessions of several channels; the newest has a compaction."""
    async with turnlog.open(home=home, model_name="offline", model_window=WINDOW) as t:
        for key, title, question, tokens in OTHERS:
            row = await t.sessions.new(key)
            await talk(t, row, question, "I have looked it up.", tokens)
            await t.sessions.rename(row.id, title)
        await earlier(t)
        row = await t.sessions.new(ADMIN)
        await t.sessions.rename(row.id, "Release notes for Harbour 2.4")
        for turn in TURNS:
            await talk(t, row, *turn)
        await fold(t, row)
        for turn in LATER:
            await talk(t, row, *turn)
        return row.id


async def earlier(t):
    """The days before: what usage shows, and a turn that failed."""
    row = await t.sessions.new("agent:main:api:direct:ci")
    for n in range(28):
        at = (datetime.now(UTC) - timedelta(days=28 - n, minutes=2)).isoformat(timespec="milliseconds")
        ts = at.replace("+00:00", "Z")
        given = 9_000 + 4_100 * (n * 7 % 11) - 700 * (n % 7)
        usage = {"input_tokens": given // 3, "cache_read_input_tokens": given, "output_tokens": given // 12}
        model = MODEL if n % 3 else "openai:gpt-5-mini"
        reply = turnlog.Assistant(content="All tests pass.", stop="end_turn", usage=usage, model=model, ts=ts)
        await t.append(row, turnlog.User(content="Run the checks.", ts=ts), reply)
        if n % 9 == 5:
            failed = turnlog.Failed(code="provider", reason="503: the model is overloaded", ts=ts)
            await t.append(row, turnlog.User(content="Run the checks.", ts=ts), failed)
    failed = turnlog.Failed(code="provider", reason="503: the model is overloaded")
    await t.append(row, turnlog.User(content="Run the checks again."), failed)
    await t.sessions.rename(row.id, "Checks of the nightly build")


async def fold(t, row):
    from turnlog.core import compaction
    from turnlog.core.compaction import Keep

    loaded = await t.sessions.load(row.id)
    plan = compaction.plan(loaded.entries, Keep("turns", 1))
    figures = {"tokens_before": 53_120, "tokens_after": 552}
    async with t.store.lease(row.id) as lease:
        await t.store.append(row.id, [compaction.complete(plan, SUMMARY, trigger="manual", **figures)], lease=lease)


def pictures(session):
    async def light(visitor):
        await visitor.goto(f"/chat/main/{session}")
        await visitor.page.wait_for_selector("#log .msg.user")
        await visitor.page.get_by_role("button", name="Undo").first.scroll_into_view_if_needed()
        await visitor.page.screenshot(path=IMAGES / "chat.png")
        await visitor.goto("/chats")
        await visitor.page.screenshot(path=IMAGES / "chats.png")
        await visitor.goto("/usage")
        while not await visitor.page.locator(".day-plot rect:not([height='0'])").count():
            await visitor.page.reload()  # it is counted in the background
        await visitor.page.screenshot(path=IMAGES / "usage.png")

    async def dark(visitor):
        await visitor.goto(f"/session/main/{session}")
        await visitor.page.screenshot(path=IMAGES / "session.png")

    return light, dark


def pages(session):
    yield from ("/signin", "/chat/main", f"/chat/main/{session}", f"/session/main/{session}")
    yield from (f"/session/main/{session}?json=1", "/chats", f"/chats/session/main/{session}")
    yield from ("/usage", "/failures", "/approvals", "/tokens", "/import", "/well")


def every_page(session, folder, name):
    async def steps(visitor):
        for path in pages(session):
            await visitor.goto(path)
            await visitor.page.wait_for_load_state("networkidle" if "chat/" not in path else "load")
            file = path.replace(session, "s").strip("/").replace("/", "-").replace("?", "-")
            await visitor.page.screenshot(path=folder / f"{file}.{name}.png", full_page=True)

    return steps


def look_at_all(server, session, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for scheme in ("light", "dark"):
        for name, width, height in (("desk", 1440, 900), ("phone", 390, 844)):
            size = {"width": width, "height": height}
            visit(server, every_page(session, folder, f"{scheme}.{name}"), viewport=size, color_scheme=scheme)


def main():
    screenshot.main()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        session = asyncio.run(fill(home))
        light, dark = pictures(session)
        try:
            with running(home, env={"TURNLOG_MODEL_WINDOW": str(WINDOW), "TURNLOG_MODEL_CHOICES": CHOICES}) as server:
                visit(server, light, viewport={"width": 1280, "height": 700}, color_scheme="light")
                visit(server, dark, viewport={"width": 1280, "height": 760}, color_scheme="dark")
                if "--all" in sys.argv:
                    look_at_all(server, session, Path(sys.argv[sys.argv.index("--all") + 1]))
        finally:
            close_browser()


if __name__ == "__main__":
    main()
