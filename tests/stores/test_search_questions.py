"""Plain questions, identifiers by parts and filters, in a transcript that was not written for the search.

A question names a text that one of the first hits must have, and how many hits count as the first. Every store answers
the same.
"""

import asyncio

import pytest
from msgspec.structs import replace

from turnlog import Query, open_store
from turnlog.core.entries import Assistant, Compaction, Opened, Rewind, Title, ToolResult, User
from turnlog.core.searchable import ANSWER_MARK, text_of_entry

from . import postgres

SENSORS = "\n".join(
    f"2026-02-0{1 + n % 9} 10:{n % 60:02}:11 "
    + (
        "WARN sensor=0613 humidity dropped to 31.7 percent near proofing cabinet"
        if n == 613
        else f"INFO sensor={n:04d} reading ok"
    )
    for n in range(900)
)
SAID = (
    ("I'm Margarethe, I run the bakery on Lindenstraße 14. We open at 6:30 every day except Mondays.", "Noted."),
    ("Our supplier for rye flour is Mühle Petersen; ask for Jürgen, +49 431 5551234. We pay 0.74 € per kilo.", "Good."),
    ("The oven's serial number is WP-88213/B and the warranty ends on 2027-03-31.", "I'll remember the warranty."),
    ("My daughter Lea is allergic to hazelnuts: never suggest nut cake for her birthday on the 9th of May.", "Sure."),
    ("请记住：我们的财务软件密码提示是“祖母的猫”，发票每月25号寄给税务顾问王敏。", "好的，已经记下了。"),
    ("下周三的试吃会改到城南仓库，参加的人有十二位，预算上限八千五百元。", "明白，试吃会改到城南仓库。"),
    ("数据库迁移失败了，报错是 ERR_LOCK_TIMEOUT，发生在凌晨两点四十分。", "我看一下锁超时的原因。"),
    ("東京支社の会議は金曜日の午後三時に変更、会議室は「さくら」です。", "承知しました。"),
    ("서버 점검은 목요일 새벽 네 시에 시작하고 담당자는 박지훈입니다.", "알겠습니다."),
    ("งบประมาณโครงการร้านกาแฟคือสี่หมื่นบาท ส่งใบเสนอราคาภายในวันศุกร์", "รับทราบ"),
    ("Встреча с Ольгой перенесена на четверг, адрес: улица Гагарина 17.", "Хорошо."),
    ("The function parseInvoiceHeader in lib/io/InvoiceReader2.ts throws when vatRate is null.", "I will guard it."),
    ("commit 4f9c2ab17d broke the build; revert to release v3.18.0-rc2", "Reverting."),
    ("Send it to billing+north@example-mail.org, cc to ops_team@example-mail.org", "Sent."),
    ("Revenue in March was 1,284,350 dollars, up 12.5%.", "Great."),
    ('She said "the red door, not the blue one" and left.', "ok"),
    ("the blue one is not red; the door is left", "ok"),
    ("La réunion à Besançon : la contraseña de São João est chez Παπαδόπουλος.", "D'accord."),
    ("Chị Hạnh sống ở đường Nguyễn Huệ; İbrahim Çelik hat Łódź besucht.", "ok"),
    ("The new machine has 64GB and was installed at 2026-12-01T08:00Z by hand.", "ok"),
)
CALLS = (
    (
        "run_command",
        {"command": "kubectl rollout restart deploy/oven-gateway -n produktion --timeout=90s"},
        "restarted",
    ),
    (
        "write_file",
        {"path": "src/pricing/discount_rules.py", "text": "MAX_DISCOUNT = 0.35\ndef loyalty_bonus(customerId):"},
        "ok",
    ),
    ("read_file", {"path": "/var/log/bakery/sensors.log"}, SENSORS),
    (
        "http_get",
        {"url": "https://api.wetter.example/v2/forecast?city=kiel", "x-trace": "tr_9f8e7d"},
        '{"city":"Kiel","wind_knots":22}',
    ),
    (
        "search_history",
        {"words": "warranty oven"},
        f"{ANSWER_MARK}\n#6 user: the serial number is WP-88213/B, zebrafinch",
    ),
    ("read_history", {"from_seq": 1, "to_seq": 4}, f"{ANSWER_MARK}\n#2 user: I'm Margarethe, zebrafinch"),
    ("mcp__notes__recall", {"query": "flour"}, f"{ANSWER_MARK}\n- rye flour, zebrafinch"),
)
ASKED = (
    ("when does the bakery open?", "6:30", 3),
    ("On which day is the shop closed", "Mondays", 8),
    ("What do we pay for rye flour per kilo?", "0.74", 3),
    ("Who is our contact at Mühle Petersen", "Jürgen", 3),
    ("phone number of Jürgen", "5551234", 3),
    ("5551234", "5551234", 1),
    ("reunion besancon", "Besançon", 1),
    ("contrasena sao joao", "Besançon", 1),
    ('"réunion à besancon"', "Besançon", 1),
    ("Παπαδοπουλος", "Besançon", 1),
    ("nguyen hue", "Nguyễn", 1),
    ("duong", "Nguyễn", 1),
    ("ibrahim celik", "İbrahim", 1),
    ("lodz", "Łódź", 1),
    ("64 GB", "64GB", 1),
    ("2026-12-01", "2026-12-01T", 1),
    ("Muhle Petersen", "Jürgen", 1),
    ("+49 431 5551234", "5551234", 1),
    ("WP-88213/B", "WP-88213", 1),
    ("WP-88213", "WP-88213", 1),
    ("88213", "WP-88213", 1),
    ("When does the warranty of the oven end?", "2027-03-31", 3),
    ("What is Lea allergic to?", "hazelnuts", 2),
    ("birthday of my daughter", "9th of May", 3),
    ("allergies hazelnut", "hazelnuts", 3),
    ("密码提示是什么？", "祖母的猫", 2),
    ("发票什么时候寄给税务顾问？", "25号", 2),
    ("税务顾问叫什么名字", "王敏", 2),
    ("王敏", "王敏", 1),
    ("试吃会在哪里", "城南仓库", 2),
    ("试吃会的预算是多少", "八千五百", 2),
    ("多少人参加试吃会？", "十二位", 2),
    ("迁移为什么失败了", "ERR_LOCK_TIMEOUT", 2),
    ("ERR_LOCK_TIMEOUT", "凌晨", 2),
    ("lock_timeout", "ERR_LOCK_TIMEOUT", 1),
    ("oven-gateway", "oven-gateway", 2),
    ("kubectl rollout", "produktion", 1),
    ("which namespace did we restart the deploy in? produktion", "produktion", 2),
    ("timeout=90s", "90s", 1),
    ("discount_rules.py", "discount_rules", 1),
    ("discount rules", "discount_rules", 2),
    ("src/pricing", "discount_rules", 1),
    ("MAX_DISCOUNT", "0.35", 1),
    ("loyaltyBonus", "loyalty_bonus", 1),
    ("loyalty bonus customer", "loyalty_bonus", 1),
    ("humidity proofing cabinet", "31.7", 1),
    ("sensor=0613", "31.7", 2),
    ("What did the humidity drop to?", "31.7", 2),
    ("sensors.log", "/var/log/bakery", 2),
    ("wind in Kiel", "22", 3),
    ("wind_knots", "22", 1),
    ("forecast kiel", "wetter.example", 2),
    ("tr_9f8e7d", "9f8e7d", 1),
    ("api.wetter.example", "forecast", 1),
    ("会議室", "さくら", 1),
    ("東京支社の会議はいつですか", "金曜日", 1),
    ("점검 담당자", "박지훈", 1),
    ("서버 점검은 언제 시작하나요?", "네 시", 2),
    ("งบประมาณ", "สี่หมื่นบาท", 1),
    ("ใบเสนอราคา", "วันศุกร์", 1),
    ("Гагарина", "17", 1),
    ("встреча с Ольгой", "четверг", 1),
    ("parseInvoiceHeader", "vatRate", 2),
    ("invoice header", "parseInvoiceHeader", 3),
    ("InvoiceReader2.ts", "vatRate", 1),
    ("lib/io", "InvoiceReader2", 1),
    ("vat rate null", "vatRate", 1),
    ("4f9c2ab17d", "release v3.18.0-rc2", 1),
    ("4f9c2ab", "release v3.18.0-rc2", 1),
    ("v3.18.0-rc2", "4f9c2ab17d", 1),
    ("3.18.0", "rc2", 1),
    ("billing+north@example-mail.org", "ops_team", 1),
    ("ops_team", "billing+north", 1),
    ("1284350", "1,284,350", 1),
    ("1,284,350", "March", 1),
    ("revenue March", "12.5%", 1),
    ('"the red door"', "not the blue one", 1),
    ('"not red"', "the blue one is not red", 1),
    ("boat -white", "anthracite", 1),
    ("boat from:okonkwo", "anthracite", 1),
    ("from:bente boat", "white", 1),
    ("queue night shift", "949 trays", 1),
    ("How many trays does the queue of the night shift hold now?", "949 trays", 1),
    ("夜班的排队现在有多少托盘？", "949", 1),
    ("secret ingredient", "tonka", 1),
    ("what is the secret ingredient?", "tonka", 1),
    ("Sommerfest", "Sommerfest", 1),
    ("quokka", "Quokka", 1),
    ("margarethe", "Lindenstraße", 3),
    ("Lindenstrasse 14", "Lindenstraße", 1),
    ("lindenstraße", "Lindenstraße", 1),
    ("muhle petersen", "Mühle", 1),
    ("from:tool humidity", "31.7", 1),
    ("from:assistant anthracite", "Anthracite it is", 1),
    ("from:run_command restarted", "restarted", 1),
    ("revert commit 4f9c2ab", "release v3.18.0-rc2", 1),
    ("v3.18.0", "rc2", 1),
    ("boat after:2026-04-01T00:50", "anthracite", 3),
    ("secret before:2026-04-01T03:15", "cardamom", 1),
)


def called(n, name, given, answer):
    block = {"type": "tool_use", "id": f"c{n}", "name": name, "input": given}
    return [Assistant(content=[block]), ToolResult(tool_use_id=f"c{n}", content=answer), Assistant(content="Done.")]


def spoken():
    """Groups of entries; the session's first entry has seq 1."""
    yield [Opened(id="s", key="agent:main:cli:direct:s", agent="main", channel="cli")]
    for said, answer in SAID:
        yield [User(content=said), Assistant(content=answer)]
    for n, call in enumerate(CALLS):
        yield [User(content="Look please"), *called(n, *call)]
    yield [
        User(content="The boat named Sturmvogel should be painted in anthracite.", sender="Okonkwo"),
        Assistant(content="Anthracite it is."),
        User(content="I'd rather have the boat painted in white.", sender="Bente Maas"),
        Assistant(content="White?"),
    ]
    for n in range(60):
        yield [
            User(content=f"夜班排队 The queue of the night shift holds {300 + n * 11} trays now."),
            Assistant(content="ok"),
        ]


def transcript():
    groups = list(spoken())
    last = sum(map(len, groups))
    groups += [
        [User(content="The secret ingredient is cardamom-zeta-19."), Assistant(content="Cardamom, ok.")],
        [
            Rewind(to=last),
            User(content="Forget that. The secret ingredient is tonka bean."),
            Assistant(content="Tonka."),
        ],
        [Title(title="Bakery Margarethe / Sommerfest")],
        [Compaction(summary="The bakery opens at 6:30. Quokka budget.", first_kept=20, covers=(2, 19))],
    ]
    for n in range(40):
        groups.append([User(content=f"Filler {n}: what is the price of the coffee?"), Assistant(content="As usual.")])
    minutes = iter(range(10_000))
    for group in groups:
        at = [next(minutes) for _ in group]
        yield [replace(e, ts=f"2026-04-01T{m // 60:02}:{m % 60:02}:00.000Z") for e, m in zip(group, at, strict=True)]


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """For each store, (words → the texts and states of its hits)."""
    folder = tmp_path_factory.mktemp("questions")
    words = [asked[0] for asked in ASKED] + ["zebrafinch", "cardamom zeta", "boat -white", "trays"]

    async def found_in(url):
        async with open_store(url) as store:
            async with store.lease("s") as lease:
                for group in transcript():
                    await store.append("s", group, lease=lease)
            log = {entry.seq: text_of_entry(entry, {}) for entry in await store.read("s")}
            hits = {one: await store.search(one, scope=Query(id="s")) for one in words}
            return {one: [(log[hit.seq], hit.state, hit.seq) for hit in some] for one, some in hits.items()}

    async def run():
        return [await found_in(url) for url in (f"jsonl:{folder}/j", f"sqlite:{folder}/s.db", postgres.url_of(folder))]

    return asyncio.run(run())


@pytest.mark.parametrize(("words", "expected", "most"), ASKED)
def test_a_question_finds_what_it_asks_for(words, expected, most, answers):
    assert any(expected in text for text, _, _ in answers[0][words][:most]), answers[0][words][:3]


def test_every_store_answers_in_the_same_order(answers):
    assert answers[0] == answers[1] == answers[2]


def test_what_the_history_tools_answered_is_never_found(answers):
    assert answers[0]["zebrafinch"] == []


def test_what_was_rewound_is_marked(answers):
    assert [state for _, state, _ in answers[0]["cardamom zeta"]] == ["rewound"]


def test_the_newest_of_sixty_mentions_comes_first(answers):
    numbers = [seq for _, _, seq in answers[0]["trays"]]
    assert len(numbers) >= 20
    assert numbers == sorted(numbers, reverse=True)


def test_a_word_with_a_minus_is_left_out(answers):
    assert answers[0]["boat -white"]
    assert not any("white" in text for text, _, _ in answers[0]["boat -white"])
