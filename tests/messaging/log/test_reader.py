"""A reader goes on where the last one of its id came to, whatever ended that."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import uuid
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from persistent.errors import CorruptLog, Fenced, InvalidPipeline, Refused, RetentionGap, StillRunning
from persistent.log import LogReader, SegmentedLog
from persistent.messaging.log import reader
from persistent.messaging.offsets import load_state
from persistent.offsets import SqliteOffsets, StoredOffsets
from persistent.storage import MemoryStorage
from persistent.storage.process import Process
from tests.few import only

ROOT = Path(__file__).parents[3]


class Times:
    """Both clocks, by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ms = 1_000_000
        monkeypatch.setattr(reader, "wall_ms", lambda: self.ms)
        monkeypatch.setattr(reader, "monotonic_s", lambda: self.ms / 1_000)


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> Times:
    return Times(monkeypatch)


@pytest.fixture
def log() -> SegmentedLog:
    made = SegmentedLog(MemoryStorage(uuid.uuid4().hex))
    add(made, range(6))
    return made


@pytest.fixture
def store() -> StoredOffsets:
    return StoredOffsets(MemoryStorage(uuid.uuid4().hex))


def add(log: SegmentedLog, numbers: range) -> None:
    with log.writer() as adding:
        for number in numbers:
            adding.append(b"%d" % number, time=number)


def numbers(reading: LogReader) -> list[int]:
    return [int(text) for batch in reading.read() for text in batch.records.to_pylist()]


def position(store: Any) -> str:
    return load_state(store, "one")[1].position


def test_at_least_once_in_four_lines(log: SegmentedLog, tmp_path: Path) -> None:
    """As the page shows it."""
    seen: list[bytes] = []
    with log.reader("one", tmp_path / "offsets.db") as reading:
        for batch in reading.read():
            seen += batch.records.to_pylist()
    add(log, range(6, 8))
    with log.reader("one", tmp_path / "offsets.db") as reading:
        assert numbers(reading) == [6, 7] and len(seen) == 6
    assert numbers(log.reader("other", tmp_path / "offsets.db")) == list(range(6)) + [6, 7]


def test_nothing_is_written_before_the_first_read(store: StoredOffsets) -> None:
    """A reader of an empty log would fix a position that nobody asked for."""
    empty = SegmentedLog(MemoryStorage(uuid.uuid4().hex))
    with empty.reader("one", store) as reading:
        assert numbers(reading) == []
        reading.flush()
    assert store.load("one") == (0, b"")
    add(empty, range(1))
    assert numbers(empty.reader("one", store)) == [0]


def test_a_position_is_stored_every_so_often(log: SegmentedLog, store: StoredOffsets, times: Times) -> None:
    """Once a record would cost a sync each; never would read all again."""
    reading = log.reader("one", store, every="10 s")
    found = iter(reading.read())
    stored = []
    for _ in range(5):
        next(found)
        times.ms += 4_000
        stored.append(position(store))
    assert stored == ["1-0-0", "1-0-0", "1-0-0", "3-0-1", "3-0-1"]
    found.close()  # type: ignore[attr-defined]
    reading.close()
    assert position(store) == "4-0-1"


def test_a_clean_stop_stores_all_that_was_processed(log: SegmentedLog, store: StoredOffsets) -> None:
    """A restart would process the last ten seconds again, every day."""
    stop = threading.Event()
    with log.reader("one", store) as reading:
        for batch in reading.follow(stop=stop):
            if batch.records.to_pylist() == [b"3"]:
                stop.set()
    assert numbers(log.reader("one", store)) == [4, 5]


def test_a_batch_that_raises_is_read_again(log: SegmentedLog, store: StoredOffsets) -> None:
    """It was not processed; those before it were."""
    with pytest.raises(ZeroDivisionError), log.reader("one", store) as reading:
        for batch in reading.read():
            1 // (3 - int(batch.records[0].as_py()))
    with log.reader("one", store, mark="before") as reading, pytest.raises(ZeroDivisionError):
        for batch in reading.read():
            1 // (3 - int(batch.records[0].as_py()))
    assert numbers(log.reader("one", store)) == [4, 5]


def test_who_leaves_early_may_say_what_is_done(log: SegmentedLog, store: StoredOffsets) -> None:
    """A break looks like a crash."""
    with log.reader("one", store) as reading:
        for batch in reading.read():
            if batch.records.to_pylist() == [b"2"]:
                reading.mark(batch)
                break
    assert numbers(log.reader("one", store)) == [3, 4, 5]


@pytest.mark.parametrize(("initial", "first"), [("earliest", 0), ("latest", 6), (4, 4)])
def test_an_id_that_is_absent_begins_where_it_is_told(
    log: SegmentedLog, store: StoredOffsets, initial: Any, first: int
) -> None:
    """And nowhere else, once it is there."""
    reading = log.reader("one", store, initial=initial)
    add(log, range(6, 8))
    with reading:
        assert numbers(reading) == list(range(first, 8))
    with log.reader("one", store, initial="earliest") as again:
        assert numbers(again) == []


def test_one_reader_an_id(log: SegmentedLog, store: StoredOffsets, times: Times) -> None:
    """Two would process every record twice, and store each other's positions."""
    first, second = log.reader("one", store, lease="30 s"), log.reader("one", store)
    batches = first.read()
    next(batches)
    next(batches)
    with pytest.raises(StillRunning, match="another reader uses this id, for 30,000 ms from now"):
        numbers(second)
    times.ms += 30_001
    assert numbers(second) == list(range(6)), "nothing was flushed"
    with pytest.raises(Fenced, match="another reader has taken over this id"):
        first.flush()
    second.close()
    first.close()
    assert numbers(log.reader("one", store)) == []


YEAR_MS = 365 * 86_400_000


def test_a_clock_that_was_ahead_blocks_no_id(log: SegmentedLog, store: StoredOffsets, times: Times) -> None:
    """A reader that died while the clock was a year ahead kept its id for that year."""
    times.ms += YEAR_MS
    first = log.reader("one", store, lease="30 s")
    assert next(first.read())
    times.ms -= YEAR_MS
    assert numbers(log.reader("one", store)) == list(range(6))
    with pytest.raises(Fenced, match="or their clocks differ by more than it"):
        first.flush()


def test_a_clock_that_is_a_little_behind_takes_no_id(log: SegmentedLog, store: StoredOffsets, times: Times) -> None:
    """A reader that lives would be fenced, although the clocks differ by less than its lease."""
    first = log.reader("one", store, lease="30 s")
    assert next(first.read())
    times.ms -= 30_000
    with pytest.raises(StillRunning, match=r"for 60,000 ms from now.*; or read under another id"):
        numbers(log.reader("one", store))
    first.close()
    assert numbers(log.reader("one", store)) == list(range(6))


def test_who_has_to_wait_for_an_id_misses_nothing(log: SegmentedLog, store: StoredOffsets, times: Times) -> None:
    """Each try took a record, and after the last one it seemed that there was nothing to read."""
    next(iter(log.reader("one", store, lease="30 s").read()))
    waiting = log.reader("one", store)
    for _ in range(9):
        with pytest.raises(StillRunning):
            numbers(waiting)
    times.ms += 30_001
    assert numbers(waiting) == list(range(6))


def test_a_closed_reader_leaves_its_id(log: SegmentedLog, store: StoredOffsets) -> None:
    """The next one need not wait for the lease."""
    with log.reader("one", store) as first:
        next(iter(first.read()))
    assert numbers(log.reader("one", store))


def test_a_reader_that_waits_keeps_its_lease(log: SegmentedLog, store: StoredOffsets, times: Times) -> None:
    """An idle night is no death."""
    stop = threading.Event()

    class Passing(threading.Event):
        waits = 0

        def wait(self, timeout: float | None = None) -> bool:
            times.ms += 20_000
            Passing.waits += 1
            assert load_state(store, "one")[1].until > times.ms
            return Passing.waits == 9 and (self.set() or True)

    with log.reader("one", store, lease="60 s") as reading:
        assert len(list(reading.follow(stop=Passing()))) == 6
    assert Passing.waits == 9 and not stop.is_set()


@pytest.mark.parametrize("mark", ["after", "before"])
def test_a_reader_that_reads_keeps_its_lease(mark: str, log: SegmentedLog, store: StoredOffsets, times: Times) -> None:
    """However seldom its position is to be stored: another would take the id of one that is alive."""
    with log.reader("one", store, lease="60 s", every="10 min", mark=mark) as reading:
        for batch in reading.read():
            assert load_state(store, "one")[1].until > times.ms
            if batch.number < 5:
                with pytest.raises(StillRunning):
                    numbers(log.reader("one", store))
            times.ms += 30_000
    assert load_state(store, "one")[1].until == 0


def test_a_reader_that_slept_hands_out_nothing(log: SegmentedLog, store: StoredOffsets, times: Times) -> None:
    """With mark="before" nothing is read twice: also by two, one of which wakes up in the middle of a flush."""
    waking = StoredOffsets(store._storage)
    slept: list[int] = []

    class Sleepy:
        url = store._storage.url

        def __getattr__(self, name: str) -> Any:
            return getattr(store._storage, name)

        def put_if_absent(self, name: str, data: bytes) -> Any:
            if asleep.is_set() and not slept:
                times.ms += 60_001
                slept.extend(numbers(log.reader("one", waking, mark="before")))
            return store._storage.put_if_absent(name, data)

    asleep = threading.Event()
    first = log.reader("one", StoredOffsets(Sleepy()), mark="before")  # type: ignore[arg-type]
    batches = first.read()
    seen = [int(next(batches).records[0].as_py())]
    asleep.set()
    with pytest.raises(Fenced):
        next(batches)
    assert seen == [0] and slept == [1, 2, 3, 4, 5]


def test_a_position_never_goes_back(log: SegmentedLog, store: StoredOffsets) -> None:
    """A batch that is marked late is no reason to read all after it again."""
    with log.reader("one", store) as reading:
        batches = list(reading.read())
        reading.mark(batches[0])
        reading.flush()
        reading.mark(batches[1])
    assert numbers(log.reader("one", store)) == []


def test_what_was_cut_off_is_told(log: SegmentedLog, store: StoredOffsets) -> None:
    """By the reader that comes too late, or counted by who wants to go on."""
    with log.reader("one", store) as reading:
        next(iter(reading.read()))
    log.truncate(log.position_of(4))
    with pytest.raises(RetentionGap):
        numbers(log.reader("one", store))
    assert numbers(log.reader("one", store, on_gap="earliest")) == [4, 5]


def test_the_position_of_another_log_is_refused(log: SegmentedLog, store: StoredOffsets) -> None:
    """It names other records there."""
    with log.reader("one", store) as reading:
        numbers(reading)
    other = SegmentedLog(MemoryStorage(uuid.uuid4().hex))
    add(other, range(9))
    add(other, range(9, 20))
    with pytest.raises(Refused, match="has read another log"):
        numbers(other.reader("one", store))
    with pytest.raises(Refused, match="has read another log"):
        other.reader("one", store, on_gap="latest")


@pytest.mark.parametrize("on_gap", ["fail", "earliest", "latest"])
def test_a_log_that_was_made_anew_is_another(on_gap: str, store: StoredOffsets, tmp_path: Path) -> None:
    """As long as it is shorter than the first was, nothing would be read, for ever and without a word."""
    add(SegmentedLog(tmp_path / "log"), range(6))
    with SegmentedLog(tmp_path / "log").reader("one", store) as reading:
        assert len(numbers(reading)) == 6
    shutil.rmtree(tmp_path / "log")
    waiting = SegmentedLog(tmp_path / "log").reader("one", store, on_gap=on_gap)
    assert numbers(waiting) == []
    add(SegmentedLog(tmp_path / "log"), range(2))
    with pytest.raises(Refused, match="has read another log"):
        numbers(waiting)
    with pytest.raises(Refused, match="has read another log"):
        SegmentedLog(tmp_path / "log").reader("one", store, on_gap=on_gap)


def test_a_corrupt_position_is_an_error(log: SegmentedLog, store: StoredOffsets) -> None:
    """It is not the beginning."""
    store.swap("one", 0, b"garbage")
    with pytest.raises(CorruptLog, match="read under another id"):
        log.reader("one", store)


@pytest.mark.parametrize(("options", "said"), [({"mark": "x"}, "mark='x'"), ({"initial": "x"}, "initial='x'")])
def test_options_are_checked(log: SegmentedLog, store: StoredOffsets, options: Any, said: str) -> None:
    """At once."""
    with pytest.raises(InvalidPipeline, match=said):
        log.reader("one", store, **options)


KILLED = textwrap.dedent(
    """
    import os, signal, sys
    from persistent.log import SegmentedLog, LogReader
    from persistent.offsets import LevelDbOffsets
    folder, mark, at, where = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    def die(here, left=[at]):
        if here == where:
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
    put = LogReader._put
    def dying_put(self, until):
        die("before flush")
        put(self, until)
        die("after flush")
    LogReader._put = dying_put
    stores = {"sqlite": folder + "/o.db", "folder": "file://" + folder + "/o", "leveldb": LevelDbOffsets(folder + "/l")}
    with SegmentedLog(folder + "/log").reader("one", stores[sys.argv[5]], mark=mark, every=0, lease=0) as reading:
        for batch in reading.read():
            die("before")
            with open(folder + "/done", "ab") as done:
                done.write(batch.records[0].as_py() + b" ")
            die("after")
    """
)


_MOMENTS = ("before", "after", "before flush", "after flush")
KILLS = [
    *((mark, where, "sqlite") for mark in ("after", "before") for where in _MOMENTS),
    *(
        (mark, where, store)
        for store in ("folder", "leveldb")
        for mark, where in (("after", "after"), ("before", "after flush"))
    ),
]
QUICK_KILLS = (("after", "after", "sqlite"), ("before", "after flush", "folder"))


@pytest.mark.crash
@pytest.mark.parametrize(("mark", "where", "store"), only(lambda kill: kill in QUICK_KILLS, KILLS))
def test_killed_with_9(mark: str, where: str, store: str, tmp_path: Path) -> None:
    """Marked after it is processed, a batch is never lost; marked before, never there twice. In each store: one that
    answers before it has written goes back behind the mark."""
    if store == "leveldb":
        pytest.importorskip("plyvel")
    log = SegmentedLog(tmp_path / "log")
    add(log, range(6))
    killed = 0
    for at in (2, 1, 10**6):
        words = [sys.executable, "-c", KILLED, str(tmp_path), mark, str(at), where, store]
        killed += subprocess.run(words, cwd=ROOT, timeout=300).returncode == -9
    done = [int(text) for text in (tmp_path / "done").read_bytes().split()]
    assert killed == 2 and done == sorted(done)
    if mark == "after":
        assert set(done) == set(range(6))
        assert (len(done) > 6) == (where in ("after", "before flush"))
    else:
        assert len(set(done)) == len(done)
        assert (len(done) < 6) == (where in ("before", "after flush"))


def test_sqlite_is_the_default(log: SegmentedLog, tmp_path: Path) -> None:
    """A path is all that a user has to say."""
    with log.reader("one", str(tmp_path / "a.db")) as reading:
        numbers(reading)
    assert load_state(SqliteOffsets(tmp_path / "a.db"), "one")[1].token == 1


@pytest.mark.parametrize("mark", ["after", "before"])
def test_a_reader_that_goes_on_after_an_error_has_lost_nothing(
    mark: str, log: SegmentedLog, store: StoredOffsets
) -> None:
    """The batch whose processing raised would be marked with the next one. With mark="before" that is what was asked
    for."""
    done, fails = [], True
    with log.reader("one", store, mark=mark) as reading:
        while len(done) < (6 if mark == "after" else 5):
            try:
                for batch in reading.read():
                    (number,) = map(int, batch.records.to_pylist())
                    if number == 3 and fails:
                        fails = False
                        raise RuntimeError("the first time")
                    done.append(number)
            except RuntimeError:
                continue
    assert done == ([0, 1, 2, 3, 4, 5] if mark == "after" else [0, 1, 2, 4, 5])
    assert numbers(log.reader("one", store)) == []


def test_a_loop_that_is_left_is_entered_again_where_it_was(log: SegmentedLog, store: StoredOffsets) -> None:
    """Unless it has said that the batch is done."""
    with log.reader("one", store) as reading:
        first = next(iter(reading.read()))
        assert numbers(reading)[0] == 0
        assert first.number == 0
    with log.reader("two", store) as reading:
        for batch in reading.read():
            reading.mark(batch)
            break
        assert numbers(reading) == [1, 2, 3, 4, 5]


def test_an_older_copy_of_the_log_is_not_read_on(store: StoredOffsets, tmp_path: Path) -> None:
    """It has the id of the log that was read: what was written since, under positions that were read, would be passed
    over without a word."""
    add(SegmentedLog(tmp_path / "log"), range(3))
    shutil.copytree(tmp_path / "log", tmp_path / "copy")
    add(SegmentedLog(tmp_path / "log"), range(3, 6))
    with SegmentedLog(tmp_path / "log").reader("one", store) as reading:
        assert len(numbers(reading)) == 6
    for more in (range(0), range(6, 12)):
        add(SegmentedLog(tmp_path / "copy"), more)
        with pytest.raises(CorruptLog, match=r"has read up to .*, and another entry, or none, is there now"):
            SegmentedLog(tmp_path / "copy").reader("one", store)
    with SegmentedLog(tmp_path / "log").reader("one", store) as reading:
        assert numbers(reading) == []
    SegmentedLog(tmp_path / "log").truncate(SegmentedLog(tmp_path / "log").ends().next)
    add(SegmentedLog(tmp_path / "log"), range(6, 8))
    assert numbers(SegmentedLog(tmp_path / "log").reader("one", store)) == [6, 7]


def test_the_lease_of_a_process_that_was_killed_is_over(tmp_path: Path) -> None:
    """Nobody could read for up to a minute, although the process is certainly gone."""
    log = SegmentedLog(tmp_path / "log")
    with log.writer() as writer:
        writer.append_many([b"0", b"1"])
    code = (
        "import os, signal; from persistent import SegmentedLog\n"
        f"next(iter(SegmentedLog({str(tmp_path / 'log')!r}).reader('one', {str(tmp_path / 'o.db')!r}).read()))\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    assert numbers(log.reader("one", tmp_path / "o.db")) == [0, 1]


def test_the_lease_of_a_process_elsewhere_is_waited_for(log: SegmentedLog, store: StoredOffsets) -> None:
    """Its process cannot be seen from here: two would read."""
    first = log.reader("one", store)
    next(iter(first.read()))
    version, state = load_state(store, "one")
    elsewhere = replace(state, process=Process("elsewhere", 2**22 + 1))
    assert store.swap("one", version, elsewhere.encoded())
    with pytest.raises(StillRunning):
        numbers(log.reader("one", store))
