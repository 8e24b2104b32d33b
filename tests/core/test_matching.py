"""Atoms, paths, and the decision which session a request goes on, rule by rule."""

import json

import pytest

from turnlog.core import atoms, matching
from turnlog.core.atoms import UNSHOWN
from turnlog.core.carried import carried, pruned
from turnlog.core.entries import (
    Assistant,
    Compaction,
    Failed,
    Foreign,
    Opened,
    Pin,
    Received,
    Rewind,
    Shortened,
    ToolResult,
    Undo,
    Unpin,
    User,
)
from turnlog.core.matching import Decision, PlacedSession
from turnlog.core.path import answer_to, note_of, of_log
from turnlog.core.relayed import head_of, newest_call, notes_of
from turnlog.core.request_messages import RequestMessages
from turnlog.sessions.own_answers import newest_answer

REQUEST = Foreign(raw={"turnlog": "request", "ask": "a"})


def key(body):
    return [atom.key for atom in atoms.of(body)]


def call(arguments, call_id="c1", name="read"):
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def text(words, **more):
    return {"type": "text", "text": words, **more}


def image(**source):
    return {"type": "image", "source": source}


def answer(content, model="m", **more):
    return Assistant(content=content, model=model, **more)


def logged(*bodies, session="s"):
    opened = Opened(id=session, key="k", agent="main", channel="api")
    return [rebuilt(body, seq) for seq, body in enumerate([opened, *bodies], 1)]


def path_of(*bodies, session="s"):
    return of_log(session, logged(*bodies, session=session))


def rebuilt(body, seq):
    return type(body)(**{**{name: getattr(body, name) for name in body.__struct_fields__}, "seq": seq})


def said(*bodies):
    raw = {str(n).encode(): [body] for n, body in enumerate(bodies)}
    return RequestMessages(list(raw), raw.__getitem__, {})


def decided(paths, *bodies, named=True, ask="", **more):
    placed = [one if isinstance(one, PlacedSession) else PlacedSession(one) for one in paths]
    return matching.decide(placed, said(*bodies).words(ask), named=named, **more)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (User(content="hi"), User(content=[text("hi", cache_control={"type": "ephemeral"})])),
        (User(content="a\n\nb"), User(content=[text("a"), text(""), text("b")])),
        (answer("Yes. "), Assistant(content="Yes.")),
        (answer([{"type": "thinking", "thinking": "hm"}, text("Yes.")]), Assistant(content="Yes.")),
        (answer([call({"a": 1, "b": [2.0]})]), Assistant(content=[call('{"b": [2], "a": 1.0}', "other")])),
        (answer([call("no json")]), Assistant(content=[call("no json", "other")])),
        (ToolResult(tool_use_id="a", content="x"), ToolResult(tool_use_id="b", content=[text("x")], is_error=True)),
        (
            User(content=[image(type="base64", media_type="image/png", data="AAAA")]),
            User(content=[image(type="base64", media_type="image/x-png", data="AAAA")]),
        ),
        (
            User(content=[{"type": "tool_reference", "tool_name": "x", "cache_control": {}}]),
            User(content=[{"type": "tool_reference", "tool_name": "x"}]),
        ),
    ],
)
def test_what_clients_write_differently_is_equal(ours, theirs):
    assert key(ours) == key(theirs) != []


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (User(content="hi"), User(content="hi", sender="system")),
        (User(content="hi"), Assistant(content="hi")),
        (User(content=" hi"), User(content="hi")),
        (User(content="a\0b"), User(content="a\0\0b")),
        (answer([call({"a": 1})]), answer([call({"a": 2})])),
        (answer([call({"a": "1"})]), answer([call({"a": 1})])),
        (answer([call({}, name="x")]), answer([call({}, name="y")])),
        (User(content=[image(type="url", url="http://a")]), User(content=[image(type="url", url="http://b")])),
        (User(content=[image(type="url", url="http://a")]), User(content=[image(type="file", file_id="http://b")])),
        (User(content=[text("a"), image(type="content")]), User(content=[image(type="content"), text("a")])),
        (User(content="\0image x\0"), User(content=[image(type="content")])),
        (answer("part", stop="error"), Assistant(content="part")),
    ],
)
def test_what_says_something_else_differs(ours, theirs):
    assert key(ours) != key(theirs)


def test_a_message_without_words_has_no_atom_and_a_result_always_has_one():
    assert atoms.of(User(content="  ")) == atoms.of(Assistant(content=[text(" ")])) == atoms.of(User(from_=(1,))) == []
    assert [atom.kind for atom in atoms.of(ToolResult(tool_use_id="a", content=""))] == ["result"]
    assert atoms.of(answer("x", stop="error"))[0].key.startswith(UNSHOWN)


def test_an_answer_gives_its_text_and_then_its_calls_and_can_be_cut_between_them():
    body = answer([text("one"), call({}, "c1"), text("two"), call({"a": 1}, "c2")])
    assert [atom.kind for atom in atoms.of(body)] == ["assistant", "call", "call"]
    assert atoms.rest_of(body, 0) is body
    assert atoms.rest_of(body, 2).content == [call({"a": 1}, "c2")]
    assert atoms.digest(key(body)) != atoms.digest(key(body)[:2])
    assert atoms.text(body) == "one\n\ntwo"


def test_the_longest_common_beginning_is_found():
    assert [atoms.common(b"abc", theirs) for theirs in (b"abcd", b"ab", b"abx", b"x", b"")] == [3, 2, 2, 0, 0]


def test_a_path_follows_rewinds_and_remembers_answers_of_abandoned_branches():
    log = [User(content="a"), answer("One."), User(content="b"), answer("Two."), Rewind(to=3), User(content="c")]
    path = path_of(*log)
    assert path.seqs == [2, 3, 7]
    assert set(path.own) == set(key(answer("One.")) + key(answer("Two.")))
    assert path.role == "user"
    again = path_of(*log[:4])
    assert again.grow([rebuilt(body, seq) for seq, body in enumerate(log[4:], 6)])
    assert (again.keys, again.seqs, again.last_seq) == (path.keys, path.seqs, path.last_seq)


@pytest.mark.parametrize(
    "entry", [Rewind(seq=6, to=2), Undo(seq=6, target=2), User(seq=6, after=2, content="x"), Rewind(seq=6, to=0)]
)
def test_a_path_that_cannot_follow_says_so(entry):
    assert not path_of(User(content="a"), answer("One."), User(content="b"), answer("Two.")).grow([entry])


def test_a_path_does_not_follow_back_before_a_compaction():
    folded = Compaction(summary="s", first_kept=4, covers=(2, 3))
    path = path_of(User(content="a"), answer("One."), User(content="b"), answer("Two."), folded)
    assert path.grow([rebuilt(User(content="c"), 7), rebuilt(Rewind(to=6), 8)])
    assert not path.grow([rebuilt(Rewind(to=3), 9)])


def test_a_path_has_the_words_of_messages_that_waited():
    path = path_of(Received(content="a"), User(from_=(2,)), answer("One."))
    assert path.keys == key(User(content="a")) + key(answer("One."))


def test_only_a_shortening_that_counts_is_known():
    result = ToolResult(tool_use_id="c1", content="x" * 100)
    said_before = [User(content="a"), answer([call({})]), result, answer("Done.")]
    path = path_of(*said_before, Shortened(targets=(4,), limit=9), Shortened(targets=(4,), limit=7))
    assert (path.shortened(), path.shortened(6)) == ({4: 7}, {4: 9})
    assert path_of(*said_before, Shortened(targets=(4,), limit=9), Undo(target=6)).shortened() == {}
    assert path_of(*said_before, Shortened(targets=(4,), limit=1, plain=True)).shortened() == {}


def test_an_agents_turn_is_one_message_of_its_client():
    note = Foreign(raw={"turnlog": "request", "ask": "a", "said": 3, "agent": True})
    brought = (Assistant(content="Mine.", model="m"), ToolResult(tool_use_id="c0", content="r"), B)
    turn = (answer([text("One."), call({})], stop="tool_use"), ToolResult(tool_use_id="c1", content="r"))
    path = path_of(note, *brought, *turn, answer([call({})], stop="tool_use"), answer("x", stop="error"), TWO)
    assert path.keys == [one for body in (*brought, answer("One.\n\nTwo.")) for one in key(body)]
    assert (path.seqs[-1], path.ends[-1].kept) == (10, 4)
    assert newest_answer(path) == key(answer("One.\n\nTwo."))[0]
    assert path.grow([rebuilt(C, 11), rebuilt(answer([call({})]), 12)])
    assert [atom.kind for atom in path.atoms[4:]] == ["user", "call"], "what others say is no part of the turn"
    assert path.grow([Rewind(seq=13, to=10), rebuilt(turn[1], 14)])
    assert path.atoms[-1].kind == "result"


def test_a_path_knows_the_heads_that_its_log_holds():
    head = Foreign(raw={"turnlog": "head", "digest": "d", "system": "s", "tools": []})
    assert path_of(head, A, ONE, Rewind(to=1)).heads == {"d": 2}


def test_a_note_is_only_what_turnlog_wrote():
    assert note_of(REQUEST, "request") == REQUEST.raw
    for other in (
        Foreign(raw=[1]),
        Foreign(raw={"turnlog": "head"}),
        Foreign(raw={}, unknown={"type": "x"}),
        User(content=""),
    ):
        assert note_of(other, "request") is None


A, ONE, B, TWO, C = User(content="a"), answer("One."), User(content="b"), answer("Two."), User(content="c")


def test_the_whole_path_is_continued():
    found = decided([path_of(A, ONE)], A, ONE, B)
    assert (found.kind, found.kept, found.rest, found.to) == ("continued", 2, 2, None)


def test_a_difference_within_the_path_goes_back_to_the_end_of_the_turn_before_it():
    found = decided([path_of(A, ONE, B, TWO)], A, ONE, C)
    assert (found.kind, found.to, found.kept, found.rest) == ("rewound", 3, 2, 2)
    found = decided(
        [path_of(A, answer([call({})]), ToolResult(tool_use_id="c1", content="x"), ONE)], A, answer([call({})]), C
    )
    assert (found.kind, found.to, found.rest) == ("rewound", 1, 0)


def test_a_session_that_runs_another_call_is_forked():
    found = decided([PlacedSession(path_of(A, ONE, B), is_busy=True)], A, ONE, C)
    assert (found.kind, found.to, found.rest) == ("forked", 3, 2)


def test_nothing_in_common_is_a_new_session():
    assert decided([path_of(A, ONE), path_of()], B) == Decision("new")
    assert decided([], A) == Decision("new")


def test_a_repeat_is_known_by_everything_that_it_asks():
    path = path_of(REQUEST, A, ONE)
    assert decided([PlacedSession(path, is_open=True)], A, ask="a").kind == "replayed"
    assert decided([PlacedSession(path, is_open=True)], A, ask="b").kind == "rewound"
    assert decided([PlacedSession(path)], A, ask="a").kind == "rewound"
    assert decided([PlacedSession(path_of(A, ONE), is_open=True)], A, ask="a").kind == "rewound"


def test_an_unanswered_call_is_made_again_without_storing_its_words_again():
    assert decided([path_of(A)], A).rest == 1
    assert decided([path_of(A, Failed(code="provider"))], A).kind == "continued"
    assert decided([path_of(A, Failed(code="refused_content"))], A).kind == "rewound"


def test_without_a_name_only_an_answer_of_this_server_tells_a_session():
    assert decided([path_of(A)], A, B, named=False).kind == "new"
    assert decided([path_of(A, Assistant(content="One."), B)], A, ONE, B, C, named=False).kind == "new"
    assert decided([path_of(A, ONE)], A, ONE, B, named=False).kind == "continued"
    rewritten = decided(
        [path_of(C, Assistant(content="Ok."), A, ONE)], C, Assistant(content="Ok."), B, ONE, A, named=False
    )
    assert (rewritten.kind, rewritten.to) == ("rewound", 3)
    brought = path_of(C, Assistant(content="One."), A, ONE)
    assert decided([brought], C, Assistant(content="Ok."), B, ONE, A, named=False).kind == "new"


def test_of_several_sessions_the_one_that_fits_wholly_then_the_longest_then_the_newest_is_taken():
    whole, longer, newest = path_of(A, ONE), path_of(A, ONE, B, TWO, C), path_of(A, ONE)
    assert decided([longer, whole], A, ONE, B, TWO, A).path is whole
    assert decided([path_of(A, TWO), longer], A, ONE, B, TWO, A).path is longer
    assert decided([newest, whole], A, ONE, B).path is newest


def test_a_result_is_pruned_only_if_everything_after_it_is_equal():
    calls = answer([call({})])
    result = ToolResult(tool_use_id="c1", content="x" * 40)
    cleared = ToolResult(tool_use_id="c1", content="y" * 10)
    longer = ToolResult(tool_use_id="c1", content="y" * 11)
    path = path_of(A, calls, result, ONE)
    assert decided([path], A, calls, cleared, ONE, B).shortened == ((4, 10),)
    assert decided([path], A, calls, longer, ONE, B).kind == "rewound"
    edited = decided([path_of(A, ONE, B, calls, result, TWO)], A, ONE, B, calls, cleared, C)
    assert (edited.kind, edited.to, edited.shortened) == ("rewound", 3, ())
    again = decided([path], A, calls, cleared)
    assert (again.kind, again.rest, again.shortened) == ("rewound", 0, ())
    known = path_of(A, calls, result, ONE, Shortened(targets=(4,), limit=10))
    assert decided([known], A, calls, cleared, ONE, B).shortened == ()


def test_a_result_of_which_the_client_sends_more_again_is_shown_as_long_again():
    calls = answer([call({})])
    result, cleared, longer = (ToolResult(tool_use_id="c1", content=one) for one in ("x" * 40, "y" * 4, "y" * 10))
    path = path_of(A, calls, result, Shortened(targets=(4,), limit=4, by_client=True), ONE)

    def changed(*request, path=path):
        found = decided([path], *request)
        return found.shortened, found.restored

    assert changed(A, calls, cleared, ONE, B) == ((), ())
    assert changed(A, calls, result, ONE, B) == ((), (5,))
    assert changed(A, calls, longer, ONE, B) == (((4, 10),), (5,))
    assert changed(C, calls, result) == ((), ())
    ours = path_of(A, calls, result, Shortened(targets=(4,), limit=4), ONE)
    assert changed(A, calls, result, ONE, B, path=ours) == ((), ()), "only what the client asked for is undone"
    assert [body.target for body in pruned(Decision("continued", path, restored=(5,)))] == [5]
    assert path.grow([Rewind(seq=7, to=6)])
    undone = path_of(A, calls, result, ONE, Undo(target=2))
    assert not undone.grow([Rewind(seq=7, to=5)]), "what was in effect before an undo is read from the log"


def test_the_beginning_of_an_interrupted_answer_is_equal_but_the_clients_words_are_stored():
    path = path_of(A, answer("One two three", stop="interrupted"))
    found = decided([path], A, Assistant(content="One t"), B)
    assert (found.kind, found.to, found.rest) == ("continued", 1, 0)
    request = said(A, Assistant(content="One t"), B)
    assert [getattr(body, "model", "") for body in request.rest(found)] == ["", "m", ""]
    assert decided([path], A, Assistant(content="Two"), B).kind == "rewound"
    assert decided([path], A, B, B).kind == "rewound"


def test_a_session_named_by_its_id_is_joined_and_each_clients_path_is_found_again():
    alone = decided([path_of(A, ONE)], B, by_id=True)
    assert (alone.kind, alone.to, alone.kept, alone.rest, alone.branch) == ("joined", None, 2, 0, -1)
    busy = decided([PlacedSession(path_of(A, ONE, C), is_busy=True)], B, by_id=True)
    assert (busy.kind, busy.to, busy.branch) == ("forked", 3, -1)
    joined = Foreign(raw={"turnlog": "request", "ask": "x", "branch": "new"})
    path = path_of(A, ONE, joined, B, TWO)
    assert path.branches == [0, 0, 4, 4]
    first = decided([path], A, ONE, C, by_id=True)
    assert (first.kind, first.kept, first.rest, first.branch) == ("continued", 4, 2, 0)
    second = decided([path], B, TWO, C, by_id=True)
    assert (second.kind, second.kept, second.rest, second.branch) == ("continued", 4, 2, 4)
    edited = decided([path], B, C, by_id=True)
    assert (edited.kind, edited.to, edited.rest, edited.branch) == ("rewound", 3, 0, 4)
    asked_again = decided([path], A, by_id=True)
    assert (asked_again.kind, asked_again.to, asked_again.rest) == ("rewound", 1, 0)
    busy = decided([PlacedSession(path, is_busy=True)], B, TWO, C, by_id=True)
    assert (busy.kind, busy.kept, busy.rest) == ("forked", 4, 2)
    odd = path_of(A, ONE, Foreign(raw={"turnlog": "request", "branch": "odd"}), B)
    assert odd.branches == [0, 0, 0]


def test_results_keep_the_ids_that_their_calls_have_in_the_log():
    path = path_of(A, answer([call({}, "ours"), call({"a": 1}, "second")]))
    calls = Assistant(content=[call({}, "theirs"), call({"a": 1}, "their second")])
    result = ToolResult(tool_use_id="their second", content="x")
    unknown = ToolResult(tool_use_id="of nobody", content="x")
    request = said(A, calls, result, unknown, B)
    rest = request.rest(decided([path], A, calls, result, unknown, B))
    assert [getattr(body, "tool_use_id", None) for body in rest] == ["second", "of nobody", None]
    joined = path_of(C, TWO, Foreign(raw={"turnlog": "request", "branch": "new"}), A, answer([call({}, "ours")]))
    request = said(A, Assistant(content=[call({}, "theirs")]), ToolResult(tool_use_id="theirs", content="x"))
    found = matching.decide([PlacedSession(joined)], request.words(""), named=True, by_id=True)
    assert request.rest(found)[0].tool_use_id == "ours"


def test_a_result_that_answers_another_call_is_another_result():
    calls = answer([call({}, "c1"), call({"a": 1}, "c2")])
    results = [ToolResult(tool_use_id=one, content="same") for one in ("c1", "c2")]
    path = path_of(A, ONE, B, calls, *results, TWO)
    renamed = Assistant(content=[call({}, "x1"), call({"a": 1}, "x2")])
    for first, second, match in (("x1", "x2", "continued"), ("x2", "x1", "rewound"), ("x1", "x3", "rewound")):
        theirs = [ToolResult(tool_use_id=one, content="same") for one in (first, second)]
        assert decided([path], A, ONE, B, renamed, *theirs, TWO, C).kind == match
    orphan = path_of(A, ONE, B, ToolResult(tool_use_id="o", content="x"), TWO)
    for name, match in (("o", "continued"), ("p", "rewound")):  # a later call may claim it by its id
        assert decided([orphan], A, ONE, B, ToolResult(tool_use_id=name, content="x"), TWO, C).kind == match
    early = path_of(A, ToolResult(tool_use_id="o", content="x"), answer([call({}, "c1")]), TWO)
    begun = (A, ToolResult(tool_use_id="o", content="x"))
    for name, match in (("c1", "continued"), ("c2", "continued"), ("o", "rewound")):
        assert decided([early], *begun, Assistant(content=[call({}, name)]), TWO, C).kind == match


def test_what_is_brought_along_is_stored_message_by_message_and_known_ones_are_not_read_again():
    reads = []

    def read(raw):
        reads.append(raw)
        return [User(content=json.loads(raw))] if raw != b"0" else [Assistant(content=[text(" ")])]

    known = {}
    assert len(RequestMessages([b'"a"', b'"b"', b"0"], read, known).rest(Decision("new"))) == 2
    assert len(reads) == 3
    more = RequestMessages([b'"a"', b'"b"', b"0", b'"c"'], read, known)
    assert (len(more.keys), len(reads)) == (3, 4)
    assert [body.content for body in more.rest(Decision("continued", rest=2))] == ["c"]
    assert more.rest(Decision("continued", rest=3)) == []
    assert len(reads) == 4
    assert (more.text(1), len(reads)) == ("b", 5)


def test_an_answer_of_an_abandoned_branch_keeps_its_model():
    path = path_of(A, ONE, B, TWO)
    request = said(A, C, Assistant(content="Two."), Assistant(content="Mine."), B)
    found = decided([path], A, C, Assistant(content="Two."), Assistant(content="Mine."), B)
    assert [body.model for body in request.rest(found) if isinstance(body, Assistant)] == ["m", None]
    split = said(A, Assistant(content=[text("One."), call({})]), B)
    assert [getattr(body, "model", "") for body in split.rest(Decision("rewound", path, to=1))] == ["", None, ""]


def test_marks_that_concern_only_what_is_kept_stay_in_effect():
    dropped = [
        User(seq=8, content="x"),
        Pin(seq=9, target=2),
        Pin(seq=10, target=8),
        Unpin(seq=11, target=3),
        Compaction(seq=12, ts="t", summary="s", first_kept=4, covers=(2, 3)),
        Compaction(seq=13, summary="undone", first_kept=5, covers=(2, 4)),
        Undo(seq=14, target=13),
        Undo(seq=15, target=6),
        Compaction(seq=16, summary="of what goes", first_kept=9, covers=(2, 8)),
        Shortened(seq=17, targets=(4, 8), limit=5),
        Shortened(seq=18, targets=(8,), limit=5),
        Shortened(seq=19, targets=(4,), limit=3),
        Undo(seq=20, target=19),
        Shortened(seq=21, targets=(4,), limit=2, by_client=True),
    ]
    assert carried(dropped, 7) == [
        Pin(target=2),
        Unpin(target=3),
        Compaction(summary="s", first_kept=4, covers=(2, 3)),
        Undo(target=6),
        Shortened(targets=(4,), limit=5),
    ]
    assert Undo(target=6) not in carried(dropped, 7, {6})


def newest_head(log):
    """Looked for in parts, it is the same as in the whole log."""
    call = newest_call(log)
    for size in (1, 2, 3):
        parts = [log[at : at + size] for at in range(0, len(log), size)]
        assert newest_call([entry for part in parts for entry in notes_of(part)]) == call
    return head_of(call, next(entry for entry in log if entry.seq == call.head)) if call else None


def test_a_head_that_is_not_where_a_call_names_it_is_none():
    head = Foreign(raw={"turnlog": "head", "digest": "h", "system": "Be brief."})
    asked = Foreign(raw={"turnlog": "request", "ask": "a", "head": "h", "said": 1})
    assert head_of(newest_call(logged(head, asked, A)), A) is None


def test_the_head_of_the_newest_call_is_found_with_its_parameters():
    head = Foreign(raw={"turnlog": "head", "digest": "h", "system": "Be brief.", "tools": [{"name": "look"}]})
    asked = {"turnlog": "request", "ask": "a", "head": "h", "said": 1}
    log = logged(head, Foreign(raw={**asked, "parameters": {"top_k": 3, "max_output": 9}}), A, ONE)
    found = newest_head(log)
    assert (found.system, [tool["name"] for tool in found.tools]) == ("Be brief.", ["look"])
    assert (found.parameters.top_k, found.max_output) == (3, 9)
    strange = newest_head(logged(head, Foreign(raw={**asked, "parameters": {"top_k": "x", "max_output": "y"}}), A))
    assert (strange.parameters.top_k, strange.max_output) == (None, None)
    assert newest_head(logged(head, Foreign(raw={**asked, "parameters": 5}), A)).max_output is None
    for nothing in (
        logged(A, ONE),
        logged(Foreign(raw=asked), A),
        logged(head, Foreign(raw={**asked, "agent": True}), A),
        logged(head, Foreign(raw=asked), A, ONE, B),
        logged(Foreign(raw={**head.raw, "turnlog": "other"}), Foreign(raw=asked), A),
    ):
        assert newest_head(nothing) is None


def test_a_request_that_asks_for_no_answer_stays_behind_the_answer_that_it_brings():
    path = path_of(User(content="one"), answer("First."))
    said = RequestMessages([json.dumps("one").encode(), json.dumps("=First.").encode()], read_text, {})
    asked = matching.decide([PlacedSession(path)], said.words("a"), named=True)
    assert (asked.kind, asked.rest) == ("rewound", 0)
    kept = matching.decide([PlacedSession(path)], said.words("a", asks=False), named=True)
    assert (kept.kind, kept.rest) == ("continued", 2)


def read_text(raw):
    text = json.loads(raw)
    return [Assistant(content=text[1:]) if text.startswith("=") else User(content=text)]


def test_the_answer_to_a_call_is_what_was_said_after_its_words():
    asked = {"turnlog": "request", "ask": "a", "said": 2}
    log = logged(Foreign(raw=asked), ONE, A, answer("x", stop="error"), TWO, Foreign(raw=asked), answer("Later."))
    assert answer_to(asked, log[1:4]) is None
    assert answer_to(asked, log[1:]).content == TWO.content
    turn = {**asked, "said": 1, "agent": True}
    calls = answer([text("One."), call({})])
    assert answer_to(turn, logged(A, calls)[1:]) is None, "its calls still run"
    assert [block["text"] for block in answer_to(turn, logged(A, B, calls, TWO)[1:]).content] == ["One.", "Two."]


def test_a_path_knows_that_its_newest_call_was_cut_short():
    assert path_of(A, answer("Half", stop="interrupted")).is_cut_short
    assert path_of(A, Failed(code="stopped")).is_cut_short
    assert not path_of(A).is_cut_short
    pruned_by = path_of(A, Shortened(targets=(2,), limit=4, by_client=True), Shortened(targets=(2,), limit=3))
    assert pruned_by.by_client == {3}
