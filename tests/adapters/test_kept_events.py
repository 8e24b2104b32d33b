"""Kept events: the same answers as events that are made each time, for the caller alone, within bounds."""

import pytest

pytest.importorskip("google.adk")

from google.adk.events import Event
from google.genai.types import Content, Part

from turnlog.adapters.google_adk import TurnlogSessionService
from turnlog.adapters.kept_events import EVENT_BYTES, KeptEvents

WHO = {"app_name": "a", "user_id": "u", "session_id": "s"}


def said(text, number=1):
    event = Event(id=f"e{number}", author="user", content=Content(role="user", parts=[Part(text=text)]), timestamp=1.5)
    return event.model_dump(mode="json", exclude_none=True)


class Making:
    def __init__(self):
        self.made = 0

    def __call__(self, event):
        self.made += 1
        return Event.model_validate(event)


def kept(**bounds):
    make = Making()
    return KeptEvents(make, **bounds), make


def test_events_that_were_asked_for_twice_are_not_made_again_and_equal_new_ones():
    events, make = kept()
    stored = [said("one"), said("two", 2)]
    for _ in range(4):
        assert events.events("s", stored) == [Event.model_validate(one) for one in stored]
    assert make.made == 4
    longer = [*stored, said("three", 3)]
    assert [one.content.parts[0].text for one in events.events("s", longer)] == ["one", "two", "three"]
    assert make.made == 5


def test_a_caller_that_changes_an_event_changes_no_other_answer():
    events, _ = kept()
    metadata = {"x": {"y": []}}
    stored = said("one") | {"actions": {"state_delta": {"list": [1, {"deep": [2]}]}}, "custom_metadata": metadata}
    for _ in range(3):
        (event,) = events.events("s", [stored])
        assert event.content.parts[0].text == "one"
        assert event.actions.state_delta == {"list": [1, {"deep": [2]}]}
        event.actions.state_delta["list"][1]["deep"].append(3)
        event.custom_metadata["x"]["y"].append(4)
        event.content.parts[0].text = "changed"
        event.content.parts.append(Part(text="more"))
        event.actions.state_delta["x"] = 1
    assert metadata == {"x": {"y": []}}


def test_an_event_whose_words_or_types_have_changed_is_made_anew():
    events, _ = kept()
    for value in (1, 1.0, True, "1", None):
        stored = said("one") | {"custom_metadata": {"x": value}}
        for _ in range(3):
            (event,) = events.events("s", [stored])
            assert event.custom_metadata["x"] == value
            assert type(event.custom_metadata["x"]) is type(value)
    assert len(events._sessions["s"]) == 1  # what was before is not kept


def test_an_event_without_id_or_with_half_a_character_is_made_each_time():
    events, make = kept()
    stored = [said("one") | {"id": ""}, said("\ud800", 2)]
    found = [events.events("s", stored[:1])[0].id for _ in range(3)]
    assert len({*found}) == 3
    for _ in range(3):
        assert events.events("t", stored[1:]) == [Event.model_validate(stored[1])]
    assert make.made == 6


def test_the_session_that_was_not_used_for_the_longest_time_is_forgotten_first():
    events, make = kept(most=8 * EVENT_BYTES, session_most=4 * EVENT_BYTES)
    for name in ("a", "a", "b", "b", "a", "c", "c"):
        events.events(name, [said(name)])
    assert list(events._sessions) == ["b", "a", "c"]
    events.events("d", [])
    events.events("e", [])
    assert list(events._sessions) == ["a", "c", "d", "e"]
    made = make.made
    events.events("a", [said("a")])
    assert make.made == made
    many = [said(str(n), n) for n in range(9)]
    for _ in range(3):
        assert len(events.events("f", many)) == 9
    assert make.made == made + 27  # larger than a session may be
    for name in list(events._sessions):
        events.forget(name)
    assert events._size == 0


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_service_answers_what_is_stored_after_others_wrote_or_it_was_deleted(tmp_path):
    url = f"sqlite:{tmp_path}/s.db"
    ours, other = TurnlogSessionService(url), TurnlogSessionService(url)
    session = await ours.create_session(**WHO)
    for n in range(4):
        await ours.append_event(session, Event.model_validate(said(f"text {n}", n)))
        for _ in range(2):
            found = await ours.get_session(**WHO)
            assert found.events == (await TurnlogSessionService(url).get_session(**WHO)).events
        session = await other.get_session(**WHO)
        await other.append_event(session, Event.model_validate(said(f"more {n}", 10 + n)))
        session = await ours.get_session(**WHO)
        assert len(session.events) == 2 * n + 2
    await ours.delete_session(**WHO)
    await ours.create_session(**WHO)
    assert (await ours.get_session(**WHO)).events == []
    await ours.close()
    await other.close()
