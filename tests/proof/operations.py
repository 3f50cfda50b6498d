"""The section "operations": runs and every operation in any order, with deaths between, against a dictionary."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from persistent.checkpoint.commit_change import Manifests
from persistent.checkpoint.manifest import Manifest
from persistent.driver import next_step, publish_after
from persistent.operations import compaction, rolling_back
from tests.proof.emission import Emission
from tests.proof.operations_machine import Machine
from tests.proof.result import Result

CASES = 220
STEPS_A_CASE = 15
_CASES_AT_ONCE = 5
_MUTANT_SECONDS = 20.0


def _positions_stay(manifests: Manifests, *others: Any, **more: Any) -> dict[str, Any]:
    return {**_ROLLED_BACK(manifests, *others, **more), "sources": manifests.newest.manifest.sources}


def _without_the_last_run(*all_: Any) -> Iterator[Any]:
    yield from list(_FOLDED_RUNS(*all_))[:-1]


_ROLLED_BACK, _FOLDED_RUNS = rolling_back.rolled_back, compaction._folded_runs

MUTANTS: Mapping[str, tuple[Any, str, Any]] = {
    "a rollback keeps the positions": (rolling_back, "rolled_back", _positions_stay),
    "a collection ignores pins": (Manifest, "keeps", lambda self, id: id not in self.burnt and id >= self.oldest),
    "a compaction drops a run": (compaction, "_folded_runs", _without_the_last_run),
    "a partition that is ahead does not wait": (next_step, "too_far_ahead", lambda *others: {}),
    "a step that closes no window publishes early": (publish_after, "_must_publish", lambda *others: True),
}


def prove(seconds_max: float | None, seed: int = 0, scale: float = 1.0) -> Result:
    """Machine after machine; then each planted defect, which must be found."""
    logging.getLogger("persistent").setLevel(logging.CRITICAL)
    began = time.monotonic()
    until = began + seconds_max if seconds_max is not None else float("inf")
    reserved_seconds = min(_MUTANT_SECONDS, 0.25 * (until - began))
    wanted = max(round(CASES * scale), 1)
    cases, failures = 0, []
    Machine.happened.clear()
    while cases < wanted and not failures and time.monotonic() < until - reserved_seconds:
        count = min(_CASES_AT_ONCE, wanted - cases)
        failure = failure_of(f"{seed} {cases}", count)
        failures += [f"--seed {seed}, after {cases} cases: {failure}"] if failure else []
        cases += count
    happened = dict(Machine.happened)
    found = [name for name in MUTANTS if is_found(name)]
    failures += [f"not found: {name}" for name in MUTANTS if name not in found]
    done = sum(happened.values()) - happened.get("refused", 0)
    note = f"{done:,} runs and operations, {_killed(happened):,} killed"
    note += f"; stopped at {cases} of {wanted} cases, for time" if cases < wanted and not failures else ""
    return Result("operations", cases, tuple(failures), (len(found), len(MUTANTS)), time.monotonic() - began, note)


def failure_of(name: str, cases: int) -> str | None:
    """What goes wrong in so many machines drawn from that seed, with what that machine did; None if nothing does."""
    options = settings(
        max_examples=cases,
        stateful_step_count=STEPS_A_CASE,
        derandomize=False,
        database=None,
        deadline=None,
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        # To shrink one takes minutes, more than the section has; a story of fifteen steps can be read as it is.
        phases=[Phase.generate],
    )

    @seed(name)
    class Drawn(Machine):
        pass

    try:
        run_state_machine_as_test(Drawn, settings=options)
    except Exception as error:
        return f"{type(error).__name__}: {error}; after: {' | '.join(Machine.stories[-1])}"
    return None


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """While inside, the production code has that defect."""
    where, what, instead = MUTANTS[name]
    assert hasattr(where, what), f"{where.__name__} has no {what} any more"
    with mock.patch.object(where, what, instead):
        yield


def is_found(name: str) -> bool:
    """Whether a machine that comes by notices the defect."""
    with mutated(name):
        try:
            story()
        except Exception:
            return True
    return False


def story() -> None:
    """What a machine does that meets every rule a defect may be planted in; held to the model after each."""
    machine = Machine()
    rows = [(0, 4, "abc"[number % 3], number) for number in range(24)]
    acts: list[Callable[[], None]] = [
        lambda: machine.begin(emission=Emission(), partitions=1, rows=rows, step_rows=2, drift=None, twins=False),
        lambda: machine.pin(which=0, remove=False, crash=None),
        lambda: machine.run(steps=3, step_rows=2, ends=False, threads=1, crash=None),
        lambda: machine.run(steps=3, step_rows=2, ends=False, threads=3, crash=None),
        lambda: machine.compact(crash=None),
        lambda: machine.rollback(which=2, outputs="retract", by_clock=False, crash=None),
        lambda: machine.run(steps=3, step_rows=3, ends=True, threads=1, crash=(9, "after")),
        lambda: machine.run(steps=3, step_rows=3, ends=True, threads=1, crash=None),
        lambda: machine.collect(dry=False, crash=None),
    ]
    _held(machine, acts)
    ahead = Machine()
    # One partition is ten ticks ahead of the other from the beginning, and three are allowed.
    apart = [(number % 2, 10 if number == 1 else 1, "ab"[number % 2], number) for number in range(16)]
    _held(
        ahead,
        [
            lambda: ahead.begin(
                emission=Emission((10, 10, 0), early=50), partitions=2, rows=apart, step_rows=1, drift=3, twins=False
            ),
            lambda: ahead.run(steps=3, step_rows=1, ends=False, threads=1, crash=None),
            *[lambda: ahead.run(steps=3, step_rows=1, ends=True, threads=1, crash=None)] * 3,
        ],
    )


def _held(machine: Machine, acts: Sequence[Callable[[], None]]) -> None:
    """Do all that, and hold the machine to its model after each act."""
    try:
        for act in acts:
            act()
            machine.holds()
            machine.is_shown()
    finally:
        machine.teardown()


def _killed(happened: Mapping[str, int]) -> int:
    return sum(count for name, count in happened.items() if name.endswith("killed"))
