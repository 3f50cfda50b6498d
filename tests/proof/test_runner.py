"""The runner prints one table, whatever becomes of a section."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.proof import runner, sample_section
from tests.proof.result import Result, in_turn, table


@pytest.fixture(autouse=True)
def _samples(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("one", "two", "alone")
    monkeypatch.setattr(runner, "SECTIONS", dict.fromkeys(names, sample_section.__name__) | {"none": "tests.none"})
    monkeypatch.setattr(runner, "ALONE", frozenset({"alone"}))


def test_a_section_that_passes_is_a_line_of_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    """The table is what anybody reads: a count lost on its way would be a false figure."""
    assert runner.main(["--only", "one", "--scale", "3"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("one ")][-1:]
    assert line.split() == ["one", "30", "0", "2/2", "0.5"]


@pytest.mark.parametrize(
    ("seed", "told"),
    [
        (sample_section.FAILS, "something was lost"),
        (sample_section.RAISES, "ValueError: raised in a section"),
        (sample_section.DIES, "exit code 7"),
        (sample_section.MISSES, "FAILED"),
    ],
)
def test_a_section_that_does_not_pass_fails_the_proof(seed: int, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A section that dies must not take the table with it, nor be left out of it."""
    assert runner.main(["--only", "one", "--seed", str(seed)]) == 1
    out = capsys.readouterr().out
    assert told in out and "failures" in out


def test_a_section_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that hangs would otherwise hold up continuous integration for ever, without a word."""
    monkeypatch.setattr(runner, "_GRACE_SECONDS", 0.1)
    (result,) = runner.prove(["one"], time.monotonic() + 0.1, sample_section.HANGS, 1.0)
    assert result.failures == ("did not end in its time",) and not result.passed


def test_what_runs_alone_runs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kills of real processes beside another section would fail by the clock, and prove nothing."""
    running: list[str] = []
    most: dict[str, int] = {}
    start, result = runner._start, runner._result

    def started(section: str, *arguments: Any) -> Any:
        running.append(section)
        for name in running:
            most[name] = max(most.get(name, 0), len(running))
        return start(section, *arguments)

    def ended(started: Any, *, overdue: bool) -> Result:
        running.remove(started.section)
        return result(started, overdue=overdue)

    monkeypatch.setattr(runner, "_start", started)
    monkeypatch.setattr(runner, "_result", ended)
    results = runner.prove(["alone", "one", "two"], time.monotonic() + 60, 0, 1.0)
    assert [each.passed for each in results] == [True] * 3
    assert most == {"one": 2, "two": 2, "alone": 1}


def test_a_soak_adds_up_its_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    """Rounds of equal seeds would cover the same cases again and again."""
    assert runner.main(["--only", "one", "--hours", "0", "--seed", "0"]) == 0
    out = capsys.readouterr().out
    assert "round 0, seed 0" in out and "an hour" in out and "72,000" in out
    totals = Result("disk", 5, (), None, 2.0) + Result("disk", 7, ("lost",), (1, 2), 3.0)
    assert totals == Result("disk", 12, ("lost",), (1, 2), 5.0) and not totals.passed


def test_a_section_that_is_not_there_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelled section must not be a proof of nothing that passes."""
    assert runner.main(["--only", "none"]) == 1
    assert "no such section: none" in capsys.readouterr().out
    assert not Result("disk", 0, (), None, 0.0).passed
    assert "disk" in table([Result("disk", 0, (), None, 0.0)])


def test_time_is_shared_out_by_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow machine the first sections would use up the time, and the last would prove nothing."""
    monkeypatch.setattr(runner, "WEIGHTS", {"one": 3.0, "two": 1.0})
    monkeypatch.setattr(runner, "_AT_ONCE", 1)
    left: dict[str, float] = {}
    start = runner._start

    def started(section: str, until: float, *arguments: Any) -> Any:
        left[section] = until - time.monotonic()
        return start(section, until, *arguments)

    monkeypatch.setattr(runner, "_start", started)
    runner.prove(["one", "two", "alone"], time.monotonic() + 400, 0, 1.0)
    assert left["one"] == pytest.approx(225, abs=2)
    assert left["two"] > 280 and left["alone"] > 380


def test_parts_of_a_section_take_turns() -> None:
    """Else the first job of a section that runs out of time would leave none for the others."""
    now = time.monotonic()
    ends = [end - now for _, end in in_turn(["a", "b", "c"], [2, 1, 1], now + 100)]
    assert ends == pytest.approx([50, 50, 100], abs=1)


def test_what_takes_long_for_each_case_begins_first() -> None:
    """At the end of a short time, nothing may be left for it."""
    assert {"mutants"} == runner.FIRST
    assert runner.in_order(["one", "alone", "mutants", "two"]) == ["mutants", "one", "two", "alone"]
