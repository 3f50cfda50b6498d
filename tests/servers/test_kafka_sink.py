"""A reader of committed transactions sees each row once, whatever happens to the broker, the topics and the drivers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from monoids import Count
from persistent import (
    KafkaSink,
    MemorySink,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    WindowState,
    tumbling,
)
from persistent.checkpoint.log import Log
from persistent.connect.sink import Claim, OutputBatch
from persistent.engines.embedded import Embedded
from persistent.errors import Fenced, InvalidPipeline, Refused, StorageError, UserCodeError
from persistent.operations import rollback
from persistent.storage import LocalStorage, MemoryStorage
from tests.faults import FaultyStorage, Killed, Operations
from tests.servers.kafka import PASSWORD, KafkaServer
from tests.servers.reading import committed, json_values
from tests.servers.suites import CALLS, SteppedKafkaSink
from tests.taken_back import FIRST, INSTEAD, Rolled, held, totals

pytestmark = [pytest.mark.check, pytest.mark.timeout(120)]

ROWS = [{"ts": time, "page": f"p{time % 3}"} for time in range(1, 40)]


class Visits(PersistentTask):
    """Counts visits of a page."""

    key = "page"

    def persistent_state(self) -> Any:
        return WindowState(Count(), tumbling(10))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


class AllVisits(Visits):
    """Without windows."""

    def persistent_state(self) -> Any:
        return NonWindowState(Count())


def run(
    storage: Any, sink: Any, given: Sequence[dict[str, Any]] = ROWS, *, task: Any = None, ends: bool = True
) -> None:
    source = MemorySource(given, timestamp="ts", ordered=True)
    pipeline = Pipeline(source=source, task=task or Visits(), sink=sink, checkpoint=storage, step_rows=10)
    pipeline.run(engine=Embedded(threads=1), end_of_input=ends)


def store() -> MemoryStorage:
    return MemoryStorage(uuid.uuid4().hex)


def told(given: Sequence[dict[str, Any]] = ROWS) -> list[tuple[Any, ...]]:
    """Page, window and value of each row of a run without any accident."""
    sink = MemorySink()
    run(store(), sink, given)
    return sorted((row["page"], row["window_start"].strftime("%S.%f")[:-3], row["value"]) for row in sink.rows())


def shown(kafka: KafkaServer, topic: str) -> list[tuple[Any, ...]]:
    found = json_values(kafka, topic)
    return sorted((row["page"], row["window_start"].rstrip("Z").rpartition(":")[2], row["value"]) for row in found)


def test_rows_are_objects_in_the_partition_of_their_key(kafka: KafkaServer) -> None:
    """Readers would not find the windows of a page in one partition, in order; or know which row is the newer."""
    topic, storage = kafka.create(3), store()
    run(storage, KafkaSink(kafka.bootstrap, topic), ROWS[:25], ends=False)
    run(storage, KafkaSink(kafka.bootstrap, topic))
    assert shown(kafka, topic) == told()
    partitions: dict[bytes, set[int]] = {}
    for message in committed(kafka, topic):
        row = json.loads(message.value())
        assert json.loads(message.key()) == {"page": row["page"]} and row["revision"] > 0
        partitions.setdefault(message.key(), set()).add(message.partition())
    assert len(partitions) == 3 and all(len(found) == 1 for found in partitions.values())
    other = kafka.create()
    run(store(), KafkaSink(kafka.bootstrap, other, key=["page", "window_start"]))
    assert {len(json.loads(message.key())) for message in committed(kafka, other)} == {2}


def test_of_a_state_without_windows_the_largest_revision_wins(kafka: KafkaServer) -> None:
    """A reader could not tell which value of a key is the one that counts."""
    topic, storage = kafka.create(2), store()
    for end in (25, len(ROWS)):
        run(storage, KafkaSink(kafka.bootstrap, topic), ROWS[:end], task=AllVisits())
    last = {row["page"]: row["value"] for row in sorted(json_values(kafka, topic), key=lambda row: row["revision"])}
    assert last == {"p0": 13, "p1": 13, "p2": 13}


def test_a_driver_killed_anywhere_publishes_once(kafka: KafkaServer) -> None:
    """Between the commit of a checkpoint, that of the broker and the next checkpoint nothing knows of both."""
    calm = Operations()
    run(FaultyStorage(store(), calm), MemorySink())
    for at in range(calm.count - 8, calm.count, 3):
        topic, storage = kafka.create(), store()
        with pytest.raises(Killed):
            run(FaultyStorage(storage, Operations(at, "after")), KafkaSink(kafka.bootstrap, topic))
        run(storage, KafkaSink(kafka.bootstrap, topic))
        assert shown(kafka, topic) == told(), at


DRIVER = """
    import sys, time
    from persistent.connect.kafka.place import KafkaPlace
    from persistent.storage import LocalStorage
    from tests.servers.suites import SteppedKafkaSink
    from tests.servers.test_kafka_sink import run

    bootstrap, topic, folder, call, number = sys.argv[1:]
    seen = 0

    def step(what):
        global seen
        seen += what == call
        if seen == int(number):
            print("there", flush=True)
            time.sleep(600)

    sink = SteppedKafkaSink(bootstrap, topic)
    sink.step = step
    run(LocalStorage(folder), sink)
"""


@pytest.mark.parametrize(("call", "number"), [("produce", 6), ("commit_transaction", 2)])
def test_a_process_killed_in_a_transaction_leaves_nothing_behind(
    kafka: KafkaServer, tmp_path: Path, call: str, number: int
) -> None:
    """Its open transaction would hold readers back, or its rows be seen beside those of the next driver."""
    topic = kafka.create(2)
    words = [sys.executable, "-c", textwrap.dedent(DRIVER), kafka.bootstrap, topic, str(tmp_path), call, str(number)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as driver:
        assert driver.stdout is not None and driver.stdout.readline() == "there\n"
        os.kill(driver.pid, signal.SIGKILL)
    run(LocalStorage(tmp_path), SteppedKafkaSink(kafka.bootstrap, topic))
    assert shown(kafka, topic) == told()


def table(values: Sequence[int]) -> pa.Table:
    return pa.table({"page": [f"p{value}" for value in values], "value": pa.array(values, pa.int64())})


def batch(number: int, before: int, values: Sequence[int] = ()) -> OutputBatch:
    from persistent.names import Staged

    staged = (Staged("one", len(values), 1),)
    return OutputBatch("j", number, before, 0, number, "file:///c", ("page",), staged, lambda one: table(values))


def claimed(kafka: KafkaServer, topic: str, step: Any = None, **options: Any) -> SteppedKafkaSink:
    sink = SteppedKafkaSink(kafka.bootstrap, topic, **options)
    sink.step = step or (lambda what: None)
    sink.claim(Claim("j"))
    return sink


def values(kafka: KafkaServer, topic: str) -> list[int]:
    return sorted(row["value"] for row in json_values(kafka, topic))


@pytest.mark.parametrize("call", CALLS)
def test_a_driver_that_sleeps_through_a_takeover_publishes_nothing_twice(kafka: KafkaServer, call: str) -> None:
    """No broker can stop who sleeps in the middle of a publication: it must find itself passed."""
    topic = kafka.create(2)
    asleep, awake, armed = threading.Event(), threading.Event(), threading.Event()

    def step(what: str) -> None:
        if what == call and armed.is_set() and not asleep.is_set():
            asleep.set()
            assert awake.wait(60)

    sleeper = claimed(kafka, topic, step)
    sleeper.deliver(batch(1, 0, [1]))
    if call == "init_transactions":
        sleeper.close()
    armed.set()
    outcome: list[BaseException | None] = []

    def sleep() -> None:
        try:
            sleeper.deliver(batch(2, 1, [2]))
            outcome.append(None)
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=sleep)
    thread.start()
    assert asleep.wait(60)
    other = claimed(kafka, topic)
    other.deliver(batch(2, 1, [2]))
    other.deliver(batch(3, 2, [3]))
    awake.set()
    thread.join(60)
    assert len(outcome) == 1 and isinstance(outcome[0], Fenced), outcome
    # What it did to find out does not end the driver that took over.
    other.deliver(batch(4, 3, [4]))
    assert values(kafka, topic) == [1, 2, 3, 4]


@pytest.mark.parametrize("call", ["produce", "commit_transaction"])
def test_a_broker_killed_while_a_batch_is_published(kafka: KafkaServer, call: str) -> None:
    """Whether the commit arrived nobody knows; and the run must not end for a broker that comes back."""
    topic = kafka.create(2)
    at, gone, armed = threading.Event(), threading.Event(), threading.Event()

    def step(what: str) -> None:
        if what == call and armed.is_set() and not at.is_set():
            at.set()
            assert gone.wait(60)

    sink = claimed(kafka, topic, step)
    sink.deliver(batch(1, 0, [1]))
    armed.set()
    with ThreadPoolExecutor(1) as other:
        published = other.submit(sink.deliver, batch(2, 1, [2]))
        assert at.wait(60)
        # From here, as a server dies with the thread that has started it.
        kafka.kill()
        gone.set()
        kafka.restart()
        published.result(60)
    sink.deliver(batch(3, 2, [3]))
    assert values(kafka, topic) == [1, 2, 3]


def test_a_mark_that_is_missing_or_behind_is_refused(kafka: KafkaServer) -> None:
    """Batches that are there would be published again; or those that are not would be missing for ever."""
    topic, storage = kafka.create(), store()
    run(storage, KafkaSink(kafka.bootstrap, topic), ROWS[:25], ends=False)
    before = shown(kafka, topic)
    marks = f"{topic}-persistent-marks"
    found = committed(kafka, marks)
    key, newest = found[-1].key(), json.loads(found[-1].value())
    kafka.produce(marks, [(0, json.dumps({**newest, "number": 0}).encode(), {"key": key})])
    with pytest.raises(StorageError, match=r"has nothing of the outputs of this job|those between are missing"):
        run(storage, KafkaSink(kafka.bootstrap, topic))
    kafka.produce(marks, [(0, b"what?", {"key": key})])
    with pytest.raises(StorageError, match="has a record that is not a mark"):
        run(storage, KafkaSink(kafka.bootstrap, topic))
    kafka.delete(marks)
    with pytest.raises(StorageError, match="has nothing of the outputs of this job"):
        run(storage, KafkaSink(kafka.bootstrap, topic))
    assert shown(kafka, topic) == before


def test_a_topic_that_was_made_again_has_no_mark(kafka: KafkaServer) -> None:
    """The job would go on over a hole; and a new job could never use that name."""
    topic, storage = kafka.create(), store()
    run(storage, KafkaSink(kafka.bootstrap, topic), ROWS[:25], ends=False)
    sink = claimed_job(kafka, topic, storage)
    kafka.delete(topic)
    kafka.create(name=topic)
    with pytest.raises(StorageError, match="the mark of this job is gone"):
        sink.deliver(batch(99, 98, [1]))
    with pytest.raises(StorageError, match="has nothing of the outputs of this job"):
        run(storage, KafkaSink(kafka.bootstrap, topic))
    assert json_values(kafka, topic) == []
    run(store(), KafkaSink(kafka.bootstrap, topic))
    assert shown(kafka, topic) == told()


def claimed_job(kafka: KafkaServer, topic: str, storage: MemoryStorage) -> KafkaSink:
    entry = Log(storage).newest()
    assert entry is not None
    sink = KafkaSink(kafka.bootstrap, topic)
    sink.claim(Claim(entry.manifest.job))
    return sink


def test_a_rollback_publishes_again_and_does_not_take_back(kafka: KafkaServer) -> None:
    """Rows of windows that are published once have no sign: a rollback that says otherwise would leave both."""
    topic, storage = kafka.create(), store()
    run(storage, KafkaSink(kafka.bootstrap, topic), ends=False)
    entry = Log(storage).newest()
    assert entry is not None
    before = shown(kafka, topic)
    target = sorted(entry.manifest.bases)[1]
    with pytest.raises(Refused, match=r"the sink 'kafka' .* have no column 'retracted'.*--outputs=again"):
        rollback(storage, target, outputs="retract", take_over=True)
    assert Log(storage).newest() == entry
    run(storage, KafkaSink(kafka.bootstrap, topic), ends=False)
    assert shown(kafka, topic) == before
    rollback(storage, target, outputs="again", take_over=True)
    run(storage, KafkaSink(kafka.bootstrap, topic))
    found = json_values(kafka, topic)
    newest = {(row["page"], row["window_start"]): row for row in sorted(found, key=lambda row: row["revision"])}
    assert len(found) > len(newest) == len(told()) and set(shown(kafka, topic)) == set(told())


@pytest.mark.parametrize("changes", ["retract", "update"])
def test_a_rollback_takes_back_by_rows(changes: str, kafka: KafkaServer) -> None:
    """Readers would hold what no checkpoint has."""
    topic = kafka.create()
    job = Rolled(lambda: KafkaSink(kafka.bootstrap, topic), changes)
    job.go_back()
    if changes == "retract":
        job.run(FIRST)
        assert held(json_values(kafka, topic), changes) == totals(FIRST)
    job.run(FIRST + INSTEAD)
    assert held(json_values(kafka, topic), changes) == totals(FIRST + INSTEAD)


def test_a_row_that_is_too_large_is_named_before_the_commit(kafka: KafkaServer) -> None:
    """The checkpoint would be committed, and no run could ever publish it."""
    topic, storage = kafka.create(max_message_bytes="2000"), store()
    given = [*ROWS, {"ts": 40, "page": "x" * 1900}, {"ts": 70, "page": "p1"}]
    too_large = r"a key is larger than the largest message, 1,744 bytes: .*or raise max.message.bytes of the topic"
    with pytest.raises(UserCodeError, match=too_large):
        run(storage, KafkaSink(kafka.bootstrap, topic), given)
    assert set(shown(kafka, topic)) < set(told(given))
    kafka.admin.incremental_alter_configs([_config(topic, "max.message.bytes", "10000")])
    given[-2]["page"] = "x" * 1900
    time.sleep(0.1)
    run(storage, KafkaSink(kafka.bootstrap, topic), given)
    assert shown(kafka, topic) == told(given)


def _config(topic: str, name: str, value: str) -> Any:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    return ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])


def test_what_is_wrong_is_said_at_once(kafka: KafkaServer) -> None:
    """A job would hang, fail hours later, or print its password."""
    with pytest.raises(StorageError, match="there is no topic 'nowhere'"):
        claimed(kafka, "nowhere")
    began = time.monotonic()
    with pytest.raises(StorageError, match=r"cannot describe topic .*check servers="):
        sink = KafkaSink("127.0.0.1:1", "t", connect_timeout="1 s")
        sink.claim(Claim("j"))
    with pytest.raises(StorageError) as refused:
        claimed(kafka, "t", connect_timeout="2 s", client=login("hush-hush"))
    assert "hush-hush" not in f"{refused.value!r}{refused.value.__cause__!r}" and time.monotonic() - began < 30
    guarded = KafkaSink(kafka.guarded, kafka.create(), client=login("hush-hush"))
    with pytest.raises(StorageError, match=f"^Kafka at {kafka.guarded}: cannot describe topic .*correct sasl.username"):
        guarded.claim(Claim("j"))
    forgets = kafka.create()
    kafka.create(name=f"{forgets}-persistent-marks")
    with pytest.raises(StorageError, match=r"cleanup\.policy=delete.*kafka-configs\.sh"):
        claimed(kafka, forgets)
    with pytest.raises(InvalidPipeline, match="which this sink sets itself: it belongs to the topic"):
        KafkaSink(kafka.bootstrap, "t", client={"transactional.id": "mine"})
    with pytest.raises(InvalidPipeline, match="give a list of columns"):
        KafkaSink(kafka.bootstrap, "t", key="page")
    with pytest.raises(InvalidPipeline, match="key= names nothing, but the outputs have page"):
        run(store(), KafkaSink(kafka.bootstrap, forgets, key=["nothing"]))
    with pytest.raises(StorageError, match=r"cannot claim topic .*INVALID_TRANSACTION_TIMEOUT"):
        claimed(kafka, kafka.create(), client={"transaction.timeout.ms": 2_000_000})


def test_a_producer_that_is_refused_is_not_waited_for(kafka: KafkaServer) -> None:
    """Its connection is its own: a transaction would begin again and again until the broker counts as away."""
    place: Any = KafkaSink(kafka.guarded, topic := kafka.create(), client=login(PASSWORD))._place
    client, make = place.client, place.client.producer

    def producer(settings: Any) -> Any:
        return make({**settings, "sasl.password": "hush-hush"})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "producer", producer)
        began = time.monotonic()
        with pytest.raises(StorageError, match=f"^Kafka at {kafka.guarded}: cannot write to {topic}: .*correct sasl"):
            place.change("append to", place.fenced)
        assert time.monotonic() - began < 60
    assert place.change("append to", place.fenced) is None


def login(password: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "app",
        "sasl.password": password,
    }


def test_a_decimal_key_whose_scale_grows_is_one_key() -> None:
    """A compacted topic would keep the row of 1.5 beside that of 1.50, on another partition perhaps."""
    found = []
    for scale in (1, 2):
        price = pa.array([Decimal("1.5")], pa.decimal128(9, scale))
        sums = pa.array([Decimal("2.50")], pa.decimal128(9, 2))
        table = pa.table({"price": price, "window_start": [0], "value": sums})
        for given in (None, ["price"]):
            sink = KafkaSink("localhost:1", "prices", key=given)
            found += list(sink._messages(table, ("price", "window_start"), 7))
    message = b'{"price":"1.5","window_start":0,"value":"2.50","revision":7}'
    assert found == [([b'{"price":"1.5"}'], [message])] * 4
