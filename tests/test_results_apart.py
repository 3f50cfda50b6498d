"""One key whose total leaves its range, or whose fold raises, stops no other; its own result is named, or set aside."""

from __future__ import annotations

import json
import logging
import re
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from monoids import CountMin, Max, Monoid, Product, Sum, record
from persistent import (
    CorruptCheckpoint,
    MemorySink,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    UserCodeError,
    WindowState,
    sliding,
    tumbling,
)
from persistent.checkpoint import shapes
from persistent.checkpoint.compaction import Merge, choose_all
from persistent.checkpoint.log import Log
from persistent.checkpoint.names import manifest_name
from persistent.codec import Run
from persistent.driver.commit import Results, _next_runs
from persistent.driver.evolution import Evolution
from persistent.engines.embedded import Embedded
from persistent.operations import compact, savepoint
from persistent.reading import export, state_table
from persistent.verify import verify
from persistent.worker.job import Attempt, Folded, FoldRuns

HIGH, LOW, MINUTE = 2**63 - 1, -(2**63), 60_000
_NAMES = count()


class One(Monoid[Any]):
    """A user's monoid that knows no sum of two different values."""

    identity = None
    output_type = pa.int64()
    commutative = True

    def combine(self, a: Any, b: Any) -> Any:
        if None not in (a, b) and a != b:
            raise ValueError(f"{a} and {b} are not one")
        return b if a is None else a


class Totals(PersistentTask):
    name = "totals"
    key: Any = "k"

    def __init__(self, monoid: Monoid[Any], window: Any = None) -> None:
        self.monoid, self.window = monoid, window

    def persistent_state(self) -> Any:
        return WindowState(self.monoid, self.window) if self.window else NonWindowState(self.monoid)

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, message.value["v"])


def rows(*values: tuple[str, Any]) -> list[dict[str, Any]]:
    return [{"ts": 1_000 + number, "k": key, "v": value} for number, (key, value) in enumerate(values)]


def pipeline(given: list[dict[str, Any]], monoid: Monoid[Any], window: Any = None, **options: Any) -> Pipeline:
    schema = pa.schema([("ts", pa.int64()), ("k", pa.string()), ("v", pa.int64())])
    source = MemorySource(pa.Table.from_pylist(given, schema), timestamp="ts", ordered=True)
    options = {"checkpoint": f"memory://results-{next(_NAMES)}", "sink": MemorySink(), "step_rows": 2, **options}
    return Pipeline(source=source, task=Totals(monoid, window), **options)


def run(job: Pipeline, **options: Any) -> Any:
    return job.run(engine=Embedded(threads=1), **{"end_of_input": True, **options})


def published(job: Pipeline) -> dict[Any, Any]:
    assert isinstance(job.sink, MemorySink)
    return {row["k"]: row["value"] for row in job.sink.rows()}


def newest(job: Pipeline) -> Any:
    return Log(job.storage).newest().manifest  # type: ignore[union-attr]


def features(job: Pipeline) -> list[str]:
    """What the newest manifest needs of its reader, besides knowing what every run records."""
    log = Log(job.storage)
    data = job.storage.read(manifest_name(log.ids()[-1])).to_pybytes()
    return [one for one in json.loads(data.partition(b"\n")[0])["features"] if one != shapes.RECORDED]


WINDOWS = {"none": None, "tumbling": tumbling("1 min"), "sliding": sliding(60_000, every=20_000)}


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
@pytest.mark.parametrize(
    ("monoid", "values", "expected"),
    [
        (Sum(), [HIGH] * 12 + [-HIGH] * 12, 0),
        (Sum(), [LOW] * 12 + [HIGH] * 12 + [12], 0),
        (Product(), [2**62, 2, -1], LOW),
        (Product(), [2**62] * 20 + [0], 0),
    ],
)
def test_a_total_that_comes_back_into_range_is_right(
    monoid: Monoid[Any], values: list[int], expected: int, window: Any
) -> None:
    """Compaction would stop every key, though no result was ever out of range."""
    given = [pair for value in values for pair in (("a", value), ("b", 1))]
    job = pipeline(rows(*given), monoid, window)
    report = run(job)
    ones = 1 if monoid.name == "Product" else len(values)
    assert published(job) == {"a": expected, "b": ones} and report.unfolded == 0
    assert verify(job.storage).ok


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
def test_a_result_out_of_range_stops_the_run_with_key_window_and_remedy(window: Any) -> None:
    """Of a million keys, whoever has to mend it must know which."""
    job = pipeline(rows(("b", 1), ("a", HIGH), ("a", 1), ("b", 2)), Sum(), window)
    with pytest.raises(UserCodeError, match=r"key \(k='a'\)") as raised:
        run(job)
    for part in ("the total 9223372036854775808", "unbounded=True", "Evolution(before=", 'on_error="dead-letter"'):
        assert part in str(raised.value)
    assert window is None or re.search(r"window \S+ (00:00:00Z|ms) to 1970-01-01 00:0", str(raised.value))
    assert published(job) == {} and verify(job.storage).ok


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
@pytest.mark.parametrize(
    ("monoid", "values", "reason"),
    [
        (Sum(), (HIGH, 1), "OverflowError: Sum(): the total 9223372036854775808 is outside 64-bit integers"),
        (Product(), (HIGH, 2), "OverflowError: Product(): a total is outside 64-bit integers"),
        (One(), (3, 4), "ValueError: 3 and 4 are not one"),
    ],
)
def test_with_dead_letters_only_its_row_is_set_aside(
    monoid: Monoid[Any], values: tuple[int, int], reason: str, window: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """One key must not hold up the results of all others; nor be lost without a word, nor be counted as a record."""
    given = rows(
        ("b", 5), ("a", values[0]), ("c", 6), ("b", 5 if isinstance(monoid, One) else 1), ("d", 1), ("a", values[1])
    )
    job = pipeline(given, monoid, window, on_error="dead-letter", step_rows=3)
    report = run(job)
    seen = published(job)
    assert seen.keys() == {"b", "c", "d"} and (report.dead, report.duplicates) == (0, 0)
    letters = job.dead_letters().to_pylist()
    windows = 3 if window is WINDOWS["sliding"] else 1
    assert len(letters) == report.set_aside == windows and "could not be shown" in str(report)
    for letter in letters:
        assert "key (k='a')" in letter["reason"] and reason in letter["reason"] and letter["offset"] is None
        assert json.loads(letter["data"])["key"] == {"k": "a"}
    found = verify(job.storage)
    assert found.ok and found.findings == []
    assert sum(account.processed for account in report.ledger.values()) == len(given)


def test_the_state_names_its_key_or_leaves_it_out_with_a_warning(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Without a word, a table of the state would look complete."""
    job = pipeline(rows(("b", 1), ("a", HIGH), ("a", 1), ("b", 2)), Sum())
    run(job, end_of_input=False)
    for read in (job.state, lambda: export(job, str(tmp_path / "stopped"))):
        with pytest.raises(UserCodeError, match=r"no result for key \(k='a'\): OverflowError"):
            read()
    assert state_table(job, key="b").to_pylist() == [{"k": "b", "value": 3}]
    lenient = Pipeline(source=job.source, task=job.task, sink=job.sink, checkpoint=job.storage, on_error="dead-letter")
    with caplog.at_level(logging.WARNING):
        assert lenient.state().to_pylist() == [{"k": "b", "value": 3}]
        exported = export(lenient, str(tmp_path / "out"))
    assert exported.rows == 1 and pq.read_table(tmp_path / "out").to_pylist() == [{"k": "b", "value": 3}]
    assert caplog.text.count("left out of the state: no result for key (k='a')") == 2


def test_a_wide_run_is_a_feature_that_comes_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A release that does not know it would call the run corrupt; one that finds no wide run must read all."""
    back = rows(("a", HIGH), ("a", 1), ("b", 7), ("a", -1), ("b", 0))
    job = pipeline(back[:3], Sum(), step_rows=3)
    run(job, end_of_input=False)
    assert [one.wide for one in newest(job).operators["totals"].runs] == [True] and features(job) == ["wide totals"]
    saved = savepoint(job.storage, "wide")
    assert saved is not None
    with monkeypatch.context() as older:
        older.setattr(shapes, "FEATURES", frozenset({shapes.RECORDED}))
        with pytest.raises(CorruptCheckpoint, match="needs wide totals, unknown here: use a newer release"):
            Log(job.storage).newest()
    again = pipeline(back, Sum(), step_rows=2, checkpoint=job.storage, sink=job.sink)
    assert run(again).rows == 2
    compact(again)
    assert features(again) == [] and not any(one.wide for one in newest(again).operators["totals"].runs)
    assert published(again) == {"a": HIGH, "b": 7}


def test_a_wide_run_that_its_manifest_does_not_call_so_is_refused() -> None:
    """Its feature would be missing, and an older release take it for damaged."""
    job = pipeline(rows(("a", HIGH), ("a", 1)), Sum())
    run(job, end_of_input=False)
    entry = Log(job.storage).newest()
    assert entry is not None
    from persistent.codec import decode_run

    (found,) = entry.manifest.operators["totals"].runs
    plain = Run(**{**found.__dict__, "wide": False})
    with pytest.raises(CorruptCheckpoint, match="wider than its manifest says"):
        decode_run(Sum(), job.storage.read(found.name), plain, found.name)


def test_an_overflow_evolves_into_an_unbounded_sum() -> None:
    """It is the way out that the error names."""
    job = pipeline(rows(*[("a", HIGH)] * 20, ("b", 1)), Sum())
    with pytest.raises(UserCodeError):
        run(job)
    wide = Sum(int, unbounded=True)
    evolved = pipeline(
        rows(*[("a", HIGH)] * 20, ("b", 1)),
        wide,
        checkpoint=job.storage,
        sink=job.sink,
        evolve=Evolution(before=Sum(), change=lambda total: total),
    )
    run(evolved)
    assert published(evolved) == {"a": str(20 * HIGH), "b": "1"} and features(evolved) == []


def test_a_record_keeps_its_wide_field_through_an_evolution_of_others() -> None:
    """Columns are carried over as they are, and the run says whether one of them is wide."""
    given = rows(("a", HIGH), ("a", 1), ("b", 2))

    class Both(Totals):
        def process_message(self, state: Any, message: Any) -> None:
            state.update(message.timestamp, dict.fromkeys(self.monoid.fields, message.value["v"]))  # type: ignore[attr-defined]

    def job(monoid: Monoid[Any], **options: Any) -> Pipeline:
        made = pipeline(given, monoid, **options)
        return Pipeline(
            source=made.source,
            task=Both(monoid),
            sink=made.sink,
            checkpoint=made.storage,
            **({"evolve": options["evolve"]} if "evolve" in options else {}),
        )

    first = job(record(n=Sum(), top=Max()))
    run(first, end_of_input=False)
    second = job(record(n=Sum()), checkpoint=first.storage, evolve=Evolution(removed=["top"]))
    run(second, end_of_input=False)
    assert newest(second).kind == "migration" and features(second) == ["wide totals"]
    third = job(record(m=Max()), checkpoint=first.storage, evolve=Evolution(removed=["n"]))
    run(third, end_of_input=False)
    assert features(third) == []


@pytest.mark.parametrize("monoid", [One(), CountMin(int, width=4, depth=2)], ids=repr)
def test_runs_whose_fold_raises_stay_unfolded_and_the_run_says_so(
    monoid: Monoid[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Compaction is a matter of speed: a fold that raises must not stop what would run without it."""
    is_one = isinstance(monoid, One)
    given = rows(*[("a" if number % 5 else "b", number // 25 if is_one else number) for number in range(50)])

    class Weighted(Totals):
        def process_message(self, state: Any, message: Any) -> None:
            state.update(message.timestamp, (message.value["v"], 2**62 + 2**61))

    job = pipeline(given, monoid, step_rows=1)
    if not is_one:
        job = Pipeline(source=job.source, task=Weighted(monoid), sink=job.sink, checkpoint=job.storage, step_rows=1)
    with caplog.at_level(logging.WARNING):
        report = run(job, end_of_input=False)
    assert report.rows == 50 and report.unfolded >= 8 and "stay unfolded" in str(report)
    assert ("runs are left unfolded" in caplog.text and "are not one" in caplog.text) or not is_one
    found = verify(job.storage)
    assert found.ok, found.findings
    runs = newest(job).operators["totals"].runs
    assert sum(one.rows for one in runs) <= 50
    with caplog.at_level(logging.WARNING):
        compact(job)
    assert newest(job).operators["totals"].runs == runs and verify(job.storage).ok


def _run(name: str, rows: int, at: int) -> Run:
    return Run(name, rows, 1, "0" * 64, 0, 0, 1024, -1, -1, at, at)


def test_what_is_beside_unfolded_runs_is_folded_by_itself() -> None:
    """One fold that raises must not end compaction for good, nor bring together what is not side by side."""
    runs = [_run(f"d/t/{at}", 10, at) for at in range(1, 25)]
    (first,) = choose_all(runs, 100)
    assert [one.first for one in first.inputs] == list(range(1, 25))
    stuck = frozenset(one.name for one in runs[9:11])
    (merge,) = choose_all(runs, 100, 0, stuck)
    assert [one.first for one in merge.inputs] == list(range(1, 10))
    (merge,) = choose_all(runs[5:], 100, 0, stuck)
    assert [one.first for one in merge.inputs] == list(range(12, 25))


def test_no_piece_of_a_fold_counts_after_one_that_raised() -> None:
    """It would end where it begins for its inputs: what lies before would be dropped in silence."""
    runs = tuple(_run(f"d/t/{at}", 10, at) for at in range(1, 9))
    attempt, half = Attempt(1, 9), Run("d/t/half", 40, 1, "0" * 64, 512, 512, 1024, -1, -1, 1, 8)
    folds = (
        (FoldRuns(attempt, Merge(runs, 0, 512), 0), Folded(None, None, "raised")),
        (FoldRuns(attempt, Merge(runs, 512, 1024), 0), Folded(half, None)),
    )
    assert _next_runs(runs, Results((), (), folds), None, 0) == runs
