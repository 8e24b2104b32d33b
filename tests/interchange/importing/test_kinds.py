"""Each program's files, with the damage its writer is known for, become a history that providers accept."""

import json

import pytest

from turnlog.core import history
from turnlog.core.entries import Assistant, Compaction, Foreign, Rewind, Title, ToolResult, User

KINDS = [
    *("pi", "openclaw", "zyhive", "claw0", "claw0-keyed", "zeroclaw", "claude-code", "codex", "opencode", "gemini"),
    *("gemini-old", "messages/anthropic.json", "messages/openai.json", "messages/lines.jsonl"),
]


def texts(messages):
    return json.dumps(messages, ensure_ascii=False)


def kept(log):
    return json.dumps([entry.raw for entry in log if isinstance(entry, Foreign)], ensure_ascii=False)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_recognised_and_gives_messages_a_provider_accepts(kind, foreign, run):
    result = run(foreign / kind)
    assert result.logs
    for session_id in result.logs:
        assert result.history(session_id)


@pytest.mark.parametrize("kind", KINDS)
def test_an_import_never_writes_to_its_source(kind, foreign, run):
    def snapshot():
        return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in foreign.rglob("*") if path.is_file()}

    before = snapshot()
    run(foreign / kind)
    assert snapshot() == before, "nothing is changed, and no file is made next to it"


@pytest.mark.parametrize("kind", KINDS)
def test_repeating_an_import_adds_nothing(kind, foreign, run):
    first, second = run(foreign / kind, foreign / kind)
    assert sum(result.entries for result in first.imported) == sum(map(len, first.logs.values()))
    assert not any(result.entries for result in second.imported)
    assert second.logs == first.logs
    assert "changed" not in second.notes()


@pytest.mark.parametrize("kind", KINDS)
def test_imported_sessions_are_selected_nowhere_and_nothing_in_them_waits_to_be_run(kind, foreign, run):
    for row in run(foreign / kind).rows.values():
        assert row.status == "inactive"
        assert row.selected_n == 0
        assert not row.received
        assert not row.under_way, "a turn that was cut in the source is not ours to go on with"
        assert row.key.endswith(":direct:import")


def test_pi_branches_ids_titles_and_unknown_lines_are_kept(foreign, run):
    result = run(foreign / "pi")
    shown = texts(result.history())
    assert "Delete b.txt" not in shown, "the branch that was left is not shown"
    assert "Rename b.txt to c.txt." in shown
    assert "Delete b.txt." in [entry.content for entry in result.log() if isinstance(entry, User)], "but it is kept"
    for word in ("00000006", "future_thing", "renaming", '"count": 2', '"total": 0.3', "modifiedFiles"):
        assert word in kept(result.log())
    (row,) = result.rows.values()
    assert row.title == "Files of the app"
    assert row.created_at == 1769936400000


def test_pi_damage_costs_its_own_line_and_is_named_with_its_place(foreign, run):
    result = run(foreign / "pi")
    assert "line 17: not readable" in result.notes()
    assert "line 18: its parent is missing" in result.notes()
    assert "line 19: the end is torn" in result.notes()
    assert "Try again later. 谢谢" in texts(result.history())


def test_pi_a_summary_with_a_real_first_kept_entry_becomes_a_compaction(foreign, run):
    log = run(foreign / "pi").log()
    (fold,) = [entry for entry in log if isinstance(entry, Compaction)]
    kept_from = next(entry for entry in log if entry.seq == fold.first_kept)
    assert kept_from.content == "Rename b.txt to c.txt."
    assert (fold.tokens_before, fold.trigger) == (900, "import")


def test_a_summary_whose_reach_is_not_known_is_not_applied(foreign, run):
    result = run(foreign / "openclaw")
    assert not [entry for entry in result.log() if isinstance(entry, Compaction)]
    assert "Asked about today." in kept(result.log())
    assert "first kept entry is missing" in result.notes()
    assert "What is on today?" in texts(result.history())


def test_openclaw_titles_and_keys_come_from_its_index_and_deleted_copies_do_not_come_back(foreign, run):
    result = run(foreign / "openclaw")
    (row,) = result.rows.values()
    assert row.title == "Ann's calendar"
    assert "skillsSnapshot" not in kept(result.log())
    assert [outcome.entries for outcome in result.imported if "deleted" in outcome.source] == [0]


def test_zyhive_the_summary_covers_what_stood_before_it_and_second_headers_are_inert(foreign, run):
    result = run(foreign / "zyhive")
    harbours = next(row for row in result.rows.values() if row.title == "Harbours")
    shown = texts(result.history(harbours.id))
    assert "List the harbours." not in shown
    assert shown.count("Kiel and Hamburg") == 2, "in the summary and in the copy its program kept"
    assert "second header" in result.notes()
    assert "the file has no header" in result.notes()
    assert harbours.created_at == 1771000000000
    assert "for administrators only" not in str(result.logs), "what belongs to administrators is no session"


def test_claw0_duplicated_calls_and_results_before_calls_are_put_right_in_history_only(foreign, run):
    new = run(foreign / "claw0")
    assert [message["role"] for message in new.history()] == ["user", "assistant", "user", "assistant"]
    assert texts(new.history()).count('"toolu_a"') == 2
    (row,) = new.rows.values()
    assert row.label == "clock"
    assert row.created_at == 1771100000250, "times were seconds"
    old = run(foreign / "claw0-keyed")
    assert [message["role"] for message in old.history()] == ["user", "assistant", "user", "assistant"]
    assert old.log()[3].ts == "2026-01-10T10:00:03.000Z", "times were ISO"
    assert isinstance(old.log()[3], ToolResult)


def test_zeroclaw_sessions_states_and_rows_that_nothing_lists_are_read(foreign, run):
    result = run(foreign / "zeroclaw" / "sessions.db")
    assert len(result.logs) == 3
    boats = next(row for row in result.rows.values() if row.title == "Boats")
    shown = texts(result.history(boats.id))
    assert "The user sails." in shown
    assert "I sail a small boat." not in shown
    assert "wind: 4" in shown
    assert '"event"' in kept(result.logs[boats.id])
    assert any("Nobody lists me." in texts(result.history(session_id)) for session_id in result.logs)


def test_claude_code_parallel_calls_branches_side_chains_and_compactions(foreign, run):
    result = run(foreign / "claude-code")
    log = result.log()
    (fold,) = [entry for entry in log if isinstance(entry, Compaction)]
    assert fold.tokens_before == 15000
    before = [entry for entry in log if entry.seq < fold.seq]
    past = history.build(before).messages
    assert [message["role"] for message in past] == ["user", "assistant"] * 2 + ["user", "assistant"]
    assert len(past[1]["content"]) == 2, "two calls in one answer, though on two lines"
    assert "Forget that." not in texts(past)
    assert "subagent" not in texts(past)
    assert "You are a subagent." in kept(log)
    assert [entry.title for entry in log if isinstance(entry, Title)] == ["Reading files"]
    assert kept(log).count('"cwd"') == 3, "what does not change is kept once, and in the two lines kept whole"


def test_a_linear_session_of_claude_code_has_no_note_on_branches(tmp_path, run):
    def line(uuid, parent, role, words):
        message = {"role": role, "content": words}
        return {"type": role, "uuid": uuid, "parentUuid": parent, "sessionId": "c0ffee00", "message": message}

    path = tmp_path / "c0ffee00-1111-4222-8333-444455556666.jsonl"
    lines = [
        {"type": "summary", "summary": "A talk", "leafUuid": "u4"},
        {"type": "file-history-snapshot", "messageId": "u1", "snapshot": {}, "isSnapshotUpdate": False},
        line("u1", None, "user", "hello"),
        line("u2", "u1", "assistant", [{"type": "text", "text": "hi"}]),
        {"type": "system", "subtype": "turn_duration", "uuid": "s1", "parentUuid": "u2", "sessionId": "c0ffee00"},
        line("u3", "s1", "user", "and now?"),
        line("u4", "u3", "assistant", [{"type": "text", "text": "done"}]),
    ]
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    result = run(path)
    assert "branch" not in result.notes()
    assert all(entry.after is None for entry in result.log())
    assert [message["role"] for message in result.history()] == ["user", "assistant"] * 2

    path.write_text("".join(json.dumps(each) + "\n" for each in [*lines, line("u5", None, "user", "anew")]))
    assert "branches are kept" in run(path).notes(), "a second root is one"


def test_codex_calls_rollbacks_and_compactions(foreign, run):
    result = run(foreign / "codex")
    log = result.log()
    calls = [entry for entry in log if isinstance(entry, Assistant) and isinstance(entry.content, list)]
    assert calls[0].content == [{"type": "tool_use", "id": "call_1", "name": "shell", "input": {"command": ["pytest"]}}]
    assert calls[0].model == "gpt-5-codex"
    assert [entry for entry in log if isinstance(entry, Rewind)], "a rollback takes turns back"
    assert "Deleted." not in texts(result.history())
    assert "The tests were repaired." in texts(result.history())
    assert "be brief" in kept(log)


def test_opencode_rounds_open_calls_and_the_tail_it_kept(foreign, run):
    result = run(foreign / "opencode")
    messages = result.history()
    assert "I look." in texts(messages), "the tail it kept word for word"
    assert "Which port?" not in texts(messages)
    assert "interrupted" in texts(messages), "a call that was running is closed"
    (row,) = result.rows.values()
    assert row.title == "Ports"
    usage = [entry.usage for entry in result.log() if isinstance(entry, Assistant) and entry.usage]
    assert usage == [
        {"input_tokens": 50, "output_tokens": 20, "cache_read_input_tokens": 10, "cache_creation_input_tokens": 0}
    ]


def test_gemini_rewritten_messages_rewinds_and_tool_calls_in_both_forms(foreign, run):
    result = run(foreign / "gemini")
    assert "Delete a." not in texts(result.history())
    assert texts(result.history()).count('"ls-1"') == 2
    assert "Request cancelled." in kept(result.log())
    old = run(foreign / "gemini-old")
    assert texts(old.history()).count('"ls-1"') == 2


def test_message_lists_of_both_shapes(foreign, run):
    openai = run(foreign / "messages" / "openai.json")
    shown = openai.history()
    assert shown[0]["content"][1]["source"]["media_type"] == "image/png"
    assert [block["input"] for block in shown[1]["content"]] == [{"at": 1}, {"value": "not json"}]
    assert "Be brief." in kept(openai.log())
    assert '"ann"' in kept(openai.log())
    anthropic = run(foreign / "messages" / "anthropic.json")
    assert [message["role"] for message in anthropic.history()] == ["user", "assistant", "user", "assistant"]


def test_a_whole_tree_of_several_programs_is_imported_at_once(foreign, run):
    result = run(foreign)
    kinds = {row.key.split(":")[2] for row in result.rows.values()}
    assert kinds == {
        "pi", "openclaw", "zyhive", "claw0", "claw0-keyed", "zeroclaw", "claude-code", "codex", "opencode", "gemini",
        "messages",
    }  # fmt: skip


def test_sessions_go_to_the_key_and_agent_that_are_asked_for(foreign, run):
    result = run(foreign / "codex", agent="bob", key="agent:bob:telegram:direct:7")
    (row,) = result.rows.values()
    assert (row.agent, row.key) == ("bob", "agent:bob:telegram:direct:7")
