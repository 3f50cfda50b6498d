"""Keys and results at the limits of their types, for each sink: what it can hold is published, and the rest is set
aside."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from monoids import Count, Monoid
from persistent import MemorySink, MemorySource, NonWindowState, PersistentTask, Pipeline, UserCodeError
from persistent.engines.embedded import Embedded
from persistent.errors import InvalidPipeline

SECOND, DAY = 1_000_000, 86_400
YEAR_0, YEAR_1, YEAR_10000 = -719_528, -719_162, 2_932_897
"""Their first days, in days since 1970."""
AFAR = 40_000 * 365
"""A day that Arrow writes without digits."""
LONG = "x" * 3_000
NOISE = random.Random(0).randbytes(1_300).hex()
"""2,600 characters, which no index compresses."""
HUGE = "x" * (17 << 20)
INT = 2**63


@dataclass(frozen=True)
class Kind:
    """Values of one type. ``outside``: those beyond a limit of some sink, by the name of the limit."""

    type: pa.DataType
    inside: list[Any]
    outside: dict[str, list[Any]]

    def values(self) -> list[Any]:
        return [*self.inside, *(value for values in self.outside.values() for value in values)]


KEYS = {
    "text": Kind(
        pa.string(),
        ["a", "", " ", "é😀", "\x01\x7f'\"\\\n", "\ue000"],
        {"null": [None], "nul": ["\0", "a\0b"], "long": [LONG]},
    ),
    "huge text": Kind(pa.string(), ["a"], {"huge": [HUGE]}),
    "int": Kind(pa.int64(), [1, 0, INT - 1, -INT], {"null": [None]}),
    "unsigned": Kind(pa.uint64(), [1, 0, INT - 1], {"never": [INT, 2 * INT - 1]}),
    "float": Kind(
        pa.float64(),
        [1.5, 0.0, 5e-324, float("inf"), -float("inf")],
        {"nan": [float("nan")], "null": [None], "never": [1.7976931348623157e308]},
    ),
    "bool": Kind(pa.bool_(), [True, False], {"null": [None]}),
    "binary": Kind(pa.binary(), [b"a", b"", b"\0\xff"], {"null": [None], "long": [LONG.encode()]}),
    "decimal": Kind(
        pa.decimal128(38, 0), [Decimal(1), Decimal(0), Decimal(10**38 - 1), Decimal(1 - 10**38)], {"null": [None]}
    ),
    "fraction": Kind(pa.decimal128(38, 38), [Decimal("0.5"), Decimal((1, (9,) * 38, -38))], {"null": [None]}),
    "date": Kind(
        pa.date32(),
        [19_000, YEAR_1, YEAR_10000 - 1],
        {"years": [YEAR_0, YEAR_10000, -(2**31), 2**31 - 1], "null": [None]},
    ),
    "moment": Kind(
        pa.timestamp("us", "UTC"),
        [19_000 * DAY * SECOND, YEAR_1 * DAY * SECOND, YEAR_10000 * DAY * SECOND - 1],
        {
            "years": [YEAR_0 * DAY * SECOND, YEAR_10000 * DAY * SECOND],
            "afar": [AFAR * DAY * SECOND, -INT, INT - 1],
            "null": [None],
        },
    ),
    "nanoseconds": Kind(
        pa.timestamp("ns"), [19_000 * DAY * 10**9, 1_000], {"never": [1, INT - 1, -INT], "null": [None]}
    ),
    "several": Kind(
        pa.struct([("a", pa.string()), ("b", pa.float64())]),
        [{"a": "a", "b": 1.0}, {"a": "b", "b": 1.0}],
        {
            "nan": [{"a": "a", "b": float("nan")}],
            "null": [{"a": None, "b": None}, {"a": None, "b": 1.0}, {"a": "a", "b": None}],
            "nul": [{"a": "\0", "b": 1.0}],
        },
    ),
    "many columns": Kind(
        pa.struct([("a", pa.string()), *((f"n{number}", pa.int64()) for number in range(20))]),
        [{"a": "a"} | dict.fromkeys((f"n{number}" for number in range(20)), 2**62)],
        {"long": [{"a": NOISE} | dict.fromkeys((f"n{number}" for number in range(20)), 2**62)]},
    ),
}
"""Never: a key that is refused for every sink, because it would merge with others."""

RESULTS = {
    "text": Kind(pa.string(), ["a", "", None, "é😀"], {"nul": ["a\0b"]}),
    "huge text": Kind(pa.string(), ["a"], {"huge": [HUGE]}),
    "int": Kind(pa.int64(), [1, INT - 1, -INT, None], {}),
    "unsigned": Kind(pa.uint64(), [1, INT - 1, None], {"unsigned": [INT, 2 * INT - 1]}),
    "float": Kind(pa.float64(), [1.5, -0.0, float("inf"), -float("inf"), float("nan"), 1.7e308, 5e-324, None], {}),
    "single": Kind(pa.float32(), [1.5, float("inf"), float("nan"), None], {}),
    "bool": Kind(pa.bool_(), [True, False, None], {}),
    "binary": Kind(pa.binary(), [b"a", b"", b"\0\xff", None], {}),
    "decimal": Kind(pa.decimal128(38, 2), [Decimal("1.50"), Decimal((0, (9,) * 38, -2)), None], {}),
    "wide decimal": Kind(pa.decimal256(76, 0), [Decimal(1), Decimal(10**76 - 1), Decimal(1 - 10**76), None], {}),
    "date": Kind(
        pa.date32(), [19_000, YEAR_1, YEAR_10000 - 1, None], {"years": [YEAR_0, YEAR_10000, -(2**31), 2**31 - 1]}
    ),
    "moment": Kind(
        pa.timestamp("us", "UTC"),
        [19_000 * DAY * SECOND, YEAR_10000 * DAY * SECOND - 1, None],
        {"years": [YEAR_0 * DAY * SECOND, YEAR_10000 * DAY * SECOND], "afar": [AFAR * DAY * SECOND, INT - 1]},
    ),
    "nanoseconds": Kind(pa.timestamp("ns"), [19_000 * DAY * 10**9, 1_000, None], {"fine": [1, INT - 1]}),
    "time": Kind(pa.time64("ns"), [0, DAY * 10**9 - 1_000, None], {"fine": [1]}),
    "duration": Kind(pa.duration("ns"), [0, INT - 1, -INT, None], {}),
    "long duration": Kind(pa.duration("s"), [0, INT - 1, -INT, None], {}),
    "list": Kind(pa.list_(pa.string()), [["a"], [], [None], None], {"nul": [["a", "\0"]]}),
    "struct": Kind(
        pa.struct([("n", pa.uint64()), ("x", pa.float64())]),
        [{"n": 1, "x": 0.5}, {"n": None, "x": float("inf")}, {"n": 2 * INT - 1, "x": float("nan")}, None],
        {},
    ),
}


@dataclass(frozen=True)
class Place:
    """A sink at a fresh place: ``counts`` are the values of the column ``n`` there, as integers. ``limits``: of keys;
    ``of_results``: of values. ``sink`` can be made many times."""

    sink: Callable[[], Any]
    counts: Callable[[], list[int]]
    limits: frozenset[str]
    of_results: frozenset[str]
    can_retract: bool = True


class Numbered(Monoid[Any]):
    """The sum is the column's own value: each key has one record."""

    commutative = True

    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind
        self.identity = None

    def combine(self, a: Any, b: Any) -> Any:
        return a if b is None else b


def column(kind: Kind) -> pa.Array:
    """The values of a kind; numbers of days and moments as such."""
    if pa.types.is_temporal(kind.type):
        width = pa.int32() if kind.type.bit_width == 32 else pa.int64()
        return pa.array(kind.values(), width).view(kind.type)
    return pa.array(kind.values(), kind.type)


class Counted(PersistentTask):
    """One record of each key."""

    name = "counted"

    def __init__(self, names: tuple[str, ...]) -> None:
        self.key = names

    def persistent_state(self) -> Any:
        return NonWindowState(Count())

    def process_batch(self, state: Any, batch: Any) -> None:
        state.update_batch(batch.timestamps, 1)


class Picked(Monoid[Any]):
    """Presents the value of that number."""

    commutative = True
    identity = None

    def __init__(self, name: str) -> None:
        self.name = name
        self.output_type = RESULTS[name].type

    def combine(self, a: Any, b: Any) -> Any:
        return b if a is None else a

    def present_columns(self, columns: Any) -> pa.Array:
        return column(RESULTS[self.name]).take(pa.array(self.unpack(columns), pa.int64()))


class Results(PersistentTask):
    """The value of that number as the result of that key."""

    name = "results"
    key = "n"

    def __init__(self, of: str) -> None:
        self.of = of

    def persistent_state(self) -> Any:
        return NonWindowState(Picked(self.of))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, message.value["n"])


def job(task: PersistentTask, columns: dict[str, Any], sink: Any, checkpoint: str, **options: Any) -> Pipeline:
    rows = len(next(iter(columns.values())))
    table = pa.table({"ts": pa.array(range(1_000, 1_000 + rows), pa.int64()), **columns})
    source = MemorySource(table, timestamp="ts", ordered=True)
    return Pipeline(source=source, task=task, sink=sink, checkpoint=checkpoint, **options)


def run(pipeline: Pipeline) -> Any:
    return pipeline.run(engine=Embedded(threads=1), end_of_input=True)


def fresh() -> str:
    return f"memory://limits-{uuid.uuid4().hex}"


def keyed(name: str) -> tuple[Counted, dict[str, Any]]:
    """A task over keys of a kind, and their columns."""
    found = column(KEYS[name])
    if pa.types.is_struct(found.type):
        names = tuple(field.name for field in found.type)
        return Counted(names), dict(zip(names, found.flatten()))
    return Counted(("k",)), {"k": found}


def beyond(kind: Kind, limits: frozenset[str]) -> int:
    """How many values are beyond these limits."""
    return sum(len(values) for limit, values in kind.outside.items() if limit in limits)


def check_keys_are_judged(place: Place, name: str) -> None:
    """A key that the sink cannot hold stops the run before it counts; or its record is a dead letter."""
    task, columns = keyed(name)
    refused, checkpoint = beyond(KEYS[name], place.limits | {"never"}), fresh()
    if refused:
        with pytest.raises(UserCodeError, match=r'[kK]ey.* Nothing of this step is committed.*on_error="dead-letter"'):
            run(job(task, columns, place.sink(), checkpoint))
        assert job(task, columns, place.sink(), checkpoint).state().num_rows == 0
    report = run(job(task, columns, place.sink(), checkpoint, on_error="dead-letter"))
    assert (report.dead, report.set_aside) == (refused, 0)
    assert place.counts() == [1] * (len(KEYS[name].values()) - refused)


def check_a_sink_joins(place: Place, name: str) -> None:
    """A key that counted before the sink joined is a dead letter of results; all others are published."""
    task, columns = keyed(name)
    before, checkpoint, memory = beyond(KEYS[name], frozenset({"never"})), fresh(), MemorySink()
    first = job(task, columns, {"memory": memory}, checkpoint, on_error="dead-letter")
    assert run(first).dead == before
    refused = beyond(KEYS[name], place.limits)

    def both(**options: Any) -> Pipeline:
        return job(task, columns, {"memory": memory, "other": place.sink()}, checkpoint, **options)

    if refused:
        with pytest.raises(InvalidPipeline, match=r'not published: key .*on_error="dead-letter"'):
            run(both())
    report = run(both(on_error="dead-letter"))
    assert (report.dead, report.set_aside) == (0, refused)
    everything = len(KEYS[name].values()) - before
    assert place.counts() == [1] * (everything - refused)
    assert memory.table is not None and memory.table.num_rows == everything
    assert both().dead_letters().num_rows == before + refused
    assert run(both()).set_aside == 0


def check_results_are_set_aside(place: Place, name: str) -> None:
    """A result that the sink cannot hold is a dead letter; all others are published."""
    kind, checkpoint = RESULTS[name], fresh()
    refused, columns = beyond(kind, place.of_results), {"n": list(range(len(kind.values())))}
    if refused:
        with pytest.raises(InvalidPipeline, match=r'not published: key \(n=.*on_error="dead-letter"'):
            run(job(Results(name), columns, place.sink(), checkpoint))
    again = job(Results(name), columns, place.sink(), checkpoint, on_error="dead-letter")
    report = run(again)
    assert (report.dead, report.set_aside) == (0, refused)
    assert len(place.counts()) == len(kind.values()) - refused
    dead = again.dead_letters()
    assert all(b'"result":{"n":' in row for row in dead["data"].to_pylist()) and dead.num_rows == refused
