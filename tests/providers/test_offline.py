"""The offline model answers from its prompt and from nothing else: it shows what a real one would have been shown."""

import asyncio
import time

import pytest
from msgspec.structs import replace

from tests.prompts import of_transcript
from turnlog import ContextOverflow
from turnlog.core import compaction, summaries, tokens
from turnlog.core.compaction import Keep
from turnlog.core.entries import Compaction
from turnlog.core.history import INJECTS
from turnlog.core.overflow import classify
from turnlog.core.prompt import Prompt, ToolDefinition
from turnlog.providers.offline import WINDOW, OfflineProvider, size_of
from turnlog.testing import answered, check_messages, entry, opened, said


def tool(name, *fields):
    return ToolDefinition(name=name, input_schema={"type": "object", "properties": {field: {} for field in fields}})


TOOLS = (
    tool("read_file", "path"),
    tool("list_dir", "path"),
    tool("write_file", "path", "content"),
    tool("search_history", "words"),
)


def answer(*texts, **fields):
    """Texts of user and model in turn, the last one to be answered."""
    roles = ("user", "assistant")
    messages = [{"role": roles[n % 2], "content": text} for n, text in enumerate(texts)]
    return answer_to(Prompt(system=fields.pop("system", ""), messages=messages, **fields))


def answer_to(prompt, **options):
    check_messages(prompt.messages)

    async def go():
        return [piece async for piece in OfflineProvider(**options).stream(prompt)]

    *deltas, last = asyncio.run(go())
    assert "".join(delta.text for delta in deltas) == text_of(last)
    return last


def text_of(reply):
    return "".join(block["text"] for block in reply.content if block["type"] == "text")


def call_of(reply):
    call = next(block for block in reply.content if block["type"] == "tool_use")
    return call["name"], call["input"]


def test_the_first_answer_says_what_it_is_and_later_ones_do_not():
    assert "Turnlog's offline model" in text_of(answer("hello"))
    assert "offline model" not in text_of(answer("hello", "hi", "hello again"))
    assert "离线模型" in text_of(answer("你好"))
    assert "offline model" in text_of(answer("hello", "hi", "who are you?"))


@pytest.mark.parametrize(
    ("told", "asked", "wanted"),
    [
        ("my name is Ada", "what is my name?", "my name is Ada"),
        ("The deploy key is XK-42.7b, keep it.", "What is the deploy key?", "XK-42.7b"),
        ("We put the backup on the blue disk.", "Where did we put the backup?", "blue disk"),
        ("The flag is --fast-sync.", "what did I say about the flag?", "--fast-sync"),
        ("我叫小明。", "我叫什么名字？", "我叫小明"),
        ("我的生日是5月3日", "我的生日是哪天？", "生日是5月3日"),
        ("服务器在东京机房", "你记得东京吗？", "服务器在东京机房"),
    ],
)
def test_what_was_said_is_found_and_what_was_not_is_missing(told, asked, wanted):
    assert wanted in text_of(answer("hello", "hi", told, "I see.", "And the weather is fine", "Yes.", asked))
    missing = text_of(answer("hello", "hi", "And the weather is fine", "Yes.", asked))
    assert wanted not in missing
    assert "cannot find" in missing or "没有" in missing


def test_the_newest_word_on_a_thing_counts():
    assert "Bob" in text_of(answer("my name is Ada", "a", "no, my name is Bob", "b", "what is my name?"))


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ("how many messages do you see?", "5 messages (3 yours, 2 mine)"),
        ("你看到多少条消息？", "5 条消息"),
        ("something else", "You said: “something else”"),
    ],
)
def test_it_can_say_what_it_sees(asked, wanted):
    assert wanted in text_of(answer("alpha", "one", "beta", "two", asked))


@pytest.mark.parametrize(
    ("asked", "name", "arguments"),
    [
        ("read notes.txt", "read_file", {"path": "notes.txt"}),
        ("Please read the file `src/a.py`.", "read_file", {"path": "src/a.py"}),
        ("list", "list_dir", {"path": "."}),
        ("list files", "list_dir", {"path": "."}),
        ("list the files in src/turnlog", "list_dir", {"path": "src/turnlog"}),
        ("write hello to you to out/a.txt", "write_file", {"path": "out/a.txt", "content": "hello to you"}),
        ("search history for payment 42", "search_history", {"words": "payment 42"}),
        ('call read_file {"path": "a b"}', "read_file", {"path": "a b"}),
        ("call list_dir", "list_dir", {}),
        ("读取 notes.txt", "read_file", {"path": "notes.txt"}),
        ("列出文件", "list_dir", {"path": "."}),
        ("把 你好 写入 a.txt", "write_file", {"path": "a.txt", "content": "你好"}),
        ("搜索历史 支付", "search_history", {"words": "支付"}),
    ],
)
def test_a_tool_is_called_when_it_is_asked_for_and_offered(asked, name, arguments):
    reply = answer("hi", "hello", asked, tools=TOOLS)
    assert call_of(reply) == (name, arguments)
    assert reply.stop == "tool_use"
    for fields in ({}, {"tools": TOOLS, "may_call": False}):
        refused = answer("hi", "hello", asked, **fields)
        assert refused.stop == "end_turn"
        assert name in text_of(refused)


@pytest.mark.parametrize("asked", ["list the reasons", "I read a book", "call read_file {x", "call read_file [1]"])
def test_what_is_no_request_for_a_tool_calls_none(asked):
    assert answer("hi", "hello", asked, tools=TOOLS).stop == "end_turn"


def test_calls_of_one_session_have_ids_of_their_own_and_the_same_prompt_gives_the_same():
    ids = [
        answer(*asked, tools=TOOLS).content[-1]["id"]
        for asked in (["list"], ["list"], ["list", "done", "list"], ["list", "done", "list", "done", "list"])
    ]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3


def with_result(content, *more, **fields):
    call = answer("read notes.txt", tools=TOOLS)
    result = {"type": "tool_result", "tool_use_id": call.content[-1]["id"], "content": content, **fields}
    messages = [
        {"role": "user", "content": "read notes.txt"},
        {"role": "assistant", "content": call.content},
        {"role": "user", "content": [result, *more]},
    ]
    return answer_to(Prompt(system="", messages=messages, tools=TOOLS))


def test_after_a_result_it_says_what_it_was():
    assert text_of(with_result("milk, eggs")) == "The tool gave:\nmilk, eggs"
    assert "The tool failed: no such file" in text_of(with_result("no such file", is_error=True))
    assert len(text_of(with_result("x" * 9_000))) < 1_000
    both = text_of(with_result("milk", {"type": "text", "text": "what notes?"}))
    assert "milk" in both
    assert "“read notes.txt”" in both


def test_an_image_is_admitted_not_to_be_seen():
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    reply = answer_to(Prompt(system="", messages=[{"role": "user", "content": [image]}]))
    assert "cannot see images" in text_of(reply)
    assert reply.usage["input_tokens"] > tokens.IMAGE_TOKENS


def test_it_reports_usage_and_overflows_in_the_words_of_a_real_provider():
    usage = answer("hello").usage
    assert usage["input_tokens"] == pytest.approx(tokens.estimate([{"role": "user", "content": "hello"}]), abs=3)
    assert usage["output_tokens"] > 10
    assert OfflineProvider().window == WINDOW == 8_000
    with pytest.raises(ContextOverflow) as caught:
        answer_to(Prompt(system="", messages=[{"role": "user", "content": "word " * 9_000}]))
    assert caught.value.window == 8_000
    assert caught.value.tokens > 8_000
    verdict = classify(status=400, text=str(caught.value))
    assert (verdict.kind, verdict.tokens, verdict.window) == ("overflow", caught.value.tokens, 8_000)
    with pytest.raises(ContextOverflow):
        asyncio.run(
            OfflineProvider(window=1_000).summarise(
                Prompt(system="", messages=[{"role": "user", "content": "a b " * 2_000}])
            )
        )


def test_an_answer_stops_where_it_must():
    hello = Prompt(system="", messages=[{"role": "user", "content": "hello"}])
    short = answer_to(hello, max_output=5)
    assert short.stop == "max_tokens"
    assert short.usage["output_tokens"] <= 12
    full = answer_to(hello, window=20)
    assert full.stop == "model_context_window_exceeded"


def test_two_thousand_messages_are_answered_in_milliseconds():
    text = "message about the deploy of payment.py and what happened next "
    messages = [{"role": ("user", "assistant")[n % 2], "content": f"{n} {text}"} for n in range(2_000)]
    for asked in ("hi", "what is my zebra?", "where is the zebra of payment?", "summarise", "remember zebra"):
        prompt = Prompt(system="", messages=[*messages, {"role": "user", "content": asked}])
        took: list[float] = []
        for _ in range(5):
            begun = time.thread_time()
            answer_to(prompt, window=1_000_000)
            took.append(time.thread_time() - begun)
        assert min(took) < 0.2, asked  # 20 ms on a quiet machine, with the loop and check_messages around it


def numbered(*bodies):
    return [replace(body, seq=seq) for seq, body in enumerate(bodies, 1)]


def summary_of(plan, *, words=500, window=100_000):
    ask = summaries.ask(plan.fold, plan.view, previous=plan.previous.summary if plan.previous else "", words=words)
    prompt = Prompt(system=ask.system, messages=[{"role": "user", "content": ask.text}])
    return asyncio.run(OfflineProvider(window=window).summarise(prompt))


LONG = [
    said("My name is Ada. Please fix /srv/app/payment.py, ticket PAY-10442. Always run the tests first."),
    answered("I read /srv/app/payment.py. The lock is taken twice."),
    said("We decided to use https://example.test/locks?id=7 as the reference. Next we deploy build 20260501."),
    entry(type="assistant", content=[{"type": "tool_use", "id": "c", "name": "read_file", "input": {"path": "a.txt"}}]),
    entry(type="tool_result", tool_use_id="c", content="no such file", is_error=True),
    answered("There is no a.txt. Commit 9f8e7d6c is ready."),
    said("Which branch was it?"),
    answered("release-2026-05"),
]


def test_a_summary_keeps_identifiers_under_the_headings_and_counts():
    plan = compaction.plan(numbered(opened("s"), *LONG, said("now")), Keep("from_last_user"))
    summary = summary_of(plan)
    assert summaries.refusal(plan, summary) == ""
    assert len(summary.split()) <= 500
    for name in ("/srv/app/payment.py", "PAY-10442", "https://example.test/locks?id=7", "20260501", "9f8e7d6c"):
        assert name in summary
    headings = [line[3:] for line in summary.splitlines() if line.startswith("## ")]
    assert headings == [section for section in summaries.SECTIONS if section in headings]
    assert "- My name is Ada." in summary
    assert "blocked: no such file" in summary
    assert summary == summary_of(plan)


@pytest.mark.parametrize("words", [60, 120, 500])
def test_a_summary_keeps_to_the_words_and_is_shorter_than_what_it_replaces(words):
    bodies = [
        body
        for n in range(120)
        for body in (said(f"Please look at job-{n:05}x and tell me. " * 3), answered("Done. " * 9))
    ]
    plan = compaction.plan(numbered(opened("s"), *bodies, said("now")), Keep("from_last_user"))
    summary = summary_of(plan, words=words)
    assert len(summary.split()) <= words
    assert summaries.refusal(plan, summary) == ""


def test_chinese_and_foreign_requests_are_summarised_too():
    bodies = [
        body for n in range(60) for body in (said(f"请检查第{n}个文件,记住密码是甲乙丙{n}。"), answered("好的。"))
    ]
    plan = compaction.plan(numbered(opened("s"), *bodies, said("now")), Keep("from_last_user"))
    summary = summary_of(plan, words=100)
    assert "记住密码" in summary
    assert len(summary) < 600
    other = Prompt(system="", messages=[{"role": "user", "content": "Sum up: see /etc/app/x.yml. All is well."}])
    assert "/etc/app/x.yml" in asyncio.run(OfflineProvider().summarise(other))


def test_the_summary_so_far_is_carried_over_again_and_again():
    transcript = numbered(opened("s"), *LONG, said("go on"), answered("ok"))
    for n in range(6):
        plan = compaction.plan(transcript, Keep("turns", 1))
        summary = summary_of(plan)
        assert summaries.refusal(plan, summary) == ""
        assert "My name is Ada." in summary
        assert "PAY-10442" in summary
        assert summary.count("## Goal") == 1
        body = Compaction(summary=summary, first_kept=plan.first_kept, covers=plan.covers)
        more = (said(f"Look at part {n}, please."), answered("I looked."))
        transcript = numbered(*transcript, body, *more)


def test_however_often_it_compacts_new_statements_find_room_and_the_summary_does_not_grow():
    transcript = numbered(opened("s"), *LONG, said("go on"), answered("ok"))
    for n in range(40):
        more = (said(f"The value of setting number {n} is amber-{n}. " + "This is a remark without any weight. " * 30),
                answered("Noted."), said("go on"), answered("ok"))  # fmt: skip
        transcript = numbered(*transcript, *more)
        plan = compaction.plan(transcript, Keep("turns", 1))
        summary = summary_of(plan, words=200)
        assert f"amber-{n}." in summary
        assert "My name is Ada." in summary
        assert len(summary.split()) <= 200
        assert summaries.refusal(plan, summary) == ""
        transcript = numbered(*transcript, Compaction(summary=summary, first_kept=plan.first_kept, covers=plan.covers))


def test_a_digest_made_without_a_model_is_carried_over_too():
    plan = compaction.plan(numbered(opened("s"), *LONG, said("now")), Keep("from_last_user"))
    digest = Compaction(summary=summaries.digest(plan, 4_000), first_kept=plan.first_kept, covers=plan.covers)
    transcript = numbered(*plan.transcript, digest, answered("yes"), said("and"), answered("so"), said("on"))
    again = compaction.plan(transcript, Keep("from_last_user"))
    assert "My name is Ada" in summary_of(again)


@pytest.mark.parametrize("inject", INJECTS)
def test_after_a_compaction_it_knows_what_the_summary_and_the_pins_hold(inject):
    transcript = numbered(opened("s"), *LONG, said("The door code is 4711-K."), answered("ok"), said("now"))
    plan = compaction.plan(transcript, Keep("from_last_user"))
    body = Compaction(summary=summary_of(plan), first_kept=plan.first_kept, covers=plan.covers)
    pin = entry(type="pin", target=10)
    after = numbered(*transcript, body, pin, answered("Go on."), said("what is my name?"))
    reply = text_of(answer_to(of_transcript(after, inject=inject)))
    assert reply == "In the summary of the earlier part I see: “My name is Ada.”"
    door = numbered(*after[:-1], said("What is the door code?"))
    assert "In a pinned message I see: “The door code is 4711-K.”" in text_of(
        answer_to(of_transcript(door, inject=inject))
    )
    forgetful = numbered(*transcript, Compaction(summary="-", first_kept=plan.first_kept, covers=plan.covers),
                         answered("Go on."), said("what is my name?"))  # fmt: skip
    assert "cannot find" in text_of(answer_to(of_transcript(forgetful, inject=inject)))


@pytest.mark.parametrize("size", [0, 1, 2, 9, 40])
def test_it_reports_the_size_that_the_estimate_has(size):
    texts = ["word " * (7 * n % 300 + 1) + f"{n} 我说 été" for n in range(size)]
    turns = [("user", "assistant")[n % 2] for n in range(size)]
    blocks = [{"type": "tool_result", "tool_use_id": "x", "content": "found"}, {"type": "text", "text": "and"}]
    for last in ("asked", [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}], blocks):
        messages = [{"role": role, "content": text} for role, text in zip(turns, texts, strict=True)]
        messages.append({"role": "user", "content": last})
        assert size_of(messages) == tokens.of_messages(messages)
