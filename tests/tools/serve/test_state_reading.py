"""Rows of a state are found by key, window, text and time, a few key groups at a time."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from persistent import MemorySink
from persistent.codec.fields import KEY_GROUPS
from persistent.errors import InvalidPipeline, UnknownCheckpoint
from persistent.tools.serve import Shown, state_reading
from persistent.tools.serve.state_reading import Wanted, key_of, one_key, reading
from persistent.tools.serve.wording import NeedsPipeline
from persistent.worker.state_tables import OneKey
from tests.tools.serve.jobs import SCRIPT, Each, pipeline, ran, several


def keys(shown: Shown, wanted: Wanted) -> set[tuple[str, int | None]]:
    found = [table for _, _, table in reading(shown, wanted).slices()]
    return {(row["page"], row["shop"]) for table in found for row in table.to_pylist()}


@pytest.mark.parametrize("slice_rows", [1, 5, 20_000])
def test_slices_are_the_whole_state(monkeypatch: pytest.MonkeyPatch, slice_rows: int) -> None:
    """A key between two slices would be lost."""
    monkeypatch.setattr(state_reading, "_SLICE_ROWS", slice_rows)
    shown = ran("slices")
    tables = [table for _, _, table in reading(shown, Wanted()).slices()]
    assert shown.pipeline is not None
    whole = shown.pipeline.state()
    assert sum(table.num_rows for table in tables) == whole.num_rows > 5
    assert (len(tables) > 5) == (slice_rows < 20_000)


def test_search_is_for_text_in_the_key_in_any_case() -> None:
    """A key could be found only by who knows it exactly; a pattern of another meaning would find others."""
    shown = ran("search")
    assert {page for page, _ in keys(shown, Wanted(find="CART"))} == {"/cart"}
    assert {page for page, _ in keys(shown, Wanted(find="t('key'"))} == {SCRIPT}
    assert keys(shown, Wanted(find=".*")) == set()
    assert {shop for _, shop in keys(shown, Wanted(find="7"))} == {7}


def test_one_key_null_too() -> None:
    """The null key could not be asked for, or text would be taken for it."""
    shown = ran("null")
    assert keys(shown, Wanted(key=("/cart", None))) == {("/cart", None)}
    assert keys(shown, Wanted(key=("/", "7"))) == {("/", 7)}
    assert keys(shown, Wanted(key=("null", None))) == set()


def test_one_key_among_those_of_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key would be shown with all that share its key group."""
    monkeypatch.setattr(OneKey, "group", property(lambda self: 0))
    shown = ran("group")
    found = reading(shown, Wanted(key=("/cart", None)))
    whole = state_reading.StateReading(found.node, found.place, replace(found.part, high=KEY_GROUPS), "")
    assert {row["page"] for _, _, table in whole.slices() for row in table.to_pylist()} == {"/cart"}


def test_the_state_as_of_a_clock() -> None:
    """Records from after the clock would be counted."""
    shown = ran("as-of", step_rows=100)
    assert shown.pipeline is not None
    for clock in ("1970-01-01 00:00:00Z", "1970-01-01 00:01:00Z"):
        found = reading(shown, Wanted(as_of=clock))
        rows = sum(table.num_rows for _, _, table in found.slices())
        assert rows == shown.pipeline.state(as_of=clock.replace(" ", "T")).num_rows
        assert rows < sum(table.num_rows for _, _, table in reading(shown, Wanted()).slices())
    with pytest.raises(UnknownCheckpoint, match="their clocks are"):
        reading(shown, Wanted(as_of="2024-05-06 10:00Z"))


def test_a_window() -> None:
    """All windows would be shown where one is asked for."""
    shown = ran("window")
    assert keys(shown, Wanted(window="1970-01-01 00:01:00Z"))
    assert not keys(shown, Wanted(window="1970-01-01 00:02:00Z"))
    with pytest.raises(InvalidPipeline, match="no window starts"):
        reading(shown, Wanted(window="1970-01-01 00:01:07Z"))


def test_an_earlier_state() -> None:
    """The slider would show the present state."""
    shown = ran("at")
    assert shown.pipeline is not None
    then = [table for _, _, table in reading(shown, Wanted(at=4)).slices()]
    assert sum(table.num_rows for table in then) == shown.pipeline.state(at=4).num_rows


def test_without_a_pipeline_it_says_so() -> None:
    """An empty table would look like an empty state."""
    shown = ran("bare")
    with pytest.raises(NeedsPipeline, match=r"persistent serve FILE\.py:NAME"):
        reading(Shown("bare", "bare", shown.storage), Wanted())


@pytest.mark.parametrize("text", ["{", "3", "[]", '{"a": 1}', "[3]", "[" * 50_000])
def test_a_key_that_is_none_is_refused(text: str) -> None:
    """A mistyped key would find nothing, and say nothing."""
    with pytest.raises(InvalidPipeline, match="key"):
        key_of(text)


def test_a_key_of_another_type_is_refused() -> None:
    """It would find nothing, as if the key had never been counted."""
    with pytest.raises(InvalidPipeline, match="column shop holds int64"):
        one_key(("page", "shop"), ("string", "int64"), ("a", "seven"))
    with pytest.raises(InvalidPipeline, match="give 2"):
        one_key(("page", "shop"), ("string", "int64"), ("a",))
    with pytest.raises(InvalidPipeline, match=r"column rate holds decimal128\(38, 37\): '-44' is no value"):
        one_key(("rate",), ("decimal128(38, 37)",), ("-44",))


def test_a_state_of_several_by_its_name() -> None:
    """One state would be shown as another; without a name, an error instead of the first."""
    shown = several("several")
    assert shown.pipeline is not None
    for name in ("minutes", "living"):
        found = reading(shown, Wanted(name=name))
        table = pa.concat_tables([table for _, _, table in found.slices()])
        whole = shown.pipeline.state(name=name)
        assert table.schema == whole.schema
        assert sorted(map(repr, table.to_pylist())) == sorted(map(repr, whole.to_pylist())) != []
        assert (found.node.name, found.all_names) == (name, ("minutes", "living"))
    assert reading(shown, Wanted()).node.name == "minutes"
    with pytest.raises(InvalidPipeline, match="has the states minutes, living"):
        reading(shown, Wanted(name="hours"))
    assert reading(ran("nameless"), Wanted()).all_names == ()


def test_a_window_and_a_clock_of_one_of_several_states() -> None:
    """A window would be looked for in the first state, and a clock in all."""
    shown = several("of-one", "total", "minutes", step_rows=100)
    assert keys(shown, Wanted(name="minutes", window="1970-01-01 00:01:00Z"))
    with pytest.raises(InvalidPipeline, match="no windows"):
        reading(shown, Wanted(name="total", window="1970-01-01 00:01:00Z"))
    clock = "1970-01-01 00:01:00Z"
    found = reading(shown, Wanted(name="minutes", as_of=clock))
    assert (found.node.name, found.part.as_of) == ("minutes", 60_000)
    with pytest.raises(UnknownCheckpoint, match="their clocks are"):
        reading(shown, Wanted(name="total", as_of=clock))


def test_a_state_that_was_added_since() -> None:
    """An earlier checkpoint would be an error page; or show nothing, as if the state had been empty."""
    first = several("added", "minutes", count=50)
    made = pipeline("added", 100, task=Each("total", "minutes"), sink={"minutes": MemorySink()})
    made.run(engine="embedded")
    shown = Shown("added", "added", first.storage, made)
    assert reading(shown, Wanted()).node.name == "total"
    assert reading(shown, Wanted(at=4)).node.name == "minutes"
    with pytest.raises(UnknownCheckpoint, match="before the state 'total' was added"):
        reading(shown, Wanted(at=4, name="total"))
