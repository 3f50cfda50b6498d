"""A queue is taken into a journal, and each of its messages counts as the mode says, whatever becomes of the broker."""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from monoids import Bag
from persistent import (
    Binding,
    Dedupe,
    Exchange,
    Fenced,
    InvalidPipeline,
    NonWindowState,
    PersistentTask,
    Pipeline,
    Queue,
    QueueEvent,
    RabbitQueueSource,
    RetentionGap,
    RunReport,
    SegmentedLog,
    SourceChanged,
    SourceError,
    Topology,
    UserCodeError,
)
from persistent.checkpoint.log import Log
from persistent.connect.rabbitmq.pump import Pump
from persistent.connect.source import Budget, SourceState
from persistent.messaging.log import writer
from persistent.operations import rollback, savepoint
from persistent.storage import open_storage
from persistent.time.clock import wall_ms
from persistent.verify import verify, verify_source
from tests.servers.proxy import Proxy
from tests.servers.queues import fresh_queue, ready, send, send_encoded, send_rows, wait_for
from tests.servers.rabbit import PASSWORD, RabbitServer

KINDS = ["classic", "quorum"]
BY_ID = Dedupe.by_id("_message_id")


class Numbers(PersistentTask):
    """Every number, with how often it counted."""

    key = ()

    def persistent_state(self) -> Any:
        return NonWindowState(Bag(int))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, message.value["n"])


def job(rabbit: RabbitServer, queue: str | Queue, folder: Path, *, dedupe: Any = BY_ID, **options: Any) -> Pipeline:
    """A job over the queue, with its journal and checkpoint in ``folder``."""
    url = options.pop("url", rabbit.url())
    given = {"journal": folder / "journal", "recovery_interval": "200 ms", "schema": {"n": "int64"}, **options}
    checkpoint, start = given.pop("checkpoint", folder / "checkpoint"), given.pop("start_from", None)
    source = RabbitQueueSource(url, queue, **given)
    task = Numbers()
    return Pipeline(source=source, task=task, checkpoint=checkpoint, step_rows=40, dedupe=dedupe, start_from=start)


def run(pipeline: Pipeline, **options: Any) -> RunReport:
    return pipeline.run(engine="embedded", **options)


def counted(pipeline: Pipeline) -> dict[int, int]:
    """How often each number counted."""
    return {pair["value"]: pair["count"] for row in pipeline.state().to_pylist() for pair in row["value"]}


def rows(begin: int, end: int) -> list[dict[str, int]]:
    return [{"n": n} for n in range(begin, end)]


def once(end: int, begin: int = 0) -> dict[int, int]:
    return dict.fromkeys(range(begin, end), 1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("acknowledge", ["journal", "checkpoint", "at-most-once"])
def test_all_that_a_queue_holds_counts_once(rabbit: RabbitServer, kind: str, acknowledge: str, tmp_path: Path) -> None:
    """A run would end too early, count twice, or leave in the queue what it has counted."""
    queue = fresh_queue(rabbit, kind)
    send_rows(rabbit, queue, rows(0, 100))
    pipeline = job(rabbit, queue, tmp_path, acknowledge=acknowledge, prefetch=30)
    assert run(pipeline).rows == 100
    assert run(pipeline).rows == 0
    send_rows(rabbit, queue, rows(100, 150))
    report = run(pipeline)
    assert (report.rows, report.duplicates, counted(pipeline)) == (50, 0, once(150))
    wait_for(lambda: ready(rabbit, queue) == 0, "something is left")
    with closing(rabbit.connect()) as connection:
        # Nothing is held either: then it would come again now.
        assert connection.channel().basic_get(queue)[0] is None


def test_a_signal_ends_a_run_while_the_broker_is_away(rabbit: RabbitServer, tmp_path: Path) -> None:
    """The run would end once the broker is back, or as the failure of a minute later; and be killed before."""
    queue, proxy = fresh_queue(rabbit), Proxy(rabbit.port)
    send_rows(rabbit, queue, rows(0, 10))

    def leave(step: Any) -> None:
        proxy.target = 1
        proxy.cut()

    def hear(event: QueueEvent) -> None:
        if event.kind == "lost":
            os.kill(os.getpid(), signal.SIGTERM)

    away = {"url": rabbit.url(port=proxy.port), "on_event": hear, "server_away": "60 s"}
    report = run(job(rabbit, queue, tmp_path, **away), follow=True, on_step=leave)
    proxy.close()
    assert report.stopped
    last = job(rabbit, queue, tmp_path)
    run(last)
    assert counted(last) == once(10)


@pytest.mark.parametrize("kind", KINDS)
def test_copies_count_once_and_messages_without_an_id_are_dead_letters(
    rabbit: RabbitServer, kind: str, tmp_path: Path
) -> None:
    """A publisher that retries sends a new message; one without an id cannot be judged, and must not be lost."""
    queue = fresh_queue(rabbit, kind)
    send(
        rabbit, queue, [("a", b'{"n": 1}'), ("b", b'{"n": 2}'), ("a", b'{"n": 1}'), (None, b'{"n": 3}'), ("c", b"oops")]
    )
    pipeline = job(rabbit, queue, tmp_path)
    report = run(pipeline)
    assert (report.rows, report.duplicates, report.dead, counted(pipeline)) == (5, 1, 2, {1: 1, 2: 1})
    reasons = sorted(pipeline.dead_letters()["reason"].to_pylist())
    assert any("_message_id" in reason for reason in reasons), reasons
    assert ready(rabbit, queue) == 0


@pytest.mark.parametrize("acknowledge", ["journal", "checkpoint"])
def test_a_message_that_comes_again_after_more_than_within_counts_once(
    rabbit: RabbitServer, acknowledge: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The driver dies before it acknowledges. An hour later newer messages come first, and the ids were forgotten."""
    queue = fresh_queue(rabbit, **{"x-max-priority": 9})
    send_rows(rabbit, queue, rows(0, 30))
    with monkeypatch.context() as dying:
        dying.setattr(Pump, "_acknowledge", lambda *tag: None)
        run(job(rabbit, queue, tmp_path, acknowledge=acknowledge, prefetch=30))
    wait_for(lambda: ready(rabbit, queue) == 30, "nothing comes again")
    send(rabbit, queue, [(str(n), b'{"n": %d}' % n) for n in range(30, 70)], priority=9)
    an_hour_ms = wall_ms() + 3_600_000
    monkeypatch.setattr(writer, "wall_ms", lambda: an_hour_ms)
    last = job(rabbit, queue, tmp_path, acknowledge=acknowledge)
    report = run(last)
    assert (report.duplicates, counted(last)) == (30, once(70))


def test_numbers_in_headers_may_come_in_any_order(rabbit: RabbitServer, tmp_path: Path) -> None:
    """A broker that delivers again does so in another order: a number that goes back is no copy."""
    queue = fresh_queue(rabbit)
    for number in (3, 1, 2, 1, 4):
        headers = {"sender": "till", "number": number}
        send(rabbit, queue, [(None, json.dumps({"n": number}).encode())], headers=headers)
    dedupe = Dedupe(origin="sender", sequence="number", restamped=True)
    pipeline = job(rabbit, queue, tmp_path, dedupe=dedupe, headers={"sender": "string", "number": "int64"})
    assert run(pipeline).duplicates == 1
    assert counted(pipeline) == {1: 1, 2: 1, 3: 1, 4: 1}


# -- when messages are acknowledged ------------------------------------------------------------------------------


def job_of(pipeline: Pipeline) -> str:
    newest = Log(pipeline.storage).newest()
    assert newest is not None
    return newest.manifest.job


def planned(source: RabbitQueueSource, position: int = 0, job: str = "job") -> int:
    """How far the journal goes beyond a checkpoint at ``position``."""
    recorded = {"journals": [source.journal.id], "job": job, "replaces": True} if position else {}
    state = SourceState({"journal": position} if position else {}, recorded, job=job)
    return int(source.plan(state, Budget(10_000)).end["journal"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_is_acknowledged_by_its_checkpoint(rabbit: RabbitServer, kind: str, tmp_path: Path) -> None:
    """Acknowledged earlier it is gone with the journal; held beyond prefetch, the memory of the client has no bound."""
    queue = fresh_queue(rabbit, kind)
    send_rows(rabbit, queue, rows(0, 100))
    options: Any = {"journal": tmp_path / "j", "schema": {"n": "int64"}, "acknowledge": "checkpoint", "prefetch": 30}
    source = RabbitQueueSource(rabbit.url(), queue, **options)
    with closing(source):
        assert planned(source) == 30
        assert planned(source) == 30, "more is held than prefetch allows"
        assert planned(source, 10) == 40
        assert planned(source, 40) == 70
    wait_for(lambda: ready(rabbit, queue) == 60, "what no checkpoint has counted is not in the queue")


def test_a_journaled_message_is_acknowledged_at_once(rabbit: RabbitServer, tmp_path: Path) -> None:
    """The broker would hold what is on our disk, and its consumer_timeout would go by our steps."""
    queue = fresh_queue(rabbit)
    send_rows(rabbit, queue, rows(0, 100))
    source = RabbitQueueSource(rabbit.url(), queue, journal=tmp_path / "j", schema={"n": "int64"}, prefetch=10)
    with closing(source):
        assert planned(source) == 100
    assert ready(rabbit, queue) == 0


def test_a_checkpoint_that_takes_too_long_is_told(rabbit: RabbitServer, tmp_path: Path) -> None:
    """The broker closes the channel after its consumer_timeout; nobody would know why."""
    queue = fresh_queue(rabbit)
    send_rows(rabbit, queue, rows(0, 3))
    options: Any = {"journal": tmp_path / "j", "schema": {"n": "int64"}, "acknowledge": "checkpoint"}
    source = RabbitQueueSource(rabbit.url(), queue, consumer_timeout="100 ms", **options)
    with closing(source):
        planned(source)
        wait_for(source.warnings, "no warning")
        assert "more than half of consumer_timeout, 0.1 s" in source.warnings()[0]


# -- the journal -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_lost_journal_loses_nothing_that_no_checkpoint_has_counted(
    rabbit: RabbitServer, kind: str, tmp_path: Path
) -> None:
    """The disk of a journal dies with a step planned over it: the broker still has all of that step."""
    queue = fresh_queue(rabbit, kind)
    send_rows(rabbit, queue, rows(0, 60))
    pipeline = job(rabbit, queue, tmp_path, acknowledge="checkpoint")
    run(pipeline)
    send_rows(rabbit, queue, rows(60, 90))
    source = pipeline.source
    assert isinstance(source, RabbitQueueSource)
    with closing(source):
        assert planned(source, 60, job_of(pipeline)) == 90
    shutil.rmtree(tmp_path / "journal")
    wait_for(lambda: ready(rabbit, queue) == 30, "what no checkpoint has counted is not in the queue")
    pipeline = job(rabbit, queue, tmp_path, acknowledge="checkpoint")
    report = run(pipeline)
    assert (report.rows, counted(pipeline)) == (30, once(90))
    assert set(report.ledger) == {"journal", "journal-2"}
    send_rows(rabbit, queue, rows(85, 95))
    assert run(pipeline).rows == 10
    assert counted(pipeline) == once(95)


def test_a_plan_over_a_lost_journal_is_replaced(rabbit: RabbitServer, tmp_path: Path) -> None:
    """A step that can never be read again would block the job for ever."""
    queue = fresh_queue(rabbit)
    send_rows(rabbit, queue, rows(0, 60))
    pipeline = job(rabbit, queue, tmp_path, acknowledge="checkpoint")

    class Dies(Numbers):
        name = "Numbers"

        def process_message(self, state: Any, message: Any) -> None:
            raise KeyboardInterrupt

    dying = Pipeline(source=pipeline.source, task=Dies(), checkpoint=pipeline.storage, step_rows=40, dedupe=BY_ID)
    with pytest.raises(KeyboardInterrupt):
        run(dying)
    shutil.rmtree(tmp_path / "journal")
    wait_for(lambda: ready(rabbit, queue) == 60, "what was planned is not in the queue")
    pipeline = job(rabbit, queue, tmp_path, acknowledge="checkpoint")
    run(pipeline)
    assert counted(pipeline) == once(60)


@pytest.mark.parametrize("schema", [None, {"n": "int64"}])
def test_a_step_that_failed_keeps_its_queue_and_journal(
    schema: dict[str, str] | None, rabbit: RabbitServer, tmp_path: Path
) -> None:
    """Its messages are acknowledged: they counted for another queue, or the run ended with an IndexError."""
    queue, other = fresh_queue(rabbit), fresh_queue(rabbit)
    send_rows(rabbit, queue, rows(0, 20))
    pipeline = job(rabbit, queue, tmp_path, schema=schema)

    class Fails(Numbers):
        name = "Numbers"

        def process_message(self, state: Any, message: Any) -> None:
            raise ValueError("no")

    with pytest.raises(UserCodeError):
        run(Pipeline(source=pipeline.source, task=Fails(), checkpoint=pipeline.storage, step_rows=40, dedupe=BY_ID))
    refused(job(rabbit, other, tmp_path, schema=schema), InvalidPipeline, f"the journal of the queue '{queue}'")
    moved = job(rabbit, queue, tmp_path, schema=schema, journal=tmp_path / "other")
    refused(moved, SourceChanged, "Give the source that journal")
    last = job(rabbit, queue, tmp_path, schema=schema)
    run(last)
    assert counted(last) == once(20)


def test_a_checkpoint_before_the_loss_is_refused(rabbit: RabbitServer, tmp_path: Path) -> None:
    """What it would read again was acknowledged, and went with the journal: it would be missing in silence."""
    queue = fresh_queue(rabbit)
    send_rows(rabbit, queue, rows(0, 80))
    pipeline = job(rabbit, queue, tmp_path, acknowledge="checkpoint")
    run(pipeline)
    shutil.rmtree(tmp_path / "journal")
    send_rows(rabbit, queue, rows(80, 90))
    run(job(rabbit, queue, tmp_path, acknowledge="checkpoint"))
    kept = [id for id in Log(pipeline.storage).ids() if Log(pipeline.storage).read(id).manifest.kind == "checkpoint"]
    for id, words in ((kept[1], "record 40 of the previous journal"), (0, "record 0 of the previous journal")):
        copy = shutil.copytree(tmp_path / "checkpoint", tmp_path / f"copy-{id}")
        rollback(open_storage(copy), id, outputs="again")
        with pytest.raises(RetentionGap, match=rf"a checkpoint .*{words} cannot continue .*replaced "):
            run(job(rabbit, queue, tmp_path, acknowledge="checkpoint", checkpoint=copy))


def test_a_journal_that_was_cut_off_serves_no_new_checkpoint(rabbit: RabbitServer, tmp_path: Path) -> None:
    """What was cut off would be missing in silence."""
    queue = fresh_queue(rabbit)
    for begin in range(0, 600, 200):
        send_rows(rabbit, queue, rows(begin, begin + 200))
        run(job(rabbit, queue, tmp_path))
    fresh = job(rabbit, queue, tmp_path, checkpoint=tmp_path / "new")
    assert isinstance(fresh.source, RabbitQueueSource)
    fresh.source.release_journal()
    with pytest.raises(RetentionGap, match=r"a checkpoint at record 0 cannot .*begins with record \d+.*a new journal="):
        run(fresh)


def test_a_journal_that_alone_had_the_messages_is_missed(rabbit: RabbitServer, tmp_path: Path) -> None:
    """To begin another one would be to go on without what only it had."""
    queue = fresh_queue(rabbit)
    send_rows(rabbit, queue, rows(0, 10))
    run(job(rabbit, queue, tmp_path))
    (tmp_path / "journal").rename(tmp_path / "elsewhere")
    with pytest.raises(SourceChanged, match=r"read the journal \w+, but .*journal holds none. Give the source that"):
        run(job(rabbit, queue, tmp_path))
    for acknowledge in ("journal", "checkpoint"):
        with SegmentedLog(tmp_path / "other").writer() as writer:
            writer.append(b"x")
        with pytest.raises(SourceChanged, match="Give the source that journal"):
            run(job(rabbit, queue, tmp_path, journal=tmp_path / "other", acknowledge=acknowledge))
    send_rows(rabbit, queue, rows(10, 20))
    moved = job(rabbit, queue, tmp_path, journal=tmp_path / "elsewhere")
    run(moved)
    assert counted(moved) == once(20)


@pytest.mark.parametrize("acknowledge", ["journal", "checkpoint"])
def test_an_older_copy_of_the_journal_is_not_filled_up(rabbit: RabbitServer, acknowledge: str, tmp_path: Path) -> None:
    """New messages would take the numbers of those that were counted, be acknowledged, and never count."""
    queue = fresh_queue(rabbit)
    send_rows(rabbit, queue, rows(0, 40))
    run(job(rabbit, queue, tmp_path, acknowledge=acknowledge))
    copy = shutil.copytree(tmp_path / "journal", tmp_path / "copy")
    send_rows(rabbit, queue, rows(40, 60))
    run(job(rabbit, queue, tmp_path, acknowledge=acknowledge))
    send_rows(rabbit, queue, rows(60, 90))
    with pytest.raises(SourceChanged, match=r"has read 60 records of .*copy has 40.*Nothing was taken"):
        run(job(rabbit, queue, tmp_path, acknowledge=acknowledge, journal=copy))
    assert ready(rabbit, queue) == 30
    pipeline = job(rabbit, queue, tmp_path, acknowledge=acknowledge)
    run(pipeline)
    assert counted(pipeline) == once(90)


def test_a_rollback_behind_a_lost_journal_is_refused(rabbit: RabbitServer, tmp_path: Path) -> None:
    """What was counted in between was acknowledged, and went with the journal: it would be missing in silence."""
    queue = fresh_queue(rabbit)
    send_rows(rabbit, queue, rows(0, 80))
    pipeline = job(rabbit, queue, tmp_path, acknowledge="checkpoint")
    run(pipeline)
    kept = [id for id in Log(pipeline.storage).ids() if Log(pipeline.storage).read(id).manifest.kind == "checkpoint"]
    shutil.rmtree(tmp_path / "journal")
    rollback(pipeline.storage, kept[1], outputs="again")
    send_rows(rabbit, queue, rows(80, 90))
    with pytest.raises(RetentionGap, match=r"record 40 of the previous journal .*of it 80 records had been counted"):
        run(job(rabbit, queue, tmp_path, acknowledge="checkpoint"))
    assert ready(rabbit, queue) == 10
    rollback(pipeline.storage, kept[2], outputs="again")
    run(job(rabbit, queue, tmp_path, acknowledge="checkpoint"))
    assert counted(pipeline) == once(90)
    assert verify(pipeline.storage).ok


def test_a_job_from_a_savepoint_needs_the_journal(rabbit: RabbitServer, tmp_path: Path) -> None:
    """The origin has acknowledged more since: with a journal of its own the new job would miss it in silence."""
    queue = fresh_queue(rabbit)
    send_rows(rabbit, queue, rows(0, 40))
    origin = job(rabbit, queue, tmp_path, acknowledge="checkpoint")
    run(origin)
    start = savepoint(origin.storage, "one")
    send_rows(rabbit, queue, rows(40, 80))
    run(job(rabbit, queue, tmp_path, acknowledge="checkpoint"))
    send_rows(rabbit, queue, rows(80, 90))
    options: Any = {"acknowledge": "checkpoint", "checkpoint": tmp_path / "heir", "start_from": start}
    with pytest.raises(RetentionGap, match=r"no other can take its place: .*Give the source that journal"):
        run(job(rabbit, queue, tmp_path, journal=tmp_path / "its own", **options))
    assert ready(rabbit, queue) == 10
    heir = job(rabbit, queue, tmp_path, **options)
    run(heir)
    assert counted(heir) == once(90)
    with pytest.raises(InvalidPipeline, match=r"another job .*may have started from this one"):
        run(job(rabbit, queue, tmp_path, acknowledge="checkpoint"))


def test_a_journal_has_one_queue_and_one_job(rabbit: RabbitServer, tmp_path: Path) -> None:
    """Each of two jobs, or of two sources of one, would count the messages of both queues."""
    queue, other = fresh_queue(rabbit), fresh_queue(rabbit)
    send_rows(rabbit, queue, rows(0, 10))
    send_rows(rabbit, other, rows(10, 20))
    pipeline = job(rabbit, queue, tmp_path)
    run(pipeline)
    with pytest.raises(InvalidPipeline, match=f"is the journal of the queue '{queue}' in the virtual host '/'"):
        run(job(rabbit, other, tmp_path, checkpoint=tmp_path / "other"))
    with pytest.raises(InvalidPipeline, match="is read by another job"):
        run(job(rabbit, queue, tmp_path, checkpoint=tmp_path / "other"))
    assert ready(rabbit, other) == 10
    run(job(rabbit, queue, tmp_path))
    assert counted(pipeline) == once(10)


def test_whoever_verifies_takes_nothing(rabbit: RabbitServer, tmp_path: Path) -> None:
    """It would take messages from a driver that runs, or fence it."""
    queue = fresh_queue(rabbit)
    send_rows(rabbit, queue, rows(0, 50))
    pipeline = job(rabbit, queue, tmp_path)
    run(pipeline)
    send_rows(rabbit, queue, rows(50, 60))
    entry = Log(pipeline.storage).newest()
    assert entry is not None
    assert verify_source(job(rabbit, queue, tmp_path), entry).findings == []
    assert ready(rabbit, queue) == 10


def test_the_journal_is_cut_off_behind_the_checkpoints(rabbit: RabbitServer, tmp_path: Path) -> None:
    """It would hold every message that ever came."""
    queue = fresh_queue(rabbit)
    pipeline = job(rabbit, queue, tmp_path)
    for begin in range(0, 600, 200):
        send_rows(rabbit, queue, rows(begin, begin + 200))
        run(pipeline)
    ends = SegmentedLog(tmp_path / "journal").ends()
    assert 0 < ends.first_number < ends.next_number == 600
    assert counted(pipeline) == once(600)


def test_who_was_fenced_acknowledges_nothing(rabbit: RabbitServer, tmp_path: Path) -> None:
    """A driver that slept would take messages from the queue that nobody reads."""
    queue = fresh_queue(rabbit)
    source = RabbitQueueSource(rabbit.url(), queue, journal=tmp_path / "j", schema={"n": "int64"})
    with closing(source):
        send_rows(rabbit, queue, rows(0, 5))
        assert planned(source) == 5
        writer = SegmentedLog(tmp_path / "j").writer()
        send_rows(rabbit, queue, rows(5, 9))
        with pytest.raises(Fenced):
            planned(source)
        writer.close()
    wait_for(lambda: ready(rabbit, queue) == 4, "it has acknowledged")


# -- the connection ----------------------------------------------------------------------------------------------


def follow(pipeline: Pipeline, while_: Callable[[], None], until: Callable[[], bool]) -> None:
    """Run it in this thread, do something meanwhile, and end it when it is done."""
    import os
    import signal

    done = threading.Event()
    failed: list[BaseException] = []

    def watch() -> None:
        try:
            while_()
            wait_for(until, "it does not come to an end")
        except BaseException as error:
            failed.append(error)
        finally:
            done.set()
            os.kill(os.getpid(), signal.SIGTERM)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        run(pipeline, follow=True)
    finally:
        watcher.join()
    assert not failed, failed


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("acknowledge", ["journal", "checkpoint"])
def test_a_connection_that_is_lost_is_made_again(
    rabbit: RabbitServer, kind: str, acknowledge: str, tmp_path: Path
) -> None:
    """A broker that is closed for a moment would end a run that follows for months; or its stale tags would."""
    events: list[QueueEvent] = []
    queue = Queue(fresh_queue(rabbit, kind), kind=kind)
    options: Any = {"acknowledge": acknowledge, "on_event": events.append, "prefetch": 50}
    pipeline = job(rabbit, queue, tmp_path, **options)

    def three_times() -> None:
        for begin in range(0, 300, 100):
            send_rows(rabbit, queue.name, rows(begin, begin + 100))
            rabbit.control("close_all_connections", "test")

    def is_done() -> bool:
        return events[-1].kind == "recovered" and counted_so_far(pipeline) == once(300)

    follow(pipeline, three_times, is_done)
    kinds = [event.kind for event in events]
    assert kinds == ["connected", *["lost", "recovered"] * kinds.count("lost")] and "lost" in kinds
    # What was taken and not yet acknowledged when a connection was lost comes again, and may come after the end.
    run(job(rabbit, queue, tmp_path, **options))
    assert counted_so_far(pipeline) == once(300)
    wait_for(lambda: ready(rabbit, queue.name) == 0, "something is left")


def counted_so_far(pipeline: Pipeline) -> dict[int, int]:
    return counted(pipeline) if Log(pipeline.storage).newest() is not None else {}


def test_a_broker_that_is_killed_under_way(rabbit: RabbitServer, tmp_path: Path) -> None:
    """What was delivered and not acknowledged comes again, and counts once."""
    queue = fresh_queue(rabbit, "quorum")
    source: Any = {"acknowledge": "checkpoint", "prefetch": 50}
    pipeline = job(rabbit, queue, tmp_path, **source)
    send_rows(rabbit, queue, rows(0, 200))
    first = pipeline.source
    with closing(first):
        first.plan(SourceState({}, job="job"), Budget(10))
        rabbit.kill()
        rabbit.restart()
    assert run(pipeline).duplicates > 0
    assert counted(pipeline) == once(200)


def test_exchanges_queues_and_bindings_are_declared_again(rabbit: RabbitServer, tmp_path: Path) -> None:
    """A broker that comes back without them would never give us anything more."""
    import pika

    events: list[QueueEvent] = []
    exchange = fresh_queue(rabbit)
    topology = Topology(exchanges=[Exchange(exchange, durable=False)], bindings=[Binding(exchange, "", "view")])
    options: Any = {"acknowledge": "at-most-once", "topology": topology, "on_event": events.append}
    source = RabbitQueueSource(
        rabbit.url(), Queue(""), journal=tmp_path / "j", schema={"n": "int64"}, recovery_interval="200 ms", **options
    )

    def publish(number: int) -> None:
        with closing(rabbit.connect()) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.basic_publish(exchange, "view", b'{"n": %d}' % number, pika.BasicProperties(), mandatory=True)

    with closing(source):
        assert planned(source) == 0
        publish(1)
        wait_for(lambda: planned(source) == 1, "the first has not come")
        rabbit.kill()
        rabbit.restart()
        wait_for(lambda: any(event.kind == "recovered" for event in events), "it has not recovered")
        publish(2)
        wait_for(lambda: planned(source, 1) == 2, "the second has not come")
    kinds = [event.kind for event in events]
    assert kinds[:2] == ["connected", "lost"] and kinds[-2:] == ["renamed", "recovered"]
    assert "amq.gen-" in events[-2].text


def test_a_single_active_consumer_has_drivers_in_reserve(rabbit: RabbitServer, tmp_path: Path) -> None:
    """Two at once would each have a part of the messages, in no order."""
    queue = Queue(fresh_queue(rabbit, **{"x-single-active-consumer": True}), single_active_consumer=True)
    sources = [RabbitQueueSource(rabbit.url(), queue, journal=tmp_path / name, schema={"n": "int64"}) for name in "ab"]
    with closing(sources[1]) as reserve:
        with closing(sources[0]) as first:
            assert planned(first) == 0
            reserve.plan(SourceState({}, job="job"), Budget(10), follow=True)
            send_rows(rabbit, queue.name, rows(0, 10))
            assert planned(first) == 10
            assert reserve.journal.ends().next_number == 0
        send_rows(rabbit, queue.name, rows(10, 20))
        wait_for(lambda: planned(reserve) == 10, "the next one has not taken over")


# -- bad input ---------------------------------------------------------------------------------------------------


def refused(pipeline: Pipeline, kind: type[Exception], *words: str) -> None:
    with pytest.raises(kind) as raised:
        run(pipeline)
    for word in words:
        assert word in str(raised.value), str(raised.value)
    assert PASSWORD not in str(raised.value) and "nope" not in str(raised.value)


def test_what_the_broker_refuses_is_said_at_once(rabbit: RabbitServer, tmp_path: Path) -> None:
    """A run would try again for minutes, or end with the words of a client."""
    queue = fresh_queue(rabbit)
    send_rows(rabbit, queue, rows(0, 3))

    def refuses(queue: str | Queue, *words: str, **options: Any) -> None:
        refused(job(rabbit, queue, tmp_path, **options), SourceError, *words, "stay in the queue")

    refuses(queue, "ACCESS_REFUSED", "give a valid user and password in url=", url=rabbit.url(password="nope"))
    refuses(queue, "vhost none not found", "the virtual host does not exist", url=rabbit.url(vhost="none"))
    url = rabbit.url(user="nobody", password="no")
    refuses(queue, "(403) 'ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN", url=url)
    refuses("gone", "no queue 'gone'", "create it, or name it in topology=")
    refuses(Queue(queue, kind="quorum"), "inequivalent arg", "it exists with other arguments")
    refuses(queue, "no exchange 'gone'", topology=Topology(bindings=[Binding("gone", queue)]))
    other = Exchange("amq.direct", "topic")
    refuses(queue, "it exists with other arguments", topology=Topology(exchanges=[other]))
    taken = fresh_queue(rabbit)
    with closing(rabbit.connect()) as connection:
        connection.channel().basic_consume(taken, lambda *message: None, exclusive=True)
        refuses(taken, "in exclusive use", "another consumer has the queue for itself: end that one")
    assert ready(rabbit, queue) == 3
    pipeline = job(rabbit, queue, tmp_path)
    run(pipeline)
    assert counted(pipeline) == once(3)


@pytest.mark.parametrize("declared", [False, True], ids=["named", "declared"])
def test_a_stream_is_no_queue(rabbit: RabbitServer, declared: bool, tmp_path: Path) -> None:
    """A consumer of a queue begins at the end of a stream: the run would read nothing, and blame another consumer."""
    name, said = fresh_queue(rabbit), {"x-queue-type": "stream"}
    with closing(rabbit.connect()) as connection:
        channel = connection.channel()
        channel.queue_delete(name)
        channel.queue_declare(name, durable=True, arguments=said)
        channel.confirm_delivery()
        channel.basic_publish("", name, b'{"n": 1}')
    pipeline = job(rabbit, Queue(name, arguments=said) if declared else name, tmp_path)
    refused(pipeline, SourceError, f"queue '{name}'", "it is a stream, not a queue: read it with RabbitStreamSource")


def test_a_broker_that_is_not_there_is_waited_for_and_named(rabbit: RabbitServer, tmp_path: Path) -> None:
    """The first connection is not one that is recovered; the error says what to start."""
    pipeline = job(rabbit, "q", tmp_path, url=rabbit.url(port=1), connect_timeout="500 ms")
    refused(pipeline, SourceError, "no broker has answered for 0.5 s", "127.0.0.1:1", "Connection refused", "Start it")


def test_a_queue_that_is_deleted_under_way_ends_the_run(rabbit: RabbitServer, tmp_path: Path) -> None:
    """The consumer would wait for ever, at a queue that is no more."""
    queue = fresh_queue(rabbit)
    send_rows(rabbit, queue, rows(0, 3))
    source = RabbitQueueSource(rabbit.url(), queue, journal=tmp_path / "j", schema={"n": "int64"})
    with closing(source):
        assert planned(source) == 3
        with closing(rabbit.connect()) as connection:
            connection.channel().queue_delete(queue)
        with pytest.raises(SourceError, match=r"the queue was deleted|no queue"):
            while True:
                planned(source, 3)


def test_a_message_that_is_too_large_stops_the_run_and_stays(rabbit: RabbitServer, tmp_path: Path) -> None:
    """It would be lost, or block the queue without a word."""
    queue = fresh_queue(rabbit)
    send(rabbit, queue, [("large", b" " * (16 << 20))])
    refused(
        job(rabbit, queue, tmp_path),
        SourceError,
        "16,777,",
        "a journal accepts at most 16,777,216",
        "stays in the queue",
    )
    wait_for(lambda: ready(rabbit, queue) == 1, "it is gone")


def test_a_message_that_is_too_large_is_a_dead_letter_if_asked_for(rabbit: RabbitServer, tmp_path: Path) -> None:
    """It and all behind it would wait until somebody takes it out of the queue."""
    queue = fresh_queue(rabbit)
    send(rabbit, queue, [("large", b"x" * (16 << 20))])
    send_rows(rabbit, queue, rows(0, 5))
    pipeline = job(rabbit, queue, tmp_path, on_oversized="dead-letter")
    report = run(pipeline)
    assert (report.dead, counted(pipeline)) == (1, once(5))
    (letter,) = pipeline.dead_letters().to_pylist()
    assert "all but its first 1,048,576 bytes is lost" in letter["reason"]
    assert ready(rabbit, queue) == 0


HEADERS, MESSAGE_ID = 1 << 13, 1 << 7


def encoded(id: bytes, *headers: bytes) -> bytes:
    """Properties: these headers, and the id of the message."""
    table = b"".join(headers)
    return struct.pack(">HI", HEADERS | MESSAGE_ID, len(table)) + table + bytes([len(id)]) + id


def test_a_poison_message_costs_itself_at_most(rabbit: RabbitServer, tmp_path: Path) -> None:
    """One message that the client cannot decode, or a journal cannot hold, would end every run that receives it."""
    queue = fresh_queue(rabbit)
    send_rows(rabbit, queue, rows(0, 2))
    send_encoded(rabbit, queue, b'{"n": 2}', encoded(b"2", b"\x04whenT" + struct.pack(">Q", 1_700_000_000_000)))
    send_encoded(rabbit, queue, b'{"n": 3}', encoded(b"3", b"\x04whenT" + b"\xff" * 8, b"\x04halfd" + b"\x7f" * 8))
    send_encoded(rabbit, queue, b'{"n": 4}', encoded(b"4", b"\x04caf\xe9t\x01"))
    send_encoded(rabbit, queue, b'{"n": 5}', encoded(b"5", b"\x10x-delivery-countS\x00\x00\x00\x01a"))
    send_encoded(rabbit, queue, b'{"n": 99}', encoded(b"caf\xe9"))
    send_rows(rabbit, queue, rows(6, 8))
    pipeline = job(rabbit, queue, tmp_path)
    report = run(pipeline)
    # An id that is not UTF-8 is none.
    assert (report.rows, report.dead, counted(pipeline)) == (9, 1, once(8))
    assert ready(rabbit, queue) == 0


def test_a_header_keeps_its_fraction(rabbit: RabbitServer, tmp_path: Path) -> None:
    """The client cuts a float down to an integer: every sum over it would be wrong."""
    queue = fresh_queue(rabbit)
    send_encoded(rabbit, queue, b'{"n": 1}', encoded(b"1", b"\x05priced" + struct.pack(">d", 1.75)))
    options: Any = {"journal": tmp_path / "j", "schema": {"n": "int64"}, "headers": {"price": "double"}}
    with closing(RabbitQueueSource(rabbit.url(), queue, **options)) as source:
        plan = source.plan(SourceState({}, job="job"), Budget(10))
        (records,) = source.read(plan.splits[0], plan.recorded)
    assert records.batch.column("price").to_pylist() == [1.75]


def test_a_routing_key_that_is_not_utf8_is_null(rabbit: RabbitServer, tmp_path: Path) -> None:
    """Its bytes would end every run; replaced, two keys would be one."""
    queue, exchange = fresh_queue(rabbit), fresh_queue(rabbit)
    with closing(rabbit.connect()) as connection:
        channel = connection.channel()
        channel.exchange_declare(exchange, "fanout")
        channel.queue_bind(queue, exchange)
        channel.basic_publish(exchange, b"caf\xe9", b'{"n": 1}')
    with closing(RabbitQueueSource(rabbit.url(), queue, journal=tmp_path / "j", schema={"n": "int64"})) as source:
        plan = source.plan(SourceState({}, job="job"), Budget(10))
        (records,) = source.read(plan.splits[0], plan.recorded)
    assert records.batch.column("_routing_key").to_pylist() == [None]


def test_a_message_that_was_delivered_often_is_told(rabbit: RabbitServer, tmp_path: Path) -> None:
    """At the limit of a quorum queue it is deleted: who runs the job must know before."""
    queue = fresh_queue(rabbit, "quorum")
    send_rows(rabbit, queue, rows(0, 1))
    for _ in range(3):
        with closing(rabbit.connect()) as connection:
            channel = connection.channel()
            assert next(channel.consume(queue, inactivity_timeout=60))[0] is not None
    report = run(job(rabbit, queue, tmp_path))
    assert any("has delivered a message 4 times" in note for note in report.notes), report.notes


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"queue": ""}, r"queue='': give the name"),
        ({"queue": Queue("")}, r"at-most-once"),
        ({"queue": Queue("q", kind="quorum", delivery_limit=3)}, r"delivery_limit=3 deletes messages for good"),
        ({"acknowledge": "never"}, r"acknowledge='never'"),
        ({"prefetch": 0}, r"prefetch=0: give 1 to 65,535"),
        ({"prefetch": True}, r"prefetch=True"),
        ({"topology": ["q"]}, r"topology=\['q'\]: give Topology"),
        ({"consumer_timeout": "soon"}, "consumer_timeout"),
        ({"format": "csv"}, "format='csv'"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], match: str, tmp_path: Path) -> None:
    """They would fail in a thread, or lose messages."""
    given = {"queue": "q", "journal": tmp_path / "j", **options}
    with pytest.raises(InvalidPipeline, match=match):
        RabbitQueueSource("amqp://localhost", given.pop("queue"), **given)
