"""A plot shows how a job went over time: rows a second, the lag of its clock, records set aside, the size of its state.

Its points are plain values, so it needs neither a job nor a checkpoint. Its colours are readable on light and dark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from persistent.errors import InvalidPipeline
from persistent.text.figures import clock_text

_WIDTH, _HEIGHT = 560, 90
_POINTS_MAX = 200
_GREY = "#888888"
_COLOURS = ("#1f9bcf", "#e08214", "#c0392b", "#7a68c8")
_SIZES = ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "kB"), (1, "bytes"))
_OLD_MS = 30 * 86_400_000
_SPANS_S = ((86_400, "days"), (3_600, "hours"), (60, "minutes"), (1, "seconds"))

Point = Mapping[str, Any]
"""``at``: seconds since the start, or a time of day in ms; ``when``: as text; ``rows``, ``rows_per_second``,
``clock_ms``, ``lag_ms``, ``late``, ``dead``, ``state_rows``, ``state_bytes``. What is None is not drawn."""


def plotted(points: Sequence[Point], title: str, *, of_day: bool) -> Any:
    """The points as an Altair chart of four panels. ``of_day``: ``at`` is a time of day (ms). InvalidPipeline without
    Altair."""
    alt = _altair()
    bytes_, unit = _unit([point["state_bytes"] for point in points], _SIZES)
    begun = [point for point in points if point["clock_ms"]]
    lag_s, span = _unit([abs(point["lag_ms"]) / 1000 for point in begun], _SPANS_S)
    rows = [
        {
            "at": point["at"],
            "when": point["when"],
            "rows": point["rows"],
            "rows/s": point["rows_per_second"],
            f"lag, {span}": point["lag_ms"] / 1000 / lag_s if point["clock_ms"] else None,
            "clock": point["clock_ms"] or None,
            "clock at": clock_text(point["clock_ms"]),
            "late": point["late"],
            "dead letters": point["dead"],
            f"state, {unit}": point["state_bytes"] / bytes_,
            "state rows": point["state_rows"],
        }
        for point in points
    ]
    # Of old data the lag is only its age: its clock shows how far it was read.
    is_old = bool(begun) and min(point["lag_ms"] for point in begun) > _OLD_MS
    # The rate of a step is known at its end, that of a checkpoint at its plan. All else holds until the next point.
    rate = "step-after" if of_day else "step-before"
    panels = [
        _panel(alt, "rows/s", _COLOURS[0], rate, axis=_axis(alt, "~s")),
        _clock(alt) if is_old else _panel(alt, f"lag, {span}", _COLOURS[3]),
        _bars(alt),
        _panel(alt, f"state, {unit}", _COLOURS[0]),
    ]
    last = len(panels) - 1
    charts = [panel.encode(x=_x(alt, of_day, labels=number == last)) for number, panel in enumerate(panels)]
    whole = {"data": alt.Data(values=rows), "title": title, "background": "transparent", "spacing": 8}
    chart = _picture(alt)(vconcat=charts, description=title, **whole)
    return (
        chart.resolve_scale(x="shared")
        .resolve_legend(color="independent")
        .configure_axis(labelColor=_GREY, titleColor=_GREY, gridColor=_GREY, gridOpacity=0.25, domainColor=_GREY)
        .configure_title(color=_GREY, anchor="start", fontSize=13)
        .configure_legend(labelColor=_GREY, titleColor=_GREY)
        .configure_view(stroke=None)
        .configure_line(point={"size": 14, "aria": False} if len(points) <= _POINTS_MAX else False)
    )


def _x(alt: Any, of_day: bool, *, labels: bool) -> Any:
    """The time; only the last panel names it."""
    options = {"labelOverlap": True, "tickCount": 8} if labels else {"labels": False, "ticks": False}
    if not of_day:
        return alt.X("at:Q", title="seconds since the start" if labels else None, axis=alt.Axis(**options))
    title = "time of day (UTC)" if labels else None
    return alt.X("at:T", title=title, scale=alt.Scale(type="utc"), axis=alt.Axis(**options))


def _panel(alt: Any, name: str, colour: str, interpolate: str = "step-after", axis: Any = None) -> Any:
    """A line over time."""
    y = alt.Y(name, type="quantitative", title=name, axis=axis or _axis(alt, ",.3~r"))
    numbers = [alt.Tooltip(field, type="quantitative", format=",.4~g") for field in (name, "rows", "state rows")]
    return _line(alt, colour, interpolate).encode(y=y, tooltip=["when:N", *numbers])


def _clock(alt: Any) -> Any:
    """The clock over time."""
    y = alt.Y("clock:T", title="clock (UTC)", scale=alt.Scale(type="utc"), axis=_axis(alt))
    return _line(alt, _COLOURS[3], "step-after").encode(y=y, tooltip=["when:N", "clock at:N"])


def _picture(alt: Any) -> Any:
    """The class of a chart that a notebook shows as a picture, unless the user has chosen a renderer: the page that
    Altair shows by default loads its code from the internet."""

    class Picture(alt.VConcatChart):  # type: ignore[misc]
        def _repr_mimebundle_(self, *chosen: Any, **options: Any) -> Any:
            if alt.renderers.active != "default":
                return super()._repr_mimebundle_(*chosen, **options)
            with alt.renderers.enable("svg"):
                return super()._repr_mimebundle_(*chosen, **options)

    return Picture


def _axis(alt: Any, format: str | None = None) -> Any:
    """An axis of values, as wide as those of the other panels."""
    return alt.Axis(tickCount=3, minExtent=40, **({} if format is None else {"format": format}))


def _line(alt: Any, colour: str, interpolate: str) -> Any:
    chart = alt.Chart(width=_WIDTH, height=_HEIGHT)
    # Upright, or a line of times would be drawn in the order of its values.
    return chart.mark_line(color=colour, interpolate=interpolate, orient="vertical")


def _bars(alt: Any) -> Any:
    """Late records and dead letters, one above the other."""
    names = ["late", "dead letters"]
    colour = alt.Color(
        "fate:N",
        title=None,
        scale=alt.Scale(domain=names, range=[_COLOURS[1], _COLOURS[2]]),
        legend=alt.Legend(orient="top", direction="horizontal", offset=2),
    )
    y = alt.Y("records:Q", title="set aside", axis=_axis(alt, "~s"), stack=True)
    bars = alt.Chart(width=_WIDTH, height=_HEIGHT).transform_fold(names, as_=["fate", "records"])
    # What is nothing is not drawn: a thousand empty bars are as large in a file as full ones.
    bars = bars.transform_filter("datum.records > 0").mark_bar(size=3, aria=False)
    return bars.encode(y=y, color=colour, tooltip=["when:N", "fate:N", "records:Q"])


def _unit(values: Sequence[float], units: Sequence[tuple[int, str]]) -> tuple[int, str]:
    """The largest unit that the largest value reaches."""
    largest = max(values, default=0)
    return next((unit for unit in units if largest >= unit[0]), units[-1])


def _altair() -> Any:
    try:
        import altair
    except ImportError as error:
        raise InvalidPipeline(
            f"a plot needs {error.name}: pip install 'persistent-monoids[notebook]' installs it"
        ) from error
    return altair
