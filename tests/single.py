"""The only value of a mapping: what a job of one source, one node or one sink has there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")


def only(mapping: Mapping[str, T]) -> T:
    """Its value. ValueError unless there is exactly one."""
    (value,) = mapping.values()
    return value
