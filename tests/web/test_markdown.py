"""Text becomes HTML that can do no harm, whatever it says."""

from html.parser import HTMLParser

import pytest
from hypothesis import given, strategies as st

from turnlog.server import markdown
from turnlog.server.markdown import ATTRIBUTES, CLASSES, COPY, TAGS, GrowingText

from .browsing import HARM, RTL, UNSEEN, WORD


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def check_harmless(html):
    parser = Tags()
    parser.feed(str(html).replace(COPY, ""))
    for tag, attributes in parser.found:
        assert tag in TAGS
        own = {"rel": "noopener noreferrer nofollow", "target": "_blank"} if tag == "a" else {}
        own |= {"class": attributes["class"]} if attributes.get("class") in CLASSES.get(tag, ()) else {}
        for name, value in attributes.items():
            assert own.get(name) == value or name in ATTRIBUTES.get(tag, ())
        href = attributes.get("href") or ""
        assert not href or ":" not in href.partition("/")[0] or href.startswith(("http:", "https:", "mailto:"))


@pytest.mark.parametrize("text", [*HARM, WORD[:200_000], "[" * 11_000, "> " * 5_000])
def test_what_wants_to_do_harm_is_shown_and_not_done(text):
    check_harmless(markdown.render(text))


@given(st.text(alphabet=st.sampled_from("<>[]()!*_`\"'&;:/#\\\n\t \u202e\u200bajvscriptonr=|-~")))
def test_no_text_gets_a_tag_or_an_address_through_that_is_not_allowed(text):
    check_harmless(markdown.render(text))


def test_markdown_is_markdown():
    html = markdown.render(
        "# Head\n\n**bold** and `code`\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n[x](https://example.org)"
    )
    for piece in ("<h1>Head</h1>", "<strong>bold</strong>", "<code>code</code>", "<td>1</td>"):
        assert piece in html
    assert '<a href="https://example.org" target="_blank" rel="noopener noreferrer nofollow">x</a>' in html


MIXED = """# Head

Some *text* with `code`, then a list:

1. one

2. two
   - three

```python
def f(x):
    return "</code><script>" + x  # done
```

| a | b |
|---|---|
| 1 | $x_1$ |

[later]: https://example.org

> quoted [later]

Last *words*"""


@pytest.mark.parametrize("step", [1, 3, 17, 400])
def test_a_text_that_grows_ends_as_the_whole_text_and_final_blocks_never_change(step):
    growing, before = GrowingText(), []
    for end in [*range(step, len(MIXED), step), len(MIXED)]:
        blocks = growing.blocks(MIXED[:end])
        final = before[:-2]  # the last line may have looked like a block of its own
        assert blocks[: len(final)] == final
        check_harmless("".join(blocks))
        before = blocks
    assert "\n".join(before) == markdown.render(MIXED)
    assert len(before) == 7


def test_code_is_coloured_escaped_and_can_be_copied():
    html = markdown.render("```python\ndef f(): return '<b>'  # no\n```")
    assert '<span class="k">def</span>' in html
    assert "'&lt;b&gt;'" in html
    assert html.count("data-copy-code") == 1
    assert "<span" not in markdown.render("```nonsense\ndef f()\n```").partition("<code>")[2]


def test_an_open_fence_is_code_already():
    assert "<pre" in markdown.render("text\n\n```js\nlet x = 1")


def test_formulas_stay_as_they_were_written():
    html = markdown.render(r"$a_b$ and $c_d$, \(x_1 \alpha\), \[y_2\], $$z_3 * w_4 * v$$ but $5 *or* $6")
    for formula in ("$a_b$", "$c_d$", r"\(x_1 \alpha\)", r"\[y_2\]", "$$z_3 * w_4 * v$$", "$5 <em>or</em> $6"):
        assert formula in html


def test_long_code_and_what_follows_it_are_shown():
    html = markdown.render("```\n" + "x = 1\n" * 5_000 + "```\n\nafter *it*")
    assert html.count("x = 1") == 5_000
    assert html.endswith("<p>after <em>it</em></p>")


def test_a_picture_is_a_link_and_nothing_is_fetched():
    html = markdown.render("![a cat](https://example.org/cat.png)")
    assert "<img" not in html
    assert ">[a cat]</a>" in html


def test_signs_that_turn_text_around_are_named_and_not_obeyed():
    assert "\u202e" not in markdown.render(RTL)
    assert "[U+202E]" in markdown.render(RTL)
    assert "\u202e" not in markdown.plain(RTL)
    assert "\u202e" not in markdown.name(RTL)


def test_a_name_of_nothing_that_can_be_seen_is_no_name():
    assert markdown.name(UNSEEN) == ""
    assert markdown.name(" \u3164\u00a0") == ""
    assert markdown.name(None) == ""
    assert markdown.name(f"a{UNSEEN}b\n c") == "ab c"
    assert len(markdown.name(WORD)) == 200


def test_a_dump_is_cut_and_not_parsed():
    html = markdown.render("*a* " * 100_000)
    assert "<em>" not in html
    assert len(html) < 70_000


def test_a_lone_surrogate_can_be_sent():
    assert markdown.render("a\ud800b").encode()
    assert markdown.plain("a\ud800b").encode()
