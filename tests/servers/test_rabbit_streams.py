"""A stream of a real RabbitMQ is read once, whatever happens to the broker, the stream and the driver."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from monoids import Sum
from persistent import NonWindowState, PersistentTask, Pipeline, RabbitStreamSource
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.connect.rabbitmq.stream_client import StreamClient
from persistent.connect.rabbitmq.stream_settings import stream_access
from persistent.connect.source import Budget, SourceState
from persistent.errors import RetentionGap, SourceChanged, SourceError, UserCodeError
from persistent.operations import restart
from persistent.storage import MemoryStorage
from persistent.verify import verify, verify_source
from tests.certificates import certificates
from tests.servers.proxy import Proxy
from tests.servers.queues import fresh_queue
from tests.servers.rabbit import RabbitServer
from tests.servers.streams import LOGIN, Streams
from tests.single import only

pytestmark = [pytest.mark.check, pytest.mark.timeout(600)]
SMALL = {"max_length_bytes": 20_000, "stream_max_segment_size_bytes": 10_000}
BIG = b"x" * 900


class ByPage(PersistentTask):
    """The sum of n by page."""

    key = "page"

    def persistent_state(self) -> Any:
        return NonWindowState(Sum(), interval_ms=10, history="1 day")

    def process_batch(self, state: Any, batch: Any) -> None:
        state.update_batch(batch.timestamps, batch["n"])


@pytest.fixture
def streams(rabbit: RabbitServer) -> Streams:
    return Streams(rabbit)


@pytest.fixture
def proxy(rabbit: RabbitServer) -> Iterator[Proxy]:
    found = Proxy(rabbit.stream_port)
    yield found
    found.close()


def value(page: str, n: int, ts: int = 0) -> bytes:
    return json.dumps({"page": page, "n": n, "ts": ts}).encode()


def rows(count: int) -> list[bytes]:
    return [value("abc"[number % 3], number, number) for number in range(count)]


def total(count: int, copies: int = 1) -> dict[str, int]:
    return {page: copies * sum(n for n in range(count) if "abc"[n % 3] == page) for page in "abc"}


def source(streams: Streams, names: Any, **options: Any) -> RabbitStreamSource:
    return RabbitStreamSource(options.pop("servers", streams.address), names, **{"client": LOGIN, **options})


def job(streams: Streams, names: Any, storage: Any = None, **options: Any) -> Pipeline:
    own = {name: options.pop(name) for name in ("step_rows", "on_error") if name in options}
    read = source(streams, names, **{"timestamp": "ts", "timestamp_unit": "ms", **options})
    storage = storage or MemoryStorage(uuid.uuid4().hex)
    return Pipeline(source=read, task=ByPage(), checkpoint=storage, **own)


def counted(pipeline: Pipeline) -> dict[str, int]:
    return {row["page"]: row["value"] for row in pipeline.state().to_pylist()}


def newest(pipeline: Pipeline) -> Manifest:
    entry = Log(pipeline.storage).newest()
    assert entry is not None
    return entry.manifest


def fill(streams: Streams, name: str, publisher: str | None = None) -> None:
    """So much that the first segments are deleted."""
    for number in range(8):
        streams.append(name, [BIG] * 10, at_once=10, publisher=publisher, first=1_000_000 + 100 * number)
        time.sleep(0.02)


def test_every_record_counts_once_and_the_job_goes_on(streams: Streams) -> None:
    """What came before, between and after two runs, in streams that share nothing."""
    names = [streams.create(), streams.create()]
    for name in names:
        streams.append(name, rows(3_000), at_once=70)
    one = job(streams, names, step_rows=700)
    assert one.run(engine="embedded").rows == 6_000
    assert counted(one) == total(3_000, 2)
    streams.append(names[1], rows(300))
    again = job(streams, names, one.storage)
    assert again.run(engine="embedded").rows == 300
    assert counted(again) == {page: total(3_000, 2)[page] + total(300)[page] for page in "abc"}
    assert only(newest(again).sources).positions == {names[0]: 3_000, names[1]: 3_300}
    assert again.run(engine="embedded").steps == 0
    assert verify(again.storage).ok and verify_source(again, Log(again.storage).newest()).ok  # type: ignore[arg-type]


@pytest.mark.parametrize("step_rows", [1, 2, 3, 5, 100])
def test_what_the_broker_notes_is_no_gap(streams: Streams, step_rows: int) -> None:
    """How far consumers are stands in the stream itself, and takes offsets; a split may begin and end on them."""
    name = streams.create()
    for number, row in enumerate(rows(6)):
        streams.append(name, [row])
        streams.note_offset(name, "somebody", number)
    one = job(streams, name, step_rows=step_rows)
    assert one.run(engine="embedded").rows == 6
    assert counted(one) == total(6)
    assert only(newest(one).sources).positions == {name: 11}, "the last note is behind what can be read"
    streams.append(name, rows(2))
    assert one.run(engine="embedded").rows == 2


@pytest.mark.parametrize("is_gone", [False, True])
def test_before_the_first_commit_another_stream_can_be_given(streams: Streams, is_gone: bool) -> None:
    """The plan of the wrong stream would be asked for its records for ever."""
    wrong, right = streams.create(), streams.create()
    streams.append(wrong, [b'{"page": "a", "n": "many", "ts": 0}'])
    streams.append(right, rows(30))
    one = job(streams, wrong)
    with pytest.raises(UserCodeError):
        one.run(engine="embedded")
    if is_gone:
        streams.delete(wrong)
    other = job(streams, right, one.storage)
    other.run(engine="embedded")
    assert counted(other) == total(30)


def test_what_is_deleted_before_it_was_read_is_a_gap(streams: Streams) -> None:
    """The broker begins with the first record that it has, and says nothing."""
    name = streams.create(**SMALL)
    streams.append(name, rows(3))
    one = job(streams, name)
    assert one.run(engine="embedded").rows == 3
    fill(streams, name)
    with pytest.raises(RetentionGap, match=rf"{name}.*next offset to read is 3, but the first that remains is \d+"):
        job(streams, name, one.storage).run(engine="embedded")
    streams.append(name, [value("a", 1_000)])
    passing = job(streams, name, one.storage, on_gap="earliest", on_error="dead-letter")
    passing.run(engine="embedded")
    assert counted(passing)["a"] == total(3)["a"] + 1_000
    account = newest(passing).account(name) if hasattr(newest(passing), "account") else None
    skipped = sum(one.skipped for one in newest(passing).accounts.values())
    assert (skipped > 3 and account is None) or skipped > 3


def test_a_latest_start_after_a_gap_reads_what_comes(streams: Streams) -> None:
    """It is asked for by name, and counted."""
    name = streams.create(**SMALL)
    streams.append(name, rows(3))
    one = job(streams, name)
    one.run(engine="embedded")
    fill(streams, name)
    passing = job(streams, name, one.storage, on_gap="latest")
    passing.run(engine="embedded")
    streams.append(name, [value("b", 7)])
    passing.run(engine="embedded")
    assert counted(passing)["b"] == total(3)["b"] + 7


def test_a_plan_whose_records_are_deleted_reads_no_others(streams: Streams) -> None:
    """Between plan and read the broker may delete them; it would send what comes later in their place."""
    name = streams.create(**SMALL)
    streams.append(name, rows(5))
    read = source(streams, name)
    plan = read.plan(SourceState({}), Budget(100))
    fill(streams, name)
    with pytest.raises(RetentionGap, match="deleted it since the step was planned"):
        list(read.read(plan.splits[0], plan.recorded))
    assert source(streams, name, on_gap="earliest").has_forgotten(plan.splits, plan.recorded)
    assert not read.has_forgotten(plan.splits, plan.recorded)


def _shorter(streams: Streams, name: str) -> None:
    streams.append(name, rows(2))


def _longer(streams: Streams, name: str) -> None:
    streams.append(name, [value("z", 1)] * 50, at_once=5)


def _empty(streams: Streams, name: str) -> None:
    """Nothing."""


@pytest.mark.parametrize("refill", [_shorter, _longer, _empty])
def test_a_stream_that_was_made_again_is_another_one(streams: Streams, refill: Callable[[Streams, str], None]) -> None:
    """Its offsets mean other records; the broker has no name for it that the first had not."""
    name = streams.create()
    streams.append(name, rows(20))
    one = job(streams, name)
    one.run(engine="embedded")
    plan = source(streams, name).plan(SourceState({}), Budget(10))
    streams.delete(name)
    streams.create(name)
    refill(streams, name)
    with pytest.raises(SourceChanged, match="deleted and created again"):
        job(streams, name, one.storage).run(engine="embedded")
    with pytest.raises(SourceChanged, match="deleted and created again"):
        source(streams, name).confirm(plan.recorded)


def test_a_split_of_a_stream_that_is_gone_ends(streams: Streams) -> None:
    """A reader of a stream that is shorter now is sent nothing, and would wait for ever."""
    name = streams.create()
    streams.append(name, rows(20))
    read = source(streams, name)
    plan = read.plan(SourceState({}), Budget(100))
    streams.delete(name)
    streams.create(name)
    with pytest.raises(SourceChanged, match="planned up to offset 20, but the stream ends at 0"):
        list(read.read(plan.splits[0], plan.recorded))


def test_from_a_point_in_time(streams: Streams) -> None:
    """By the clock of the broker: what it wrote before then is not read."""
    name = streams.create()
    streams.append(name, rows(5))
    time.sleep(0.05)
    client = StreamClient(stream_access(streams.address, LOGIN, "5 s", "5 s"))
    last = client.last(name)
    assert last is not None
    cut = last.timestamp + 1
    time.sleep(0.05)
    streams.append(name, [value("a", 100)])
    one = job(streams, name, start=time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(cut // 1_000)) + f".{cut % 1000:03}Z")
    one.run(engine="embedded")
    assert counted(one) == {"a": 100}
    assert client.at_time(name, 0) == 0 and client.at_time(name, cut) == 5
    assert client.at_time(name, cut + 3_600_000) == 6
    late = job(streams, name, start="latest")
    late.run(engine="embedded")
    streams.append(name, [value("b", 3)])
    late.run(engine="embedded")
    assert counted(late) == {"b": 3}


def test_a_restart_from_a_clock_finds_a_stream_that_was_made_again(streams: Streams) -> None:
    """The times are the broker's, the positions those of the new stream."""
    name = streams.create()
    streams.append(name, rows(20))
    one = job(streams, name)
    one.run(engine="embedded")
    streams.delete(name)
    streams.create(name)
    streams.append(name, rows(30))
    restart(one, 10, outputs="again")
    again = job(streams, name, one.storage)
    again.run(engine="embedded")
    assert counted(again) == total(30) and only(newest(again).sources).positions == {name: 30}


def test_every_record_that_cannot_be_decoded_is_a_dead_letter(streams: Streams) -> None:
    """It names its offset and why; the others count."""
    name = streams.create()
    streams.append(name, rows(2))
    streams.append_raw(name, [b"plain bytes", b"\x00\x53\x76\xc0\x02\x00\x00", b""])
    streams.append(name, [b"no json", value("a", 5)])
    one = job(streams, name)
    report = one.run(engine="embedded")
    assert counted(one)["a"] == 5 and report.rows == 7
    (account,) = newest(one).accounts.values()
    assert (account.processed, account.dead) == (3, 4)
    plan = source(streams, name).plan(SourceState({}), Budget(100))
    dead = [one for records in source(streams, name).read(plan.splits[0], plan.recorded) for one in records.dead]
    assert [one.offset for one in dead] == [2, 3, 4, 5]
    assert dead[0].data == b"plain bytes" and 'give encoding="raw"' in dead[0].reason
    assert "AMQP sequence" in dead[1].reason


def test_records_that_are_no_messages(streams: Streams) -> None:
    """As programs write them that speak to the plugin alone."""
    name = streams.create()
    streams.append_raw(name, rows(30))
    with pytest.raises(SourceError, match=r'not an AMQP 1.0 message. If its bytes are the value, give encoding="raw"'):
        job(streams, name).run(engine="embedded")
    one = job(streams, name, encoding="raw")
    one.run(engine="embedded")
    assert counted(one) == total(30)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"client": {"username": "dev", "password": "hunter2-of-dev"}}, "refuses the user or the password"),
        ({"client": {**LOGIN, "vhost": "nowhere"}}, "it does not exist"),
        ({"servers": "127.0.0.1:1"}, "rabbitmq-plugins enable rabbitmq_stream"),
        ({"client": {**LOGIN, "tls": True}}, "does the broker want TLS|TLS fails"),
    ],
)
def test_a_connection_that_cannot_be_says_what_to_correct(streams: Streams, options: dict[str, Any], said: str) -> None:
    """And no password."""
    name = streams.create()
    with pytest.raises(SourceError, match=said) as raised:
        job(streams, name, connect_timeout="2 s", **options).run(engine="embedded")
    assert "hunter2" not in str(raised.value) and LOGIN["password"] not in str(raised.value)


def test_the_port_of_amqp_and_a_stream_that_is_not_there(rabbit: RabbitServer, streams: Streams) -> None:
    """The two names that are mistaken most."""
    name = streams.create()
    with pytest.raises(SourceError, match="the port of streams, 5552, not that of AMQP"):
        job(streams, name, servers=f"127.0.0.1:{rabbit.port}", connect_timeout="2 s").run(engine="embedded")
    queue = fresh_queue(rabbit)
    for missing in ("nowhere", queue):
        text = rf"has no stream '{missing}'. Create it, or correct the name.* for RabbitQueueSource"
        with pytest.raises(SourceError, match=text):
            job(streams, missing, connect_timeout="2 s").run(engine="embedded")
    # A word of ours is not the password.
    with pytest.raises(SourceError, match=f"cannot find the end of stream '{name}' of"):
        job(streams, name, client={**LOGIN, "password": "stream"}, connect_timeout="2 s").run(engine="embedded")


def test_a_broker_with_tls(rabbit: RabbitServer, streams: Streams, tmp_path: Path) -> None:
    """What is read comes through it; a certificate of another authority, and a client without TLS, end the run."""
    name = streams.create()
    streams.append(name, rows(3_000), at_once=100)
    there = {"servers": f"127.0.0.1:{rabbit.stream_tls_port}", "connect_timeout": "2 s"}
    one = job(streams, name, client={**LOGIN, "tls": True, "ca": rabbit.keys.ca}, **there)
    assert one.run(engine="embedded").rows == 3_000 and counted(one) == total(3_000)
    other = certificates(tmp_path, "another authority")
    with pytest.raises(SourceError, match=r"its certificate is refused: .*client=\{'ca': 'ca.pem'\}"):
        job(streams, name, client={**LOGIN, "tls": True, "ca": other.ca}, **there).run(engine="embedded")
    with pytest.raises(SourceError, match=r"does the broker want TLS\?"):
        job(streams, name, **there).run(engine="embedded")


def test_an_empty_stream_has_nothing_to_read(streams: Streams) -> None:
    """Nor is it an error, if the columns are known."""
    name = streams.create()
    one = job(streams, name, schema={"page": "string", "n": "int64", "ts": "int64"})
    assert one.run(engine="embedded").rows == 0
    streams.append(name, rows(9))
    assert one.run(engine="embedded").rows == 9


@pytest.mark.parametrize("after_bytes", [1, 700, 30_000, 200_000])
def test_a_connection_that_is_cut_is_made_again(streams: Streams, proxy: Proxy, after_bytes: int) -> None:
    """In the middle of a chunk too."""
    name = streams.create()
    streams.append(name, rows(5_000), at_once=100)
    one = job(streams, name, servers=f"127.0.0.1:{proxy.port}", step_rows=1_500)
    proxy.cut(after_bytes)
    assert one.run(engine="embedded").rows == 5_000
    assert counted(one) == total(5_000) and proxy.cuts == 1


def test_a_broker_that_is_killed_under_way_is_waited_for(rabbit: RabbitServer, streams: Streams) -> None:
    """It comes back with all that it had confirmed."""
    name = streams.create()
    streams.append(name, rows(4_000), at_once=100)
    one = job(streams, name, step_rows=500, server_away="2 min")
    first = threading.Event()
    # The server lives as long as the thread that has started it.
    with ThreadPoolExecutor() as pool:
        running = pool.submit(one.run, engine="embedded", on_step=lambda report: first.set())
        assert first.wait(60)
        rabbit.kill()
        rabbit.restart()
        running.result(300)
    assert counted(one) == total(4_000)


def test_a_broker_that_stays_away_ends_the_run_at_its_checkpoint(streams: Streams, proxy: Proxy) -> None:
    """And says so, when it was to be waited for no longer."""
    name = streams.create()
    streams.append(name, rows(500), at_once=10)
    one = job(streams, name, servers=f"127.0.0.1:{proxy.port}", step_rows=100, server_away="2 s")
    with pytest.raises(SourceError, match=r"Nothing was lost, the last checkpoint is good"):
        one.run(engine="embedded", on_step=lambda report: proxy.close())
    again = job(streams, name, one.storage)
    again.run(engine="embedded")
    assert counted(again) == total(500)
