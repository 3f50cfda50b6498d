"""Borders that no formula of size and step gives: the shifts of an assigner, the sessions of a gap, and the lives of
keys.

Plain references, one time after the other; ``Shifts`` alone works on columns, as the job asks it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

_BORDERS: Final = (0, 7, 20, 24, 40)
_BEGIN: Final = -3
"""Four shifts make forty ticks; the first one begins three ticks before 1970."""


class Shifts:
    """An assigner: shifts of 7, 13, 4 and 16 ticks, over and over."""

    def windows(self, timestamps: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        round_, since = np.divmod(timestamps - _BEGIN, _BORDERS[-1])
        borders = np.array(_BORDERS)
        shift = np.searchsorted(borders, since, side="right") - 1
        begun = round_ * _BORDERS[-1] + _BEGIN
        return begun + borders[shift], begun + borders[shift + 1]

    def fingerprint(self) -> Mapping[str, Any]:
        return {"borders": list(_BORDERS)}


def shift_of(ms: int) -> tuple[int, int]:
    """Where the shift of a time starts and ends.

    >>> [shift_of(ms) for ms in (0, 4, 36, 37)]
    [(-3, 4), (4, 17), (21, 37), (37, 44)]
    """
    begun = (ms - _BEGIN) // _BORDERS[-1] * _BORDERS[-1] + _BEGIN
    return next((begun + start, begun + end) for start, end in pairwise(_BORDERS) if ms < begun + end)


@dataclass(frozen=True, order=True)
class Gap:
    """Sessions end after a pause of the ``gap``, and at each multiple of the ``cut``."""

    gap: int
    cut: int

    def of(self, ms: int) -> tuple[int, int]:
        """The start and the end of a session of one message. Two of a key are one session if these meet.

        >>> Gap(5, 30).of(7), Gap(5, 30).of(28)
        ((7, 12), (28, 30))
        """
        return ms, min(ms + self.gap, (ms // self.cut + 1) * self.cut)


@dataclass(frozen=True, order=True)
class Life:
    """A key lives until it has been silent for ``ttl``; then it is gone, and begins at zero."""

    ttl: int

    def of(self, ms: int) -> tuple[int, int]:
        """The begin and the end of a life of one message. Two of a key are one life if these meet.

        >>> Life(5).of(7)
        (7, 12)
        """
        return ms, ms + self.ttl
