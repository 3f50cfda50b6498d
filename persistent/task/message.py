"""A message is one record as a task sees it; a batch is many of them as columns.

A message's ``value`` is a view of its row in the batch. A column becomes Python values when a message first reads it,
so unread fields cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa

from monoids.arrays import python_value
from monoids.groupby.sorting import Integers
from persistent.text.readable import readable


class _Singly:
    """A column that has a value for which Python has none: each is converted by itself, when a message reads it."""

    def __init__(self, name: str, column: pa.Array) -> None:
        self._name = name
        self._column = column

    def __getitem__(self, row: int) -> Any:
        return _python_value(self._column[row], f"field {self._name!r}", f"batch[{self._name!r}]")

    def readable(self, row: int) -> Any:
        return readable(self._column[row])


def _python_value(value: pa.Scalar, what: str, column: str) -> Any:
    try:
        return python_value(value)
    except (OverflowError, ValueError) as error:
        pandas = "; or install pandas, which has one" if "pandas" in str(error) else ""
        raise ValueError(
            f"{what} holds {readable(value)} ({value.type}), for which Python has no value: read the column as Arrow "
            f"has it, {column} in process_batch{pandas}"
        ) from error


class _Lists(dict[str, list[Any] | _Singly]):
    """The columns of a batch as Python lists, each made at first use."""

    def __init__(self, batch: Batch) -> None:
        super().__init__()
        self.batch = batch

    @property
    def names(self) -> list[str]:
        return list(self.batch.table.schema.names)

    def __missing__(self, name: str) -> list[Any] | _Singly:
        column = self.batch[name]
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp(column.type.unit, "UTC"))
        try:
            values: list[Any] | _Singly = column.to_pylist()
        except (OverflowError, ValueError):
            values = _Singly(name, column)
        self[name] = values
        return values


class Row(Mapping[str, Any]):
    """One row of a batch as a mapping of Python values."""

    __slots__ = ("_lists", "_row")

    def __init__(self, lists: _Lists, row: int) -> None:
        self._lists = lists
        self._row = row

    def __getitem__(self, name: str) -> Any:
        return self._lists[name][self._row]

    def __iter__(self) -> Iterator[str]:
        return iter(self._lists.names)

    def __len__(self) -> int:
        return len(self._lists.names)

    def __contains__(self, name: object) -> bool:
        return name in self._lists.names

    def __deepcopy__(self, memo: object) -> Row:
        return self

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a message's value is a mapping: use message.value[{name!r}]")

    def __repr__(self) -> str:
        return repr(self._readable())

    def _readable(self) -> dict[str, Any]:
        """The fields, with a text in place of a value that Python has not."""
        read = {name: self._lists[name] for name in self}
        return {
            name: column.readable(self._row) if isinstance(column, _Singly) else column[self._row]
            for name, column in read.items()
        }


def readable_fields(message: Message) -> dict[str, Any]:
    """The fields of a message, with a text in place of a value for which Python has none."""
    value = message.value
    return value._readable() if isinstance(value, Row) else dict(value)


class Message:
    """One record: ``value`` (a mapping of Python values), ``timestamp`` (ms), and its place in the source.

    ``delivery`` says how it arrived: "live", "replay", "late-join", "retransmit" or "redelivered"; a file's is "live".
    It can differ when the message is read again, so no result may depend on it. ``origin`` and ``sequence`` are those
    of its sender, None if the source does not know them.
    """

    __slots__ = ("timestamp", "value")

    origin: str | None = None
    sequence: int | None = None
    delivery: str = "live"

    def __init__(self, value: Row, timestamp: int) -> None:
        self.value = value
        self.timestamp = timestamp

    @property
    def partition(self) -> str:
        return self._batch.partition

    @property
    def _batch(self) -> Batch:
        return self.value._lists.batch

    @property
    def position(self) -> tuple[int, int]:
        """(ordinal of the file, offset in it); of a broker's message (0, offset)."""
        return self._batch.ordinal, int(self._batch.offsets[self.value._row])

    @property
    def order(self) -> tuple[int, str, tuple[int, int]]:
        """(timestamp, partition, position): a total order of all messages."""
        return self.timestamp, self.partition, self.position

    @property
    def key(self) -> Any:
        """The key: a scalar for one column, a tuple for several, None for a task without keys."""
        if not self._batch.keys:
            return None
        row, keys = self.value._row, self._batch.keys
        try:
            values = tuple(column[row].as_py() for column in keys)
        except (OverflowError, ValueError):
            values = tuple(_python_value(column[row], "the key", "batch.keys") for column in keys)
        return values[0] if len(values) == 1 else values

    def __deepcopy__(self, memo: object) -> Message:
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in self.__slots__:
            raise AttributeError(name)
        raise AttributeError(self._hint(f"message.{name}", name))

    def __getitem__(self, name: Any) -> Any:
        raise TypeError(self._hint(f"message[{name!r}]", name))

    def _hint(self, written: str, name: Any) -> str:
        names = list(self.value)
        wanted = f"use message.value[{name!r}]" if name in names else f"its fields are {', '.join(names)}"
        return f"{written}: the fields of a message are in message.value: {wanted}"

    def __repr__(self) -> str:
        return f"Message({self.value!r}, timestamp={self.timestamp}, position={self.position})"


def _no_keys(batch: Batch) -> tuple[pa.Array, ...]:
    return ()


@dataclass(frozen=True, eq=False)
class Batch:
    """Consecutive records as columns: ``batch[name]`` is an Arrow array, ``timestamps`` int64 ms, ``keys`` the key
    columns, which ``key_of`` makes at first use. None of them can be changed in place.
    """

    table: pa.RecordBatch
    timestamps: Integers
    partition: str
    ordinal: int
    offsets: Integers
    key_of: Callable[[Batch], tuple[pa.Array, ...]] = _no_keys
    _filtered: dict[int, Batch] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        # The clock of the job and every state read these arrays after the task.
        for name, array in (("timestamps", self.timestamps), ("offsets", self.offsets)):
            if array.flags.writeable:
                view = array.view()
                view.flags.writeable = False
                object.__setattr__(self, name, view)

    def __len__(self) -> int:
        return len(self.timestamps)

    @cached_property
    def keys(self) -> tuple[pa.Array, ...]:
        """The key columns of the task, one row per record."""
        return self.key_of(self)

    def of_timestamps(self, timestamps: Any) -> Batch | None:
        """This batch, or the one filtered from it, whose ``timestamps`` is this very object."""
        return self if timestamps is self.timestamps else self._filtered.get(id(timestamps))

    def __getitem__(self, name: str) -> pa.Array:
        place = self.table.schema.get_field_index(name)
        if place < 0:
            raise KeyError(f"no field {name!r}; the fields are {', '.join(self.table.schema.names)}")
        return self.table.column(place)

    @property
    def positions(self) -> list[tuple[int, int]]:
        """The position of each record: (ordinal of the file, offset in it)."""
        return [(self.ordinal, offset) for offset in self.offsets.tolist()]

    @property
    def order(self) -> pa.StructArray:
        """The ``order`` of each message as a column: timestamp, partition, position (ordinal, offset).

        ``First``, ``Last`` and ``Reservoir`` take it beside a column of values:
        ``state.update_batch(batch.timestamps, (batch.order, batch["price"]))``.
        """
        rows = len(self)
        position = pa.StructArray.from_arrays(
            [pa.array(np.full(rows, self.ordinal, np.int64)), pa.array(self.offsets)], ["ordinal", "offset"]
        )
        partition = pa.array([self.partition], pa.string()).take(pa.array(np.zeros(rows, np.int64)))
        return pa.StructArray.from_arrays(
            [pa.array(self.timestamps), partition, position], ["timestamp", "partition", "position"]
        )

    def filter(self, mask: Any) -> Batch:
        """The records where ``mask`` (Arrow or NumPy booleans, null is false) is true."""
        chosen = np.asarray(mask.fill_null(False)) if isinstance(mask, pa.Array | pa.ChunkedArray) else np.asarray(mask)
        if chosen.dtype != bool or len(chosen) != len(self):
            raise ValueError(f"a filter needs {len(self)} booleans, not {len(chosen)} of {chosen.dtype}")
        return self.take(np.flatnonzero(chosen))

    def take(self, rows: Integers) -> Batch:
        """The records of these row numbers, in their order."""
        if len(rows) == len(self) and np.array_equal(rows, np.arange(len(self))):
            return self
        taken = replace(
            self,
            table=self.table.take(pa.array(rows)),
            timestamps=self.timestamps[rows],
            offsets=self.offsets[rows],
        )
        self._filtered[id(taken.timestamps)] = taken
        return taken

    def slice(self, start: int, stop: int) -> Batch:
        """The records ``start <= row < stop``."""
        if start == 0 and stop >= len(self):
            return self
        rows = slice(start, stop)
        return replace(
            self,
            table=self.table.slice(start, stop - start),
            timestamps=self.timestamps[rows],
            offsets=self.offsets[rows],
            _filtered={},
        )

    def messages(self) -> Iterator[Message]:
        """The records one by one."""
        return map(Message, map(Row, repeat(_Lists(self)), range(len(self))), self.timestamps.tolist())
