"""A driver runs steps until there is nothing to do, writes nothing when there is nothing, and stops at a
step's edge."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import pytest

from monoids import Max
from persistent import (
    Fenced,
    FingerprintChanged,
    InvalidPipeline,
    MemorySink,
    MemorySource,
    OtherJob,
    PersistentTask,
    RunReport,
    StepReport,
    Stopped,
    WindowState,
    tumbling,
)
from persistent.checkpoint.log import Log
from persistent.driver import open_job
from persistent.driver.open_job import Driver
from persistent.driver.options import Options
from persistent.engines.embedded import Embedded
from persistent.names import DRIVERS
from persistent.storage import MemoryStorage
from persistent.time import clock
from tests.driver.shop import Shop, Visits


def test_a_run_goes_on_where_the_last_one_ended() -> None:
    """The use of it all: run it every night over what came in."""
    shop = Shop()
    first = shop.run()
    assert (first.steps, first.rows, first.recovered, first.checkpoint) == (4, 12, False, 5)
    assert first.open_windows == 1 and "open windows: 1 (if the input is complete" in str(first)
    shop.add(6)
    second = shop.run(end_of_input=True)
    assert (second.rows, second.recovered, second.open_windows) == (6, True, 0)
    assert shop.counted() == shop.expected()
    assert len(shop.sink.rows()) == len(shop.expected())


def test_nothing_to_do_beside_a_driver_that_goes_on_is_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts the open windows of its checkpoint, whose files the other one has collected meanwhile."""
    shop = Shop()
    shop.run()
    runs = Log(shop.storage).read(5).manifest.state_runs()

    def gone_on(storage: Any) -> None:
        monkeypatch.undo()
        shop.add(60)
        shop.run()
        for run in runs:
            shop.storage.delete(run.name)

    monkeypatch.setattr(open_job, "sweep_dead_marks", gone_on)
    with pytest.raises(Fenced, match="another driver committed"):
        shop.run()


def test_the_end_of_the_input_can_be_declared_twice_and_taken_back() -> None:
    """Rows that come after the end are rows: their windows close at the next end, each once."""
    shop = Shop()
    shop.run(end_of_input=True)
    before = shop.sink.rows()
    assert shop.run(end_of_input=True).steps == 0
    shop.rows.append({"ts": 95, "page": "a", "n": 1})
    assert shop.run(end_of_input=True).outputs == 1
    assert shop.sink.rows()[: len(before)] == before and shop.counted() == shop.expected()


# -- stopping ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_at_a_steps_edge(number: signal.Signals) -> None:
    """Who stops a job with Ctrl-C, or whose machine is shut down, has all that was reported committed and published."""
    shop, before = Shop(), signal.getsignal(number)
    report = shop.run(on_step=lambda step: os.kill(os.getpid(), number) if step.id == 3 else None)
    assert (report.steps, report.checkpoint, report.rows) == (2, 3, 8)
    assert shop.manifests()[-1].id == 3
    assert signal.getsignal(number) == before
    shop.run(end_of_input=True)
    assert shop.counted() == shop.expected()


def test_a_second_ctrl_c_stops_at_once() -> None:
    """A step that hangs must not hold the terminal."""

    def twice(step: StepReport) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    shop = Shop()
    with pytest.raises(KeyboardInterrupt):
        shop.run(on_step=twice)
    shop.run(end_of_input=True)
    assert shop.counted() == shop.expected()


def test_follow_waits_for_more() -> None:
    """A service sees what comes in while it runs, and ends with everything published."""
    shop, reports = Shop(4), []
    more = threading.Event()

    def seen(step: StepReport) -> None:
        reports.append(step)
        if sum(report.rows for report in reports) == 12:
            more.set()

    running = Driver(shop.pipeline().job(), Embedded(threads=1), Options(step_rows=4, follow=True, on_step=seen))
    thread = threading.Thread(target=running.run)
    thread.start()
    shop.add(8)
    assert more.wait(20)
    running.stop()
    thread.join(20)
    assert not thread.is_alive() and sum(report.rows for report in reports) == 12


class Away(MemorySource):
    """A source whose server goes away when ``away`` is set. ``waits``: called then."""

    away = False
    waits: Any = None

    def plan(self, *words: Any, **options: Any) -> Any:
        while self.away:
            self.waits()
            clock.pause(3_600, "cannot read the source: refused")
        return super().plan(*words, **options)


class Unreached(MemorySink):
    """A sink whose server goes away when it is first written to. ``waits``: called then."""

    waits: Any = None

    def publish(self, *words: Any) -> None:
        while self.waits is not None:
            self.waits()
            clock.pause(3_600, "cannot write to the sink: refused")
        super().publish(*words)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_heard_while_the_server_of_a_source_is_away(number: signal.Signals) -> None:
    """The run would go on until the server is back, or for minutes, and be killed by whoever waits for its end."""
    shop = Shop()
    source = Away(shop.rows)
    source.waits = lambda: signal.raise_signal(number)

    def leave(step: StepReport) -> None:
        source.away = step.id == 3

    pipeline = replace(shop.pipeline(), source)
    report = pipeline.run(engine=Embedded(threads=1), on_step=leave, follow=True)
    assert (report.stopped, report.checkpoint, report.rows) == (True, 3, 8)
    assert any("cannot read the source: refused" in note for note in report.notes)
    shop.run(end_of_input=True)
    assert shop.counted() == shop.expected()


def test_a_signal_is_heard_while_the_server_of_a_sink_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is committed and not published is an error, not the end of a step; the next run publishes it."""
    monkeypatch.setattr(open_job, "_GRACE_SECONDS", 0.0)
    shop = Shop()
    shop.sink = Unreached()
    shop.sink.waits = lambda: signal.raise_signal(signal.SIGTERM)
    with pytest.raises(Stopped, match="cannot write to the sink: refused"):
        shop.run()
    shop.sink.waits = None
    shop.run(end_of_input=True)
    assert shop.counted() == shop.expected()


def test_a_signal_is_heard_while_the_store_of_the_checkpoint_is_away() -> None:
    """The mark of the driver is deleted at the end: with all the patience of a store, that takes a minute more."""

    class Leaving(MemoryStorage):
        def delete(self, name: str) -> None:
            if name.startswith(DRIVERS):
                clock.pause(3_600, "cannot delete: refused", sleep=lambda seconds: waited.append(seconds))
            super().delete(name)

    waited: list[float] = []
    shop = Shop()
    shop.storage = Leaving(shop.storage.name)
    report = shop.run(on_step=lambda step: signal.raise_signal(signal.SIGTERM) if step.id == 3 else None)
    assert report.stopped and not waited


def replace(pipeline: Any, source: Any) -> Any:
    pipeline.sources = dict.fromkeys(pipeline.sources, source)
    return pipeline


# -- plans ------------------------------------------------------------------------------------------------------------


# -- whose checkpoint -------------------------------------------------------------------------------------------------


class Clicks(Visits):
    """Another name."""


class Largest(Visits):
    """Another monoid under the same name."""

    name = "Visits"

    def persistent_state(self) -> Any:
        return WindowState(Max(), tumbling(10))


class Wider(Visits):
    """Another window."""

    name = "Visits"
    window = 20


class ByNumber(Visits):
    """Another key."""

    name = "Visits"
    key = "n"


@pytest.mark.parametrize(
    ("task", "error", "says"),
    [
        (Clicks, OtherJob, r"states: \['Visits'\], this pipeline's: \['Clicks'\]"),
        (Largest, FingerprintChanged, r"monoid: Count\(\) -> Max\(int\)"),
        (Wider, FingerprintChanged, r'window: tumbling\("10 ms"\) -> tumbling\("20 ms"\)'),
        (ByNumber, FingerprintChanged, "key: page -> n"),
    ],
)
def test_the_checkpoint_of_another_task_is_refused_untouched(
    task: type[PersistentTask], error: type[Exception], says: str
) -> None:
    """A typing error in a URL must not cost a state."""
    shop = Shop()
    shop.run()
    before = shop.storage.list("m")
    with pytest.raises(error, match=says):
        shop.pipeline(task=task()).run(engine="embedded")
    assert shop.storage.list("m") == before
    shop.run(end_of_input=True)
    assert shop.counted() == shop.expected()


@pytest.mark.parametrize("kind", ["Kafka Source", "../evil", "a/b", "", "k" * 201])
@pytest.mark.parametrize("starts", [False, True], ids=["new", "from a savepoint"])
def test_a_kind_that_names_no_folder_leaves_nothing_behind(kind: str, starts: bool) -> None:
    """Its first checkpoint was put before the store refused a run, or was one that nobody could read."""
    shop = Shop()
    pipeline = shop.pipeline()
    pipeline.source.kind = kind
    if starts:
        other = Shop()
        other.run()
        pipeline.start_from = other.storage
    with pytest.raises(InvalidPipeline, match=r"the kind of the source .*: use letters.*such as kind = "):
        pipeline.run(engine=Embedded(threads=1))
    assert not any(shop.storage.list(folder) for folder in ("", "m", "p", "d", "r"))


def test_a_job_that_has_begun_with_another_kind_goes_on() -> None:
    """A slash made a folder in a folder: its checkpoints are sound."""
    shop = Shop()

    def run(**options: Any) -> RunReport:
        pipeline = shop.pipeline()
        pipeline.source.kind = "a/b"
        return pipeline.run(engine=Embedded(threads=1), **options)

    with pytest.MonkeyPatch.context() as before:
        before.setattr(open_job, "check_can_begin", lambda first: None)
        run()
    shop.add(6)
    assert run(end_of_input=True).rows == 6
    assert shop.counted() == shop.expected()
