"""Where a message belongs: who shares a session with whom, and how a key is written."""

import pytest

from turnlog.core import keys
from turnlog.core.keys import Inbound, SessionKey
from turnlog.errors import UsageError

AWKWARD = [
    "a:b",
    "a/b",
    "a%b",
    "a%3Ab",
    "%",
    "%25",
    "%FF",
    "a b",
    "a\tb",
    "a\nb",
    "a\u2028b",
    "a\u00a0b",
    "\x00",
    "\x7f",
    "\x85",
    "\x9f",
    "\ud800",
    "\udc00:",
    "李雷",
    "Ünïcode",
    "😀",
    "A",
    "a",
    "+49 170/123:4%",
    "thread",
    "direct",
    "group",
    "agent",
    "..",
    "",
]
AWKWARD_IDS = [raw for raw in AWKWARD if raw]


def direct(peer="user", **fields):
    return SessionKey(**{"agent": "main", "channel": "cli", "kind": "direct", "peer": peer, **fields})


def written(key):
    return keys.format(key)


def resolved(style="zeroclaw", /, **fields):
    return keys.format(keys.resolve(Inbound(**{"channel": "telegram", **fields})), style)


def test_a_thread_comes_before_its_group():
    assert resolved(chat_type="supergroup", chat_id="42", sender_id="u1", thread_id="17") == "thread:telegram:42:17"


def test_a_group_is_the_same_place_for_every_sender():
    one = resolved(chat_type="supergroup", chat_id="42", sender_id="u1")
    other = resolved(chat_type="supergroup", chat_id="42", sender_id="u2")
    assert one == other == "group:telegram:42"


def test_a_private_message_belongs_to_its_sender():
    assert resolved(channel="imessage", chat_type="private", sender_id="alice") == "direct:imessage:alice"


def test_a_private_chat_without_a_sender_belongs_to_the_chat():
    assert resolved(chat_type="private", chat_id="77") == "direct:telegram:77"


@pytest.mark.parametrize("field", ["thread_id", "account", "chat_id"])
def test_empty_strings_count_as_absent(field):
    given = {"chat_type": "dm", "sender_id": "alice"}
    assert resolved("canonical", **given, **{field: ""}) == resolved("canonical", **given)


def test_an_empty_sender_counts_as_absent():
    assert resolved(chat_type="dm", sender_id="", chat_id="9") == "direct:telegram:9"


def test_the_key_of_the_terminal_is_written_in_three_ways():
    key = keys.resolve(Inbound(channel="cli", chat_type="direct", sender_id="user"))
    assert str(key) == keys.format(key) == "agent:main:cli:direct:user"
    assert keys.format(key, "triple") == "main:cli:user"
    assert keys.format(key, "zeroclaw") == "direct:cli:user"


def test_a_sender_in_private_and_in_a_group_never_share_a_key():
    private = keys.resolve(Inbound(channel="telegram", chat_type="private", chat_id="alice", sender_id="alice"))
    group = keys.resolve(Inbound(channel="telegram", chat_type="group", chat_id="42", sender_id="alice"))
    lookalike = keys.resolve(Inbound(channel="telegram", chat_type="group", chat_id="alice", sender_id="alice"))
    assert len({private, group, lookalike}) == len({written(k) for k in (private, group, lookalike)}) == 3


def test_one_sender_at_two_bot_accounts_has_two_sessions():
    given = {"channel": "telegram", "chat_type": "dm", "sender_id": "alice"}
    one, other = (keys.resolve(Inbound(**given, account=account)) for account in ("bot1", "bot2"))
    assert one != other
    assert written(one) == "agent:main:telegram:bot1:direct:alice"


def test_one_group_seen_by_two_bot_accounts_has_two_sessions_in_every_dm_scope():
    given = {"channel": "telegram", "chat_type": "group", "chat_id": "42"}
    for scope in keys.DM_SCOPES:
        found = {keys.resolve(Inbound(**given, account=account), dm_scope=scope) for account in ("bot1", "bot2")}
        assert len(found) == 2


@pytest.mark.parametrize("raw", ["direct", "dm", "private", "p2p", "c2c", "DM", "Private", "P2P"])
def test_words_for_a_private_chat(raw):
    assert keys.chat_type(raw) == "direct"


@pytest.mark.parametrize("raw", ["group", "channel", "supergroup", "room", "SuperGroup", "ROOM"])
def test_words_for_a_group(raw):
    assert keys.chat_type(raw) == "group"


@pytest.mark.parametrize("raw", ["thread", "topic", "Thread", "TOPIC"])
def test_words_for_a_thread(raw):
    assert keys.chat_type(raw) == "thread"


@pytest.mark.parametrize("raw", [None, "", "mpim", "guild", " dm", "direct ", "directs", "ｄｍ"])
def test_any_other_word_is_unknown(raw):
    assert keys.chat_type(raw) == "unknown"


@pytest.mark.parametrize("raw", [None, "", "mpim", "guild"])
def test_a_group_on_an_unknown_platform_never_joins_a_private_session(raw):
    given = {"channel": "new", "chat_type": raw, "sender_id": "alice"}
    private = keys.resolve(Inbound(**given))
    group = keys.resolve(Inbound(**given, chat_id="42"))
    assert private.kind == "direct"
    assert group.kind == "group"
    assert group.peer == "42"
    assert written(private) != written(group)


def test_an_unknown_chat_whose_id_is_the_senders_is_private():
    key = keys.resolve(Inbound(channel="new", chat_id="alice", sender_id="alice"))
    assert key == keys.resolve(Inbound(channel="new", chat_type="dm", sender_id="alice"))


def test_an_unknown_chat_without_a_sender_is_a_group():
    assert keys.resolve(Inbound(channel="new", chat_id="42")).kind == "group"


def test_a_thread_word_without_a_thread_id_is_the_whole_group():
    assert resolved(chat_type="topic", chat_id="42", sender_id="u") == "group:telegram:42"


def test_a_thread_of_a_private_chat_is_its_own_place():
    given = {"channel": "slack", "chat_type": "dm", "sender_id": "alice"}
    thread = keys.resolve(Inbound(**given, thread_id="t1"))
    assert written(thread) == "agent:main:slack:direct:alice:thread:t1"
    assert thread != keys.resolve(Inbound(**given))


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        ("per-account-channel-peer", "agent:main:telegram:bot1:direct:alice"),
        ("per-channel-peer", "agent:main:telegram:direct:alice"),
        ("per-peer", "agent:main:any:direct:alice"),
        ("main", "agent:main:any:direct:main"),
    ],
)
def test_dm_scopes(scope, expected):
    inbound = Inbound(channel="telegram", account="bot1", chat_type="dm", chat_id="5", sender_id="alice")
    assert written(keys.resolve(inbound, dm_scope=scope)) == expected


@pytest.mark.parametrize("scope", ["per-channel-peer", "per-peer", "main"])
def test_a_dm_scope_never_merges_groups(scope):
    one, other = (
        keys.resolve(Inbound(channel=channel, chat_type="group", chat_id="42", sender_id="alice"), dm_scope=scope)
        for channel in ("telegram", "slack")
    )
    assert one != other


def test_an_unknown_dm_scope_is_a_usage_error_that_names_the_known_ones():
    with pytest.raises(UsageError) as caught:
        keys.resolve(Inbound(channel="cli", sender_id="u"), dm_scope="per-planet")
    assert "per-peer" in caught.value.hint


@pytest.mark.parametrize(
    "fields",
    [
        {"channel": "", "sender_id": "u"},
        {"channel": "cli"},
        {"channel": "cli", "chat_type": "dm"},
        {"channel": "cli", "chat_type": "group", "sender_id": "u"},
        {"channel": "cli", "chat_type": "group", "chat_id": "", "sender_id": "u"},
    ],
)
def test_a_message_without_a_place_is_a_usage_error(fields):
    with pytest.raises(UsageError):
        keys.resolve(Inbound(**fields))


@pytest.mark.parametrize("agent", ["main", "a", "0", "a-b_c9", "a" * 64])
def test_agent_ids(agent):
    assert keys.resolve(Inbound(channel="cli", sender_id="u"), agent=agent).agent == agent


@pytest.mark.parametrize("agent", ["", "Main", "-a", "_a", "a" * 65, "a b", "../x", "a\n", "é", "a:b", "a/b", "a.b"])
def test_any_other_agent_id_is_a_usage_error_and_never_rewritten(agent):
    with pytest.raises(UsageError):
        keys.resolve(Inbound(channel="cli", sender_id="u"), agent=agent)
    with pytest.raises(UsageError):
        keys.check_agent(agent)


@pytest.mark.parametrize("raw", AWKWARD_IDS)
@pytest.mark.parametrize("part", ["channel", "account", "peer", "thread"])
def test_every_raw_id_round_trips_through_the_canonical_text(part, raw):
    for kind in ("direct", "group"):
        key = direct(**{"kind": kind, part: raw})
        assert keys.parse(written(key)) == key


def test_distinct_places_never_share_a_canonical_text():
    found = {}
    for raw in AWKWARD_IDS:
        for kind in ("direct", "group"):
            for other in (None, "thread", "direct", raw):
                for key in (
                    direct(raw, kind=kind, account=other),
                    direct(raw, kind=kind, thread=other),
                    direct(raw, kind=kind, thread=other, account=other),
                ):
                    assert found.setdefault(written(key), key) == key


@pytest.mark.parametrize("raw", AWKWARD_IDS)
def test_a_canonical_text_is_one_printable_line_without_slashes(raw):
    text = written(direct(raw))
    assert "/" not in text
    assert not any(char.isspace() for char in text)
    assert text.count(":") == 4
    text.encode()


def test_nothing_but_punctuation_blanks_and_controls_is_changed():
    raw = "Ünïcode-李雷_😀.~!@#$^&*()[]{}<>|\\'\"`,;?+="
    assert keys.encode_part(raw) == raw


def test_encoding_to_the_letter():
    assert keys.encode_part("a:b/c%d e\x00") == "a%3Ab%2Fc%25d%20e%00"
    assert keys.encode_part("\u00a0") == "%C2%A0"
    assert keys.encode_part("abc123") == "abc123"


def test_control_characters_are_encoded_up_to_the_last_and_no_letter_is():
    for code in (*range(0x21), *range(0x7F, 0xA1)):
        assert keys.encode_part(chr(code)).startswith("%")
    for char in "!~¡ÿ":
        assert keys.encode_part(char) == char


def test_a_percent_run_that_is_not_ours_is_left_as_it_stands():
    assert keys.decode_part("%FF%FE") == "%FF%FE"
    assert keys.decode_part("%3a") == ":"
    assert keys.decode_part("%zz%") == "%zz%"


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("agent:main:cli:direct:user", "agent:main:cli:direct:user"),
        ("agent:bob:telegram:bot1:group:42", "agent:bob:telegram:bot1:group:42"),
        ("agent:bob:telegram:group:42:thread:7", "agent:bob:telegram:group:42:thread:7"),
        ("agent:bob:telegram:bot1:group:42:thread:7", "agent:bob:telegram:bot1:group:42:thread:7"),
        ("main:cli:user", "agent:main:cli:direct:user"),
        ("thread:telegram:42:17", "agent:main:telegram:group:42:thread:17"),
        ("group:telegram:42", "agent:main:telegram:group:42"),
        ("direct:imessage:alice", "agent:main:imessage:direct:alice"),
        ("main:cli:a%3Ab", "agent:main:cli:direct:a%3Ab"),
        ("main:cli:%61", "agent:main:cli:direct:a"),
        ("agent:cli:user", "agent:agent:cli:direct:user"),
    ],
)
def test_all_three_formats_are_accepted_for_lookup(text, canonical):
    assert written(keys.parse(text)) == canonical


def test_formats_that_name_no_agent_take_the_given_one():
    assert keys.parse("group:telegram:42", agent="bob").agent == "bob"
    assert keys.parse("thread:telegram:42:1", agent="bob").agent == "bob"


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "a",
        "a:b",
        "main:cli:",
        ":cli:user",
        "main::user",
        "agent:main:cli:direct:",
        "agent:main:cli:nobody:user",
        "agent:main:cli:a:b:direct:user",
        "agent:main:cli:direct:user:topic:1",
        "agent:main:cli:direct:user:thread",
        "Main:cli:user",
        "agent:MAIN:cli:direct:user",
        "../..:cli:user",
        "a:b:c:d",
    ],
)
def test_what_is_not_a_key_is_a_usage_error(text):
    with pytest.raises(UsageError):
        keys.parse(text)


def test_an_unknown_key_format_is_a_usage_error_that_names_the_known_ones():
    with pytest.raises(UsageError) as caught:
        keys.format(direct(), "yaml")
    assert "zeroclaw" in caught.value.hint


def test_a_triple_cannot_say_a_group_or_a_thread_so_those_stay_canonical():
    assert keys.format(direct(kind="group"), "triple") == "agent:main:cli:group:user"
    assert keys.format(direct(thread="1"), "triple") == "agent:main:cli:direct:user:thread:1"


def test_a_key_has_at_most_1024_characters():
    room = keys.KEY_MAX_CHARS - len("agent:main:cli:direct:")
    fitting = Inbound(channel="cli", chat_type="dm", sender_id="x" * room)
    key = keys.resolve(fitting)
    assert keys.parse(written(key)) == key
    for inbound in (
        Inbound(channel="cli", chat_type="dm", sender_id="x" * (room + 1)),
        Inbound(channel="cli", chat_type="group", chat_id="x" * (room + 2)),
        Inbound(channel="cli", chat_type="dm", sender_id=":" * (room // 3 + 1)),
    ):
        with pytest.raises(UsageError):
            keys.resolve(inbound)
    with pytest.raises(UsageError):
        keys.parse(written(key) + "x")


@pytest.mark.parametrize("text", ["agent:main:cli:direct:a" + " " * 900, "main:cli:" + "x" * 1010])
def test_a_key_that_was_accepted_can_be_parsed_again_from_its_canonical_text(text):
    try:
        key = keys.parse(text)
    except UsageError:
        return
    assert keys.parse(written(key)) == key


@pytest.mark.parametrize("good", ["a", "A-b_9", "0", "ses-1700000000000-abc123", "x" * 64])
def test_session_ids(good):
    assert keys.check_session_id(good) == good


@pytest.mark.parametrize(
    "bad", ["", "-a", "_a", "a/b", "..", "a.b", "a\n", "é", "x" * 65, "a b", "a\x00", "a\\b", "%61"]
)
def test_any_other_session_id_is_a_usage_error(bad):
    with pytest.raises(UsageError):
        keys.check_session_id(bad)


def test_a_made_session_id_has_its_form_and_passes_its_own_gate():
    made = keys.session_id(1_700_000_000_000, bytes([0, 25, 26, 35, 36, 255, 7]))
    assert made == "ses-1700000000000-az09ad"
    assert keys.check_session_id(made) == made
    assert keys.session_id(5, bytes(6)) == "ses-0000000000005-aaaaaa"


def test_two_ids_of_the_same_millisecond_differ():
    assert keys.session_id(1, b"abcdef") != keys.session_id(1, b"abcdeg")


@pytest.mark.parametrize(
    "text", ["ann", "ses-1", "main:cli:user", "direct:cli:user", "ses-1794909511239-V2LR7J", " ", "李雷"]
)
def test_a_plain_text_is_the_direct_chat_of_that_name(text):
    assert keys.named(text) == SessionKey(agent="main", channel="app", kind="direct", peer=text)


def test_only_texts_of_two_forms_are_read_as_ids_and_keys():
    assert keys.named("ses-1794909511239-v2lr7j") == keys.SessionById("ses-1794909511239-v2lr7j")
    assert keys.named("agent:main:cli:direct:ann").channel == "cli"
    with pytest.raises(UsageError, match="not a session key"):
        keys.named("agent:nonsense")
    assert keys.app_key("agent:main:cli:direct:ann").peer == "agent:main:cli:direct:ann"
    assert keys.parse(str(keys.app_key("ses-1794909511239-v2lr7j"))).peer == "ses-1794909511239-v2lr7j"


def test_an_app_key_has_the_agent_and_channel_that_are_given():
    assert str(keys.app_key("ann", agent="support", channel="web")) == "agent:support:web:direct:ann"
    for wrong in ({"user": ""}, {"user": "ann", "channel": ""}, {"user": "ann", "agent": "NO"}):
        with pytest.raises(UsageError):
            keys.app_key(**wrong)
