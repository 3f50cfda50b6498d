"""The section "law": what a reader holds is the view of a state at the position of its sink.

Random histories of a job, through its public interface (``law_world``); one to three states of every kind, of monoids
that are exact, inexact or raise. After each run three readers look at each sink (``law_readers``). What they hold must
be the view, by a plain computation (``law_views``): the fold of the records that count, of the places that the clock of
the checkpoint shows.

    python -m tests.proof --only law
    python -m tests.proof.law [--seed N] [--cases N] [--only EVENT ...] [--engine spark] [--story] [--strict]
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any
from unittest import mock

from tests.proof import law_readers
from tests.proof.law_readers import Broken, Reader, Rows
from tests.proof.law_world import EVENTS, case
from tests.proof.result import Result, in_turn

CASES, MOVES, SPARK_CASES, SPARK_MOVES = 3_200, 4, 100, 2
_SPARK_SHARE = 0.35
_DEFECT_CASES = 40
_FAILURES_MAX = 20
_SEEDS_SHOWN = 5

DEFECTS: dict[str, Callable[[list[Rows]], None]] = {
    "a row is lost": lambda batches: batches[-1].pop() and None,
    "a row is published twice": lambda batches: batches[-1].append(batches[-1][-1]),
    "a batch is published twice": lambda batches: batches.append(batches[-1]),
    "a value is wrong": lambda batches: batches[-1].append((*batches[-1].pop()[:2], 99, 99, 99)),
    "a row has another place": lambda batches: batches[-1].append(("d", *batches[-1].pop()[1:])),
}
"""What is done to the batches of a sink before a reader sees them."""


def prove(seconds_max: float | None = None, seed: int = 0, scale: float = 1.0) -> Result:
    """Histories in this process, some on Spark, and the planted defects."""
    began = time.monotonic()
    found = sum(finds(name, seed) for name in DEFECTS)
    until = began + (seconds_max or float("inf"))
    failures: list[str] = []
    cases, notes = [], []
    parts = ((None, CASES, MOVES), (spark_engine, SPARK_CASES, SPARK_MOVES))
    for (engine, planned, moves), end in in_turn(parts, (1 - _SPARK_SHARE, _SPARK_SHARE), until):
        planned = max(1, round(planned * scale))
        lines, done = tried(range(seed * planned, (seed + 1) * planned), moves, engine() if engine else None, end)
        failures += lines
        cases.append(done)
        if done < planned:
            notes.append(f"stopped, {planned:,} were planned{' on Spark' if engine else ''}")
    note = ", ".join([f"{cases[1]:,} of them on Spark", *notes])
    return Result("law", sum(cases), tuple(failures), (found, len(DEFECTS)), time.monotonic() - began, note)


def tried(seeds: range, moves: int, engine: Any, until: float) -> tuple[list[str], int]:
    """The histories that differ, and how many were tried."""
    failures: list[str] = []
    for number, seed in enumerate(seeds):
        if time.monotonic() > until or len(failures) >= _FAILURES_MAX:
            return failures, number
        _, error = case(seed, moves=moves, engine=engine)
        if error is not None:
            again = f"python -m tests.proof.law --story --cases 1 --seed {seed} --moves {moves}"
            failures.append(f"{again}{' --engine spark' * (engine is not None)}: {error!r:.300}")
    return failures, len(seeds)


def finds(defect: str, seed: int = 0) -> bool:
    """Whether readers notice a defect in what a sink has."""
    batches = Reader.batches

    def wrong(reader: Reader, emission: Any) -> list[Rows]:
        found = batches(reader, emission)
        if found and found[-1]:
            DEFECTS[defect](found)
        return found

    with mock.patch.object(Reader, "batches", wrong):
        errors = (case(number, ("kill",), 2)[1] for number in range(seed, seed + _DEFECT_CASES))
        return any(isinstance(error, Broken) for error in errors)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.law")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--moves", type=int, default=6)
    parser.add_argument("--only", action="append", choices=EVENTS)
    parser.add_argument("--engine", choices=("embedded", "spark"), default="embedded")
    parser.add_argument("--story", action="store_true", help="tell the history of each that differs")
    parser.add_argument("--strict", action="store_true", help="known differences are differences")
    options = parser.parse_args(arguments)
    logging.getLogger("persistent").setLevel(logging.CRITICAL)
    if options.strict:
        law_readers.KNOWN.clear()
    engine = spark_engine() if options.engine == "spark" else None
    happened: Counter[str] = Counter()
    known: defaultdict[str, list[int]] = defaultdict(list)
    kinds: Counter[str] = Counter()
    began = time.monotonic()
    for seed in range(options.seed, options.seed + options.cases):
        world, error = case(seed, tuple(options.only or EVENTS), options.moves, engine)
        happened += world.happened
        if world.known:
            print(f"seed {seed}: known: {', '.join(sorted(world.known))}", flush=True)
        for name in world.known:
            known[name].append(seed)
        if error is not None:
            kinds[error.kind if isinstance(error, Broken) else type(error).__name__] += 1
            print(f"seed {seed}: {type(error).__name__}: {str(error)[:600]}", flush=True)
            if options.story:
                print("\n".join(f"    {line}" for line in world.story))
    print(
        f"{options.cases} histories, {sum(kinds.values())} differ, {time.monotonic() - began:.1f} s; {dict(happened)}"
    )
    for name, seeds in sorted(known.items()):
        print(f"  {len(seeds):>4}  known: {name}, first in {', '.join(map(str, seeds[:_SEEDS_SHOWN]))}")
    for kind, count in kinds.most_common():
        print(f"  {count:>4}  {kind}")
    return int(bool(kinds))


def spark_engine() -> Any:
    """Spark in this process, on one core."""
    from persistent.engines.spark import Spark
    from persistent.engines.spark_session import local_session

    return Spark(local_session(cores=1, app_name="law"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
