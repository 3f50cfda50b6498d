"""What sources of offsets have in common, over a topic that is a list of values in this process."""

from __future__ import annotations

import inspect
import json
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from persistent.codec.fields import Positions
from persistent.connect.formats.message_columns import MessageColumns, WholeColumns
from persistent.connect.formats.values import MessageValue, value_format
from persistent.connect.offset_source import OffsetSource
from persistent.connect.offsets import Kept
from persistent.connect.options import SHARED
from persistent.connect.source import Budget, Records, SourcePlan, SourceState, Split
from persistent.errors import InvalidPipeline, RetentionGap, SourceChanged, SourceError
from persistent.sources import KafkaSource, LogSource, RabbitQueueSource, RabbitStreamSource, TopicSource

NUMBERS = [100, 110, 120, 130]


class Numbers(OffsetSource):
    """Each value is {"ts": n}, and arrived at ``n - lag``. ``first``: the first that is kept."""

    kind = "Numbers"
    finds_times = True

    def __init__(self, name: str = "a", *, numbers: Sequence[int] = NUMBERS, lag: int = 0, **given: Any) -> None:
        self.name, self.numbers, self.lag, self.first = name, numbers, lag, 0
        columns = MessageColumns(repr(self), value_format("json", infers=True), None, [], ("ts", "ms"))
        super().__init__(columns, timestamp="ts", **{"max_out_of_orderness": 0, **given})
        self._client = open  # Like a connection, no other process can have it.

    def __repr__(self) -> str:
        return "Numbers()"

    def kept(self, recorded: Mapping[str, Any], read: Positions) -> Mapping[str, Kept]:
        if recorded.get("name", self.name) != self.name:
            raise SourceChanged(f"{recorded['name']} was replaced by {self.name}")
        return {"0": Kept(self.first, len(self.numbers))}

    def identity(self, recorded: Mapping[str, Any], end: Positions) -> dict[str, Any]:
        return {"name": self.name}

    def is_of(self, recorded: Mapping[str, Any], partitions: Iterable[str]) -> bool:
        return recorded["name"] == self.name

    def at_time(self, partitions: Sequence[str], ms: int) -> Mapping[str, int]:
        later = [at for at, number in enumerate(self.numbers) if number - self.lag >= ms]
        return dict.fromkeys(partitions, min(later, default=len(self.numbers)))

    def sample(self, partition: str, start: int) -> Sequence[MessageValue]:
        return [json.dumps({"ts": number}).encode() for number in self.numbers[start:]]

    def read(self, split: Split, recorded: Mapping[str, Any]) -> Iterator[Records]:
        for span in split.spans:
            values = self.sample("0", span.start)[: span.stop - span.start]
            yield self._columns.records(WholeColumns(values, pa.array(range(span.start, span.stop)), {}), recorded)


def planned(source: OffsetSource, state: SourceState | None = None) -> SourcePlan:
    return source.plan(state or SourceState({}), Budget(2))


def test_a_plan_records_the_place_the_options_and_the_columns() -> None:
    """A later run compares itself with what the plan has recorded."""
    plan = planned(Numbers())
    assert plan.recorded == {
        "begins": {"0": 0},
        "joined": [],
        "name": "a",
        "timestamp": "ts",
        "timestamp_unit": "ms",
        "format": "json",
        "schema": [["ts", "int64"]],
    }
    with pytest.raises(InvalidPipeline, match="format='csv', and its state was decoded by that format"):
        Numbers().plan(SourceState({}, {"format": "csv"}), Budget(2))


@pytest.mark.parametrize(("start", "begin"), [("earliest", 1), ("latest", 4), (100, 1), (115, 2), (999, 4)])
def test_a_new_checkpoint_begins_at_its_start(start: Any, begin: int) -> None:
    """A start before what is kept is the first that is kept, and no gap."""
    source = Numbers(start=start)
    source.first = 1
    plan = planned(source)
    assert plan.recorded["begins"] == {"0": begin} and not plan.skipped


def test_a_put_plan_of_another_place_is_neither_corrected_nor_forgotten() -> None:
    """It would be read by offsets that mean other records."""
    put, other = planned(Numbers()), Numbers("b", on_gap="latest")
    other.first = 3
    assert other.corrected(SourceState({}), put) is None and not other.has_forgotten(put.splits, put.recorded)
    same = Numbers(on_gap="latest")
    same.first = 3
    corrected = same.corrected(SourceState({}), put)
    assert corrected is not None and corrected.recorded["schema"] == put.recorded["schema"]
    assert same.has_forgotten(put.splits, put.recorded)
    strict = Numbers()
    strict.first = 3
    assert not strict.has_forgotten(put.splits, put.recorded)


def test_a_clock_is_looked_for_as_far_back_as_the_skew() -> None:
    """A record that the broker received before the clock, with a later event time, would not be read again."""
    recorded = planned(Numbers()).recorded
    source = Numbers("b", lag=15, max_skew=15)
    assert source.position_at("0", 120) == 2
    state = source.from_clock({**recorded, "writers": {}, "reader": "r"}, 120)
    assert state is not None and state.positions == {"0": 2}
    assert state.recorded == {**recorded, "begins": {"0": 2}, "name": "b", "reader": "r"}
    with pytest.raises(SourceError, match="give a larger max_skew="):
        Numbers(lag=30, max_skew=5).from_clock(recorded, 120)
    late = Numbers(max_skew=0)
    late.first = 2
    with pytest.raises(RetentionGap, match="is not before"):
        late.from_clock(recorded, 120)
    again = Numbers(max_skew=0).from_clock({**recorded, "writers": {}}, 120)
    assert again is not None and "writers" in again.recorded


def test_the_connection_stays_in_its_process() -> None:
    """Workers connect by themselves."""
    assert not hasattr(pickle.loads(pickle.dumps(Numbers())), "_client")


def test_times_are_found_if_the_system_finds_them() -> None:
    """A restart would ask a queue for the offset of a time."""

    class Timeless(Numbers):
        at_time = OffsetSource.at_time
        finds_times = False

    assert Numbers().declared()["finds_times"] == (True, True)
    assert Timeless().declared()["finds_times"] == (False, False)
    assert Timeless().from_clock({}, 5) is None


SOURCES = [KafkaSource, RabbitStreamSource, LogSource, TopicSource, RabbitQueueSource]


@pytest.mark.parametrize("source", SOURCES)
def test_a_shared_option_has_one_default(source: Any) -> None:
    """The table is what checks and documents an option: a signature with another default would be wrong in both."""
    defaults = {name: option.default for name, option in inspect.signature(source).parameters.items()}
    shared = {name: default for name, default in defaults.items() if name in SHARED and name != "servers"}
    assert shared == {name: SHARED[name].default for name in shared}


@pytest.mark.parametrize(
    ("option", "value", "refusal"),
    [
        ("start", "never", 'start="earliest" or "latest"'),
        ("on_gap", "skip", "on_gap='skip' is not known; it is one of 'fail', 'earliest', 'latest'"),
        ("idle_timeout", "soon", "idle_timeout: "),
        ("max_out_of_orderness", "soon", "max_out_of_orderness: "),
        ("max_out_of_orderness", None, "max_out_of_orderness: "),
        ("max_skew", None, "max_skew: "),
    ],
)
def test_a_shared_option_is_checked_when_the_source_is_made(option: str, value: Any, refusal: str) -> None:
    """A job would run for days, and fail where the option is first needed."""
    with pytest.raises(InvalidPipeline, match=refusal):
        Numbers(**{option: value})


def test_a_place_that_is_replaced_while_a_clock_is_looked_up_is_refused() -> None:
    """Offsets of the old topic under the id of the new one: the first records of that would never be read."""

    class Replaced(Numbers):
        def at_time(self, partitions: Sequence[str], ms: int) -> Mapping[str, int]:
            at = super().at_time(partitions, ms)
            self.name = "b"
            return at

    with pytest.raises(SourceChanged, match="a was replaced by b"):
        Replaced().from_clock({}, 120)
