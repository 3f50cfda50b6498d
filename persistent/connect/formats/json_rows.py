"""JSON lines are a table as text: one object a row, keys in column order, each line ended by a newline.

Timestamps are ISO 8601 in UTC, with as many digits as their type holds, and at least milliseconds: different values
have different texts. A year outside 0 to 9999 has a minus, or as many digits as it needs. A missing value is null. NaN,
infinities, bytes, decimals and nested values are written as by ``monoids.encoding.to_json``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from decimal import Context
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from monoids.arrays import python_list
from monoids.encoding import to_json
from persistent.connect.sink import RefusedKeys
from persistent.text.readable import instant, readable, readable_list

_ROWS_AT_ONCE = 65_536
_ALL_DIGITS = Context(prec=76)
_YEARS = np.array(["-32767-01-01", "32768-01-01"], "datetime64[s]").astype(np.int64).tolist()
"""The range, in seconds since 1970, in which Arrow writes a time as digits."""
_DIGITS = {"ms": 3, "us": 6, "ns": 9}
_A_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_ESCAPED = r'[\x00-\x1f\x7f"\\]'


def encode_json_lines(table: pa.Table) -> pa.Buffer:
    """A table as UTF-8 bytes.

    >>> encode_json_lines(pa.table({"page": ["a", None], "visits": [1, 2]})).to_pybytes()
    b'{"page":"a","visits":1}\\n{"page":null,"visits":2}\\n'
    """
    out = pa.BufferOutputStream()
    for lines in _objects(table, "}\n"):
        # Adjacent lines in the buffer are the file.
        out.write(lines.buffers()[2].slice(0, pc.sum(pc.binary_length(lines)).as_py()))
    return out.getvalue()


def json_rows(table: pa.Table) -> Iterator[list[bytes]]:
    """The rows of a table as UTF-8 bytes, without line ends, in batches.

    >>> list(json_rows(pa.table({"page": ["a", None]})))
    [[b'{"page":"a"}', b'{"page":null}']]
    """
    for lines in _objects(table, "}"):
        yield lines.cast(pa.large_binary()).to_pylist()


def _objects(table: pa.Table, end: str) -> Iterator[pa.Array]:
    """Each row as JSON text with ``end`` behind it, in batches."""
    for start in range(0, table.num_rows, _ROWS_AT_ONCE):
        piece = table.slice(start, _ROWS_AT_ONCE).combine_chunks()
        parts: list[pa.Array | str] = []
        for name, column in zip(piece.column_names, piece.columns):
            parts.append(f"{',' if parts else '{'}{json.dumps(name, ensure_ascii=False)}:")
            parts.append(_fragments(column.combine_chunks()))
        yield pc.binary_join_element_wise(*[_scalar(part) for part in [*parts, end]], _scalar(""))


def with_shortest_decimals(table: pa.Table, names: Collection[str]) -> pa.Table:
    """The table, with the decimals of the columns ``names`` as texts without trailing zeros: a key has one text,
    whatever scale its column has grown to.

    >>> prices = pa.table({"price": pa.array(["1.50", "100.00"]).cast(pa.decimal128(5, 2))})
    >>> with_shortest_decimals(prices, ["price"])["price"].to_pylist()
    ['1.5', '100']
    """
    for place, (name, column) in enumerate(zip(table.column_names, table.columns)):
        if name in names and pa.types.is_decimal(column.type):
            texts = [None if value is None else f"{value.normalize(_ALL_DIGITS):f}" for value in python_list(column)]
            table = table.set_column(place, name, pa.array(texts, pa.string()))
    return table


def beyond_digits(column: Any) -> Any:
    """Which dates and timestamps Arrow has no digits for: it writes words, or with a zone another year."""
    times = column.cast(pa.timestamp("ms")) if pa.types.is_date(column.type) else column
    first, end = (year * _A_SECOND[times.type.unit] for year in _YEARS)
    counts = times.cast(pa.int64())
    return pc.or_(pc.less(counts, max(first, -(2**63))), pc.greater(counts, min(end - 1, 2**63 - 1)))


def iso_texts(column: pa.Array) -> pa.Array:
    """Timestamps as ISO 8601 in UTC, null where the timestamp is.

    >>> iso_texts(pa.array([0, 1 << 60, None], pa.timestamp("s"))).to_pylist()
    ['1970-01-01T00:00:00.000Z', '36534630048-05-13T13:56:16.000Z', None]
    """
    kind = column.type
    unit = "ms" if kind.unit == "s" else kind.unit
    far = beyond_digits(column)
    if pc.any(far).as_py():
        counts = column.cast(pa.int64())
        texts = [f"{instant(count, kind.unit, _DIGITS[unit])}Z" for count in counts.filter(far).to_pylist()]
        near = pc.if_else(far, None, counts).cast(pa.timestamp(kind.unit))
        return pc.replace_with_mask(iso_texts(near), far, pa.array(texts, pa.large_string()))
    instants = column.cast(pa.timestamp(unit, kind.tz)).cast(pa.int64()).cast(pa.timestamp(unit))
    return _concatenated(pc.replace_substring(instants.cast(pa.large_string()), " ", "T"), "Z")


def _fragments(column: pa.Array) -> pa.Array:
    """Each value of a column as JSON text, never null."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _fragments(column.dictionary_decode())
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return column.cast(pa.large_string()).fill_null("null")
    if pa.types.is_timestamp(kind):
        return _concatenated('"', iso_texts(column), '"').fill_null("null")
    if kind == pa.time64("ns"):
        # A Python time would lose its nanoseconds.
        return _concatenated('"', column.cast(pa.large_string()), '"').fill_null("null")
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        encoded = column.dictionary_encode()
        return _texts(encoded.dictionary.cast(pa.large_string())).take(encoded.indices).fill_null("null")
    return pa.array([to_json(value) for value in readable_list(column)], pa.large_string())


def _texts(values: pa.Array) -> pa.Array:
    """Strings as JSON: quoted, and converted one by one only if a character must be escaped."""
    escaped = pc.match_substring_regex(values, _ESCAPED)
    quoted = _concatenated('"', values, '"')
    if not pc.any(escaped).as_py():
        return quoted
    one_by_one = [to_json(value) for value in values.filter(escaped).to_pylist()]
    return pc.replace_with_mask(quoted, escaped, pa.array(one_by_one, pa.large_string()))


def _concatenated(*parts: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*[_scalar(part) for part in parts], _scalar(""))


def _scalar(part: pa.Array | str) -> pa.Array | pa.Scalar:
    return pa.scalar(part, pa.large_string()) if isinstance(part, str) else part


REVISION: Final = "revision"
_BYTES: Final = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)


def with_revision(table: pa.Table, number: int) -> pa.Table:
    """The table with the number of its batch, unless it has a revision.

    >>> with_revision(pa.table({"page": ["a"]}), 5).to_pylist()
    [{'page': 'a', 'revision': 5}]
    """
    if REVISION in table.column_names:
        return table
    return table.append_column(REVISION, pa.repeat(pa.scalar(number, pa.int64()), table.num_rows))


def most_bytes(outputs: pa.Table) -> int:
    """A rough upper bound for the JSON of any row; practically infinite for nested values."""
    bound = 0
    for name, column in zip(outputs.column_names, outputs.columns):
        kind = column.type
        if any(is_one(kind) for is_one in _BYTES):
            # An escaped byte has six characters, and a key occurs twice.
            bound += 12 * (pc.max(pc.binary_length(column)).as_py() or 0)
        elif pa.types.is_nested(kind):
            return 1 << 62
        bound += 2 * (6 * len(name) + 100)
    return bound


def large_keys_refused(
    keys: pa.Table, limit: int, sizes: Callable[[], Iterator[int]], place: str, remedy: str = ""
) -> RefusedKeys:
    """The rows of key columns that alone are larger than the largest message. ``sizes``: of each as a message."""
    if most_bytes(keys) > limit:
        yield (
            np.fromiter(sizes(), np.int64) > limit,
            f"{place}: a key is larger than the largest message, {limit:,} bytes: make the key shorter in the task, "
            f"for example by a hash{remedy}",
        )


def row_text(outputs: pa.Table, row: int, key: tuple[str, ...]) -> str:
    """A row by its key.

    >>> row_text(pa.table({"page": ["a", "b"]}), 1, ("page",)), row_text(pa.table({"page": ["a"]}), 0, ())
    ("the row with page='b'", 'row 0')
    """
    texts = [f"{name}={str(readable(outputs.column(name)[row]))[:100]!r}" for name in key]
    return f"the row with {', '.join(texts)}" if texts else f"row {row}"
