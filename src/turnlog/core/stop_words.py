"""Words that need not match, because they carry the sentence and not its subject; and how a question is split.

English words are separate. In a run of Chinese, Japanese or Korean characters the words of a question are what is left
between the words listed here. Cutting too often does no harm: a piece of a word occurs wherever the word does.
"""

import re

_ENGLISH = (
    "a about again all also am an and any are aren as at be been before being but by can could couldn did didn do does"
    " doesn doing don done else ever exactly for from get give had has hasn have haven having he her here hers him his"
    " how i if in into is isn it its just kind know let many may me might mine most much must my need no not now of on"
    " one or our ours please recall remember remind said same say says shall she should shouldn show so some something"
    " such tell than that the their them then there these they thing things this those through to told too until up us"
    " used using very want was wasn we were weren what whats when where which while who whom whose why will with won"
    " would wouldn yes yet you your yours"
)
ENGLISH = frozenset(_ENGLISH.split())
CONTRACTED = re.compile(r"['’](?:s|re|ve|ll|d|m|t)$", re.IGNORECASE)

_CHINESE = (
    "为什么 什么时候 什么地方 是什么 有没有 是不是 能不能 可不可以 要不要 告诉我 请问 什么 怎么样 怎么"
    " 怎样 如何 多少 几个 几次 哪个 哪里 哪些 哪儿 哪一个 哪一 为何 何时 何处 是否 到底 究竟 之前 以前"
    " 刚才 上次 当时 我们 你们 他们 她们 它们 咱们 这个 那个 这些 那些 这里 那里 说过 提到 提过 讲过"
    " 还记得 记得 帮我 一下 一共 总共 可以 应该 需要 已经 曾经 关于 对于 以及 还是 或者 并且 而且 因为"
    " 所以 如果 但是 然后 没有 現在 什麼 怎麼 為什麼 哪裡 我們 你們 他們 這個 那個 這些 嗎"
    " 的 了 是 吗 呢 吧 啊 呀 嘛 么 和 与 及 或 我 你 您 他 她 它 这 那 哪 谁 几 在 把 被 请 还 也 都 就"
    " 又 有 麼 這 誰"
)
_JAPANESE = (
    "について ください でしょうか ましたか ませんか ですか ますか でした ました ません です ます だった"
    " から まで など とは って という いくら いくつ どこ どれ どの どう なぜ いつ だれ なに 何時 何 誰"
    " この その あの これ それ あれ"
)
_KOREAN_ENDINGS = (
    "입니까 인가요 이에요 예요 입니다 습니까 습니다 하나요 했나요 됩니까 에서는 에서 에게 으로 까지 부터"
    " 처럼 보다 이나 이란 은 는 이 가 을 를 의 에 로 와 과 도 만 나 란"
)
_KOREAN = "무엇 뭐 무슨 어디 어느 언제 누구 누가 왜 어떻게 얼마 몇 그 이 저 우리 나 너 것 있나요 인가요"
KOREAN = frozenset(_KOREAN.split())


def _longest_first(words: str) -> str:
    return "|".join(map(re.escape, sorted(words.split(), key=len, reverse=True)))


_CUT_HAN = re.compile(_longest_first(_CHINESE))
_CUT_KANA = re.compile(_longest_first(_JAPANESE))
_HIRAGANA_RUN = re.compile("[\u3041-\u309f]+")
_ENDING = re.compile(f"(?:{_longest_first(_KOREAN_ENDINGS)})$")
_HANGUL_WORD = re.compile("[\uac00-\ud7af]+")
HIRAGANA_MIN_CHARS = 3
"""A shorter run of hiragana between other characters is an ending or a particle, hardly ever a word."""


def pieces_of(run: str) -> list[str]:
    """The words of a question in a run without blanks; the run itself if nothing else is left."""
    if _HANGUL_WORD.fullmatch(run):
        return [without_ending(run)]
    pieces: list[str] = []
    for part in _CUT_HAN.split(run):
        pieces += _kana_pieces(part) if _HIRAGANA_RUN.search(part) else [part]
    told = [piece for piece in pieces if len(piece) > 1]
    return told or [piece for piece in pieces if piece] or [run]


def _kana_pieces(part: str) -> list[str]:
    found: list[str] = []
    for left in _CUT_KANA.split(part):
        rest = _HIRAGANA_RUN.fullmatch(left)
        found += [left] if rest else _HIRAGANA_RUN.sub(_kept_hiragana, left).split()
    return found


def _kept_hiragana(run: "re.Match[str]") -> str:
    return f" {run[0]} " if len(run[0]) >= HIRAGANA_MIN_CHARS else " "


def without_ending(word: str) -> str:
    """A Korean word without its particle. Each syllable is a token, so what is left is found with any particle."""
    if len(word) < 3 or not _HANGUL_WORD.fullmatch(word):
        return word
    bare = _ENDING.sub("", word)
    return bare if len(bare) >= 2 else word
