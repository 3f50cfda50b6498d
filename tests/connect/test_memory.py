"""A MemorySink by itself: what it shows, takes back and keeps staged; the contract is in test_file_and_memory.py."""

from __future__ import annotations

import uuid
from datetime import datetime

import pyarrow as pa
import pytest

from persistent import MemorySink, SinkMismatch, StagedMissing
from persistent.connect.promises import EXACTLY_ONCE
from persistent.names import Staged, attempt_name


def staged(sink: MemorySink, id: int, value: int) -> Staged:
    return sink.stage(pa.table({"n": [value]}), id, attempt_name(1, id, uuid.uuid4().hex))


def published(*ids: int) -> MemorySink:
    """A sink with a row for each of these ids."""
    sink = MemorySink()
    for id in ids:
        sink.publish(id, [staged(sink, id, id)])
    return sink


def values(sink: MemorySink) -> list[int]:
    return [row["n"] for row in sink.rows()]


def test_it_says_what_it_promises() -> None:
    """Without a promise of its own it would count as one that outlives the process."""
    promise = MemorySink().guarantee()
    assert promise.level == EXACTLY_ONCE and "while this process lives" in promise.reason


def test_an_attempt_is_staged_once() -> None:
    """Another with its name would replace rows that a checkpoint has listed."""
    sink, name = MemorySink(), attempt_name(1, 2, uuid.uuid4().hex)
    sink.stage(pa.table({"n": [1]}), 2, name)
    with pytest.raises(ValueError, match="was staged before"):
        sink.stage(pa.table({"n": [2]}), 2, name)


def test_what_is_shown_already_does_not_keep_the_rest_back() -> None:
    """A driver that dies between two rows publishes all of them again, the first of which are there."""
    sink = MemorySink()
    first, second = staged(sink, 3, 1), staged(sink, 3, 2)
    sink.publish(3, [first])
    sink.publish(3, [first, second])
    assert sorted(values(sink)) == [1, 2]
    with pytest.raises(StagedMissing):
        sink.publish(4, [Staged(attempt_name(1, 4, uuid.uuid4().hex), 1, 1)])


@pytest.mark.parametrize(
    ("first", "stop", "left"),
    [(2, 4, [1, 4, 5]), (1, 2, [2, 3, 4, 5]), (5, 6, [1, 2, 3, 4]), (3, 3, [1, 2, 3, 4, 5]), (0, 9, [])],
)
def test_a_rollback_takes_back_its_own_range(first: int, stop: int, left: list[int]) -> None:
    """One too many is a lost result, one too few a result that was taken back and still shows."""
    sink = published(1, 2, 3, 4, 5)
    sink.retract(first, stop)
    assert values(sink) == left


def test_the_newest_is_the_highest() -> None:
    """What a sink has is compared with what a checkpoint says it has published."""
    assert published(2, 7, 3).newest() == 7 and MemorySink().newest() == -1


def test_what_is_staged_is_listed_for_its_job_alone() -> None:
    """Another job would sweep it away."""
    sink = MemorySink()
    names = sorted(staged(sink, id, id).name for id in (3, 1, 2))
    assert sink.staged("job") == names
    with pytest.raises(SinkMismatch, match="holds the results of job job"):
        sink.staged("other")


def test_a_time_beyond_python_is_a_text() -> None:
    """One of the year 10000 made every row of the sink unreadable."""
    sink = MemorySink()
    at = pa.array([0, 253_402_300_800_000], pa.timestamp("ms"))
    sink.publish(2, [sink.stage(pa.table({"at": at}), 2, attempt_name(1, 2, uuid.uuid4().hex))])
    assert sink.rows() == [{"at": datetime(1970, 1, 1)}, {"at": "10000-01-01T00:00:00"}]
