"""An exponentially decayed sum: the weight of a value halves with each half-life since its timestamp.

    element == (newest timestamp, sum of value * 2**-((newest - timestamp) / half_life))

``combine`` decays the older operand to the newer timestamp. Weights are computed by float additions and
multiplications alone, so they are the same on every machine.

Source: G. Cormode, V. Shkapenyuk, D. Srivastava, B. Xu, Forward Decay (ICDE 2009), with a moving landmark.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from monoids.column import Column, Columns
from monoids.fixed import canonical_floats
from monoids.monoid import Monoid, check_schema
from monoids.numbers.integers import decoded_as, decoded_float
from monoids.pairs import holds_columns, pair, pair_columns
from monoids.values import ValueType

Decaying = tuple[int | None, float]
"""The newest timestamp, None without input, and the sum at that time."""

NAMES = ("timestamp", "value")
TIME_LIMIT_MS = 2**62
_NONE = -(2**63)
_HALF_LIFE_LIMIT_MS = 2**53
_HALVINGS_MAX = 5000
_BLOCK_ROWS = 1 << 14
_MS = {"ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "day": 86_400_000, "week": 604_800_000}
_TERMS = [1.0 / math.factorial(power) for power in range(19, -1, -1)]
_LN2 = 0.6931471805599453


class Decayed(Monoid[Decaying]):
    """The sum of values at the newest timestamp, each halved for every ``half_life`` of its age; 0.0 without input.

    ``half_life``: milliseconds, a timedelta, or a text such as "1 h" (units ms, s, min, h, days, weeks). An input is a
    pair (timestamp, value): an integer of milliseconds, in any order, and a number; pairs have the forms of
    ``Covariance``, with these names. A pair without timestamp or value contributes nothing. ``present_at(element,
    time)`` is the sum at a later time.

    Not exact: the error of n inputs is at most ``n * 2**-50`` times the decayed sum of their magnitudes, above
    subnormals. A NaN makes the sum NaN. Infinities do not decay; both signs together give NaN.

    >>> load = Decayed("1 min")
    >>> total = load.combine(load.lift((0, 8.0)), load.lift((60_000, 1.0)))
    >>> load.present(total), load.present_at(total, 120_000)
    (5.0, 2.5)
    """

    identity: Decaying = (None, 0.0)
    commutative = True
    exact = False
    name = "Decayed"
    schema = pa.schema([pa.field("timestamp", pa.int64()), pa.field("value", pa.float64(), nullable=False)])
    output_type = pa.float64()

    def __init__(self, half_life: int | timedelta | str) -> None:
        self.half_life_ms = _milliseconds(half_life)
        self._time = ValueType(repr(self), "int", pa.int64(), frozenset({"int"}))
        self._value = ValueType(repr(self), "float", pa.float64(), frozenset({"float"}))

    def parameters(self) -> dict[str, Any]:
        return {"half_life_ms": self.half_life_ms}

    def __repr__(self) -> str:
        return f"Decayed({self.half_life_ms})"

    def combine(self, a: Decaying, b: Decaying) -> Decaying:
        if a[0] is None or b[0] is None:
            return a if b[0] is None else b
        newest = max(a[0], b[0])
        return (newest, self._decay(a[1], newest - a[0]) + self._decay(b[1], newest - b[0]) + 0.0)

    def lift(self, value: Any) -> Decaying:
        """ValueError for a timestamp of 2**62 ms or more in magnitude."""
        time, number = pair(value, NAMES)
        if time is None or number is None:
            return self.identity
        time = self._time.accept(time)
        if abs(time) >= TIME_LIMIT_MS:
            raise self._beyond(time)
        return (time, self._value.accept(number))

    def present(self, element: Decaying) -> float:
        return element[1] + 0.0

    def present_at(self, element: Decaying, time: int) -> float:
        """The sum at ``time``, an int of milliseconds. ValueError if an input is newer: earlier sums are not kept."""
        if not isinstance(time, (int, np.integer)):
            raise TypeError(f"{self!r}: present_at takes a time in whole milliseconds: write an int, not {time!r:.60}")
        newest, value = element
        if newest is None:
            return 0.0
        if time < newest:
            raise ValueError(f"{self!r}: the newest input is at {newest} ms: ask for that time or later")
        return self._decay(value, int(time) - newest)

    def decode(self, data: bytes) -> Decaying:
        element = decoded_as(self, data, tuple)
        if len(element) != 2 or (element[0].__class__ is not int and element != self.identity):
            raise ValueError(f"{self!r}: the encoded element is {element!r:.60}, not a timestamp and a sum")
        if element[0] is not None and abs(element[0]) >= TIME_LIMIT_MS:
            raise ValueError(f"{self!r}: the encoded element has the timestamp {element[0]}, which is out of range")
        decoded_float(self, element[1])
        return element

    # Columns: the newest timestamps, the least int64 without input; and the sums.

    def lift_columns(self, values: Any) -> Columns:
        return self._lifted(*pair_columns(values, NAMES))

    def lift_rows(self, values: Any, length: int) -> Columns:
        """As in any monoid; or timestamp and value, in a tuple or mapping, each a column or one value for all rows."""
        if holds_columns(values):
            return self._lifted(*pair_columns(values, NAMES, length))
        return super().lift_rows(values, length)

    def pack(self, elements: Sequence[Decaying]) -> Columns:
        times = np.array([_NONE if time is None else time for time, _ in elements], np.int64)
        return (times, np.array([value for _, value in elements], np.float64))

    def unpack(self, columns: Columns) -> list[Decaying]:
        times, values = columns
        pairs = zip(times.tolist(), (values + 0.0).tolist())
        return [(None if time == _NONE else time, value) for time, value in pairs]

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        times, values = columns
        if len(starts) == len(times):
            return columns
        newest = np.maximum.reduceat(times, starts)
        decayed = self._decay_columns(values, np.repeat(newest, np.diff(starts, append=len(times))), times)
        with np.errstate(invalid="ignore", over="ignore"):
            return (newest, np.add.reduceat(decayed, starts))

    def reduce_cells(self, columns: Columns, cells: Column, counts: Column, held: Column) -> Columns | None:
        times, values = columns
        newest = np.full(len(counts), _NONE)
        np.maximum.at(newest, cells, times)
        decayed = self._decay_columns(values, newest[cells], times)
        with np.errstate(invalid="ignore", over="ignore"):
            return (newest[held], np.bincount(cells, weights=decayed, minlength=len(counts))[held])

    def present_columns(self, columns: Columns) -> pa.Array:
        return pa.array(canonical_floats(columns[1]))

    def to_arrow(self, columns: Columns) -> list[pa.Array]:
        times, values = columns
        none = times == _NONE
        return [pa.array(times, mask=none), pa.array(canonical_floats(values))]

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Columns:
        """ValueError also for a timestamp out of range, and for a sum without inputs."""
        check_schema(self, arrays)
        times, values = arrays[0].fill_null(0).to_numpy(), arrays[1].to_numpy()
        if len(times) and max(int(times.max()), -int(times.min())) >= TIME_LIMIT_MS:
            raise ValueError(f"{self!r}: a stored element has a timestamp that is out of range")
        none = arrays[0].is_null().to_numpy(zero_copy_only=False)
        if (values[none] != 0).any():
            raise ValueError(f"{self!r}: a stored element has a sum without inputs")
        return (np.where(none, _NONE, times), values)

    # Decay.

    def _decay(self, value: float, elapsed_ms: int) -> float:
        halvings, rest = divmod(elapsed_ms, self.half_life_ms)
        return math.ldexp(value * _weight(rest / self.half_life_ms), -min(halvings, _HALVINGS_MAX))

    def _decay_columns(self, values: Column, until: Column, times: Column) -> Column:
        """The values at the times ``until``. A row without input is 0.0 and stays 0.0."""
        decayed = np.empty(len(values))
        with np.errstate(invalid="ignore", over="ignore", under="ignore"):
            for begin in range(0, len(values), _BLOCK_ROWS):
                rows = slice(begin, begin + _BLOCK_ROWS)
                elapsed = until[rows] - np.where(times[rows] == _NONE, until[rows], times[rows])
                halvings, rest = np.divmod(elapsed, self.half_life_ms)
                weighted = values[rows] * _weight(rest / self.half_life_ms)
                np.ldexp(weighted, -np.minimum(halvings, _HALVINGS_MAX), out=decayed[rows])
        return decayed

    def _lifted(self, times: Any, values: Any) -> Columns:
        time, value = self._time.column(times), self._value.column(values)
        numbers = (time.fill_null(0) if time.null_count else time).to_numpy()
        if len(numbers) and max(int(numbers.max()), -int(numbers.min())) >= TIME_LIMIT_MS:
            raise self._beyond(max(numbers.tolist(), key=abs))
        if not time.null_count and not value.null_count:
            return (numbers, value.to_numpy())
        valid = time.is_valid().to_numpy(zero_copy_only=False) & value.is_valid().to_numpy(zero_copy_only=False)
        floats = (value.fill_null(0.0) if value.null_count else value).to_numpy()
        return (np.where(valid, numbers, _NONE), np.where(valid, floats, 0.0))

    def _beyond(self, time: int) -> ValueError:
        return ValueError(f"{self!r}: the timestamp {time} is out of range: give milliseconds since the Unix epoch")


def _weight(lives: Any) -> Any:
    """``2**-lives`` for 0 to 1 half-lives, as floats or arrays: a Taylor series, within 2 units in the last place."""
    power = lives * -_LN2
    total = power * _TERMS[0] + _TERMS[1]
    for term in _TERMS[2:]:
        total = total * power + term
    return total


def _milliseconds(half_life: int | timedelta | str) -> int:
    asked = "write milliseconds as an int, a timedelta, or a text such as '1 h' (ms, s, min, h, days, weeks)"
    match half_life:
        case timedelta():
            duration, rest = divmod(half_life, timedelta(milliseconds=1))
            if rest:
                raise ValueError(f"Decayed({half_life!r}): a half-life is a whole number of milliseconds")
        case str():
            groups = re.fullmatch(r"(\d+) ?(?:(ms|s|min|h)|(day|week)s?)", half_life, re.ASCII)
            if not groups:
                raise ValueError(f"Decayed({half_life!r}): {asked}")
            duration = int(groups[1]) * _MS[groups[2] or groups[3]]
        case int() if not isinstance(half_life, bool):
            duration = half_life
        case _:
            raise TypeError(f"Decayed({half_life!r}): {asked}")
    if not 0 < duration < _HALF_LIFE_LIMIT_MS:
        raise ValueError(f"Decayed({half_life!r}): a half-life is at least 1 ms, and below 2**53 ms")
    return duration
