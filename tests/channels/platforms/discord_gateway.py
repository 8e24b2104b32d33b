"""Discord's gateway, as far as discord.py needs it to log in and receive messages, and the REST API."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from turnlog.testing.platforms import JsonFields, PlatformRequest

from .discord import DiscordPlatform

DISPATCH, HEARTBEAT, IDENTIFY, RESUME, HELLO, ACK = 0, 1, 2, 6, 10, 11
ME: JsonFields = {"id": "77", "username": "try_bot", "discriminator": "0", "avatar": None, "bot": True}


@asynccontextmanager
async def gateway(platform: DiscordPlatform) -> AsyncGenerator[str]:
    """The address of the REST API; it names the gateway, which delivers `platform.bring(message)`."""
    from aiohttp import web

    served = _Gateway(platform)
    app = web.Application()
    app.router.add_get("/gateway", served.connect)
    app.router.add_route("*", "/{rest:.*}", served.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        served.address = f"{host}:{port}"
        yield f"http://{served.address}/api/v10"
    finally:
        await runner.cleanup()


class _Gateway:
    def __init__(self, platform: DiscordPlatform) -> None:
        self.address = ""
        self._platform = platform
        self._seq = 0
        platform.connected = asyncio.Event()

    async def answer(self, request: Any) -> Any:
        from aiohttp import web

        call = PlatformRequest(
            method=request.method,
            path=request.path,
            headers={name.lower(): value for name, value in request.headers.items()},
            body=await request.read(),
            query=dict(request.query),
        )
        self._platform.calls.append(call)
        own: dict[str, Any] = {
            "users/@me": ME,
            "gateway/bot": {
                "url": f"ws://{self.address}/gateway",
                "shards": 1,
                "session_start_limit": {"total": 1000, "remaining": 999, "reset_after": 0, "max_concurrency": 1},
            },
            "oauth2/applications/@me": _APPLICATION,
        }
        path = call.path.partition("/v10/")[2]
        status, told = (200, own[path]) if path in own else self._platform.answer(call)
        body = b"" if status == 204 else json.dumps(told).encode()
        # The library reads an answer as JSON only if its type is exactly this.
        return web.Response(status=status, body=body, headers={"Content-Type": "application/json"})

    async def connect(self, request: Any) -> Any:
        from aiohttp import web

        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_json({"op": HELLO, "d": {"heartbeat_interval": 40_000}})

        async def dispatch(name: str, told: Any) -> None:
            self._seq += 1
            await socket.send_json({"op": DISPATCH, "t": name, "s": self._seq, "d": told})

        async for message in socket:
            await self._heard(json.loads(message.data), dispatch, socket)
        return socket

    async def _heard(self, told: JsonFields, dispatch: Callable[[str, Any], Any], socket: Any) -> None:
        match told.get("op"):
            case 1:
                await socket.send_json({"op": ACK})
            case 2 if told["d"]["token"] == self._platform.token:
                ready: JsonFields = {
                    "v": 10,
                    "user": ME,
                    "guilds": [{"id": "1", "unavailable": True}],
                    "session_id": "s1",
                    "resume_gateway_url": f"ws://{self.address}/gateway",
                    "application": {"id": "77", "flags": 0},
                    "private_channels": [],
                }
                await dispatch("READY", ready)
                await dispatch("GUILD_CREATE", _GUILD)
                self._platform.bring_by(dispatch)
            case 2:
                await socket.close(code=4004)
            case _:
                pass


_APPLICATION: JsonFields = {
    "id": "77",
    "name": "try",
    "description": "",
    "icon": None,
    "rpc_origins": [],
    "bot_public": True,
    "bot_require_code_grant": False,
    "verify_key": "",
    "flags": 0,
    "owner": {"id": "31", "username": "ann", "discriminator": "0", "avatar": None},
}
_GUILD: JsonFields = {
    "id": "1",
    "name": "A guild",
    "owner_id": "31",
    "member_count": 2,
    "channels": [{"id": "50", "type": 0, "name": "general", "position": 0, "permission_overwrites": []}],
    "threads": [
        {
            "id": "60",
            "type": 11,
            "parent_id": "50",
            "owner_id": "31",
            "guild_id": "1",
            "name": "a thread",
            "message_count": 1,
            "member_count": 1,
            "rate_limit_per_user": 0,
            "thread_metadata": {
                "archived": False,
                "auto_archive_duration": 60,
                "archive_timestamp": "2026-01-01T00:00:00+00:00",
                "locked": False,
            },
        }
    ],
    "members": [],
    "roles": [{"id": "1", "name": "@everyone", "permissions": "0", "position": 0, "color": 0, "hoist": False}],
    "emojis": [],
    "features": [],
    "presences": [],
    "voice_states": [],
    "stage_instances": [],
    "guild_scheduled_events": [],
}
