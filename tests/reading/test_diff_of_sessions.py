"""A difference of sessions shows an end that has moved, and which session has closed or become part of another."""

from __future__ import annotations

from typing import Any

import pytest

from persistent.checkpoint.copies import newest_of
from persistent.checkpoint.log import Log
from persistent.reading import diff, place
from tests.sessions import Run, Session, disordered, run_of, sessions_in

Found = dict[tuple[str, int], str]


def kinds(run: Run, before: int, after: int) -> Found:
    found = diff(place(run.storage, before), place(run.storage, after), pipeline=run.pipeline(), limit=1000)
    assert found.rows is not None and found.differing == found.rows.num_rows
    rows = found.rows.to_pylist()
    return {(row["key"], round(row["window_start"].timestamp() * 1000)): row["change"] for row in rows}


def plain(before: list[Session], after: list[Session], closed: int) -> Found:
    """As defined: one row at a time."""
    ours, theirs = ({(one[0], one[1]): one for one in some} for some in (before, after))
    found = {}
    for name in {*ours, *theirs}:
        if name not in ours:
            found[name] = "added"
        elif name in theirs:
            found |= {name: "changed"} if ours[name] != theirs[name] else {}
        else:
            key, start, end = ours[name][:3]
            is_part = any(one[0] == key and one[1] <= start < one[2] for one in after)
            found[name] = "closed" if end <= closed and not is_part else "removed"
    return found


def rows_of(*pairs: tuple[int, str]) -> list[dict[str, Any]]:
    return [{"ts": time, "key": key, "value": 5} for time, key in pairs]


def test_an_end_that_moved_is_a_change_that_shows_both() -> None:
    """A largest value stays as it is while the session goes on."""
    with run_of([*rows_of((0, "a"), (5, "a"))], step_rows=1) as run:
        run.run(run.rows)
        ids = sorted(newest_of(Log(run.storage)).manifest.bases)
        (row,) = diff(place(run.storage, ids[-2]), place(run.storage), pipeline=run.pipeline()).rows.to_pylist()  # type: ignore[union-attr]
        ends = [round(row[f"window_end {side}"].timestamp() * 1000) for side in ("before", "after")]
        assert (row["change"], ends, row["most before"], row["most after"]) == ("changed", [10, 15], 5, 5)
        assert "window_end" not in row


def test_a_session_that_has_become_part_of_another_is_not_closed() -> None:
    """Nothing of it is published, although the clock has passed its end."""
    rows = rows_of((0, "a"), (18, "a"), (2, "b"), (9, "a"), (27, "a"), (36, "a"), (45, "a"), (70, "c"))
    with run_of(rows, behind=30, step_rows=1) as run:
        run.run(rows)
        assert run.published() == [("b", 2, 12, 1, 5, 5)]
        ids = sorted(newest_of(Log(run.storage)).manifest.bases)
        assert kinds(run, ids[3], ids[-1]) == {
            ("a", 0): "changed",
            ("a", 18): "removed",
            ("b", 2): "closed",
            ("c", 70): "added",
        }


@pytest.mark.parametrize("seed", range(6))
def test_every_kind_is_as_defined(seed: int) -> None:
    rows = disordered(seed, 24, 30, 10)
    with run_of(rows, behind=30, step_rows=3) as run:
        run.run(rows)
        newest = newest_of(Log(run.storage)).manifest
        ids = sorted(newest.bases)
        for id in ids[:-1]:
            before, after = (sessions_in(run.pipeline().state(at=one).to_pylist()) for one in (id, ids[-1]))
            assert kinds(run, id, ids[-1]) == plain(before, after, newest.clock.closed)
