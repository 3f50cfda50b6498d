"""A slice of the section "lines": an exception at any line of what commits and stores loses nothing."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from persistent.driver import step_effects
from tests.proof.errors import System
from tests.proof.lines import MODULES, PLAN, Cases, Strike, Struck
from tests.proof.worlds import VISITS, drawn_names


@pytest.mark.crash
@pytest.mark.parametrize(("ground", "job"), (PLAN[0], PLAN[-1]), ids=repr)
def test_an_exception_at_any_line_loses_nothing(ground: System, job: Any) -> None:
    """Memory runs out, and users press Ctrl-C, between any two lines."""
    with drawn_names(0):
        cases = Cases(ground, job).run(0.01)
    assert cases.failures == [] and cases.cases >= 10


def test_every_module_is_reached() -> None:
    """A module that was renamed would be left out in silence."""
    reached = set()
    for ground, job in (PLAN[0], PLAN[-1]):
        with drawn_names(0):
            reached |= {strike.place[0] for strike in Cases(ground, job).strikes()}
    assert len(reached) == len(MODULES)


@pytest.mark.crash
def test_an_exception_that_is_swallowed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a publish that failed could pass as done, the section would be blind."""
    publish = step_effects.publish

    def careless(*arguments: Any, **more: Any) -> None:
        with suppress(Struck):
            publish(*arguments, **more)

    monkeypatch.setattr(step_effects, "publish", careless)
    cases = Cases(System(), VISITS)
    with drawn_names(0):
        struck = [strike for strike in cases.strikes() if strike.place[0].endswith("connect/files/sink.py")]
        for strike in struck:
            if strike.error is Struck and not cases.failures:
                cases.case(strike)
    assert cases.failures


def test_a_strike_says_where_it_was() -> None:
    """A failure is had again by its story."""
    strike = next(Cases(System(), VISITS).strikes())
    assert str(strike).startswith("Struck at visit 1 of persistent.") and isinstance(strike, Strike)
