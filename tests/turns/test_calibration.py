"""Reports are compared with the request before, if this one continues it."""

import asyncio

from turnlog.core import tokens
from turnlog.core.entries import Assistant
from turnlog.core.guard import Limits
from turnlog.core.prompt import Prompt
from turnlog.stores.in_memory import MemoryStore
from turnlog.turns import calibration
from turnlog.turns.calibration import Calibration, Windows

from .texts import CHINESE

MODEL = "openai:house-model"
PLAIN = "the harbour master kept two ledgers and never showed the second one to anybody. " * 40


def prompt_of(*texts, system="You are terse."):
    return Prompt(system=system, messages=[{"role": "user", "content": text} for text in texts])


def reply(size):
    return Assistant(content="ok", usage={"input_tokens": size})


def learner():
    return Calibration(MemoryStore().ledger)


def learn(learnt, prompt, size, *, session="s", model=MODEL):
    return learnt.learn(session, model, prompt, Limits(window=100_000, scale=tokens.prior(model)), reply(size))


def test_what_was_added_is_learnt_from_and_not_the_constant_beginning():
    learnt = learner()
    first, second = prompt_of(PLAIN * 10), prompt_of(PLAIN * 10, CHINESE[0])
    before = tokens.of_messages(first.messages, system=first.system)
    real = 2 * tokens.of_text(CHINESE[0])
    learn(learnt, first, before)
    scale = learn(learnt, second, before + real)
    assert scale.reports == 2
    assert tokens.of_text(CHINESE[0], scale) > 1.6 * tokens.of_text(CHINESE[0])
    assert tokens.of_text(PLAIN, scale) < 1.4 * tokens.of_text(PLAIN)


def test_a_little_more_is_passed_over_until_it_is_enough(monkeypatch):
    learnt = learner()
    assert learn(learnt, prompt_of(PLAIN), 1_000).reports == 1
    assert learn(learnt, prompt_of(PLAIN, "hi"), 1_005).reports == 1
    assert learn(learnt, prompt_of(PLAIN, "hi", PLAIN), 1_600).reports == 2


def test_later_reports_are_used_one_in_ten():
    learnt = learner()
    used = [learn(learnt, prompt_of(PLAIN), 1_000, session=str(n)).reports for n in range(300)]
    assert used[19] == 20
    assert used[299] == 20 + 28


def test_another_beginning_another_model_or_another_session_is_a_whole_prompt():
    learnt = learner()
    learn(learnt, prompt_of(PLAIN), 800)
    assert learn(learnt, prompt_of(PLAIN, system="You are kind."), 810).reports == 2
    assert learn(learnt, prompt_of("other " + PLAIN), 820).reports == 3
    assert learn(learnt, prompt_of("other " + PLAIN), 820, session="t").reports == 4
    assert learn(learnt, prompt_of("other " + PLAIN), 820, model="openai:other").reports == 1


def test_only_so_many_sessions_are_remembered(monkeypatch):
    monkeypatch.setattr(calibration, "COMPARED_SESSIONS", 2)
    learnt = learner()
    for session in "abc":
        learn(learnt, prompt_of(PLAIN), 800, session=session)
    assert list(learnt._earlier) == ["b", "c"]


def test_a_scale_of_another_family_or_form_is_learnt_again():
    async def main():
        store = MemoryStore()
        learnt = Calibration(store.ledger)
        learn(learnt, prompt_of(PLAIN), 900, model="openai:qwen3-32b")
        await learnt.save()
        kept = await store.ledger.get(calibration.SCALES, "openai:qwen3-32b")
        assert "tokeniser" not in kept or kept["tokeniser"] is None
        assert (await Calibration(store.ledger).of("openai:qwen3-32b")).reports == 1
        await store.ledger.cas(calibration.SCALES, "openai:qwen3-32b", kept, {**kept, "family": "claude"})
        assert await Calibration(store.ledger).of("openai:qwen3-32b") == tokens.prior("openai:qwen3-32b")

    asyncio.run(main())


def test_earlier_requests_are_remembered_up_to_a_number_of_bytes(monkeypatch):
    monkeypatch.setattr(calibration, "COMPARED_BYTES", 5 * len(PLAIN))
    learnt = learner()
    for number in range(8):
        learn(learnt, prompt_of(PLAIN), 1_000, session=f"s{number % 4}")
        learn(learnt, prompt_of(PLAIN, PLAIN), 2_000, session=f"s{number % 4}")
    assert len(learnt._earlier) == 2
    learn(learnt, prompt_of(PLAIN * 9), 9_000)
    assert not learnt._earlier
    assert learnt._bytes == 0


def test_models_that_clients_name_are_not_remembered_for_ever(monkeypatch):
    monkeypatch.setattr(calibration, "MODELS_KEPT", 3)
    store = MemoryStore()
    learnt, windows = Calibration(store.ledger), Windows(store.ledger, lambda: 0)

    async def meet():
        for number in range(5):
            await learnt.of(f"openai:m{number}")
            learn(learnt, prompt_of(PLAIN), 1_000, model=f"openai:m{number}")
            await windows.of(f"m{number}")
        await learnt.save()

    asyncio.run(meet())
    assert list(learnt._scales) == list(learnt._reports) == [f"openai:m{number}" for number in (2, 3, 4)]
    assert len(windows._known) == 3
