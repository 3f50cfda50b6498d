"""A pipeline in a notebook: what it is made of, what its checkpoint holds, and no secret."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from monoids import Count
from persistent import (
    FileSink,
    FileSource,
    MemorySink,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    Retention,
    WindowState,
    sliding,
)
from persistent.checkpoint.running import put_mark
from persistent.names import manifest_name
from persistent.storage import MemoryStorage
from persistent.time import clock
from tests.driver.shop import Shop, Visits
from tests.monoids.test_html import SAFE, Page

SCRIPT = "<script>alert(1)</script>"


def text(shown: Any) -> str:
    page = Page(shown._repr_html_())
    assert page.names <= SAFE and page.attributes <= {"style", "colspan"}
    return page.text


def test_a_pipeline_shows_its_parts_before_it_ran() -> None:
    """Who opens a notebook of another would see an address in memory."""
    shown = text(Shop().pipeline())
    for part in (
        "Pipeline Visits",
        "Visits, by page",
        'Count(), tumbling("10 ms")',
        "none: the pipeline has not run yet",
    ):
        assert part in shown
    assert "exactly-once" in shown


def test_a_pipeline_shows_its_checkpoint() -> None:
    """Whether a job has run, how far, and what it set aside, would take three calls."""
    shop = Shop(retention=Retention(last=3))
    report = shop.run()
    shown = text(shop.pipeline())
    assert f"\n{report.checkpoint}, planned at" in shown and "kept: 3 checkpoints" in shown
    assert "12 read: 12 processed" in shown and "none runs" in shown
    assert "1970-01-01 00:00:00.033Z" in shown
    put_mark(shop.storage, 9, "nonce")
    assert "may run: process" in text(shop.pipeline())


class Both(PersistentTask):
    key = "page"

    def persistent_state(self) -> Any:
        return {"hourly": WindowState(Count(), sliding("20 ms", every="10 ms")), "all": NonWindowState(Count())}

    def process_message(self, state: Any, message: Any) -> None:
        for name in ("hourly", "all"):
            state[name].update(message.timestamp, 1)


def test_several_of_a_part_have_their_names() -> None:
    """Of two sources or states nobody could tell which is which."""
    rows = [{"ts": 1, "page": "a"}]
    source = {"left": MemorySource(rows), "right": MemorySource(rows)}
    sinks = {"hourly": MemorySink()}
    pipeline = Pipeline(source=source, task=Both(), sink=sinks, checkpoint="memory://test-shown-both")
    pipeline.run(engine="embedded")
    shown = text(pipeline)
    for name in (
        "source left",
        "source right",
        "state hourly",
        "state all",
        "clock of Both/hourly",
        "clock of Both/all",
    ):
        assert f"\n{name}\n" in shown


def test_no_secret_and_no_script_is_shown(tmp_path: Path) -> None:
    """A notebook is shared: what it shows is read by whoever gets it."""
    (tmp_path / SCRIPT.replace("/", "")).mkdir()

    class Secret(MemorySource):
        def __repr__(self) -> str:
            return f"Secret('https://me:hunter2@host/{SCRIPT}?signature=abc')"

    task = Visits()
    pipeline = Pipeline(
        source={"a": Secret([]), "b": FileSource(tmp_path / SCRIPT.replace("/", "") / "*.csv", timestamp="ts")},
        task=task,
        sink=FileSink(str(tmp_path / "out")),
        checkpoint="memory://test-shown-secret",
    )
    shown = pipeline._repr_html_()
    assert "hunter2" not in shown and "signature=abc" not in shown and "<script" not in shown
    assert "https://...@host" in text(pipeline)


def test_a_checkpoint_that_cannot_be_read_is_said() -> None:
    """A damaged checkpoint would show a traceback in place of the pipeline, which is what helps to mend it."""
    shop = Shop()
    shop.run()
    name = manifest_name(shop.manifests()[-1].id)
    shop.storage.delete(name)
    shop.storage.put_if_absent(name, b"<script>")
    shown = text(shop.pipeline())
    assert "cannot be read" in shown and "CorruptCheckpoint" in shown and "Visits, by page" in shown


class Away(MemoryStorage):
    """A store whose server refuses, and is asked again."""

    def list(self, *words: Any, **options: Any) -> Any:
        clock.pause(600, "cannot list: the server is away")
        raise AssertionError("it was waited for")


class Silent(MemoryStorage):
    """A store whose server answers nothing: its client waits on a socket."""

    answers = threading.Event()

    def list(self, *words: Any, **options: Any) -> Any:
        self.answers.wait(60)
        return super().list(*words, **options)


@pytest.mark.parametrize(("store", "says"), [(Away, "the server is away"), (Silent, "has not answered for 0.5 s")])
def test_a_store_that_is_away_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, store: Any, says: str) -> None:
    """Looking at a variable would hang the notebook for minutes."""
    monkeypatch.setattr("persistent.notebook._RETRY_SECONDS", 0.1)
    monkeypatch.setattr("persistent.notebook._WAIT_SECONDS", 20 if store is Away else 0.5)
    Silent.answers.clear()
    pipeline, began = Shop().pipeline(store("away")), time.monotonic()
    assert says in text(pipeline)
    assert time.monotonic() - began < 10
    Silent.answers.set()


def test_a_report_shows_its_figures_and_notes() -> None:
    """What was set aside, or why nothing came out, would stand in a line that runs out of sight."""
    shop = Shop(40)
    first = shop.run()
    shown = text(first)
    assert "40 rows in 11 steps: done" in shown and "embedded" in shown
    assert f"{first.outputs} rows" in shown and "open windows" in shown
    shop.rows.append({"ts": 1, "page": "a", "n": 1})
    late = text(shop.run())
    assert "late" in late and "late in Visits" in late


def test_a_stopped_run_is_not_taken_for_a_finished_one() -> None:
    """Who interrupts a cell would go on with a part of the input."""
    import signal

    report = Shop().run(on_step=lambda step: signal.raise_signal(signal.SIGINT) if step.id == 2 else None)
    assert report.stopped and "stopped by a signal at 33 % of 12 rows, everything committed" in text(report)


def test_a_report_without_a_step_has_nothing_to_plot() -> None:
    """An empty plot would look like one of a job that stood still."""
    from persistent import InvalidPipeline

    shop = Shop()
    chart = shop.run().plot().to_dict()
    assert len(chart["data"]["values"]) == 4 and chart["title"] == "12 rows in 4 steps, embedded"
    with pytest.raises(InvalidPipeline, match=r"no step, so there is nothing to plot: pipeline\.plot\(\)"):
        shop.run().plot()


@pytest.mark.parametrize(
    ("state", "says"),
    [
        (
            WindowState(Count(), sliding("1 h", every="10 min")),
            ["Count()", 'sliding("1 h", every="10 min")'],
        ),
        (NonWindowState(Count(), ttl="1 d"), ["Count()", "ttl", '"1 d"']),
    ],
)
def test_a_state_is_shown_as_it_was_written(state: Any, says: list[str]) -> None:
    """A state in a cell of its own would be an address."""
    shown = text(state)
    assert "none" not in shown, "what a state has not is not listed"
    assert type(state).__name__ in shown and all(f"\n{one}\n" in shown for one in says)
