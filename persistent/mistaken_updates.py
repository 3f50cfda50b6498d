"""A mistaken update is well formed and cannot be meant: its time and value are swapped, or a mapping counts as 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from persistent.text.figures import utc_text


def check_no_mapping(values: Sequence[Any]) -> None:
    """TypeError if a mapping of fields was given to a state that is ``Count()``, and would count as 1."""
    if any(issubclass(kind, Mapping) for kind in set(map(type, values))):
        given = next(value for value in values if isinstance(value, Mapping))
        raise TypeError(
            f"an update of a Count() by the mapping {str(given)[:80]}: a Count() takes each value as 1, whatever is in "
            "it. Give 1, as in state.update(timestamp, 1); or let the state be a record, as in record(count=Count())"
        )


def swapped(method: str, time: int, value: int) -> ValueError:
    """The error for an update whose value is the timestamp of its message."""
    return ValueError(
        f"an update at {time} ({utc_text(time)}) whose value, {value}, is the timestamp of its message: the two are "
        f"swapped. Use state.{method}(timestamp, value)"
    )
