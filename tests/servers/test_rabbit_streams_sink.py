"""What a job publishes in a stream of a real RabbitMQ is there once, whatever happens to the broker and the drivers."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from monoids import Count
from persistent import (
    Fenced,
    FileSource,
    InvalidPipeline,
    PersistentTask,
    Pipeline,
    RabbitStreamSink,
    RabbitStreamSource,
    Refused,
    StorageError,
    WindowState,
    tumbling,
)
from persistent.connect.rabbitmq.stream_place import batch_of, row_id
from persistent.operations import rollback
from persistent.sources import Budget, SourceState
from persistent.storage import MemoryStorage
from persistent.testing.sink_driver import SinkDriver
from tests.integration import places
from tests.servers.proxy import Proxy
from tests.servers.rabbit import RabbitServer
from tests.servers.streams import LOGIN, Streams
from tests.taken_back import FIRST, INSTEAD, Rolled, held, totals

pytestmark = [pytest.mark.check, pytest.mark.timeout(600)]
RECORDS = [{"ts": 1_000 * second, "page": "/abc"[: 1 + second % 4]} for second in range(600)]
EXPECTED = Counter((one["page"], one["ts"] // 60_000) for one in RECORDS)


class Visits(PersistentTask):
    """Visits by page and minute."""

    key = "page"

    def persistent_state(self) -> Any:
        return WindowState(Count(), tumbling("1 min"))

    def process_batch(self, state: Any, batch: Any) -> None:
        state.update_batch(batch.timestamps, 1)


@pytest.fixture
def streams(rabbit: RabbitServer) -> Streams:
    return Streams(rabbit)


@pytest.fixture
def proxy(rabbit: RabbitServer) -> Iterator[Proxy]:
    found = Proxy(rabbit.stream_port)
    yield found
    found.close()


def sink(streams: Streams, name: str, **options: Any) -> RabbitStreamSink:
    return RabbitStreamSink(options.pop("servers", streams.address), name, **{"client": LOGIN, **options})


def driver(made: Any, epoch: int = 1, storage: Any = None, **claim: Any) -> SinkDriver:
    storage = storage or MemoryStorage(uuid.uuid4().hex)
    found = SinkDriver(made, storage, lambda what: None, epoch, **claim)
    found.claim()
    return found


def values(streams: Streams, name: str) -> list[int]:
    return [row["value"] for row in streams.rows(name)]


def job(folder: Path, made: Any, storage: Any = None, **options: Any) -> Pipeline:
    if not (folder / "input").exists():
        for start in range(0, len(RECORDS), 60):
            places.write_file(str(folder / "input"), f"{start:04}", "jsonl", RECORDS[start : start + 60])
    read = FileSource(f"{folder}/input/*", timestamp="ts", timestamp_unit="ms", ordered=True)
    return Pipeline(
        source=read,
        task=Visits(),
        sink=made,
        checkpoint=storage or MemoryStorage(uuid.uuid4().hex),
        **{"step_rows": 60, **options},
    )


def counted(rows: list[dict[str, Any]]) -> Counter[tuple[str, int]]:
    found: Counter[tuple[str, int]] = Counter()
    for row in rows:
        found[row["page"], int(row["window_start"][14:16])] += row["value"]
    return found


def test_each_row_is_there_once(streams: Streams, tmp_path: Path) -> None:
    """In the order of the batches; and another job reads it on."""
    name = streams.create()
    job(tmp_path, sink(streams, name)).run(engine="embedded", end_of_input=True)
    rows = streams.rows(name)
    assert counted(rows) == EXPECTED and len(rows) == len(EXPECTED)
    revisions = [row["revision"] for row in rows]
    assert revisions == sorted(revisions) and len(set(revisions)) > 5
    read = RabbitStreamSource(streams.address, name, client=LOGIN)
    plan = read.plan(SourceState({}), Budget(1_000))
    assert sum(found.batch.num_rows for one in plan.splits for found in read.read(one, plan.recorded)) == len(rows)


def test_what_a_crash_left_of_a_batch_is_completed(streams: Streams) -> None:
    """Some rows were sent, and nobody knows which: the broker passes over those that it has."""
    name = streams.create()
    one = driver(sink(streams, name))
    staged = one.stage(1, [1, 2, 3])
    bodies = [json.dumps({"value": value}).encode() for value in (1, 2)]
    streams.append(name, bodies, publisher="persistent", first=row_id(1, 0))
    for again in (one, driver(sink(streams, name))):
        again.publish(1, 0, staged)
        assert values(streams, name) == [1, 2, 3]
    assert streams.sequence(name, "persistent") == row_id(1, 2)


def test_a_driver_that_slept_appends_nothing(streams: Streams) -> None:
    """It wakes up with rows of a batch in its hands, when others have gone on."""
    name, storage = streams.create(), MemoryStorage(uuid.uuid4().hex)
    one = driver(sink(streams, name), storage=storage)
    one.publish(1, 0, one.stage(1, [1]))
    staged = one.stage(2, [2, 3])
    other = driver(sink(streams, name), 2, storage)
    other.publish(2, 1, staged)
    other.publish(3, 2, other.stage(3, [4]))
    # As it would go on in the middle of its call, past every look at the mark.
    streams.append(name, [b'{"value": 9}'] * 3, publisher="persistent", first=row_id(2, 0))
    with pytest.raises(Fenced, match="is at batch 3, beyond our 2"):
        one.publish(2, 1, staged)
    assert values(streams, name) == [1, 2, 3, 4]


def test_rows_of_a_later_batch_fence(streams: Streams) -> None:
    """A driver that has been passed does not append behind the other, whose mark is still to come."""
    name = streams.create()
    one = driver(sink(streams, name))
    one.publish(1, 0, one.stage(1, [1]))
    streams.append(name, [b'{"value": 7}'], publisher="persistent", first=row_id(5, 0))
    with pytest.raises(Fenced, match="is at batch 5, beyond our 2"):
        one.publish(2, 1, one.stage(2, [2]))
    assert values(streams, name) == [1, 7]


def test_an_older_mark_comes_too_late(streams: Streams) -> None:
    """The newest mark would be the one of a driver that slept."""
    name = streams.create()
    made = sink(streams, name)
    one = driver(made)
    one.publish(1, 0, one.stage(1, [1]))
    old = made._place.mark()
    one.publish(2, 1, one.stage(2, [2]))
    assert old is not None
    stands = made._place.note(old)
    assert stands.number == 2 and made._place.mark() == stands


def test_a_stream_or_mark_that_is_gone_is_refused(streams: Streams) -> None:
    """The broker would take every row again; and half of the results would be missing."""
    name = streams.create()
    one = driver(sink(streams, name))
    one.publish(1, 0, one.stage(1, [1]))
    streams.delete(name)
    streams.create(name)
    with pytest.raises(StorageError, match="ends with batch 0, but rows up to batch 1 were confirmed: it was deleted"):
        one.publish(2, 1, one.stage(2, [2]))
    assert values(streams, name) == []
    other = streams.create()
    two = driver(sink(streams, other))
    two.publish(1, 0, two.stage(1, [1]))
    streams.delete(f"{other}-persistent-marks")
    with pytest.raises(StorageError, match=r"has rows of a job, up to batch 1, but its mark in .* is gone"):
        driver(sink(streams, other), job="b" * 32)
    with pytest.raises(StorageError, match="the mark of this job is gone"):
        two.publish(2, 1, two.stage(2, [2]))


def test_a_stream_of_marks_that_something_else_writes_to(streams: Streams) -> None:
    """It says so, and publishes nothing."""
    name = streams.create()
    one = driver(sink(streams, name))
    streams.append(f"{name}-persistent-marks", [b"hello"])
    with pytest.raises(StorageError, match="has a record that is not a mark"):
        one.publish(1, 0, one.stage(1, [1]))


def test_a_row_that_was_refused_before_another_was_taken(streams: Streams) -> None:
    """Sent again it would be passed over, and confirmed."""
    name = streams.create()
    made = sink(streams, name)
    one = driver(made)
    one.publish(1, 0, one.stage(1, [1]))
    place = made._place
    place._refused_id = row_id(1, 0)
    with pytest.raises(StorageError, match="has refused a row and accepted a later one"):
        place._sent("append to", name, lambda: iter([]))


def test_a_rollback_publishes_again_and_takes_nothing_back(streams: Streams, tmp_path: Path) -> None:
    """It is refused before anything is changed; and ids never go back."""
    name = streams.create()
    one = job(tmp_path, sink(streams, name))
    one.run(engine="embedded")
    before = streams.sequence(name, "persistent")
    with pytest.raises(Refused, match="have no column 'retracted'"):
        rollback(one.storage, to=3, outputs="retract")
    rollback(one.storage, to=3, outputs="again")
    job(tmp_path, sink(streams, name), one.storage).run(engine="embedded", end_of_input=True)
    assert batch_of(streams.sequence(name, "persistent")) > batch_of(before)
    rows = sorted(streams.rows(name), key=lambda row: int(row["revision"]))
    newest = {(row["page"], row["window_start"]): row for row in rows}
    assert counted(list(newest.values())) == EXPECTED


@pytest.mark.parametrize("changes", ["retract", "update"])
def test_a_rollback_takes_back_by_rows(changes: str, streams: Streams) -> None:
    """Readers would hold what no checkpoint has; a batch that is owed is completed before it is taken back."""
    name = streams.create()
    job = Rolled(lambda: sink(streams, name), changes)
    job.go_back()
    if changes == "retract":
        job.run(FIRST)
        assert held(streams.rows(name), changes) == totals(FIRST)
    job.run(FIRST + INSTEAD)
    assert held(streams.rows(name), changes) == totals(FIRST + INSTEAD)


def test_a_row_larger_than_a_message_stops_the_run(streams: Streams) -> None:
    """Before its checkpoint; the broker would cut the connection, time and again."""
    import pyarrow as pa

    name = streams.create()
    made = sink(streams, name)
    driver(made)
    made.check(pa.table({"page": ["x" * 1_000_000]}), ("page",))
    with pytest.raises(InvalidPipeline, match=r"page='xxx.* is a message of 1,048,5\d\d bytes, and the broker"):
        made.check(pa.table({"page": ["x" * 1_048_500]}), ("page",))


def test_the_largest_row_is_taken(streams: Streams) -> None:
    """The bound is the broker's own."""
    name = streams.create()
    made = sink(streams, name)
    largest = made._place.prepare()
    made._place.append(lambda: iter([([5], [b"x" * largest])]))
    ((_, record),) = streams.records(name)
    assert len(record) == largest + 8


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"client": {"username": "dev", "password": "hunter2-of-dev"}}, "refuses the user or the password"),
        ({"servers": "127.0.0.1:1"}, "rabbitmq-plugins enable rabbitmq_stream"),
    ],
)
def test_a_connection_that_cannot_be_says_what_to_correct(streams: Streams, options: dict[str, Any], said: str) -> None:
    """And no password; a stream that is not there is named."""
    with pytest.raises(StorageError, match=said) as raised:
        driver(sink(streams, streams.create(), connect_timeout="2 s", **options))
    assert "hunter2" not in str(raised.value)
    with pytest.raises(StorageError, match="has no stream 'nowhere'"):
        driver(sink(streams, "nowhere", connect_timeout="2 s"))


@pytest.mark.parametrize("after_bytes", [1, 900, 5_000, 60_000])
def test_a_connection_that_is_cut_is_made_again(
    streams: Streams, proxy: Proxy, after_bytes: int, tmp_path: Path
) -> None:
    """In the middle of a frame too."""
    name = streams.create()
    one = driver(sink(streams, name, servers=f"127.0.0.1:{proxy.port}"))
    staged = one.stage(1, range(2_000))
    proxy.cut(after_bytes)
    one.publish(1, 0, staged)
    assert values(streams, name) == list(range(2_000)) and proxy.cuts == 1


def test_a_broker_that_is_killed_under_way_is_waited_for(
    rabbit: RabbitServer, streams: Streams, tmp_path: Path
) -> None:
    """What it has confirmed it keeps, and the rest is sent again."""
    name = streams.create()
    one = job(tmp_path, sink(streams, name, server_away="2 min"), step_rows=20)
    first = Event()
    with ThreadPoolExecutor() as pool:
        running = pool.submit(one.run, engine="embedded", end_of_input=True, on_step=lambda report: first.set())
        assert first.wait(60)
        rabbit.kill()
        rabbit.restart()
        running.result(300)
    rows = streams.rows(name)
    assert counted(rows) == EXPECTED and len(rows) == len(EXPECTED)


@pytest.mark.spark
def test_a_job_on_spark_reads_and_writes_streams(spark: Any, streams: Streams, tmp_path: Path) -> None:
    """Its workers are other processes, which are sent the source and the sink."""
    read, written = streams.create(), streams.create()
    streams.append(read, [json.dumps(one).encode() for one in RECORDS], at_once=50)
    source = RabbitStreamSource(streams.address, read, timestamp="ts", timestamp_unit="ms", client=LOGIN)
    one = Pipeline(source=source, task=Visits(), sink=sink(streams, written), checkpoint=str(tmp_path / "checkpoint"))
    assert one.run(spark, end_of_input=True).rows == len(RECORDS)
    rows = streams.rows(written)
    assert counted(rows) == EXPECTED and len(rows) == len(EXPECTED)
