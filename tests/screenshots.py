"""Makes the pictures of docs/images: python -m tests.screenshots (`make screenshots`).

A real server with a store that was filled by the library, a real browser, and a real terminal.
"""

import asyncio
import tempfile
from pathlib import Path

import turnlog

from .cli import screenshot
from .server.running import running
from .web.browsing import close_browser, visit

IMAGES = Path(__file__).parents[1] / "docs" / "images"
WINDOW = 200_000
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
    reply = turnlog.Assistant(content=answer, stop="end_turn", usage=usage, model="demo")
    await t.append(row, turnlog.User(content=question), reply)


async def fill(home):
    """Sessions of several channels; the newest has a compaction."""
    async with turnlog.open(home=home, model_name="offline", model_window=WINDOW) as t:
        for key, title, question, tokens in OTHERS:
            row = await t.sessions.new(key)
            await talk(t, row, question, "I have looked it up.", tokens)
            await t.sessions.rename(row.id, title)
        row = await t.sessions.new(ADMIN)
        await t.sessions.rename(row.id, "Release notes for Harbour 2.4")
        for turn in TURNS:
            await talk(t, row, *turn)
        await fold(t, row)
        for turn in LATER:
            await talk(t, row, *turn)
        return row.id


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

    async def dark(visitor):
        await visitor.goto(f"/session/main/{session}")
        await visitor.page.screenshot(path=IMAGES / "session.png")

    return light, dark


def main():
    screenshot.main()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        session = asyncio.run(fill(home))
        light, dark = pictures(session)
        try:
            with running(home, env={"TURNLOG_MODEL_WINDOW": str(WINDOW)}) as server:
                visit(server, light, viewport={"width": 1280, "height": 700}, color_scheme="light")
                visit(server, dark, viewport={"width": 1280, "height": 760}, color_scheme="dark")
        finally:
            close_browser()


if __name__ == "__main__":
    main()
