"""``persistent clock``: in words where it stands, and a repair that says first what it undoes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from persistent.operations import undone
from persistent.reading import ClockReading, PartitionReading, clock_reading
from persistent.storage.subfolder import open_checkpoint
from persistent.testing import ManualClock
from persistent.tools.cli.clock import _lines, _why
from tests.tools.cli.visits import command, json_of

AHEAD = "2024-05-02T09:00:00Z,/home,200,70\n2024-05-01T10:03:00Z,/home,200,80\n"
"""A record almost a day ahead, and one that is late then."""
LIMIT = ("--not-after", "2024-05-01T11:00Z")


@pytest.fixture
def poisoned(done: Path) -> Path:
    (done / "views" / "2.csv").write_text("time,page,status,bytes\n" + AHEAD)
    (report,) = json_of("run", "visits.py:pipeline", "--engine", "embedded")
    assert report["clock_ms"] == 1_714_640_400_000
    return done


def test_it_tells_where_the_clock_stands(done: Path) -> None:
    """Numbers of milliseconds are read by nobody at night."""
    lines = command("clock", "checkpoint").stdout.splitlines()
    assert lines[0].split("  ", 1)[0] == "clock" and "2024-05-01 10:02:11Z, of checkpoint " in lines[0]
    assert lines[1] == "closed        windows that end up to 2024-05-01 10:02:10Z"
    assert lines[2] == "held back by  files: its largest timestamp is 2024-05-01 10:02:11Z"
    assert [line.split() for line in lines[4:]] == [
        ["partition", "largest", "timestamp", "waited", "for"],
        ["files", "2024-05-01", "10:02:11Z", "yes"],
    ]
    (found,) = json_of("clock", "visits.py:pipeline")
    assert found["held_by"] == "files" and found["watermark"] == 1_714_557_731_000 and found["not_after"] is None
    assert found["partitions"][0] == {
        "name": "files",
        "largest": 1_714_557_731_000,
        "reached": 1_714_557_731_000,
        "lag_ms": 0,
        "lists": False,
        "idle": False,
    }


def test_it_finds_the_record_that_moved_the_clock(poisoned: Path) -> None:
    """Nobody would know which line of which file to repair, or whose fault it is."""
    found = command("clock", "visits.py:pipeline", "--find")
    first, record = found.stdout.splitlines()
    assert first.startswith("2024-05-02 09:00:00Z, the largest timestamp: 2.csv, offset 23, counted by checkpoint ")
    assert '"page":"/home"' in record.replace(" ", "")
    (whole,) = json_of("clock", "visits.py:pipeline", "--find")
    assert (whole["file"], whole["offset"], whole["timestamp"]) == ("2.csv", 23, 1_714_640_400_000)
    wrong = command("clock", "visits.py:pipeline", "--find", "--set-back", *LIMIT)
    assert wrong.exit_code == 2 and "--find only reads" in wrong.stderr
    url = command("clock", "checkpoint", "--find")
    assert url.exit_code == 2 and "--find reads the source: give the pipeline" in url.stderr
    (poisoned / "views" / "2.csv").unlink()
    gone = command("clock", "visits.py:pipeline", "--find")
    assert gone.exit_code == 1 and "2.csv: listed, but gone" in gone.stderr


def test_a_clock_that_is_ahead_names_the_span_of_its_record(poisoned: Path) -> None:
    """The checkpoint alone tells in which file it lies: the pipeline may be on another machine."""
    with ManualClock(1_714_557_800_000):
        lines = dict(line.split("  ", 1) for line in _lines_of(str(poisoned / "checkpoint")))
    assert lines["its record"].startswith("in 2.csv, offsets 0 to ")
    assert lines["its record"].endswith(": --find names it, with the pipeline as TARGET")


def _lines_of(url: str) -> list[str]:
    storage = open_checkpoint(url)
    return [f"{name}  {text}" for name, text in _lines(clock_reading(storage), storage)]


def test_it_says_what_it_would_undo_and_asks(poisoned: Path) -> None:
    """The way of a rollback: nobody takes back outputs without having said what becomes of them."""
    before = sorted(path.name for path in (poisoned / "checkpoint" / "m").iterdir())
    asked = command("clock", "checkpoint", "--set-back", *LIMIT)
    assert asked.exit_code == 2 and "nothing was changed: to do it, add --outputs=retract" in asked.stderr
    text = str(undone(str(poisoned / "checkpoint"), "2024-05-01T11:00Z"))
    assert asked.stdout == f"This would go {text}.\n" and "the clock goes from 2024-05-02 09:00:00Z to" in text
    shown = command("clock", "checkpoint", "--set-back", *LIMIT, "--json")
    assert shown.exit_code == 2 and '"target": ' in shown.stdout
    assert before == sorted(path.name for path in (poisoned / "checkpoint" / "m").iterdir())


def test_a_poisoned_clock_is_set_back_and_the_limit_lifted(poisoned: Path) -> None:
    """From the first look to the last, as an operator types it."""
    done = command("clock", "checkpoint", "--set-back", *LIMIT, "--outputs=retract")
    assert done.exit_code == 0, done.output
    assert "rollback " in done.stdout and ": went back to checkpoint " in done.stdout
    assert "the next run takes it back before it publishes anything" in done.stdout
    assert "Timestamps after 2024-05-01 11:00:00Z are dead letters from now on: lift this with" in done.stdout
    assert "not after     2024-05-01 11:00:00Z: later timestamps" in command("clock", "checkpoint").stdout
    assert "not after     2024-05-01 11:00:00Z: later timestamps" in command("show", "checkpoint").stdout
    diff = {line["name"]: line for line in json_of("diff", "checkpoint", "2")}
    assert (diff["not_after"]["before"], diff["not_after"]["after"]) == (None, 1_714_561_200_000)
    run = command("run", "visits.py:pipeline", "--engine", "embedded")
    assert run.exit_code == 0 and "are dead letters, since the clock was set back" in run.output
    letters = json_of("dead-letters", "checkpoint")
    assert sum("the limit of a clock that was set back" in one["reason"] for one in letters) == 1
    (found,) = json_of("clock", "checkpoint")
    assert found["watermark"] == 1_714_557_780_000 and found["not_after"] == 1_714_561_200_000
    lifted = command("clock", "checkpoint", "--not-after", "none")
    assert "later timestamps count again, up to max_future ahead" in lifted.stdout
    (found,) = json_of("clock", "checkpoint")
    assert found["not_after"] is None
    assert command("verify", "visits.py:pipeline", "--source").exit_code == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--set-back",), "--set-back needs the last time that is good"),
        (("--set-back", "--not-after", "none"), "--set-back needs the last time that is good"),
        (LIMIT, "need --set-back; --not-after none lifts a limit"),
        (("--outputs=again",), "need --set-back; --not-after none lifts a limit"),
        (("--set-back", "--not-after", "yesterday", "--outputs=again"), "is not a time"),
    ],
)
def test_half_a_command_is_no_command(words: tuple[str, ...], says: str, done: Path) -> None:
    """A limit without a way back would turn the records of an hour into dead letters."""
    told = command("clock", "checkpoint", *words)
    assert told.exit_code == 2 and says in told.stderr
    assert json_of("history", "checkpoint")[-1]["kind"] == "checkpoint"


def test_a_clock_that_needs_no_repair_is_left(done: Path) -> None:
    """Refused with what it looked at, not done in vain."""
    told = command("clock", "checkpoint", "--set-back", "--not-after", "2024-06-01", "--outputs=retract")
    assert told.exit_code == 1 and "there is nothing to set back. Nothing was changed" in told.stderr


def reading(*partitions: PartitionReading, **changes: object) -> ClockReading:
    fields = {"checkpoint": 7, "watermark": 100, "closed": 0, "ended": False, "quiet_ms": 0, "not_after": None}
    return ClockReading(**{**fields, "partitions": partitions, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("partition", "says"),
    [
        (
            PartitionReading("a", 150, 100, 50_000),
            "a: its largest timestamp is 1970-01-01 00:00:00.150Z, less 50.0 s of",
        ),
        (PartitionReading("a", 100, 100, 0), "a: its largest timestamp is 1970-01-01 00:00:00.100Z"),
        (PartitionReading("a", 99, 99, 0), "00:00:00.099Z; the clock is past it, and never goes back"),
        (PartitionReading("a", None, 0, 0), "a: no record of it has been counted yet"),
        (PartitionReading("a", 150, -1, 0, lists=True), "a: listed files that are not read yet may hold earlier"),
        (PartitionReading("a", 150, None), "nothing: every partition is idle, or there is none yet"),
    ],
)
def test_why_the_clock_waits(partition: PartitionReading, says: str) -> None:
    """Each reason has another remedy."""
    found = reading(partition)
    text = _why(found, found.held_by)
    assert says in text and ("past it" in text) == ("past it" in says)


def test_every_fact_has_its_line() -> None:
    """Left out, one of them would be the one that was looked for."""
    plain = dict(_lines(reading()))
    assert plain == {
        "clock": "1970-01-01 00:00:00.100Z, of checkpoint 7",
        "closed": "no window yet",
        "held back by": "nothing: every partition is idle, or there is none yet",
    }
    assert "closed" not in dict(_lines(reading(closed=None))), "it has no windows"
    full = dict(_lines(reading(closed=60, ended=True, quiet_ms=90_000, not_after=500)))
    assert full["closed"] == "windows that end up to 1970-01-01 00:00:00.060Z"
    assert full["end of input"] == "declared: every window was closed"
    assert full["quiet"] == "moved on by 1.5 min since the last record"
    assert full["not after"].startswith("1970-01-01 00:00:00.500Z: later timestamps are dead letters")


def test_a_clock_ahead_of_the_time_of_day_says_so() -> None:
    """Nobody would see why every record of today is late, and that there is a way back."""
    there = reading(PartitionReading("b", 50, 50), PartitionReading("a", 3_600_000, 3_600_000), watermark=3_600_000)
    with ManualClock(1_800_000):
        text = dict(_lines(there))["ahead"]
        assert "ahead" not in dict(_lines(replace(there, ended=True))), "the end of the input has moved it"
    assert text.startswith("30.0 min ahead of the time of day, so records of today are late; a has a record of 1970-01")
    assert "--set-back --not-after TIME" in text
    with ManualClock(3_590_000):
        assert "ahead" not in dict(_lines(there)), "clocks of machines differ by seconds"
