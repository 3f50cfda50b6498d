"""A task run over a batch: whose message an update is, and what is a key."""

from __future__ import annotations

import decimal
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from monoids import Count, Max
from monoids.hashing import hash_keys, key_column
from persistent import (
    Batch,
    FileSource,
    Message,
    NonWindowState,
    PersistentTask,
    Pipeline,
    SqliteSink,
    State,
    UserCodeError,
)
from tests.task.test_task import Visits, counted, pipeline_of


def test_messages_of_a_filtered_batch_keep_their_keys() -> None:
    """Counted under the key of whoever stands at that row of the unfiltered batch, and no error."""

    class WithoutA(Visits):
        def process_batch(self, state: State, batch: Batch) -> None:
            super().process_batch(state, batch.filter(pc.not_equal(batch["page"], "a")))

    class Twice(Visits):
        def process_batch(self, state: State, batch: Batch) -> None:
            super().process_batch(state, batch.filter(pc.equal(batch["page"], "a")))
            super().process_batch(state, batch.filter(np.array(pc.not_equal(batch["page"], "a"))))

    assert counted(WithoutA()) == {"b": 3, "c": 3}
    assert counted(Twice()) == {"a": 3, "b": 3, "c": 3}


def test_a_loop_of_ones_own_over_messages_must_say_the_key() -> None:
    """All would be counted for the first message."""

    class Loop(Visits):
        def process_batch(self, state: State, batch: Batch) -> None:
            for message in batch.messages():
                self.process_message(state, message)

    with pytest.raises(Exception, match=r"key=message\.key"):
        counted(Loop())


def test_an_unsigned_key_beyond_64_bits_says_what_to_do(tmp_path: Path) -> None:
    """It was "not in range", as if the record could never count."""
    pq.write_table(pa.table({"ts": [1, 2], "page": pa.array([1, 2**63], pa.uint64())}), tmp_path / "a.parquet")
    source = FileSource(tmp_path, timestamp="ts", timestamp_unit="ms")

    class AsText(Visits):
        key = {"page": lambda message: str(message.value["page"])}

    with pytest.raises(UserCodeError, match=r"make it text, key = \{'page': lambda message: str\("):
        Pipeline(source=source, task=Visits(), checkpoint="memory://").run(engine="embedded")
    Pipeline(source=source, task=AsText(), checkpoint="memory://").run(engine="embedded")


def test_decimal_keys_are_their_value() -> None:
    """The same amount would be two keys after a task has set the decimal context, or between two scales."""

    class Made(Visits):
        key: Any = {"amount": lambda message: Decimal(message.value["text"])}

    exact = key_column([Decimal("12345.678901")])
    with decimal.localcontext(prec=4, capitals=0):
        coarse = hash_keys([exact], 1)
    assert coarse.tolist() == hash_keys([exact], 1).tolist()
    texts = ["1.5", "2.25", "1.50", "10"]
    pipeline = pipeline_of(Made(), [{"ts": n, "text": text} for n, text in enumerate(texts)], step_rows=1)
    pipeline.run(engine="embedded")
    found = {row["amount"]: row["value"] for row in pipeline.state().to_pylist()}
    assert found == {Decimal("1.5"): 2, Decimal("2.25"): 1, Decimal("10"): 1}


def test_a_float_that_several_integers_become_is_no_key() -> None:
    """Two users with numbers beyond 2^53, in a column that has one fraction, would be counted as one."""

    class ByUser(Visits):
        key: Any = "user"

    largest = 2.0**53
    with pytest.raises(UserCodeError, match=r"ByUser: key 'user' raised.*9007199254740992\.0, a float that.*schema="):
        counted(ByUser(), [{"ts": 1, "user": largest}])
    rows = [{"ts": 1, "user": user} for user in (largest - 1, -largest, 0.5, float("inf"), float("nan"), None)]
    state = counted(ByUser(), rows, on_error="dead-letter")
    assert sorted(map(str, state)) == ["0.5", "9007199254740991.0", "None", "inf", "nan"]


class ByNumber(PersistentTask):
    key: Any = "id"

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(Count())

    def process_message(self, state: State, message: Message) -> None:
        state.update(message.timestamp, 1)


def keys_of(source: Any, key: Any = "id") -> list[Any]:
    task = ByNumber()
    task.key = key
    pipeline = Pipeline(source=source, task=task, checkpoint=f"memory://{uuid.uuid4()}")
    pipeline.run(engine="embedded")
    return sorted(next(iter(row.values())) for row in pipeline.state().to_pylist())


def test_a_float_that_stands_for_several_integers_is_no_key(tmp_path: Path) -> None:
    """Ids that a declared type rounds would be one key; the advice reads them."""
    ids = [2**53, 2**53 + 1]
    (tmp_path / "a.jsonl").write_text("".join(f'{{"ts":1,"id":{one}}}\n' for one in ids))
    types = {"ts": "int64", "id": "double"}
    with pytest.raises(UserCodeError, match=r"9007199254740992\.0, a float that .*schema=, here 'int64'"):
        keys_of(FileSource(tmp_path, timestamp="ts", timestamp_unit="ms", schema=types))
    exact = FileSource(tmp_path, timestamp="ts", timestamp_unit="ms", schema={**types, "id": "int64"})
    assert keys_of(exact) == ids


class Latest(PersistentTask):
    """The last name of each id, by columns."""

    key: Any = "id"

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(Max(str))

    def process_batch(self, state: State, batch: Batch) -> None:
        state.update_batch(batch.timestamps, batch["name"])


@pytest.mark.parametrize("broken", ["id", "name"])
def test_a_text_that_is_not_utf_8_fails_for_its_message_alone(broken: str, tmp_path: Path) -> None:
    """It counted. Then every run was refused: by a database for the key, and as CorruptCheckpoint for the value."""
    bytes_of = {name: ["a", "b", "c"] for name in ("id", "name")} | {broken: [b"a", b"b\xff", b"c"]}
    columns = {name: pa.array(values, pa.binary()).view(pa.string()) for name, values in bytes_of.items()}
    pq.write_table(pa.table({"ts": [1, 2, 3], **columns}), tmp_path / "a.parquet")
    source = FileSource(tmp_path / "a.parquet", timestamp="ts", timestamp_unit="ms")

    def job(**options: Any) -> Pipeline:
        sink = SqliteSink(tmp_path / "x.db", "t", mode="upsert")
        return Pipeline(source=source, task=Latest(), sink=sink, checkpoint=str(tmp_path / "c"), **options)

    with pytest.raises(UserCodeError, match=r'UTF-8.* Nothing of this step is committed.*on_error="dead-letter"'):
        job().run(engine="embedded", end_of_input=True)
    report = job(on_error="dead-letter").run(engine="embedded", end_of_input=True)
    assert (report.outputs, report.dead) == (2, 1)
    assert [row["id"] for row in job().state().to_pylist()] == ["a", "c"]
