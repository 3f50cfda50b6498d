"""A frame is a table of results as a data frame of pandas or Polars, with exactly its values."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from persistent.errors import InvalidPipeline

LIBRARIES: Final = ("pandas", "polars")


def frame_of(table: pa.Table, library: str) -> Any:
    """The table as a data frame. InvalidPipeline for another library, or one that is not installed.

    Whole numbers with nulls stay whole numbers: ``table.to_pandas()`` would make floats of them, which are not exact
    from 2**53 on.

    >>> frame_of(pa.table({"n": pa.array([2**60 + 1, None])}), "pandas")["n"].tolist()
    [1152921504606846977, <NA>]
    """
    if library == "pandas":
        import pandas  # type: ignore[import-untyped]

        return table.to_pandas(types_mapper=pandas.ArrowDtype)
    if library != "polars":
        raise InvalidPipeline(f"state_frame({library!r}): give one of {', '.join(map(repr, LIBRARIES))}")
    try:
        import polars
    except ImportError as error:
        raise InvalidPipeline("state_frame('polars'): Polars is not installed: pip install polars") from error
    return polars.from_arrow(_narrow(table))


def _narrow(table: pa.Table) -> pa.Table:
    """Its decimals as those of 38 digits, of which Polars has no wider. InvalidPipeline if one has more."""
    fields = [
        field.with_type(pa.decimal128(38, field.type.scale)) if pa.types.is_decimal256(field.type) else field
        for field in table.schema
    ]
    try:
        return table.cast(pa.schema(fields))
    except pa.ArrowException as error:
        raise InvalidPipeline(
            f"state_frame('polars'): {error}, and Polars has decimals of at most 38 digits: take state_frame('pandas')"
        ) from error
