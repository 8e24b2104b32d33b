"""The work every contestant is given: one turn, the same texts, the same way of timing.

A turn is 240 characters from the user and 830 from the assistant. The texts come from a fixed seed, so that all
contestants store the same bytes of text in every run.
"""

import random
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import cache

USER_CHARS = 240
ASSISTANT_CHARS = 830
TURN_MESSAGES = 2
WARMUP_TURNS = 50
DISTINCT_TURNS = 512

# For the search rows: each occurs in one message of a hundred. The two characters of the Chinese word also occur
# alone in other messages, which is what makes a search by character hard.
ENGLISH_WORD = "quokka"
CHINESE_WORD = "缓存"
COMMON_WORD = "the"
EVERYWHERE = "ledger"
"""In every message."""
QUESTIONS = {
    "english": ENGLISH_WORD,
    "chinese": CHINESE_WORD,
    "everywhere": EVERYWHERE,
    "common": COMMON_WORD,
    "both": f"{EVERYWHERE} {ENGLISH_WORD}",
    "question": f"What did we say about the {ENGLISH_WORD} in that {EVERYWHERE}?",
    "chinese_question": f"我们之前说的{CHINESE_WORD}是什么？",
    "phrase": f'"{EVERYWHERE} entry"',
    "without": f"{EVERYWHERE} -{ENGLISH_WORD}",
    "nowhere": "capybara",
}
"""What is searched for: words in one message of a hundred, in every one and in none, questions, phrases."""
RARE_EVERY = 100
CHINESE_CHARACTERS = (
    "的一是在不了有和人这中大为上个国我以要他时来用们生到作地于出就分对成会可主发年动同工也能下过子说产种"
    "面而方后多定行学法所民得经十三之进着等部度家电力里如水化高自二理起小物现实加量都两体制机当使点从业本"
    "去把性好应开它合还因由其些然前外天政四日那社义事平形相全表间样与关各重新线内数正心反你明看原又么利比"
    "或但质气第向道命此变条只没结解问意建月公无系军很情者最立代想已通并提直题党程展五果料象员革位入常文总"
    "次品式活设及管特件长求老头基资边流路级少图山统接知较将组见计别她手角期根论运农指几九区强放决西被干做"
    "必战先回则任取据处队南给色光门即保治北造百规热领七海口东导器压志世金增争济阶油思术极交受联什认六共权"
    "收证改清己美再采转更单风切打白教速花带安场身车例真务具万每目至达走积示议声报斗完类八离华名确才科张信"
    "马节话米整空元况今集温传土许步群广石记需段研界拉林律叫且究观越织装影算低持音众书布复容儿须际商非验连"
    "缓存"
)


def pick_words(rng: random.Random, vocabulary: list[str], length: int) -> str:
    words = ["the"]
    size = 3
    while size < length:
        word = vocabulary[int(len(vocabulary) * rng.random() ** 3)]
        words.append(word)
        size += len(word) + 1
    return " ".join(words)[:length]


def make_vocabulary(rng: random.Random, size: int = 5000) -> list[str]:
    syllables = [a + b for a in "bcdfghlmnprstvw" for b in ("a", "e", "i", "o", "u", "an", "er", "in", "or")]
    return ["".join(rng.choices(syllables, k=rng.choice((1, 2, 2, 3)))) for _ in range(size)]


@cache
def make_turns() -> list[tuple[str, str]]:
    rng = random.Random(7)
    vocabulary = make_vocabulary(rng)
    return [
        (pick_words(rng, vocabulary, USER_CHARS), pick_words(rng, vocabulary, ASSISTANT_CHARS))
        for _ in range(DISTINCT_TURNS)
    ]


PIECES = 5


def answer_pieces() -> list[str]:
    """What the models of servers answer at once: with the one that ends it, six frames."""
    answer = make_turns()[0][1]
    step = len(answer) // PIECES + 1
    return [answer[at : at + step] for at in range(0, len(answer), step)]


def turns(count: int) -> Iterator[tuple[str, str]]:
    distinct = make_turns()
    return (distinct[n % DISTINCT_TURNS] for n in range(count))


def searchable_turns(count: int) -> Iterator[tuple[str, str]]:
    """English from the user, Chinese from the assistant, the two words sprinkled in."""
    rng = random.Random(11)
    distinct = make_turns()
    chinese = ["".join(rng.choices(CHINESE_CHARACTERS, k=ASSISTANT_CHARS // 3)) for _ in range(DISTINCT_TURNS)]
    for n in range(count):
        user, assistant = distinct[n % DISTINCT_TURNS][0], chinese[n % DISTINCT_TURNS].replace(CHINESE_WORD, "的")
        if n % (RARE_EVERY // TURN_MESSAGES) == 0:
            user, assistant = f"{ENGLISH_WORD} {user}", f"{assistant}{CHINESE_WORD}。"
        yield f"{user} {EVERYWHERE} entry", f"{assistant} {EVERYWHERE} entry"


def summarise(samples_ns: list[int]) -> dict[str, float]:
    ordered = sorted(samples_ns)
    return {
        "us": statistics.median(ordered) / 1e3,
        "mean_us": statistics.fmean(ordered) / 1e3,
        "p95_us": ordered[int(len(ordered) * 0.95)] / 1e3,
    }


def time_turns(append: Callable[[str, str], object], count: int, warmup: int = WARMUP_TURNS) -> dict[str, float]:
    samples = []
    for user, assistant in turns(warmup + count):
        begin = time.perf_counter_ns()
        append(user, assistant)
        samples.append(time.perf_counter_ns() - begin)
    return summarise(samples[warmup:])


async def time_turns_async(
    append: Callable[[str, str], Awaitable[object]], count: int, warmup: int = WARMUP_TURNS
) -> dict[str, float]:
    samples = []
    for user, assistant in turns(warmup + count):
        begin = time.perf_counter_ns()
        await append(user, assistant)
        samples.append(time.perf_counter_ns() - begin)
    return summarise(samples[warmup:])
