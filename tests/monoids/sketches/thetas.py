"""Theta sketches of numbers, ours and those of datasketches."""

from __future__ import annotations

from typing import Any

import datasketches
import numpy as np

from monoids import Theta
from monoids.sketches.theta import ThetaSample


def sketch_of(theta: Theta, values: list[Any]) -> ThetaSample:
    columns = theta.lift_columns(values)
    return theta.unpack(theta.reduce_sorted(columns, np.array([0])))[0] if values else theta.identity


def theirs(values: list[Any], lg_k: int = 12) -> Any:
    sketch = datasketches.update_theta_sketch(lg_k)
    for value in values:
        sketch.update(value)
    return sketch
