"""A difference of two checkpoints is every change and no other."""

from __future__ import annotations

from typing import Any

from persistent import (
    MemorySource,
    Pipeline,
)
from persistent.operations import compact
from persistent.reading import diff, place
from persistent.storage import MemoryStorage
from tests.reading.visits import Totals, Visits, visits


def test_a_checkpoint_does_not_differ_from_itself(pipeline: Pipeline) -> None:
    """Without it NaN, nulls and lists could look changed, and every diff would be noise."""
    here = place(pipeline.storage)
    found = diff(here, here, pipeline=pipeline)
    assert found.is_empty
    assert found.equal == pipeline.state().num_rows > 0


def test_every_difference_is_found_and_no_other() -> None:
    """Without it a diff could hide the very key that somebody looks for."""
    storage = MemoryStorage("reading-diff")
    storage.clear()
    rows = visits(60)
    source = MemorySource(rows, timestamp="ts")
    made = Pipeline(source=source, task=Visits(), checkpoint=storage, discard_closed=True, step_rows=20)
    made.run(engine="embedded")
    before = place(storage)
    old = {_identity(row): row for row in made.state().to_pylist()}
    rows += visits(110, 60)
    made.run(engine="embedded")
    new = {_identity(row): row for row in made.state().to_pylist()}
    found = diff(before, place(storage), pipeline=made)
    expected = {
        **dict.fromkeys(old.keys() - new.keys(), "closed"),
        **dict.fromkeys(new.keys() - old.keys(), "added"),
        **{name: "changed" for name in old.keys() & new.keys() if repr(old[name]) != repr(new[name])},
    }
    assert found.rows is not None
    assert {_identity(row): row["change"] for row in found.rows.to_pylist()} == expected
    assert set(expected.values()) == {"closed", "added"}
    assert (found.differing, found.equal) == (len(expected), len(old.keys() & new.keys()))
    bounded = diff(before, place(storage), pipeline=made, limit=3)
    assert (bounded.rows.num_rows, bounded.differing) == (3, len(expected))  # type: ignore[union-attr]
    parts = {(change.part, change.name): (change.before, change.after) for change in found.changes}
    assert parts["account", "read of memory"] == (60, 170)
    assert parts["position", "memory"] == ([0, 60], [0, 170])
    assert ("clock", "clock") in parts


def test_a_changed_value_shows_both() -> None:
    """Without it one would know that a key differs, and not how."""
    storage = MemoryStorage("reading-changed")
    storage.clear()
    rows = [{"ts": 1, "number": n % 3, "amount": n} for n in range(6)]
    made = Pipeline(source=MemorySource(rows, timestamp="ts"), task=Totals(), checkpoint=storage, step_rows=6)
    made.run(engine="embedded")
    before = place(storage)
    rows += [{"ts": 1, "number": 1, "amount": 40}]
    made.run(engine="embedded")
    found = diff(before, place(storage), pipeline=made)
    assert found.rows is not None
    assert found.rows.to_pylist() == [{"change": "changed", "number": 1, "value before": 5, "value after": 45}]
    assert found.equal == 2
    compact(made)
    folded = diff(before, place(storage), pipeline=made)
    runs = [change for change in folded.changes if change.part == "run"]
    assert any("compacted into" in str(change.after) for change in runs)
    assert any("of the runs before" in str(change.after) for change in runs)


def test_a_correction_is_a_difference_with_its_account() -> None:
    """A value that no record of the source explains would be looked for in the source."""
    storage = MemoryStorage("reading-corrected")
    storage.clear()
    rows = [{"ts": 1, "number": n % 3, "amount": n} for n in range(6)]
    made = Pipeline(source=MemorySource(rows, timestamp="ts"), task=Totals(), checkpoint=storage, step_rows=6)
    made.run(engine="embedded")
    before = place(storage)
    added = {"ts": 1, "number": 9, "amount": 4}
    id = made.correct(name="ticket", add=[added], remove=rows[4:5], engine="embedded").checkpoint
    found = diff(before, place(storage), pipeline=made)
    text = f"1 added, 1 removed, by checkpoint {id}"
    one, other = diff(before, place(storage)), diff(place(storage), before)
    for sides, changes in (((None, text), found.changes), ((None, text), one.changes), ((text, None), other.changes)):
        assert [(c.name, c.before, c.after) for c in changes if c.part == "correction"] == [("ticket", *sides)]
    assert found.rows is not None and sorted(found.rows.to_pylist(), key=lambda row: row["number"]) == [
        {"change": "changed", "number": 1, "value before": 5, "value after": 1},
        {"change": "added", "number": 9, "value before": None, "value after": 4},
    ]
    assert found.equal == 2


def _identity(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["page"], row["status"], row["window_start"]
