"""An integer that an inferred double would round is a dead letter, and the types that its reason names read it."""

from __future__ import annotations

import json
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from monoids import Count, HyperLogLog
from persistent import (
    FileSource,
    LogSource,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    SegmentedLog,
    WindowState,
    tumbling,
)
from persistent.connect.source import Budget, Source, SourceState
from persistent.engines.embedded import Embedded
from persistent.storage import MemoryStorage
from tests.connect.draining import drain

BIG = [str(2**63 + n) for n in range(1_000)]
MIXED = ["0.5", str(2**53 + 1), str(2**53 + 3)]
HUGE = ["1" + "0" * 30, "1" + "0" * 29 + "1", "1" + "0" * 400]
DOUBLES = [str(2**53), f"-{2**60}", f"{2**53}.25", "1e20", "100000000000000000000", "1.5E+300"]


class Distinct(PersistentTask):
    """How many ids there are."""

    key = None

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(HyperLogLog(12))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, message.value["id"])


class ByFunction(PersistentTask):
    key = {"name": lambda message: message.value["id"]}

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(Count())

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


def written(folder: Path, format: str, ids: list[str]) -> Path:
    path = folder / f"a.{format}"
    rows = [f"{n},{one}\n" if format == "csv" else f'{{"ts":{n},"id":{one}}}\n' for n, one in enumerate(ids)]
    path.write_text("".join(["ts,id\n"] * (format == "csv") + rows))
    return path


def files(path: Path, **options: Any) -> FileSource:
    return FileSource(path, timestamp="ts", timestamp_unit="ms", **options)


def counted(source: Source, task: PersistentTask) -> tuple[int, int, list[dict[str, Any]]]:
    """The records read, the dead ones, and the rows of the state."""
    pipeline = Pipeline(source=source, task=task, checkpoint=f"memory://{uuid.uuid4()}")
    report = pipeline.run(engine=Embedded(1))
    return report.rows, report.dead, pipeline.state().to_pylist()


@pytest.mark.parametrize("format", ["csv", "jsonl"])
@pytest.mark.parametrize(("ids", "exact", "kind"), [(BIG, 1, 0), (MIXED, 1, 9), (HUGE, 0, 0)])
def test_an_integer_that_would_be_rounded_is_a_dead_letter(
    format: str, ids: list[str], exact: int, kind: int, tmp_path: Path
) -> None:
    """A thousand ids were one, and a key made by a function was that of all of them."""
    path = written(tmp_path, format, ids)
    drained = drain(files(path))
    assert [row[3]["id"] for row in drained.rows] == [float(one) for one in ids[:exact]]
    (ts, bad) = (exact, ids[exact])
    line = f"{ts},{bad}" if format == "csv" else f'{{"ts":{ts},"id":{bad}}}'
    assert drained.dead[0].data == line.encode() and len(drained.dead) == len(ids) - exact
    reason = drained.dead[0].reason
    assert reason.startswith(f"column 'id' was inferred to be of type double, which rounds the integer {bad}. If")
    assert f"pa.decimal128(38, {kind})" in reason and "schema=" in reason and "'double', which rounds" in reason
    for task in (Distinct(), ByFunction()):
        assert counted(files(path), task)[:2] == (len(ids), len(ids) - exact)


@pytest.mark.parametrize("format", ["csv", "jsonl"])
@pytest.mark.parametrize(("ids", "kind"), [(BIG, 0), (MIXED, 9)])
def test_the_types_that_the_reason_names_read_them(format: str, ids: list[str], kind: int, tmp_path: Path) -> None:
    """The advice of an error must work on the very input that raised it."""
    path = written(tmp_path, format, ids)
    exact = files(path, schema={"ts": "int64", "id": pa.decimal128(38, kind)})
    _, dead, rows = counted(exact, ByFunction())
    assert dead == 0 and {row["name"] for row in rows} == set(map(Decimal, ids))
    assert len(ids) * 0.95 < counted(exact, Distinct())[2][0]["value"] < len(ids) * 1.05
    rounds = files(path, schema={"ts": "int64", "id": "double"})
    assert [row[3]["id"] for row in drain(rounds).rows] == [float(one) for one in ids]


@pytest.mark.parametrize("format", ["csv", "jsonl"])
def test_what_a_double_holds_exactly_and_what_is_written_as_one_is_read(format: str, tmp_path: Path) -> None:
    """Measurements are rounded wherever they are written, and would all be dead letters."""
    drained = drain(files(written(tmp_path, format, ["0.5", *DOUBLES])))
    assert drained.dead == [] and [row[3]["id"] for row in drained.rows] == [0.5, *map(float, DOUBLES)]


def test_many_large_values_cost_only_those_that_are_rounded(tmp_path: Path) -> None:
    """A column of measurements is searched as a whole, lines with long integers elsewhere alone."""
    rows = [f'{{"ts":{n},"id":{n + 1}e20,"text":"{"9" * 20 if n % 3 else ""}"}}' for n in range(12_000)]
    bad = [0, 1, 5_000, 11_999]
    for n in bad:
        rows[n] = f'{{"ts":{n},"id":{2**60 + 1}}}'
    (tmp_path / "a.jsonl").write_text("\n\n".join(["", '{"ts":0,"id":0.5}', *rows]))
    drained = drain(files(tmp_path))
    assert len(drained.rows) == len(rows) + 1 - len(bad)
    assert [dead.data.decode() for dead in drained.dead] == [rows[n] for n in bad]


def test_fields_of_fields_and_items_of_lists_are_not_rounded_either(tmp_path: Path) -> None:
    """Only the columns themselves would be exact."""
    good = [{"l": [0.5, 2**53]}, {"l": None}, {"l": []}, None]
    bad = [{"l": [1, 2**53 + 1]}, {"l": [2**64 + 1]}]
    rows = [{"ts": n, "x": one, "other": 2**53 + 1} for n, one in enumerate([*good, *bad, *good])]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    drained = drain(files(tmp_path))
    assert [row[3]["x"] for row in drained.rows] == [*good, *good]
    assert [dead.reason.partition(" rounds the integer ")[2][:16] for dead in drained.dead] == [
        "9007199254740993",
        "1844674407370955",
    ]
    deep = f'{{"ts":9,"x":{{"l":[{2**53 + 1}]}},"y":{"[" * 5_000 + "]" * 5_000}}}'
    (tmp_path / "b.jsonl").write_text(deep + "\n")
    assert "too deep to tell" in drain(files(tmp_path)).dead[-1].reason


def test_values_of_messages_are_not_rounded_either() -> None:
    """Brokers and logs have the same JSON, read by another path."""
    log = SegmentedLog(MemoryStorage(uuid.uuid4().hex))
    with log.writer() as adding:
        adding.append_many([b'{"id":%s}' % one.encode() for one in MIXED], [1, 2, 3])
    for schema, alive in ((None, [0.5]), ({"id": "double"}, [float(one) for one in MIXED])):
        source = LogSource(log, schema=schema)
        plan = source.plan(SourceState({}), Budget(10))
        (records,) = source.read(plan.splits[0], json.loads(json.dumps(plan.recorded)))
        assert records.batch.column("id").to_pylist() == alive
        assert [dead.offset for dead in records.dead] == ([1, 2] if schema is None else [])


@pytest.mark.parametrize("format", ["csv", "jsonl"])
def test_a_correction_does_not_round_what_its_source_does_not(format: str, tmp_path: Path) -> None:
    """It reads its file by the recorded columns, which it would take for declared ones."""

    class Sums(PersistentTask):
        key = {"name": lambda message: message.value["id"]}

        def persistent_state(self) -> WindowState:
            return WindowState(Count(), tumbling("1 h"))

        def process_message(self, state: Any, message: Any) -> None:
            state.update(message.timestamp, 1)

    (tmp_path / "in").mkdir()
    source = files(written(tmp_path / "in", format, ["0.5", "0.25"]))
    pipeline = Pipeline(source=source, task=Sums(), checkpoint=f"memory://{uuid.uuid4()}", discard_closed=True)
    pipeline.run(engine=Embedded(1))
    with pytest.raises(Exception, match="rounds the integer 9007199254740993"):
        pipeline.correct(name="wide", add=written(tmp_path, format, MIXED), engine=Embedded(1))


def test_rows_of_python_are_not_rounded() -> None:
    """A list of rows has inferred columns too."""
    source = MemorySource([{"ts": 1, "id": 0.5}, {"ts": 2, "id": 2**53 + 1}, {"ts": 3, "id": 2**63}])
    drained = drain(source)
    assert [row[3]["id"] for row in drained.rows] == [0.5] and len(drained.dead) == 2
