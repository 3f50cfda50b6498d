"""The simulation can fail, and a seed is a run."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from persistent import Dedupe
from tests.proof import simulation
from tests.proof.emission import Emission
from tests.proof.simulation import COMMANDS, emission_of, quiet_after, seeds_for, simulated
from tests.proof.simulation_copies import drawn_copies, sent_again
from tests.proof.simulation_input import Border, Input
from tests.proof.simulation_mutants import MUTANTS, mutated
from tests.proof.simulation_twin import Copies, Snapshot, Step

SEEDS = 20
NAMES = ("visits", "total", "top")
CLOCK = {"p": None}
TUMBLING, FOR_EVER = Emission((10, 10, 0), names=NAMES), Emission(names=NAMES)
QUICK = (
    "a fence does not raise the epoch",
    "outputs are published under the id of who publishes",
    "a step does not publish",
    "only what the newest manifest names is live",
    "a fold does not replace its inputs",
    "what was seen is not committed",
    "what was seen is forgotten where it is folded",
    "what was seen expires too early",
    "splits that have seen the same both count it",
    "a fence forgets what was seen",
    "a fold drops a fragment of a session",
    "a session is judged like a window",
    "sessions that others take in stay published",
    "open sessions are taken for unpublished",
    "early results wait for their clock alone",
    "a quiet clock jumps to today",
    "a time without a driver counts as quiet",
    "a time to live keeps the last life alone",
    "a key expires by the clock committed with it",
    "a late row is published by the attempt that finds it",
    "the live half counts what the history has",
)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("persistent")
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(logging.NOTSET)


def test_some_seeds_hold_every_law() -> None:
    """I7: a schedule of drivers, deaths and commands that loses or doubles something."""
    stories = [simulated(seed) for seed in range(SEEDS)]
    assert [story.told() for story in stories if story.faults] == []
    assert sum(story.commits for story in stories) > 8 * SEEDS
    happened = frozenset().union(*(story.happened for story in stories))
    assert {"Killed", "Fenced", "StorageError", "driver"} <= happened, "too calm to prove anything"
    assert happened & set(COMMANDS), "no command came to its end"
    assert {"quiet", "live"} <= happened, "no stream went quiet, or none went on with a live source"
    assert {"states", "late rows"} <= happened, "no job had several states, or a sink for what is late"


def test_a_seed_is_a_run() -> None:
    """A failure that cannot be seen again cannot be mended."""
    for seed in (3, 8):
        first, again = simulated(seed), simulated(seed)
        assert first.schedule == again.schedule and len(first.schedule) > 50
    assert simulated(3).schedule != simulated(4).schedule
    assert "--seed 3" in simulated(3).told()


@pytest.mark.parametrize("name", QUICK)
def test_a_rule_taken_out_of_the_code_is_missed(name: str) -> None:
    """An oracle that finds nothing wrong with broken code finds nothing wrong with any."""
    assert name in MUTANTS
    with mutated(name):
        assert any(simulated(seed).faults for seed in seeds_for(name, 20))


def test_the_twin_counts_as_one_counts_by_hand() -> None:
    """A twin that is wrong as the code is wrong would agree with it."""
    rows = [{"id": number, "ts": ts, "page": "a", "n": n} for number, (ts, n) in enumerate([(3, 1), (14, 2), (-1, 3)])]
    first = Snapshot().after(Step({"p": rows}, 0, False, CLOCK), TUMBLING, 0)
    assert first.sums == {("a", 0): (1, 1, 1), ("a", 10): (1, 2, 2)}
    assert (first.read, first.dead, first.watermark, first.outputs) == (3, (2,), 14, ())
    late = [{"id": 3, "ts": 9, "page": "a", "n": 1}, {"id": 4, "ts": 15, "page": "a", "n": -5}]
    second = first.after(Step({"p": late}, 14, False, CLOCK), TUMBLING, 0)
    assert second.outputs == (("a", 0, 1, 1, 1),)
    assert second.sums == {("a", 10): (1, 2, 2)}
    assert (second.late, second.dead, second.late_count, second.dead_count) == ((3,), (4,), 1, 2)
    sliding = first.after(Step({"p": late[:1]}, 14, False, CLOCK), Emission((10, 4, 0), names=NAMES), 0)
    assert sliding.late == (3,) and sliding.late_count == 0


def test_the_twin_moves_on_in_a_quiet_time() -> None:
    """By the time that passed, from where the records had brought the clock, and no further."""
    rows = [{"id": 0, "ts": 14, "page": "a", "n": 1}]
    first = Snapshot().after(Step({"p": rows}, 0, False, CLOCK), TUMBLING, 0)
    second = first.after(Step({}, 14, False, CLOCK, quiet_ms=30), TUMBLING, 0)
    third = second.after(Step({}, 44, False, CLOCK, quiet_ms=37), TUMBLING, 0)
    assert [one.watermark for one in (first, second, third)] == [14, 44, 51]
    assert third.outputs == (("a", 10, 1, 1, 1),) and third.quiet_ms == 37
    assert third.after(Step({"p": rows}, 51, False, CLOCK), TUMBLING, 0).late == (0,)


def test_the_twin_publishes_early_as_one_does_by_hand() -> None:
    """Once its clock has passed a multiple, and whatever a closing window has held back."""
    emission = Emission((10, 10, 0), early=3, names=NAMES)
    rows = [{"id": number, "ts": ts, "page": "a", "n": 1} for number, ts in enumerate((3, 4, 5, 12, 13, 14))]
    made, outputs = Snapshot(), []
    for row in rows:
        made = made.after(Step({"p": [row]}, made.watermark, False, CLOCK), emission, 0)
        outputs.append(made.outputs)
    assert outputs == [(), (("a", 0, 2, 2, 1),), (), (), (("a", 0, 3, 3, 1), ("a", 10, 2, 2, 1)), ()]


def test_the_twin_holds_nothing_back_after_a_rollback() -> None:
    """Until something is published; then the clock decides again."""
    emission = Emission((90, 90, 0), early=50, names=NAMES)
    rows = [{"id": number, "ts": ts, "page": "a", "n": 1} for number, ts in enumerate((3, 4, 5, 6))]
    first = Snapshot().after(Step({"p": rows[:1]}, 0, False, CLOCK), emission, 0)
    second = first.after(Step({"p": rows[1:2]}, 3, False, CLOCK), emission, 0)
    again = first.gone_back(second).after(Step({"p": rows[1:2]}, 3, False, CLOCK), emission, 0)
    third = again.after(Step({"p": rows[2:]}, 4, False, CLOCK), emission, 0)
    assert (first.outputs, second.outputs, third.outputs) == ((), (), ())
    assert again.outputs == (("a", 0, 2, 2, 1),)
    anew = Snapshot().gone_back(second).after(Step({"p": rows[:1]}, 0, False, CLOCK), emission, 0)
    assert not anew.outputs
    assert anew.after(Step({"p": rows[1:2]}, 3, False, CLOCK), emission, 0).outputs == again.outputs
    assert not Snapshot().gone_back(Snapshot()).marked


def test_the_twin_tells_the_halves_apart(tmp_path: Path) -> None:
    """A record of the other side is a duplicate; one that the history cannot hold is dead."""
    rows = [{"id": number, "ts": ts, "page": "a", "n": 1} for number, ts in enumerate((3, 22, 9, 31, 14, 40))]
    given = Input(tmp_path, rows, files=False, ordered=True, lag_ms=0, border=Border(20, 0))
    given.split(random.Random(2))
    given.come(len(given.coming))
    assert {row["id"] for row in given.history if row["ts"] < 20} == {0, 2, 4}
    assert {row["id"] for row in given.rows if row["ts"] >= 20} == {1, 3, 5}
    history = Step({"history/memory": given.history}, 0, False, {"history/memory": None})
    first = Snapshot().after(history, FOR_EVER, 0)
    nowhere = {"id": 9, "ts": 19, "page": "a", "n": 1, "half": "live", "at": 20}
    second = first.after(Step({"live/memory": [*given.rows, nowhere]}, 0, False, {"live/memory": None}), FOR_EVER, 0)
    assert second.sums == {("a", None): (6, 6, 1)} and second.dead == (9,) and second.watermark == 40
    assert second.duplicates == len(given.history) + len(given.rows) - 6


def test_seeds_draw_quiet_times_and_sessions() -> None:
    """A seed that is never drawn shows nothing."""
    seeds = range(500)
    assert sum(quiet_after(seed) is not None for seed in seeds) > 100
    assert sum(emission_of(seed).has_sessions for seed in seeds) > 20
    assert sum(emission_of(seed).early is not None for seed in seeds) > 20
    assert sum(emission_of(seed).has_lives for seed in seeds) > 20


def test_the_twin_judges_copies_as_one_does_by_hand() -> None:
    """A plain mapping of names to panes: what it says is the definition. Panes of 5 ms, for 20 ms."""
    copies = Copies(Dedupe(origin="origin", sequence="number", epoch="epoch", within=20))
    sent = [("a", 0, 1, 30), ("a", 0, 3, 31), ("a", 0, 1, 30), ("a", 1, 1, 32), (None, 0, 9, 33), ("b", 0, 1, 34)]
    rows = [
        {"id": id, "origin": origin, "epoch": epoch, "number": number, "ts": ts, "page": "p", "n": 1}
        for id, (origin, epoch, number, ts) in enumerate(sent)
    ]
    first = Snapshot().after(Step({"p": rows}, 0, False, CLOCK), FOR_EVER, 0, copies)
    assert first.sums == {("p", None): (4, 4, 1)}
    assert (first.read, first.duplicates, first.dead, first.watermark) == (6, 1, (4,), 34)
    assert first.seen == {("a", 0, 1): 30, ("a", 0, 3): 30, ("a", 1, 1): 30, ("b", 0, 1): 30}
    ahead = first.after(
        Step({"p": [{**rows[0], "id": 6, "number": 4, "ts": 58}]}, 0, False, CLOCK), FOR_EVER, 0, copies
    )
    assert ahead.watermark == 58 and len(ahead.seen) == 5, "what expires is decided by the clock before"
    last = ahead.after(
        Step({"p": [{**rows[0], "id": 7}, {**rows[0], "id": 8, "ts": 35}]}, 0, False, CLOCK), FOR_EVER, 0, copies
    )
    assert (last.late, last.duplicates, set(last.seen)) == ((7,), 1, {("a", 0, 4), ("a", 0, 1)})


def test_senders_send_again_in_many_seeds() -> None:
    """A seed without copies says nothing of them."""
    counts = Counter(type(drawn_copies(random.Random(f"sent again {seed}"))).__name__ for seed in range(200))
    assert counts["Copies"] > 60
    copies = Copies(Dedupe.by_id("uid", within=20))
    rows = [{"id": number, "ts": 3 * number, "page": "a", "n": 1} for number in range(20)]
    sent = sent_again(rows, copies, random.Random(1))
    names = [copies.name(row) for row in sent]
    assert len(sent) == 30 and len({row["id"] for row in sent}) == 30
    assert None in names and sum(count > 1 for count in Counter(names).values()) >= 5


def test_what_is_made_small_is_there() -> None:
    """A constant renamed in the code would leave folds, sweeps and adaptive steps out of every run."""
    with simulation.small(0):
        pass
