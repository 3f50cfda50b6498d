"""The rows of a run are in order, each once, each under the hash of its key."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from msgspec.structs import replace

from monoids import Count
from monoids.groupby.summing import GroupSums
from monoids.hashing import hash_keys
from persistent.codec.fields import KEY_GROUPS, Run
from persistent.codec.runs import encode_run
from persistent.codec.sealed import decode_table
from persistent.verify.runs import state_table_faults

PLACE = "d/Visits/run"


def a_run(hashes: Any, keys: pa.Array, panes: list[int], listed: list[int] | None = None) -> tuple[pa.Buffer, Run]:
    made = GroupSums(hashes, (keys,), np.array(panes, np.int64), Count().pack([1] * len(panes)))
    data, sha256 = encode_run(Count(), made, ["page"], sorted(set(panes)) if listed is None else listed)
    low, high = (min(panes), max(panes)) if panes else (0, 0)
    return pa.py_buffer(data), Run(PLACE, len(panes), len(data), sha256, 0, 0, KEY_GROUPS, low, high, 1, 1)


def sound(pages: list[str]) -> tuple[Any, pa.Array]:
    hashes = hash_keys([pa.array(pages)], len(pages))
    order = np.argsort(hashes, kind="stable")
    return hashes[order], pa.array(pages).take(pa.array(order))


def found_in(data: pa.Buffer, run: Run) -> str:
    table = decode_table(data, run.sha256, PLACE)
    return "\n".join(state_table_faults(table, data, run, PLACE, ["page"], ["string"]))


def test_sound_rows_pass() -> None:
    """Without it the following tests would prove nothing."""
    hashes, keys = sound(["a", "a", "b", "c"])
    data, run = a_run(hashes, keys, [0, 1000, 0, 0] if keys[0].as_py() == "a" else [0, 0, 0, 0])
    if keys.to_pylist().index("a") == 0:
        assert found_in(data, run) == ""
    hashes, keys = sound(["a", "b", "c"])
    assert found_in(*a_run(hashes, keys, [3, 2, 1])) == ""


def test_rows_out_of_order_are_found() -> None:
    """Without it slices by key range would silently miss rows."""
    hashes, keys = sound(["a", "b", "c"])
    data, run = a_run(hashes[::-1].copy(), keys.take(pa.array([2, 1, 0])), [0, 0, 0])
    assert "precede a row with a smaller hash" in found_in(data, run)


@pytest.mark.parametrize("panes", [[1000, 0], [1000, 1000]])
def test_panes_out_of_order_or_twice_are_found(panes: list[int]) -> None:
    """Without it a (key, pane) could stand twice in a run that says it is a sum."""
    hashes, keys = sound(["a", "a"])
    assert "of the same or an earlier pane" in found_in(*a_run(hashes, keys, panes))


def test_order_is_looked_at_across_batches() -> None:
    """Without it the border between two record batches would be a blind spot."""
    count = (1 << 16) + 1
    hashes, keys = sound(["a"] * count)
    panes = list(range(1 << 16))
    assert "of the same or an earlier pane" in found_in(*a_run(hashes, keys, [*panes, panes[-1]]))


def test_a_hash_that_is_not_the_keys_is_found() -> None:
    """Without it a key could live in a range where nobody looks for it."""
    hashes, keys = sound(["a", "b"])
    data, run = a_run(hashes + np.uint64(1), keys, [0, 0])
    assert "have a hash that is not that of their key" in found_in(data, run)


def test_what_a_manifest_says_is_compared() -> None:
    """Without it reads that trust the manifest's ranges would skip rows."""
    hashes, keys = sound(["a", "b"])
    data, run = a_run(hashes, keys, [1000, 2000])
    assert found_in(data, run) == ""
    assert "bytes" in found_in(data, replace(run, bytes=1))
    assert "rows" in found_in(data, replace(run, rows=3))
    assert "panes" in found_in(data, replace(run, pane_min=2000))
    assert "key groups" in found_in(data, replace(run, start=1023, low=1023))
    data, run = a_run(hashes, keys, [1000, 2000], listed=[1000])
    assert "its index lists panes that differ" in found_in(data, run)
