"""An outlet speaks to each kind of sink in its own words."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from persistent.connect.outlet import abilities, outlet, stage_accepted
from persistent.connect.sink import BatchSink, Claim, OutputBatch, StagingSink
from persistent.errors import CorruptCheckpoint, InvalidPipeline, StagedMissing
from persistent.names import STAGED, Attempt, Staged
from persistent.sinks import MemorySink
from persistent.storage import MemoryStorage
from tests.connect.ledger import Ledger, LedgerSink

TABLE = pa.table({"page": ["a"], "visits": [2]})
ATTEMPT = "e1-c7-0f8fad5b"


def test_outputs_of_a_batch_sink_wait_in_the_checkpoint() -> None:
    """A database has no place out of sight; and bytes that have changed would be published."""
    storage, ledger = MemoryStorage("outlet"), Ledger()
    sink = outlet(LedgerSink(ledger), storage)
    staged = sink.stage(TABLE, 7, ATTEMPT, ())
    assert staged.name == f"{STAGED}/{ATTEMPT}.arrow" and (staged.rows, len(staged.sha256)) == (1, 64)
    assert sink.read(staged).equals(TABLE) and ledger.rows() == []
    batch = OutputBatch("j", 7, 0, 0, 7, storage.url, (), (staged,), sink.read)
    sink.claim(Claim("j"))
    for _ in range(2):
        sink.publish([batch], None)
        assert ledger.rows() == TABLE.to_pylist() and storage.list(STAGED) == [f"{ATTEMPT}.arrow"]
    storage.delete(staged.name)
    with pytest.raises(StagedMissing, match="neither staged nor published in LedgerSink"):
        sink.read(staged)
    storage.write(staged.name, b"other")
    with pytest.raises(CorruptCheckpoint):
        sink.read(staged)
    with pytest.raises(ValueError, match="attempt"):
        sink.stage(TABLE, 7, "mine", ())
    assert sink.newest("j", 3) == 4 and sink.staged("j") == []


def test_a_batch_sink_says_what_it_could_never_take() -> None:
    """It would be committed first, and then stop every run."""

    class Strict(LedgerSink):
        def check(self, outputs: pa.Table, key: tuple[str, ...]) -> None:
            raise InvalidPipeline("not these")

    storage = MemoryStorage("outlet-strict")
    with pytest.raises(InvalidPipeline, match="not these"):
        outlet(Strict(Ledger()), storage).stage(TABLE, 7, ATTEMPT, ())
    assert storage.list(STAGED) == []


def test_a_sink_refuses_columns_with_its_claim() -> None:
    """The first outputs would be refused, after all that has counted until then."""

    class NoTimes(MemorySink):
        def check(self, outputs: pa.Table, key: tuple[str, ...]) -> None:
            if any(map(pa.types.is_temporal, outputs.schema.types)):
                raise InvalidPipeline("no times")

    place = outlet(NoTimes(), MemoryStorage("outlet-columns"))
    with pytest.raises(InvalidPipeline, match="no times"):
        place.claim(Claim("j", schema=pa.schema([("at", pa.date32())])))
    with pytest.raises(InvalidPipeline, match=r"sparse_union.*give the monoid another output_type"):
        place.claim(Claim("j", schema=pa.schema([("at", pa.sparse_union([pa.field("a", pa.int64())]))])))
    place.claim(Claim("j", schema=TABLE.schema))
    # Columns are no matter of rows.
    with pytest.raises(InvalidPipeline, match="no times"):
        stage_accepted(place, pa.table({"at": pa.array([1], pa.date32())}), Attempt(1, 7), (), all_refused=True)


def test_the_rows_that_a_sink_refuses_are_alone() -> None:
    """Others would be dead letters with them."""

    class NoOdds(MemorySink):
        def check(self, outputs: pa.Table, key: tuple[str, ...]) -> None:
            odd = [value for value in outputs["n"].to_pylist() if value % 2]
            if odd:
                raise InvalidPipeline(f"{odd[0]} is odd")

    sink = NoOdds()
    place, numbers = outlet(sink, MemoryStorage("outlet-rows")), [0, 1, 2, 2, 5, 4, 7]
    staged, refused = stage_accepted(place, pa.table({"n": numbers}), Attempt(1, 7), (), all_refused=True)
    assert [(row, str(error)) for row, error in refused] == [(1, "1 is odd"), (4, "5 is odd"), (6, "7 is odd")]
    assert staged is not None and staged.rows == 4
    sink.publish(7, [staged])
    assert [row["n"] for row in sink.rows()] == [0, 2, 2, 4]
    staged, refused = stage_accepted(place, pa.table({"n": numbers}), Attempt(1, 8), (), all_refused=False)
    assert staged is None and [row for row, _ in refused] == [1] and len(sink.staged("j")) == 0
    staged, refused = stage_accepted(place, pa.table({"n": [1, 3]}), Attempt(1, 8), (), all_refused=True)
    assert staged is None and len(refused) == 2


def test_a_sink_that_refuses_outputs_and_no_row_stops_the_run() -> None:
    """Nobody would know what is not published."""

    class Closed(MemorySink):
        def stage(self, outputs: pa.Table, staging_id: int, attempt: str) -> Staged:
            raise InvalidPipeline("closed")

    place = outlet(Closed(), MemoryStorage("outlet-closed"))
    with pytest.raises(InvalidPipeline, match="closed"):
        stage_accepted(place, TABLE, Attempt(1, 7), (), all_refused=True)


def test_a_sink_with_a_place_of_its_own_is_spoken_to_as_ever() -> None:
    """A user's own sink of an earlier release would have to be written again."""
    asked: list[Any] = []

    class Old(MemorySink):
        abilities = MemorySink.abilities | {"mark"}

        def claim(self, job: str) -> None:
            asked.append(job)

        def mark(self, first: int, stop: int) -> None:
            asked.append((first, stop))

    old = Old()
    sink = outlet(old, MemoryStorage("outlet-old"))
    sink.claim(Claim("j", 3))
    staged = sink.stage(TABLE, 7, ATTEMPT, ())
    empty, full = (OutputBatch("j", 47, 0, 0, 7, "", (), one, sink.read) for one in ((), (staged,)))
    sink.publish([empty, full], None)
    assert old.rows() == TABLE.to_pylist() and sink.newest("j", 40) == 7
    sink.mark(3, 5)
    sink.tidy()
    assert asked == ["j", (3, 5)] and sink.staged("j") == []
    with pytest.raises(TypeError, match=r"reads .* itself"):
        sink.read(staged)
    assert abilities(old) == ("mark", "newest", "retract", "staged")
    assert not isinstance(old, BatchSink) and not isinstance(LedgerSink(Ledger()), StagingSink)
