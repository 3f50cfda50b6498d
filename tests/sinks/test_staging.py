"""The names of staged files: which are published as what, and which are swept."""

from __future__ import annotations

import pytest

from persistent.sinks.staging import final_stem, swept


def test_a_sweep_leaves_the_work_of_others() -> None:
    """What a newer driver, or a step not yet committed, has staged would be deleted under it."""
    names = [f"e{epoch}-c{id}-u.parquet" for epoch in (2, 3, 4) for id in (40, 41, 42)]
    assert swept(names, [], 3, 41) == [
        "e2-c40-u.parquet",
        "e2-c41-u.parquet",
        "e2-c42-u.parquet",
        "e3-c40-u.parquet",
        "e3-c41-u.parquet",
    ]
    assert swept(names, names[:4], 3, 41) == ["e3-c41-u.parquet"]
    assert swept(["e10-c9-u", "e9-c10-u"], [], 10, 8) == ["e9-c10-u"]


def test_names_that_are_not_ours_are_left() -> None:
    """A user's own file in the folder would vanish."""
    assert swept(["notes.txt", "e1.parquet", "e1-c1.parquet", "e1-c1-", "xe1-c1-u", ".DS_Store"], [], 99, 99) == []


def test_a_final_name_sorts_by_checkpoint() -> None:
    """Readers that list the folder would see results in another order than they were published."""
    assert final_stem(9, "e1-c9-b") < final_stem(10, "e1-c10-a")


@pytest.mark.parametrize("attempt", ["", "e1-c1", "e1-c1-", "e-c1-u", "c1-e1-u", "e1-c1-u/../x", "e1-c1-u.x"])
def test_other_attempts_are_refused(attempt: str) -> None:
    """A staged file of another name would never be swept."""
    with pytest.raises(ValueError, match="attempt"):
        final_stem(1, attempt)
