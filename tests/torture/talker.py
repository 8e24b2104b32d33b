"""Talks to Turnlog as a library, for ever, and tells the auditor what it was told. Made to be killed.

run() with sys.argv = [_, URL, FOLDER, FIRST]
"""

import asyncio
import sys

import turnlog
from turnlog.core.events import Done, Snapshot, TextDelta

from .auditor import Teller

SESSIONS = 3


async def main(url, folder, first):
    teller = Teller(folder)
    async with turnlog.open(url, home=folder, model_name="offline") as t:
        rows = [await t.session(f"agent:main:cli:direct:p{n}") for n in range(SESSIONS)]
        await t.resume()
        number = first
        while True:
            number += 1
            row, text = rows[number % SESSIONS], f"message {number}."
            ticket = await t.accept(row, text, mode="followup")
            teller.accepted(row.id, text)
            if number % 4:  # the others wait behind it
                await hear(t, ticket, teller, row.id, text)


async def hear(t, ticket, teller, session_id, text):
    reply = ""
    async for event in t.queue.follow(ticket):
        match event:
            case TextDelta():
                reply += event.text
            case Snapshot():
                reply = event.text
            case Done():
                teller.answered(session_id, text, reply)
            case _:
                pass


def run():
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
