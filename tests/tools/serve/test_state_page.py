"""Pages of a state hold every row once, exactly; and a row is the sum of what its runs add."""

from __future__ import annotations

from typing import Any

import pytest

from monoids import Count, Sum
from persistent import MemorySource, PersistentTask, Pipeline, WindowState, tumbling
from persistent.errors import InvalidPipeline, UserCodeError
from persistent.storage import MemoryStorage
from persistent.tools.serve import Shown, state_page, state_reading
from persistent.tools.serve.page import download
from persistent.tools.serve.state_page import shape, sorted_page, why
from persistent.tools.serve.state_page import state_page as page_of
from persistent.tools.serve.state_reading import Wanted
from tests.tools.serve.jobs import WIDE, Visits, ran, several


def walked(shown: Shown, limit: int, most: int = 0, **asked: Any) -> list[list[str | None]]:
    rows, cursor = [], ""
    while True:
        page = page_of(shown, Wanted(**asked), cursor, limit)
        assert len(page["rows"]) <= max(limit, most)
        rows += page["rows"]
        if page["next"] is None:
            assert page["progress"] == 1.0
            return rows
        cursor = page["next"]


def test_a_closed_window_that_takes_late_records_has_not_left() -> None:
    """The page would say that a window has left the state which late records still change."""

    class Late(Visits):
        def persistent_state(self) -> WindowState:
            return WindowState(super().persistent_state().monoid, tumbling("1 min"), allowed_lateness="1 h")

    found = why(ran("lateness", task=Late()), Wanted(key=("/", "7"), window="1970-01-01 00:00:00Z"))
    assert found["final_ms"] < found["closed_ms"]
    found = why(ran("no-lateness"), Wanted(key=("/", "7"), window="1970-01-01 00:01:00Z"))
    assert found["final_ms"] == found["closed_ms"]


@pytest.mark.parametrize("limit", [1, 2, 3, 500])
@pytest.mark.parametrize("slice_rows", [1, 20_000])
def test_pages_hold_every_row_once(monkeypatch: pytest.MonkeyPatch, limit: int, slice_rows: int) -> None:
    """A row on the border of two pages would be lost or shown twice."""
    monkeypatch.setattr(state_reading, "_SLICE_ROWS", slice_rows)
    shown = ran("walked")
    assert shown.pipeline is not None
    rows = walked(shown, limit)
    expected = shown.pipeline.state().to_pylist()
    assert sorted((row[0], row[1]) for row in rows if row[1]) == sorted(
        (one["page"], str(one["shop"])) for one in expected if one["shop"]
    )
    assert len(rows) == len(expected)


class Lines(PersistentTask):
    key = "name"

    def persistent_state(self) -> WindowState:
        return WindowState(Count(), tumbling("1 min"))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


@pytest.mark.parametrize("limit", [1, 3, 500])
@pytest.mark.parametrize("windows", [1, 3, 30])
@pytest.mark.parametrize("slice_rows", [1, 20_000])
def test_a_search_begins_with_the_key_itself(
    monkeypatch: pytest.MonkeyPatch, limit: int, windows: int, slice_rows: int
) -> None:
    """A key of a large state would be found after a walk through all others, or be shown twice, or not at all."""
    monkeypatch.setattr(state_reading, "_SLICE_ROWS", slice_rows)
    names = ["key-1", "key-10", "a key-1", "other", "KEY-1", "key"]
    rows = [{"ts": 60_000 * n, "name": name} for n in range(windows) for name in names]
    source = MemorySource(rows, timestamp="ts", max_out_of_orderness="1 d")
    MemoryStorage("serve-lines").clear()
    pipeline = Pipeline(source=source, task=Lines(), checkpoint="memory://serve-lines", discard_closed=True)
    pipeline.run(engine="embedded")
    shown = Shown("lines", "lines.py:pipeline", pipeline.storage, pipeline)
    found = [(row[0], row[1]) for row in walked(shown, limit, find="key-1", most=max(limit, windows))]
    assert len(found) == len(set(found)) == 4 * windows
    assert {name for name, _ in found} == {"key-1", "key-10", "a key-1", "KEY-1"}
    assert [name for name, _ in found[:windows]] == ["key-1"] * windows or windows == 30
    window = walked(shown, limit, find="key-1", window="60000") if windows > 1 else []
    assert len(window) == (4 if windows > 1 else 0)


def test_a_walk_stops_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search in a large state would block the page until it has read all of it."""
    monkeypatch.setattr(state_reading, "_SLICE_ROWS", 1)
    monkeypatch.setattr(state_page, "_BUDGET_S", -1.0)
    shown = ran("budget")
    page = page_of(shown, Wanted(find="nowhere"))
    assert page["rows"] == [] and page["next"] is not None and 0 < page["progress"] < 1


def test_integers_stay_exact() -> None:
    """A browser rounds what is beyond 53 bits."""
    shown = ran("exact", count=1)
    ((page, shop, _, _, visits, largest),) = walked(shown, 10)
    assert (page, shop, visits, largest) == ("/", "7", "1", str(WIDE))


def test_sorted_pages_are_the_sorted_state() -> None:
    """The largest would be that of one page."""
    shown = ran("sorted")
    pages = [sorted_page(shown, Wanted(), "-largest", offset, 2)["rows"] for offset in (0, 2, 4)]
    by = [int(row[5] or 0) for rows in pages for row in rows]
    assert by == sorted(by, reverse=True) and len(set(by)) == len(by) == 6
    assert max(by) == WIDE + 99


def test_sorting_a_large_state_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would read all of it for each page."""
    monkeypatch.setattr(state_page, "SORTED_ROWS_MAX", 3)
    with pytest.raises(InvalidPipeline, match="download the state"):
        sorted_page(ran("large"), Wanted(), "visits")


def test_sorting_by_what_is_no_column_is_refused() -> None:
    """It would be sorted by something else."""
    with pytest.raises(InvalidPipeline, match="choose one of page, shop"):
        sorted_page(ran("columns"), Wanted(), "nothing")


def test_a_row_is_the_sum_of_its_parts() -> None:
    """Nobody would see which checkpoints a value comes from."""
    shown = ran("why")
    found = why(shown, Wanted(key=("/", "7"), window="1970-01-01 00:01:00Z"))
    visits = [column["name"] for column in found["columns"]].index("visits")
    parts = [int(row[visits]) for one in found["contributions"] for row in one["rows"]]
    ((whole),) = found["rows"]
    assert sum(parts) == int(whole[visits]) and len(parts) > 1
    firsts = [one["first"] for one in found["contributions"]]
    assert firsts == sorted(firsts)


def test_the_shape_needs_no_pipeline() -> None:
    """A checkpoint given by its URL would show nothing of its state."""
    shown = ran("shape")
    (found,) = shape(Shown("shape", "shape", shown.storage))["states"]
    assert found["key"] == ["page: string", "shop: int64"] and found["rows"] > 0 and found["bytes"] > 0
    assert found["pane_min"] == 60_000


def test_cursors_are_checked() -> None:
    """Whatever stands in a URL would become a number of rows."""
    with pytest.raises(InvalidPipeline, match="no place"):
        page_of(ran("cursors"), Wanted(), "1.x")


def test_pages_of_one_of_several_states() -> None:
    """Rows, their sums and their order would be those of another state."""
    shown = several("pages-of-several")
    assert shown.pipeline is not None
    for name in ("minutes", "living"):
        expected = shown.pipeline.state(name=name)
        assert len(walked(shown, 2, name=name)) == expected.num_rows > 0
        page = page_of(shown, Wanted(name=name))
        assert [one["name"] for one in page["columns"]] == expected.column_names
        assert (page["name"], page["names"]) == (name, ("minutes", "living"))
        found = why(shown, Wanted(name=name, key=tuple(page["rows"][0][:2])))
        assert found["rows"] == [row for row in page["rows"] if row[:2] == page["rows"][0][:2]]
        assert found["contributions"]
        by = sorted_page(shown, Wanted(name=name), "-largest")["rows"]
        assert sorted(by, key=repr) == sorted(page["rows"], key=repr)


def test_keys_that_have_expired_are_not_shown() -> None:
    """A key that is hidden everywhere else would be on the page."""
    shown = several("expired")
    assert shown.pipeline is not None
    page = page_of(shown, Wanted(name="living"))
    assert len(page["rows"]) == shown.pipeline.state(name="living").num_rows < page["rows_about"]
    assert page["time_to_live"] == "2500 ms" and page_of(shown, Wanted())["time_to_live"] is None


def test_the_shape_of_several_states() -> None:
    """By its URL, a checkpoint would show one of its states."""
    shown = several("shapes")
    found = {one["name"]: one for one in shape(Shown("shapes", "shapes", shown.storage))["states"]}
    assert found.keys() == {"Each/minutes", "Each/living"}
    assert (found["Each/living"]["time_to_live"], found["Each/living"]["clock_ms"]) == ("2500 ms", 99_000)


class Totals(PersistentTask):
    """Totals, of which that of /much has no result."""

    key = "page"

    def persistent_state(self) -> WindowState:
        return WindowState(Sum(), tumbling("1 min"))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, message.value["n"])


@pytest.fixture
def totals() -> Shown:
    pairs = [("/a", 1), ("/much", 2**62), ("/b", 2), ("/much", 2**62), ("/c", 3)]
    source = MemorySource([{"ts": at, "page": page, "n": n} for at, (page, n) in enumerate(pairs)], ordered=True)
    return ran("totals", sources=source, task=Totals(), step_rows=1)


@pytest.mark.parametrize("slice_rows", [1, 20_000])
def test_a_row_without_result_hides_no_other(totals: Shown, monkeypatch: pytest.MonkeyPatch, slice_rows: int) -> None:
    """One sum that is too large, and an operator would see none of ten million."""
    monkeypatch.setattr(state_reading, "_SLICE_ROWS", slice_rows)
    page = page_of(totals, Wanted())
    assert sorted(row[0] or "" for row in page["rows"]) == ["/a", "/b", "/c"] and page["omitted"] == 1
    assert "key (page='/much')" in page["omitted_first"][0] and "OverflowError" in page["omitted_first"][0]
    ordered = sorted_page(totals, Wanted(), "-value")
    assert [row[0] for row in ordered["rows"]] == ["/c", "/b", "/a"] and ordered["omitted"] == 1
    found = why(totals, Wanted(key=("/much",)))
    assert found["omitted"] == 1 and found["rows"] == []
    assert sum(len(one["rows"]) for one in found["contributions"]) >= 1
    assert page_of(totals, Wanted(key=("/a",)))["omitted"] == 0


def test_a_download_leaves_no_row_out(totals: Shown) -> None:
    """A file that looks whole would lack a key."""
    with pytest.raises(UserCodeError, match="no result for key"):
        b"".join(download(totals, Wanted(), "csv").pieces)
