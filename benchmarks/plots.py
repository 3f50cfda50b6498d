"""The plots of docs/evidence/measured.md are drawn from ``plots.json``, which has the figures of its tables.

    python -m benchmarks.plots        writes docs/evidence/measured-*.svg

Each has a background of its own, so that it is read on a light page and on a dark one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

DATA = Path(__file__).with_name("plots.json")
DOCS = Path(__file__).parents[1] / "docs" / "evidence"

_WIDE, _LABELS, _RIGHT, _TOP, _ROW = 860, 370, 90, 64, 26
_INK, _GREY, _GRID, _MET, _MISSED = "#202124", "#5f6368", "#dadce0", "#1a73e8", "#c5221f"
_SERIES = ("#1a73e8", "#b06000")


def plots() -> Mapping[str, str]:
    """The text of each plot, by the name of its file."""
    data = json.loads(DATA.read_text(encoding="utf-8"))
    return {f"measured-{name}.svg": _bars(one) if "bars" in one else _lines(one) for name, one in data.items()}


def _bars(plot: Mapping[str, Any]) -> str:
    """One bar for each figure; a mark where its target is, and in red what misses it."""
    place = _scale(plot["range"], plot["scale"], _LABELS, _WIDE - _RIGHT)
    high = _TOP + _ROW * len(plot["bars"]) + 16
    one = place(1)
    drawn = [_line(one, _TOP - 4, one, high - 12, _GREY)]
    for number, bar in enumerate(plot["bars"]):
        value, target = float(bar["value"]), float(bar["target"])
        met = value >= target if plot["at_least"] else value <= target
        color, middle = _MET if met else _MISSED, _TOP + _ROW * number + _ROW / 2
        left, right = sorted((place(value), one if plot["scale"] == "log" else place(0)))
        drawn += [
            _text(_LABELS - 12, middle + 4, bar["label"], "end"),
            _rectangle(left, middle - 7, max(right - left, 2), 14, color),
            _line(place(target), middle - 10, place(target), middle + 10, _INK, 2.5),
            _text(_WIDE - 12, middle + 4, f"{bar['value']} x" + ("" if met else ", not met"), "end", color),
        ]
    return _svg(plot, high, drawn)


def _lines(plot: Mapping[str, Any]) -> str:
    """A line for each series, by day, with its name at its end."""
    high, left, right = 320, 60, _WIDE - 150
    place = _scale(plot["range"], "linear", high - 40, _TOP)
    drawn = []
    for value in range(0, int(plot["range"][1]) + 1, 100):
        drawn += [
            _line(left, place(value), right, place(value), _GRID),
            _text(left - 8, place(value) + 4, value, "end"),
        ]
    for line, color in zip(plot["lines"], _SERIES, strict=True):
        values = [float(one) for one in line["values"].split(", ")]
        across = [left + (right - left) * day / (len(values) - 1) for day in range(len(values))]
        points = [f"{x:.1f},{place(value):.1f}" for x, value in zip(across, values, strict=True)]
        drawn.append(f'<polyline points="{" ".join(points)}" fill="none" stroke="{color}" stroke-width="2.5"/>')
        drawn += [f'<circle cx="{at.split(",")[0]}" cy="{at.split(",")[1]}" r="4" fill="{color}"/>' for at in points]
        drawn.append(_text(right + 12, place(values[-1]) + 4, line["label"], "start", color))
    days = len(plot["lines"][0]["values"].split(", "))
    for day in range(days):
        drawn.append(_text(left + (right - left) * day / (days - 1), high - 18, f"day {day + 1}", "middle"))
    return _svg(plot, high, drawn)


def _scale(of: tuple[float, float], kind: str, first: float, last: float) -> Callable[[float], float]:
    """Where a value is drawn: the ends of the range lie at ``first`` and ``last``."""
    turn = math.log if kind == "log" else float
    low, top = turn(of[0]), turn(of[1])
    return lambda value: first + (last - first) * (turn(value) - low) / (top - low)


def _svg(plot: Mapping[str, Any], high: float, drawn: list[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDE} {high:.0f}" role="img" font-family="sans-serif" '
        f'font-size="13">\n<title>{escape(plot["title"])}</title>\n'
        f'<rect width="{_WIDE}" height="{high:.0f}" rx="6" fill="#ffffff"/>\n'
        f'<text x="16" y="24" font-size="16" font-weight="bold" fill="{_INK}">{escape(plot["title"])}</text>\n'
    )
    return head + "\n".join([_text(16, 44, plot["note"], "start", _GREY), *drawn]) + "\n</svg>\n"


def _text(x: float, y: float, text: object, anchor: str, color: str = _INK) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}">{escape(str(text))}</text>'


def _rectangle(x: float, y: float, wide: float, high: float, color: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}" fill="{color}"/>'


def _line(x: float, y: float, to_x: float, to_y: float, color: str, width: float = 1) -> str:
    ends = f'x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}"'
    return f'<line {ends} stroke="{color}" stroke-width="{width}"/>'


if __name__ == "__main__":
    for name, text in plots().items():
        (DOCS / name).write_text(text, encoding="utf-8")
