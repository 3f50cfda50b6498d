"""The plots of the measured figures show what the tables say."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from benchmarks.plots import DATA, DOCS, plots

PLOTS = json.loads(DATA.read_text(encoding="utf-8"))
SHOWN = [one for plot in PLOTS.values() for one in (*plot.get("bars", ()), *plot.get("lines", ()))]
ROWS = [line.strip("|").split("|") for line in (DOCS / "measured.md").read_text().splitlines() if line[:2] == "| "]


def row_of(shown: dict[str, Any]) -> list[str]:
    """The row of the table that a bar or line is from; the nth that begins so, if several do."""
    return [row for row in ROWS if row[0].strip().startswith(shown["row"])][shown.get("nth", 0)]


@pytest.mark.parametrize("shown", SHOWN, ids=lambda shown: shown["label"])
def test_a_figure_is_that_of_its_row(shown: dict[str, Any]) -> None:
    """Without it a plot could show a figure that was measured once, beside a table that is newer."""
    _, _, target, measured = row_of(shown)
    value = shown.get("value") or shown["values"]
    assert re.search(rf"(?<![\d.]){re.escape(value)}(?![\d.]\d)", measured), (value, measured)
    assert "target" not in shown or re.search(rf"(?<![\d.]){re.escape(shown['target'])}(?!\.?\d)", target), target


@pytest.mark.parametrize("name", plots())
def test_a_plot_is_drawn_from_its_data(name: str) -> None:
    """Without it a figure could be changed and its plot not drawn again: ``python -m benchmarks.plots`` does."""
    assert (DOCS / name).read_text(encoding="utf-8") == plots()[name]
    assert f"({name})" in (DOCS / "measured.md").read_text()


@pytest.mark.parametrize("plot", [plot for plot in PLOTS.values() if "bars" in plot], ids=lambda plot: plot["title"])
def test_nothing_lies_outside_of_a_plot(plot: dict[str, Any]) -> None:
    """Without it a bar that has grown would be drawn over the labels."""
    low, high = plot["range"]
    assert all(low <= float(bar[end]) <= high for bar in plot["bars"] for end in ("value", "target"))
