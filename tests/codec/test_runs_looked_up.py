"""Keys are looked up in a run by their hashes: their rows and no others, in the batches that may hold them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from monoids import Sum
from monoids.groupby.summing import GroupSums
from persistent.codec import sealed
from persistent.codec.fields import KEY_GROUPS, Run
from persistent.codec.runs import encode_run, find_in_run, of_hashes
from persistent.codec.sealed import HASH_LIMIT, open_sealed, read_index
from persistent.errors import CorruptCheckpoint

GROUP = HASH_LIMIT // KEY_GROUPS
HASHES = st.integers(0, 12)


def rows_of(hashes: list[int]) -> GroupSums:
    """A row for each hash; the panes of equal ones ascend."""
    numbers = np.arange(len(hashes), dtype=np.int64)
    return GroupSums(np.array(hashes, np.uint64), (pa.array(numbers),), numbers, (numbers + 100,))


def run_of(rows: GroupSums) -> tuple[bytes, Run]:
    data, sha256 = encode_run(Sum(), rows, ["key"], rows.panes.tolist())
    return data, Run("d/x", len(rows), len(data), sha256, 0, 0, KEY_GROUPS, 0, max(len(rows) - 1, 0), 1, 1)


def found(data: bytes, run: Run, *hashes: int) -> list[int]:
    wanted = np.array(hashes, np.uint64)
    return find_in_run(Sum(), pa.py_buffer(data), run, "place", wanted).panes.tolist()  # type: ignore[no-any-return]


@given(st.lists(HASHES, min_size=1, max_size=14).map(sorted), st.sets(HASHES, max_size=6), st.sampled_from((1, 2, 5)))
def test_the_rows_of_the_hashes_are_found_and_no_others(stored: list[int], wanted: set[int], batch: int) -> None:
    """A row too few is a wrong sum; with the largest and the smallest hash, and hashes that go on in the next batch."""
    spread = [0, *range(1, 12), HASH_LIMIT - 1]
    rows = rows_of([spread[number] for number in stored])
    hashes = sorted(spread[number] for number in wanted)
    expected = [pane for pane, number in enumerate(stored) if number in wanted]
    assert of_hashes(rows, np.array(hashes, np.uint64)).panes.tolist() == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sealed, "BATCH_ROWS_MAX", batch)
        assert found(*run_of(rows), *hashes) == expected


def test_key_groups_that_no_longer_count_are_not_found() -> None:
    """A fold has moved them into another run: they would count twice."""
    data, run = run_of(rows_of([0, GROUP - 1, GROUP, 3 * GROUP - 1, 3 * GROUP, 5 * GROUP]))
    hashes = (0, GROUP - 1, GROUP, 3 * GROUP - 1, 3 * GROUP, 5 * GROUP)
    assert found(data, replace(run, low=1, high=3), *hashes) == [2, 3]
    assert found(data, run, *hashes) == [0, 1, 2, 3, 4, 5]


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> tuple[bytes, Run]:
    """A run of three batches, that begin with the hashes 4, 6 and 8."""
    monkeypatch.setattr(sealed, "BATCH_ROWS_MAX", 2)
    return run_of(rows_of([4, 5, 6, 7, 8, 9]))


@pytest.mark.parametrize(
    ("hashes", "batches"),
    [
        ((), []),
        ((3,), []),
        ((5,), [0]),
        ((6,), [0, 1]),
        ((7,), [1]),
        ((4, 9), [0, 2]),
        ((3, 10), [2]),
        ((7, 8), [1, 2]),
    ],
)
def test_no_other_batches_are_verified(three: tuple[bytes, Run], hashes: Any, batches: Any) -> None:
    """What a step costs grows with what it has changed; a hash may begin in the batch before the one it begins."""
    data, run = three
    index = read_index(pa.py_buffer(data), run.sha256, "place")
    _, read = open_sealed(pa.py_buffer(data), index, "place", hashes=np.array(hashes, np.uint64))
    assert [batch["pane"][0].as_py() // 2 for batch in read] == batches


def test_a_damaged_batch_is_found_where_it_is_needed(three: tuple[bytes, Run]) -> None:
    data, run = three
    index = read_index(pa.py_buffer(data), run.sha256, "place")
    place = index.batches[1].offset + index.batches[1].size - 8
    damaged = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
    assert found(damaged, run, 4, 9) == [0, 5]
    with pytest.raises(CorruptCheckpoint, match="batch 1"):
        found(damaged, run, 7)


def test_nothing_is_found_in_no_rows() -> None:
    assert not len(of_hashes(rows_of([]), np.array([1], np.uint64)))


@given(st.lists(st.integers(0, 6), max_size=20), st.sets(st.integers(0, 6)))
def test_rows_are_found_by_their_hashes(held: list[int], wanted: set[int]) -> None:
    hashes = np.array(sorted(held), np.uint64)
    rows = GroupSums(hashes, (), np.arange(len(hashes)), (np.arange(len(hashes)),))
    found = of_hashes(rows, np.array(sorted(wanted), np.uint64))
    assert found.panes.tolist() == [row for row, value in enumerate(sorted(held)) if value in wanted]
