"""The index grows by what a listing brings."""

from __future__ import annotations

from persistent.sources.formats import Facts
from persistent.sources.index import Index
from persistent.sources.listing import Files
from persistent.sources.reader import Unreadable
from persistent.sources.walk import Listed


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
