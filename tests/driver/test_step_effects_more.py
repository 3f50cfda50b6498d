"""The order of the effects of a step is the protocol: each neighbouring pair swapped breaks the promise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from persistent.driver import step, step_effects
from persistent.driver.commit import next_manifest
from persistent.driver.results import NodeResults
from persistent.driver.step import EFFECTS, Effect, OutOfOrder
from tests.crash.sweep import Calm, calm, overtaken_in_the_last_commit, sleep_everywhere, sweep
from tests.crash.worlds import JOBS, LONG
from tests.operations.conftest import _quiet, folder

__all__ = ["_quiet", "folder"]

PAIRS = tuple(pairwise(EFFECTS))
HARMFUL = PAIRS[:-1]
"""What collect deletes excludes the outputs not yet published, so the last pair alone does no harm when swapped."""
FILES = next(job for job in JOBS if job.name == "files")


def swapped(pair: tuple[Effect, Effect]) -> tuple[Effect, ...]:
    """The effects with a neighbouring pair in the other order."""
    order = list(EFFECTS)
    place = order.index(pair[0])
    order[place : place + 2] = reversed(pair)
    return tuple(order)


def names(pair: tuple[Effect, Effect]) -> str:
    return f"{pair[1].value}-before-{pair[0].value}"


@dataclass(frozen=True)
class Expected:
    """What the right order does."""

    files: Calm
    long: Calm


@pytest.fixture
def expected(folder: Path) -> Expected:
    return Expected(calm(FILES, folder), calm(LONG, folder))


def prove(expected: Expected, folder: Path, *, whole: bool) -> None:
    """What must hold of any order of effects; ``whole``: wherever something can happen."""
    overtaken_in_the_last_commit(folder, expected.long)
    sleep_everywhere(LONG, folder, expected.long, whole=whole)
    sweep(FILES, folder, expected.files, whole=whole)


def with_what_there_is(job: Any, made: Any, retention: Any) -> Any:
    """A commit before the map has no index and no results, and one of a plan that was put after the map has none of
    that plan's sources. The driver takes both for an error: here it is to go on, and be found."""
    index = {name: made.index.get(name, ()) for name in made.plan.sources}
    nodes = {id: made.results.nodes.get(id, NodeResults()) for id in made.nodes}
    return next_manifest(job, replace(made, index=index, results=replace(made.results, nodes=nodes)), retention)


def test_a_commit_without_the_index_of_a_source_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Taken for an empty one, all files that were ever listed would be forgotten, and read again."""
    monkeypatch.setattr(step.Step, "mapped", lambda self, results, index: self.past(Effect.MAP, results=results))
    with pytest.raises(KeyError, match="file"):
        calm(FILES, folder)


@pytest.mark.parametrize("pair", HARMFUL, ids=names)
@pytest.mark.xfail(strict=True, raises=(AssertionError, pytest.fail.Exception), reason="the order is the protocol")
def test_another_order_breaks_the_promise(
    pair: tuple[Effect, Effect], expected: Expected, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a swapped order passed the sweep, then either the order is arbitrary or the sweep is blind."""
    monkeypatch.setattr(step, "EFFECTS", swapped(pair))  # the guard too believes in this order
    if Effect.MAP in pair:
        monkeypatch.setattr(step_effects, "next_manifest", with_what_there_is)
    try:
        prove(expected, folder, whole=True)
    except OutOfOrder as error:
        raise RuntimeError("refused by the guard, so nothing was shown") from error


def test_the_proof_holds_of_the_right_order(expected: Expected, folder: Path) -> None:
    """What fails of every order proves nothing about the others."""
    prove(expected, folder, whole=False)
