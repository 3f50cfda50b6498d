"""HeavyHitters finds the most frequent values: a CountMin counts them, a sample of occurrences supplies candidates.

Every occurrence of a value has a priority, the hash of its id and the value; a value's priority is the least of its
occurrences'. The ``track`` values with the least (priority, value) are the candidates; CountMin counts them. Presented
are the ``k`` candidates with the largest counts; ``k`` is not part of an element.

    candidates(S + T) == candidates(candidates(S) + candidates(T))

Proof. Let v be a candidate of S + T, with priority p from S. If v were no candidate of S, then ``track`` values would
precede it in S, and also in S + T, where priorities are no higher: a contradiction. So v is a candidate of S, with
priority p. Any other value w among candidates(S) and candidates(T) has there its priority in S + T or a higher one, so
it follows all candidates of S + T and is dropped. Hence ``combine`` is associative and commutative to the bit. A heap
of the highest estimates is not: what it drops early depends on the order of merges.

Guarantee, for N occurrences with distinct ids: a value with a share f of them is missed with probability at most
``(1 - f)**track``, because the first ``track`` occurrences by priority are a random sample without replacement, and
all their values are candidates. No count is too low; a count is too high as in CountMin. Not every candidate is
frequent: rare ones have small counts and come last.

Sources: Cormode, Muthukrishnan: An improved data stream summary, 2005; Cohen, Kaplan: Summarizing data using bottom-k
sketches, 2007.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from monoids import encoding
from monoids.arrays import python_list
from monoids.column import Column, Columns, Ragged, take
from monoids.comparing.id_hashes import hash_id, hash_ids
from monoids.groupby.cells import Integers
from monoids.hashing import hash_key, hash_keys, key_column
from monoids.monoid import Monoid, check_schema, is_column
from monoids.numbers.integers import decoded_as
from monoids.ordered import Ordered
from monoids.pairs import Names, pair, pair_columns
from monoids.scalars import is_missing, scalar, shown
from monoids.sketches.count_min import Cells, CountMin
from monoids.sketches.inputs import integer
from monoids.table import Table, group_entries, list_array
from monoids.text import Words
from monoids.values import ValueType, spelled

Candidates = dict[Any, int]
"""Value to priority, for at most ``track`` values."""
Hitters = tuple[Cells, Candidates]
"""An element: the counts and the candidates."""

_NAMES: Names = ("id", "value")
_NOTHING = 2**64 - 1
_TRACK_FOR_EACH = 100
_TRACK_LEAST = 1_000
_TRACK_MOST = 2**20


class HeavyHitters(Monoid[Hitters]):
    """The ``k`` most frequent values of one type, most frequent first, each with its count or a little more.

    ``Bag`` counts each value exactly, in memory for all of them. The ``k`` *largest* values are ``TopK``, exactly.

    An input is a pair (id, value) or {"id": i, "value": v}. The id identifies the occurrence and makes the sample
    random: ``message.order``, a position or a request number; not the value itself, nor a time that many share. An id
    is a key of numbers, text, bytes, dates, times, or a nested tuple of these; mappings and struct arrays count as the
    tuples of their values. None, and a pair with None as value, as id or in it, contributes nothing. The same (id,
    value) twice counts twice but is one draw of the sample.

        state.update(t, (message.order, message.value["page"]))
        state.update_batch(batch.timestamps, (batch.order, batch["page"]))

    The bound: ``track`` values are kept, by default 100 for each shown and at least 1,000. Up to that many distinct
    values none is missing. Beyond, a value with a share f of all occurrences is missing with probability at most
    ``(1 - f)**track``: by default, a share of 1 / (10 k), which is 1 % for k = 10, is missing once in 20,000 times. No
    count is too low. Each is too high by more than ``error`` (0.1 %) of the total at most once in 100 times, so values
    with counts that close may swap places: for a k above 10 choose an error of about 1 / (100 k).

    ``error`` and ``confidence``, or ``width`` and ``depth``, are those of CountMin. Presented as a list of {value,
    count}; equal counts put the smaller value first. Memory: CountMin's, and ``track`` values with 8 bytes each. State
    depends on ``track`` and not on ``k``, which may change from run to run. A checkpoint made with HeavyHitters(10,
    str) before ``track`` existed tracks ten values: continue it with ``HeavyHitters(10, str, track=10)``.

    >>> words = HeavyHitters(2, str)
    >>> total = words.fold([words.lift((at, word)) for at, word in enumerate("to be or not to be or else".split())])
    >>> words.present(total)
    [{'value': 'be', 'count': 2}, {'value': 'or', 'count': 2}]
    """

    commutative = True
    name = "HeavyHitters"

    def __init__(
        self,
        k: int = 10,
        type: Any = int,
        *,
        track: int | None = None,
        error: Any = None,
        confidence: Any = None,
        width: int | None = None,
        depth: int | None = None,
    ) -> None:
        if not isinstance(k, int):
            raise TypeError(
                f"HeavyHitters({spelled(k)}, ...): k comes first, the number of values, then their type:"
                " HeavyHitters(10, str)"
            )
        self.k = integer("HeavyHitters", "k", k, 1, _TRACK_MOST)
        least = min(max(_TRACK_FOR_EACH * self.k, _TRACK_LEAST), _TRACK_MOST)
        self.track = integer("HeavyHitters", "track", least if track is None else track, 1, _TRACK_MOST)
        if self.track < self.k:
            raise ValueError(
                f"HeavyHitters({k}, track={track}) cannot show {k} values and track {track}: track at least as many as"
                f" you show, or omit track=, which tracks {least:,}"
            )
        self.counts = CountMin(type, error=error, confidence=confidence, width=width, depth=depth)
        self.candidates = _CandidateTable(self.counts.type, self.track)
        self.type = self.counts.type
        self.schema = pa.schema(
            [self.counts.schema.field(0).with_name("cells"), self.candidates.schema.field(0).with_name("candidates")]
        )
        entry = pa.struct([pa.field("value", self.type.arrow), pa.field("count", pa.int64())])
        self.output_type: pa.DataType = pa.list_(entry)

    @property
    def identity(self) -> Hitters:
        return {}, {}

    def parameters(self) -> dict[str, Any]:
        """``k`` here is the number tracked, from when one number meant both. The number shown is not state."""
        return {"k": self.track, **self.counts.parameters()}

    def __repr__(self) -> str:
        written = self.type.title.partition("(")[2][:-1]
        sizes = f"track={self.track}, width={self.counts.width}, depth={self.counts.depth}"
        return f"HeavyHitters({self.k}, {written}, {sizes})"

    def combine(self, a: Hitters, b: Hitters) -> Hitters:
        return self.counts.combine(a[0], b[0]), self.candidates.combine(a[1], b[1])

    def lift(self, value: Any) -> Hitters:
        """TypeError for a value that is not a pair, and for an id that cannot be a key."""
        id, value = pair(value, _NAMES)
        accepted = None if is_missing(value) else self.type.accept(value)
        hashed = hash_id(0, id)
        if accepted is None or hashed is None:
            return {}, {}
        return self.counts.lift(accepted), {accepted: _priority(hashed, accepted)}

    def present(self, element: Hitters) -> list[dict[str, Any]]:
        cells, candidates = element
        counted = [(value, self.counts.estimate(cells, value)) for value in candidates]
        counted.sort(key=lambda entry: (-entry[1], encoding.order_key(entry[0])))
        return [{"value": value, "count": count} for value, count in counted[: self.k]]

    def estimate(self, element: Hitters, value: Any) -> int:
        """How often any value occurs, or more, whether it is a candidate or not."""
        return self.counts.estimate(element[0], value)

    def encode(self, element: Hitters) -> bytes:
        return encoding.encode((self.track, self.counts.encode(element[0]), self.candidates.encode(element[1])))

    def decode(self, data: bytes) -> Hitters:
        parts = decoded_as(self, data, tuple)
        if [part.__class__ for part in parts] != [int, bytes, bytes]:
            raise ValueError(f"{self!r}: the encoded element is not counts and candidates")
        if parts[0] != self.track:
            raise ValueError(f"{self!r} cannot read a sketch of {parts[0]} candidates: read it with track={parts[0]}")
        cells, candidates = self.counts.decode(parts[1]), self.candidates.decode(parts[2])
        if bool(cells) != bool(candidates) or not all(self.counts.estimate(cells, value) > 0 for value in candidates):
            raise ValueError(f"{self!r}: a candidate without a count, or counts without a candidate")
        return cells, candidates

    # Columns: the cells and the candidates, each a table.

    def pack(self, elements: Sequence[Hitters]) -> Columns:
        (cells,) = self.counts.pack([element[0] for element in elements])
        (candidates,) = self.candidates.pack([element[1] for element in elements])
        return cells, candidates

    def unpack(self, columns: Columns) -> list[Hitters]:
        return list(zip(self.counts.unpack(columns[:1]), self.candidates.unpack(columns[1:])))

    def lift_columns(self, values: Any) -> Columns:
        if _is_list_column(values):
            values = python_list(values)
        ids, items = pair_columns(values, _NAMES)
        return self._lift(ids, items, len(values))

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
        if is_column(items) and len(items) != length:
            raise ValueError(f"{self!r} was given a column of {len(items)} values for {length} rows")
        return self._lift(ids, items if is_column(items) else [scalar(items)] * length, length)

    def _lift(self, ids: Any, values: Any, length: int) -> Columns:
        column, valid = self.candidates.values.store(values)
        if _is_list_column(ids):
            ids = python_list(ids)
        hashed, known = hash_ids(0, ids, length)
        if known is not None:
            valid = known if valid is None else valid & known
        priorities = _priority_columns(hashed, self.candidates.values.to_arrow(column))
        (candidates,) = self.candidates.single(column, valid, (priorities,))
        return self.counts.lift_stored(column, valid), candidates

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        (cells,) = self.counts.reduce_sorted(columns[:1], starts)
        (candidates,) = self.candidates.reduce_sorted(columns[1:], starts)
        return cells, candidates

    def present_columns(self, columns: Columns) -> pa.Array:
        cells, candidates = columns
        values, _ = candidates.flat()
        rows = candidates.spread(np.arange(len(candidates)))
        counts = self.counts.estimate_columns(cells, rows, values)
        order = np.lexsort((-counts, rows))
        starts = np.cumsum(candidates.lengths) - candidates.lengths
        order = order[np.arange(len(order)) - starts[rows] < self.k]
        entry_values = self.candidates.values.show(take((values,), order)[0])
        fields = list(self.output_type.value_type)
        entries = pa.StructArray.from_arrays([entry_values, pa.array(counts[order])], fields=fields)
        return list_array(np.minimum(candidates.lengths, self.k), entries, self.output_type)

    def to_arrow(self, columns: Columns) -> list[pa.Array]:
        return [*self.counts.to_arrow(columns[:1]), *self.candidates.to_arrow(columns[1:])]

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Columns:
        """ValueError as in CountMin, and for a candidate without a count or counts without a candidate."""
        check_schema(self, arrays)
        (cells,), (candidates,) = self.counts.from_arrow(arrays[:1]), self.candidates.from_arrow(arrays[1:])
        values, _ = candidates.flat()
        counts = self.counts.estimate_columns(cells, candidates.spread(np.arange(len(candidates))), values)
        if (counts <= 0).any() or ((cells.lengths > 0) != (candidates.lengths > 0)).any():
            raise ValueError(f"{self!r}: a candidate without a count, or counts without a candidate")
        return cells, candidates


class _Priority(Monoid[int]):
    """The least priority; 2**64 - 1 without an occurrence."""

    identity = _NOTHING
    commutative = True
    idempotent = True
    name = "Priority"
    schema = pa.schema([pa.field("priority", pa.uint64(), nullable=False)])

    def combine(self, a: int, b: int) -> int:
        return min(a, b)

    def pack(self, elements: Sequence[int]) -> Columns:
        return (np.array(elements, np.uint64),)

    def unpack(self, columns: Columns) -> list[int]:
        return list(columns[0].tolist())

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        return (np.minimum.reduceat(columns[0], starts) if len(starts) else columns[0],)

    def to_arrow(self, columns: Columns) -> list[pa.Array]:
        return [pa.array(columns[0])]

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Columns:
        check_schema(self, arrays)
        return (np.asarray(arrays[0].to_numpy(zero_copy_only=False), np.uint64),)


class _CandidateTable(Table[Candidates]):
    """The ``track`` values with the least (priority, value), each with its priority."""

    identity: Candidates = {}
    idempotent = True
    name = "Candidates"

    def __init__(self, type: ValueType, track: int) -> None:
        self.type = type
        self.track = track
        self.values = Ordered(type)
        super().__init__(self.values, _Priority())

    def combine(self, a: Candidates, b: Candidates) -> Candidates:
        total = {value: min(a.get(value, _NOTHING), b.get(value, _NOTHING)) for value in {**a, **b}}
        least = sorted(total, key=lambda value: (total[value], encoding.order_key(value)))
        return {value: total[value] for value in least[: self.track]}

    def decode(self, data: bytes) -> Candidates:
        candidates = decoded_as(self, data, dict)
        if len(candidates) > self.track:
            raise ValueError(f"{self!r}: {len(candidates)} candidates exceed track={self.track}")
        for value, priority in candidates.items():
            if encoding.encode(_accepted(self.type, value)) != encoding.encode(value):
                raise ValueError(f"{self!r}: the candidate {shown(value)} is not a {self.type.arrow}")
            if priority.__class__ is not int or not 0 <= priority < _NOTHING:
                raise ValueError(f"{self!r}: the candidate {shown(value)} has the priority {priority!r:.60}")
        return candidates

    def entries(self, element: Candidates) -> tuple[list[Any], list[int]]:
        return list(element), list(element.values())

    def of_entries(self, keys: Sequence[Any], inner: Sequence[int]) -> Candidates:
        return dict(zip(keys, inner))

    def merge(self, table: Ragged, segments: Integers, count: int) -> Ragged:
        """The values of each segment merged; of more than ``track``, those with the least priority are kept."""
        merged = super().merge(table, segments, count)
        if not len(merged) or int(merged.lengths.max()) <= self.track:
            return merged
        values, priorities = merged.flat()
        rows = merged.spread(np.arange(len(merged)))
        long = np.flatnonzero(merged.lengths[rows] > self.track)
        order, _ = group_entries(rows[long], priorities[long], 64, len(merged))
        sizes = np.bincount(rows[long], minlength=len(merged))
        places = np.arange(len(long)) - (np.cumsum(sizes) - sizes)[rows[long[order]]]
        kept = np.ones(len(rows), bool)
        kept[long[order[places >= self.track]]] = False
        return Ragged.of(np.minimum(merged.lengths, self.track), take((values, priorities), np.flatnonzero(kept)))

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Columns:
        check_schema(self, arrays)
        (table,) = super().from_arrow(arrays)
        _, priorities = table.flat()
        if len(table) and int(table.lengths.max()) > self.track:
            raise ValueError(f"{self!r}: an element has more than track={self.track} candidates")
        if (priorities == np.uint64(_NOTHING)).any():
            raise ValueError(f"{self!r}: a candidate without a priority")
        return (table,)


def _accepted(type: ValueType, value: Any) -> Any:
    """ValueError for a decoded value that is not of this type."""
    try:
        return type.accept(value)
    except (TypeError, OverflowError) as error:
        raise ValueError(f"a candidate of another type: {error}") from error


def _is_list_column(values: Any) -> bool:
    return isinstance(values, (pa.Array, pa.ChunkedArray)) and bool(pa.types.is_list(values.type))


def _priority(id: int, value: Any) -> int:
    """The priority of an occurrence of ``value``; ``id`` is the hash of its id."""
    value = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return min(hash_key(id - (id >> 63 << 64), value), _NOTHING - 1)


def _priority_columns(ids: Words, values: pa.Array) -> Words:
    hashes = hash_keys((pa.array(ids.view(np.int64)), key_column(values)), len(ids))
    np.minimum(hashes, np.uint64(_NOTHING - 1), out=hashes)
    return hashes
