"""The chat, driven through a real terminal and read from its screen."""

import asyncio
import json
import os
import re
import time
from pathlib import Path

import pytest

from turnlog.cli.chat import keys
from turnlog.testing import check_messages

from .running import requests, run, script, workspace
from .terminals import terminal


def test_a_new_chat_says_how_to_connect_a_model_and_a_second_one_resumes_it(tmp_path):
    with terminal("chat", home=tmp_path) as first:
        first.prompt()
        first.see("Created session: ses-", "offline model answers", "ANTHROPIC_API_KEY")
        first.say("my cat is called Tom")
        first.say("what is my cat called?")
        first.type("\x04")
        assert first.end() == 0
    [row] = json.loads(run("sessions", "list", "--json", home=tmp_path).stdout)["sessions"]
    with terminal("chat", home=tmp_path) as second:
        second.prompt()
        second.see(f"Resumed session: {row['id']} (my cat is called Tom)  4 messages", "Restored: 2 previous turns")
        assert "ANTHROPIC_API_KEY" not in second.text


def test_sessions_are_made_switched_and_found_by_the_beginning_of_their_label(tmp_path):
    log = tmp_path / "requests.jsonl"
    with terminal("chat", home=tmp_path, TURNLOG_REQUEST_LOG=str(log)) as t:
        t.prompt()
        t.say("/new my-project")
        t.say("the code word is walrus")
        t.say("/new experiments")
        t.say("something else")
        t.say("/switch my-p")
        t.see("Switched to session: ", "(my-project)  2 messages", "walrus")
        t.say("what is the code word?")
        t.say("/new my-other")
        t.say("/switch my-")
        t.see("Ambiguous: my- matches 2 sessions:")
        t.say("/switch nowhere")
        t.see("Session not found: nowhere")
        t.say("/switch")
        t.see("Usage: /switch X")
    last = requests(log)[-1]
    assert "walrus" in json.dumps(last["messages"])
    assert "something else" not in json.dumps(last["messages"])
    for request in requests(log):
        check_messages(request["messages"])


def test_a_refused_message_is_marked_as_left_out_and_sent_again_by_retry(tmp_path):
    refused = {"error": {"status": 400, "code": "content_filter", "message": "The response was filtered"}}
    model = script(tmp_path, refused, {"text": "now I can"})
    with terminal("chat", "--model", model, home=tmp_path) as t:
        t.prompt()
        t.say("odd words")
        t.see("Error: The response was filtered")
        t.say("/history")
        t.see("odd words  --- left out: the model refused it ---")
        t.say("/retry")
        t.see("now I can")
        t.say("/retry")
        t.see("the last turn did not fail")


def test_commands_list_show_refuse_delete_and_never_reach_the_model(tmp_path):
    log = tmp_path / "requests.jsonl"
    with terminal("chat", "--new", "--label", "first", home=tmp_path, TURNLOG_REQUEST_LOG=str(log)) as t:
        t.prompt()
        t.say("hello")
        t.say("/new second")
        t.say("/sessions")
        t.say("/list")
        marked = [line for line in t.lines if re.match(r"\*  ses-", line)]
        assert len(marked) == 2
        assert all("second" in line for line in marked)
        t.say("/delete second")
        t.see("Cannot delete the current session. Switch first.")
        t.say("/SWITCH first")
        t.say("/history")
        t.see("[user] hello", "[assistant] ")
        sent = len(requests(log))
        t.say("/nonsense")
        t.see("Unknown command: /nonsense")
        t.say("/s")
        t.see("/s could be /sessions, /switch, /search, /stop.")
        t.type("/delete second\r")
        t.see("[y/N]")
        t.type("n\r")
        t.see("Nothing was deleted.")
        t.prompt()
        t.type("/delete second\r")
        t.wait(lambda: t.text.count("[y/N]") == 2, "the second question")
        t.type("y\r")
        t.see("Deleted: ")
        t.prompt()
        t.type("QUIT\r")
        assert t.end() == 0
    assert len(requests(log)) == sent == 1
    assert len(json.loads(run("sessions", "list", "--json", home=tmp_path).stdout)["sessions"]) == 1


@pytest.mark.parametrize("line", ["/quit\r", "exit\r", "/exit\r", "\x04", "\x03\x03", "quit\n"])
def test_there_are_many_ways_out_and_all_are_clean(tmp_path, line):
    with terminal("chat", home=tmp_path) as t:
        t.prompt()
        for key in [line] if line != "\x03\x03" else ["\x03", "\x03"]:
            t.type(key)
            if key == "\x03":
                t.wait(lambda: "Press Ctrl-C again" in t.text, "the warning")
        assert t.end() == 0, t.raw
        assert "Goodbye." in t.text


def test_control_sequences_of_a_model_and_a_tool_stay_words(tmp_path):
    evil = "\x1b[2J\x1b[1;1H\x1b]0;owned\x07\x9b31m &#27;[31m \u202e\r\nYou > rm -rf\n"
    work = workspace(tmp_path, notes=evil)
    answers = script(
        tmp_path,
        {"tool_calls": [{"id": "c1", "name": "read_file", "input": {"path": "notes.txt"}}]},
        {"text": f"before {evil} after", "deltas": ["before \x1b", "[2J", evil, " after"]},
    )
    with terminal("chat", "--model", answers, home=tmp_path, cwd=work) as t:
        t.prompt()
        t.say("read it")
        t.say("/history")
        t.see("Created session", "before ␛[2J", "after")
        assert t.screen.title == ""
        assert "\x1b]0" not in t.raw
        assert "\x1b[2J" not in t.raw
        assert "\x9b" not in t.raw
        assert "\u202e" not in t.raw
        assert not [line for line in t.lines if line.startswith("You > rm")]


def test_ctrl_c_stops_the_turn_keeps_the_partial_text_and_the_chat_goes_on(tmp_path):
    answers = script(tmp_path, {"deltas": ["partly "] * 200, "until": str(tmp_path / "never")}, {"text": "second"})
    log = tmp_path / "requests.jsonl"
    with terminal("chat", "--model", answers, home=tmp_path, TURNLOG_REQUEST_LOG=str(log)) as t:
        t.prompt()
        t.type("go on and on\r")
        t.see("partly partly")
        t.type("\x03")
        t.see("stopped; the text so far is kept")
        t.prompt(2)
        t.say("and now?")
        t.see("second")
    [_, last] = requests(log)
    check_messages(last["messages"])
    assert "partly partly" in json.dumps(last["messages"])


def test_what_is_typed_during_a_turn_is_answered_after_it(tmp_path):
    gate = tmp_path / "gate"
    answers = script(tmp_path, {"deltas": ["slow "] * 30, "until": str(gate)}, {"text": "to the second"})
    with terminal("chat", "--model", answers, home=tmp_path) as t:
        t.prompt()
        t.type("first\r")
        t.see("slow slow")
        for line in ("second", "/cost"):
            t.type(line)
            t.wait(lambda line=line: f"› {line}" in t.text, line)
            t.type("\r")
            t.wait(lambda: "›" in [row.rstrip() for row in t.screen.display], "an empty line for the next one")
        gate.touch()
        t.see("› second", "to the second", "/cost runs after this turn.")
        t.prompt(2)


def test_tools_compaction_and_errors_are_a_line_each(tmp_path):
    work = workspace(tmp_path, notes="one\ntwo\n")
    answers = script(
        tmp_path,
        {"tool_calls": [{"id": "c1", "name": "read_file", "input": {"path": "notes.txt"}}]},
        {"text": "two lines"},
        {"tool_calls": [{"id": "c2", "name": "read_file", "input": {"path": "missing.txt"}}]},
        {"text": "not there"},
        {"error": {"status": 401, "message": "invalid x-api-key"}},
        {"text": "A summary of notes.txt and missing.txt.", "for": "summary"},
    )
    with terminal("chat", "--model", answers, home=tmp_path, cwd=work) as t:
        t.prompt()
        t.say("read")
        t.see("● read_file(path: notes.txt) → 2 lines")
        t.say("read more")
        t.see("✗ read_file(path: missing.txt) → missing.txt: No such file")
        t.say("fail")
        t.see("Error: ", "invalid x-api-key")
        t.say("/compact")
        t.see("Compacted entries 3–")
        t.say("/expand")
        t.see("[user] read")
        t.say("/undo-compact")
        t.see("Undone")


def test_on_40_columns_chinese_and_the_status_line_fit(tmp_path):
    with terminal("chat", home=tmp_path, columns=40, rows=20, LC_ALL="zh_CN.UTF-8") as t:
        t.prompt()
        t.see("尚未设置模型")
        t.say("你好，我的猫叫汤姆，它今年三岁了，喜欢睡觉。")
        t.see("上下文")
        t.say("/sessions")
        t.say("/help")
        t.see("/new [label]", "新建会话")
        status = [line for line in t.screen.display if "上下文" in line][-1]
        assert "offline" in status
        row = next(line for line in t.lines if line.startswith("*  ses-"))
        assert row.endswith("…")


def test_enter_sends_and_alt_enter_ctrl_j_and_pastes_make_lines(tmp_path):
    log = tmp_path / "requests.jsonl"
    with terminal("chat", home=tmp_path, TURNLOG_REQUEST_LOG=str(log)) as t:
        t.prompt()
        t.type("one")
        t.see("You > one")
        t.type("\x1b\r")
        t.type("two")
        t.see("      two")
        row = t.screen.cursor.y
        time.sleep(0.1)  # a person's pause: at once, it would be the end of a line that a program sends
        t.type("\n")
        t.wait(lambda: t.screen.cursor.y > row, "the next line")
        t.type("three")
        t.see("      three")
        t.type("\r")
        t.prompt(2)
        pasted = "\n".join(f"line {n}" for n in range(30))
        t.type(f"\x1b[200~{pasted}\x1b[201~")
        t.see("[pasted #1: 30 lines]")
        t.type(" what is this?\r")
        t.prompt(3)
    [first, second] = requests(log)
    assert first["messages"][-1]["content"] == "one\ntwo\nthree"
    assert second["messages"][-1]["content"] == f"{pasted} what is this?"


def test_what_comes_in_one_read_is_sent_by_a_program_however_slow_the_machine_is(monkeypatch):
    async def main():
        rhythm = keys.Rhythm()
        rhythm.beat()
        monkeypatch.setattr(keys, "BURST_S", 0)
        assert rhythm.in_burst
        await asyncio.sleep(0)
        assert not rhythm.in_burst, "somebody typed on"

    asyncio.run(main())


def test_history_survives_and_ctrl_r_searches_it(tmp_path):
    with terminal("chat", home=tmp_path) as t:
        t.prompt()
        t.say("remember the walrus")
        t.say("and the egg")
        t.type("\x04")
        t.end()
    assert (tmp_path / "chat-history").stat().st_mode & 0o777 == 0o600
    with terminal("chat", home=tmp_path) as t:
        t.prompt()
        t.type("\x12walr")
        t.see("remember the walrus")
        t.type("\r")
        t.wait(lambda: "You > remember the walrus" in t.text, "the line found")


def test_completion_offers_commands_sessions_and_files(tmp_path):
    (tmp_path / "report-2026.txt").write_text("x", encoding="utf-8")
    with terminal("chat", "--new", "--label", "zebra", home=tmp_path) as t:
        t.prompt()
        t.say("/new other")
        t.type("/hist")
        t.see("show the messages, with marks")
        t.type("\x15/switch ze")
        t.see("  zebra")
        t.type("\t")
        t.see("/switch zebra")
        t.type("\x15")
        t.type("read report\t")
        t.see("You > read report-2026.txt")


def test_the_picker_searches_renames_deletes_and_opens(tmp_path):
    for label, text in (("apples", "about apples"), ("pears", "about pears"), ("plums", "about plums")):
        run("chat", "-p", text, "--new", "--label", label, home=tmp_path)
    with terminal("chat", "-r", home=tmp_path) as t:
        t.see("❯ plums · about plums", "apples", "about pears … ")
        t.type("apples")
        t.wait(lambda: "1/1" in t.text, "one match")
        t.type("\x12 and oranges\r")
        t.see("❯ apples · about apples and oranges")
        t.wait(lambda: "1/1" in t.text, "still one match")
        t.type("\x7f" * 6 + "plums")
        t.see("❯ plums")
        t.type("\x04")
        t.see("Delete about plums? y/N")
        t.type("y\r")
        t.wait(lambda: "0/0" in t.text, "none left")
        t.type("\x7f" * 5 + "oranges\r")
        t.see("Resumed session: ", "(apples)  2 messages")
        t.prompt()
    rows = json.loads(run("sessions", "list", "--json", home=tmp_path).stdout)["sessions"]
    assert {row["label"]: row["title"] for row in rows} == {
        "apples": "about apples and oranges",
        "pears": "about pears",
    }


def test_colour_is_not_used_where_nobody_wants_it(tmp_path):
    with terminal("chat", home=tmp_path, NO_COLOR="1") as t:
        t.prompt()
        t.say("read nothing.txt")
        t.say("/nonsense")
        assert not re.search(r"\x1b\[[0-9;]*(3[1-7]|9[0-7]|38;)[0-9;]*m", t.raw)


def test_a_dumb_terminal_gets_plain_lines(tmp_path):
    with terminal("chat", home=tmp_path, TERM="dumb") as t:
        t.prompt()
        t.type("hello\n")
        t.see("You said")
        t.type("/quit\n")
        assert t.end() == 0
        assert "\x1b" not in t.raw


def test_a_terminal_that_is_resized_during_an_answer_shows_all_of_it(tmp_path):
    words = " ".join(f"w{n}" for n in range(150))
    gate = tmp_path / "gate"
    answers = script(tmp_path, {"text": words, "deltas": re.findall(r"\S+\s?", words), "until": str(gate)})
    with terminal("chat", "--model", answers, home=tmp_path, rows=40) as t:
        t.prompt()
        t.type("go\r")
        t.see("w20 ")
        t.resize(50, 40)
        gate.touch()
        t.prompt(2)
        for n in (0, 60, 149):
            assert re.search(rf"\bw{n}\b", t.text)


def test_a_second_terminal_says_who_has_the_turn_and_waits(tmp_path):
    gate = tmp_path / "gate"
    slow = script(tmp_path, {"deltas": ["slow "] * 60, "until": str(gate)}, {"text": "for the second"})
    with terminal("chat", "--model", slow, home=tmp_path) as first:
        first.prompt()
        first.type("go\r")
        first.see("slow slow")
        with terminal("chat", "--model", slow, home=tmp_path) as second:
            second.prompt()
            second.type("me too\r")
            second.see(f"waiting: a turn is running (process {first.child.pid} on ")
            gate.touch()
            first.prompt(2)
            second.wait(lambda: second._prompts() >= 2, "its turn")
            assert "for the second" in second.text


def test_the_model_can_be_changed_in_the_middle(tmp_path):
    with terminal("chat", home=tmp_path) as t:
        t.prompt()
        t.say("hello")
        t.say("/model nonsense")
        t.see("is not a known model")
        t.say(f"/model {script(tmp_path, {'text': 'from the script'})}")
        t.see("Model is now")
        t.say("again")
        t.see("from the script")
        t.say("/cost")
        t.see("offline: 1 answers")


def test_a_model_of_the_settings_is_chosen_for_the_session_and_is_there_at_the_next_start(tmp_path):
    other = script(tmp_path, {"text": "from the script"}, {"text": "and again"})
    (tmp_path / "config.toml").write_text(f'[model]\nchoices = ["{other}"]\n')
    name = f"scripted:{Path(other).name}"
    with terminal("chat", home=tmp_path) as t:
        t.prompt()
        t.say("/model")
        t.see(f"This session can also use: {name}")
        t.say(f"/model {name}")
        t.see(f"Model is now {name}.")
        t.say("hello")
        t.see("from the script")
    with terminal("chat", home=tmp_path) as t:
        t.prompt()
        t.say("hello")
        t.see("and again")


def test_rewinding_puts_the_words_back_at_the_prompt(tmp_path):
    with terminal("chat", home=tmp_path) as t:
        t.prompt()
        t.say("first thing")
        t.say("second thing")
        t.say("/rewind 3")
        t.see("Turns that can be rewound: 2.")
        t.type("/rewind\r")
        t.see("Turns rewound: 1.", "You > second thing")
        t.wait(lambda: t.lines and t.text.count("You > second thing") == 2, "the draft")
        t.type("\x15third thing\r")
        t.prompt(5)
        t.say("/pin")
        t.see("Pinned entry")
        t.say("/unpin")
        t.see("Unpinned entry")
        t.say("/rename A better title")
        t.say("/fork copy")
        t.see("Renamed to: A better title", "Forked into ses-")
        t.say("/search thing")
        t.see("[user, tail] third «thing»", "[user, rewound] second «thing»")


def test_the_editor_can_write_the_message(tmp_path):
    editor = tmp_path / "editor.sh"
    editor.write_text('#!/bin/sh\nprintf "from the editor" > "$1"\n', encoding="utf-8")
    os.chmod(editor, 0o755)
    with terminal("chat", home=tmp_path, EDITOR=str(editor)) as t:
        t.prompt()
        t.type("\x18\x05")
        t.see("You > from the editor")


def test_a_chat_that_waits_for_its_person_leaves_the_machine_alone(tmp_path):
    with terminal("chat", home=tmp_path) as t:
        t.prompt()
        t.see("ctx ")

        def spent_ticks():
            with open(f"/proc/{t.child.pid}/stat", encoding="utf-8") as file:
                fields = file.read().rpartition(")")[2].split()
            return int(fields[11]) + int(fields[12])

        def rests():
            before = spent_ticks()
            time.sleep(2)
            return spent_ticks() - before <= 1

        t.wait(rests, "an idle chat, once it has got ready what the first answer needs")


def test_words_that_could_not_be_stored_are_back_at_the_prompt(tmp_path):
    limit = "import resource, runpy, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
    limit += "sys.dont_write_bytecode = True;"  # it would be cut short too, for everybody
    limit += "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)); sys.argv[0] = 'turnlog';"
    limit += "runpy.run_module('turnlog', run_name='__main__')"
    store = f"jsonl:{tmp_path}/data"
    with terminal("chat", "--store", store, home=tmp_path, rows=40, code=limit) as t:
        t.prompt()
        t.type("\x1b[200~" + "word " * 900 + "end\x1b[201~")
        t.see("[pasted #1")
        t.type("\r")
        t.see("Error: ", "cannot be written")
        t.wait(lambda: t.text.count("You > [pasted #1") == 2, "the words")
        assert "Press ENTER" not in t.text


def test_recall_shows_what_the_memory_holds_for_this_person(tmp_path):
    run("chat", "-p", "my cat is called Tom", home=tmp_path, TURNLOG_SESSION_ENABLED="false")
    with terminal("chat", home=tmp_path) as t:
        t.prompt()
        t.say("/recall cat")
        t.see("User: my cat is called Tom")
        t.say("/recall elephants")
        t.see("Nothing found for elephants.")


WRITE = 'call write_file {"path": "notes.txt", "content": "hello"}'


def test_a_call_that_writes_shows_its_diff_and_waits_for_y_or_n(tmp_path):
    place = workspace(tmp_path)
    with terminal("chat", home=tmp_path, cwd=place) as t:
        t.prompt()
        t.type(f"{WRITE}\r")
        t.see("? write_file(path: notes.txt", "+hello", "y yes")
        t.type("n not now\r")
        t.see("denied: not now")
        t.prompt()
        assert not (place / "notes.txt").exists()
        t.type(WRITE.replace("hello", "goodbye") + "\r")
        t.see("+goodbye")
        t.type("y\r")
        t.see("created notes.txt")
        t.prompt()
    assert (place / "notes.txt").read_text() == "goodbye"


def test_a_question_of_an_earlier_chat_is_shown_again_and_answered_by_a_command(tmp_path):
    place = workspace(tmp_path)
    with terminal("chat", home=tmp_path, cwd=place) as first:
        first.prompt()
        first.type(f"{WRITE}\r")
        first.see("+hello")
    with terminal("chat", home=tmp_path, cwd=place) as second:
        second.see("? write_file(path: notes.txt", "+hello")
        second.prompt()
        second.say("/yes")
        second.see("created notes.txt")
        second.say("/no")
        second.see("No call waits for approval.")
    assert (place / "notes.txt").read_text() == "hello"
