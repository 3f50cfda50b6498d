"""What is read of a job that runs meanwhile: newer than was asked for, or gone, but never called corrupt."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from monoids import Count, Sum, record
from persistent import (
    CorruptCheckpoint,
    Evolution,
    FileSource,
    FingerprintChanged,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    Retention,
    UnknownCheckpoint,
)
from persistent.checkpoint.copies import newest_of
from persistent.checkpoint.log import Log
from persistent.engines.embedded import Embedded
from persistent.operations import compact, pin, restart, rollback
from persistent.reading import diff, export, kept_places, place, state_table
from persistent.storage import LocalStorage, MemoryStorage
from persistent.tools.cli import main
from persistent.verify import verify_source

MINUTE = 60_000
START = 1_387_497_600_000
"""2013-12-20T00:00Z."""
ROWS = [{"ts": START + MINUTE * n, "page": "ab"[n % 2], "n": n} for n in range(40)]


class Pages(PersistentTask):
    """Counts by page, known at every minute of the last day."""

    key = "page"

    def __init__(self, monoid: Any = None) -> None:
        self.monoid = monoid or record(visits=Count())

    def persistent_state(self) -> Any:
        return NonWindowState(self.monoid, interval_ms=MINUTE, history="1 day")

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, dict.fromkeys(self.monoid.fields, 1))


def pipeline(storage: Any, rows: int, task: PersistentTask | None = None, **options: Any) -> Pipeline:
    options = {"retention": Retention(last=2), **options}
    source = MemorySource(ROWS[:rows], timestamp="ts", ordered=True)
    return Pipeline(source=source, task=task or Pages(), checkpoint=storage, step_rows=4, **options)


def run(made: Pipeline) -> None:
    made.run(engine=Embedded(1))


class Overtaken:
    """A storage whose job goes on, and collects, when the first file of some kind is read, or names are listed."""

    shared, local = False, False

    def __init__(self, inner: MemoryStorage, goes_on: Callable[[], None], kind: str = "d/", times: int = 1) -> None:
        self.inner, self.url = inner, inner.url
        self.goes_on, self.kind, self.times = goes_on, kind, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def read(self, name: str) -> pa.Buffer:
        if name.startswith(self.kind) and self.times:
            self.times -= 1
            self.goes_on()
        return self.inner.read(name)


@pytest.fixture
def storage() -> MemoryStorage:
    memory = MemoryStorage(f"while-running-{uuid.uuid4().hex}")
    run(pipeline(memory, 20))
    return memory


def overtaken(storage: MemoryStorage, kind: str = "d/", times: int = 1) -> Overtaken:
    rows = [20]

    def goes_on() -> None:
        for more in (4, 4, 4):
            rows[0] += more
            run(pipeline(storage, rows[0]))
            compact(pipeline(storage, rows[0]))

    return Overtaken(storage, goes_on, kind, times)


def total(table: pa.Table) -> int:
    return sum(table["visits"].to_pylist())


READERS: dict[str, Callable[[Pipeline], int]] = {
    "state": lambda made: total(made.state()),
    "as of": lambda made: total(made.state(as_of=START + 10 * MINUTE)),
    "one key": lambda made: total(state_table(made, key="a")),
    "table as of": lambda made: total(state_table(made, as_of=START + 10 * MINUTE)),
    "export": lambda made: export(made, MemoryStorage(f"{made.storage.url}-export".replace("memory://", ""))).rows,
}
EXPECTED = {"state": 32, "as of": 10, "one key": 16, "table as of": 10, "export": 2}


@pytest.mark.parametrize("reader", READERS)
def test_a_state_that_is_collected_while_it_is_read_is_read_again(reader: str, storage: MemoryStorage) -> None:
    """Whoever looks at a job that runs would be told now and then that its checkpoint is corrupt."""
    place = overtaken(storage)
    assert READERS[reader](pipeline(place, 20)) == EXPECTED[reader]
    assert place.times == 0, "the job did not go on"


@pytest.mark.parametrize("reader", READERS)
def test_damage_is_damage_while_the_job_goes_on(reader: str, storage: MemoryStorage) -> None:
    """A file that is lost would be looked for until somebody gives up."""
    for run_ in newest_of(Log(storage)).manifest.nodes["Pages"].runs:
        storage.delete(run_.name)
    with pytest.raises(CorruptCheckpoint, match="missing, although a manifest names it"):
        READERS[reader](pipeline(storage, 20))


@pytest.mark.parametrize("named", [False, True])
def test_a_difference_from_what_is_collected_meanwhile(storage: MemoryStorage, named: bool) -> None:
    """Values of a job that runs would now and then be called corrupt; of a checkpoint that was named there is no other
    to take."""
    first, last = sorted(newest_of(Log(storage)).manifest.bases)[-2:]
    pin(storage, first)
    late = overtaken(storage)
    made = pipeline(late, 20)
    here, there = place(late, first), place(late, last if named else None)
    if named:
        with pytest.raises(UnknownCheckpoint, match=f"keeps no checkpoint {there.manifest.id}"):
            diff(here, there, pipeline=made)
        return
    found = diff(here, there, pipeline=made)
    assert late.times == 0 and found.after.manifest.id > there.manifest.id and found.before == here
    assert found.rows is not None
    assert dict(zip(found.rows["page"].to_pylist(), found.rows["visits after"].to_pylist())) == {"a": 16, "b": 16}


def test_a_source_is_held_against_what_is_newest_then(tmp_path: Any) -> None:
    """The index of files of a job that runs would now and then be called corrupt."""
    memory = MemoryStorage(f"while-running-{uuid.uuid4().hex}")
    numbers = iter(range(20))

    def made(place: Any) -> Pipeline:
        source = FileSource(tmp_path, timestamp="ts", timestamp_unit="ms", ordered=True)
        return Pipeline(source=source, task=Pages(), checkpoint=place, retention=Retention(last=1))

    def goes_on() -> None:
        for _ in range(4):
            number = next(numbers)
            (tmp_path / f"{number:02}.jsonl").write_text(f'{{"ts": {START + MINUTE * number}, "page": "a"}}\n')
            run(made(memory))
            compact(made(memory))

    goes_on()
    late = Overtaken(memory, goes_on, "d/FileSource")
    entry = newest_of(Log(memory))
    found = verify_source(made(late), entry)
    assert late.times == 0 and found.findings == []
    assert found.newest is not None and found.newest > entry.manifest.id and found.parts["source"].rows == 8


def test_a_checkpoint_that_goes_while_it_is_read_is_unknown(storage: MemoryStorage) -> None:
    """It is no longer kept, which is no damage."""
    id = newest_of(Log(storage)).manifest.id
    with pytest.raises(UnknownCheckpoint, match=f"keeps no checkpoint {id}"):
        pipeline(overtaken(storage), 20).state(at=id)


@pytest.mark.parametrize("number", range(3))
def test_history_of_a_job_that_runs(storage: MemoryStorage, number: int) -> None:
    """The command would end with code 3 now and then, as if there were no checkpoint."""
    seen = [-1]

    class Later(Overtaken):
        def read(self, name: str) -> pa.Buffer:
            if name.startswith("m/"):
                seen[0] += 1
                if seen[0] == number:
                    self.goes_on()
            return self.inner.read(name)

    late = overtaken(storage)
    places = kept_places(Later(storage, late.goes_on))
    ids = [one.manifest.id for one in places]
    assert ids == sorted(ids) and seen[0] >= number


@pytest.mark.parametrize(
    "clock",
    [
        "2013-12-20T00:10Z",
        "2013-12-20T00:10",
        "2013-12-20T01:10+01:00",
        datetime(2013, 12, 20, 0, 10),
        datetime(2013, 12, 20, 2, 10, tzinfo=timezone(timedelta(hours=2))),
        datetime(2013, 12, 20, 0, 10, tzinfo=UTC),
        START + 10 * MINUTE,
    ],
    ids=str,
)
def test_a_clock_is_taken_as_the_command_line_takes_it(clock: Any, storage: MemoryStorage) -> None:
    """What one reads in a report could not be asked for."""
    made = pipeline(storage, 20)
    assert total(made.state(as_of=clock)) == total(state_table(made, as_of=clock)) == 10
    alone = NonWindowState(Sum(), interval_ms=MINUTE)
    alone.update(START, 1)
    alone.recover(clock, alone.checkpoint(clock))
    assert alone.get() == 1
    restart(made, clock, outputs="again")
    assert total(made.state()) == 10
    rollback(storage, clock=clock, outputs="again")


@pytest.mark.parametrize(
    ("clock", "error", "part"),
    [("noon", ValueError, "'noon' is not a time"), (1.5, TypeError, "neither"), (True, TypeError, "neither")],
)
def test_what_is_no_clock_is_refused(clock: Any, error: type[Exception], part: str, storage: MemoryStorage) -> None:
    """True would be the second millisecond of 1970."""
    with pytest.raises(error, match=part):
        pipeline(storage, 20).state(as_of=clock)


NEW = record(views=Count())
RENAMED = Evolution(renamed={"visits": "views"})


def test_a_clock_before_a_migration_is_answered_by_what_came_after_it(storage: MemoryStorage) -> None:
    """Its rows are those of the task as it is; the older checkpoint would be called corrupt."""
    made = pipeline(storage, 24, Pages(NEW), evolve=RENAMED, retention=Retention(last=20))
    run(made)
    assert sum(made.state(as_of=START + 10 * MINUTE)["views"].to_pylist()) == 10


def test_a_clock_that_only_the_task_as_it_was_knows_is_told_so(tmp_path: Any) -> None:
    """ "Restore the file from a copy" is no help where nothing is damaged."""

    class Short(Pages):
        name = "Pages"

        def persistent_state(self) -> Any:
            return NonWindowState(self.monoid, interval_ms=MINUTE, history="3 min")

    storage = LocalStorage(tmp_path / "checkpoint")
    old = pipeline(storage, 20, Short(), retention=Retention(last=20))
    run(old)
    made = pipeline(storage, 40, Short(NEW), evolve=RENAMED, retention=Retention(last=20))
    run(made)
    clock = START + 10 * MINUTE
    for read in (made.state, lambda *, as_of: state_table(made, as_of=as_of)):
        with pytest.raises(
            FingerprintChanged, match=r"checkpoint \d+ holds the state as of 2013-12-20 00:10:00Z, from before"
        ):
            read(as_of=clock)
    with pytest.raises(FingerprintChanged, match=r"the migrated state goes back to 2013-12-20 00:19:00Z"):
        restart(made, clock, outputs="again")
    assert sum(made.state(as_of=START + 30 * MINUTE)["views"].to_pylist()) == 30


def test_the_command_line_takes_the_same_clocks(tmp_path: Any) -> None:
    """Both are told of in one place."""
    found = CliRunner().invoke(main, ["rollback", str(tmp_path), "--clock", "noon", "--outputs", "again"])
    assert found.exit_code == 2 and "'noon' is not a time" in found.output
