"""The runner runs the sections of the proof, two at a time, and prints one table.

A section is a module with ``prove(seconds_max: float | None, seed: int = 0, scale: float = 1.0) -> Result``. It
runs in a process of its own: one that raises, dies or does not come to its end is a failure in the table, and the
others go on. Equal seeds give equal cases. ``seconds_max`` is the time left when the section begins: a section that
would need more stops early and says so in its note.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import importlib.util
import logging
import multiprocessing
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from tests.proof.result import Result, table

SECTIONS = {
    "disk": "tests.proof.powercut",
    "errors": "tests.proof.errors",
    "lines": "tests.proof.lines",
    "log": "tests.proof.log",
    "topic": "tests.proof.topic",
    "model": "tests.proof.model",
    "simulation": "tests.proof.simulation",
    "operations": "tests.proof.operations",
    "law": "tests.proof.law",
    "limits": "tests.proof.limits",
    "corruption": "tests.proof.corruption",
    "readers": "tests.proof.readers",
    "peers": "tests.proof.peers",
    "reads": "tests.proof.reads",
    "moves": "tests.proof.moves",
    "options": "tests.proof.options",
    "mutants": "tests.proof.mutants",
    "kills": "tests.proof.kills",
}
"""Section and module, in the order of the table; a module that is not there is left out of it."""

WEIGHTS = {
    "disk": 1200.0,
    "errors": 600.0,
    "lines": 200.0,
    "log": 250.0,
    "topic": 60.0,
    "model": 300.0,
    "simulation": 1000.0,
    "operations": 250.0,
    "law": 2200.0,
    "limits": 300.0,
    "corruption": 160.0,
    "readers": 160.0,
    "peers": 350.0,
    "reads": 300.0,
    "moves": 300.0,
    "options": 300.0,
    "mutants": 900.0,
}
"""About how many seconds of one core a section takes when it tries all its cases. What time there is, is shared out in
these proportions, so that a slow machine tries less of each rather than none of the last."""

FIRST = frozenset({"mutants"})
"""Sections that begin before all others: each case of them takes seconds, so what others leave at the end of a short
time, if they go on beyond theirs, would not be enough for one."""

ALONE = frozenset({"kills"})
"""Sections that start processes of their own: nothing runs beside them."""

_AT_ONCE = 2
_ALONE_SHARE = 0.25
"""What is kept of the time for the sections that run alone, last."""

_GRACE_SECONDS = 60.0
_FAILURES_SHOWN = 10


def main(arguments: Sequence[str]) -> int:
    """The exit code: 0 if every section passed, else 1."""
    options = _parsed(arguments)
    sections = [name for name in options.only or there() if name in there()]
    absent = sorted(set(options.only or ()) - set(sections))
    if absent:
        print(f"no such section: {', '.join(absent)}; there are: {', '.join(there())}")
        return 1
    began = time.monotonic()
    if options.hours is None:
        results = prove(sections, began + 60 * options.minutes, options.seed, options.scale)
        print("\n" + table(results), flush=True)
    else:
        results, rounds = soak(sections, began + 3600 * options.hours, options.seed, options.scale)
        print("\n" + table(results, time.monotonic() - began), flush=True)
        print(f"{rounds} rounds, seeds {options.seed} to {options.seed + rounds - 1}")
    print(f"{time.monotonic() - began:,.0f} seconds in all", flush=True)
    return 0 if results and all(result.passed for result in results) else 1


def there() -> list[str]:
    """The sections whose module exists."""
    return [name for name, module in SECTIONS.items() if importlib.util.find_spec(module) is not None]


def prove(sections: Sequence[str], until: float, seed: int, scale: float) -> list[Result]:
    """Every section once; in the order of the table."""
    results = {result.section: result for result in _finished(sections, until, seed, scale)}
    return [results[name] for name in sections]


def soak(sections: Sequence[str], until: float, seed: int, scale: float) -> tuple[list[Result], int]:
    """Round after round with growing seeds until the time is over; the sums, and the number of rounds."""
    totals: dict[str, Result] = {}
    rounds = 0
    while rounds == 0 or time.monotonic() < until:
        print(f"round {rounds}, seed {seed + rounds}", flush=True)
        for result in prove(sections, until, seed + rounds, scale):
            totals[result.section] = totals[result.section] + result if result.section in totals else result
        rounds += 1
    return [totals[name] for name in sections], rounds


@dataclass
class _Started:
    """A section at work in a process of its own."""

    section: str
    process: BaseProcess
    answer: Connection
    began: float
    until: float


def _finished(sections: Sequence[str], until: float, seed: int, scale: float) -> Iterator[Result]:
    """The results, as they come: sections that run alone at the end."""
    waiting = in_order(sections)
    running: list[_Started] = []
    kept_seconds = _ALONE_SHARE * max(until - time.monotonic(), 0.0) if ALONE & set(sections) else 0.0
    while waiting or running:
        while waiting and _may_start(waiting[0], running):
            name = waiting.pop(0)
            end = until if name in ALONE else _end(name, waiting, running, until - kept_seconds)
            running.append(_start(name, end, seed, scale))
        left = max(until + _GRACE_SECONDS - time.monotonic(), 0.0)
        # A process that dies closes its end, so that too is an answer.
        ready = wait([started.answer for started in running], timeout=left)
        for started in [started for started in running if not ready or started.answer in ready]:
            running.remove(started)
            result = _result(started, overdue=not ready)
            _told(result)
            yield result


def in_order(sections: Sequence[str]) -> list[str]:
    """The sections in the order in which they begin.

    >>> in_order(["disk", "kills", "mutants", "errors"])
    ['mutants', 'disk', 'errors', 'kills']
    """
    return sorted(sections, key=lambda name: (name in ALONE, name not in FIRST))


def _end(name: str, waiting: Sequence[str], running: Sequence[_Started], until: float) -> float:
    """When a section has had its share of what the running ones leave of the time."""
    now = time.monotonic()
    free = _AT_ONCE * (until - now) - sum(max(started.until - now, 0.0) for started in running)
    weights = [WEIGHTS.get(other, 1.0) for other in (name, *waiting) if other not in ALONE]
    return min(until, now + free * weights[0] / sum(weights))


def _may_start(name: str, running: Sequence[_Started]) -> bool:
    if name in ALONE or any(started.section in ALONE for started in running):
        return not running
    return len(running) < _AT_ONCE


def _start(section: str, until: float, seed: int, scale: float) -> _Started:
    print(f"{section} begins", flush=True)
    processes = multiprocessing.get_context("spawn")
    answer, sender = processes.Pipe(duplex=False)
    began = time.monotonic()
    arguments = (section, SECTIONS[section], max(until - began, 1.0), seed, scale, sender)
    process = processes.Process(target=_section, args=arguments, name=section)
    process.start()
    sender.close()
    return _Started(section, process, answer, began, until)


def _section(name: str, module: str, seconds_max: float, seed: int, scale: float, answer: Connection) -> None:
    """What the process of a section does."""
    logging.getLogger("persistent").setLevel(logging.CRITICAL)
    began = time.monotonic()
    try:
        result = importlib.import_module(module).prove(seconds_max, seed=seed, scale=scale)
    except BaseException:
        # Also what is no Exception: a simulated death that nobody caught is a failure of the section.
        lines = (traceback.format_exc(),)
        result = Result(name, 0, lines, None, time.monotonic() - began, "raised")
    answer.send(result)


def _result(started: _Started, *, overdue: bool) -> Result:
    seconds = time.monotonic() - started.began
    try:
        if overdue:
            started.process.terminate()
            return Result(started.section, 0, ("did not end in its time",), None, seconds, "ended from outside")
        # By the name in the table, whatever the section calls itself.
        return dataclasses.replace(started.answer.recv(), section=started.section)
    except EOFError:
        started.process.join()
        code = started.process.exitcode
        return Result(started.section, 0, (f"its process died with exit code {code}",), None, seconds, "died")
    finally:
        started.answer.close()
        started.process.join(_GRACE_SECONDS)


def _told(result: Result) -> None:
    state = "passed" if result.passed else "FAILED"
    print(f"{result.section} {state}: {result.cases:,} cases in {result.seconds:,.1f} s {result.note}".rstrip())
    for line in result.failures[:_FAILURES_SHOWN]:
        print(f"  {line}")
    if len(result.failures) > _FAILURES_SHOWN:
        print(f"  and {len(result.failures) - _FAILURES_SHOWN:,} more")
    print(end="", flush=True)


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.proof", description="Run the proof, print its table.")
    parser.add_argument("--minutes", type=float, default=40.0, help="the most that all sections together may take")
    parser.add_argument("--hours", type=float, help="go on with growing seeds for so long")
    parser.add_argument("--only", action="append", metavar="SECTION", help="this section; may be repeated")
    parser.add_argument("--seed", type=int, default=0, help="draws the cases; 0 is that of `make proof`")
    parser.add_argument("--scale", type=float, default=1.0, help="the share of the cases to try")
    return parser.parse_args(arguments)
