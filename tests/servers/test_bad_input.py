"""What users and servers do wrong ends a run with a sentence, or is counted: nothing hangs, nothing is lost."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from typing import Any

import pyarrow as pa
import pytest

from monoids import Count, Sum
from persistent import KafkaSink, KafkaSource, MemorySink, NonWindowState, Pipeline, WindowState, tumbling
from persistent.connect.sink import Claim, OutputBatch
from persistent.errors import PersistentError, SourceError, StorageError
from persistent.operations import restart
from tests.servers.kafka import KafkaServer
from tests.servers.test_kafka import ByPage, counted, job, rows, total, value

pytestmark = [pytest.mark.check, pytest.mark.timeout(600)]


def test_a_topic_that_is_not_there_is_no_broker_that_is_away(
    kafka: KafkaServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The log is read by somebody who is told to start a broker that runs."""
    with caplog.at_level(logging.WARNING), pytest.raises(SourceError, match=r"there is no topic 'nowhere'\. Create it"):
        job(kafka, "nowhere").run(engine="embedded")
    assert "UNKNOWN_TOPIC_OR_PART" in caplog.text and "does not answer" not in caplog.text
    with pytest.raises(StorageError, match=r"there is no topic 'nowhere'\. Create it"):
        KafkaSink(kafka.bootstrap, "nowhere").claim(Claim("job"))


def test_a_topic_that_is_deleted_while_a_run_follows_it(kafka: KafkaServer) -> None:
    """It falls silent: a run that waits for its next record would wait for ever."""
    topic = kafka.create(2)
    kafka.produce(topic, rows(100, 2))
    one, read = job(kafka, topic), threading.Event()
    raised: list[PersistentError] = []

    def follow() -> None:
        try:
            one.run(engine="embedded", follow=True, on_step=lambda report: read.set())
        except PersistentError as error:
            raised.append(error)

    thread = threading.Thread(target=follow)
    thread.start()
    assert read.wait(120)
    kafka.delete(topic)
    thread.join(120)
    assert not thread.is_alive() and "there is no topic" in str(raised[0])
    assert counted(one) == total(100)


def test_a_topic_of_a_sink_that_is_deleted_under_way(kafka: KafkaServer) -> None:
    """Its results are gone with it, and the run says so."""
    topic = kafka.create(1)
    sink = KafkaSink(kafka.bootstrap, topic, server_away="20 s")
    sink.claim(Claim("job"))
    kafka.delete(topic)
    with pytest.raises(StorageError, match=r"there is no topic|was deleted during the run"):
        sink.deliver(OutputBatch("job", 1, 0, 0, 1, "memory://x", (), (), lambda staged: pa.table({})))


def test_the_end_of_input_waits_for_a_transaction(kafka: KafkaServer) -> None:
    """Its records belong to windows that would have closed without them."""
    from confluent_kafka import Producer

    topic = kafka.create(1)
    kafka.produce(topic, [(0, value("a", 1, 1))])
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": uuid.uuid4().hex, "log_level": 0})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, value("a", 5, 2))
    producer.flush()
    sink = MemorySink()
    one = job(kafka, topic, task=ByPage(WindowState(Sum(), tumbling("1 min"))), sink=sink)
    assert one.run(engine="embedded", end_of_input=True).open_windows == 1
    producer.commit_transaction()
    # The broker writes the marker of a commit after it has answered.
    deadline = time.monotonic() + 60
    while (report := one.run(engine="embedded", end_of_input=True)).open_windows and time.monotonic() < deadline:
        time.sleep(0.1)
    assert (report.late, [row["value"] for row in sink.rows()]) == (0, [6])


def test_large_messages_are_read(kafka: KafkaServer) -> None:
    """A fetch is a megabyte by default; a message may be larger, and so may what comes behind it."""
    topic = kafka.create(1, max_message_bytes=str(30 << 20))
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": kafka.bootstrap, "message.max.bytes": 30 << 20, "log_level": 0})
    for size in (10, 20 << 20, 10):
        producer.produce(topic, value("a", 1)[:-1] + b', "x": "' + b"y" * size + b'"}')
    assert producer.flush(120) == 0
    one = job(kafka, topic, schema={"page": "string", "n": "int64", "ts": "int64"})
    assert one.run(engine="embedded").rows == 3 and counted(one) == {"a": 3}


def test_a_broker_whose_clock_is_behind(kafka: KafkaServer) -> None:
    """A restart looks by the broker's timestamps: it would pass over records of the time after the clock."""
    topic, now = kafka.create(1), int(time.time()) * 1_000 - 86_400_000
    behind = 7_200_000
    records: list[tuple[int, bytes, dict[str, Any]]] = [
        (0, value("a", 1, now + 1_000 * n), {"timestamp": now + 1_000 * n - behind}) for n in range(50)
    ]
    kafka.produce(topic, records)
    state = NonWindowState(Count(), interval_ms=1_000, history="1 h")
    one = job(kafka, topic, task=ByPage(state))
    assert one.run(engine="embedded").rows == 50

    def again(**options: Any) -> Pipeline:
        return job(kafka, topic, one.storage, task=ByPage(state), **options)

    with pytest.raises(SourceError, match=r"is behind.*give a larger max_skew="):
        restart(again(), now + 20_000, outputs="again")
    restart(again(max_skew="3 h"), now + 20_000, outputs="again")
    assert again(max_skew="3 h").run(engine="embedded").rows > 0
    assert {row["page"]: row["value"] for row in one.state().to_pylist()} == {"a": 50}


def test_the_columns_of_the_first_records_are_not_those_of_the_next(kafka: KafkaServer) -> None:
    """They are dead letters, of which the report tells loudly."""
    topic = kafka.create(1)
    kafka.produce(topic, [(0, value("a", 1, 1))])
    one = job(kafka, topic)
    one.run(engine="embedded")
    kafka.produce(topic, [(0, b'{"page": 5, "n": "many", "ts": 7}')] * 3)
    report = one.run(engine="embedded")
    assert report.dead == 3 and "\nWARNING: all 3 records read became dead letters" in str(report)
    assert "schema=" in str(report)


def test_swapped_arguments_are_recognised() -> None:
    """Else a name would be looked up in the net for half a minute."""
    with pytest.raises(PersistentError, match="the other way round"):
        KafkaSource("clicks", "localhost:9092")
