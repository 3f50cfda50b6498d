"""The state as a data frame has the values of the state, to the bit."""

from __future__ import annotations

import sys
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from monoids import Count, Max, SetUnion, record
from persistent import InvalidPipeline, MemorySink, MemorySource, PersistentTask, Pipeline, WindowState, tumbling
from persistent.notebook import LIBRARIES, frame_of

LARGE = 2**60 + 1


class Visits(PersistentTask):
    key = "page"

    def persistent_state(self) -> dict[str, WindowState]:
        largest = record(n=Max(), who=SetUnion(str))
        return {"counts": WindowState(Count(), tumbling("1 min")), "largest": WindowState(largest, tumbling("1 min"))}

    def process_message(self, state: Any, message: Any) -> None:
        state["counts"].update(message.timestamp, 1)
        state["largest"].update(message.timestamp, {"n": message.value["n"], "who": message.value["who"]})


def pipeline() -> Pipeline:
    rows = [{"ts": 1, "page": "a", "n": LARGE, "who": "ann"}, {"ts": 2, "page": "b", "n": None, "who": "bob"}]
    made = Pipeline(
        source=MemorySource(rows, timestamp="ts"),
        task=Visits(),
        sink={"counts": MemorySink(), "largest": MemorySink()},
        checkpoint="memory://frames",
    )
    made.run(engine="embedded")
    return made


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_frame_has_the_values_of_the_state(library: str) -> None:
    """A whole number beside a null would be a float, and another number."""
    job = pipeline()
    frame = job.state_frame(library, name="largest")
    assert type(frame).__module__.startswith(library) and type(frame).__name__ == "DataFrame"
    back = frame.to_arrow() if library == "polars" else pa.Table.from_pandas(frame, preserve_index=False)
    expected = job.state(name="largest")
    assert back.to_pylist() == expected.to_pylist() and LARGE in back["n"].to_pylist()


def test_the_state_of_another_moment() -> None:
    """The options of ``state`` would be for tables alone."""
    job = pipeline()
    frame = job.state_frame(name="counts", at=2)
    assert frame["value"].tolist() == [1, 1]
    with pytest.raises(TypeError, match="unexpected keyword argument 'nme'"):
        job.state_frame(nme="counts")


def test_what_cannot_be_made_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user would get an import error from our depths."""
    table = pa.table({"n": [1]})
    with pytest.raises(InvalidPipeline, match="give one of 'pandas', 'polars'"):
        frame_of(table, "dask")
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(InvalidPipeline, match="pip install polars"):
        frame_of(table, "polars")


def test_wide_decimals_are_exact_or_refused() -> None:
    """A total of many digits would be another number in Polars, or an error that names nobody."""
    wide = pa.table({"n": pa.array([Decimal("12.5"), None], pa.decimal256(50, 2))})
    assert frame_of(wide, "polars")["n"].to_list() == [Decimal("12.50"), None]
    assert frame_of(wide, "pandas")["n"][0] == Decimal("12.50")
    with pytest.raises(InvalidPipeline, match=r"at most 38 digits: take state_frame\('pandas'\)"):
        frame_of(pa.table({"n": pa.array([Decimal(10**40)], pa.decimal256(50, 2))}), "polars")
