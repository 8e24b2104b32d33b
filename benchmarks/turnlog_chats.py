"""The pages of a real server over very many sessions: Sessions as it opens, filtered, searched through and sorted; the
pages for operators; and when a real browser has painted each of them.
"""

import asyncio
import http.client
import os
import shutil
import statistics
import time
from pathlib import Path

from benchmarks.turnlog_server import Running, running
from benchmarks.turnlog_side import url
from benchmarks.workload import make_turns, summarise
from turnlog import open_store
from turnlog.core.entries import Assistant, Opened, Selected, Status, Title, User

BUILD_AT_ONCE = 256
CHANNELS = ("web", "web", "web", "telegram", "slack", "cli")
AGENTS = ("main", "main", "ops")
TALKATIVE = 20
"""One session in this many has messages: a lease for every session would take longer than the rest."""
STATUSES = {17: "archived", 19: "trashed"}
"""One session in this many."""
PAGES = {
    "us": ("/chats",),
    "filtered_us": (
        "/chats?channel=slack",
        "/chats?agent=ops&channel=telegram",
        "/chats?kind=session",
        "/chats?state=trash",
    ),
    "keyword_us": ("/chats?q=invoice+77", "/chats?q=invoice", "/chats?q=not-to-be-found", "/chats?q=7&agent=ops"),
    "operators_us": (
        *("/chats?state=failed", "/chats?state=running", "/chats?who=person-7", "/chats?whose=mine"),
        *("/usage", "/failures", "/tokens", "/well"),
    ),
    "sorted_us": ("/chats?sort=messages", "/chats?sort=tokens", "/chats?sort=tokens&channel=slack"),
}


async def build(place: str, sessions: int) -> dict[str, float]:
    """Several members and channels, titles, statuses, a few turns; and the settings that name the members."""
    home = Path(place) / "home"
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.toml").write_text('[agents.ops]\nsystem = "You run things."\n', encoding="utf-8")
    async with open_store(url("sqlite", place), durability="os") as store:
        for first in range(0, sessions, BUILD_AT_ONCE):
            numbers = range(first, min(sessions, first + BUILD_AT_ONCE))
            await asyncio.gather(*(_add(store, number) for number in numbers))
    return {}


async def _add(store, number: int) -> None:
    agent, channel = AGENTS[number // len(CHANNELS) % len(AGENTS)], CHANNELS[number % len(CHANNELS)]
    session_id = f"ses-{number:06d}"
    key = f"agent:{agent}:{channel}:direct:person-{number // 3}"
    named = [Title(title=f"{'invoice' if number % 4 else 'travel'} {number}", by="auto"), Selected(n=1)]
    aside = [Status(value=value) for every, value in STATUSES.items() if number % every == 0]
    opening = Opened(id=session_id, key=key, agent=agent, channel=channel)
    await store.append(session_id, [opening, *named, *aside])
    if number % TALKATIVE == 0:
        user, assistant = make_turns()[number % 512]
        said = [User(content=user), Assistant(content=assistant)] * (number // TALKATIVE % 5 + 1)
        async with store.lease(session_id) as lease:
            await store.append(session_id, said, lease=lease)


async def page(place: str, times: int) -> dict[str, float]:
    """The slowest of each kind of page: its median."""
    with running(place) as server:
        timed = {path: _time(server, path, times) for paths in PAGES.values() for path in paths}
    return {name: max(timed[path] for path in paths) for name, paths in PAGES.items()}


def _time(server: Running, path: str, times: int) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    head = dict([server.head.strip().split(": ", 1)])
    samples = []
    for _ in range(times + 1):
        begin = time.perf_counter_ns()
        connection.request("GET", path, headers=head)
        answer = connection.getresponse()
        text = answer.read()
        samples.append(time.perf_counter_ns() - begin)
        assert answer.status == 200, text[:500]
    connection.close()
    return summarise(samples[1:])["us"]


PAINTED = ("/chat/main", "/chats", "/usage", "/failures", "/tokens", "/well", "/approvals")
PAINT = """() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? null"""


async def paint(place: str, times: int) -> dict[str, float]:
    """The slowest page: the median time to its first paint in Chromium, and the bytes of a first load."""
    from playwright.async_api import async_playwright

    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with running(place) as server:
        name, value = server.head.strip().split(": ", 1)
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=chromium, args=sandbox)
            times_ms, sizes = {}, {}
            for path in PAINTED:
                samples = []
                for _ in range(times):
                    context = await browser.new_context(extra_http_headers={name: value})
                    sample, size = await _paint(context, f"http://127.0.0.1:{server.port}{path}")
                    samples.append(sample)
                    sizes[path] = max(sizes.get(path, 0), size)
                    await context.close()
                times_ms[path] = statistics.median(samples)
            await browser.close()
    return {"us": max(times_ms.values()) * 1_000, "kb": max(sizes.values()) / 1_000}


async def _paint(context, address: str) -> tuple[float, int]:
    """(ms to the first paint, bytes as transferred), with nothing in the browser's cache."""
    page = await context.new_page()
    network = await context.new_cdp_session(page)
    sizes = []
    network.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    await network.send("Network.enable")
    await page.goto(address, wait_until="load")
    while (painted := await page.evaluate(PAINT)) is None:
        await page.wait_for_timeout(5)
    return painted, int(sum(sizes))
