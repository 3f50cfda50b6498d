"""A topic behind a pipeline: each message counts once, whoever dies, and what was lost is a dead letter."""

from __future__ import annotations

import gc
import pickle
import time
import uuid
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from monoids import Bag
from persistent import (
    InvalidPipeline,
    NonWindowState,
    PersistentTask,
    Pipeline,
    SegmentedLog,
    SourceChanged,
    SourceError,
    UserCodeError,
)
from persistent.connect.source import Budget, SourceState
from persistent.connect.topic.source import TopicSource
from persistent.storage import MemoryStorage
from persistent.topic import JoinOptions, Retain, TopicSender

ALL = Retain("1 h", bytes_max=1 << 30)
QUICK = JoinOptions(discovery="100 ms", attempts=100_000, retry="50 ms")


class Numbers(PersistentTask):
    """Every number, and how it came."""

    key = None

    def persistent_state(self) -> Any:
        return NonWindowState(Bag(int))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, message.value["n"])


class Job:
    """A pipeline over a topic, run again and again."""

    def __init__(self, tmp_path: Path, **options: Any) -> None:
        self.journal, self.checkpoint = tmp_path / "journal", MemoryStorage(uuid.uuid4().hex)
        self.options = options

    def pipeline(self, address: str, **options: Any) -> Pipeline:
        source = TopicSource(address, "t", **{"journal": self.journal, "join": QUICK, **self.options, **options})
        return Pipeline(source=source, task=Numbers(), checkpoint=self.checkpoint)

    def run(self, address: str, **options: Any) -> Any:
        return self.pipeline(address, **options).run(engine="embedded")

    def counted(self, address: str) -> dict[int, int]:
        (row,) = self.pipeline(address).state().to_pylist() or [{"value": []}]
        return {pair["value"]: pair["count"] for pair in row["value"]}


def publish(sender: TopicSender, numbers: range) -> None:
    for number in numbers:
        sender.publish(b'{"n":%d,"ts":%d}' % (number, 1_000 + number), time=1_000 + number)


def kill(sender: TopicSender) -> None:
    """It dies without a word."""
    sender._sending.ended = True
    sender._thread.stop()


def test_each_message_counts_once_in_run_after_run(tmp_path: Path) -> None:
    """What was retained before the first run, and what came between two, without a gap or a copy."""
    job = Job(tmp_path)
    with TopicSender("t", retain=ALL) as sender:
        publish(sender, range(5))
        assert job.run(sender.address).rows == 5
        publish(sender, range(5, 8))
        assert job.run(sender.address).rows == 3 and job.run(sender.address).rows == 0
        assert job.counted(sender.address) == dict.fromkeys(range(8), 1)


def test_a_sender_that_begins_again_counts_on(tmp_path: Path) -> None:
    """Its numbers begin again; and that the end of the first life is not known is a dead letter, once."""
    job = Job(tmp_path)
    first = TopicSender("t", retain=ALL)
    publish(first, range(3))
    job.run(first.address)
    kill(first)
    with TopicSender("t", port=int(first.address.rpartition(":")[2]), retain=ALL) as second:
        publish(second, range(3, 6))
        report = job.run(second.address)
        assert (report.rows, report.dead) == (4, 1)
        (letter,) = job.pipeline(second.address).dead_letters().to_pylist()
        assert "messages from 3 on, if any" in letter["reason"] and first.session in letter["reason"]
        assert job.run(second.address).rows == 0 and job.counted(second.address) == dict.fromkeys(range(6), 1)


def test_what_is_lost_is_a_dead_letter_by_range(tmp_path: Path) -> None:
    """The state is exact but for that, and says so."""
    job = Job(tmp_path)
    with TopicSender("t", retain=Retain()) as sender:
        publish(sender, range(1))
        job.run(sender.address)
        publish(sender, range(1, 9))
        report = job.run(sender.address)
        (letter,) = job.pipeline(sender.address).dead_letters().to_pylist()
        assert f"messages 1 to 7 of session {sender.session}: the sender no longer" in letter["reason"]
        assert (report.rows, report.dead) == (2, 1) and job.counted(sender.address) == {0: 1, 8: 1}
        assert any("lacks 7 messages that were lost since it began: see" in note for note in report.notes)


def test_the_columns_say_who_sent_it_and_how_it_came(tmp_path: Path) -> None:
    """For a key, or a Dedupe of one's own; the time is that of the sender, also of what was recovered."""
    with TopicSender("t", retain=ALL) as sender:
        publish(sender, range(2))
        source = TopicSource(sender.address, "t", journal=tmp_path / "journal", join=QUICK, format="bytes")
        try:
            from persistent.connect.source import Budget, SourceState

            plan = source.plan(SourceState({}), Budget(100))
            (records,) = [one for split in plan.splits for one in source.read(split, plan.recorded)]
        finally:
            source.close()
        rows = records.batch.to_pylist()
        assert [(row["_session"], row["_number"], row["_delivery"]) for row in rows] == [
            (sender.session, 0, "late-join"),
            (sender.session, 1, "late-join"),
        ]
        assert rows[0]["value"] == b'{"n":0,"ts":1000}' and records.timestamps.tolist() == [1_000, 1_001]
        assert source.schema(plan.recorded) == records.batch.schema
        assert pickle.loads(pickle.dumps(source))._journal is None


def test_a_message_that_cannot_be_decoded_costs_only_itself(tmp_path: Path) -> None:
    """It is put aside with its bytes and its place."""
    job = Job(tmp_path, schema={"n": "int64", "ts": "int64"}, timestamp="ts", timestamp_unit="ms")
    with TopicSender("t", retain=ALL) as sender:
        sender.publish(b"no json")
        publish(sender, range(2))
        report = job.run(sender.address)
        (letter,) = job.pipeline(sender.address).dead_letters().to_pylist()
        assert (report.rows, report.dead, letter["data"]) == (3, 1, b"no json")
        assert job.counted(sender.address) == {0: 1, 1: 1}


def test_a_sender_that_is_not_there_is_an_error_after_what_was_journaled(tmp_path: Path) -> None:
    """What came before counts; the run does not end as if all were well."""
    job = Job(tmp_path, join=JoinOptions(discovery="20 ms", attempts=5))
    with TopicSender("t") as gone:
        address = gone.address
    with pytest.raises(SourceError, match="answered in 5 attempts"):
        job.run(address)


def test_end_of_input_closes_what_is_journaled_of_a_sender_that_died(tmp_path: Path) -> None:
    """A job could not be ended once its sender had crashed. Without the declaration it is an error, and so is a sender
    that was never met, or speaks of another topic."""
    job = Job(tmp_path)
    quick = JoinOptions(discovery="20 ms", attempts=5)
    sender = TopicSender("t", retain=ALL)
    publish(sender, range(3))
    job.run(sender.address)
    kill(sender)
    with pytest.raises(SourceError, match="answered in 5 attempts"):
        job.run(sender.address, join=quick)
    report = job.pipeline(sender.address, join=quick).run(engine="embedded", end_of_input=True)
    assert any("the windows close over the journaled messages" in note for note in report.notes)
    assert job.counted(sender.address) == dict.fromkeys(range(3), 1)
    never = Pipeline(
        source=TopicSource(sender.address, "t", journal=tmp_path / "new", join=quick),
        task=Numbers(),
        checkpoint=MemoryStorage(uuid.uuid4().hex),
    )
    with pytest.raises(SourceError, match="answered in 5 attempts"):
        never.run(engine="embedded", end_of_input=True)
    port = int(sender.address.rpartition(":")[2])
    with TopicSender("other", port=port), pytest.raises(SourceError, match="publishes the topic 'other'"):
        job.pipeline(sender.address, join=quick).run(engine="embedded", end_of_input=True)


def test_the_journal_of_a_run_is_not_kept(tmp_path: Path) -> None:
    """Each run of one source left its journal and its receiver in memory, as long as the process lived."""
    with TopicSender("t", retain=ALL) as sender:
        source = TopicSource(sender.address, "t", journal=tmp_path / "journal", join=QUICK)
        journal = weakref.ref(source._running())
        source.close()
        gc.collect()
        assert journal() is None


@pytest.mark.timeout(60)
def test_a_run_ends_while_somebody_publishes(tmp_path: Path) -> None:
    """It counts what was published when it began; each step found more, and it did not end."""
    job = Job(tmp_path)
    with TopicSender("t", retain=ALL) as sender:
        publish(sender, range(3))
        steps: list[int] = []

        def publish_more(step: Any) -> None:
            steps.append(len(steps))
            assert len(steps) < 10, "it goes on as long as somebody publishes"
            publish(sender, range(2 + len(steps), 3 + len(steps)))

        assert job.pipeline(sender.address).run(engine="embedded", on_step=publish_more).rows == 3
        assert job.run(sender.address).rows == len(steps) > 0
        assert job.counted(sender.address) == dict.fromkeys(range(3 + len(steps)), 1)


def test_after_the_end_of_a_topic_a_run_ends(tmp_path: Path) -> None:
    """Nothing more comes, and that was said."""
    job = Job(tmp_path, join=QUICK)
    sender = TopicSender("t", retain=ALL)
    publish(sender, range(2))
    source = job.pipeline(sender.address)
    source.run(engine="embedded", on_step=lambda step: sender.close("30 s"))
    assert job.run(sender.address).rows == 0 and job.counted(sender.address) == {0: 1, 1: 1}


def test_who_follows_meets_a_sender_that_comes_back_late(tmp_path: Path) -> None:
    """After an end that was said it looks on, longer than it looks for one that died: it would be deaf for good."""
    join = JoinOptions(discovery="20 ms", attempts=2)
    sender = TopicSender("t", retain=ALL)
    source = TopicSource(sender.address, "t", journal=tmp_path / "journal", join=join)
    try:
        publish(sender, range(2))
        journal = source._running()
        wait_for(lambda: source._log.ends().next_number == 2)
        sender.close("30 s")
        wait_for(lambda: journal.is_over or (journal._receiver is not None and journal._receiver.tries > 4))
        assert not journal.is_over
        with TopicSender("t", port=int(sender.address.rpartition(":")[2]), retain=ALL) as second:
            publish(second, range(2, 5))
            wait_for(lambda: source._log.ends().next_number == 5)
    finally:
        source.close()


def test_a_topic_whose_sender_does_not_answer_is_not_at_its_end(tmp_path: Path) -> None:
    """What it publishes while it cannot be reached would be late, if the clock moved on as for a quiet stream. After an
    end that was said nothing is missing."""
    sender = TopicSender("t", retain=ALL)
    join = JoinOptions(discovery="20 ms", attempts=100_000, silence="200 ms")
    source = TopicSource(sender.address, "t", journal=tmp_path / "journal", join=join)

    def is_held(follow: bool = True) -> bool:
        return source.plan(SourceState({}), Budget(9), follow=follow).held

    try:
        publish(sender, range(2))
        journal = source._running()
        wait_for(lambda: source._log.ends().next_number == 2)
        assert not is_held()
        kill(sender)
        wait_for(is_held)
        with TopicSender("t", port=int(sender.address.rpartition(":")[2]), retain=ALL) as second:
            publish(second, range(2, 5))
            wait_for(lambda: not is_held())
            second.close("30 s")
            wait_for(lambda: journal._receiver is not None and journal._receiver.tries > 2)
            assert not is_held()
    finally:
        source.close()


def wait_for(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.parametrize(("join", "warns"), [(QUICK, 1), (replace(QUICK, last=3), 0), (replace(QUICK, late=False), 0)])
def test_a_first_join_behind_the_beginning_is_a_warning(tmp_path: Path, join: JoinOptions, warns: int) -> None:
    """Unless that was asked for. The next run says it again: its state lacks the same."""
    job = Job(tmp_path, join=join)
    with TopicSender("t", retain=Retain()) as sender:
        publish(sender, range(9))
        for _ in range(2):
            notes = [note for note in job.run(sender.address).notes if "begins with message 8" in note]
            assert len(notes) == warns and all("the 8 before it are neither counted" in note for note in notes)


def test_a_log_that_is_no_journal_of_this_topic_is_refused(tmp_path: Path) -> None:
    """Its records would be taken for messages."""
    with SegmentedLog(tmp_path / "log").writer() as writer:
        writer.append(b"something")
    with TopicSender("t", retain=ALL) as sender, TopicSender("other", retain=ALL) as other:
        with pytest.raises(InvalidPipeline, match="not the journal of a topic"):
            Job(tmp_path).run(sender.address, journal=tmp_path / "log")
        job = Job(tmp_path)
        publish(sender, range(1))
        job.run(sender.address)
        with pytest.raises(InvalidPipeline, match="the journal of the topic 't': give 'other' one of its own"):
            source = TopicSource(other.address, "other", journal=job.journal, join=QUICK)
            Pipeline(source=source, task=Numbers(), checkpoint=job.checkpoint).run(engine="embedded")


def test_another_journal_than_that_of_the_checkpoint_is_refused(tmp_path: Path) -> None:
    """What it had counted would be counted again."""
    job = Job(tmp_path)
    with TopicSender("t", retain=ALL) as sender:
        publish(sender, range(2))
        job.run(sender.address)
        with pytest.raises(SourceChanged, match="another log"):
            job.run(sender.address, journal=tmp_path / "new")


def test_another_journal_than_that_of_a_step_that_failed_is_refused(tmp_path: Path) -> None:
    """Its messages are only there; and the run ended with an IndexError."""
    job = Job(tmp_path)

    class Fails(Numbers):
        name = "Numbers"

        def process_message(self, state: Any, message: Any) -> None:
            raise ValueError("no")

    with TopicSender("t", retain=ALL) as sender:
        publish(sender, range(2))
        source = job.pipeline(sender.address).source
        with pytest.raises(UserCodeError):
            Pipeline(source=source, task=Fails(), checkpoint=job.checkpoint).run(engine="embedded")
        with pytest.raises(SourceChanged, match="another log"):
            job.run(sender.address, journal=tmp_path / "new")
        job.run(sender.address)
        assert job.counted(sender.address) == {0: 1, 1: 1}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"format": "xml"}, "format='xml' is not known"),
        ({"join": "late"}, "give JoinOptions"),
        ({"timestamp": 3}, "not a str"),
        (
            {"schema": {"_number": "int64"}},
            "_number is a field of the messages, and a column that",
        ),
    ],
)
def test_options_that_cannot_be_meant_are_refused(tmp_path: Path, given: dict[str, Any], why: str) -> None:
    """Before anything is joined."""
    with pytest.raises(InvalidPipeline, match=why):
        TopicSource("127.0.0.1:7000", "t", **{"journal": tmp_path / "journal", **given})
