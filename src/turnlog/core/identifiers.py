"""Finds what must be kept letter for letter: paths, URLs, ids, dates, versions, amounts, names, quoted strings.

No model is asked, so the list cannot forget. English and Chinese have their own forms of dates, amounts and names;
everything else looks the same in all languages. A text is read once, from left to right: each form begins only where a
word begins and has a limited length, so the time grows with the length of the text and with nothing else.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

NAME_MAX_CHARS: Final = 200
"""A longer run without a blank is data, such as base64; nobody refers to it by its letters."""
READ_MAX_CHARS: Final = 50_000
"""The characters read of one message, half from its beginning and half from its end. The search reads all."""
DENSE_NAMES: Final = 20
"""A text with more identifiers than this counts less for each of them."""
MENTIONS_MAX: Final = 20_000
"""The identifiers remembered at once. Beyond it the half with the least weight is forgotten."""

_UNITS: Final = (
    "[kKMGTP]i?[Bb](?:ps|/s)?|bytes?|bits?|ms|[µun]s|sec(?:onds?)?|min(?:utes?)?|hours?|hrs?|days?|weeks?|months?|years?|"
    "tokens?|messages?|requests?|rows?|lines?|users?|files?|pages?|items?|units?|pieces?|people|persons?|times|percent|"
    "USD|EUR|GBP|CNY|RMB|JPY|dollars?|euros?|yuan|rpm|rps|qps|[kKMG]?Hz|[kM]?W|kWh|[mk]?V|m?A|px|dpi|"
    "[kcm]?m|miles?|feet|ft|inch(?:es)?|[km]?g|tons?|lbs?|[m]?l|litres?|liters?|°[CF]|[shdwKMB]"
)
_CHINESE_UNITS: Final = (
    "[万亿千百]?(?:美元|欧元|日元|港元|人民币|块钱|元|千米|公里|厘米|毫米|平方米|米|千克|公斤|毫克|克|吨|毫升|升|度|"
    "毫秒|秒钟?|分钟|小时|个小时|个月|个|天|日|周|星期|月|年|岁|人|次|条|件|台|份|页|行|章|节|层|楼|号线|号|位|张|辆|"
    "倍|家|户|轮|版|期|字|箱|桶|袋|套|组|项|名|步|点|折|成|分)|[万亿]"
)
_MONTHS: Final = (
    "(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|Oct(?:ober)?|"
    "Nov(?:ember)?|Dec(?:ember)?)"
)
_SURNAMES: Final = (
    "赵钱孙李周吴郑王冯陈蒋沈韩杨朱秦许吕张曹严姜谢邹苏潘葛范彭鲁袁柳唐薛雷贺倪汤罗郝傅顾孟黄萧尹姚邵汪戴宋熊董梁杜"
    "阮蓝徐邱骆夏蔡田樊胡凌霍卢莫丁邓洪崔龚程邢裴陆翁段侯刘詹龙叶黎温庄柴瞿阎廖耿聂辛曾"
)
_NUMBER: Final = r"\d{1,15}(?:,\d{3}){0,5}+(?:\.\d{1,12})?"
_END: Final = r"(?![A-Za-z0-9_])"

_DATES: Final = (
    r"\d{4}-\d{1,2}-\d{1,2}(?:[T ]\d{1,2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:Z|[+-]\d{2}:?\d{2})?)?(?![\d-])",
    r"\d{4}/\d{1,2}/\d{1,2}(?!\d)",
    r"\d{4}年\d{1,2}月(?:\d{1,2}[日号])?",
    r"\d{1,2}月\d{1,2}[日号]",
    r"\d{1,2}(?:st|nd|rd|th)? " + _MONTHS + r"(?: \d{4})?" + _END,
    r"\d{1,2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?: ?[ap]m)?(?![\d:])",
)
_FIGURES: Final = (
    # addresses of machines, versions
    r"\d{1,9}(?:\.\d{1,9}){2,4}(?:[-+.]?(?:rc|alpha|beta|dev|post|a|b)\.?\d{0,6})?(?::\d{2,5})?" + _END,
    # amounts
    f"{_NUMBER}(?: ?(?:%|(?:{_UNITS}){_END}|{_CHINESE_UNITS})|(?![A-Za-z0-9_.-]))",
)
_WORDS: Final = (
    # a URL, an address of electronic mail
    r"[A-Za-z][A-Za-z0-9+.-]{1,15}://[^\s<>\"'`()\[\]{}，。；、！？（）【】「」《》“”]++",
    r"[A-Za-z0-9_.+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,6}",
    # paths: Windows, with two slashes, with one slash and an ending
    r"[A-Za-z]:\\[^\s<>\"'`|?*，。；]{1,200}",
    r"[A-Za-z0-9_.~@-]{0,100}+(?:/[A-Za-z0-9_.@+-]{1,100}+){2,20}",
    r"[A-Za-z0-9_.~@-]{1,100}+/[A-Za-z0-9_@+-]{1,100}+\.[A-Za-z0-9_.]{1,40}+",
    # names of files, modules and functions
    r"[A-Za-z0-9_-]{1,100}+(?:\.[A-Za-z_-][A-Za-z0-9_-]{0,60}+){1,6}(?![A-Za-z0-9_-])",
    r"[A-Za-z_][A-Za-z0-9_]{2,60}+\(\)",
    r"v\d{1,9}(?:\.\d{1,9}){0,4}(?:[-+.]?(?:rc|alpha|beta|dev|post|a|b)\.?\d{0,6})?(?![A-Za-z0-9_-])",
    # ids: with a digit, with an underscore, with capitals inside
    r"(?=[A-Za-z_-]{0,60}\d)[A-Za-z0-9_][A-Za-z0-9_-]{3,}+",
    r"[A-Za-z0-9]{1,60}+(?:_[A-Za-z0-9]{1,60}+){1,12}" + _END,
    r"[A-Za-z][a-z0-9]{1,40}(?:[A-Z][a-z0-9]{1,40}){1,8}" + _END,
    r"[A-Z]{2,20}+(?:-[A-Z0-9]{1,20}+){1,6}" + _END,
    # names of people, places and things
    _MONTHS + r" \d{1,2}(?:st|nd|rd|th)?(?:, \d{4})?" + _END,
    r"[A-Z][a-z’]{1,30}+(?:[ -](?:[A-Z][a-z’]{1,30}+|[A-Z]\.)){1,3}" + _END,
    r"(?<=[a-z,] )[A-Z][a-z]{2,30}+(?![A-Za-z0-9_’'])",
)
_OTHERS: Final = (
    r"[$€£¥￥] ?" + _NUMBER + r"(?: ?(?:[kKMB](?![A-Za-z])|万|亿))?",
    r"(?<![A-Za-z0-9_#])#\d{1,12}" + _END,
    r"(?<![A-Za-z0-9_@.])@[A-Za-z][A-Za-z0-9_-]{1,40}+",
    r"(?<=我叫|名叫|叫做|叫作|名为|称为|代号)[为是]?[\u4e00-\u9fff]{2,6}(?![\u4e00-\u9fff])",
    f"(?:(?<![\\u4e00-\\u9fff])|(?<=[由请给和与找问跟是叫]))(?!谢谢)[{_SURNAMES}][\\u4e00-\\u9fff]{{1,2}}"
    "(?=先生|女士|老师|经理|工程师|医生|教授|同学|主任|负责|说|提交|确认|要求|建议|[，。、；：！？]|$)",
)
# Plain words are most of a text, so they are passed over first, a whole row of them at once.
_IDENTIFIER: Final = re.compile(
    r"(?P<plain>(?:(?<![A-Za-z0-9_.~/@+-])[a-z]++(?![A-Za-z0-9_.~@/:(+\\-])[ \t\n,;!?)]*+)++)"
    r"|(?<![A-Za-z0-9_.])(?=\d)(?:" + "|".join((*_DATES, *_FIGURES)) + ")"
    r"|(?<![A-Za-z0-9_.~/@+-])(?=[A-Za-z0-9_.~/-])(?:" + "|".join(_WORDS) + ")"
    r"|(?=[$€£¥￥#@\u4e00-\u9fff])(?:" + "|".join(_OTHERS) + ")"
)
_QUOTED: Final = re.compile(
    r"(?<![A-Za-z0-9_\\])\"([^\"\n]{2,60})\"(?!\s?:)|`([^`\n]{2,60})`|“([^“”\n]{2,60})”|「([^「」\n]{2,60})」"
    r"|『([^『』\n]{2,60})』|《([^《》\n]{2,60})》|(?<![A-Za-z0-9_])'([^'\n]{2,60})'(?![A-Za-z0-9_])(?!\s?:)"
)
_FIRST_WORDS: Final = frozenset(
    (
        *("The", "This", "That", "These", "Those", "In", "On", "At", "For", "From", "With", "We", "He", "She", "It"),
        *("They", "Please", "And", "But", "Or", "If", "When", "Then", "So", "As", "By", "To", "My", "Our", "Your"),
        *("His", "Her", "Ask", "Tell", "See", "Use", "Call", "Let", "Yes", "No", "Also", "After", "Before", "Its"),
        *("Their", "You"),
    )
)


def found_in(text: str) -> Iterator[str]:
    """Each identifier as often as it occurs: first those that are known by their form, then what stands in quotes."""
    for match in _IDENTIFIER.finditer(text):
        if match.lastgroup:
            continue  # plain words
        name = _tidied(match[0])
        if 2 <= len(name) <= NAME_MAX_CHARS and _matters(name):
            yield name
    for match in _QUOTED.finditer(text):
        quoted = next(filter(None, match.groups())).strip(" ,.;:!?，。；：！？")
        if len(quoted) >= 2 and "; " not in quoted:
            yield quoted


def _tidied(name: str) -> str:
    name = name.rstrip(".,;:!?")
    first, _, rest = name.partition(" ")
    return rest if first in _FIRST_WORDS and rest else name


def _matters(name: str) -> bool:
    """Whether it says more than a short number or a word that begins a sentence."""
    if name.isdecimal():
        return len(name) >= 4
    if name in _FIRST_WORDS:
        return False
    return len(name) >= 4 or not name.islower() or not name.isascii()


def weighed(texts: Iterable[str], carried: Iterable[str] = (), *, half: int = 50) -> dict[str, float]:
    """The weight of each identifier, the heaviest first: the number of texts that mention it, each counted twice as
    much as one that is `half` texts older. A text of very many counts less for each: a long output must not displace
    what people said. `carried` are those from before the first text.
    """
    weights: dict[str, float] = dict.fromkeys(carried, 0.5)
    for index, text in enumerate(texts):
        names = set(found_in(_read_part(text)))
        share = min(1.0, DENSE_NAMES / max(1, len(names)))
        for name in names:
            weights[name] = weights.get(name, 0.0) + share * 2.0 ** (index / half)
        if len(weights) > MENTIONS_MAX:
            weights = dict(_heaviest(weights)[: MENTIONS_MAX // 2])
    return dict(_heaviest(weights))


def _heaviest(weights: dict[str, float]) -> list[tuple[str, float]]:
    # By name among equals: a set's order differs between processes, and the same log must give the same list.
    return sorted(weights.items(), key=lambda item: (-item[1], item[0]))


def _read_part(text: str) -> str:
    half = READ_MAX_CHARS // 2
    return text if len(text) <= READ_MAX_CHARS else f"{text[:half]}\n{text[-half:]}"


def is_in(name: str, text: str) -> bool:
    """Whether the text has it as a whole: `v1.2` is not in `v1.25`."""
    at = text.find(name)
    while at >= 0:
        end = at + len(name)
        if not _goes_on(text[at - 1 : at], name[0]) and not _goes_on(text[end : end + 1], name[-1]):
            return True
        at = text.find(name, at + 1)
    return False


def _goes_on(neighbour: str, edge: str) -> bool:
    """Whether this character and the edge of a name belong to one word. Chinese has no blanks between words."""
    return neighbour.isascii() and neighbour.isalnum() and edge.isascii() and edge.isalnum()


def missing_from(text: str, names: Iterable[str]) -> list[str]:
    """The identifiers that do not occur in the text, in their order. Most are decided without a search for each."""
    there = set(found_in(text))
    return [name for name in names if name not in there and not is_in(name, text)]
