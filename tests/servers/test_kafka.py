"""A topic of a real broker is read once, whatever happens to the broker, the topic and the driver."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from monoids import Count, Sum
from persistent import KafkaSource, NonWindowState, PersistentTask, Pipeline, WindowState, tumbling
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.connect import offsets
from persistent.connect.kafka.client import KafkaClient
from persistent.connect.kafka.settings import Connection
from persistent.connect.offsets import Kept
from persistent.connect.source import Budget, SourceState
from persistent.errors import InvalidPipeline, RetentionGap, SourceChanged, SourceError, UserCodeError
from persistent.operations import restart
from persistent.storage import MemoryStorage
from persistent.testing import Killed
from persistent.verify import verify, verify_source
from tests.servers.kafka import PASSWORD, KafkaServer
from tests.single import only

# The first test also fetches the jars of the broker.
pytestmark = [pytest.mark.check, pytest.mark.timeout(600)]


class ByPage(PersistentTask):
    """The sum of n by page."""

    key = "page"

    def __init__(self, state: Any = None) -> None:
        self.state = state or NonWindowState(Sum())

    def persistent_state(self) -> Any:
        return self.state

    def process_batch(self, state: Any, batch: Any) -> None:
        state.update_batch(batch.timestamps, batch["n"])


def value(page: str, n: int, ts: int = 0) -> bytes:
    return json.dumps({"page": page, "n": n, "ts": ts}).encode()


def rows(count: int, partitions: int = 1) -> list[tuple[int, bytes]]:
    return [(number % partitions, value("abc"[number % 3], number, number)) for number in range(count)]


def total(count: int, copies: int = 1) -> dict[str, int]:
    return {page: copies * sum(n for n in range(count) if "abc"[n % 3] == page) for page in "abc"}


def job(kafka: KafkaServer, topic: str, storage: Any = None, **options: Any) -> Pipeline:
    own = {name: options.pop(name) for name in ("task", "step_rows", "sink", "discard_closed") if name in options}
    source = KafkaSource(kafka.bootstrap, topic, **{"timestamp": "ts", "timestamp_unit": "ms", **options})
    storage = storage or MemoryStorage(uuid.uuid4().hex)
    return Pipeline(source=source, checkpoint=storage, **{"task": ByPage(), **own})


def counted(pipeline: Pipeline) -> dict[str, int]:
    return {row["page"]: row["value"] for row in pipeline.state().to_pylist()}


def newest(pipeline: Pipeline) -> Manifest:
    entry = Log(pipeline.storage).newest()
    assert entry is not None
    return entry.manifest


def test_every_record_counts_once_and_the_job_goes_on(kafka: KafkaServer) -> None:
    """What came before, between and after two runs, over partitions that share nothing."""
    topic = kafka.create(3)
    kafka.produce(topic, rows(3_000, 3))
    one = job(kafka, topic, step_rows=700)
    assert one.run(engine="embedded").rows == 3_000
    assert counted(one) == total(3_000)
    kafka.produce(topic, rows(300, 3))
    again = job(kafka, topic, one.storage)
    assert again.run(engine="embedded").rows == 300
    assert counted(again) == {page: total(3_000)[page] + total(300)[page] for page in "abc"}
    assert only(newest(again).sources).positions == {"0": 1_100, "1": 1_100, "2": 1_100}
    assert again.run(engine="embedded").steps == 0
    assert verify(again.storage).ok and verify_source(again, Log(again.storage).newest()).ok  # type: ignore[arg-type]


def test_only_committed_transactions_count(kafka: KafkaServer) -> None:
    """Their markers use up offsets, and an aborted one leaves nothing but a gap: a split may end on either."""
    topic = kafka.create(1)
    kafka.produce(topic, rows(5), transaction="a")
    kafka.produce(topic, rows(7), transaction="a", abort=True)
    kafka.produce(topic, rows(4), transaction="b")
    kafka.produce(topic, rows(6), transaction="b", abort=True)
    for step_rows in (None, 1, 3, 6, 7):
        one = job(kafka, topic, step_rows=step_rows)
        assert one.run(engine="embedded").rows == 9
        assert counted(one) == {page: total(5)[page] + total(4)[page] for page in "abc"}
        assert only(newest(one).sources).positions == {"0": 5 + 1 + 7 + 1 + 4 + 1 + 6 + 1}


def run_until(one: Pipeline, is_there: Callable[[], bool]) -> None:
    """Run it again until that is so: a broker shows readers what was committed a moment after it has said so."""
    until = time.monotonic() + 30
    while not is_there() and time.monotonic() < until:
        one.run(engine="embedded")


def test_an_open_transaction_holds_back_what_comes_behind_it(kafka: KafkaServer) -> None:
    """Passed over, its records would be lost when it commits."""
    from confluent_kafka import Producer

    topic = kafka.create(1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": uuid.uuid4().hex, "log_level": 0})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, value("a", 5))
    producer.flush()
    kafka.produce(topic, [(0, value("a", 7))])
    one = job(kafka, topic)
    one.run(engine="embedded")
    assert counted(one) == {}
    producer.commit_transaction()
    run_until(one, lambda: counted(one) != {})
    assert counted(one) == {"a": 12}


def test_partitions_join_while_the_job_runs(kafka: KafkaServer) -> None:
    """Until a restart nobody would read them."""
    topic = kafka.create(1)
    kafka.produce(topic, rows(30))
    one = job(kafka, topic)
    one.run(engine="embedded")
    kafka.grow(topic, 3)
    kafka.produce(topic, rows(30, 3))
    one.run(engine="embedded")
    assert counted(one) == total(30, 2)
    assert only(newest(one).sources).partitions == ("0", "1", "2")


def test_a_topic_made_again_is_refused(kafka: KafkaServer) -> None:
    """It goes on silently if it is long enough: its offsets mean other records."""
    topic = kafka.create(1)
    kafka.produce(topic, rows(30))
    one = job(kafka, topic)
    one.run(engine="embedded")
    kafka.delete(topic)
    with pytest.raises(SourceError, match="there is no topic"):
        one.run(engine="embedded")
    kafka.create(1, topic)
    kafka.produce(topic, rows(90))
    with pytest.raises(SourceChanged, match="was deleted and created again"):
        one.run(engine="embedded")
    assert counted(one) == total(30)


@pytest.mark.parametrize("is_gone", [False, True])
def test_before_the_first_commit_another_topic_can_be_given(kafka: KafkaServer, is_gone: bool) -> None:
    """It was refused as the first topic created again, with the advice to restart."""
    wrong, right = kafka.create(2), kafka.create(3)
    kafka.produce(wrong, [(0, b'{"page": "a", "n": "many", "ts": 0}')])
    kafka.produce(right, rows(30, 3))
    one = job(kafka, wrong)
    with pytest.raises(UserCodeError):
        one.run(engine="embedded")
    if is_gone:
        kafka.delete(wrong)
    other = job(kafka, right, one.storage)
    other.run(engine="embedded")
    assert counted(other) == total(30)


def test_deleted_records_are_a_gap(kafka: KafkaServer) -> None:
    """The client jumps over them without a word."""
    topic = kafka.create(1)
    kafka.produce(topic, rows(30))
    one = job(kafka, topic)
    one.run(engine="embedded")
    kafka.produce(topic, rows(30))
    kafka.truncate(topic, 0, 45)
    with pytest.raises(RetentionGap, match="next offset to read is 30, but the first that remains is 45: 15 off"):
        one.run(engine="embedded")
    passing = job(kafka, topic, one.storage, on_gap="earliest")
    passing.run(engine="embedded")
    assert newest(passing).accounts["0"].skipped == 15 and newest(passing).accounts["0"].read == 45
    begun = job(kafka, topic)
    assert begun.run(engine="embedded").rows == 15 and newest(begun).accounts["0"].skipped == 0


def test_a_job_begins_where_it_is_told(kafka: KafkaServer) -> None:
    """At the end, or with the records since a time of the broker."""
    topic = kafka.create(2)
    kafka.produce(topic, [(0, value("a", 1), {"timestamp": 1_000}), (0, value("a", 2), {"timestamp": 2_000})])
    kafka.produce(topic, [(1, value("b", 4), {"timestamp": 2_000}), (0, value("a", 8), {"timestamp": 3_000})])
    late, since = job(kafka, topic, start="latest"), job(kafka, topic, start=2_000)
    future = job(kafka, topic, start=4_000)
    for one in (late, since, future):
        one.run(engine="embedded")
    assert counted(late) == {} == counted(future) and counted(since) == {"a": 10, "b": 4}
    kafka.produce(topic, [(1, value("b", 16), {"timestamp": 2_500})])
    for one in (late, since, future):
        one.run(engine="embedded")
    assert counted(late) == {"b": 16} == counted(future) and counted(since) == {"a": 10, "b": 20}


def test_a_restart_goes_on_from_a_clock(kafka: KafkaServer) -> None:
    """Over a topic that was moved: only time is common to both."""
    state = NonWindowState(Sum(), interval_ms=10, history="1 h")
    topic, moved = kafka.create(1), kafka.create(2)
    records = [(0, value("a", 1 << number, 10 * number), {"timestamp": 10 * number}) for number in range(10)]
    kafka.produce(topic, records[:8])
    one = job(kafka, topic, task=ByPage(state))
    one.run(engine="embedded")
    kafka.produce(moved, [(number % 2, *record[1:]) for number, record in enumerate(records)])
    again = job(kafka, moved, one.storage, task=ByPage(state), max_skew=0)
    with pytest.raises(SourceChanged, match="has read topic"):
        again.run(engine="embedded")
    restart(again, 50, outputs="again")
    again.run(engine="embedded")
    assert counted(again) == {"a": (1 << 10) - 1}


def test_what_cannot_be_decoded_is_a_dead_letter(kafka: KafkaServer) -> None:
    """Each with its bytes and its offset, and none costs another."""
    topic = kafka.create(1)
    bad = [b"", b"{", b"[1]", None, b'{"page": "a", "n": "x"}', b"\xff\xfe", b'{"page": "a\nb", "n": 1, "ts": 1}']
    good = [value("a", 1, 1), b'{\n "page": "a",\n "n": 2, "ts": 2\n}', value("a", 4, 3)]
    kafka.produce(topic, [(0, good[0]), *((0, one) for one in bad), (0, good[1]), (0, good[2])])
    one = job(kafka, topic)
    one.run(engine="embedded")
    assert counted(one) == {"a": 7}
    account = newest(one).accounts["0"]
    assert (account.read, account.processed, account.dead) == (10, 3, 7)
    letters = one.dead_letters().to_pylist()
    assert [row["offset"] for row in letters] == list(range(1, 8))
    assert [row["data"] or None for row in letters] == [one or None for one in bad]
    reasons = [row["reason"] for row in letters]
    assert reasons[0] == "the value is empty" and reasons[3] == "the message has no value"
    assert reasons[2] == "the value is not a JSON object, but a list" and "column 'n'" in reasons[4].replace(
        "/n", "column 'n'"
    )


def test_key_headers_and_time_of_the_broker_are_columns(kafka: KafkaServer) -> None:
    """A task may count by what is not in the value."""

    class Keys(PersistentTask):
        key = "_key"

        def persistent_state(self) -> Any:
            return NonWindowState(Count())

        def process_message(self, state: Any, message: Any) -> None:
            assert message.value["_headers"] == [{"key": "h", "value": b"1"}]
            assert message.timestamp == 5_000 and message.delivery == "live"
            state.update(message.timestamp, 1)

    topic = kafka.create(1)
    more = {"key": b"k", "headers": [("h", b"1")], "timestamp": 5_000}
    kafka.produce(topic, [(0, b"any bytes", more), (0, None, more)])
    source = KafkaSource(kafka.bootstrap, topic, format="bytes", metadata=["_key", "_headers"])
    one = Pipeline(source=source, task=Keys(), checkpoint=MemoryStorage(uuid.uuid4().hex))
    one.run(engine="embedded")
    assert one.state().to_pylist() == [{"_key": b"k", "value": 2}]


def test_a_silent_partition_is_idle(kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """One empty partition of three would hold every window open."""
    now = [100.0]
    monkeypatch.setattr(offsets, "monotonic_s", lambda: now[0])
    topic = kafka.create(3)
    kafka.produce(topic, [(0, value("a", 1, 5)), (0, value("a", 1, 95)), (1, value("a", 1, 7))])
    task = ByPage(WindowState(Sum(), tumbling(10)))
    one = job(kafka, topic, task=task, discard_closed=True, idle_timeout="300 ms")
    one.run(engine="embedded")
    assert newest(one).clock.watermark == 0
    now[0] += 0.4
    one.run(engine="embedded")
    assert newest(one).clock.watermark == 95 and only(newest(one).sources).idle == ("1", "2")


def test_a_broker_that_dies_is_waited_for(kafka: KafkaServer) -> None:
    """Killed with -9 in the middle of a run, and started again."""
    topic = kafka.create(2)
    kafka.produce(topic, rows(6_000, 2))
    one = job(kafka, topic, step_rows=500, server_away="1 min")
    begun, dead = threading.Event(), threading.Event()

    def wait(report: Any) -> None:
        begun.set()
        dead.wait(60)

    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(one.run, engine="embedded", on_step=wait)
        begun.wait(60)
        # A server dies with the thread that has started it: it is this one that starts it again.
        kafka.kill()
        dead.set()
        assert not run.done()
        kafka.restart()
        run.result(60)
    assert counted(one) == total(6_000)
    assert verify(one.storage).ok


def test_a_broker_that_is_away_is_named_in_time(kafka: KafkaServer) -> None:
    """At the start after connect_timeout; nothing hangs, and nothing is written."""
    storage = MemoryStorage(uuid.uuid4().hex)
    source = KafkaSource("127.0.0.1:1", "t", connect_timeout="2 s", client={"sasl.password": "hunter2"})
    began = time.monotonic()
    with pytest.raises(SourceError, match=r"Kafka at 127.0.0.1:1: cannot describe topic t: .*check servers=") as raised:
        Pipeline(source=source, task=ByPage(), checkpoint=storage).run(engine="embedded")
    assert time.monotonic() - began < 25
    assert "hunter2" not in str(raised.value) and "hunter2" not in repr(source)
    assert Log(storage).newest() is None


REFUSED = r"_AUTHENTICATION: .*SASL.*correct sasl\.username, sasl\.password or sasl\.mechanism in client="
SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "app"}


def test_a_password_is_asked_for_and_never_shown(kafka: KafkaServer) -> None:
    """With the right one the topic is read; a wrong one, or none, is named at once or in time, without the password."""
    topic = kafka.create(1)
    kafka.produce(topic, rows(30))
    given = {**SASL, "sasl.password": PASSWORD}
    one = Pipeline(
        source=KafkaSource(kafka.guarded, topic, timestamp="ts", timestamp_unit="ms", client=given),
        task=ByPage(),
        checkpoint=(storage := MemoryStorage(uuid.uuid4().hex)),
    )
    one.run(engine="embedded")
    assert counted(one) == total(30)
    passing = r"check servers= and client= \(does the broker want TLS or a pass"
    for client, timeout, says in (
        ({**SASL, "sasl.password": "not-the-password"}, "5 min", REFUSED),
        ({**SASL, "sasl.mechanism": "SCRAM-SHA-256", "sasl.password": "not-the-password"}, "5 min", REFUSED),
        ({}, "2 s", passing),
        ({"security.protocol": "SSL"}, "2 s", passing),
    ):
        source = KafkaSource(kafka.guarded, topic, connect_timeout=timeout, client=client)
        began = time.monotonic()
        with pytest.raises(SourceError, match=f"^Kafka at {kafka.guarded}: cannot describe topic .*{says}") as raised:
            Pipeline(source=source, task=ByPage(), checkpoint=MemoryStorage(uuid.uuid4().hex)).run(engine="embedded")
        assert time.monotonic() - began < 60
        assert "not-the-password" not in str(raised.value)
    written = b"".join(bytes(storage.read(name)) for folder in ("m", "p") for name in _names(storage, folder))
    assert b"hunter2" not in written and "hunter2" not in repr(one)


def test_a_password_that_is_refused_under_way_ends_the_step(kafka: KafkaServer) -> None:
    """A worker connects after the driver has planned: it would wait for as long as a broker may be away."""
    topic = kafka.create(1)
    kafka.produce(topic, rows(30))
    right, wrong = ({**SASL, "sasl.password": password} for password in (PASSWORD, "not-the-password"))
    source = KafkaSource(kafka.guarded, topic, timestamp="ts", timestamp_unit="ms", client=right)
    plan = source.plan(SourceState({}), Budget(100))
    stale: Any = KafkaSource(kafka.guarded, topic, timestamp="ts", timestamp_unit="ms", client=wrong)
    began = time.monotonic()
    with pytest.raises(SourceError, match=f"^Kafka at {kafka.guarded}: cannot read partition 0 .*{REFUSED}") as raised:
        list(stale.read(plan.splits[0], plan.recorded))
    assert time.monotonic() - began < 60 and "not-the-password" not in str(raised.value)


def _names(storage: MemoryStorage, folder: str) -> list[str]:
    return [f"{folder}/{name}" for name in storage.list(folder)]


@pytest.mark.parametrize(
    ("option", "other"), [("timestamp", "_timestamp"), ("timestamp_unit", "s"), ("format", "bytes")]
)
def test_what_the_checkpoint_records_is_not_changed(kafka: KafkaServer, option: str, other: str) -> None:
    """What has been counted by one time cannot be compared with what is counted by another."""
    topic = kafka.create(1)
    kafka.produce(topic, rows(3))
    one = job(kafka, topic)
    one.run(engine="embedded")
    kafka.produce(topic, rows(3))
    options = {"timestamp": "ts", option: other} if option != "format" else {"format": other}
    with pytest.raises(InvalidPipeline, match=f"{option}='{other}': the checkpoint was made with {option}="):
        job(kafka, topic, one.storage, **options).run(engine="embedded")
    assert counted(one) == total(3)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"client": {"enable.auto.commit": True}}, "which this source sets itself: the checkpoint holds the offsets"),
        ({"client": {"no.such": "x"}}, 'refused by librdkafka: No such configuration property: "no.such"'),
        ({"start": "yesterday"}, 'or give start="earliest" or "latest"'),
        ({"metadata": ["_offset"]}, "give a list of some of _timestamp, _key, _headers"),
        ({"on_gap": "skip"}, "one of 'fail', 'earliest', 'latest'"),
        ({"idle_timeout": "soon"}, "idle_timeout: 'soon' is not a duration"),
        ({"timestamp": "when"}, "when"),
    ],
)
def test_a_wrong_option_is_named(kafka: KafkaServer, options: dict[str, Any], says: str) -> None:
    """Before anything is committed."""
    topic = kafka.create(1)
    kafka.produce(topic, rows(3))
    with pytest.raises((InvalidPipeline, SourceError), match=says):
        job(kafka, topic, **options).run(engine="embedded")


def test_aborted_records_at_the_beginning_hide_no_columns(kafka: KafkaServer) -> None:
    """The columns are those of the first records, however many offsets lie before them, and whatever the step."""
    topic = kafka.create(2)
    kafka.produce(topic, rows(1_100), transaction="front", abort=True)
    kafka.produce(topic, [(0, value("a", 5, 1)), (1, b'{"page": "b", "n": 7, "ts": 2, "extra": 1}')])
    for step_rows in (300, None):
        one = job(kafka, topic, step_rows=step_rows)
        one.run(engine="embedded")
        assert counted(one) == {"a": 5, "b": 7}
        assert [name for name, _ in only(newest(one).sources).recorded["schema"]] == ["page", "n", "ts", "extra"]


def test_what_an_open_transaction_holds_back_keeps_its_partition(
    kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records behind it are at the broker: the clock must not go on without them."""
    from confluent_kafka import Producer

    now = [100.0]
    monkeypatch.setattr(offsets, "monotonic_s", lambda: now[0])
    topic = kafka.create(2)
    kafka.produce(topic, [(0, value("a", 1, 5)), (0, value("a", 1, 95)), (1, value("b", 1, 7))])
    open_one = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": uuid.uuid4().hex, "log_level": 0})
    open_one.init_transactions()
    open_one.begin_transaction()
    open_one.produce(topic, value("b", 1, 8), partition=1)
    open_one.flush()
    kafka.produce(topic, [(1, value("b", 1, 9))])
    task = ByPage(WindowState(Sum(), tumbling(10)))
    one = job(kafka, topic, task=task, discard_closed=True, idle_timeout="300 ms")
    one.run(engine="embedded")
    now[0] += 10
    one.run(engine="embedded")
    assert newest(one).clock.watermark == 7
    open_one.commit_transaction()
    run_until(one, lambda: newest(one).accounts["1"].read == 3)
    assert newest(one).accounts["1"].late == 0 and newest(one).accounts["1"].read == 3


def test_a_restart_keeps_the_columns_and_tells_a_gap(kafka: KafkaServer) -> None:
    """Inferred again from the middle, a field that is rare there would vanish; deleted records would leave the sum."""
    state = NonWindowState(Sum(), interval_ms=10, history="1 h")
    topic = kafka.create(1)
    first = [(0, b'{"page": "a", "n": 1, "ts": %d, "rare": 1}' % (10 * n), {"timestamp": 10 * n}) for n in range(5)]
    rest = [(0, value("a", 1, 10 * n), {"timestamp": 10 * n}) for n in range(5, 10)]
    kafka.produce(topic, [*first, *rest])
    one = job(kafka, topic, task=ByPage(state), max_skew=0)
    one.run(engine="embedded")
    columns = only(newest(one).sources).recorded["schema"]
    restart(one, 50, outputs="again")
    one.run(engine="embedded")
    assert counted(one) == {"a": 10} and only(newest(one).sources).recorded["schema"] == columns
    assert verify_source(one, Log(one.storage).newest()).ok  # type: ignore[arg-type]
    kafka.truncate(topic, 0, 8)
    with pytest.raises(RetentionGap, match="the first kept record of partition 0 is not before"):
        restart(one, 50, outputs="again")


def test_a_step_without_records_that_was_killed_is_run_again(
    kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows no columns yet; every later run raised KeyError."""
    topic = kafka.create(1)
    kafka.produce(topic, rows(3))
    one = job(kafka, topic, start="latest")
    one.run(engine="embedded")
    kafka.grow(topic, 2)
    monkeypatch.setattr(Log, "put", _killed)
    with pytest.raises(Killed):
        one.run(engine="embedded")
    monkeypatch.undo()
    kafka.produce(topic, rows(30, 2))
    one.run(engine="embedded")
    one.run(engine="embedded")
    assert counted(one) == total(30)


def _killed(log: Log, manifest: Manifest) -> None:
    raise Killed("before the commit")


def test_no_setting_is_shown(kafka: KafkaServer) -> None:
    """Whatever librdkafka says of it, and under whatever name it was given."""
    for client in (
        {"security.protocol": "hunter2"},
        {"sasl.password=hunter2": ""},
        {**SASL, "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.config": "password=hunter2"},
    ):
        source = KafkaSource(kafka.guarded, "t", connect_timeout="1 s", client=client)
        with pytest.raises((InvalidPipeline, SourceError)) as raised:
            Pipeline(source=source, task=ByPage(), checkpoint=MemoryStorage(uuid.uuid4().hex)).run(engine="embedded")
        assert "hunter2" not in str(raised.value)


@pytest.mark.spark
def test_workers_of_spark_read_the_topic(kafka: KafkaServer, spark: Any, tmp_path: Path) -> None:
    """In processes of their own, each with a client of its own."""
    topic = kafka.create(3)
    kafka.produce(topic, rows(3_000, 3))
    one = job(kafka, topic, str(tmp_path / "checkpoint"), step_rows=1_000)
    one.run(spark)
    assert counted(one) == total(3_000)


class Unanswered:
    """An admin client that gives, of every question, the offset -1001 first: no answer, and no error."""

    def __init__(self, admin: Any) -> None:
        self.admin = admin
        self.asked: set[Any] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.admin, name)

    def list_offsets(self, wanted: Any, **more: Any) -> Any:
        question = str([type(spec).__name__ for spec in wanted.values()]), str(more)
        if question in self.asked:
            return self.admin.list_offsets(wanted, **more)
        self.asked.add(question)
        future: Any = Future()
        future.set_result(SimpleNamespace(offset=-1001))
        return dict.fromkeys(wanted, future)


def test_an_offset_that_was_not_answered_is_asked_for_again(kafka: KafkaServer) -> None:
    """The end at -1,001 would be a topic that was cut off; the first record of a time there, that none has come."""
    topic = kafka.create(1)
    kafka.produce(topic, [(0, value("a", n, n), {"timestamp": 1_000 * n + 1}) for n in range(5)])
    client = KafkaClient(Connection(kafka.bootstrap, {}, 30_000, 30_000))
    admin = Unanswered(client._admin_client())
    client._admin_client = lambda: admin  # type: ignore[method-assign]
    assert client.at_time(topic, ["0"], 2_000) == {"0": 2}
    assert client.at_time(topic, ["0"], 9_000) == {"0": 5}
    admin.asked.clear()
    assert client.kept(topic, ["0"]) == {"0": Kept(0, 5, 5)}
    assert len(admin.asked) == 3
