"""Jobs with calendar windows, against a plain sum by the clocks of the zone; and what a change of zone data does."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from monoids import Count, Sum, record
from persistent import (
    FileSink,
    FingerprintChanged,
    InvalidPipeline,
    MemorySink,
    MemorySource,
    PersistentTask,
    Pipeline,
    Refused,
    WindowState,
    calendar,
)
from persistent.checkpoint.log import Log
from persistent.engines import Embedded
from persistent.operations import compact, merge, restart, rollback, savepoint
from persistent.reading import diff, place, state_table
from persistent.storage import MemoryStorage, open_storage
from persistent.testing import verify_task
from persistent.time import zone as zone_module
from persistent.time.calendar_window import CalendarWindow
from persistent.time.clock import instant_ms
from persistent.time.zone import FIRST_S, Zone
from persistent.tools.cli import main
from persistent.verify import verify
from tests import faults
from tests.faults import DEATHS, FaultyStorage, Operations
from tests.few import examples, one_in
from tests.operations.test_merging import Named
from tests.single import only
from tests.time.test_calendar_window import plain

_HOUR_S = 3_600
Rows = Sequence[dict[str, Any]]


class Usage(PersistentTask):
    """Usage per meter and period."""

    key = "meter"

    def __init__(self, window: CalendarWindow, interval_ms: int | None = None) -> None:
        self.window = window
        self.interval_ms = interval_ms

    def persistent_state(self) -> WindowState:
        return WindowState(record(n=Count(), used=Sum()), self.window, interval_ms=self.interval_ms)

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, {"n": 1, "used": message.value["used"]})


def rows(*texts: str) -> list[dict[str, Any]]:
    return [{"ts": instant_ms(text), "meter": "a", "used": 1} for text in texts]


def pipeline(window: CalendarWindow, given: Rows, checkpoint: Any, sink: Any = None, **options: Any) -> Pipeline:
    times = {"max_out_of_orderness": options.pop("disorder", 0), "ordered": options.pop("ordered", False)}
    source = options.pop("source", None) or MemorySource(given, timestamp="ts", **times)
    task = Usage(window, options.pop("interval_ms", None))
    return Pipeline(source=source, task=task, sink=sink or MemorySink(), checkpoint=checkpoint, **options)


def published(sink: Any) -> dict[tuple[str, int, int], tuple[int, int]]:
    """The outputs; none may be there twice."""
    found: dict[tuple[str, int, int], tuple[int, int]] = {}
    for row in sink.rows():
        place = row["meter"], instant_ms(row["window_start"]), instant_ms(row["window_end"])
        assert place not in found
        found[place] = row["n"], row["used"]
    return found


def summed(given: Rows, unit: str, name: str) -> dict[tuple[str, int, int], tuple[int, int]]:
    counts: Counter[Any] = Counter()
    used: Counter[Any] = Counter()
    windows = {row["ts"]: plain(row["ts"], unit, name, offset=_NONE) for row in given}
    for row in given:
        place = (row["meter"], *windows[row["ts"]])
        counts[place] += 1
        used[place] += row["used"]
    return {place: (counts[place], used[place]) for place in counts}


_NONE = datetime(2000, 1, 1) - datetime(2000, 1, 1)
_STREAMS = {
    "Europe/Berlin": ["2024-03-30T20:00Z", "2024-10-26T20:00Z"],
    "Pacific/Apia": ["2011-12-30T06:00Z"],
    "Australia/Lord_Howe": ["2024-04-06T12:00Z", "2024-10-05T12:00Z"],
}
streams = st.sampled_from([(name, begin) for name, begins in _STREAMS.items() for begin in begins]).flatmap(
    lambda place: st.tuples(
        st.just(place[0]),
        st.lists(
            st.builds(
                lambda minutes, meter, used: {
                    "ts": instant_ms(place[1]) + 450_000 * minutes,
                    "meter": meter,
                    "used": used,
                },
                st.integers(0, 200),
                st.sampled_from("abc"),
                st.integers(-9, 9),
            ),
            min_size=1,
            max_size=25,
        ),
    )
)


@given(streams, st.sampled_from(["hour", "day", "week", "month"]), st.integers(1, 20), st.integers(1, 3), st.booleans())
@settings(max_examples=examples(12), deadline=None)
def test_outputs_are_those_of_a_plain_sum(
    stream: tuple[str, Rows], unit: str, step_rows: int, runs: int, grid: bool
) -> None:
    """A row would count in another day than its own, by the step it was read in, or after a restart."""
    name, given = stream
    check(given, calendar(unit, tz=name), summed(given, unit, name), step_rows, runs, grid=grid)


def check(
    given: Rows,
    window: CalendarWindow,
    expected: dict[tuple[str, int, int], tuple[int, int]],
    step_rows: int,
    runs: int,
    *,
    grid: bool = False,
    spark: Any = None,
) -> None:
    """Run a job in some runs, each over more of the rows; all that is published or open is as expected."""
    sink, where = MemorySink(), f"memory://calendar-{uuid4().hex}"
    options = {"disorder": "1 day", "step_rows": step_rows, "interval_ms": 1_800_000 if grid else None}
    job = None
    for number in range(1, runs + 1):
        part = given[: len(given) * number // runs]
        if part:
            job = pipeline(window, part, where, sink, **options)
            job.run(spark, engine=None if spark is not None else "embedded")
    assert job is not None
    for row in job.state().to_pylist():
        place = row["meter"], _ms(row["window_start"]), _ms(row["window_end"])
        assert expected[place][0] >= row["n"] and place not in published(sink)
    job.run(spark, engine=None if spark is not None else "embedded", end_of_input=True)
    assert published(sink) == expected and verify(job.storage).ok


def _ms(time: datetime) -> int:
    return instant_ms(time)


@pytest.mark.check
def test_outputs_on_spark_are_the_same(spark: Any, tmp_path: Path) -> None:
    """Workers would have borders of their own."""
    begin = instant_ms("2024-03-30T20:00Z")
    given = [{"ts": begin + 450_000 * n, "meter": "abc"[n % 3], "used": n} for n in range(200)]
    sink = FileSink(str(tmp_path / "out"), format="jsonl")
    job = pipeline(calendar("day", tz="Europe/Berlin"), given, str(tmp_path / "job"), sink, step_rows=60)
    job.run(spark)
    job.run(spark, end_of_input=True)
    lines = [json.loads(line) for file in (tmp_path / "out").glob("*.jsonl") for line in file.read_text().splitlines()]
    found = {(row["meter"], _of(row["window_start"]), _of(row["window_end"])): (row["n"], row["used"]) for row in lines}
    assert len(lines) == len(found) and found == summed(given, "day", "Europe/Berlin")


def _of(text: str) -> int:
    return instant_ms(text)


def test_a_task_with_calendar_windows_verifies() -> None:
    """The kit for tests of tasks would not know such windows."""
    texts = [f"2024-{day}T{hour:02}:30Z" for day in ("03-30", "03-31", "10-27") for hour in (0, 1, 22, 23)]
    window = calendar("day", tz="Europe/Berlin")
    start = instant_ms("2024-03-31T00:00+01:00")
    wanted = {("a", window.last_start(instant_ms(text))): {"n": 0} for text in texts}
    for text in texts:
        wanted["a", window.last_start(instant_ms(text))]["n"] += 1
    assert wanted["a", start]["n"] == 3
    verify_task(lambda: Usage(window), rows(*texts), expected=wanted, elsewhere=False, shuffles=1)


def test_late_rows_are_those_of_windows_that_are_closed() -> None:
    """The hour between two midnights would be late, or be taken into a window that is published."""
    given = rows("2024-03-31T12:00Z", "2024-03-31T22:00Z", "2024-03-31T21:59Z", "2024-03-31T22:01Z")
    job = pipeline(calendar("day", tz="Europe/Berlin"), given, "memory://calendar-late", step_rows=1, ordered=True)
    report = job.run(engine="embedded")
    assert report.late == 1 and job.late()["timestamp"].to_pylist() == [given[2]["ts"]]
    assert list(published(job.sink)) == [("a", instant_ms("2024-03-30T23:00Z"), instant_ms("2024-03-31T22:00Z"))]


def test_a_time_beyond_the_table_is_a_dead_letter() -> None:
    """It would count in the last window that is known, or end the run."""
    window = calendar("month", tz="Europe/Berlin")
    given = rows("2024-01-01T12:00Z") + [{"ts": window.time_max + more, "meter": "a", "used": 1} for more in (0, 1)]
    job = pipeline(window, given, "memory://calendar-beyond", max_future="40000 days")
    report = job.run(engine="embedded", end_of_input=True)
    assert report.dead == 1 and "2100" in job.dead_letters()["reason"].to_pylist()[0]
    assert max(end for _, _, end in published(job.sink)) == window.time_max + 1
    assert job.run(engine="embedded", end_of_input=True).steps == 0


def test_state_as_of_and_other_windows(tmp_path: Path) -> None:
    """A state with such windows could not be read at an earlier time, or with others at all."""
    given = rows("2024-03-30T12:00Z", "2024-03-31T12:00Z", "2024-04-01T12:00Z")
    window = calendar("month", tz="Europe/Berlin")
    where = str(tmp_path / "job")
    job = pipeline(window, given, where, interval_ms=3_600_000, step_rows=1)
    job.run(engine="embedded")
    (row,) = job.state(as_of="2024-03-31T12:00Z").to_pylist()
    assert row["n"] == 1 and row["window_end"] == datetime.fromisoformat("2024-03-31T22:00:00+00:00")
    with pytest.raises(FingerprintChanged, match=r'calendar\("month", tz="Europe/Berlin"\) -> calendar\("month"\)'):
        pipeline(calendar("month"), given, where).run(engine="embedded")


PIPELINE = """
from persistent import *
from monoids import Count
from tests.single import only
class Usage(PersistentTask):
    key = "meter"
    def persistent_state(self): return WindowState(Count(), calendar("day", tz="Europe/Berlin", offset="6 h"))
    def process_message(self, state, message): state.update(message.timestamp, 1)
job = Pipeline(source=FileSource({folder!r} + "/in/*.jsonl", timestamp="ts"), task=Usage(),
               sink=FileSink({folder!r} + "/out", format="jsonl"), checkpoint={folder!r} + "/job")
"""


def test_the_commands_show_such_windows(tmp_path: Path) -> None:
    """Whoever looks at the state could not tell which day it is."""
    (tmp_path / "in").mkdir()
    lines = [{"ts": text, "meter": "a"} for text in ("2024-03-31T04:00:00Z", "2024-04-01T03:59:59Z")]
    (tmp_path / "in/1.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    (tmp_path / "job.py").write_text(PIPELINE.format(folder=str(tmp_path)))
    name = f"{tmp_path / 'job.py'}:job"

    def said(*arguments: str, fails: bool = False) -> str:
        found = CliRunner().invoke(main, arguments)
        assert (found.exit_code != 0) == fails, found.output
        return found.output

    said("run", name, "--engine", "embedded")
    assert "2024-03-31 04:00:00Z  2024-04-01 04:00:00Z" in said("state", name)
    assert "04:00:00Z" in said("state", name, "--window", "2024-03-31T04:00Z")
    told = said("state", name, "--window", "2024-03-31T05:00Z", fails=True)
    assert "starts at 2024-03-31 04:00:00Z, the next at 2024-04-01 04:00:00Z" in " ".join(told.split())
    assert 'calendar("day", tz="Europe/Berlin", offset="6 h")' in said("show", str(tmp_path / "job"))
    said("run", name, "--engine", "embedded", "--end-of-input")
    assert "closed" in said("state", name, "--window", "2024-03-31T04:00Z")
    (line,) = [line for file in (tmp_path / "out").glob("*.jsonl") for line in file.read_text().splitlines()]
    assert json.loads(line)["window_start"] == "2024-03-31T04:00:00.000Z"


# -- zone data that change -------------------------------------------------------------------------------------------


@contextmanager
def machine(monkeypatch: pytest.MonkeyPatch, *changes: tuple[str, int]) -> Iterator[None]:
    """A machine whose zone "Test/Zone" is UTC until these changes, to so many hours ahead."""
    offsets = ((FIRST_S, 0), *((instant_ms(text) // 1_000, hours * _HOUR_S) for text, hours in changes))
    with monkeypatch.context() as patched:
        patched.setattr(zone_module, "_offsets", lambda name: offsets)
        yield


def days() -> CalendarWindow:
    """Days of the zone."""
    return calendar("day", tz="Test/Zone")


class Shown(Usage):
    """The same, published before a window ends."""

    def __init__(self, window: CalendarWindow, option: dict[str, Any]) -> None:
        super().__init__(window)
        self.option = option

    def persistent_state(self) -> WindowState:
        return WindowState(record(n=Count(), used=Sum()), self.window, **self.option)


DAYS = [f"2024-05-{day:02}T12:00Z" for day in range(1, 13)]
SUMMER = ("2024-05-08T02:00Z", 2)
OTHER = ("2024-05-10T02:00Z", -3)


def bounds(sink: Any) -> list[tuple[str, str]]:
    """Start and end of each window published, without the month."""
    return [(_text(start), _text(end)) for _, start, end in sorted(published(sink))]


def _text(time: int) -> str:
    return datetime.fromtimestamp(time / 1_000, ZoneInfo("UTC")).strftime("%d %H")


def recorded(job: Pipeline, id: int | None = None) -> Zone:
    """The rules that the newest checkpoint keeps, or that of a step."""
    log = Log(job.storage)
    entry = log.newest() if id is None else log.read(id)
    assert entry is not None and only(entry.manifest.nodes).zone is not None
    return only(entry.manifest.nodes).zone


def test_a_change_of_zone_data_moves_only_windows_that_have_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job would count on with borders that its machine no longer knows, or lose the rows of those it has."""
    sink, where = MemorySink(), "memory://calendar-changes"
    with machine(monkeypatch):
        first = pipeline(days(), rows(*DAYS[:6]), where, sink, step_rows=2)
        assert not any("zone data" in note for note in first.run(engine="embedded").notes)
        begun = recorded(first)
    with machine(monkeypatch, SUMMER):
        second = pipeline(days(), rows(*DAYS), where, sink, step_rows=3)
        (note,) = [note for note in second.run(engine="embedded").notes if "zone data" in note]
        assert "Test/Zone from 2024-05-08 02:00:00Z on" in note
        assert recorded(second) == Zone("Test/Zone", (*begun.offsets, (instant_ms(SUMMER[0]) // 1_000, 7_200)))
        report = pipeline(days(), rows(*DAYS), where, sink).run(engine="embedded", end_of_input=True)
        assert not any("zone data" in note for note in report.notes)
    assert bounds(sink)[5:9] == [("06 00", "07 00"), ("07 00", "08 00"), ("08 00", "08 22"), ("08 22", "09 22")]
    assert len(bounds(sink)) == 12 and verify(second.storage).ok


@pytest.mark.parametrize("option", [{"emit": "change"}, {"early": "6 h"}])
def test_a_window_that_is_published_before_it_ends_keeps_its_end(
    monkeypatch: pytest.MonkeyPatch, option: dict[str, str]
) -> None:
    """A table would show the window twice: as it was published first, and with its later end."""
    times = [f"2024-05-{day:02}T{hour:02}:00Z" for day in range(1, 6) for hour in (1, 9, 17, 23)]
    given, sink = rows(*times), MemorySink()
    for table, count in ((), 10), ((("2024-05-03T12:00Z", -5),), 20):
        with machine(monkeypatch, *table):
            source = MemorySource(given[:count], timestamp="ts", ordered=True)
            url = f"memory://calendar-early-{'-'.join(option.values())}".replace(" ", "")
            job = Pipeline(source=source, task=Shown(days(), option), sink=sink, checkpoint=url, step_rows=1)
            job.run(engine="embedded", end_of_input=count == len(given))
    shown: dict[tuple[Any, ...], int] = {}
    for row in sorted(sink.rows(), key=lambda row: row["revision"]):
        shown[row["window_start"], row["window_end"]] = row["used"]
    ends = [f"{start:%d %H}, {end:%d %H}" for start, end in sorted(shown)]
    assert ends[:4] == ["01 00, 02 00", "02 00, 03 00", "03 00, 04 00", "04 00, 05 05"]
    assert sum(shown.values()) == len(given)


def test_a_diff_over_a_change_of_zone_data_tells_windows_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two windows that begin within one of the former days were taken for one, and the diff failed."""
    given, where, table, places = rows(*DAYS[:8]), "memory://calendar-diff", (), []
    for count in (3, 8):
        with machine(monkeypatch, *table):
            job = pipeline(days(), given[:count], where, ordered=True, disorder="30 days")
            job.run(engine="embedded")
            places.append(place(job.storage))
        table = (("2024-05-04T02:00Z", 2),)
    for one, other, word in ((*places, "added"), (*reversed(places), "removed")):
        found = diff(one, other, pipeline=job)
        shown = [(row["change"], f"{row['window_start']:%d %H}") for row in found.rows.to_pylist()]
        assert shown == [(word, text) for text in ("04 00", "04 22", "05 22", "06 22", "07 22")], shown
        assert (found.differing, found.equal) == (5, 3)


def test_windows_ahead_of_the_clock_have_begun_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock stays behind what was read, by the disorder: rows would lie in the window before their own."""
    given, sink = rows(*(f"2024-05-{day:02}T23:00Z" for day in range(1, 9))), MemorySink()
    for table, count in ((), 6), ((("2024-05-03T02:00Z", 2),), 8):
        with machine(monkeypatch, *table):
            where = "memory://calendar-ahead"
            job = pipeline(days(), given[:count], where, sink, ordered=True, disorder="4 days")
            job.run(engine="embedded", end_of_input=count == len(given))
    check_each_row_counts_where_it_is(job, given)
    assert bounds(sink)[-3:] == [("06 00", "07 00"), ("07 22", "08 22"), ("08 22", "09 22")]


def test_a_window_that_has_begun_keeps_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows would lie in the window before, or be closed with it."""
    sink, where = MemorySink(), "memory://calendar-begun"
    with machine(monkeypatch, SUMMER):
        pipeline(days(), rows(*DAYS[:9]), where, sink).run(engine="embedded")
    with machine(monkeypatch):
        job = pipeline(days(), rows(*DAYS), where, sink)
        job.run(engine="embedded")
        # The clocks are set back by the change: the window that has begun ends where the next one begins now.
        assert [_text(_ms(row["window_end"])) for row in job.state().to_pylist()] == ["13 00"]
        job.run(engine="embedded", end_of_input=True)
    assert bounds(sink)[7:10] == [("08 00", "08 22"), ("08 22", "10 00"), ("10 00", "11 00")]


class Killed(Exception):
    """The driver was killed."""


class Killing(Embedded):
    """Dies when the plan has been put, and nothing else."""

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        raise Killed


def test_a_plan_that_is_found_again_has_its_own_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that is repeated would be another step: a row in time be late, or a window closed at another time."""
    sink, where = MemorySink(), "memory://calendar-plan"
    with machine(monkeypatch):
        pipeline(days(), rows(*DAYS[:6]), where, sink).run(engine="embedded")
    with machine(monkeypatch, SUMMER), pytest.raises(Killed):
        pipeline(days(), rows(*DAYS[:9]), where, sink).run(engine=Killing())
    with machine(monkeypatch, OTHER):
        job = pipeline(days(), rows(*DAYS[:9]), where, sink)
        ids: list[int] = []
        job.run(engine="embedded", on_step=lambda report: ids.append(report.id))
        assert recorded(job, ids[0]) == Zone("Test/Zone", ((FIRST_S, 0), (instant_ms(SUMMER[0]) // 1_000, 7_200)))
        job = pipeline(days(), rows(*DAYS), where, sink)
        job.run(engine="embedded")
        job.run(engine="embedded", end_of_input=True)
    assert [offset for _, offset in recorded(job).offsets] == [0, 7_200, 0, -10_800]
    assert bounds(sink)[6:10] == [("07 00", "08 00"), ("08 00", "08 22"), ("08 22", "10 00"), ("10 00", "11 03")]
    assert sum(n for n, _ in published(sink).values()) == 12


def test_a_plan_without_rules_keeps_those_of_its_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first step after a change of the machine would run a plan that knew nothing of it by other borders."""
    sink, where = MemorySink(), "memory://calendar-plan-kept"
    with machine(monkeypatch):
        pipeline(days(), rows(*DAYS[:6]), where, sink).run(engine="embedded")
        with pytest.raises(Killed):
            pipeline(days(), rows(*DAYS[:9]), where, sink).run(engine=Killing())
    with machine(monkeypatch, SUMMER):
        job = pipeline(days(), rows(*DAYS[:9]), where, sink)
        ids: list[int] = []
        job.run(engine="embedded", on_step=lambda report: ids.append(report.id))
        assert recorded(job, ids[0]) == Zone("Test/Zone", ((FIRST_S, 0),))
        assert recorded(job) == Zone("Test/Zone", ((FIRST_S, 0), (instant_ms("2024-05-10") // 1_000, 7_200)))
    assert bounds(sink)[-1] == ("08 00", "09 00")


TABLES = ((), (SUMMER,), (OTHER,), (SUMMER, OTHER), (("2024-05-04T13:00Z", -1), ("2024-05-09T03:00Z", 1)))


def check_each_row_counts_where_it_is(job: Pipeline, given: Rows) -> None:
    """The published windows do not overlap, and each holds exactly the rows of its time that were not late."""
    late = Counter(job.late()["timestamp"].to_pylist())
    times = Counter(row["ts"] for row in given) - late
    windows = sorted((start, end, n) for (_, start, end), (n, _) in published(job.sink).items())
    assert all(before[1] <= after[0] for before, after in pairwise(windows))
    for start, end, n in windows:
        assert n == sum(count for time, count in times.items() if start <= time < end)
    assert sum(n for _, _, n in windows) == times.total() and verify(job.storage).ok


@given(
    st.lists(st.integers(0, 13 * 24), min_size=4, max_size=30),
    st.lists(st.tuples(st.sampled_from(TABLES), st.integers(1, 6), st.booleans()), min_size=2, max_size=4),
    st.sampled_from(["0 ms", "2 days", "5 days"]),
    st.sampled_from(["day", "week"]),
)
@settings(max_examples=examples(15), deadline=None)
def test_rules_that_change_at_any_restart_lose_no_row(
    hours: list[int], runs: list[tuple[Any, int, bool]], disorder: str, unit: str
) -> None:
    """A window would take the rows of another, or be published twice, where rules changed between two runs."""
    given = [{"ts": instant_ms("2024-05-01T00:20Z") + 3_600_000 * hour, "meter": "a", "used": 1} for hour in hours]
    sink, where = MemorySink(), f"memory://calendar-rules-{uuid4().hex}"
    with pytest.MonkeyPatch.context() as monkeypatch:
        for number, (table, step_rows, ends) in enumerate(runs, 1):
            part, ends = given[: len(given) * number // len(runs)], ends or number == len(runs)
            with machine(monkeypatch, *table):
                options = {"ordered": True, "disorder": disorder, "step_rows": step_rows}
                job = pipeline(calendar(unit, tz="Test/Zone"), part, where, sink, **options)
                job.run(engine="embedded", end_of_input=ends)
    check_each_row_counts_where_it_is(job, given)


_OPERATIONS = 60
"""Of a run over three steps, and some more."""


@pytest.mark.parametrize(("at", "how"), one_in(7, [(at, how) for how in DEATHS for at in range(_OPERATIONS)]))
def test_a_kill_at_any_operation_under_changing_rules(at: int, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that a machine has begun, and another one with other rules repeats, would close other windows."""
    sink, storage, given = MemorySink(), MemoryStorage(f"calendar-{at}-{how}"), rows(*DAYS)
    for table, count in (((), 4), ((SUMMER,), 8), ((OTHER,), 12)):
        with machine(monkeypatch, *table):
            job = pipeline(days(), given[:count], storage, sink, ordered=True, step_rows=3)
            if count > 4:
                job.storage = FaultyStorage(storage, Operations(at, how))  # type: ignore[assignment]
            with suppress(faults.Killed):
                job.run(engine="embedded")
    with machine(monkeypatch):
        job = pipeline(days(), given, storage, sink, ordered=True)
        job.run(engine="embedded", end_of_input=True)
    assert job.late().num_rows == 0
    check_each_row_counts_where_it_is(job, given)


def test_workers_and_readers_need_no_zone_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker without zone data would fail, and one with other zone data would be wrong."""
    given = rows("2024-03-30T12:00Z", "2024-03-31T12:00Z", "2024-04-01T12:00Z")
    job = pipeline(calendar("day", tz="Europe/Berlin"), given, "memory://calendar-workers", step_rows=1)

    def missing(name: str) -> Any:
        raise AssertionError(name)

    monkeypatch.setattr(zone_module, "ZoneInfo", missing)
    monkeypatch.setattr(zone_module, "_offsets", missing)
    job.run(engine="embedded", end_of_input=True)
    assert len(published(job.sink)) == 3 and job.state().num_rows == 0


def test_commands_keep_the_rules_of_the_checkpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """After a rollback, a restart or from a savepoint, rows would lie in windows by other rules."""
    where, given = str(tmp_path / "job"), rows(*DAYS[:9], "2024-05-09T13:00Z")
    with machine(monkeypatch, SUMMER):
        job = pipeline(days(), given, where, step_rows=1)
        job.run(engine="embedded")
        summer = recorded(job)
    with machine(monkeypatch):
        job = pipeline(days(), given, where, step_rows=1)
        (row,) = job.state().to_pylist()
        assert (_text(_ms(row["window_start"])), row["n"]) == ("08 22", 2)
        assert state_table(job, window="2024-05-08T22:00Z").to_pylist() == [row]
        with pytest.raises(InvalidPipeline, match="no window starts at"):
            state_table(job, window="2024-05-09T00:00Z")
        with pytest.raises(InvalidPipeline, match="beyond 1967 to 2105"):
            state_table(job, window="1850-01-01T00:00Z")
        assert job.state(as_of="2024-05-08T22:00Z").num_rows == 0
        assert recorded(job) == summer
        before = Log(job.storage).ids()[-1]
        compact(job)
        assert recorded(job) == summer and Log(job.storage).ids()[-1] == before + 2
        assert job.state().to_pylist() == [row]
        copy = savepoint(job.storage, "before")
        new = pipeline(days(), given, str(tmp_path / "new"), start_from=copy)
        new.run(engine="embedded")
        assert recorded(new) == summer
        rollback(job.storage, Log(job.storage).ids()[-1], outputs="again")
        assert recorded(job) == summer
        restart(job, "2024-05-08T22:00Z", outputs="again")
        assert recorded(job) == summer


def test_jobs_with_other_rules_do_not_merge(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Half of the rows of a day would lie in another one."""
    with machine(monkeypatch):
        one = pipeline(days(), (), str(tmp_path / "one"), source=Named({"one": rows(DAYS[0])}))
        one.run(engine="embedded")
    with machine(monkeypatch, SUMMER):
        two = pipeline(days(), (), str(tmp_path / "two"), source=Named({"two": rows(DAYS[0])}))
        two.run(engine="embedded")
        with pytest.raises(Refused, match="other rules of one time zone"):
            merge(one.storage, two.storage, open_storage(str(tmp_path / "both")))


def test_a_table_out_of_order_is_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be read as some rules, and every border be found by them."""
    order = pytest.raises(ValueError, match="not the rules of a zone in the order of time")
    with machine(monkeypatch, SUMMER, ("2024-05-07T00:00Z", 1)), order:
        pipeline(days(), rows(DAYS[0]), "memory://calendar-damage").run(engine="embedded")
