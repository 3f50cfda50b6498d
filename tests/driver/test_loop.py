"""A driver runs steps until there is nothing to do, writes nothing when there is nothing, and stops at a
step's edge."""

from __future__ import annotations

import logging
import os
import signal
import threading
import uuid
from typing import Any

import pytest

from monoids import Count, Max, Sum
from persistent import (
    FingerprintChanged,
    MemorySink,
    MemorySource,
    NonWindowState,
    OtherJob,
    PersistentTask,
    Pipeline,
    StepReport,
    WindowState,
    tumbling,
)
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.driver import loop
from persistent.driver.loop import Driver
from persistent.driver.options import Options
from persistent.engines.embedded import Embedded
from persistent.errors import InvalidPipeline
from persistent.storage import MemoryStorage
from tests.faults import FaultyStorage, Killed, Operations


class Visits(PersistentTask):
    """Visits by page, in windows of ten milliseconds."""

    key = "page"
    window = 10

    def persistent_state(self) -> Any:
        return WindowState(Count(), tumbling(self.window))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


class Totals(Visits):
    def persistent_state(self) -> Any:
        return NonWindowState(Count())


class Shop:
    """Rows that may grow, one checkpoint, one sink."""

    def __init__(self, rows: int = 12, task: type[PersistentTask] = Visits, **options: Any) -> None:
        self.rows = [self.row(number) for number in range(rows)]
        self.storage = MemoryStorage(uuid.uuid4().hex)
        self.sink = MemorySink()
        self.task = task
        self.options = {"step_rows": 4, **options}

    def row(self, number: int) -> dict[str, Any]:
        return {"ts": number * 3, "page": "ab"[number % 2], "n": number}

    def add(self, rows: int) -> None:
        self.rows += [self.row(number) for number in range(len(self.rows), len(self.rows) + rows)]

    def pipeline(self, storage: Any = None, task: PersistentTask | None = None) -> Pipeline:
        return Pipeline(
            source=MemorySource(self.rows),
            task=task or self.task(),
            sink=self.sink,
            checkpoint=storage or self.storage,
            **self.options,
        )

    def run(self, **options: Any) -> Any:
        return self.pipeline().run(engine=Embedded(threads=1), **options)

    def manifests(self) -> list[Manifest]:
        log = Log(self.storage)
        return [log.read(id).manifest for id in log.ids()]

    def counted(self) -> dict[Any, int]:
        """What the sink shows, by key and window start."""
        return {(row["page"], row["window_start"].microsecond // 1000): row["value"] for row in self.sink.rows()}

    def expected(self) -> dict[Any, int]:
        found: dict[Any, int] = {}
        for row in self.rows:
            place = row["page"], row["ts"] // 10 * 10
            found[place] = found.get(place, 0) + 1
        return found


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


@pytest.mark.parametrize("end", [False, True])
@pytest.mark.parametrize("task", [Visits, Totals])
def test_a_run_without_anything_to_do_writes_nothing(task: type[PersistentTask], end: bool) -> None:
    """A scheduler that starts a finished job every minute would otherwise fill the log with fences."""
    shop = Shop(task=task)
    shop.run(end_of_input=end)
    operations = Operations()
    report = shop.pipeline(FaultyStorage(shop.storage, operations)).run(engine="embedded", end_of_input=end)
    assert (report.steps, report.rows) == (0, 0)
    assert {verb for verb, _, _ in operations.log} <= {"read", "list"}


def test_the_end_of_the_input_can_be_declared_twice_and_taken_back() -> None:
    """Rows that come after the end are rows: their windows close at the next end, each once."""
    shop = Shop()
    shop.run(end_of_input=True)
    before = shop.sink.rows()
    assert shop.run(end_of_input=True).steps == 0
    shop.rows.append({"ts": 95, "page": "a", "n": 1})
    assert shop.run(end_of_input=True).outputs == 1
    assert shop.sink.rows()[: len(before)] == before and shop.counted() == shop.expected()


def test_only_keys_updated_since_the_last_end_are_published() -> None:
    """A state of a million keys of which three changed publishes three."""
    shop = Shop(task=Totals)
    shop.run(end_of_input=True)
    shop.rows.append({"ts": 50, "page": "a", "n": 1})
    shop.run(end_of_input=True)
    rows = shop.sink.rows()
    assert [(row["page"], row["value"]) for row in rows[-1:]] == [("a", 7)]
    assert sorted((row["page"], row["value"]) for row in rows[:-1]) == [("a", 6), ("b", 6)]
    assert rows[-1]["revision"] > max(row["revision"] for row in rows[:-1])


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


# -- plans ------------------------------------------------------------------------------------------------------------


def test_a_plan_that_was_put_is_run_as_it_is() -> None:
    """I7: a step resumed under other options is still the step that was begun; what is late would change else."""
    shop = Shop()
    operations = Operations()
    shop.pipeline(FaultyStorage(shop.storage, operations)).run(engine=Embedded(threads=1))
    at = next(n for n, (verb, _, name) in enumerate(operations.log) if verb == "write" and name.startswith("d/"))
    shop = Shop()
    with pytest.raises(Killed):
        shop.pipeline(FaultyStorage(shop.storage, Operations(at))).run(engine=Embedded(threads=1))
    shop.options["step_rows"] = 100
    rows: list[int] = []
    shop.run(on_step=lambda step: rows.append(step.rows))
    assert rows[:2] == [4, 8]


def test_an_end_of_input_that_was_begun_is_ended() -> None:
    """Its plan was put: half of the windows may be on their way. Who resumes does not have to say it again."""
    operations = Operations()
    shop = Shop(rows=2)
    shop.pipeline(FaultyStorage(shop.storage, operations)).run(engine=Embedded(threads=1), end_of_input=True)
    plans = [n for n, (verb, _, name) in enumerate(operations.log) if verb == "put_if_absent" and name.startswith("p/")]
    shop = Shop(rows=2)
    dying = shop.pipeline(FaultyStorage(shop.storage, Operations(plans[-1], "after")))
    with pytest.raises(Killed):
        dying.run(engine=Embedded(threads=1), end_of_input=True)
    assert shop.counted() != shop.expected()
    shop.run()
    assert shop.counted() == shop.expected()


def test_what_was_committed_but_not_published_is_published_without_a_step() -> None:
    """The last step of a job has nobody after it: who runs it again must not find "nothing to do" and an empty sink."""
    operations = Operations()
    shop = Shop()
    shop.pipeline(FaultyStorage(shop.storage, operations)).run(engine=Embedded(threads=1), end_of_input=True)
    commits = [
        n for n, (verb, _, name) in enumerate(operations.log) if verb == "put_if_absent" and name.startswith("m/")
    ]
    shop = Shop()
    dying = shop.pipeline(FaultyStorage(shop.storage, Operations(commits[-1], "after")))
    with pytest.raises(Killed):
        dying.run(engine=Embedded(threads=1), end_of_input=True)
    ids = shop.storage.list("m")
    assert shop.run(end_of_input=True).steps == 0
    assert shop.counted() == shop.expected() and shop.storage.list("m") == ids


class Hungry(Visits):
    """Dies of more than four rows at once."""

    def process_batch(self, state: Any, batch: Any) -> None:
        if len(batch) > 4:
            raise Killed("out of memory")
        state.update_batch(batch.timestamps, 1)


def test_a_step_that_kills_its_driver_is_tried_smaller(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One plan too large for the machine would be repeated for ever."""
    monkeypatch.setattr(loop, "_ROWS_FIRST", 8)
    monkeypatch.setattr(loop, "_ROWS_MIN", 1)
    shop, deaths = Shop(rows=8, task=Hungry, step_rows=None), 0
    while True:
        try:
            shop.run(end_of_input=True)
            break
        except Killed:
            deaths += 1
            # Four for each row until few enough are left: slowly, but on.
            assert deaths <= 4 * 4, "not smaller"
    assert deaths >= 3 and "trying smaller steps" in caplog.text
    assert shop.counted() == shop.expected()
    assert max(manifest.replan for manifest in shop.manifests()) >= 1
    assert shop.manifests()[-1].replan == 0


def test_with_step_rows_the_plan_stays_and_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever fixed the borders of the steps relies on them."""
    shop = Shop(task=Hungry, step_rows=8)
    for _ in range(5):
        with caplog.at_level(logging.WARNING), pytest.raises(Killed):
            shop.run()
    assert "p/00000000000000000000.json was begun 3 times and never committed" in caplog.text
    assert {manifest.replan for manifest in shop.manifests()} == {0}


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
        (Clicks, OtherJob, r"operators: \['Visits'\], this pipeline's: \['Clicks'\]"),
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


class Weighted(Visits):
    """A state that says in its fingerprint what a checkpoint cannot hold."""

    def persistent_state(self) -> Any:
        monoid = Sum()
        monoid.parameters = lambda: {"weight": 0.5}  # type: ignore[method-assign]
        return WindowState(monoid, tumbling(10))


def test_what_could_not_be_read_again_is_not_committed() -> None:
    """A float in a manifest would be written, and refused at the next start: the checkpoint would be lost."""
    with pytest.raises(InvalidPipeline, match=r"0\.5 is a float, which a checkpoint does not hold"):
        Shop(task=Weighted).run()


def test_every_manifest_balances_and_every_step_is_reported() -> None:
    """I9, and that the figures a user plots are those of the checkpoint."""
    shop, reports = Shop(), []
    report = shop.run(end_of_input=True, on_step=reports.append)
    manifests = [manifest for manifest in shop.manifests() if manifest.kind == "checkpoint" and manifest.id]
    assert [step.id for step in reports] == [manifest.id for manifest in manifests]
    assert sum(step.rows for step in reports) == report.rows == 12
    assert sum(step.outputs for step in reports) == report.outputs == len(shop.sink.rows())
    for manifest, step in zip(manifests, reports):
        assert all(account.balances for account in manifest.ledger.values())
        assert step.watermark == manifest.clock.watermark
        assert step.checkpoint_bytes >= step.manifest_bytes > 0
