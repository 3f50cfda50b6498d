"""The index grows by what a listing brings."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from persistent.connect.files.index import Index, IndexMeasure
from persistent.connect.files.listing import Files
from persistent.connect.files.reader import Unreadable
from persistent.connect.files.walk import Listed
from persistent.connect.formats.protocol import Facts


def test_a_file_that_is_gone_between_listing_and_look_is_left_out(tmp_path):
    """Without it a writer that cleans up would stop a run that follows."""
    for name in ("a", "c"):
        (tmp_path / name).write_text(name)
    index = Index(Files(tmp_path), None)
    index.append([Listed("a", 1), Listed("b", 1), Listed("c", 1)], lambda file: Facts(*[len(file.edges[0])] * 3))
    assert index.appended.column("ordinal").to_pylist() == [0, 1]
    assert index.appended.column("path").to_pylist() == ["a", "c"]
    assert index.smallest_from(0) == 1 and index.smallest_from(2) is None
    assert index.new([Listed("a", 1), Listed("b", 1)]) == [Listed("b", 1)]


def test_a_bad_file_counts_one_record_and_bounds_no_clock(tmp_path):
    """I9: without it the account of a step with a bad file would not balance, or its clock would stand still."""

    def inspect(file):
        raise Unreadable("torn")

    (tmp_path / "a").write_text("x")
    index = Index(Files(tmp_path), None)
    index.append([Listed("a", 1)], inspect)
    (entry,) = index.entries(0)
    assert (entry.fault, entry.file.rows, entry.file.estimate) == ("torn", 1, 1)
    assert index.smallest_from(0) is None


@pytest.mark.parametrize("ordinal", range(5))
def test_how_far_an_index_is_read_is_the_sum_of_what_lies_before(ordinal):
    """A progress line that is wrong, or that costs each step the sum of a hundred thousand files. Empty files count as
    read, and have no bytes."""
    sizes, rows, measure = [100, 7, 50, 300], [10, 0, None, 3], IndexMeasure()
    table = pa.table({"size": sizes, "rows": pa.array(rows, pa.int64())})
    whole = [0 if count == 0 else size for size, count in zip(sizes, rows)]
    before = sum(whole[:ordinal])
    for offset, inside in ((0, [0, 0, 0, 0, 0]), (2, [20, 7 if rows[1] else 2, 2, 200, 0])):
        reached = measure.reached(table, ordinal, offset)
        assert (reached.done, reached.total) == (before + inside[ordinal], 450)
        assert (reached.files_done, reached.files) == (ordinal + sum(count == 0 for count in rows[ordinal:]), 4)
    assert measure.reached(table.slice(0, 1), 1, 0).total == 100 and measure.reached(table, 1, 0).total == 450
    assert measure.reached(None, 0, 0).is_all and b"ARROW" not in pickle.dumps(measure)
