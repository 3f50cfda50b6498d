"""Facts in HTML are a small table that a notebook shows.

Every text is escaped. The style is inline and takes its colours from the page, light or dark: a front end may drop
style sheets and scripts.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

_TEXT_MAX = 1_000
_TABLE = "border-collapse:collapse;margin:0.3em 0;font-size:inherit"
_ROW = "background:transparent;border-top:1px solid rgba(128,128,128,0.35)"
_CELL = "text-align:left;vertical-align:top;padding:0.15em 1em 0.15em 0;max-width:60em;overflow-wrap:anywhere"
_NAME = "opacity:0.7;white-space:nowrap"
_NOTE = "margin:0.3em 0;padding-left:0.6em;border-left:3px solid rgba(200,130,0,0.8)"

Fact = tuple[str, str]
"""A name and its text."""


def facts_html(title: str, facts: Iterable[Fact], notes: Sequence[str] = ()) -> str:
    """A title, a row for each fact, and notes below them. An empty name is a line across the table.

    >>> shown = facts_html("Visits", [("key", "<script>")])
    >>> "&lt;script&gt;" in shown, "<script>" in shown
    (True, False)
    """
    rows = "".join(map(_row, facts))
    below = "".join(f'<div style="{_NOTE}">{text_html(note)}</div>' for note in notes)
    return f'<div><strong>{text_html(title)}</strong><table style="{_TABLE}"><tbody>{rows}</tbody></table>{below}</div>'


def text_html(text: str) -> str:
    """A text as HTML, cut where it is very long.

    >>> text_html("a < b"), len(text_html("x" * 5_000))
    ('a &lt; b', 1001)
    """
    excerpt = text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}\N{HORIZONTAL ELLIPSIS}"
    return html.escape(excerpt.encode("utf-8", "backslashreplace").decode())


def _row(fact: Fact) -> str:
    name, text = fact
    if not name:
        cells = f'<td colspan="2" style="{_CELL};padding-top:0.6em"><em>{text_html(text)}</em></td>'
    else:
        cells = f'<td style="{_CELL};{_NAME}">{text_html(name)}</td><td style="{_CELL}">{text_html(text)}</td>'
    return f'<tr style="{_ROW}">{cells}</tr>'
