"""A correction of keys that expire goes into lives that last, and leaves the others alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monoids import Count, Sum, record
from persistent import NonWindowState, Refused
from persistent.checkpoint import compaction
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.output_parts import Correction
from persistent.engines.embedded import Embedded
from persistent.operations import compact, rollback
from persistent.state.rows import OPEN_PANE
from persistent.verify import verify
from tests.few import examples
from tests.lives import MODES, Devices, Plain, Row, Run, Values, devices, run_of

SEEDS = st.integers(0, 10**6)


def row(time: int, key: str, value: int) -> Row:
    return {"ts": time, "key": key, "value": value}


class Balances(Devices):
    """Counts and sums of each key, while it lives: they have an inverse."""

    def persistent_state(self) -> NonWindowState:
        emit, changes = self.mode
        monoid = record(rows=Count(), total=Sum(), most=Sum())
        return NonWindowState(monoid, ttl=f"{self.ttl} ms", emit=emit, changes=changes)


@dataclass
class Corrected(Plain):
    """The same with corrections: what was removed lies in its life as before, and counts no more."""

    removed: list[Row] = field(default_factory=list)

    def takes(self, one: Row, final: int, *, adds: bool) -> bool:
        if adds and one["ts"] + self.ttl > final:
            return True
        lives = [life for key in self.keys() if key == one["key"] for life in self.lives(key)]
        return any(
            a["ts"] <= one["ts"] <= z["ts"] and z["ts"] + self.ttl > final for a, *_, z in ((*x, x[-1]) for x in lives)
        )

    def state(self) -> dict[str, Values]:
        found = {}
        for key in self.keys():
            life = self.lives(key)[-1]
            if life[-1]["ts"] + self.ttl > self.clock:
                gone = [one for one in self.removed if one["key"] == key and one["ts"] >= life[0]["ts"]]
                values = [one["value"] for one in life], [one["value"] for one in gone]
                total = sum(values[0]) - sum(values[1])
                found[key] = (len(values[0]) - len(values[1]), total, total)
        return found


def newest(run: Run) -> Manifest:
    found = Log(run.storage).newest()
    assert found is not None
    return found.manifest


def correct(run: Run, rows: Sequence[Row] | None, name: str, **given: Any) -> Correction:
    return run.pipeline(rows).correct(name=name, engine=Embedded(threads=1), **given)


@settings(max_examples=3, deadline=None)
@given(SEEDS, st.sampled_from((3, 10, 37)), st.sampled_from(MODES), st.sampled_from((1, 2, 7)))
def test_keys_that_expire_come_to_the_plain_ones(seed: int, ttl: int, mode: Any, step_rows: int) -> None:
    """State and sinks are those of the plain lives, whatever the steps and the folds before and after."""
    comes_to_the_plain_ones(seed, ttl, mode, step_rows)


@pytest.mark.check
@settings(max_examples=examples(30), deadline=None)
@given(SEEDS, st.sampled_from((1, 3, 10, 37)), st.sampled_from(MODES), st.sampled_from((1, 2, 3, 7, 60)))
def test_many_come_to_the_plain_ones(seed: int, ttl: int, mode: Any, step_rows: int) -> None:
    comes_to_the_plain_ones(seed, ttl, mode, step_rows)


def comes_to_the_plain_ones(seed: int, ttl: int, mode: Any, step_rows: int) -> None:
    rng, behind = random.Random(seed), (0, 4, 30)[seed % 3]
    rows, twin, at = devices(seed, 40, behind, ttl), Corrected(ttl, behind), 0
    with (
        pytest.MonkeyPatch.context() as patch,
        run_of(rows, task=Balances(ttl, mode), behind=behind, step_rows=step_rows) as run,
    ):
        patch.setattr(compaction, "FAN_IN", rng.choice((2, 8)))
        for number, stop in enumerate(sorted(rng.sample(range(1, len(rows)), 2))):
            run.run(rows[:stop])
            advance(twin, rows[at:stop], step_rows)
            at = stop
            for other in range(2):
                final, name = newest(run).clock.closed, f"ticket-{number}-{other}"
                left = [one for one in twin.kept if one not in twin.removed]
                gone = rng.sample(left, min(len(left), rng.randrange(3)))
                near = (
                    max(0, twin.clock - rng.randrange(2 * ttl + 2))
                    if rng.random() < 0.7
                    else twin.clock + rng.randrange(9)
                )
                new = [row(near, rng.choice("abcd"), rng.randrange(50)) for _ in range(rng.randrange(1, 3))]
                fits = all(twin.takes(one, final, adds=True) for one in new)
                fits = fits and all(twin.takes(one, final, adds=False) for one in gone)
                if not fits:
                    before = newest(run)
                    with pytest.raises(Refused, match="What has expired was taken back, and stays so"):
                        correct(run, rows[:stop], name, add=new, remove=gone)
                    assert newest(run) == before
                    continue
                made = correct(run, rows[:stop], name, add=new, remove=gone)
                assert (made.added, made.removed, made.refused) == (len(new), len(gone), ())
                twin.kept, twin.removed = [*twin.kept, *new], [*twin.removed, *gone]
                assert run.state() == twin.state() and verify(run.storage).ok
            if rng.random() < 0.3:
                compact(run.pipeline(rows[:stop]))
        run.run()
        advance(twin, rows[at:], step_rows)
        assert run.state() == run.shown() == twin.state()


def advance(twin: Corrected, rows: Sequence[Row], step_rows: int) -> None:
    for first in range(0, len(rows), step_rows):
        twin.step(rows[first : first + step_rows])


def test_a_key_that_has_expired_takes_nothing_in_and_gives_nothing_out() -> None:
    """It was taken back: to bring it back, or change it, would be a row that nobody expects."""
    rows = [row(0, "a", 5), row(4, "a", 6), row(30, "b", 1), row(31, "b", 1)]
    with run_of(rows, task=Balances(10), step_rows=1) as run:
        run.run(rows)
        before = newest(run)
        with pytest.raises(Refused, match=r"add=: an update of the key 'a' at .* is too late: with ttl=\"10 ms\" it"):
            correct(run, rows, "late", add=[row(4, "a", 1)])
        with pytest.raises(Refused, match=r"remove=: no life of the key 'a' that lasts holds .* it has expired by"):
            correct(run, rows, "gone", remove=[row(4, "a", 6)])
        with pytest.raises(Refused, match="no life of the key 'b' that lasts holds"):
            correct(run, rows, "never", remove=[row(29, "b", 1)])
        with pytest.raises(Refused, match="no life of the key 'b' that lasts holds"):
            correct(run, rows, "later", remove=[row(32, "b", 1)])
        with pytest.raises(Refused, match="no life of the key 'c'"):
            correct(run, rows, "nobody", remove=[row(30, "c", 1)])
        assert newest(run) == before


def test_what_is_removed_leaves_its_life_as_long_as_it_was() -> None:
    """Whether a life was parted by it is not known: the key lives on, and its value is that of the other records."""
    rows = [row(0, "a", 5), row(8, "a", 6), row(16, "a", 7)]
    with run_of(rows, task=Balances(10, ("change", "retract")), step_rows=1) as run:
        run.run(rows)
        made = correct(run, rows, "ticket", remove=[row(0, "a", 5), row(8, "a", 6)], add=[row(2, "a", 1)])
        assert run.state() == run.shown() == {"a": (2, 8, 8)} and made.panes == (OPEN_PANE, OPEN_PANE)
        run.rows = [*rows, row(26, "b", 1), row(27, "b", 1)]
        run.run()
        assert run.shown() == run.state() == {"b": (2, 2, 2)}


def test_what_expired_before_a_correction_is_taken_back_with_it_once() -> None:
    """Another emission begins with it: it tells the sinks by which clock, and the next step goes on from there."""
    with run_of([row(0, "a", 1), row(1, "b", 1)], task=Balances(10, MODES[0])) as run:
        run.run()
        run.rows = [*run.rows, row(20, "c", 1), row(21, "c", 1)]
        run.step_rows = 1
        run.run(run.rows)
        run.task = Balances(10, MODES[1])
        made = correct(run, run.rows, "ticket", add=[row(21, "c", 5)])
        gone = [(one["key"], one["revision"]) for one in run.sink.rows() if one["retracted"]]
        assert sorted(gone) == [("a", made.checkpoint), ("b", made.checkpoint)]
        run.rows = [*run.rows, row(22, "c", 1)]
        run.run()
        assert run.shown() == run.state() == {"c": (4, 8, 8)}


def test_a_rollback_takes_a_correction_of_lives_back() -> None:
    rows = [row(0, "a", 5), row(8, "a", 6)]
    with run_of(rows, task=Balances(10), step_rows=1) as run:
        run.run(rows)
        target = newest(run).base
        correct(run, rows, "ticket", add=[row(9, "a", 100)])
        rollback(run.storage, target, outputs="retract")
        run.run(rows)
        assert run.state() == run.shown() == {"a": (2, 11, 11)} and not newest(run).corrections
