"""Each row is a message that the broker has confirmed, and one that is sent again has the same id."""

from __future__ import annotations

import json
import pickle
import threading
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from monoids import Count
from persistent import (
    Binding,
    Dedupe,
    Exchange,
    InvalidPipeline,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    Queue,
    RabbitQueueSink,
    RabbitQueueSource,
    StorageError,
    Topology,
    WindowState,
    tumbling,
)
from persistent.connect.rabbitmq.link import LinkLost, LinkRefused, RabbitPlace, patience
from persistent.connect.rabbitmq.queue_sink import Outgoing, Publisher, Unroutable
from persistent.errors import Stopped
from persistent.time.clock import StopRequest, heard
from tests.servers.proxy import Proxy
from tests.servers.queues import fresh_queue, send, taken, wait_for
from tests.servers.rabbit import PASSWORD, RabbitServer

PAGE = Path(__file__).parents[2] / "docs" / "connectors" / "rabbitmq.md"
KINDS = ["classic", "quorum"]
ROWS = [{"ts": 1_000 * n, "page": f"p{n}"} for n in range(30)]
END = {"ts": 1_000_000, "page": "end"}


class Visits(PersistentTask):
    """Visits of pages, by minute."""

    key = "page"

    def persistent_state(self) -> Any:
        return WindowState(Count(), tumbling("1 min"))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


def job(sink: RabbitQueueSink, folder: Path) -> Pipeline:
    source = MemorySource([*ROWS, END], ordered=True)
    return Pipeline(source=source, task=Visits(), sink=sink, checkpoint=folder / "checkpoint")


def sink(rabbit: RabbitServer, routing_key: str, **options: Any) -> RabbitQueueSink:
    url = options.pop("url", rabbit.url())
    given = {"connect_timeout": "1 s", "server_away": "1 s", "recovery_interval": "100 ms", **options}
    return RabbitQueueSink(url, routing_key, **given)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_is_a_persistent_message_with_an_id(rabbit: RabbitServer, kind: str, tmp_path: Path) -> None:
    """Consumers could not drop what is sent again; a broker that stops would lose it."""
    queue = fresh_queue(rabbit, kind)
    pipeline = job(sink(rabbit, queue), tmp_path)
    assert pipeline.guarantee().startswith("at-least-once: a message whose confirmation is lost is sent again")
    pipeline.run(engine="embedded", end_of_input=True)
    found = taken(rabbit, queue)
    assert {json.loads(body)["page"] for _, body in found} == {f"p{n}" for n in range(30)} | {"end"}
    assert {json.loads(body)["revision"] for _, body in found} == {found[0][1] and json.loads(found[0][1])["revision"]}
    assert {(one.delivery_mode, one.content_type) for one, _ in found} == {(2, "application/json")}
    ids = [one.message_id for one, _ in found]
    sequences = [one.headers["sequence"] for one, _ in found]
    (origin,) = {one.headers["origin"] for one, _ in found}
    number = sequences[0] >> 32
    assert ids == [f"{origin}-{number}-{row}" for row in range(31)]
    assert sequences == [number << 32 | row for row in range(31)]


def test_a_job_that_follows_drops_what_is_sent_again(rabbit: RabbitServer, tmp_path: Path) -> None:
    """Two jobs with a queue between them: what the first sends twice counts once in the second."""
    queue = fresh_queue(rabbit)
    job(sink(rabbit, queue), tmp_path).run(engine="embedded", end_of_input=True)
    found = taken(rabbit, queue)
    for one, body in [*found, *found[:7]]:
        send(rabbit, queue, [(one.message_id, body)], headers=one.headers)

    class Rows(PersistentTask):
        key = ()

        def persistent_state(self) -> Any:
            return NonWindowState(Count())

        def process_message(self, state: Any, message: Any) -> None:
            state.update(message.timestamp, 1)

    headers = {"origin": "string", "sequence": "int64"}
    source = RabbitQueueSource(rabbit.url(), queue, journal=tmp_path / "journal", headers=headers)
    dedupe = Dedupe(origin="origin", sequence="sequence", restamped=True)
    second = Pipeline(source=source, task=Rows(), checkpoint=tmp_path / "second", dedupe=dedupe)
    assert second.guarantee().startswith("exactly-once")
    assert second.run(engine="embedded").duplicates == 7
    assert second.state().to_pylist() == [{"value": 31}]


def test_each_run_publishes_the_last_batch_again(rabbit: RabbitServer, tmp_path: Path) -> None:
    """The page says so: a consumer that does not drop copies counts it twice, and one that does needs the same ids."""
    queue, ids = fresh_queue(rabbit), []
    for _ in range(2):
        job(sink(rabbit, queue), tmp_path).run(engine="embedded", end_of_input=True)
        ids.append([properties.message_id for properties, _ in taken(rabbit, queue)])
    assert ids[0] == ids[1] and len(ids[0]) == 31
    assert "publishes the last batch of the run before again" in PAGE.read_text()


def test_an_exchange_with_what_is_bound_to_it(rabbit: RabbitServer, tmp_path: Path) -> None:
    """What the sink declares is there before the first message."""
    exchange, queue = fresh_queue(rabbit), fresh_queue(rabbit)
    topology = Topology(
        exchanges=[Exchange(exchange, "topic")], queues=[Queue(queue)], bindings=[Binding(exchange, queue, "visits.#")]
    )
    job(sink(rabbit, "visits.daily", exchange=exchange, topology=topology), tmp_path).run(
        engine="embedded", end_of_input=True
    )
    assert len(taken(rabbit, queue)) == 31


def publisher(rabbit: RabbitServer, queue: str, **options: Any) -> Publisher:
    waits = patience("10 s", "60 s", "200 ms")
    return Publisher(RabbitPlace(rabbit.url()), "", queue, Topology(), waits, options.get("confirm_ms", 5_000))


@pytest.mark.parametrize("kind", KINDS)
def test_a_broker_that_is_killed_under_way_loses_nothing(rabbit: RabbitServer, kind: str) -> None:
    """What was not confirmed may be stored or not: it is sent again, and nothing else is."""
    killed = threading.Event()

    class Killing(Publisher):
        """Kills the broker in the midst of what it sends."""

        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value)
            if name == "confirmed" and value == 1_000:
                rabbit.kill()
                killed.set()

    queue = fresh_queue(rabbit, kind)
    one, ids = publisher(rabbit, queue), [f"m-{n}" for n in range(40_000)]
    one.__class__ = Killing
    failed: list[BaseException] = []

    def publish() -> None:
        try:
            one.publish([Outgoing(id, b"{}", {}) for id in ids])
        except BaseException as error:
            failed.append(error)

    worker = threading.Thread(target=publish)
    worker.start()
    assert killed.wait(60), "nothing is confirmed"
    rabbit.restart()
    worker.join()
    assert not failed, failed
    found = [properties.message_id for properties, _ in taken(rabbit, queue)]
    assert set(found) == set(ids)
    assert one.resent and len(found) - len(ids) <= one.resent


class Publishing:
    """Publishes in a thread of its own. ``failed``: what it raised."""

    def __init__(self, one: Publisher, count: int, request: StopRequest | None = None) -> None:
        self._one, self._count, self._request = one, count, request or StopRequest()
        self.failed: list[BaseException] = []
        self.thread = threading.Thread(target=self._publish, daemon=True)
        self.thread.start()

    def _publish(self) -> None:
        try:
            with heard(self._request, 0):
                self._one.publish([Outgoing(f"m-{n}", b"{}", {}) for n in range(self._count)])
        except BaseException as error:
            self.failed.append(error)


def test_a_broker_that_comes_back_may_have_its_queues_later(rabbit: RabbitServer) -> None:
    """It answered that a message has no queue, and then confirmed it: the run ended, or the message was lost."""
    queue, proxy, ids = f"later-{uuid.uuid4().hex}", Proxy(rabbit.port), {f"m-{n}" for n in range(3_000)}
    place = RabbitPlace(rabbit.url(port=proxy.port))
    one = Publisher(place, "", queue, Topology(), patience("60 s", "60 s", "100 ms"), 5_000)
    with pytest.raises(Unroutable, match="NO_ROUTE"):
        one.publish([Outgoing("m", b"{}", {})])
    proxy.target = 1
    proxy.cut()
    second = Publishing(one, len(ids))
    second.thread.join(0.5)
    proxy.target = rabbit.port
    second.thread.join(1)
    assert second.thread.is_alive(), second.failed
    with closing(rabbit.connect()) as connection:
        connection.channel().queue_declare(queue, durable=True)
    second.thread.join(30)
    proxy.close()
    assert not second.failed and {properties.message_id for properties, _ in taken(rabbit, queue)} == ids


def test_a_broker_that_goes_away_under_way_is_waited_for_as_long_as_was_said(rabbit: RabbitServer) -> None:
    """The short wait of a run that begins would end each run whose broker restarts between two batches."""
    queue, proxy = fresh_queue(rabbit), Proxy(rabbit.port)
    place = RabbitPlace(rabbit.url(port=proxy.port))
    one = Publisher(place, "", queue, Topology(), patience("300 ms", "60 s", "100 ms"), 5_000)
    one.publish([Outgoing("first", b"{}", {})])
    proxy.target = 1
    proxy.cut()
    second = Publishing(one, 1)
    second.thread.join(2)
    assert second.thread.is_alive(), second.failed
    proxy.target = rabbit.port
    second.thread.join(30)
    proxy.close()
    assert not second.failed and one.confirmed == 2


@pytest.mark.parametrize("declares", [False, True])
@pytest.mark.parametrize("stops", [False, True])
def test_a_broker_that_stands_still_holds_nobody_longer_than_was_said(
    rabbit: RabbitServer, declares: bool, stops: bool
) -> None:
    """Only its missing heartbeats would end the wait, after a minute and more, whatever the limit and whoever asks."""
    queue, request = fresh_queue(rabbit), StopRequest()
    topology = Topology(queues=[Queue(queue)]) if declares else Topology()
    waits = patience("10 s", "60 s" if stops else "2 s", "100 ms")
    one = Publisher(RabbitPlace(rabbit.url()), "", queue, topology, waits, 1_000)
    running = Publishing(one, 200_000, request)
    wait_for(lambda: one.confirmed > 1_000 or running.failed, "nothing is confirmed")
    rabbit.pause()
    try:
        if stops:
            request.make()
        running.thread.join(12)
        assert [type(error) for error in running.failed] == [Stopped if stops else LinkLost], running.failed
    finally:
        rabbit.resume()


def test_what_is_refused_is_sent_again_until_there_is_room(rabbit: RabbitServer) -> None:
    """A nack is no answer: a queue that was full for a moment would cost rows."""
    queue = fresh_queue(rabbit, **{"x-max-length": 5, "x-overflow": "reject-publish"})
    one = publisher(rabbit, queue, confirm_ms=100)
    worker = threading.Thread(target=lambda: one.publish([Outgoing(f"m-{n}", b"{}", {}) for n in range(12)]))
    worker.start()
    wait_for(lambda: one.resent, "nothing was refused")
    found: set[str] = set()
    while len(found) < 12:
        found |= {properties.message_id for properties, _ in taken(rabbit, queue)}
    worker.join()
    assert one.confirmed == 12


def refused(sink: RabbitQueueSink, folder: Path, *words: str) -> None:
    with pytest.raises(StorageError) as raised:
        job(sink, folder).run(engine="embedded", end_of_input=True)
    for word in (*words, "are kept, and the next run publishes them again"):
        assert word in str(raised.value), str(raised.value)
    assert PASSWORD not in str(raised.value) and "nope" not in str(raised.value)


def test_what_cannot_be_published_is_kept(rabbit: RabbitServer, tmp_path: Path) -> None:
    """A message that nobody takes is confirmed by the broker all the same; its row would be gone."""
    queue = fresh_queue(rabbit)
    full = fresh_queue(rabbit, **{"x-max-length": 1, "x-overflow": "reject-publish"})
    refused(sink(rabbit, "nobody"), tmp_path, "NO_ROUTE", "no queue accepts it. Create the queue, or bind it")
    refused(sink(rabbit, queue, exchange="gone"), tmp_path, "no exchange 'gone'", "create it")
    refused(sink(rabbit, queue, topology=Topology(queues=[Queue(queue, kind="quorum")])), tmp_path, "other arguments")
    refused(sink(rabbit, full, confirm_timeout="50 ms"), tmp_path, "30 messages were refused", "a queue is full")
    refused(sink(rabbit, queue, url=rabbit.url(password="nope")), tmp_path, "ACCESS_REFUSED", "password in url=")
    refused(sink(rabbit, queue, url=rabbit.url(vhost="none")), tmp_path, "vhost none not found")
    refused(sink(rabbit, queue, url=rabbit.url(port=1)), tmp_path, "Connection refused", "Start it")
    assert taken(rabbit, queue) == []
    job(sink(rabbit, queue), tmp_path).run(engine="embedded", end_of_input=True)
    assert len(taken(rabbit, queue)) == 31


def test_a_row_that_is_too_large_stops_the_run_before_its_checkpoint(rabbit: RabbitServer, tmp_path: Path) -> None:
    """The broker refuses it after the commit: no run could publish it, nor anything behind it."""
    queue = fresh_queue(rabbit)
    with pytest.raises(InvalidPipeline, match=r"page='.* is a message of 1\d\d bytes, and max_message_bytes=99. Make"):
        job(sink(rabbit, queue, max_message_bytes=99), tmp_path).run(engine="embedded", end_of_input=True)
    assert taken(rabbit, queue) == []
    job(sink(rabbit, queue), tmp_path).run(engine="embedded", end_of_input=True)
    assert len(taken(rabbit, queue)) == 31


def test_the_broker_has_the_last_word_on_the_size_of_a_message(rabbit: RabbitServer) -> None:
    """Its own words do not say that the sink can find such a row before it is committed."""
    queue = fresh_queue(rabbit)
    rabbit.control("eval", "application:set_env(rabbit, max_message_size, 1000).")
    try:
        with pytest.raises(LinkRefused, match=r"larger than configured max size 1000: raise max_message_size.*"):
            publisher(rabbit, queue).publish([Outgoing("m", b" " * 2_000, {})])
    finally:
        rabbit.control("eval", "application:set_env(rabbit, max_message_size, 134217728).")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"max_message_bytes": 0}, "give the max_message_size of the broker"),
        ({"max_message_bytes": "1 MB"}, "give the max_message_size of the broker"),
        ({"routing_key": ""}, r"routing_key='', exchange='': give the name of a queue"),
        ({"routing_key": 3}, "give the name of a queue"),
        ({"confirm_timeout": "soon"}, "confirm_timeout"),
        ({"server_away": "soon"}, "server_away"),
        ({"topology": Queue("q")}, "give Topology"),
        ({"url": "localhost"}, "url= cannot be parsed"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], match: str) -> None:
    """They would fail after the first checkpoint."""
    given = {"url": "amqp://localhost", "routing_key": "q", **options}
    with pytest.raises(InvalidPipeline, match=match):
        RabbitQueueSink(given.pop("url"), given.pop("routing_key"), **given)


def test_a_queue_is_not_read_and_written_by_one_job(rabbit: RabbitServer, tmp_path: Path) -> None:
    """Its results would be its input."""
    source = RabbitQueueSource(rabbit.url(), "q", journal=tmp_path / "j")
    pipeline = Pipeline(source=source, task=Visits(), sink=sink(rabbit, "q"), checkpoint=tmp_path / "c")
    with pytest.raises(InvalidPipeline, match=r"writes where .* reads"):
        pipeline.run(engine="embedded")


def test_it_travels_without_a_connection() -> None:
    """A sink is sent to workers, which look at its rows."""
    again = pickle.loads(pickle.dumps(RabbitQueueSink("amqp://app:secret@localhost", "q")))
    assert repr(again) == "RabbitQueueSink('amqp://localhost', 'q')"
