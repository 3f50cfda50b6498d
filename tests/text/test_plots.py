"""A plot: four panels of a job over time, of points that are plain values."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from persistent.errors import InvalidPipeline
from persistent.text.plots import plotted

DAY_MS = 86_400_000
NOW_MS = 1_700_000_000_000


def points(count: int, *, lag_ms: int = 5_000, **changes: Any) -> list[dict[str, Any]]:
    return [
        {
            "at": float(number),
            "when": f"{number} s",
            "rows": 1_000 * number,
            "rows_per_second": 1_000.0 * number,
            "clock_ms": NOW_MS + 1_000 * number,
            "lag_ms": lag_ms + number,
            "late": number % 2,
            "dead": 0,
            "state_rows": 10 * number,
            "state_bytes": (3 << 20) * number,
            **changes,
        }
        for number in range(count)
    ]


def panels(chart: Any) -> list[str]:
    return [panel["encoding"]["y"]["title"] for panel in chart.to_dict()["vconcat"]]


def values(chart: Any) -> list[dict[str, Any]]:
    return list(chart.to_dict()["data"]["values"])


def test_the_panels_show_what_the_points_say() -> None:
    """A figure in another unit than its axis names would be read a thousand times too large."""
    chart = plotted(points(5), "a run", of_day=False)
    assert panels(chart) == ["rows/s", "lag, seconds", "set aside", "state, MB"]
    last = values(chart)[-1]
    assert (last["rows/s"], last["state, MB"], last["late"], last["state rows"]) == (4_000.0, 12.0, 0, 40)
    assert last["lag, seconds"] == pytest.approx(5.004)
    assert chart.to_dict()["title"] == "a run"


def test_old_data_shows_its_clock() -> None:
    """The lag of a batch of last year is its age: a line that stands still, and says nothing of how far it was read."""
    assert panels(plotted(points(3, lag_ms=400 * DAY_MS), "", of_day=False))[1] == "clock (UTC)"
    assert panels(plotted(points(3, lag_ms=2 * DAY_MS), "", of_day=False))[1] == "lag, days"


def test_a_clock_that_has_not_begun_has_no_lag() -> None:
    """The lag of a clock at 0 would be half a century, and flatten all others."""
    some = [*points(1, clock_ms=0, lag_ms=NOW_MS), *points(3)]
    chart = plotted(some, "", of_day=False)
    assert panels(chart)[1] == "lag, seconds" and values(chart)[0]["lag, seconds"] is None


@pytest.mark.parametrize("of_day", [False, True])
def test_a_plot_is_drawn_for_light_and_dark(of_day: bool) -> None:
    """A front end without the internet, or with a dark background, would show nothing."""
    chart = plotted(points(20, at=NOW_MS) if of_day else points(20), "<b>", of_day=of_day)
    described = chart.to_dict()
    assert described["background"] == "transparent"
    import vl_convert

    svg = vl_convert.vegalite_to_svg(described)
    assert ">rows/s<" in svg and "<b>" not in svg and "&lt;b&gt;" in svg


def test_a_notebook_is_shown_a_picture_that_needs_no_internet() -> None:
    """On a cluster's network the cell would show that a script cannot be loaded."""
    import altair

    chart = plotted(points(3), "a run", of_day=False)
    for one in (chart, chart.properties(title="mine")):
        (picture,) = one._repr_mimebundle_().items()
        assert picture[0] == "image/svg+xml" and "http" not in picture[1].replace("http://www.w3.org/", "")
    with altair.renderers.enable("html"):
        assert "text/html" in chart._repr_mimebundle_(), "the user's choice"
    assert altair.renderers.active == "default"


def test_a_picture_of_many_points_is_not_large() -> None:
    """A notebook of a few plots would be too large to be sent."""
    (sizes,) = {len(plotted(points(1_000), "", of_day=False)._repr_mimebundle_()["image/svg+xml"]) // 1_000_000}
    assert sizes == 0
    one = plotted(points(1), "", of_day=False)._repr_mimebundle_()["image/svg+xml"]
    assert one.count("mark-symbol") >= 3, "a single point is seen"


def test_without_altair_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Altair is an extra."""
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(InvalidPipeline, match=r"a plot needs altair: pip install 'persistent-monoids\[notebook\]'"):
        plotted(points(1), "", of_day=False)
