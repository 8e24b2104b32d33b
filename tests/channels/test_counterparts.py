"""The platforms' own SDKs as counterparts: their signers sign what we receive, their clients and parsers our side."""

import asyncio
import json
import time
from datetime import UTC, datetime

import pytest

from tests.channels.platforms import served
from turnlog import Denied
from turnlog.channels import Address, Hook, Outgoing
from turnlog.channels.accounts import open_channels
from turnlog.testing.platforms.telegram import TelegramPlatform

from ..waiting import GIVES_UP_S
from .scenes import SECRET, DirectWorld, desk, run, telegram_hook

OUT = Outgoing(address=Address(chat="5"), text="good day", token="t" * 24)


def only(world, kind, **more):
    [account] = open_channels(world.settings(kind, **more), transport=world.transport)
    return account.channel


@pytest.mark.filterwarnings("ignore")
def test_telegram_the_library_accepts_what_our_platform_answers_and_reads_what_we_send(url, world):
    telegram = pytest.importorskip("telegram")
    platform = TelegramPlatform()

    async def main(address):
        patient = {f"{what}_timeout": GIVES_UP_S for what in ("read", "write", "connect", "pool")}
        request = telegram.request.HTTPXRequest(**patient)
        bot = telegram.Bot("1:test", f"{address}/bot", f"{address}/file", request, request)
        async with bot:
            assert bot.username == "try_bot"
            message = await bot.send_message(5, "from the library")
            assert (message.text, message.chat.id) == ("from the library", 5)
            platform.bring(platform.update("hi", topic=3, chat=-5, kind="supergroup"))
            [update] = await bot.get_updates(timeout=0)
            assert update.message.is_topic_message
            assert update.effective_chat.type == "supergroup"
        # The same call, made by us, is the same to the platform.
        [account] = open_channels({"telegram": {"token": "1:test", "mode": "poll", "api_url": address}})
        await account.channel.send(OUT)
        await account.channel.show_typing(OUT.address)
        await account.channel.close()
        theirs, ours = (telegram.Message.de_json(message, bot) for message in platform.sent)
        assert (theirs.text, ours.text) == ("from the library", "good day")
        assert ours.chat.id == 5

    with served(platform) as address:
        run(main(address))


@pytest.mark.filterwarnings("ignore")
def test_telegram_updates_made_by_the_library_are_read_alike(world):
    telegram = pytest.importorskip("telegram")
    user = telegram.User(5, "Ann", False, language_code="zh-hans")
    group = telegram.Chat(-42, "supergroup", title="G", is_forum=True)
    message = telegram.Message(
        8, datetime.now(UTC), group, from_user=user, text="/new@try_bot x", message_thread_id=17, is_topic_message=True
    )
    update = telegram.Update(77, message=message).to_dict()

    async def main():
        channel = only(world, "telegram")
        await channel._ask_name()
        [arrival] = channel.receive(telegram_hook(json.loads(json.dumps(update)))).arrivals
        inbound = arrival.inbound
        assert (inbound.chat_id, inbound.thread_id, inbound.sender_id, inbound.dedupe_id) == ("-42", "17", "5", "77")
        assert (inbound.text, arrival.sender_name, arrival.language) == ("/new x", "Ann", "zh-hans")

    run(main())


def test_slack_requests_signed_by_the_library_are_taken_and_ours_refused_alike(world):
    signature = pytest.importorskip("slack_sdk.signature")
    body = json.dumps(world.slack.event("hello")).encode()
    verifier = signature.SignatureVerifier("signing")
    for at, good in ((time.time(), True), (time.time() - 400, False), (time.time() + 400, False)):
        stamp = str(int(at))
        headers = {
            "x-slack-request-timestamp": stamp,
            "x-slack-signature": verifier.generate_signature(timestamp=stamp, body=body),
        }
        assert verifier.is_valid_request(body, headers) is good
        hook = Hook(headers=headers, body=body, now_s=time.time())
        if good:
            [arrival] = only(world, "slack").receive(hook).arrivals
            assert arrival.inbound.text == "hello"
        else:
            with pytest.raises(Denied):
                only(world, "slack").receive(hook)


def test_slack_the_library_and_we_make_the_same_call(world):
    web = pytest.importorskip("slack_sdk.web")

    def theirs(address):
        client = web.WebClient("xoxb-test", base_url=f"{address}/api/", timeout=GIVES_UP_S)
        return client.chat_postMessage(channel="D1", text="good day", thread_ts="1.2")

    async def ours():
        channel = only(world, "slack")
        await channel.send(Outgoing(address=Address(chat="D1", thread="1.2"), text="good day", token="x"))
        await channel.close()

    with served(world.slack) as address:
        assert theirs(address)["ok"]
    run(ours())
    one, two = world.slack.sent
    assert {**one, "ts": ""} == {**two, "ts": ""}


@pytest.mark.filterwarnings("ignore")
def test_feishu_the_library_opens_what_our_platform_seals_and_signs(world):
    pytest.importorskip("lark_oapi")
    from lark_oapi.core.model import RawRequest
    from lark_oapi.core.utils import AESCipher
    from lark_oapi.event.dispatcher_handler import EventDispatcherHandler

    heard = []
    dispatcher = EventDispatcherHandler.builder("encrypt", "verify").register_p2_im_message_receive_v1(heard.append)
    headers, body = world.feishu.sealed(world.feishu.event("hello"))
    request = RawRequest()
    request.uri, request.body = "/", body
    names = ("X-Lark-Request-Timestamp", "X-Lark-Request-Nonce", "X-Lark-Signature")
    request.headers = {name: headers[name.lower()] for name in names}
    answer = dispatcher.build().do(request)
    assert answer.status_code == 200, answer.content
    assert json.loads(heard[0].event.message.content) == {"text": "hello"}
    # And what the library decrypts, we decrypt.
    sealed = json.loads(body)["encrypt"]
    from turnlog.channels.platforms.feishu import decrypt

    assert AESCipher("encrypt").decrypt_str(sealed) == decrypt("encrypt", sealed).decode()
    [arrival] = only(world, "feishu").receive(Hook(headers=headers, body=body, now_s=time.time())).arrivals
    assert arrival.inbound.text == "hello"


@pytest.mark.filterwarnings("ignore")
def test_feishu_the_library_and_we_make_the_same_call(world):
    lark = pytest.importorskip("lark_oapi")
    from lark_oapi.api.im.v1 import CreateMessageRequest, CreateMessageRequestBody

    with served(world.feishu) as address:
        client = lark.Client.builder().app_id("cli_a").app_secret("app-secret").domain(address).build()
        body = CreateMessageRequestBody.builder().receive_id("oc_1").msg_type("text")
        body = body.content(json.dumps({"text": "good day"})).uuid("u1").build()
        request = CreateMessageRequest.builder().receive_id_type("chat_id").request_body(body).build()
        answer = client.im.v1.message.create(request)
        assert answer.success(), answer.msg

    async def ours():
        channel = only(world, "feishu")
        await channel.send(Outgoing(address=Address(chat="oc_1"), text="good day", token="u2"))
        await channel.close()

    run(ours())
    one, two = world.feishu.sent
    assert {name: one[name] for name in ("text", "where", "msg_type", "receive_id")} == {
        name: two[name] for name in ("text", "where", "msg_type", "receive_id")
    }


def test_webhooks_signed_by_the_standards_library_are_taken_and_ours_verified_by_it(world):
    standard = pytest.importorskip("standardwebhooks")
    signer = standard.Webhook(SECRET)
    body = json.dumps({"text": "hello", "sender_id": "ann"})
    moment = datetime.now(UTC)
    headers = {
        "webhook-id": "msg_1",
        "webhook-timestamp": str(int(moment.timestamp())),
        "webhook-signature": signer.sign("msg_1", moment, body),
    }

    async def main():
        channel = only(world, "webhook")
        [arrival] = channel.receive(Hook(headers=headers, body=body.encode(), now_s=time.time())).arrivals
        assert arrival.inbound.dedupe_id == "msg_1"
        await channel.send(OUT)
        await channel.close()

    run(main())
    [call] = world.webhook.calls
    assert signer.verify(call.body, dict(call.headers))["text"] == "good day"


@pytest.mark.filterwarnings("ignore")
def test_discord_the_library_brings_messages_from_a_gateway_and_each_is_answered_once(url, world):
    pytest.importorskip("discord")
    from tests.channels.platforms.discord_gateway import gateway

    async def main():
        async with gateway(world.discord) as address:
            settings = world.settings("discord", api_url=address, answer="always")
            world.discord.address = address
            async with desk(url, DirectWorld(world), settings, start=True) as d:
                await world.discord.connected.wait()
                messages = [
                    world.discord.message("hello"),
                    world.discord.message("<@77> in a guild", guild="1", channel="50"),
                    world.discord.message("in a thread", guild="1", channel="60"),
                    world.discord.message("in a guild nobody told us of", guild="2", channel="70"),
                    world.discord.message("from a bot", author={"id": "99", "username": "b", "bot": True}),
                ]
                for message in (*messages, messages[0]):
                    await world.discord.bring(message)
                while len(world.discord.sent) < 4:  # noqa: ASYNC110 - it has no event
                    await asyncio.sleep(0.05)
                await d.settled()
                assert sorted(await d.users()) == [
                    ("agent:main:discord:direct:31", "hello"),
                    ("agent:main:discord:group:50", "[Ann] in a guild"),
                    ("agent:main:discord:group:50:thread:60", "[Ann] in a thread"),
                    ("agent:main:discord:group:70", "[Ann] in a guild nobody told us of"),
                ]
                assert sorted(m["where"] for m in world.discord.sent) == ["50", "60", "70", "900"]

    run(main())
