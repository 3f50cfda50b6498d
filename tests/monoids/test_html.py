"""Facts in HTML: nothing that a key or a message holds becomes part of the page."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

import monoids
from monoids import Count, HyperLogLog, Monoid, Sum, record
from monoids.html import facts_html, text_html

EVIL = '<script>alert(1)</script>" onload="x \' & </td></table>'


class Page(HTMLParser):
    """The tags, attributes and text of a piece of HTML; every tag must be closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open, self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += f"{data}\n"


SAFE = {"div", "strong", "table", "tbody", "tr", "td", "em"}


def test_what_is_shown_is_text() -> None:
    """A key that holds a script would run in the notebook of whoever looks at it."""
    page = Page(facts_html(EVIL, [(EVIL, EVIL), ("", EVIL)], [EVIL]))
    assert page.names <= SAFE and page.attributes == {"style", "colspan"}
    assert page.text.count(EVIL) == 5


def test_long_and_broken_text_is_shown() -> None:
    """One long value would fill the notebook's file; a lone surrogate could not be sent to the browser at all."""
    assert len(text_html("&" * 100_000)) == 1_000 * len("&amp;") + 1
    assert text_html("\ud800 end").encode() == rb"\ud800 end"


@pytest.mark.parametrize("monoid", [Count(), Sum(float), record(visits=Count(), visitors=HyperLogLog())], ids=repr)
def test_a_monoid_says_what_it_keeps(monoid: Monoid[object]) -> None:
    """Who chooses a state in a notebook would have to look each law up."""
    page = Page(monoid._repr_html_())
    assert repr(monoid) in page.text
    assert ("a group" in page.text) == isinstance(monoid, monoids.Group)
    assert ("within a rounding error" in page.text) != monoid.exact
    assert all(name in page.text for name in monoid.output_fields())


def test_a_monoid_of_ones_own_is_shown() -> None:
    """A name or an identity of the user's is text as well."""

    class Longest(Monoid[str]):
        identity = "<b>"

        def parameters(self) -> dict[str, object]:
            return {"<i>": 1}

        def combine(self, a: str, b: str) -> str:
            return max(a, b)

    page = Page(Longest()._repr_html_())
    assert "Longest(<i>=1)" in page.text and "'<b>'" in page.text and page.names <= SAFE
