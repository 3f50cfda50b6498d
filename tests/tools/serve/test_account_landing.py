"""A record that was set aside is shown with the windows that would hold it, and whether they still take it."""

from __future__ import annotations

from typing import Any

import pytest

from monoids import Count
from persistent import (
    MemorySink,
    MemorySource,
    NonWindowState,
    Pipeline,
    WindowState,
    session,
    sliding,
    tumbling,
)
from persistent.errors import Refused
from persistent.storage import MemoryStorage
from persistent.time.clock import wall_ms
from persistent.tools.serve import Shown
from persistent.tools.serve.account import aside, landing
from tests.tools.serve.jobs import corrected, ran, several
from tests.visits import Counted


def counted(state: Any) -> Shown:
    """After records of two minutes; the clock is 120 s."""
    MemoryStorage("serve-landing").clear()
    rows = [{"ts": 1_000 * second, "page": "/"} for second in (10, 50, 70, 120)]
    source = MemorySource(rows, timestamp="ts", ordered=True)
    pipeline = Pipeline(source=source, task=Counted(state), sink=MemorySink(), checkpoint="memory://serve-landing")
    pipeline.run(engine="embedded")
    pipeline.run(engine="embedded")
    return Shown("landing", "counts.py:pipeline", pipeline.storage, pipeline)


def said(state: Any, timestamp: int | None) -> str:
    of = landing(counted(state))
    assert of is not None
    return of(timestamp)


@pytest.mark.parametrize(
    "state, timestamp, text",
    [
        (WindowState(Count(), tumbling("1 min")), 10_000, "1970-01-01 00:00:00Z to 00:01:00Z is final"),
        (WindowState(Count(), tumbling("1 min")), 130_000, "00:02:00Z to 00:03:00Z is open"),
        (WindowState(Count(), tumbling("1 min"), allowed_lateness="1 h", late="accumulate"), 10_000, "is closed, and"),
        (WindowState(Count(), sliding("2 min", "1 min")), 70_000, ", the first of 2 windows, is final"),
        (WindowState(Count(), sliding("1 min", "2 min")), 70_000, "no window holds it"),
        (WindowState(Count(), session("30 s")), 10_000, "too old for a session"),
        (WindowState(Count(), session("30 s")), 120_000, "a session that is open"),
        (NonWindowState(Count()), 1, "at any time"),
        (NonWindowState(Count(), ttl="1 min"), 10_000, "has expired"),
        (NonWindowState(Count(), ttl="1 min"), 100_000, "at any time"),
        (NonWindowState(Count()), None, "needs a usable time"),
    ],
)
def test_where_a_record_lands(state: Any, timestamp: int | None, text: str) -> None:
    """Somebody would correct a record in vain, or give up one that still counts."""
    assert text in said(state, timestamp)


@pytest.mark.parametrize("timestamp, counts", [(10_000, False), (130_000, True)])
def test_a_correction_does_what_is_said(timestamp: int, counts: bool) -> None:
    """The page would promise what the command refuses."""
    shown = counted(WindowState(Count(), tumbling("1 min")))
    of = landing(shown)
    assert of is not None and shown.pipeline is not None
    assert ("is final" not in of(timestamp)) is counts
    record = [{"ts": timestamp, "page": "/"}]
    if counts:
        assert shown.pipeline.correct(name="one", add=record, engine="embedded").added == 1
    else:
        with pytest.raises(Refused):
            shown.pipeline.correct(name="one", add=record, engine="embedded")


def test_each_state_is_named() -> None:
    """A record that one state refuses would look lost to all."""
    of = landing(several("lands"))
    assert of is not None
    assert of(99_500).startswith("minutes: 1970-01-01 00:01:00Z to") and "; living: " in of(99_500)


def test_rows_set_aside_say_where_they_would_go() -> None:
    """Nobody would know what to do with them."""
    found = aside(corrected("set-aside"), "late")
    assert "is final" in found["rows"][0]["lands"]
    assert found["correct"] == "persistent correct visits.py:pipeline NAME --add FILE"
    assert aside(ran("dead-lands"), "dead")["rows"][0]["lands"] == "needs a usable time"
    without = ran("no-pipeline")
    found = aside(Shown("url", "url", without.storage), "late")
    assert found["correct"] is None and found["rows"][0]["lands"] is None


def test_a_task_that_has_changed_says_nothing() -> None:
    """Windows of another task would be named."""
    shown = counted(WindowState(Count(), tumbling("1 min")))
    other = Pipeline(
        source=MemorySource([], timestamp="ts"),
        task=Counted(WindowState(Count(), tumbling("2 min"))),
        sink=MemorySink(),
        checkpoint="memory://serve-landing",
    )
    assert landing(Shown("landing", "x", shown.storage, other)) is None


def test_a_time_that_no_record_can_have_lands_nowhere() -> None:
    """A dead letter would be said to have a window, and its correction be refused."""
    shown = counted(WindowState(Count(), tumbling("1 min")))
    of = landing(shown)
    assert of is not None and of(-5) == "needs a time from 1970 on"
    far = wall_ms() + 3 * 86_400_000
    assert of(far).startswith("needs a time up to ")
    assert shown.pipeline is not None
    with pytest.raises(Refused):
        shown.pipeline.correct(name="far", add=[{"ts": far, "page": "/"}], engine="embedded")
