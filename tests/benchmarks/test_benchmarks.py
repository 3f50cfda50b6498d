"""The benchmarks run, small, so that they cannot rot; and what they compare with can fail."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from benchmarks import checkpoint, clicks, measure, memory, page, sliding, views, week, workloads
from persistent import Retention
from persistent.tools.serve import Shown
from persistent.tools.serve.time_line import time_line
from persistent.verify import verify
from tests.few import turn

NAMES = ("clicks", "views", "checkpoint", "changes", "memory", "many_steps", "kernels", "sketches", "verify")
NAMES = (*NAMES, "sliding", "week", "page", "start")


def run(name: str, cache: Path, *arguments: object) -> dict[str, Any]:
    """The JSON line of a benchmark."""
    command = importlib.import_module(f"benchmarks.{name}").main
    words = ["--cache", str(cache), *map(str, arguments)]
    result = CliRunner().invoke(command, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    line: dict[str, Any] = json.loads(result.output.splitlines()[-1])
    assert line["machine"]["cores"] >= 1
    return line


def values(line: dict[str, Any]) -> dict[str, float]:
    return {figure["name"]: figure["value"] for figure in line["figures"]}


# What is measured must be the same for everybody.


def generated(cache: Path) -> list[Path]:
    return [
        workloads.clicks(cache, 3_000, 1_000),
        workloads.clicks(cache, 2_000, 1_000, strings=True),
        workloads.views(cache, 500),
        workloads.deltas(cache, 1_000, 100, 3),
        workloads.crumbs(cache, 20, 5),
        workloads.readings(cache, 300, 7, 2, 100),
    ]


def test_a_workload_depends_on_its_parameters_alone(tmp_path: Path) -> None:
    """Without it two machines would measure different things under one name."""
    for here, there in zip(generated(tmp_path / "a"), generated(tmp_path / "b")):
        assert [path.name for path in sorted(here.iterdir())] == [path.name for path in sorted(there.iterdir())]
        for path in here.iterdir():
            assert path.read_bytes() == (there / path.name).read_bytes()
    other = workloads.clicks(tmp_path / "a", 3_000, 1_000, seed=2)
    first = workloads.clicks(tmp_path / "a", 3_000, 1_000)
    assert not pq.read_table(other).equals(pq.read_table(first))


def test_files_are_modified_in_the_order_of_their_names(tmp_path: Path) -> None:
    """Without it Spark's file source would read them in another order than we do, and drop what is late there."""
    for folder in generated(tmp_path):
        times = [path.stat().st_mtime for path in sorted(folder.iterdir())]
        assert times == [times[0] + second for second in range(len(times))]


def test_a_half_made_workload_is_not_taken_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it a generator stopped half-way would leave a smaller input that all later runs measure."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "utime", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            workloads.clicks(tmp_path, 3_000, 1_000)
    assert list(tmp_path.iterdir()) == []
    assert pq.read_table(workloads.clicks(tmp_path, 3_000, 1_000)).num_rows == 3_000


def test_clicks_are_as_described(tmp_path: Path) -> None:
    """Without it W1 could drift from its description: rows a millisecond, disorder, skew, number of keys."""
    table = pq.read_table(workloads.clicks(tmp_path, 200_000, 50_000))
    millis = table["ts"].cast(pa.int64()).to_numpy() // 1000
    disorder = np.maximum.accumulate(millis) - millis
    assert 4_500 < disorder.max() < workloads.DISORDER_MS
    assert abs((millis.max() - millis.min()) - 200_000) < 6_000
    keys = table["key"].to_numpy()
    assert keys.min() >= 0
    assert 90_000 < keys.max() < workloads.KEYS
    assert 0.1 < np.mean(keys == 1) < 0.3


def test_deltas_touch_each_key_once(tmp_path: Path) -> None:
    """Without it a delta would be smaller than its name says, and W3 would flatter us."""
    folder = workloads.deltas(tmp_path, 5_000, 700, 4)
    state = pa.concat_tables([pq.read_table(path) for path in sorted(folder.glob("0-state-*"))])
    assert sorted(state["key"].to_pylist()) == list(range(5_000))
    for path in folder.glob("1-delta-*"):
        keys = pq.read_table(path)["key"]
        assert len(keys) == len(pc.unique(keys)) == 700


# The measuring itself.


def test_sides_take_turns_in_empty_folders(tmp_path: Path) -> None:
    """Without it a side could find the other's results, or have the quiet minutes to itself."""
    turns: list[str] = []
    rows = pa.table({"x": [1]})

    def side(name: str) -> measure.Side:
        def work(place: Path) -> None:
            assert list(place.iterdir()) == []
            (place / "left").touch()
            turns.append(name)

        return measure.Side(name, work, lambda _: rows)

    seconds = measure.alternate([side("a"), side("b")], 2, tmp_path, lambda *_: None)
    assert turns == ["a", "b"] * 3
    assert {name: len(taken) for name, taken in seconds.items()} == {"a": 2, "b": 2}
    assert list(tmp_path.iterdir()) == []


def test_different_rows_end_the_benchmark(tmp_path: Path) -> None:
    """Without it a side that computes something else could win."""
    expected = pa.table({"key": [1, 2], "start": [0, 0], "count": [1, 2], "total": [0.1, 0.2]})
    columns = {"key": [1, 3], "start": [0, 60_000], "count": [1, 3], "total": [0.1, 0.2 + 1e-6]}
    clicks.compare("same", expected, expected)
    close = pa.array([0.1, 0.2 * (1 + 1e-12)])
    clicks.compare("close", expected, expected.set_column(3, "total", close))
    for place, (name, column) in enumerate(columns.items()):
        with pytest.raises(measure.RowsDiffer, match="other"):
            clicks.compare("other", expected, expected.set_column(place, name, pa.array(column)))
    for fewer in (expected.slice(1), expected.slice(0, 0)):
        with pytest.raises(measure.RowsDiffer):
            clicks.compare("fewer", expected, fewer)
        with pytest.raises(measure.RowsDiffer):
            views.compare("fewer", expected, fewer)


def test_resident_memory_covers_descendants() -> None:
    """Without it workers could grow unseen."""
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"
    process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.readline()
    sizes = memory.resident(process.pid)
    assert len(sizes) == 2
    assert all(size > 1 << 20 for size in sizes.values())
    assert any(name.endswith(f" {process.pid}") for name in sizes)
    process.communicate(b"\n")


def test_processor_seconds_cover_descendants_that_have_ended() -> None:
    """Without it the work of a JVM, or of its workers, would cost nothing."""
    before = sliding.cpu_seconds()
    subprocess.run([sys.executable, "-c", "sum(range(10_000_000))"], check=True)
    assert sliding.cpu_seconds() - before > 0.05


def test_a_largest_value_of_another_window_is_told(tmp_path: Path) -> None:
    """Without it two sides that read other rows would be compared by their seconds."""
    source = sliding.described(workloads.readings(tmp_path, 4_000, 5, 90, 1_000), 1)
    side = sliding.ours(source)
    side.run(tmp_path)
    rows = side.rows(tmp_path)
    sliding.compare("the same", rows, rows)
    assert rows.num_rows > 5 * 60
    other = rows.set_column(2, "value", pc.add(rows["value"], pa.array([0] * (rows.num_rows - 1) + [1])))
    for wrong in (other, rows.slice(1)):
        with pytest.raises(measure.RowsDiffer):
            sliding.compare("another", rows, wrong)


def test_a_week_that_loses_a_visit_is_told(tmp_path: Path) -> None:
    """Without it a job that forgets would need little memory."""
    (tmp_path / "results").mkdir()
    rows = pa.table({"visits": [60, 11, 2], "retracted": [False, False, True]})
    pq.write_table(rows, tmp_path / "results" / "1.parquet")
    week.check(tmp_path, {"late": 1}, visits=70, too_late=1)
    for late, too_late in ((0, 1), (1, 0), (0, 0)):
        with pytest.raises(measure.RowsDiffer):
            week.check(tmp_path, {"late": late}, visits=70, too_late=too_late)


def test_the_ratios_of_checkpoints_are_of_medians_and_tails() -> None:
    """Without it a slow tail on the large state could pass as a fast median."""
    small = [checkpoint.Step(0.01, 100, 50)] * 200
    large = [checkpoint.Step(0.012, 150, 50)] * 190 + [checkpoint.Step(0.05, 150, 50)] * 10
    found = {figure.name: figure for figure in checkpoint.figures(small, large, {"small": 0.1, "large": 0.2})}
    assert found["large / small: median"].value == pytest.approx(1.2)
    assert found["large / small: p99"].value == pytest.approx(5)
    assert found["large / small: p99"].met is False
    assert found["large: written / delta"].value == 3


# Each benchmark, small.


@pytest.mark.parametrize("name", NAMES)
def test_help(name: str) -> None:
    """Without it the commands of the table could fail before they begin."""
    result = CliRunner().invoke(importlib.import_module(f"benchmarks.{name}").main, ["--help"])
    assert result.exit_code == 0
    assert "--cache" in result.output
    assert "--child" not in result.output


def test_clicks_embedded(tmp_path: Path) -> None:
    """Without it W1 could rot: ours against the batch peers, same rows."""
    peers = [name for name in ("polars", "duckdb") if importlib.util.find_spec(name)]
    size = ("--rows", 160_000, "--file-rows", 40_000, "--runs", 1)
    line = run("clicks", tmp_path, *size, "--no-spark", "--peers", ",".join(peers), "--keys", "string")
    assert len(line["seconds"]) == 1 + len(peers)
    assert values(line)["ours embedded"] > 0


@turn(0, of=2)
@pytest.mark.spark
@pytest.mark.slow
def test_clicks_on_spark(tmp_path: Path) -> None:
    """Without it the comparison with Spark's own streaming aggregation could rot."""
    line = run("clicks", tmp_path, "--rows", 80_000, "--file-rows", 40_000, "--runs", 1)
    assert values(line)["ours on Spark / Spark streaming"] > 0
    assert values(line)["ours embedded / Spark streaming"] > 0


def test_views(tmp_path: Path) -> None:
    """Without it W2 could rot: per message, per batch and plain Python, same rows."""
    line = run("views", tmp_path, "--lines", 30_000, "--runs", 1, "--peers", "bytewax")
    assert {"plain Python", "process_message", "process_batch"} <= set(values(line))


def test_checkpoint(tmp_path: Path) -> None:
    """Without it W3 could rot: two processes taking turns, and their states compared."""
    line = run("checkpoint", tmp_path, "--state-keys", 4_000, "--delta-keys", 300, "--steps", 5)
    assert values(line)["large / small: median"] > 0
    assert values(line)["small: written / delta"] >= 1


def test_changes(tmp_path: Path) -> None:
    """Without it W8 could rot: two processes taking turns, and the newest rows of both sinks compared."""
    line = run("changes", tmp_path, "--state-keys", 2_000, "--delta-keys", 300, "--steps", 3)
    assert values(line)["ratio"] > 0


def test_memory_embedded(tmp_path: Path) -> None:
    """Without it the memory benchmark could rot."""
    line = run("memory", tmp_path, "--first", 3, "--last", 6, "--step-rows", 500, "--engines", "embedded")
    assert any(name.startswith("embedded: python") for name in values(line))


@turn(1, of=2)
@pytest.mark.spark
@pytest.mark.slow
def test_memory_on_spark(tmp_path: Path) -> None:
    """Without it the JVM and the Python workers could be missing from the figures."""
    line = run("memory", tmp_path, "--first", 3, "--last", 6, "--step-rows", 500, "--engines", "spark")
    assert any(name.startswith("spark: java") for name in values(line))
    assert sum(name.startswith("spark: python") for name in values(line)) >= 2


def test_sliding_embedded(tmp_path: Path) -> None:
    """Without it W7 could rot."""
    size = ("--rows", 8_000, "--keys", 20, "--file-rows", 2_000, "--runs", 1)
    assert values(run("sliding", tmp_path, *size, "--no-spark"))["ours embedded"] > 0


@pytest.mark.spark
@pytest.mark.slow
def test_sliding_on_spark(tmp_path: Path) -> None:
    """Without it the comparison with Spark's own hopping windows could rot."""
    size = ("--rows", 8_000, "--keys", 20, "--file-rows", 2_000, "--runs", 1)
    found = values(run("sliding", tmp_path, *size))
    assert found["ours on Spark / Spark streaming"] > 0 and found["Spark streaming, processors"] > 0


def test_a_week_holds_what_its_windows_need(tmp_path: Path) -> None:
    """Without it the week could rot; its state is bounded at this size too, and each visit counts."""
    line = run("week", tmp_path, "--rows", 6_000, "--keys", 3_000, "--step-rows", 500, "--engines", "embedded")
    (name,) = (name for name in values(line) if "rows of the state" in name)
    held = [int(count.replace(",", "")) for count in name.split("(")[1].rstrip(")").split(", ")]
    assert len(held) == 7 and 0 < max(held) < 6_000


def test_many_steps(tmp_path: Path) -> None:
    """Without it the many-steps benchmark could rot; its bounds hold at this size too."""
    line = run("many_steps", tmp_path, "--files", 300, "--step-files", 3)
    assert line["parameters"]["steps"] >= 100
    assert values(line)["files, largest number seen"] <= 200
    assert values(line)["manifest, largest seen"] <= 65_536


def test_verify(tmp_path: Path) -> None:
    """Without it the rate of verify could be measured on a checkpoint that does not verify."""
    line = run("verify", tmp_path, "--megabytes", 4, "--step-rows", 20_000, "--runs", 1)
    assert values(line)["verify"] > 0
    assert values(line)["state"] > 3


def test_page(tmp_path: Path) -> None:
    """Without it the page could be measured on errors, or on a few checkpoints."""
    line = run("page", tmp_path, "--keys", 2_000, "--checkpoints", 40, "--runs", 1, "--make", tmp_path / "made")
    found = values(line)
    assert len(found) == 36 and {name.partition(":")[0] for name in found} == {"many keys", "many checkpoints"}
    place = tmp_path / "grown"
    pipeline = page.on_disk(place, place, 100, 100, 50, Retention(last=30))
    page.grow(place, 30)
    shown, listed, before = Shown("grown", "", pipeline.storage), [], None
    while not listed or before is not None:
        # On a busy machine an answer ends early.
        answer = time_line(shown, before, limit=500)
        listed, before = [*listed, *answer["checkpoints"]], answer["next"]
    assert [one["kind"] for one in listed].count("checkpoint") >= 29
    assert listed[0]["id"] == 30 and len(verify(pipeline.storage).findings) == 0


@pytest.mark.check
def test_start(tmp_path: Path) -> None:
    """Without it the seconds could be those of a run that writes no row."""
    found = values(run("start", tmp_path, "--runs", 1))
    first, end = found["persistent run, from its start to the first row"], found["to its end"]
    assert 0 < first <= end
    assert found["persistent --help, of the processor"] < found["of the processor"]


def test_sessions_are_the_plain_ones(tmp_path: Path) -> None:
    """Fewer rows, or sessions closed too early, would be fast for the wrong reason."""
    sizes = ("--rows", 30_000, "--keys", 10, "--step-rows", 5_000, "--open-keys", 1_000, "--delta-rows", 50)
    line = run("sessions", tmp_path, *sizes, "--steps", 5, "--runs", 1)
    assert values(line)["sessions"] > 0 and values(line)["sessions / windows"] > 0


def test_lateness_is_compared_on_equal_rows(tmp_path: Path) -> None:
    """A side that published other rows would be fast for the wrong reason."""
    line = run("late", tmp_path, "--rows", 30_000, "--keys", 10, "--step-rows", 5_000, "--runs", 1)
    assert values(line)["seconds, with / without"] > 0
