"""An odd field is one that is no number in a CSV column of numbers: it makes the inferred column text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from monoids.groupby.sorting import Mask
from persistent.message import Batch
from persistent.sources import remedies
from persistent.sources.layout import columns_of_text
from persistent.worker.stage_aside import RowsAside

_WHOLE = r"^\s*[+-]?[0-9]+\s*$"
_NUMBER = r"^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$"
_COLUMN_OF_TEXT = "column of string"


def odd_field(error: Exception, batch: Batch, recorded: Mapping[str, Any], aside: RowsAside) -> str:
    """Why a value that the task does not take is text, if it could be a number; otherwise empty. ``batch``: the message
    for which the task raised; ``recorded``: of the source, whose columns were inferred."""
    columns = columns_of_text(recorded) - {recorded.get("timestamp")}
    if not columns or not isinstance(error, TypeError | ValueError):
        return ""
    (message,) = batch.messages()
    texts = [name for name, value in message.value.items() if name in columns and isinstance(value, str)]
    reason = str(error)
    odd = [name for name in texts if _COLUMN_OF_TEXT in reason or repr(message.value[name]) in reason]
    masks = {name: _numbers(aside.records.batch.column(name)) for name in odd if re.match(_NUMBER, message.value[name])}
    # The column with the most numbers is the one that may be meant.
    name = max(masks, key=lambda name: int(masks[name].sum()), default=None)
    return "" if name is None else _explained(name, masks[name], aside)


def _numbers(column: pa.Array) -> Mask:
    """Which values can be numbers, or are null."""
    return np.asarray(pc.match_substring_regex(column, _NUMBER).fill_null(True))


def _explained(name: str, numbers: Mask, aside: RowsAside) -> str:
    column, odd = aside.records.batch.column(name), np.flatnonzero(~numbers)
    whole = pc.match_substring_regex(column.filter(pa.array(numbers)), _WHOLE)
    kind = "int64" if pc.all(whole, min_count=0).as_py() else "double"
    cause = "the first lines of the first file have a field that is"
    if len(odd):
        offset = int(aside.records.offsets[odd[0]])
        cause = f"the record at offset {offset} of {aside.path} has {column[int(odd[0])].as_py()[:40]!r}, which is"
    return (
        f". Column {name!r} was inferred to be text, as {cause} no number: {remedies.COLUMNS}, this one {kind!r}, and "
        "such a record is a dead letter"
    )
