"""Where results can go: what a sink cannot hold is refused where the pipeline is made."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from persistent import InvalidPipeline, MemorySink, Pipeline, SqliteSink, session
from persistent.time.window import tumbling
from tests.late import Late, Run


def made(sink: Any, discard_closed: bool = False, **options: Any) -> Any:
    return Run([{"ts": 1, "key": "a", "value": 1}], options=options, sink=sink).pipeline(discard_closed=discard_closed)


def test_a_table_of_newest_rows_holds_no_rows_that_count_together(tmp_path: Any) -> None:
    """It would keep the retraction in place of the result."""
    late = "retract"
    table = tmp_path / "late.db"
    with pytest.raises(InvalidPipeline, match=r'keeps one row.*late="accumulate".*mode="append"'):
        made({"all": MemorySink(), "table": SqliteSink(table, "late", mode="upsert")}, late=late)
    assert made(SqliteSink(table, "late", mode="append"), late=late)
    assert made(SqliteSink(table, "late", mode="upsert"), late="accumulate")
    assert made(SqliteSink(table, "late", mode="upsert"))


@pytest.mark.parametrize("options", [{"allowed_lateness": 1}, {"emit": "change"}, {"early": 5}])
def test_a_table_of_newest_rows_holds_sessions_that_are_taken_back(options: dict[str, Any], tmp_path: Any) -> None:
    """Of equal borders, so that the row that takes one back replaces it, whenever it is published."""
    for window, is_taken in ((session(10), True), (tumbling(10), False)):
        late = {} if is_taken else {"changes": "retract"} if "emit" in options else {"late": "retract"}
        task = Late(window, **options, **late)
        parts = {"source": made(None, discard_closed=True).source, "checkpoint": "memory://destinations"}
        parts["sink"] = SqliteSink(tmp_path / "late.db", "late", mode="upsert")
        with nullcontext() if is_taken else pytest.raises(InvalidPipeline, match="keeps one row of a key and window"):
            assert Pipeline(task=task, **parts)


def test_lateness_that_corrects_nothing_is_refused() -> None:
    with pytest.raises(InvalidPipeline, match=r"allowed_lateness=.*discard_closed=True publishes nothing"):
        made(None, discard_closed=True, allowed_lateness=1)
    assert made(None, discard_closed=True, allowed_lateness=1, emit="final")
    assert made(None, discard_closed=True)


@pytest.mark.parametrize(("name", "late"), [("revision", "accumulate"), ("retracted", "retract")])
def test_no_key_has_the_name_of_a_mark(name: str, late: str) -> None:
    """A reader could not tell the two columns apart."""

    class Keyed(Late):
        key = name

    run = Run([{"ts": 1, name: "a", "value": 1}])
    pipeline = run.pipeline()
    for options, is_refused in (({"late": late}, True), ({}, False)):
        task = Keyed(tumbling(10), **options)
        parts = {"source": pipeline.source, "task": task, "sink": MemorySink(), "checkpoint": run.storage}
        if is_refused:
            with pytest.raises(InvalidPipeline, match=f"two columns named '{name}'"):
                type(pipeline)(**parts)
        else:
            assert type(pipeline)(**parts)
