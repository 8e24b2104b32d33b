"""Several terminals in one session, and what each sees of the others."""

import json

from .running import run, script
from .terminals import terminal


def test_two_terminals_of_one_session_see_each_others_messages(tmp_path):
    answers = script(tmp_path, {"text": "answer **one**"}, {"text": "answer two"}, {"text": "answer three"})
    flags = ("chat", "--model", answers)
    with terminal(*flags, home=tmp_path) as here, terminal(*flags, home=tmp_path) as there:
        here.prompt()
        there.prompt()
        here.type("half a thought")
        here.see("You > half a thought")
        there.say("said over there")
        here.see("elsewhere > said over there", "answer one")
        assert here.text.count("answer one") == 1
        here.type(" goes on\r")
        here.see("answer two")
        there.see("elsewhere > half a thought goes on", "answer two")
        there.say("and once more")
        here.see("elsewhere > and once more", "answer three")
        there.see("answer three")
        for screen in (here, there):
            for said in ("answer one", "answer two", "answer three"):
                assert screen.text.count(said) == 1, screen.text
        assert "elsewhere > half a thought" not in here.text
        assert "elsewhere > said over there" not in there.text


def test_what_is_typed_stays_at_the_prompt_while_others_speak(tmp_path):
    answers = script(tmp_path, {"text": "to the script"}, {"text": "to the person"})
    with terminal("chat", "--model", answers, home=tmp_path) as t:
        t.prompt()
        t.type("my own words")
        t.see("You > my own words")
        assert run("chat", "-p", "from a script", "--model", answers, home=tmp_path).returncode == 0
        t.see("elsewhere > from a script", "to the script")
        t.wait(lambda: "You > my own words" in t.lines, "the words at the prompt")
        assert t.lines.index("You > my own words") > t.lines.index("  to the script")
        t.type("\r")
        t.see("to the person")
    entries = json.loads(run("sessions", "show", "main:cli:user", "--json", home=tmp_path).stdout)["entries"]
    assert [entry["content"] for entry in entries if entry["type"] == "user"] == ["from a script", "my own words"]


def test_escape_sequences_of_others_stay_words(tmp_path):
    answers = script(tmp_path, {"text": "evil \x1b]0;owned\x07 answer"})
    with terminal("chat", "--model", answers, home=tmp_path) as t:
        t.prompt()
        run("chat", "-p", "look \x1b[2J here", "--model", answers, home=tmp_path)
        t.see("elsewhere > look ␛[2J here", "evil ␛]0;owned␇ answer")
        assert t.screen.title == ""
        assert "\x1b]0" not in t.raw


def test_a_chat_that_was_switched_away_hears_its_new_session_only(tmp_path):
    run("chat", "-p", "one", "--new", "--label", "old", home=tmp_path)
    with terminal("chat", "--new", "--label", "new", home=tmp_path) as t:
        t.prompt()
        t.say("/switch old")
        run("chat", "-p", "into the new one", "--session", "new", home=tmp_path)
        run("chat", "-p", "into the old one", "--session", "old", home=tmp_path)
        t.see("elsewhere > into the old one")
        assert "into the new one" not in t.text
