"""A request that names a trace: the turn or the call it causes is a part of that trace, on every route."""

import asyncio

import httpx
import pytest

from tests.spans import Spans
from tests.waiting import until
from turnlog.server.app import create_app
from turnlog.server.main import open_service
from turnlog.turns import genai_names as names

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
HI = {"model": "agent:main", "messages": [{"role": "user", "content": "a secret"}]}


@pytest.fixture(scope="module")
def spans():
    return Spans()


ROUTES = (
    ("/api/agents/main/chat", {"message": "a secret"}, {}, {"invoke_agent main", "chat offline"}),
    ("/v1/chat/completions", HI, {}, {"invoke_agent main", "chat offline"}),
    ("/v1/chat/completions", {**HI, "model": "default"}, {}, {"chat offline"}),
    ("/v1/chat/completions", {**HI, "model": "default"}, {"Turnlog-Store": "none"}, set()),
    ("/v1/chat/completions", HI, {"Turnlog-Store": "none"}, set()),
    ("/v1/messages", {**HI, "model": "default", "max_tokens": 99}, {}, {"chat offline"}),
)
"""(path, body, headers, the spans that it causes)"""


@pytest.mark.filterwarnings("ignore:.*deprecated inferred style")
@pytest.mark.parametrize("parent", [f"00-{TRACE}-{CALLER}-01", "00-nonsense", None])
def test_traceparent_is_honoured_and_what_is_not_stored_leaves_no_trace(spans, tmp_path, parent):
    async def main():
        async with open_service(home=tmp_path, model_name="offline", store_durability="os") as (_, service):
            _, token = await service.tokens.create("ann", ["chat"])
            own = {"Authorization": f"Bearer {token}", **({"traceparent": parent} if parent else {})}
            transport = httpx.ASGITransport(create_app(service), client=("127.0.0.1", 5))
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=own) as client:
                for path, body, headers, told in ROUTES:
                    spans.clear()
                    answer = await client.post(path, json=body, headers=headers)
                    assert answer.status_code == 200, answer.text
                    await until(lambda told=told: {span.name for span in spans()} >= told)
                    check(spans(), told, parent)

    asyncio.run(main())


def check(spans, told, parent):
    assert {span.name for span in spans} == told
    assert "secret" not in str([span.to_json() for span in spans])
    top = [span for span in spans if not span.parent or f"{span.parent.span_id:016x}" == CALLER]
    assert len(top) == (1 if told else 0)
    for span in spans:
        assert (f"{span.context.trace_id:032x}" == TRACE) == (parent is not None and TRACE in parent)
        assert span.attributes[names.CONVERSATION]
