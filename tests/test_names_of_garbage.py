"""Garbage is decided by names alone: never by age, never while somebody may still work for it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from persistent.names import attempt_name, garbage, is_abandoned

NONCE = "0123456789abcdef" * 2


def name(epoch: int, id: int) -> str:
    return f"d/Visits/{attempt_name(epoch, id, NONCE)}.arrow"


def test_what_is_live_stays() -> None:
    """The state itself."""
    mine = [name(1, 1), name(2, 5), name(3, 7)]
    assert garbage(mine, set(mine), epoch=3, id=7) == []


def test_zombies_of_lower_epochs_go() -> None:
    """A driver that was fenced may have written for any id, even a larger one: nobody will ever name it."""
    assert garbage([name(2, 1), name(2, 999)], set(), epoch=3, id=7) == [name(2, 1), name(2, 999)]


def test_what_is_still_being_made_stays() -> None:
    """The next step is mapped while this one is collected: to delete its files would commit a manifest of
    missing runs."""
    assert garbage([name(3, 8), name(3, 9)], set(), epoch=3, id=7) == []
    assert garbage([name(3, 7), name(3, 1)], set(), epoch=3, id=7) == [name(3, 7), name(3, 1)]


def test_younger_epochs_stay() -> None:
    """Who is fenced without knowing it must not delete the work of its successor."""
    assert garbage([name(4, 1), name(4, 7), name(9, 0)], set(), epoch=3, id=7) == []


def test_other_files_stay() -> None:
    """What we did not write is not ours to delete."""
    others = ["d/Visits/README", "d/Visits/e1-c1-short.arrow", "d/Visits/ee1-c1-" + NONCE, "d/e1-c1-" + NONCE + "/x"]
    assert garbage(others, set(), epoch=9, id=9) == []


@given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5), st.integers(0, 5))
def test_the_rule(epoch: int, id: int, my_epoch: int, my_id: int) -> None:
    """The rule that was model-checked, word for word."""
    expected = epoch < my_epoch or (epoch == my_epoch and id <= my_id)
    assert is_abandoned(name(epoch, id), my_epoch, my_id) == expected


def test_what_is_staged_goes_by_the_same_rule() -> None:
    """What a newer driver, or a step not yet committed, has staged would be deleted under it."""
    names = [f"e{epoch}-c{id}-a.parquet" for epoch in (2, 3, 4) for id in (40, 41, 42)]
    assert garbage(names, [], 3, 41) == [
        "e2-c40-a.parquet",
        "e2-c41-a.parquet",
        "e2-c42-a.parquet",
        "e3-c40-a.parquet",
        "e3-c41-a.parquet",
    ]
    assert garbage(names, names[:4], 3, 41) == ["e3-c41-a.parquet"]
    assert garbage(["e10-c9-a", "e9-c10-a"], [], 10, 8) == ["e9-c10-a"]
