"""An explanation says where the next run goes on, and whether it can."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from monoids import Count, Max
from persistent import Evolution, FileSink, FileSource, InvalidPipeline, Pipeline, WindowState, tumbling
from persistent.storage import MemoryStorage
from tests.explain.test_of_job_and_of_states_and_explanation import pipeline_of, words
from tests.visits import Visits, run


def test_it_continues_at_the_newest_checkpoint() -> None:
    """It would say what the first run did."""
    storage = MemoryStorage("explain-again")
    pipeline = pipeline_of(WindowState(Count(), tumbling("1 min")), "again", checkpoint=storage)
    run(pipeline)
    before = storage.list("")
    text = words(pipeline, "pipeline")
    assert "continues at checkpoint " in text and "with 20 records read" in text
    assert "1 partition." in words(pipeline, "reads")
    assert pipeline.explain()["memory"].facts["row_bytes_from"] == {"Visits": "measured"}
    assert storage.list("") == before


def test_a_checkpoint_that_does_not_fit_is_told() -> None:
    """It would say that a run goes on which is refused."""
    storage = MemoryStorage("explain-fit")
    run(pipeline_of(WindowState(Count(), tumbling("1 min")), "fit", checkpoint=storage))
    other = WindowState(Max(int), tumbling("1 min"))
    refused = pipeline_of(other, "fit", checkpoint=storage).explain()["pipeline"]
    assert "The next run is refused: " in " ".join(refused.lines) and "Count() -> Max(int)" in refused.facts["refused"]
    evolves = pipeline_of(
        other, "fit", checkpoint=storage, evolve=Evolution(before=Count(), change=lambda count: count)
    )
    assert "The next run migrates the state to the task as it is now." in evolves.explain()["pipeline"].lines
    heir = pipeline_of(WindowState(Count(), tumbling("1 min")), "fit-heir", start_from=storage)
    assert words(heir, "pipeline").endswith("which begins as a copy of memory://explain-fit.")


CHANGED: dict[str, tuple[Callable[[Path], dict[str, Any]], str]] = {
    "the time": (lambda here: {"source": FileSource(here / "in", timestamp="n", timestamp_unit="s")}, "timestamp='n'"),
    "the path": (lambda here: {"source": FileSource(here / "other", timestamp="ts", timestamp_unit="ms")}, "path="),
    "a sink in the checkpoint": (lambda here: {"sink": FileSink(here / "ck" / "late")}, "/ck/late"),
    "a sink that is read": (lambda here: {"sink": FileSink(here / "in" / "out")}, "/in/out"),
}


@pytest.mark.parametrize("changed", CHANGED)
def test_what_a_run_refuses_is_told_before(changed: str, tmp_path: Path) -> None:
    """It would say that a run goes on, which is refused at once."""
    for folder in ("in", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "1.csv").write_text("ts,page,n\n1,a,1\n2,b,2\n")

    def made(**given: Any) -> Pipeline:
        parts = {
            "source": FileSource(tmp_path / "in", timestamp="ts", timestamp_unit="ms"),
            "sink": FileSink(tmp_path / "out"),
            "checkpoint": str(tmp_path / "ck"),
        }
        return Pipeline(task=Visits(), **{**parts, **given})

    made().run(engine="embedded")
    assert made().explain()["pipeline"].facts["refused"] is None
    change, fault = CHANGED[changed]
    refused = made(**change(tmp_path)).explain()["pipeline"]
    assert fault in refused.facts["refused"] and "The next run is refused: " in " ".join(refused.lines)
    with pytest.raises(InvalidPipeline, match=fault):
        made(**change(tmp_path)).run(engine="embedded")
