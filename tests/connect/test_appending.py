"""A sink that can only append: what it refuses, when it decides again, and how it takes back."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from persistent.connect.appending import AppendingSink
from persistent.connect.marked import Moved, SinkMark, T
from persistent.connect.sink import Claim, OutputBatch, Retreat
from persistent.errors import Fenced, InvalidPipeline, SinkMismatch
from persistent.names import Staged


@dataclass
class Stream:
    """Rows, a mark, and the marks that other writers set before the next moves."""

    rows: list[bytes] = field(default_factory=list)
    mark: SinkMark | None = None
    others: list[SinkMark] = field(default_factory=list)
    closed: int = 0

    def close(self) -> None:
        self.closed += 1


class StreamSink(AppendingSink[Stream, SinkMark]):
    """Appends to the ``Stream`` of this process."""

    _max_bytes = 60
    _key_remedy = "; or raise the limit"
    _loss = "somebody has deleted it. Restore it"

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def __repr__(self) -> str:
        return "StreamSink()"

    @property
    def _limit(self) -> str:
        return f"but a stream accepts {self._max_bytes}"

    def _opened(self) -> Stream:
        return self.stream

    def _seen(self) -> SinkMark | None:
        return self.stream.mark

    def _transact(self, what: str, act: Callable[[Stream], T]) -> T:
        while True:
            try:
                return act(self._place)
            except Moved:
                continue

    def _mark(self, place: Stream, batch: OutputBatch | None = None) -> SinkMark | None:
        return place.mark

    def _move(self, place: Stream, prior: SinkMark | None, mark: SinkMark) -> None:
        if place.others:
            place.mark = place.others.pop()
            raise Moved
        place.mark = mark

    def _write(self, place: Stream, prior: SinkMark | None, batch: OutputBatch) -> None:
        self._move(place, prior, SinkMark(batch.job, batch.number))
        for table in self._checked(batch):
            place.rows += [row for rows in self._bodies(table, batch.key, batch.number) for row in rows]


def batch(number: int, before: int, *pages: str) -> OutputBatch:
    table = pa.table({"page": pa.array(pages, pa.string())})
    return OutputBatch("job", number, before, 0, number, "u", ("page",), (Staged("a", len(pages), 1),), lambda _: table)


def row(page: str, number: int) -> bytes:
    return f'{{"page":"{page}","revision":{number}}}'.encode()


def test_a_row_and_a_key_beyond_the_limit_are_refused() -> None:
    """After the commit nobody could leave them out."""
    sink, outputs = StreamSink(Stream()), pa.table({"page": ["a", "b" * 40]})
    with pytest.raises(InvalidPipeline, match=r"page='b+' is a message of 64 bytes, but a stream accepts 60"):
        sink.check(outputs, ("page",))
    sink.check(outputs.slice(0, 1), ("page",))
    ((mask, reason),) = sink.refused_keys(outputs)
    assert mask.tolist() == [False, True] and reason.endswith("by a hash; or raise the limit")


def test_a_batch_is_checked_again_where_it_is_written() -> None:
    """The limit can be lower than when the batch was staged: the system would refuse the row, with all of the batch."""
    sink = StreamSink(Stream(mark=SinkMark("job", 0)))
    with pytest.raises(InvalidPipeline, match="is a message of 64 bytes"):
        sink.deliver(batch(1, 0, "b" * 40))
    assert sink.stream.rows == []


def test_a_mark_that_moved_is_read_and_judged_again() -> None:
    """The batch would be there twice, or a job write into the place of another."""
    stream = Stream(mark=SinkMark("job", 0), others=[SinkMark("job", 1)])
    StreamSink(stream).deliver(batch(1, 0, "a"))
    assert stream.rows == [] and stream.mark == SinkMark("job", 1)
    stream.others = [SinkMark("job", 5)]
    with pytest.raises(Fenced, match="at batch 5, beyond our 2"):
        StreamSink(stream).deliver(batch(2, 1, "b"))
    with pytest.raises(SinkMismatch, match="holds the results of job other"):
        StreamSink(Stream(others=[SinkMark("other", 1)])).claim(Claim("job"))
    assert stream.rows == []


def test_a_rollback_appends_what_is_owed_then_what_undoes() -> None:
    """Rows would be undone that nobody has seen; or a second call, after a crash, undo them twice."""
    stream = Stream(mark=SinkMark("job", 1))
    undone: list[int] = []

    def undoing(mark: int) -> OutputBatch:
        undone.append(mark)
        return batch(4, mark, "not c")

    retreat = Retreat("job", 4, 3, (batch(2, 1, "b"), batch(3, 2, "c")), ("page",), 4, "u", undoing)
    for _ in range(2):
        StreamSink(stream).undo(retreat)
        assert stream.rows == [row("b", 2), row("c", 3), row("not c", 4)] and undone == [3]
    StreamSink(stream).undo(Retreat("job", 6, None, (batch(5, 4, "d"),), ("page",), 6, "u"))
    assert stream.rows[3:] == [row("d", 5)] and stream.mark == SinkMark("job", 6)


def test_a_mark_that_is_gone_during_the_run_is_missed() -> None:
    """The job would begin again, without what was published."""
    sink = StreamSink(Stream())
    for act in (lambda: sink.deliver(batch(1, 0, "a")), lambda: sink.undo(Retreat("job", 2, None, (), (), 1, "u"))):
        with pytest.raises(SinkMismatch, match=r"is gone: somebody has deleted it. Restore it; or .*start_from='u'"):
            act()


def test_a_place_stays_in_its_process_and_is_closed_once() -> None:
    """A connection cannot be pickled; and one that stays open holds a place on the server."""
    sink = StreamSink(Stream())
    assert sink.newest("job") == -1
    sink.claim(Claim("job"))
    assert sink.newest("job") == 0 and pickle.loads(pickle.dumps(sink))._own_place is None
    sink.close()
    sink.close()
    assert sink.stream.closed == 1
