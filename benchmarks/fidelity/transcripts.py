"""Transcripts with marked facts, and the questions about them, in English, Chinese and mixed: the same for a seed.

Every message states a fact of its own. Some facts are only in the input of a call, some only in one line of a long
output, one is stated again and again with another value, and some are corrected later.
"""

import random
from itertools import product
from typing import Any, Literal

from msgspec import Struct

from turnlog.core.entries import Assistant, Entry, ToolResult, User

Language = Literal["en", "zh", "mixed"]
LANGUAGES: tuple[Language, ...] = ("en", "zh", "mixed")
QuestionKind = Literal["value", "subject", "question", "call", "line", "newest"]

MENTIONS = 60
OUTPUT_LINES = 400
"""In a transcript of FULL_MESSAGES; shorter transcripts have shorter outputs, as their windows are smaller."""
FULL_MESSAGES = 2_100
CALL_EVERY, CORRECTED_EVERY, CORRECTED_AFTER = 10, 15, 11
"""In turns: how often there is a call, how often a claim, and how much later the claim is corrected."""
PINS = 5

EN_FIRST = (
    "amber basalt cedar cobalt copper coral crimson ebony emerald fern flint garnet hazel indigo ivory jade juniper"
    " lavender lilac maple marble moss nickel ochre olive onyx opal pearl pine quartz ruby saffron sage silver slate"
    " teal topaz umber violet willow"
)
EN_SECOND = (
    "archive atrium bakery balcony bridge canteen chapel cinema depot dock estuary ferry foundry gallery garage glacier"
    " greenhouse harbour hospital kiosk library lighthouse market mill museum nursery orchard pavilion pier quarry"
    " reservoir station stadium studio tannery terminal theatre tower tunnel vineyard"
)
ZH_FIRST = (
    "琥珀 玄武 雪松 钴蓝 青铜 珊瑚 绯红 乌木 翡翠 蕨叶 燧石 榛果 靛蓝 象牙 杜松 丁香 枫叶 苔藓 镍白 赭石 橄榄"
    " 缟玛 珍珠 松针 石英 红宝 藏红 鼠尾 银灰 板岩 水鸭 黄玉 棕土 紫罗 垂柳 朱砂 孔雀 月白 墨绿 天青"
)
ZH_SECOND = (
    "档案馆 中庭 面包房 阳台 大桥 食堂 礼拜堂 电影院 仓库 码头 河口 渡轮 铸造厂 画廊 车库 冰川 温室 港口 医院"
    " 售货亭 图书馆 灯塔 集市 磨坊 博物馆 苗圃 果园 展亭 栈桥 采石场 水库 车站 体育场 工作室 皮革厂"
    " 航站楼 剧院 塔楼 隧道 葡萄园"
)
EN_PLAIN = (
    "We talked about the weather on the way. Nothing else came up before lunch. The rest can wait until the next call."
    " Somebody should look at the chairs as well. The coffee was cold again this morning."
)
ZH_PLAIN = "路上聊了聊天气。午饭之前没有别的事情。剩下的下次再谈。椅子也该有人看看。今天早上的咖啡又凉了。"

EN_ASKED = (
    "What is the {attribute} of the {subject}?",
    "Do you remember which {attribute} we agreed on for the {subject}?",
    "Can you tell me again what the {subject}'s {attribute} was?",
    "I need the {attribute} for the {subject} please",
    "{subject}: which {attribute} did I give you?",
)
ZH_ASKED = (
    "{subject}的{attribute}是什么？",
    "还记得我们之前说的{subject}的{attribute}是多少吗？",
    "请问{subject}的{attribute}到底是哪一个",
    "帮我查一下{subject}的{attribute}",
    "{subject}当时的{attribute}是多少来着？",
)
ATTRIBUTES = {
    "en": ("contract", "locker", "badge", "folder", "invoice"),
    "zh": ("合同", "储物柜", "工牌", "文件夹", "发票"),
}
AttributeLanguage = Literal["en", "zh"]


class Asked(Struct, frozen=True):
    """A search, and a text that its answer must contain; of `newest`, the first hit must contain it."""

    kind: QuestionKind
    words: str
    expected: str


class ChangedValue(Struct, frozen=True):
    old: str
    new: str


class MarkedTranscript(Struct, frozen=True):
    language: Language
    messages: list[Entry]
    asked: list[Asked]
    markers: list[str]
    """All values, in order."""
    changed: list[ChangedValue]
    pinned: list[int]
    """Indexes of messages."""


class _Scribe:
    def __init__(self, language: Language, seed: int, output_lines: int) -> None:
        self.random = random.Random(f"{language} {seed}")
        self.language = language
        self.output_lines = output_lines
        self.messages: list[Entry] = []
        self.asked: list[Asked] = []
        self.markers: list[str] = []
        self.changed: list[ChangedValue] = []
        self.subjects = {
            "en": self._shuffled(list(map(" ".join, product(("upper", "lower"), EN_FIRST.split(), EN_SECOND.split())))),
            "zh": self._shuffled(list(map("".join, product(("上城", "下城"), ZH_FIRST.split(), ZH_SECOND.split())))),
        }
        self.values = self._shuffled(range(100_000, 1_000_000))
        self.due: dict[int, tuple[AttributeLanguage, str, str, str]] = {}
        """Turn → the claim that it corrects."""

    def _shuffled(self, items: Any) -> list[Any]:
        return self.random.sample(items, k=min(len(items), 20_000))

    def tongue(self, turn: int) -> AttributeLanguage:
        return self.language if self.language != "mixed" else ("en", "zh")[turn % 2]

    def value(self) -> str:
        number = str(self.values.pop())
        forms = (f"KX-{number}", f"notes/{number[:3]}/plan_{number}.md", f"v{number[:2]}.{number[2:4]}.{number[4:]}")
        return self.random.choice(forms)

    def fact(self, turn: int) -> str:
        """A sentence with a new subject and a new value, and the questions about it."""
        tongue = self.tongue(turn)
        subject, value = self.subjects[tongue].pop(), self.value()
        attribute = self.random.choice(ATTRIBUTES[tongue])
        self.markers.append(value)
        asked = self.random.choice(EN_ASKED if tongue == "en" else ZH_ASKED)
        by_subject = f"{attribute} {subject}" if tongue == "en" else f"{subject} {attribute}"
        self.asked += [
            Asked("value", value, value),
            Asked("subject", by_subject, value),
            Asked("question", asked.format(subject=subject, attribute=attribute), value),
        ]
        if turn % CORRECTED_EVERY == 4:
            self.due[turn + CORRECTED_AFTER] = (tongue, subject, attribute, value)
        return self.stated(tongue, subject, attribute, value)

    @staticmethod
    def stated(tongue: AttributeLanguage, subject: str, attribute: str, value: str) -> str:
        if tongue == "en":
            return f"The {attribute} of the {subject} is {value}."
        return f"{subject}的{attribute}是 {value}。"

    def correction(self, turn: int) -> str:
        if turn not in self.due:
            return ""
        tongue, subject, attribute, old = self.due[turn]
        new = self.value()
        self.changed.append(ChangedValue(old, new))
        self.asked = [one for one in self.asked if one.expected != old]
        self.markers.remove(old)
        self.markers.append(new)
        if tongue == "en":
            return f"Correction: the {attribute} of the {subject} is {new}, not {old}."
        return f"更正：{subject}的{attribute}改为 {new}，不是 {old}。"

    def padding(self, tongue: AttributeLanguage) -> str:
        text = EN_PLAIN.split(". ") if tongue == "en" else ZH_PLAIN.split("。")[:-1]
        sign = "." if tongue == "en" else "。"
        return f" {self.random.choice(text).rstrip('.')}{sign}"

    def mention(self, number: int) -> str:
        level = 2_000 + number * 7
        newest = f"{level} cm"
        self.asked = [one for one in self.asked if one.kind != "newest"]
        self.asked += [
            Asked("newest", words, newest)
            for words in ("gauge northern weir", "What is the latest gauge at the northern weir?")
        ]
        if self.language == "zh":
            self.asked = [one for one in self.asked if one.kind != "newest"]
            self.asked += [Asked("newest", words, newest) for words in ("北堰 水位", "北堰的水位现在是多少？")]
            return f"今天北堰的水位是 {newest}。"
        return f"The gauge at the northern weir shows {newest} today."

    def call(self, turn: int) -> list[Entry]:
        secret, line = f"job-{self.values.pop()}", f"probe_{self.values.pop()}"
        topic, limit = self.subjects["en"].pop(), self.values.pop()
        at = self.random.randrange(self.output_lines)
        noise = [f"line {n}: checked {self.values[-n % 999]} without findings" for n in range(self.output_lines)]
        noise[at] = f"line {at}: {line} of the {topic} exceeded {limit} ms"
        self.asked += [
            Asked("call", secret, secret),
            Asked("call", f"restart {topic.replace(' ', '-')}", secret),
            Asked("line", line, str(limit)),
            Asked("line", f"{topic} exceeded", str(limit)),
        ]
        given = {"command": f"runner restart {topic.replace(' ', '-')} --ticket {secret}"}
        block = {"type": "tool_use", "id": f"call_{turn}", "name": "run_command", "input": given}
        return [
            Assistant(content=[{"type": "text", "text": "I will look."}, block]),
            ToolResult(tool_use_id=f"call_{turn}", content="\n".join(noise)),
        ]


def make(language: Language, messages: int, seed: int = 16) -> MarkedTranscript:
    scribe = _Scribe(language, seed, OUTPUT_LINES * messages // FULL_MESSAGES)
    mentions = min(MENTIONS, messages // 8)
    every = max(1, messages // 2 // mentions)
    told = turn = 0
    while len(scribe.messages) < messages:
        tongue = scribe.tongue(turn)
        words = [scribe.correction(turn), scribe.fact(turn), scribe.padding(tongue)]
        if turn % every == 1 and told < mentions:
            words.append(scribe.mention(told))
            told += 1
        scribe.messages.append(User(content=" ".join(filter(None, words))))
        if turn % CALL_EVERY == 7:
            scribe.messages += scribe.call(turn)
        scribe.messages.append(Assistant(content=f"OK. {scribe.fact(turn * 2 + 1)}{scribe.padding(tongue)}"))
        turn += 1
    users = [n for n, entry in enumerate(scribe.messages) if isinstance(entry, User)]
    pinned = users[2 : 2 + PINS]
    return MarkedTranscript(language, scribe.messages, scribe.asked, scribe.markers, scribe.changed, pinned)
