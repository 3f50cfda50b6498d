"""The laws of columns: elements in columns give the same results as one by one.

Where two columnar ways must agree (in stages and at once, a slice and its copy), the sides are these two ways, so
each law detects the defects of its own kind and no others. The laws of lifting are in ``lifting``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa

from monoids import encoding
from monoids.arrays import is_as_wide, python_list
from monoids.column import ArrowColumn, Column, Columns, Ragged, concat, repeat, take
from monoids.laws.lifting import sliced_of, starts_of
from monoids.laws.scalar import NOTHING, M, Sides, presentable
from monoids.laws.terms import fresh
from monoids.monoid import arrow_column
from monoids.records import RecordMonoid

# Columns of elements.


def pack_round_trip(monoid: M, elements: list[Any]) -> Sides:
    """unpack(pack(elements)) and identity == elements and identity"""
    elements = [*elements, monoid.identity]
    return monoid.unpack(monoid.pack(elements)), elements


def empty_columns(monoid: M) -> Sides:
    """no elements packed, reduced, stored, presented == no elements"""
    empty = monoid.pack([])
    reduced = monoid.reduce_sorted(empty, np.zeros(0, np.int64))
    stored = monoid.from_arrow(monoid.to_arrow(empty))
    presented = [len(column) for column in monoid.present_fields(empty).values()]
    return [*map(monoid.unpack, (empty, reduced, stored)), *presented], [[], [], [], *[0] * len(presented)]


def take_rows(monoid: M, elements: list[Any], cuts: list[int]) -> Sides:
    """unpack(take(pack(elements), rows)) == [elements[row] for row in rows]"""
    rows = [cut % len(elements) for cut in cuts]
    packed, elements = _packed(monoid, elements)
    return monoid.unpack(take(packed, np.array(rows, np.int64))), [elements[row] for row in rows]


def concat_parts(monoid: M, elements: list[Any], cuts: list[int]) -> Sides:
    """unpack(concat(packed parts)) == all parts"""
    starts = starts_of(len(elements), cuts[:4])
    parts = [_packed(monoid, elements[i:j]) for i, j in zip(starts, [*starts[1:], len(elements)])]
    joined = concat([*(columns for columns, _ in parts), monoid.pack([])])
    return monoid.unpack(joined), [element for _, part_elements in parts for element in part_elements]


def repeat_row(monoid: M, a: Any, cuts: list[int]) -> Sides:
    """unpack(repeat(pack([a]), n)) == [a] * n"""
    packed, elements = _packed(monoid, [a])
    return monoid.unpack(repeat(packed, len(cuts))), elements * len(cuts)


# Reducing.


def reduce_columns(monoid: M, elements: list[Any], cuts: list[int]) -> Sides:
    """reduce_sorted == the folds from the left"""
    starts = starts_of(len(elements), cuts)
    packed, elements = _packed(monoid, elements)
    return _reduced(monoid, packed, starts), _folds(monoid, elements, starts)


def reduce_identities(monoid: M, cuts: list[int]) -> Sides:
    """reduce_sorted(identities) == their folds"""
    rows = len(cuts) + 1
    starts = starts_of(rows, cuts)
    packed, identities = _packed(monoid, [monoid.identity] * rows)
    return _reduced(monoid, packed, starts), _folds(monoid, identities, starts)


def reduce_constant(monoid: M, a: Any, cuts: list[int]) -> Sides:
    """reduce_sorted(repeat(a)) == reduce_sorted(pack([a] * n))"""
    rows = len(cuts) + 1
    starts = starts_of(rows, cuts)
    return _reduced(monoid, repeat(monoid.pack([a]), rows), starts), _reduced(monoid, monoid.pack([a] * rows), starts)


def reduce_lifted(monoid: M, column: pa.Array | None, cuts: list[int]) -> Sides:
    """reduce_sorted(lifted column) == reduce_sorted(its elements packed)"""
    if column is None:
        return NOTHING
    starts = starts_of(len(column), cuts)
    lifted = monoid.lift_rows(column, len(column))
    again = monoid.pack(monoid.unpack(lifted))
    return _reduced(monoid, lifted, starts), _reduced(monoid, again, starts)


def reduce_in_stages(monoid: M, elements: list[Any], cuts: list[int]) -> Sides:
    """reduce_sorted(reduced) == reduce_sorted(its elements packed)"""
    fine = starts_of(len(elements), cuts)
    once = monoid.reduce_sorted(monoid.pack(elements), np.array(fine, np.int64))
    again = list(range(0, len(fine), 1 + len(cuts) % 3))
    packed = monoid.pack(monoid.unpack(once))
    return _reduced(monoid, once, again), _reduced(monoid, packed, again)


def reduce_cells(monoid: M, elements: list[Any], cuts: list[int]) -> Sides:
    """reduce_cells == the folds of each cell"""
    cells, counts, held = _cells(len(elements), cuts)
    packed, elements = _packed(monoid, elements)
    reduced = monoid.reduce_cells(packed, cells, counts, held)
    if reduced is None:
        return NOTHING
    rows: dict[int, list[Any]] = {}
    for element, cell in zip(elements, cells.tolist()):
        rows.setdefault(cell, []).append(element)
    return monoid.unpack(reduced), [reduce(monoid.combine, rows[cell]) for cell in sorted(rows)]


def combine_columns(monoid: M, elements: list[Any]) -> Sides:
    """combine_columns(pack(elements), pack(reversed)) == each combined"""
    elements = list(elements)
    others = elements[::-1]
    combined = monoid.combine_columns(monoid.pack(elements), monoid.pack(others))
    return monoid.unpack(combined), [monoid.combine(a, b) for a, b in zip(elements, others)]


def column_mutation(monoid: M, elements: list[Any], cuts: list[int]) -> Sides:
    """columns after reduce, cells, present, to_arrow == before"""
    columns = monoid.pack(elements)
    before = _snapshot(columns)
    monoid.reduce_sorted(columns, np.array(starts_of(len(elements), cuts), np.int64))
    monoid.reduce_cells(columns, *_cells(len(elements), cuts))
    if all(presentable(monoid, element) for element in elements):
        monoid.present_fields(columns)
    monoid.to_arrow(columns)
    monoid.unpack(columns)
    return _snapshot(columns), before


# Presenting and storing.


def present_columns(monoid: M, elements: list[Any]) -> Sides:
    """present_fields(pack(elements)), raised beyond == each presented, all beyond"""
    packed, elements = _packed(monoid, elements)
    is_inside = [presentable(monoid, element) for element in elements]
    inside = [row for row, is_one in enumerate(is_inside) if is_one]
    beyond = [row for row, is_one in enumerate(is_inside) if not is_one]
    raised = [row for row in beyond if _raises(monoid, take(packed, slice(row, row + 1)))]
    if beyond:
        packed, elements = take(packed, np.array(inside, np.int64)), [elements[row] for row in inside]
    presented = monoid.present_fields(packed)
    values = {name: python_list(column) for name, column in presented.items()}
    types = {name: column.type for name, column in presented.items()}
    return (values, types, raised), (_presented(monoid, elements), monoid.output_fields(), beyond)


def arrow_round_trip(monoid: M, elements: list[Any]) -> Sides:
    """from_arrow(to_arrow), types, nulls against the schema == elements, schema, 0"""
    packed, elements = _packed(monoid, elements)
    arrays = monoid.to_arrow(packed)
    nulls = sum(_forbidden_nulls(array, field) for array, field in zip(arrays, monoid.schema))
    read = monoid.unpack(monoid.from_arrow(arrays))
    types = [
        field.type if monoid.widens and is_as_wide(array.type, field.type) else array.type
        for array, field in zip(arrays, monoid.schema)
    ]
    return (read, types, nulls), (elements, monoid.schema.types, 0)


def arrow_slice(monoid: M, elements: list[Any]) -> Sides:
    """from_arrow(slice) == from_arrow(its copy)"""
    arrays = monoid.to_arrow(monoid.pack(elements))
    sliced = [sliced_of(array) for array in arrays]
    return monoid.unpack(monoid.from_arrow(sliced)), monoid.unpack(monoid.from_arrow(arrays))


def canonical_columns(monoid: M, elements: list[Any], cuts: list[int]) -> Sides:
    """to_arrow(reduced) == to_arrow(its elements packed)"""
    starts = starts_of(len(elements), cuts)
    reduced = monoid.reduce_sorted(monoid.pack(elements), np.array(starts, np.int64))
    again = monoid.pack(monoid.unpack(reduced))
    return _stored(monoid, reduced), _stored(monoid, again)


def canonical_constants(monoid: M, a: Any, cuts: list[int]) -> Sides:
    """to_arrow(repeat(a)) == to_arrow(pack([a] * n))"""
    rows = len(cuts) + 1
    return _stored(monoid, repeat(monoid.pack([a]), rows)), _stored(monoid, monoid.pack([a] * rows))


# Internals.


def _packed(monoid: M, elements: Sequence[Any]) -> tuple[Columns, list[Any]]:
    """Elements as columns, and the elements in them: losses in packing are left to the law of ``pack``."""
    columns = monoid.pack(elements)
    return columns, monoid.unpack(columns)


def _reduced(monoid: M, columns: Columns, starts: list[int]) -> list[Any]:
    return monoid.unpack(monoid.reduce_sorted(columns, np.array(starts, np.int64)))


def _folds(monoid: M, elements: list[Any], starts: list[int]) -> list[Any]:
    return [reduce(monoid.combine, elements[i:j]) for i, j in zip(starts, [*starts[1:], len(elements)])]


def _cells(rows: int, cuts: list[int]) -> tuple[Column, Column, Column]:
    """The cell of each row, the number of rows in each cell, and the non-empty cells; the last cell is empty."""
    cells = (np.arange(rows) * 5 + sum(cuts)) % (len(cuts) + 2)
    counts = np.bincount(cells, minlength=len(cuts) + 3)
    return cells, counts, np.flatnonzero(counts)


def _snapshot(column: Any) -> Any:
    """A copy of the columns' present content, to compare with their later content."""
    if isinstance(column, tuple):
        return [_snapshot(each) for each in column]
    if isinstance(column, ArrowColumn):
        return python_list(column.array)
    if isinstance(column, Ragged):
        return [_snapshot(each) for each in (column.starts, column.lengths, column.columns)]
    return fresh(list(column)) if column.dtype == object else np.array(column)


def _forbidden_nulls(array: pa.Array, field: pa.Field) -> int:
    """The number of nulls in columns for which the schema allows none."""
    count = 0 if field.nullable else array.null_count
    if pa.types.is_struct(field.type):
        not_null = array.drop_null()
        return count + sum(_forbidden_nulls(not_null.field(at), inner) for at, inner in enumerate(field.type))
    if pa.types.is_list(field.type) or pa.types.is_large_list(field.type):
        return count + _forbidden_nulls(array.flatten(), field.type.value_field)
    return count


def _stored(monoid: M, columns: Columns) -> bytes:
    arrays, fields = monoid.to_arrow(columns), monoid.schema
    if monoid.widens:
        fields = [field.with_type(array.type) for field, array in zip(fields, arrays, strict=True)]
    return bytes(pa.record_batch(arrays, schema=pa.schema(fields)).serialize())


def _raises(monoid: M, columns: Columns) -> bool:
    """Whether presenting the columns raises, because their elements cannot be presented."""
    try:
        monoid.present_fields(columns)
    except OverflowError:
        return True
    return False


def _presented(monoid: M, elements: Sequence[Any]) -> dict[str, list[Any]]:
    """The expected result of ``present_fields``, from ``present`` alone."""
    if not isinstance(monoid, RecordMonoid):
        return {"value": _shown(monoid, elements)}
    return {
        name: _shown(part, [element[index] for element in elements])
        for index, (name, part) in enumerate(monoid.fields.items())
    }


def _shown(monoid: M, elements: Sequence[Any]) -> list[Any]:
    if isinstance(monoid, RecordMonoid):
        fields = _presented(monoid, elements)
        return [dict(zip(fields, row)) for row in zip(*fields.values())]
    presented = [monoid.present(element) for element in elements]
    if monoid.output_type is None:
        return [encoding.to_json(value) for value in presented]
    return python_list(arrow_column(presented, monoid.output_type))
