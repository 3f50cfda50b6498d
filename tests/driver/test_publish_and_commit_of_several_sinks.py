"""Several sinks get the windows that close, each by a list of its own of what it may not have yet."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from monoids import Count
from persistent import (
    FileSink,
    FunctionSink,
    MemorySink,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    WindowState,
    tumbling,
)
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest, Retention
from persistent.checkpoint.output_parts import SinkPart
from persistent.connect.promises import AT_LEAST_ONCE, EXACTLY_ONCE
from persistent.connect.sink import OutputBatch
from persistent.driver.commit import first_manifest
from persistent.driver.output_batches import check_named_as_before
from persistent.driver.publish import _named, claim, joining_sinks, newest_ids, publish, shown
from persistent.engines.embedded import Embedded
from persistent.errors import Fenced, InvalidPipeline, Refused, SinkMismatch, StorageError
from persistent.names import STAGED, new_nonce
from persistent.operations import collect_garbage, pin, restart, rollback, savepoint
from persistent.storage import MemoryStorage
from persistent.verify import verify
from tests.checkpoint.samples import body_of, manifest
from tests.connect.ledger import Ledger, LedgerSink
from tests.single import only

ROWS = tuple({"ts": time, "page": f"p{time % 3}"} for time in range(1, 40))


class Visits(PersistentTask):
    """Counts visits of a page."""

    key = "page"

    def persistent_state(self) -> Any:
        return WindowState(Count(), tumbling(10))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


class AllVisits(Visits):
    """Without windows."""

    name = "Visits"

    def persistent_state(self) -> Any:
        return NonWindowState(Count())


class Away(LedgerSink):
    """A ledger at a server that is away while ``is_away``."""

    is_away = True

    def deliver(self, batch: OutputBatch) -> None:
        if self.is_away:
            raise StorageError("the server is away")
        super().deliver(batch)


class Job:
    """A checkpoint, and ledgers x and y, that live on."""

    def __init__(self, rows: Sequence[Any] = ROWS) -> None:
        self.storage, self.rows = MemoryStorage(new_nonce()), list(rows)
        self.x, self.y = Ledger(), Ledger()

    def pipeline(self, sink: Any, task: Any = None, **options: Any) -> Pipeline:
        source = MemorySource(self.rows, timestamp="ts", ordered=True)
        options = {"step_rows": 10, **options}
        return Pipeline(source=source, task=task or Visits(), sink=sink, checkpoint=self.storage, **options)

    def run(self, sink: Any = None, *, end: bool = True, **options: Any) -> Any:
        sink = {"x": LedgerSink(self.x), "y": LedgerSink(self.y)} if sink is None else sink
        return self.pipeline(sink, **options).run(engine=Embedded(threads=1), end_of_input=end)

    @property
    def newest(self) -> Manifest:
        found = Log(self.storage).newest()
        assert found is not None
        return found.manifest


def of(rows: Sequence[Any]) -> list[str]:
    return sorted(map(str, rows))


@pytest.fixture(scope="module")
def told() -> list[str]:
    """The rows of a run with one sink."""
    sink = MemorySink()
    Job().run(sink)
    return of(sink.rows())


# -- what each of them gets --------------------------------------------------------------------------------------------


def test_every_sink_gets_every_window(told: list[str]) -> None:
    """A dashboard and an archive, from one pass over the input."""
    job, memory, asked = Job(), MemorySink(), []
    files = FileSink("memory://several-sinks", format="jsonl")
    given = {
        "files": files,
        "memory": memory,
        "ledger": LedgerSink(job.x),
        "call": FunctionSink(lambda table, id: asked.extend(table.to_pylist())),
    }
    report = job.run(given)
    assert of(memory.rows()) == of(job.x.rows()) == of(asked) == told
    assert sum(files.storage.read(name).to_pybytes().count(b"\n") for name in files.published()) == len(told)
    assert report.outputs == len(told)
    body = body_of(job.newest.encode(), "m")
    assert [*body["sinks"]] == ["call", "files", "ledger", "memory"]
    assert verify(job.storage).ok and not job.run(given).steps
    files.storage.clear()  # type: ignore[attr-defined]


def test_a_state_without_windows_too() -> None:
    """Each key that has changed, at the end of the input."""
    job, one, other = Job(), MemorySink(), MemorySink()
    job.run({"one": one, "other": other}, task=AllVisits())
    assert len(one.rows()) == 3 and of(one.rows()) == of(other.rows())
    assert only(job.newest.nodes).published == job.newest.id


def test_each_has_a_list_of_its_own() -> None:
    """What one has published, it is not given again because another has not."""
    job = Job()
    away = {"x": LedgerSink(job.x), "y": Away(job.y)}
    lacks = (
        r"(?m)^sink 'y': the server is away\. The outputs that it lacks .* run begins with them; 'x' received theirs$"
    )
    with pytest.raises(StorageError, match=lacks):
        job.run(away)
    first = job.newest
    assert {name: [one.id for one in part.unpublished] for name, part in first.sinks.items()} == {
        "x": [first.id],
        "y": [first.id],
    }
    assert job.x.rows() and not job.y.rows(), "x has its rows, though y is away"


@pytest.mark.parametrize("first", ["x", "y"])
def test_a_sink_that_is_away_holds_back_no_rows_of_another(first: str, told: list[str]) -> None:
    """Nor loses its own: it gets them when it is back, and the others nothing twice."""
    job = Job()
    calls: list[int] = []

    class Counting(LedgerSink):
        def deliver(self, batch: OutputBatch) -> None:
            calls.append(batch.number)
            super().deliver(batch)

    other = "y" if first == "x" else "x"
    away, there = Away(job.y), Counting(job.x)
    given = {first: there, other: away}
    for _ in range(2):
        with pytest.raises(StorageError, match="the server is away"):
            job.run(given)
        assert of(job.x.rows()) and not job.y.rows()
    away.is_away = False
    job.run(given)
    assert of(job.x.rows()) == of(job.y.rows()) == told
    assert len(set(calls)) == len(calls) - 2, "given again to be sure after a crash, under the same number"


def test_late_rows_are_published_though_a_sink_is_away() -> None:
    """They are no sink's matter."""
    job = Job([*ROWS[:12], {"ts": 1, "page": "late"}, *ROWS[12:]])
    for _ in range(2):
        with contextlib.suppress(StorageError):
            job.run({"x": LedgerSink(job.x), "y": Away(job.y)}, end=False, step_rows=13)
    late = job.pipeline(MemorySink()).late()
    assert late.num_rows == sum(one.late for one in job.newest.accounts.values())


def test_the_error_of_the_first_is_told_and_a_fence_at_once() -> None:
    """Whoever was fenced off has nothing to publish anywhere."""
    asked: list[str] = []

    class Told(LedgerSink):
        def __init__(self, name: str, error: Exception | None) -> None:
            super().__init__(Ledger())
            self.name, self.error = name, error

        def deliver(self, batch: OutputBatch) -> None:
            asked.append(self.name)
            if self.error is not None:
                raise self.error

    job = Job()
    with pytest.raises(StorageError, match="one"):
        job.run({"a": Told("a", StorageError("one")), "b": Told("b", StorageError("two")), "c": Told("c", None)})
    assert asked == ["a", "b", "c"]
    asked.clear()
    with pytest.raises(Fenced, match="passed"):
        Job().run({"a": Told("a", Fenced("passed")), "b": Told("b", None)})
    assert asked == ["a"]


# -- sinks that come and go --------------------------------------------------------------------------------------------


def test_a_sink_may_join(told: list[str]) -> None:
    """It gets what closes from then on; the others go on as before."""
    job = Job()
    job.run({"x": LedgerSink(job.x)}, end=False)
    before = of(job.x.rows())
    report = job.run()
    assert of(job.x.rows()) == told
    assert of(job.y.rows()) == sorted(set(told) - set(before))
    assert any("the sink 'y' is new: it receives the windows that end after" in note for note in report.notes)
    folder = MemoryStorage(new_nonce())
    job.rows += [{"ts": 90, "page": "p0"}, {"ts": 120, "page": "p0"}]
    job.run({"x": LedgerSink(job.x), "y": LedgerSink(job.y), "files": FileSink(folder)}, end=False)
    job.rows.append({"ts": 140, "page": "p0"})
    job.run({"x": LedgerSink(job.x), "y": LedgerSink(job.y), "files": FileSink(folder)}, end=False)
    assert FileSink(folder).published()


def test_a_sink_that_joins_gets_every_key_of_a_state_without_windows() -> None:
    """It has none, and the others have all."""
    job = Job()
    job.run({"x": LedgerSink(job.x)}, task=AllVisits())
    both = {"x": LedgerSink(job.x), "y": LedgerSink(job.y)}
    assert joining_sinks(only(job.pipeline(both, AllVisits()).job().nodes), job.newest) == ("y",)
    before = of(job.x.rows())
    job.rows.append({"ts": 140, "page": "p0"})
    job.run(both, task=AllVisits())
    assert len(of(job.y.rows())) == len(before) and len(of(job.x.rows())) == len(before) + 1
    assert joining_sinks(only(job.pipeline(both, AllVisits()).job().nodes), job.newest) == ()


def test_a_sink_with_something_to_publish_cannot_be_left_out() -> None:
    """Only it knows whether it has; its rows would be lost."""
    job = Job()
    with contextlib.suppress(StorageError):
        job.run({"x": LedgerSink(job.x), "y": Away(job.y)})
    for given in ({"x": LedgerSink(job.x)}, {"x": LedgerSink(job.x), "z": LedgerSink(job.y)}):
        with pytest.raises(InvalidPipeline, match=r"has outputs for its old sink \('y'\), but this pipeline has"):
            job.run(given)
    job.run()
    assert of(job.x.rows()) == of(job.y.rows())


def test_a_sink_with_nothing_left_may_go_and_does_not_come_back() -> None:
    """What was published without it is missing there, and a batch does not follow the one before."""
    job = Job(ROWS[:25])
    job.run(end=False)
    job.rows += ROWS[25:27]
    job.run(end=False)
    assert not any(part.owed for part in job.newest.sinks.values())
    job.rows += ROWS[27:]
    job.run({"x": LedgerSink(job.x)}, end=False)
    assert [*job.newest.sinks] == ["x"]
    job.rows.append({"ts": 41, "page": "p0"})
    before = job.storage.list("m")
    with pytest.raises(
        InvalidPipeline, match=r"has outputs of this job up to checkpoint \d+, but not under the name 'y'"
    ):
        job.run()
    assert job.storage.list("m") == before
    job.run({"x": LedgerSink(job.x), "y": LedgerSink(Ledger())})


def after_x() -> Job:
    """A job that published for x, then nothing in a step, and then for y instead of x."""
    job = Job(ROWS[:25])
    job.run({"x": LedgerSink(job.x)}, end=False)
    job.rows += ROWS[25:27]
    job.run({"x": LedgerSink(job.x)}, end=False)
    job.rows += ROWS[27:]
    job.run({"y": LedgerSink(job.y)})
    assert [*job.newest.sinks] == ["y"] and job.x.rows() and job.y.rows()
    return job


def test_a_rollback_takes_back_from_a_sink_that_was_left_out(told: list[str]) -> None:
    """It would keep what was taken back, and the next sink have it a second time."""
    job = after_x()
    rollback(job.storage, 1, outputs="retract", take_over=True)
    assert [*job.newest.sinks] == ["x", "y"]
    found = of(job.x.rows()), of(job.y.rows())
    for name, ledger in (("x", job.x), ("y", job.y)):
        other = "y" if name == "x" else "x"
        with pytest.raises(InvalidPipeline, match=rf"must take back later outputs from its old sink \('{other}'\)"):
            job.run({name: LedgerSink(ledger)})
    assert (of(job.x.rows()), of(job.y.rows())) == found
    job.run()
    assert of(job.x.rows()) == of(job.y.rows()) == told


def test_a_rollback_asks_no_sink_that_has_nothing_to_take_back(told: list[str]) -> None:
    """A table that is long gone would have to be brought back."""
    for outputs in ("retract", "again"):
        job = after_x()
        last = job.x.entries[-1][0]
        found = of(job.x.rows())
        rollback(job.storage, last if outputs == "retract" else 1, outputs=outputs, take_over=True)
        assert [*job.newest.sinks] == ["y"]
        job.run({"y": LedgerSink(job.y)})
        assert of(job.x.rows()) == found
        if outputs == "retract":
            assert of([*job.x.rows(), *job.y.rows()]) == told


def test_a_rollback_behind_what_is_no_longer_kept_asks_every_sink_since(told: list[str]) -> None:
    """Only a pin keeps the checkpoint, and nobody knows what x was given after it: perhaps something."""
    job = Job(ROWS[:15])
    job.run({"x": LedgerSink(job.x)}, end=False)
    target = job.newest.base
    pin(job.storage, target, take_over=True)
    for rows in (ROWS[15:25], ROWS[25:27]):
        job.rows += rows
        job.run({"x": LedgerSink(job.x)}, end=False, retention=Retention(last=1))
    assert job.x.entries[-1][0] > target
    job.rows += ROWS[27:]
    job.run({"y": LedgerSink(job.y)}, retention=Retention(last=1))
    for _ in range(2):
        rollback(job.storage, target, outputs="retract", take_over=True)
        assert [*job.newest.sinks] == ["x", "y"]
    job.run()
    assert of(job.x.rows()) == told


def test_a_rollback_behind_what_a_sink_cannot_take_back_is_refused_though_it_was_left_out() -> None:
    """No run could go on, and the rollback would be there already."""

    given: list[int] = []
    job = Job(ROWS[:25])
    for rows in ((), ROWS[25:27]):
        job.rows += rows
        job.run({"x": FunctionSink(lambda table, id: given.append(id))}, end=False)
    job.rows += ROWS[27:]
    job.run({"y": LedgerSink(job.y)})
    before = job.storage.list("m")
    with pytest.raises(Refused, match="the sink 'x' of this job cannot take back"):
        rollback(job.storage, 1, outputs="retract", take_over=True)
    with pytest.raises(Refused, match="the sink 'x' of this job cannot take back"):
        restart(job.pipeline({"y": LedgerSink(job.y)}), clock=10, outputs="retract", take_over=True)
    assert job.storage.list("m") == before
    rollback(job.storage, given[-1], outputs="retract", take_over=True)
    job.run({"y": LedgerSink(job.y)})


def test_an_heir_that_left_a_sink_out_does_not_come_back_to_it() -> None:
    """It had the place from the job before: each batch would be taken for one of a driver that was fenced."""
    first = Job(ROWS[:25])
    first.run({"x": LedgerSink(first.x)}, end=False)
    saved = savepoint(first.storage, "s")
    job = Job(ROWS[:35])
    job.x = first.x
    job.run({"x": LedgerSink(job.x)}, end=False, start_from=saved)
    job.rows += ROWS[35:37]
    job.run({"x": LedgerSink(job.x)}, end=False)
    job.rows += ROWS[37:]
    job.run({"y": LedgerSink(job.y)}, end=False)
    assert [*job.newest.sinks] == ["y"] and "x" in job.newest.inherits
    job.rows.append({"ts": 99, "page": "p0"})
    with pytest.raises(InvalidPipeline, match=r"but not under the name 'x'.* give it a new place"):
        job.run()


def test_a_sink_that_is_renamed_is_refused() -> None:
    """By its name each batch finds the one before it."""
    job = Job(ROWS[:25])
    job.run(end=False)
    job.rows += ROWS[25:27]
    job.run(end=False)
    with pytest.raises(InvalidPipeline, match=r"but not under the name 'z': if it was 'y', give it that name again"):
        job.run({"x": LedgerSink(job.x), "z": LedgerSink(job.y)})
    job.run()
    assert of(job.x.rows()) == of(job.y.rows())


@pytest.mark.parametrize(("newest", "is_refused"), [(None, False), (-1, False), (0, False), (1, True)])
def test_one_batch_under_another_name_is_enough_to_refuse(newest: int | None, is_refused: bool) -> None:
    """The second batch would be refused as one whose predecessor is missing, for ever."""
    outlet = SimpleNamespace(newest=lambda job, base: newest)
    sinks = {"z": LedgerSink(Ledger())}
    job: Any = SimpleNamespace(sinks=sinks, all_sinks=sinks, takes={}, all_outlets=lambda: {"z": outlet})
    with pytest.raises(InvalidPipeline, match="up to checkpoint 1,") if is_refused else contextlib.nullcontext():
        check_named_as_before(job, manifest(1, sinks={"y": SinkPart(node="Visits")}), "z")


def test_the_order_of_sinks_means_nothing(told: list[str]) -> None:
    """A mapping is written in any order."""
    job = Job()
    job.run(end=False)
    job.run({"y": LedgerSink(job.y), "x": LedgerSink(job.x)})
    assert of(job.x.rows()) == of(job.y.rows()) == told


def test_two_tables_may_change_names(told: list[str]) -> None:
    """Each gets every window, whichever is the first, also what one of them does not have yet."""
    job = Job()
    with contextlib.suppress(StorageError):
        job.run({"ledger": LedgerSink(job.x), "ledger-2": Away(job.y)})
    assert [*job.newest.sinks] == ["ledger", "ledger-2"] and not job.y.rows()
    job.run({"ledger": LedgerSink(job.y), "ledger-2": LedgerSink(job.x)})
    assert of(job.x.rows()) == of(job.y.rows()) == told


# -- pure parts --------------------------------------------------------------------------------------------------------


def test_no_sink_joins_where_none_has_begun() -> None:
    """Each would get all keys a second time."""
    job = Pipeline(
        source=MemorySource(ROWS), task=AllVisits(), sink=MemorySink(), checkpoint=MemoryStorage("joining")
    ).job()
    (node,) = job.nodes.values()
    assert joining_sinks(node, first_manifest(job, "n")) == ()


def test_what_is_shown_is_the_newest_of_all() -> None:
    """A checkpoint that has lost its newest manifest is found by the sink that is ahead."""
    job = Job()
    job.run(end=False)
    made, newest = job.pipeline({"x": LedgerSink(job.x), "y": LedgerSink(Ledger())}).job(), job.newest
    assert shown(made, newest_ids(made, newest)).id == max(batch.id for batch in newest.sinks["x"].unpublished)
    fresh = job.pipeline({"x": MemorySink(), "y": MemorySink()}).job()
    assert shown(fresh, newest_ids(fresh, newest)).id == -1


def test_all_are_claimed_before_anything_is_staged() -> None:
    """The sweep of another job would delete what is staged."""
    job, taken = Job(), MemorySink()
    taken.claim("another job")
    free = MemorySink()
    with pytest.raises(SinkMismatch, match="holds the results of job another job"):
        claim(job.pipeline({"free": free, "taken": taken}).job(), manifest(0))
    with pytest.raises(SinkMismatch, match="holds the results of job another job"):
        job.run({"free": MemorySink(), "taken": taken})
    assert not job.storage.list("d/Visits")


def test_publishing_twice_shows_once() -> None:
    """Every restart does so, for each sink."""
    job = Job()
    job.run(end=False)
    made = job.pipeline({"x": LedgerSink(job.x), "y": LedgerSink(job.y)}).job()
    before = of(job.x.rows()), of(job.y.rows())
    publish(made, Log(job.storage), job.newest)
    assert (of(job.x.rows()), of(job.y.rows())) == before and before[0] == before[1]


# -- operations --------------------------------------------------------------------------------------------------------


def test_a_rollback_takes_back_from_each(told: list[str]) -> None:
    """In one of them the rows would stand twice."""
    job, memory = Job(), MemorySink()
    given = {"x": LedgerSink(job.x), "memory": memory}
    job.run(given)
    rollback(job.storage, sorted(job.newest.bases)[2], outputs="retract")
    job.run(given)
    assert of(job.x.rows()) == of(memory.rows()) == told


def test_a_sink_that_cannot_take_back_is_named() -> None:
    """Before anything is committed: a job that had gone back could only run again after another rollback."""
    job = Job()
    given = {"x": LedgerSink(job.x), "call": FunctionSink(lambda table, id: None)}
    job.run(given)
    shown_before, newest = of(job.x.rows()), job.newest
    target = sorted(newest.bases)[2]
    with pytest.raises(Refused, match=r"the sink 'call' of this job cannot take back .*Nothing was changed"):
        rollback(job.storage, target, outputs="retract")
    assert job.newest == newest
    job.run(given)
    assert of(job.x.rows()) == shown_before
    rollback(job.storage, target, outputs="again")
    job.run(given)
    assert len(job.x.rows()) > len(shown_before)


def test_a_sink_that_no_longer_takes_back_is_named_by_the_run() -> None:
    """The checkpoint knows the sink that was: one in its place may be able to do less."""
    job = Job()
    job.run()
    rollback(job.storage, sorted(job.newest.bases)[2], outputs="retract")
    shown_before = of(job.x.rows())
    with pytest.raises(InvalidPipeline, match=r"FunctionSink.* cannot take back later outputs"):
        job.run({"x": LedgerSink(job.x), "y": FunctionSink(lambda table, id: None)})
    assert of(job.x.rows()) == shown_before


def test_what_is_to_be_taken_back_needs_every_sink() -> None:
    """The rows of the branch that is left would stay in the one that is not there."""
    job = Job()
    job.run()
    rollback(job.storage, sorted(job.newest.bases)[2], outputs="retract")
    with pytest.raises(InvalidPipeline, match=r"must take back later outputs from its old sink \('y'\)"):
        job.run({"x": LedgerSink(job.x)})


def test_an_heir_takes_over_each_place(told: list[str]) -> None:
    """By the names that they had; one of its own begins there."""
    job, third = Job(), Ledger()
    job.run(end=False)
    url = savepoint(job.storage, "half")
    heir = Job()
    heir.x, heir.y = job.x, job.y
    before = len(of(job.x.rows()))
    heir.run({"x": LedgerSink(heir.x), "y": LedgerSink(heir.y), "z": LedgerSink(third)}, start_from=url)
    assert of(heir.x.rows()) == of(heir.y.rows()) == told
    assert len(third.rows()) == len(told) - before


def test_garbage_of_every_sink_is_collected() -> None:
    """What a killed worker has staged lies in each of them."""
    job, places = Job(), (MemoryStorage(new_nonce()), MemoryStorage(new_nonce()))
    sinks = {name: FileSink(place) for name, place in zip("ab", places)}
    job.run(sinks)
    stray = "_staged/e1-c1-" + "0" * 32 + ".parquet"
    for place in places:
        place.write(stray, b"")
    listed = collect_garbage(job.storage, sink=sinks, dry_run=True)
    assert [name for name in listed if name.endswith(stray)] == [f"{place.url}/{stray}" for place in places]
    assert set(listed) <= set(collect_garbage(job.storage, sink=sinks))
    assert all(place.list("_staged") == [] for place in places) and job.storage.list(STAGED) == []


def test_the_guarantee_is_that_of_the_weakest() -> None:
    """And each is told by its name."""
    job = Job()
    found = job.pipeline({"x": LedgerSink(job.x), "call": FunctionSink(print)}).guarantee()
    assert found.startswith("at-least-once: after a crash the function is called again")
    assert {name: one.level for name, one in found.parts.items()} == {
        "source": EXACTLY_ONCE,
        "checkpoint": EXACTLY_ONCE,
        "sink x": EXACTLY_ONCE,
        "sink call": AT_LEAST_ONCE,
    }
    with pytest.raises(InvalidPipeline, match="require='exactly-once', but this pipeline is at-least-once"):
        job.pipeline({"x": LedgerSink(job.x), "call": FunctionSink(print)}, require="exactly-once")
    sources = Pipeline(source={"a": MemorySource([]), "b": MemorySource([])}, task=AllVisits(), checkpoint=job.storage)
    assert [*sources.guarantee().parts] == ["source a", "source b", "checkpoint"]


def test_the_one_of_several_is_asked_for_by_name() -> None:
    """Who takes the first of two has forgotten the other."""
    job = Job()
    two = job.pipeline({"x": MemorySink(), "y": MemorySink()})
    with pytest.raises(InvalidPipeline, match=r"has the sinks x, y: use pipeline\.sinks"):
        _ = two.sink
    assert len(two.sinks) == 2 and job.pipeline(MemorySink()).sink is not None
    assert Pipeline(source=MemorySource([]), task=AllVisits(), checkpoint=job.storage).sink is None
    both = Pipeline(source={"a": MemorySource([]), "b": MemorySource([])}, task=AllVisits(), checkpoint=job.storage)
    with pytest.raises(InvalidPipeline, match=r"has the sources a, b: use pipeline\.sources"):
        _ = both.source
    assert "'b': MemorySource" in repr(both)


@pytest.mark.parametrize(
    ("failures", "sinks", "says"),
    [
        ({"a": StorageError("x")}, ["a"], "x"),
        ({"a": KeyError("x")}, ["a", "b"], "'x'"),
        ({"a": Fenced("x")}, ["a", "b"], "sink 'a': x. The outputs that it lacks .* with them; 'b' received theirs"),
        ({"a": StorageError("x"), "b": KeyError("y")}, ["a", "b"], "sink 'a', 'b': x. .* begins with them"),
    ],
)
def test_the_error_names_the_sinks_that_lack_their_outputs(
    failures: dict[str, Exception], sinks: list[str], says: str
) -> None:
    """Of an only sink there is nothing to add; an error that is not ours stays what it is."""
    first = next(iter(failures.values()))
    found = _named(failures, sinks)
    assert type(found) is type(first) and re.fullmatch(says, str(found))
    assert found is first or found.__cause__ is first
