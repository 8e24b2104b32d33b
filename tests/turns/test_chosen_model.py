"""A model that was chosen for a session: it answers from the next turn on, in every process that offers it."""

import asyncio
import json

import pytest

import turnlog
from turnlog.core.entries import ModelChoice
from turnlog.core.names import ROW_TEXT_MAX_CHARS
from turnlog.core.principals import Principal
from turnlog.errors import Denied, NotFound, UsageError
from turnlog.stores import open_store

KEY = "agent:main:web:direct:ann"


class Place:
    """A home with two scripted models; each opening is a new start of the program."""

    def __init__(self, home):
        self.home = home
        self.small = self.model("small", "small says so")
        self.large = self.model("large", "large says so")

    def model(self, name, text):
        path = self.home / f"{name}.jsonl"
        usage = {"input_tokens": 40, "output_tokens": 7}
        path.write_text("\n".join(json.dumps({"text": f"{text} {n}", "usage": usage}) for n in range(20)))
        return f"scripted:{path}"

    def open(self, **settings):
        given = {"model_name": self.small, "model_choices": [self.large], **settings}
        return turnlog.open("sqlite:" + str(self.home / "s.db"), home=self.home, **given)


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def started(place, steps, **settings):
    async def main():
        async with place.open(**settings) as t:
            return await steps(t)

    return asyncio.run(main())


async def models_of(t, where):
    entries = await t.sessions.read((await t.session(where)).id)
    return [entry.model for entry in entries if isinstance(entry, turnlog.Assistant)]


def test_it_answers_from_the_next_turn_on_and_after_a_restart(place):
    async def choose(t):
        chat = t.session(KEY)
        assert t.models("main") == ("scripted:small.jsonl", "scripted:large.jsonl")
        assert "small" in await chat.ask("who are you?")
        await chat.choose_model("scripted:large.jsonl")
        assert "large" in await chat.ask("and now?")
        assert (await t.model_of(KEY)).name == "scripted:large.jsonl"

    async def later(t):
        chat = await t.session(KEY)
        assert chat.model == "scripted:large.jsonl"
        assert "large" in await chat.ask("still?")
        await chat.choose_model("")
        assert "small" in await chat.ask("and back?")
        used = {use.model for use in (await t.session(KEY)).row.used}
        assert used == {"scripted:small.jsonl", "scripted:large.jsonl"}

    started(place, choose)
    started(place, later)


def test_choosing_the_same_again_writes_nothing_and_its_own_name_means_the_agents_own(place):
    async def steps(t):
        chat = await t.session(KEY)
        end = (await chat.choose_model("scripted:large.jsonl")).last_seq
        assert (await chat.choose_model("scripted:large.jsonl")).last_seq == end
        assert (await chat.choose_model("scripted:small.jsonl")).model == ""
        assert (await chat.choose_model("")).last_seq == end + 1

    started(place, steps)


def test_a_handle_by_id_knows_what_was_chosen_since_it_was_opened(place):
    async def steps(t):
        chat = await t.session(id=(await t.sessions.new(KEY)).id)
        await chat.choose_model("offline")
        assert (await t.model_of(chat)).name == "offline"
        assert (await t.limits(chat)).window == 8_000
        assert (await chat.choose_model("")).model == ""
        assert (await t.sessions.get(chat.id)).model == ""
        assert "small" in await chat.ask("who are you?")

    started(place, steps, model_choices=["offline"])


def test_what_the_settings_do_not_offer_is_refused_and_nothing_is_stored(place):
    async def steps(t):
        chat = await t.session(KEY)
        with pytest.raises(UsageError, match="does not offer") as caught:
            await chat.choose_model("scripted:/etc/passwd")
        assert "scripted:large.jsonl" in caught.value.hint
        assert (await t.session(KEY)).last_seq == chat.last_seq

    started(place, steps)


def test_a_model_that_is_not_offered_any_more_is_replaced_by_the_agents_own_and_told(place):
    async def choose(t):
        await t.session(KEY).choose_model("scripted:large.jsonl")

    async def later(t):
        events = [event async for event in t.send(KEY, "hello?")]
        stages = [event.stage for event in events if event.type == "guard"]
        assert stages == ["model: scripted:large.jsonl"]
        assert events[-1].type == "done"
        assert await models_of(t, KEY) == ["scripted:small.jsonl"]
        assert (await t.model_of(KEY)).name == "scripted:small.jsonl"

    started(place, choose)
    started(place, later, model_choices=[])


def test_a_log_cannot_name_a_model_that_the_settings_do_not_name(place):
    """As an import or a copy of another store may hold it."""
    secret = place.model("secret", "never")

    async def steps(t):
        row = await t.sessions.new(KEY)
        for name in (secret, "scripted:secret.jsonl", "anthropic:most-expensive", "x" * 100_000, "\x00\ud800"):
            await t.store.append(row.id, [ModelChoice(model=name)])
            found = await t.sessions.get(row.id)
            assert len(found.model) <= ROW_TEXT_MAX_CHARS
            assert "small" in await t.ask(found, "who answers?")
        assert set(await models_of(t, row)) == {"scripted:small.jsonl"}

    started(place, steps)


def test_an_agents_own_list_replaces_the_common_one(place):
    agents = {"plain": {"models": []}, "other": {"model": place.large, "models": [place.small]}}

    async def steps(t):
        assert t.models("plain") == ("scripted:small.jsonl",)
        assert t.models("other") == ("scripted:large.jsonl", "scripted:small.jsonl")
        other = t.session("agent:other:web:direct:ann")
        assert "large" in await other.ask("hello")
        await other.choose_model("scripted:small.jsonl")
        assert "small" in await other.ask("hello")

    started(place, steps, agents=agents)


def test_a_misspelt_choice_is_an_error_of_the_settings_that_names_it(place):
    with pytest.raises(UsageError, match=r"agents\.main\.models: 'claud' is not a known model"):
        started(place, None, agents={"main": {"models": ["claud"]}})


def test_only_those_who_may_write_in_a_session_choose_its_model(place):
    async def steps(t):
        row = await t.sessions.new(KEY)
        ann = t.acting_for(Principal("ann"))
        assert (await ann.choose_model(row, "scripted:large.jsonl")).model == "scripted:large.jsonl"
        with pytest.raises(NotFound):
            await t.acting_for(Principal("bob")).choose_model(row.id, "")
        with pytest.raises(Denied):
            await t.acting_for(Principal("eve", frozenset({"read"}))).choose_model(row.id, "")
        with pytest.raises(NotFound):
            t.acting_for(Principal("eve", agents=frozenset({"other"}))).models("main")

    started(place, steps)


def test_the_window_of_the_chosen_model_counts_for_limits_prompts_and_pins(place):
    async def steps(t):
        before = await t.limits(KEY)
        await t.session(KEY).choose_model("offline")
        after = await t.limits(KEY)
        assert (before.window, after.window) == (128_000, 8_000)
        await t.session(KEY).append({"role": "user", "content": "word " * 1_200})
        row = (await t.session(KEY)).row
        with pytest.raises(UsageError, match="the budget is 800"):
            await t.sessions.pin(row.id, row.last_seq)

    started(place, steps, model_choices=["offline"])


def test_scales_are_learnt_by_the_model_that_answered(place):
    async def steps(t):
        await t.ask(KEY, "hello " * 200)
        await t.session(KEY).choose_model("scripted:large.jsonl")
        await t.ask(KEY, "hello " * 200)
        await t.drain(30)
        await t._parts.runner.calibration.save()
        assert {fact.key for fact in await t.store.ledger.list("scales")} == {
            "scripted:small.jsonl",
            "scripted:large.jsonl",
        }

    started(place, steps)


def test_a_choice_during_a_turn_counts_from_the_next_one(place, tmp_path):
    gate = tmp_path / "gate"
    slow = {"text": "slow small", "deltas": ["slow ", "small"], "until": str(gate)}
    (tmp_path / "small.jsonl").write_text(json.dumps(slow))

    async def steps(t):
        row = await t.sessions.new(KEY)
        ticket = await t.accept(row, "first")
        await ticket.turn
        await t.choose_model(row, "scripted:large.jsonl")
        gate.touch()
        async for _ in ticket.follow():
            pass
        await t.ask(row, "second")
        assert await models_of(t, row) == ["scripted:small.jsonl", "scripted:large.jsonl"]

    started(place, steps)


@pytest.mark.parametrize("how", ["fork", "rewind", "export", "copy"])
def test_it_stays_in_forks_rewinds_exports_and_copies(place, tmp_path, how):
    async def steps(t):
        chat = await t.session(KEY)
        await chat.ask("one")
        end = (await t.session(KEY)).last_seq
        await chat.choose_model("scripted:large.jsonl")
        await chat.ask("two")
        if how == "fork":
            assert (await t.sessions.fork(chat.id)).model == "scripted:large.jsonl"
            assert (await t.sessions.fork(chat.id, at=end)).model == ""
        elif how == "rewind":
            assert (await t.sessions.rewind(chat.id, end)).model == "scripted:large.jsonl"
            assert "large" in await chat.ask("two again")
        elif how == "export":
            assert '"type":"model"' in await chat.export("native")
        else:
            for url in (f"jsonl:{tmp_path / 'files'}", "memory:"):
                async with open_store(url) as target:
                    await turnlog.copy(t.store, target)
                    assert (await target.describe(chat.id)).model == "scripted:large.jsonl"

    started(place, steps)
