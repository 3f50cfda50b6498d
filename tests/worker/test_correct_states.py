"""A correction goes into every state that takes it, and of keys that expire into lives that last."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monoids import Count, Max, Sum, record
from persistent import MemorySink, NonWindowState, PersistentTask, Refused, WindowState, sliding, tumbling
from persistent.checkpoint import compaction
from persistent.checkpoint.corrections import Correction
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.engines.embedded import Embedded
from persistent.operations import compact, rollback
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
        with pytest.raises(Refused, match="no life of the key 'c'"):
            correct(run, rows, "nobody", remove=[row(30, "c", 1)])
        assert newest(run) == before


def test_what_is_removed_leaves_its_life_as_long_as_it_was() -> None:
    """Whether a life was parted by it is not known: the key lives on, and its value is that of the other records."""
    rows = [row(0, "a", 5), row(8, "a", 6), row(16, "a", 7)]
    with run_of(rows, task=Balances(10, ("change", "retract")), step_rows=1) as run:
        run.run(rows)
        made = correct(run, rows, "ticket", remove=[row(0, "a", 5), row(8, "a", 6)], add=[row(2, "a", 1)])
        assert run.state() == run.shown() == {"a": (2, 8, 8)} and made.panes == (-1, -1)
        run.rows = [*rows, row(26, "b", 1), row(27, "b", 1)]
        run.run()
        assert run.shown() == run.state() == {"b": (2, 2, 2)}


def test_a_rollback_takes_a_correction_of_lives_back() -> None:
    rows = [row(0, "a", 5), row(8, "a", 6)]
    with run_of(rows, task=Balances(10), step_rows=1) as run:
        run.run(rows)
        target = newest(run).base
        correct(run, rows, "ticket", add=[row(9, "a", 100)])
        rollback(run.storage, target, outputs="retract")
        run.run(rows)
        assert run.state() == run.shown() == {"a": (2, 11, 11)} and not newest(run).corrections


# -- several states --------------------------------------------------------------------------------------------------


class Several(PersistentTask):
    """Windows, keys that expire, and totals."""

    key = "key"
    names: tuple[str, ...] = ("short", "lives", "total")

    def persistent_state(self) -> Any:
        monoid = record(rows=Count(), total=Sum(), most=Sum())
        states = {
            "short": WindowState(monoid, tumbling(20)),
            "lives": NonWindowState(monoid, ttl="10 ms", emit="change"),
            "total": NonWindowState(monoid, emit="change", changes="retract"),
            "slides": WindowState(monoid, sliding(40, every=20)),
            "most": NonWindowState(Max()),
        }
        return {name: states[name] for name in self.names}

    def process_message(self, state: Any, message: Any) -> None:
        value = message.value["value"]
        for name in self.names:
            state[name].update(
                message.timestamp, value if name == "most" else {"rows": 1, "total": value, "most": value}
            )


class Without(Several):
    names = ("short", "lives")


class Sliding(Several):
    names = ("slides", "total")


class Most(Several):
    names = ("total", "most")


ROWS = [row(4 * number, "ab"[number % 2], number) for number in range(12)]


def several(task: Several) -> Run:
    run = Run(ROWS, task=task, step_rows=5)  # type: ignore[arg-type]
    run.sink = {name: MemorySink() for name in task.names}
    run.run(ROWS)
    return run


def state(run: Run, name: str) -> dict[Any, tuple[int, int]]:
    rows = run.pipeline().state(name=name).to_pylist()
    return {(one["key"], one.get("window_start")): (one["rows"], one["total"]) for one in rows}


def test_a_record_goes_into_every_state_that_takes_it() -> None:
    """In each it counts once, what is published is corrected at once, and there is one account."""
    run = several(Several())
    before = {name: state(run, name) for name in Several.names}
    shown = len(run.sink["total"].rows())
    made = correct(run, ROWS, "ticket", add=[row(44, "b", 100)], remove=[ROWS[10]])
    assert made == newest(run).corrections["ticket"] and made.refused == () and made.panes == (-1, 40)
    for name in Several.names:
        after = {place: values for place, values in state(run, name).items() if values != before[name][place]}
        changed = {
            key: (rows - before[name][key, start][0], total - before[name][key, start][1])
            for (key, start), (rows, total) in after.items()
        }
        assert changed == {"a": (-1, -10), "b": (1, 100)}, name
    rows = run.sink["total"].rows()[shown:]
    assert {one["revision"] for one in rows} == {made.checkpoint} and len(rows) == 4
    assert sum(one["revision"] == made.checkpoint for one in run.sink["lives"].rows()) == 2
    assert verify(run.storage).ok and correct(run, ROWS, "ticket", add=[row(44, "b", 100)], remove=[ROWS[10]]) == made
    totals = state(run, "total")
    run.rows = [*ROWS, row(60, "a", 1)]
    run.run()
    assert state(run, "total") == {**totals, ("a", None): (totals["a", None][0] + 1, totals["a", None][1] + 1)}
    closed = {(one["key"], one["window_start"].microsecond // 1000): one["total"] for one in run.sink["short"].rows()}
    assert closed["b", 40] == 111 and closed["a", 40] == 0
    run.storage.clear()


def test_what_some_states_refuse_is_in_the_account() -> None:
    """A step would call it partly late: nothing is dropped silently."""
    run = several(Several())
    before = {name: state(run, name) for name in Several.names}
    made = correct(run, ROWS, "ticket", add=[row(3, "c", 100)])
    assert made.refused == ("lives", "short") and str(made) == "1 added, 0 removed, partly refused by lives, short"
    assert state(run, "short") == before["short"] and state(run, "lives") == before["lives"]
    assert state(run, "total") == {**before["total"], ("c", None): (1, 100)}
    assert replace(made, refused=()) != newest(run).corrections["ticket"] == made
    assert verify(run.storage).ok
    parts = several(Sliding())
    assert correct(parts, ROWS, "ticket", remove=[ROWS[5]]).refused == ("slides",)
    for one in (run, parts):
        one.storage.clear()


@pytest.mark.parametrize("option", ["add", "remove"])
def test_what_no_state_takes_refuses_the_correction(option: str) -> None:
    """It would have a name, and have changed nothing."""
    run = several(Without())
    before = newest(run)
    for rows in ([row(1, "b", 1)], [ROWS[11], row(1, "b", 1)], [row(19, "nobody", 1)]):
        with pytest.raises(Refused, match=f"{option}=: .*with ttl=\"10 ms\" of the state 'lives' it"):
            correct(run, ROWS, "ticket", **{option: rows})
    assert newest(run) == before
    assert correct(run, ROWS, "ticket", **{option: [ROWS[11]]}).refused == ()
    run.storage.clear()


def test_windows_alone_refuse_what_is_final_in_all() -> None:
    class Windows(Several):
        names = ("short", "slides")

    run = several(Windows())
    with pytest.raises(Refused, match="is in windows of every state that are final: those that end up to"):
        correct(run, ROWS, "ticket", add=[ROWS[0]])
    assert correct(run, ROWS, "ticket", add=[row(25, "a", 1)]).refused == ("short", "slides")
    run.storage.clear()


def test_a_state_that_is_no_group_refuses_what_is_removed() -> None:
    """Of its neighbours it would be gone, and of it not."""
    run = several(Most())
    with pytest.raises(Refused, match=r"Max\(.*\) of the state 'most' is no Group"):
        correct(run, ROWS, "ticket", remove=[ROWS[11]])
    assert correct(run, ROWS, "ticket", add=[ROWS[11]]).added == 1
    run.storage.clear()
