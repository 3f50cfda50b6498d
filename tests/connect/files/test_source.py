"""A file source from the outside: every record once, in whatever pieces, and every surprise by name."""

from __future__ import annotations

import os
from datetime import timedelta

import cloudpickle
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from persistent.errors import InvalidPipeline, SourceChanged, SourceError
from persistent.sources import NO_TIMESTAMP, Budget, FileSource, Source, SourceState
from tests.connect.draining import drain, read, thawed
from tests.connect.written import START, rows, write
from tests.few import examples

ENDINGS = ["parquet", "jsonl", "jsonl.gz", "json.zst", "csv", "csv.gz", "ndjson", "csv.zst"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """One folder per ending, each with the same rows in files of 20, 0, 1 and 40."""
    found = {}
    for ending in ENDINGS:
        found[ending] = tmp_path_factory.mktemp("files")
        for place, (first, count) in enumerate([(0, 20), (20, 0), (20, 1), (21, 40)]):
            write(found[ending] / f"{place}.{ending}", rows(first, count))
    return found


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_format_gives_the_same_records(folders, ending):
    """Without it a format or compression could lose rows, change values, or read a time in another zone."""
    drained = drain(FileSource(folders[ending], timestamp="ts"))
    assert drained.values == rows(0, 61)
    assert [row[2] for row in drained.rows] == [int((START.timestamp() + i) * 1_000) for i in range(61)]
    listed = 4 if (folders[ending] / f"1.{ending}").stat().st_size else 3
    assert not drained.dead and drained.state.positions == {"files": (listed, 0)}


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.sampled_from(ENDINGS), st.integers(1, 70), st.booleans(), st.integers(1, 5))
def test_every_record_is_read_once_whatever_the_steps_and_splits(folders, ending, step, exact, splits):
    """I1, I3: without it a budget, or a cut at the wrong byte, could drop or repeat records."""
    source = FileSource(folders[ending], timestamp="ts")
    whole = drain(source)
    drained = drain(source, step, exact, splits)
    assert drained.rows == whole.rows
    if exact:
        assert drained.steps == [min(step, 61 - done) for done in range(0, 61, step)]
    for plan in drained.plans:
        assert len(plan.splits) <= splits
        for split in plan.splits:
            assert read(source, split, plan.recorded) == read(source, thawed(split), plan.recorded)


def test_new_files_are_listed_only_when_the_known_ones_do_not_fill_the_budget(tmp_path, monkeypatch):
    """Without it 100,000 files would be listed at every step."""
    write(tmp_path / "a.parquet", rows(0, 100))
    source = FileSource(tmp_path, timestamp="ts")
    first = source.plan(SourceState({}), Budget(50))
    state = SourceState(first.end, first.recorded, first.appended)
    monkeypatch.setattr(source._files, "list", lambda: pytest.fail("listed again"))
    second = source.plan(state, Budget(14))
    assert second.appended is None and second.end == {"files": (0, 63)}


def test_new_files_come_after_old_ones_in_path_order(tmp_path):
    """Without it a file that sorts before others could take an ordinal that is taken."""
    write(tmp_path / "m.jsonl", rows(0, 3))
    source = FileSource(tmp_path, timestamp="ts")
    first = drain(source)
    write(tmp_path / "z.jsonl", rows(6, 3))
    write(tmp_path / "a.jsonl", rows(3, 3))
    second = drain(source, state=first.state)
    assert second.values == rows(3, 6)
    assert second.state.index.column("path").to_pylist() == ["m.jsonl", "a.jsonl", "z.jsonl"]
    assert second.state.index.column("ordinal").to_pylist() == [0, 1, 2]
    assert drain(source, state=second.state).plans == []


@pytest.mark.parametrize("ending", ["parquet", "jsonl", "csv.gz"])
def test_empty_files_are_passed_over(tmp_path, ending):
    """Without it a writer that opens a file and leaves it would stop a run, or what it writes later would."""
    (tmp_path / f"0.{ending}").write_bytes(b"")
    source = FileSource(tmp_path, timestamp="ts")
    assert source.plan(SourceState({}), Budget(5)).splits == ()
    write(tmp_path / f"1.{ending}", [])
    write(tmp_path / f"2.{ending}", rows(0, 3))
    (tmp_path / f"3.{ending}").write_bytes(b"")
    drained = drain(source, 2, True)
    assert drained.values == rows(0, 3)
    assert drained.plans[-1].cap == {"files": None}
    write(tmp_path / f"0.{ending}", rows(3, 4))
    assert drain(source, state=drained.state).values == rows(3, 4)


def test_no_file_at_all_is_an_error_that_shows_the_path(tmp_path):
    """Without it a typing error in a path would be an empty, successful run."""
    for path in (tmp_path, tmp_path / "*.parquet", tmp_path / "none", tmp_path / "none" / "*"):
        source = FileSource(path, timestamp="ts")
        with pytest.raises(SourceError, match=r"no file exists .*follow=True"):
            source.plan(SourceState({}), Budget(1))
        assert source.plan(SourceState({}), Budget(1), follow=True).splits == ()


def test_a_file_that_changed_is_refused_and_one_that_is_gone_after_reading_is_not(tmp_path):
    """Without it a replayed step could read other bytes than the step it repeats."""
    path = write(tmp_path / "a.jsonl", rows(0, 30))
    write(tmp_path / "b.jsonl", rows(30, 30))
    source = FileSource(tmp_path, timestamp="ts")
    plan = source.plan(SourceState({}), Budget(1_000))
    data = path.read_bytes()
    path.write_bytes(data.replace(b"29", b"28"))
    with pytest.raises(SourceChanged, match=r"a\.jsonl: .*not those that were listed"):
        list(source.read(plan.splits[0], plan.recorded))
    path.write_bytes(data + b"{}\n")
    with pytest.raises(SourceChanged, match=r"a\.jsonl: it had"):
        list(source.read(plan.splits[0], plan.recorded))
    path.unlink()
    with pytest.raises(SourceError, match="gone before it was read"):
        list(source.read(plan.splits[0], plan.recorded))
    path.write_bytes(data)
    done = drain(source)
    path.write_bytes(data + b"{}\n")
    said = r"it had 1,644 bytes when it was listed, now it has 1,647.*appended belongs into a file of its own\. Restore"
    with pytest.raises(SourceChanged, match=said):
        source.plan(done.state, Budget(1))
    path.write_bytes(data[:-3])
    with pytest.raises(SourceChanged, match=r"now it has 1,641\. Files must not change once listed\. Restore"):
        source.plan(done.state, Budget(1))
    path.unlink()
    assert source.plan(done.state, Budget(1)).splits == ()


def test_without_statistics_and_for_text_the_clock_waits_until_all_is_read(tmp_path, folders):
    """Without it unread data of unknown age would be late."""
    for name in "ab":
        pq.write_table(pa.table({"ts": [1, 2]}), tmp_path / f"{name}.parquet", write_statistics=False)
    source = FileSource(tmp_path, timestamp="ts", timestamp_unit="ms")
    assert [plan.cap["files"] for plan in drain(source, 3, True).plans] == [-1, None]
    assert [plan.cap["files"] for plan in drain(FileSource(folders["jsonl"], timestamp="ts"), 30).plans][-1] is None
    assert drain(FileSource(folders["jsonl"], timestamp="ts"), 30).plans[0].cap == {"files": -1}


def test_a_file_that_does_not_fit_the_schema_is_named_with_both_types(tmp_path):
    """Without it the user would look for the file, or values would be bent to fit."""
    write(tmp_path / "a.parquet", rows(0, 5))
    pq.write_table(pa.table({"ts": ["2024-01-01"], "n": ["many"], "v": ["x"]}), tmp_path / "b.parquet")
    with pytest.raises(SourceError, match=r"b\.parquet: its column 'n' is of type string, .*int64.*schema="):
        FileSource(tmp_path, timestamp="ts").plan(SourceState({}), Budget(1))
    pq.write_table(pa.table({"ts": ["2024-01-01"], "v": ["x"]}), tmp_path / "b.parquet")
    with pytest.raises(SourceError, match=r"b\.parquet: it has no column 'n'; its columns are ts, v"):
        FileSource(tmp_path, timestamp="ts").plan(SourceState({}), Budget(1))
    lenient = drain(FileSource(tmp_path, timestamp="ts", on_bad_file="dead-letter"))
    assert lenient.values == rows(0, 5) and len(lenient.dead) == 1
    narrow = drain(FileSource(tmp_path, timestamp="ts", schema={"ts": "string", "v": "string"}))
    assert len(narrow.rows) == 6 and not narrow.dead


def test_narrower_types_of_later_files_are_widened(tmp_path):
    """Without it two writers of the same data would not do together."""
    pq.write_table(pa.table({"ts": pa.array([1], pa.timestamp("us")), "v": [2.0], "s": ["a"]}), tmp_path / "a.parquet")
    later = pa.table(
        {
            "s": pa.array(["b"]).dictionary_encode(),
            "v": pa.array([3], pa.int32()),
            "ts": pa.array([2], pa.timestamp("ms", "UTC")),
            "more": [1],
        }
    )
    pq.write_table(later, tmp_path / "b.parquet")
    drained = drain(FileSource(tmp_path, timestamp="ts"))
    assert [(row[2], row[3]["v"], row[3]["s"]) for row in drained.rows] == [(0, 2.0, "a"), (2, 3.0, "b")]


def test_unreadable_timestamps_are_marked(tmp_path):
    """Without it a record without a time would be put into some window."""
    (tmp_path / "a.jsonl").write_text('{"ts":"2024-01-01"}\n{"ts":"noon"}\n{"ts":null}\n{}\n')
    drained = drain(FileSource(tmp_path, timestamp="ts"))
    assert [row[2] for row in drained.rows] == [1_704_067_200_000] + [NO_TIMESTAMP] * 3


def test_the_timestamp_column_must_be_there(tmp_path):
    """Without it every record would be a dead letter."""
    for ending in ("parquet", "csv", "jsonl"):
        path = write(tmp_path / f"a.{ending}", rows(0, 3))
        with pytest.raises(SourceError, match=rf"a\.{ending}: there is no column 'time'.*columns are ts, n, v"):
            FileSource(path, timestamp="time").plan(SourceState({}), Budget(1))
        with pytest.raises(SourceError, match="timestamp_unit="):
            FileSource(path, timestamp="n").plan(SourceState({}), Budget(1))


def test_schema_may_change_later_and_format_may_not(tmp_path):
    """Without it an error that asks for schema= could not be cured without starting anew."""
    write(tmp_path / "a.jsonl", rows(0, 3))
    state = drain(FileSource(tmp_path, timestamp="ts")).state
    (tmp_path / "b.jsonl").write_text('{"ts":"2024-01-01","n":1.5}\n')
    assert len(drain(FileSource(tmp_path, timestamp="ts"), state=state).dead) == 1
    wider = FileSource(tmp_path, timestamp="ts", schema={"ts": "string", "n": "double"})
    assert drain(wider, state=state).values == [{"ts": "2024-01-01", "n": 1.5}]
    with pytest.raises(InvalidPipeline, match="fresh checkpoint"):
        FileSource(tmp_path, timestamp="ts", format="csv").plan(state, Budget(1))


@pytest.mark.parametrize("name", ["json", "jsonl", "ndjson"])
def test_a_format_has_the_names_that_its_files_can_have(tmp_path, name):
    """Without it what FileSink calls its format would be refused here; or the checkpoint would know one of the names
    alone, and refuse another."""
    first, second = write(tmp_path / "a.jsonl", rows(0, 3)), tmp_path / "b.jsonl"
    state = drain(FileSource(tmp_path, timestamp="ts", format=name)).state
    assert state.recorded["format"] == "json" and first.exists()
    write(second, rows(3, 2))
    for other in ("json", "jsonl", "ndjson", None):
        assert drain(FileSource(tmp_path, timestamp="ts", format=other), state=state).values == rows(3, 2)


def test_files_of_other_formats_are_refused(tmp_path):
    """Without it a stray file would be silently skipped, or read as rubbish."""
    write(tmp_path / "a.jsonl", rows(0, 3))
    for name, says in (("b.txt", "does not show its format"), ("b.csv", "first file is json")):
        path = write(tmp_path / name, rows(0, 3))
        with pytest.raises(SourceError, match=says):
            FileSource(tmp_path, timestamp="ts").plan(SourceState({}), Budget(1))
        path.unlink()
    odd = write(tmp_path / "x" / "b.txt", rows(0, 3))
    assert drain(FileSource(odd, timestamp="ts", format="json")).values == rows(0, 3)


def test_it_ships_without_connections(folders):
    """Without it Spark could not read it, or secrets would travel in plans."""
    source = FileSource(folders["parquet"], timestamp="ts", max_out_of_orderness=timedelta(seconds=5))
    whole = drain(source, 5, True)
    data = cloudpickle.dumps(source)
    again = cloudpickle.loads(data)
    assert isinstance(source, Source) and source.kind == "FileSource" and again.max_out_of_orderness == 5_000
    assert len(data) < 2_000
    assert drain(again, 5, True).rows == whole.rows
    assert list(source.partitions()) == ["files"]


def test_a_path_is_fixed_when_the_source_is_made(tmp_path, monkeypatch):
    """Without it a worker with another working directory would read other files."""
    write(tmp_path / "in" / "a.jsonl", rows(0, 3))
    monkeypatch.chdir(tmp_path)
    source = FileSource(os.path.join("in", "*"), timestamp="ts")
    monkeypatch.chdir("/")
    assert drain(source).values == rows(0, 3)
