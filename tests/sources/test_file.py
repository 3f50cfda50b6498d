"""A file source from the outside: every record once, in whatever pieces, and every surprise by name."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from datetime import UTC, datetime, timedelta

import cloudpickle
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from persistent.errors import InvalidPipeline, SourceChanged, SourceError
from persistent.sources import NO_TIMESTAMP, Budget, FileSource, Source, SourceState
from tests.sources.draining import drain, read, thawed

START = datetime(2024, 1, 1, tzinfo=UTC)
ENDINGS = ["parquet", "jsonl", "jsonl.gz", "json.zst", "csv", "csv.gz", "ndjson", "csv.zst"]


def rows(first, count):
    """Rows with times as text, whole numbers, text beyond ASCII, and nulls where every format has them."""
    return [
        {"ts": f"{START + timedelta(seconds=i):%Y-%m-%dT%H:%M:%SZ}", "n": None if i % 5 == 3 else i, "v": f"é, {i}"}
        for i in range(first, first + count)
    ]


def write(path, records, row_group=7):
    """The records in the format that the name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    name = path.name.removesuffix(".gz").removesuffix(".zst")
    if name.endswith(".parquet"):
        schema = pa.schema([("ts", pa.string()), ("n", pa.int64()), ("v", pa.string())])
        pq.write_table(pa.Table.from_pylist(records, schema), path, row_group_size=row_group)
        return path
    if name.endswith(".csv"):
        lines = ["ts,n,v"] + [f'{r["ts"]},{"" if r["n"] is None else r["n"]},"{r["v"]}"' for r in records]
    else:
        lines = [json.dumps(r, ensure_ascii=False) for r in records]
    data = "".join(line + "\n" for line in lines).encode()
    if path.name.endswith(".gz"):
        data = gzip.compress(data)
    elif path.name.endswith(".zst"):
        data = pa.Codec("zstd").compress(data, asbytes=True)
    path.write_bytes(data)
    return path


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


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
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


@pytest.mark.parametrize("ending", ["parquet", "jsonl", "csv"])
def test_a_large_file_is_shared_evenly_among_workers(tmp_path, ending):
    """Without it one worker would do the work of a step and the others would wait."""
    write(tmp_path / f"a.{ending}", rows(0, 4_000), row_group=250)
    source = FileSource(tmp_path, timestamp="ts")
    plan = source.plan(SourceState({}), Budget(4_000, splits=4))
    sizes = [len(read(source, split, plan.recorded)[0]) for split in plan.splits]
    assert len(sizes) == 4 and sum(sizes) == 4_000 and min(sizes) > 900


def test_many_small_files_share_a_split(tmp_path):
    """Without it 100 files would be 100 tasks."""
    for place in range(100):
        write(tmp_path / f"{place:03}.jsonl", rows(place * 3, 3))
    source = FileSource(tmp_path, timestamp="ts")
    plan = source.plan(SourceState({}), Budget(10_000, splits=2))
    assert [len(split.spans) for split in plan.splits] == [50, 50]
    assert drain(source).values == rows(0, 300)


def test_a_plan_names_a_bounded_number_of_files(tmp_path, monkeypatch):
    """Without it the plan over 100,000 small files would be too large to be read again, and the job stuck."""
    monkeypatch.setattr("persistent.sources.file._FILES_MAX", 7)
    for place in range(20):
        write(tmp_path / f"{place:03}.jsonl", rows(place * 3, 3 if place % 5 else 0))
    drained = drain(FileSource(tmp_path, timestamp="ts"))
    assert [sum(len(split.spans) for split in plan.splits) for plan in drained.plans] == [7, 7, 2]
    assert drained.values == [row for place in range(20) if place % 5 for row in rows(place * 3, 3)]


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


def test_a_file_that_an_older_release_listed_empty_is_read_once_it_has_content(tmp_path):
    """Without it such a file would stop the job for ever with SourceChanged."""
    write(tmp_path / "a.jsonl", rows(0, 3))
    source = FileSource(tmp_path, timestamp="ts")
    state = drain(source).state
    empty = {"ordinal": 1, "path": "b.jsonl", "size": 0, "fingerprint": "", "rows": 0, "estimate": 0}
    known = state.index.drop_columns("hint")
    index = pa.concat_tables([known, pa.Table.from_pylist([empty], known.schema)])
    write(tmp_path / "b.jsonl", rows(3, 2))
    drained = drain(source, state=SourceState({"files": (2, 0)}, state.recorded, index))
    assert drained.values == rows(3, 2) and drained.state.positions == {"files": (3, 0)}


def test_no_file_at_all_is_an_error_that_shows_the_path(tmp_path):
    """Without it a typing error in a path would be an empty, successful run."""
    for path in (tmp_path, tmp_path / "*.parquet", tmp_path / "none", tmp_path / "none" / "*"):
        source = FileSource(path, timestamp="ts")
        with pytest.raises(SourceError, match=r"there is no file .*follow=True"):
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
    with pytest.raises(SourceChanged, match="it had 1,644 bytes when it was listed, now it has 1,647"):
        source.plan(done.state, Budget(1))
    path.unlink()
    assert source.plan(done.state, Budget(1)).splits == ()


def test_the_clock_waits_for_what_parquet_statistics_allow(tmp_path):
    """Without it a backfill in any order would be full of late rows."""
    for name, first in (("a", 100), ("b", 0), ("c", 50)):
        table = pa.table({"ts": pa.array(np.arange(first, first + 20), pa.timestamp("ms"))})
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=10)
    source = FileSource(tmp_path, timestamp="ts")
    caps = [(tuple(plan.end["files"]), plan.cap["files"]) for plan in drain(source, 10).plans]
    assert caps == [((0, 10), 0), ((1, 0), 0), ((1, 10), 10), ((2, 0), 50), ((2, 10), 60), ((3, 0), None)]
    cut = drain(source, 23, True).plans
    assert [plan.cap["files"] for plan in cut] == [0, 50, None]
    ordered = FileSource(tmp_path, timestamp="ts", ordered=True)
    assert {plan.cap["files"] for plan in drain(ordered, 10).plans} == {None}


@pytest.mark.parametrize(
    ("column", "unit", "expected"),
    [
        (pa.array([5_000, 3_000], pa.timestamp("s")), None, 3_000_000),
        (pa.array([5_000_999, 3_000_999], pa.timestamp("us", "Asia/Tokyo")), None, 3_000),
        (pa.array([5_000_000_000, 3_000_999_999], pa.timestamp("ns")), None, 3_000),
        (pa.array([5, 3], pa.int64()), "s", 3_000),
        (pa.array([5, 3], pa.int32()), "ms", 3),
        (pa.array([5, 3], pa.date32()), None, 3 * 86_400_000),
        (pa.array(["1970-01-02", "1970-01-03"]), None, -1),
        (pa.array([5, -3], pa.int64()), "ms", -1),
        (pa.array([5, None], pa.int64()), "ms", 5),
        (pa.array([None, None], pa.int64()), "ms", None),
    ],
)
def test_statistics_of_every_sort_of_time(tmp_path, column, unit, expected):
    """Without it the clock could pass a record of a unit that was read wrongly from the statistics."""
    pq.write_table(pa.table({"ts": pa.array([1], column.type) if unit else column[:1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"ts": column}), tmp_path / "b.parquet")
    plan = FileSource(tmp_path, timestamp="ts", timestamp_unit=unit).plan(SourceState({}), Budget(1, exact=True))
    assert plan.cap == {"files": expected}


def test_without_statistics_and_for_text_the_clock_waits_until_all_is_read(tmp_path, folders):
    """Without it unread data of unknown age would be late."""
    for name in "ab":
        pq.write_table(pa.table({"ts": [1, 2]}), tmp_path / f"{name}.parquet", write_statistics=False)
    source = FileSource(tmp_path, timestamp="ts", timestamp_unit="ms")
    assert [plan.cap["files"] for plan in drain(source, 3, True).plans] == [-1, None]
    assert [plan.cap["files"] for plan in drain(FileSource(folders["jsonl"], timestamp="ts"), 30).plans][-1] is None
    assert drain(FileSource(folders["jsonl"], timestamp="ts"), 30).plans[0].cap == {"files": -1}


DAYS = {"a/day=1970-01-04": 2, "b/day=1970-01-02": 1, "b/day=1970-01-03": 2, "c/day=__HIVE_DEFAULT_PARTITION__": 1}


@pytest.mark.parametrize("column", ["none", "null", "later"])
@pytest.mark.parametrize("unit", ["date32", "string", "timestamp[us]"])
def test_where_folders_tell_the_time_the_clock_goes_by_them(tmp_path, column, unit):
    """Without it a column of that name, which nobody reads, made on-time records late; without one the clock stood."""
    for folder, count in DAYS.items():
        (tmp_path / folder).mkdir(parents=True)
        days = {} if column == "none" else {"day": pa.array([None if column == "null" else 99] * count, pa.date32())}
        pq.write_table(pa.table({"k": ["x"] * count, **days}), tmp_path / folder / "x.parquet")
    source = FileSource(tmp_path, timestamp="day", schema={"k": "string", "day": unit})
    drained = drain(source, 1, True)
    assert [row[2] for row in drained.rows[:-1]] == [day * 86_400_000 for day in (3, 3, 1, 2, 2)]
    assert drained.rows[-1][2] == NO_TIMESTAMP
    caps = [plan.cap["files"] for plan in drained.plans]
    assert caps == [day * 86_400_000 if day else None for day in (1, 1, 2, 2, 0, 0)]


def test_folders_are_columns(tmp_path):
    """Without it what only the folder says would be lost."""
    for ending in ("parquet", "jsonl"):
        root = tmp_path / ending
        write(root / "day=2024-01-01" / "site=a%2Fb" / f"x.{ending}", rows(0, 2))
        write(root / "day=2024-01-02" / "site=__HIVE_DEFAULT_PARTITION__" / f"x.{ending}", rows(2, 1))
        found = drain(FileSource(root, timestamp="ts"), 1, True).values
        assert [(row["day"], row["site"], row["v"]) for row in found] == [
            ("2024-01-01", "a/b", "é, 0"),
            ("2024-01-01", "a/b", "é, 1"),
            ("2024-01-02", None, "é, 2"),
        ]
        schema = {"day": "date32", "n": pa.int64(), "ts": "string"}
        typed = drain(FileSource(root / "day=*" / "**", timestamp="day", schema=schema))
        assert [str(row["day"]) for row in typed.values] == ["2024-01-01", "2024-01-01", "2024-01-02"]
        assert typed.rows[0][2] == int(START.timestamp()) * 1_000 and list(typed.values[0]) == list(schema)
        clash = FileSource(write(tmp_path / "c" / "n=1" / f"x.{ending}", rows(0, 1)).parents[1], timestamp="ts")
        with pytest.raises(SourceError, match="'n' is a column of the file and the name of a folder"):
            clash.plan(SourceState({}), Budget(1))
        shutil.rmtree(tmp_path / "c")
        write(root / f"bare.{ending}", rows(3, 1))
        with pytest.raises(SourceError, match="its folders name"):
            FileSource(root, timestamp="ts").plan(SourceState({}), Budget(1))


def test_a_truncated_parquet_file_stops_the_run_or_is_one_dead_letter(tmp_path):
    """Without it half a file would be read as a whole one, or nothing would be read at all."""
    write(tmp_path / "a.parquet", rows(0, 30))
    torn = write(tmp_path / "b.parquet", rows(30, 30))
    write(tmp_path / "c.parquet", rows(60, 30))
    torn.write_bytes(torn.read_bytes()[:-20])
    with pytest.raises(SourceError, match=r"b\.parquet: .*footer.*on_bad_file"):
        FileSource(tmp_path, timestamp="ts").plan(SourceState({}), Budget(1))
    lenient = FileSource(tmp_path, timestamp="ts", on_bad_file="dead-letter")
    for step, exact in ((1_000, False), (7, True), (30, True), (1, True)):
        drained = drain(lenient, step, exact, 2)
        assert drained.values == rows(0, 30) + rows(60, 30)
        assert [(d.ordinal, d.offset, d.data) for d in drained.dead] == [(1, 0, b"")]
        assert "footer" in drained.dead[0].reason
    only = FileSource(torn, timestamp="ts", on_bad_file="dead-letter")
    with pytest.raises(SourceError, match="footer"):
        only.plan(SourceState({}), Budget(1))


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


def test_an_unreadable_row_group_is_one_dead_letter(tmp_path):
    """Without it a flipped bit would cost the whole file, or as many dead letters as there are workers."""
    path = write(tmp_path / "a.parquet", rows(0, 40), row_group=10)
    group = pq.read_metadata(path).row_group(2).column(0)
    data = bytearray(path.read_bytes())
    offset = group.dictionary_page_offset or group.data_page_offset
    data[offset : offset + 30] = b"\xff" * 30
    path.write_bytes(bytes(data))
    with pytest.raises(SourceError, match="row group 2"):
        drain(FileSource(tmp_path, timestamp="ts"))
    for step, exact in ((1_000, False), (15, False), (10, False)):
        drained = drain(FileSource(tmp_path, timestamp="ts", on_bad_file="dead-letter"), step, exact)
        assert drained.values == rows(0, 20) + rows(30, 10)
        assert [(d.offset, "row group 2" in d.reason) for d in drained.dead] == [(20, True)]
    for step in (7, 13):
        source = FileSource(tmp_path, timestamp="ts", on_bad_file="dead-letter")
        drained = drain(source, step, True, 2)
        assert drained.values == rows(0, 20) + rows(30, 10) and [d.offset for d in drained.dead] == [20]


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


def test_files_of_other_formats_are_refused(tmp_path):
    """Without it a stray file would be silently skipped, or read as rubbish."""
    write(tmp_path / "a.jsonl", rows(0, 3))
    for name, says in (("b.txt", "does not tell its format"), ("b.csv", "first file is json")):
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


@pytest.mark.parametrize(
    "options",
    [
        {"timestamp": None},
        {"timestamp_unit": "minutes"},
        {"format": "xml"},
        {"on_bad_file": "skip"},
        {"ordered": "yes"},
        {"multiline": 1},
        {"max_out_of_orderness": "5 parsecs"},
        {"max_out_of_orderness": -1},
        {"schema": {"ts": "no such type"}},
        {"schema": {}},
        {"schema": ["ts"]},
        {"path": ""},
        {"path": 3},
    ],
)
def test_bad_options_are_refused_when_the_source_is_made(options):
    """Without it they would fail on a worker, hours later."""
    with pytest.raises(InvalidPipeline, match=r"=|write|max_out_of_orderness"):
        FileSource(**{"path": "events", "timestamp": "ts", **options})


def test_a_path_is_fixed_when_the_source_is_made(tmp_path, monkeypatch):
    """Without it a worker with another working directory would read other files."""
    write(tmp_path / "in" / "a.jsonl", rows(0, 3))
    monkeypatch.chdir(tmp_path)
    source = FileSource(os.path.join("in", "*"), timestamp="ts")
    monkeypatch.chdir("/")
    assert drain(source).values == rows(0, 3)
