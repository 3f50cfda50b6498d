"""Monoids with one planted defect each, and the law that finds it; beside each its honest twin.

A defect is lawful in all else on its inputs, and so breaks one law, except where one follows from another: an identity
that is wrong on both sides of a commutative monoid, and a sum that is not associative, which no tree of folds survives.
"""

from __future__ import annotations

import itertools
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from monoids import Group, Monoid

SMALL = st.integers(-300, 300)
LARGE = st.integers(-(2**62), 2**62)
FINITE = st.floats(-1e6, 1e6).map(lambda x: x + 0.0)
LISTS = st.lists(SMALL, max_size=3)


# Elements.


class Union(Monoid[set[int]]):
    """Sets that are mutable, with columns that do not fold."""

    commutative = idempotent = True

    @property
    def identity(self) -> set[int]:  # type: ignore[override]
        return set()

    def lift(self, value: int) -> set[int]:
        return {value}

    def combine(self, a: set[int], b: set[int]) -> set[int]:
        return a | b

    def reduce_sorted(self, columns: Any, starts: Any) -> Any:
        ends = [*starts.tolist()[1:], len(columns[0])]
        return self.pack([set().union(*columns[0][i:j]) for i, j in zip(starts, ends)])


class UpdatingUnion(Union):
    """Changes its left operand."""

    def combine(self, a: set[int], b: set[int]) -> set[int]:
        a |= b
        return a


class First(Monoid[Any]):
    """The first that is something."""

    identity = None

    def combine(self, a: Any, b: Any) -> Any:
        return b if a is None else a


class FirstAtAll(First):
    """Nothing comes first too."""

    def combine(self, a: Any, b: Any) -> Any:
        return a


class Last(First):
    """The last that is something."""

    def combine(self, a: Any, b: Any) -> Any:
        return a if b is None else b


class LastAtAll(First):
    """Nothing comes last too."""

    def combine(self, a: Any, b: Any) -> Any:
        return b


class Largest(Monoid[Any]):
    identity: Any = None
    commutative = idempotent = True

    def combine(self, a: Any, b: Any) -> Any:
        return b if a is None else a if b is None else max(a, b)


class LargestFromZero(Largest):
    identity = 0


class Floats(Monoid[float]):
    identity = 0.0
    commutative = True
    exact = False

    def combine(self, a: float, b: float) -> float:
        return a + b


class ExactFloats(Floats):
    """Claims that rounding does not depend on the order."""

    exact = True


class Midpoint(Largest):
    """The mean of means."""

    def combine(self, a: Any, b: Any) -> Any:
        return (a + b) / 2 if a is not None and b is not None else b if a is None else a


class Sampled(Monoid[tuple[int, ...]]):
    """All that was seen, in order."""

    identity: tuple[int, ...] = ()

    def lift(self, value: int) -> tuple[int, ...]:
        return (value,)

    def combine(self, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
        return a + b

    def reduce_sorted(self, columns: Any, starts: Any) -> Any:
        ends = [*starts.tolist()[1:], len(columns[0])]
        return self.pack([tuple(itertools.chain(*columns[0][i:j])) for i, j in zip(starts, ends)])


class Compacting(Sampled):
    """A sketch whose merge halves a large operand on the right only."""

    def combine(self, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
        return a + (b[::2] if len(b) > 6 else b)


class CommutingList(Sampled):
    """A list that claims to commute."""

    commutative = True


class Capped(Sampled):
    """The first three seen."""

    def lift(self, value: int) -> tuple[int, ...]:
        return (value,)

    def combine(self, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
        return (a + b)[:3]

    def reduce_sorted(self, columns: Any, starts: Any) -> Any:
        return self.pack([element[:3] for element in super().reduce_sorted(columns, starts)[0]])


class CappedSketch(Capped):
    """A sketch that keeps what came first, and claims that the order of merging is of no consequence."""

    commutative = True


class Adding(Group[int]):
    identity = 0
    commutative = True

    def combine(self, a: int, b: int) -> int:
        return a + b

    def inverse(self, a: int) -> int:
        return -a


class AddingTwice(Adding):
    """Claims that adding an element again changes nothing."""

    idempotent = True


class SelfInverse(Adding):
    def inverse(self, a: int) -> int:
        return a


class CountAndSum(Group[tuple[int, float]]):
    identity = (0, 0.0)
    commutative = True
    exact = False

    def lift(self, value: float) -> tuple[int, float]:
        return (1, value)

    def combine(self, a: tuple[int, float], b: tuple[int, float]) -> tuple[int, float]:
        return (a[0] + b[0], a[1] + b[1])

    def inverse(self, a: tuple[int, float]) -> tuple[int, float]:
        return (-a[0], 0.0 - a[1])


class RunningMean(CountAndSum):
    """(count, mean) loses its sum where the count comes back to zero."""

    def combine(self, a: tuple[int, float], b: tuple[int, float]) -> tuple[int, float]:
        count = a[0] + b[0]
        return (count, (a[0] * a[1] + b[0] * b[1]) / count) if count else self.identity

    def inverse(self, a: tuple[int, float]) -> tuple[int, float]:
        return (-a[0], a[1])


class Average(CountAndSum):
    """Of nothing it is not thought."""

    def present(self, element: tuple[int, float]) -> float:
        return element[1] / element[0]


class AverageOfSome(CountAndSum):
    def present(self, element: tuple[int, float]) -> float | None:
        return element[1] / element[0] if element[0] else None


# Of these, folding, lifting and presenting.


class Integers(Group[int]):
    """A sum of int64, columnar: most defects of columns are planted in it."""

    identity = 0
    commutative = True
    schema = pa.schema([pa.field("element", pa.int64(), nullable=False)])
    output_type = pa.int64()

    def lift(self, value: int | None) -> int:
        return 0 if value is None else value

    def combine(self, a: int, b: int) -> int:
        return a + b

    def inverse(self, a: int) -> int:
        return -a

    def lift_columns(self, values: Any) -> Any:
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        if not isinstance(values, pa.Array):
            values = pa.array(values, pa.int64())
        return self.of_array(values)

    def of_array(self, values: pa.Array) -> Any:
        """One array without chunks."""
        if isinstance(values, pa.DictionaryArray):
            values = values.dictionary_decode()
        return (values.cast(pa.int64()).fill_null(0).to_numpy(),)

    def pack(self, elements: Sequence[int]) -> Any:
        return (np.array(elements, np.int64),)

    def unpack(self, columns: Any) -> list[int]:
        return list(columns[0].tolist())

    def reduce_sorted(self, columns: Any, starts: Any) -> Any:
        return (np.add.reduceat(columns[0], starts),) if len(starts) else columns

    def reduce_cells(self, columns: Any, cells: Any, counts: Any, held: Any) -> Any:
        totals = np.zeros(len(counts), np.int64)
        np.add.at(totals, cells, columns[0])
        return (totals[held],)

    def present_columns(self, columns: Any) -> pa.Array:
        return pa.array(columns[0], pa.int64())

    def to_arrow(self, columns: Any) -> list[pa.Array]:
        return [pa.array(columns[0], pa.int64())]

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Any:
        return (arrays[0].to_numpy(),)


class ForgetfulFold(Integers):
    """The fold of many forgets the last."""

    def fold(self, elements: Sequence[int]) -> int:
        return sum(elements[: max(1, len(elements) - 1)])


class FoldOfSome(Integers):
    """The fold of none is not thought of."""

    def fold(self, elements: Sequence[int]) -> int:
        return sum(elements[1:], elements[0])


class Lists(Monoid[list[int]]):
    identity: list[int] = []

    def combine(self, a: list[int], b: list[int]) -> list[int]:
        return a + b

    def lift(self, value: list[int]) -> list[int]:
        return sorted(value)

    def present(self, element: list[int]) -> list[int]:
        return sorted(element)


class SortingLift(Lists):
    """Sorts the caller's own list."""

    def lift(self, value: list[int]) -> list[int]:
        value.sort()
        return list(value)


class SortingPresent(Lists):
    """Sorts the element itself."""

    def present(self, element: list[int]) -> list[int]:
        element.sort()
        return element


class MarksNothing(Lists):
    """Presents nothing by writing into it."""

    @property
    def identity(self) -> list[int]:  # type: ignore[override]
        return []

    def present(self, element: list[int]) -> list[int]:
        if not element:
            element.append(0)
            return []
        return sorted(element)


# Bytes.


class Words(Monoid[frozenset[int]]):
    """Sets of integers as sorted words, with a checksum: damage is always seen."""

    identity: frozenset[int] = frozenset()
    commutative = idempotent = True

    def lift(self, value: int) -> frozenset[int]:
        return frozenset({value})

    def combine(self, a: frozenset[int], b: frozenset[int]) -> frozenset[int]:
        return a | b

    def words(self, element: frozenset[int]) -> list[int]:
        """In the order in which they are stored."""
        return sorted(element)

    def encode(self, element: frozenset[int]) -> bytes:
        body = b"".join(struct.pack(">h", word) for word in self.words(element))
        return struct.pack(">I", zlib.crc32(body, len(body))) + body

    def decode(self, data: bytes) -> frozenset[int]:
        if len(data) < 4 or len(data) % 2 or struct.unpack(">I", data[:4])[0] != zlib.crc32(data[4:], len(data) - 4):
            raise ValueError("the bytes are damaged")
        return frozenset(struct.unpack(f">{len(data) // 2 - 2}h", data[4:]))


class Truncating(Words):
    """Stores eight bits of each."""

    def words(self, element: frozenset[int]) -> list[int]:
        return sorted({word & 255 for word in element})


class HashOrdered(Words):
    """The bytes follow the order of insertion into a hash table."""

    def words(self, element: frozenset[int]) -> list[int]:
        return list(element)


class Undefended(Words):
    """Bytes that are cut off raise what a user of it cannot expect."""

    def decode(self, data: bytes) -> frozenset[int]:
        struct.unpack(">I", data[:4])
        return super().decode(data)


class Unchecked(Words):
    """Bytes that follow are not looked at."""

    def encode(self, element: frozenset[int]) -> bytes:
        data = super().encode(element)
        return struct.pack(">H", len(data)) + data

    def decode(self, data: bytes) -> frozenset[int]:
        if len(data) < 2:
            raise ValueError("the bytes are damaged")
        return super().decode(data[2 : 2 + struct.unpack(">H", data[:2])[0]])


class Checked(Unchecked):
    def decode(self, data: bytes) -> frozenset[int]:
        element = super().decode(data)
        if self.encode(element) != data:
            raise ValueError("bytes follow the element")
        return element


@dataclass(frozen=True)
class Reading:
    """A value with a mode that is not compared."""

    value: int
    mode: int = field(default=0, compare=False)


class Readings(Monoid[Reading]):
    """The reading of the highest mode, of equal ones the larger."""

    identity = Reading(-1000, -1)

    def lift(self, value: int) -> Reading:
        return Reading(value, value % 7)

    def combine(self, a: Reading, b: Reading) -> Reading:
        return max(a, b, key=lambda reading: (reading.mode, reading.value))

    def present(self, element: Reading) -> int:
        return element.value

    def encode(self, element: Reading) -> bytes:
        return struct.pack(">hb", element.value, element.mode)

    def decode(self, data: bytes) -> Reading:
        if len(data) != 3:
            raise ValueError("the bytes are damaged")
        return Reading(*struct.unpack(">hb", data))


class ModelessReadings(Readings):
    """Stores no mode."""

    def encode(self, element: Reading) -> bytes:
        return struct.pack(">h", element.value)

    def decode(self, data: bytes) -> Reading:
        if len(data) != 2:
            raise ValueError("the bytes are damaged")
        return Reading(*struct.unpack(">h", data))


class Signs(Readings):
    """The largest value; its mode is only shown."""

    def combine(self, a: Reading, b: Reading) -> Reading:
        return max(a, b, key=lambda reading: reading.value)

    def present(self, element: Reading) -> str:  # type: ignore[override]
        return f"{element.value} of mode {element.mode}"


class ModelessSigns(Signs):
    """Stores no mode."""

    encode = ModelessReadings.encode
    decode = ModelessReadings.decode


class Weighted(Integers):
    def parameters(self) -> dict[str, Any]:
        return {"weight": "0.5", "keys": ["a", "b"]}


class FloatingFingerprint(Weighted):
    """A float does not have one spelling."""

    def parameters(self) -> dict[str, Any]:
        return {"weight": 0.5, "keys": ["a", "b"]}


class TupleFingerprint(Weighted):
    """What is read back from JSON is a list."""

    def parameters(self) -> dict[str, Any]:
        return {"weight": "0.5", "keys": ("a", "b")}


class Addressed(Integers):
    """Shows where it lies in memory."""

    def __repr__(self) -> str:
        return object.__repr__(self)
