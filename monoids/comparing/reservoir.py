"""A reservoir is a uniform sample of k values: those whose ids have the k smallest hashes.

    combine(a, b) == the k entries of a and b together with the smallest hashes

Bottom-k sampling (Cohen, Kaplan: Summarizing data using bottom-k sketches, 2007): the hash of an id serves as its
random number, the same on every replay, machine and path. An id that occurs again changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from monoids import encoding
from monoids.arrays import python_list
from monoids.column import Columns, Ragged, take
from monoids.comparing.extremes import Min
from monoids.comparing.id_hashes import hash_id, hash_ids
from monoids.groupby.cells import Integers
from monoids.ordered import IntegerKeys
from monoids.pairs import Names, pair, pair_columns
from monoids.table import Table, list_array
from monoids.values import ALL_KINDS, value_type

SampleEntries = tuple[tuple[int, Any], ...]
"""An element: pairs (hash of the id, value), ordered by hash."""

_NAMES: Names = ("id", "value")


class Reservoir(Table[SampleEntries]):
    """A sample of ``k`` values without replacement, presented as a list; all values while there are fewer than ``k``.

    Lift takes pairs (id, value). The id names the occurrence: ``message.order``, or any key of numbers, text, bytes,
    dates, times, or nested tuples of these; mappings and struct arrays count as the tuples of their values. Over the
    choice of ``seed``, every set of ``k`` distinct ids is equally likely, up to the quality of a 64-bit hash; the
    values do not matter. Two samples with the same seed are not independent: they choose the same ids where they share
    any, which makes them comparable. The first j of the list are a sample of j.

    ``type``: the type of values. Of two values under one id the smaller is kept. None, and a pair with None as value,
    as id or in it, contributes nothing. Two ids with the same hash, 1 in 2**64, count as one.

        state.update(t, (message.order, message.value["page"]))
        state.update_batch(batch.timestamps, (batch.order, batch["page"]))

    >>> sample = Reservoir(2, str)
    >>> seen = sample.fold([sample.lift((at, page)) for at, page in enumerate(["/a", "/b", "/c", "/d"])])
    >>> len(sample.present(seen)), sample.combine(seen, seen) == seen
    (2, True)
    """

    identity: SampleEntries = ()
    idempotent = True
    name = "Reservoir"

    def __init__(self, k: int, type: Any = int, *, seed: int = 0) -> None:
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise TypeError(f"Reservoir({k!r}): k is the number of values to keep, 1 or more")
        if isinstance(seed, bool) or not isinstance(seed, int) or not -(2**63) <= seed < 2**63:
            raise TypeError(f"Reservoir(..., seed={seed!r}): a seed is an integer of 64 bits")
        self.k = k
        self.seed = seed
        self._value = value_type("Reservoir", type, ALL_KINDS, leading=str(k))
        self.smallest = Min(type)
        super().__init__(IntegerKeys(np.dtype(np.uint64)), self.smallest, entries_max=k)
        self.output_type = pa.list_(pa.field("item", self._value.arrow, nullable=False))

    def parameters(self) -> dict[str, Any]:
        return {"k": self.k, "type": str(self._value.arrow), "seed": self.seed}

    def __repr__(self) -> str:
        seed = f"seed={self.seed}" if self.seed else ""
        return f"Reservoir({', '.join(filter(None, (str(self.k), self._value.written, seed)))})"

    def combine(self, a: SampleEntries, b: SampleEntries) -> SampleEntries:
        return self.fold((a, b)) if a and b else a or b

    def fold(self, elements: Sequence[SampleEntries]) -> SampleEntries:
        kept: dict[int, Any] = {}
        for element in elements:
            for priority, value in element:
                kept[priority] = self.smallest.combine(kept.get(priority), value)
        return tuple(sorted(kept.items(), key=lambda entry: entry[0])[: self.k])

    def lift(self, value: Any) -> SampleEntries:
        """``value``: a pair, as a tuple or a mapping of ``id`` and ``value``, or None. TypeError for anything else."""
        key, item = pair(value, _NAMES)
        accepted = None if item is None else self._value.accept(item)
        priority = hash_id(self.seed, key)
        return () if accepted is None or priority is None else ((priority, accepted),)

    def present(self, element: SampleEntries) -> list[Any]:
        return [value for _, value in element]

    def decode(self, data: bytes) -> SampleEntries:
        element = encoding.decode(data)
        try:
            sample = self.fold([((priority, self._value.accept(value)),) for priority, value in element])
        except (TypeError, ArithmeticError) as error:
            raise ValueError(f"{self!r}: the encoded element is not a sample of its type: {error}") from error
        hashes = all(type(priority) is int and 0 <= priority < 2**64 for priority, _ in sample)
        if not hashes or encoding.encode(sample) != data:
            raise ValueError(f"{self!r}: the encoded element is not in this monoid's canonical form")
        return sample

    def entries(self, element: SampleEntries) -> tuple[list[int], list[Any]]:
        return [priority for priority, _ in element], [value for _, value in element]

    def of_entries(self, keys: Sequence[Any], inner: Sequence[Any]) -> SampleEntries:
        return tuple(zip(keys, inner))

    # Columns.

    def lift_rows(self, values: Any, length: int) -> Columns:
        """As in any monoid; or a pair (tuple or mapping) whose parts are each a column or one value for every row.

        Ids may then also be a list, one per row; if they have several parts, a struct array such as ``batch.order``, or
        a tuple of columns. ValueError for a column of another length.
        """
        if isinstance(values, Mapping) and values.keys() == set(_NAMES):
            values = (values["id"], values["value"])
        if not isinstance(values, tuple) or len(values) != 2:
            return super().lift_rows(values, length)
        ids, items = values
        return self._elements(ids, self.smallest.lift_rows(items, length), length)

    def lift_columns(self, values: Any) -> Columns:
        if isinstance(values, (pa.Array, pa.ChunkedArray)) and pa.types.is_list(values.type):
            values = python_list(values)
        ids, items = pair_columns(values, _NAMES)
        return self._elements(ids, self.smallest.lift_columns(items), len(values))

    def _elements(self, ids: Any, inner: Columns, length: int) -> Columns:
        priorities, valid = hash_ids(self.seed, ids, length)
        _, valid_items = inner
        valid = valid_items if valid is None else valid & valid_items
        return self.single(priorities, None if valid.all() else valid, inner)

    def merge(self, table: Ragged, segments: Integers, count: int) -> Ragged:
        """As in any table, but the cut-off entries are freed: they would take memory, and space in files as padding."""
        merged = super().merge(table, segments, count)
        kept = merged.flat()
        if len(kept[0]) < len(merged.columns[0]):
            kept = take(kept, np.arange(len(kept[0])))
        return Ragged.of(merged.lengths, kept)

    def present_columns(self, columns: Columns) -> pa.Array:
        (table,) = columns
        _, *inner = table.flat()
        return list_array(table.lengths, self.smallest.present_columns(tuple(inner)), self.output_type)
