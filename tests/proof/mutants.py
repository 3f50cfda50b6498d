"""The section "mutants" changes the code that stores and commits, a spot at a time, and asks its tests to notice; and
plants others that break a rule by name.

Each mutant runs with the tests that mirror its module: found means that one of them failed or did not end. A survivor
that nobody can tell from the original is in ``EXPLAINED``; any other one is a failure.

    python -m tests.proof.mutants --all --write docs/evidence/proof.md   every mutant of every module, and the table
    python -m tests.proof.mutants --module persistent.names
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import date
from itertools import groupby
from pathlib import Path

from tests.mirrors import mirrors
from tests.proof.mutants_bench import Bench, Mirror, Verdict
from tests.proof.mutants_planted import PLANTED
from tests.proof.mutation import ROOT, Mutation
from tests.proof.result import Result

_MUTANTS = 100
_SHARE_PLANTED = 0.5
"""Of the time, for the mutants that are planted by name."""
_KEPT = ROOT / ".mutants"


_FLIPPED = ("every_flipped_byte_is_refused", "flipped_bits_of_a_larger_run")
_LONG = {
    "persistent.checkpoint.compaction": ("four_hundred", "many_small", "any_merges_in_pieces"),
    "persistent.codec.runs": _FLIPPED,
    "persistent.codec.sealed": _FLIPPED,
    "persistent.storage.doctor": ("doctor.probe",),
    "persistent.storage.local": ("has_one_winner",),
    "persistent.storage.memory": ("has_one_winner",),
}


_PROVED = ("persistent.checkpoint.", "persistent.codec.", "persistent.storage.")
_ALSO_PROVED = ("persistent.driver.commit", "persistent.driver.publish")
NOT_YET = (
    "persistent.checkpoint.commit_change",
    "persistent.storage.clients",
    "persistent.storage.racer",
)
"""Modules whose every mutant nobody has looked at yet."""


def _mirror(module: str, tests: tuple[Path, ...]) -> Mirror:
    # A real server takes too long for each mutant. Elsewhere the words would only be met by chance: "changes33".
    servers = ("hdfs", "s3") if module.startswith("persistent.storage.") else ()
    without = tuple(word for word in servers if not module.endswith(word)) + _LONG.get(module, ())
    plain = (test for test in tests if test.name not in ("test_hdfs.py", "test_s3.py"))
    return Mirror(module, tuple(str(test.relative_to(ROOT)) for test in plain), without)


EVERY = {module: _mirror(module, tests) for module, tests in mirrors().items()}
"""Every module that tests stand beside, with these tests."""
MIRRORS = {
    module: mirror
    for module, mirror in EVERY.items()
    if module in _ALSO_PROVED or (module.startswith(_PROVED) and module not in NOT_YET)
}
"""What stores and commits: of these the section draws, as every mutant of them has been looked at."""


def prove(seconds_max: float | None, seed: int = 0, scale: float = 1.0) -> Result:
    """The planted mutants, and a hundred drawn from those of all modules."""
    began = time.monotonic()
    count = max(1, round(_MUTANTS * scale))
    every = [one for mirror in MIRRORS.values() for one in mirror.mutations()]
    drawn = by_module(random.Random(seed).sample(every, min(count, len(every))))
    verdicts: list[Verdict] = []
    untold: list[str] = []
    until = began + 0.9 * seconds_max if seconds_max is not None else math.inf
    # Else those by name, of which each has tests of its own, would leave no time for any other.
    wanted = round(len(PLANTED) * min(scale, 1.0))
    planted = _planted(wanted, untold, began + _SHARE_PLANTED * (until - began))
    for verdict in _tried(drawn, untold, until):
        verdicts.append(verdict)
    explained = sum(verdict.is_explained for verdict in verdicts)
    failures = tuple(untold) + tuple(f"survived: {verdict.mutation}" for verdict in verdicts if verdict.is_survivor)
    found = sum(verdict.is_found for verdict in verdicts) + sum(planted)
    count = len(verdicts) + len(planted)
    by_name = f"{len(planted)}" if len(planted) == wanted else f"{len(planted)} of {wanted}"
    note = f"seed {seed}; {by_name} planted by name; {explained} more cannot be told from the original"
    if len(verdicts) < len(drawn):
        note += f"; out of time after {len(verdicts)} of {len(drawn)}"
    seconds = time.monotonic() - began
    return Result("mutants", count, failures, (found, count - explained), seconds, note)


def by_module(drawn: Sequence[Mutation]) -> list[Mutation]:
    """The mutants module by module, the modules in the order in which they were drawn: so where time is short, which
    of them are left out is drawn too.

    >>> [one.number for one in by_module([Mutation(module, n, 1, "", "") for n, module in enumerate("bab")])]
    [0, 2, 1]
    """
    modules = list(dict.fromkeys(one.module for one in drawn))
    return sorted(drawn, key=lambda one: (modules.index(one.module), one.number))


def _planted(count: int, untold: list[str], until: float) -> list[bool]:
    """Whether each of so many planted mutants is found; ``untold``: those that are not, and why."""
    found = []
    for one in PLANTED[:count]:
        left = until - time.monotonic()
        if left <= 0:
            break
        try:
            found.append(one.is_found(min(left, 900.0)))
        except (RuntimeError, ValueError) as error:
            if time.monotonic() < until:
                untold.append(str(error))
            continue
        untold += [] if found[-1] else [f"not found: {one.rule}"]
    return found


def _tried(drawn: Sequence[Mutation], untold: list[str], until: float) -> Iterator[Verdict]:
    """The verdicts, module by module, ``drawn`` in their order; ``untold``: why there are none of a module."""
    for module, of_module in groupby(drawn, key=lambda mutation: mutation.module):
        left = until - time.monotonic()
        if left <= 0:
            return
        try:
            bench = Bench(MIRRORS[module], min(left, 900.0))
        except RuntimeError as error:
            # Out of time is said in the note; it is no verdict on the tests.
            if time.monotonic() < until:
                untold.append(str(error))
            continue
        for mutation in of_module:
            # A mutant begun too late would be stopped by the end of the section, and count as found.
            if time.monotonic() + bench.seconds_max > until:
                break
            yield bench.tried(mutation)


def main(arguments: Sequence[str]) -> int:
    """The exit code: 0 if no survivor is unexplained, else 1."""
    options = _parsed(arguments)
    modules = options.module or list(MIRRORS)
    until = time.monotonic() + 60 * options.minutes
    verdicts: list[Verdict] = []
    for module in modules:
        verdicts += _module(EVERY[module], options.sample, options.seed, until)
    survivors = [verdict for verdict in verdicts if verdict.is_survivor]
    for verdict in survivors:
        print(f"survived: {verdict.mutation}")
    print(f"{len(verdicts):,} mutants, {sum(one.is_found for one in verdicts):,} found, {len(survivors):,} unexplained")
    if options.write:
        page = Path(options.write)
        page.write_text(written(page.read_text(encoding="utf-8")), encoding="utf-8")
    return 1 if survivors else 0


def _module(mirror: Mirror, sample: int | None, seed: int, until: float) -> list[Verdict]:
    """The verdicts of a module, of which those that are known are not had again."""
    every = mirror.mutations()
    numbers = {one.number for one in (random.Random(seed).sample(every, min(sample, len(every))) if sample else every)}
    known = _known(mirror)
    wanted = [one for one in every if one.number in numbers and one.number not in known]
    verdicts = [verdict for number, verdict in known.items() if number in numbers]
    if not wanted or time.monotonic() > until:
        return verdicts
    _KEPT.mkdir(exist_ok=True)
    bench, began = Bench(mirror), time.monotonic()
    with open(_KEPT / f"{mirror.module}-{mirror.key}.jsonl", "a") as kept:
        for count, mutation in enumerate(wanted, 1):
            verdict = bench.tried(mutation)
            verdicts.append(verdict)
            print(json.dumps([mutation.number, verdict.end, round(verdict.seconds, 3)]), file=kept, flush=True)
            rate = count / (time.monotonic() - began)
            left = (len(wanted) - count) / rate
            sign = "SURVIVED " + str(mutation) if verdict.is_survivor else verdict.end
            print(f"{mirror.module} {count}/{len(wanted)} {rate:.2f}/s {left:,.0f} s left: {sign}", flush=True)
            if time.monotonic() > until:
                break
    return verdicts


def _known(mirror: Mirror) -> dict[int, Verdict]:
    """The verdicts of earlier runs over the same module and the same tests."""
    path = _KEPT / f"{mirror.module}-{mirror.key}.jsonl"
    every = mirror.mutations()
    lines = path.read_text().splitlines() if path.exists() else []
    return {number: Verdict(every[number], end, seconds) for number, end, seconds in map(json.loads, lines)}


def table() -> str:
    """What is known of all mutants, room by room, as Markdown; survivors that are not explained follow."""
    rooms: dict[str, list[tuple[int, int, int, int]]] = {}
    survivors = []
    for mirror in MIRRORS.values():
        every, verdicts = mirror.mutations(), list(_known(mirror).values())
        found, explained = (sum(getattr(one, end) for one in verdicts) for end in ("is_found", "is_explained"))
        rooms.setdefault(mirror.module.rpartition(".")[0], []).append((len(every), len(verdicts), found, explained))
        survivors += sorted((one for one in verdicts if one.is_survivor), key=lambda one: one.mutation.number)
    rows = [_row(f"`{room}`", numbers) for room, numbers in rooms.items()]
    rows.append(_row("all", [row for numbers in rooms.values() for row in numbers]))
    told = [f"- not found: `{one.mutation.module}`, `{one.mutation.text}`, {one.mutation.change}" for one in survivors]
    counted = f"Counted on {date.today()}, with each module and its tests as they stood."
    return "\n".join([_HEADING, *rows, "", counted, *([""] if told else []), *told])


def _row(name: str, modules: Sequence[tuple[int, int, int, int]]) -> str:
    mutants, tried, found, explained = (sum(numbers) for numbers in zip(*modules, strict=True))
    run = f"{tried:,}" if tried == mutants else f"{tried:,} of {mutants:,}"
    return f"| {name} | {len(modules)} | {run} | {found:,} | {explained:,} |"


def written(page: str) -> str:
    """The page with the table of today between its marks."""
    before, rest = page.split(_BEGIN)
    return f"{before}{_BEGIN}\n{table()}\n{_END}{rest.split(_END)[1]}"


_BEGIN, _END = "<!-- mutants begin -->", "<!-- mutants end -->"
_HEADING = "| room | modules | tried | found | explained |\n|---|---:|---:|---:|---:|"


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.proof.mutants", description="Change the code, run its tests."
    )
    parser.add_argument("--all", action="store_true", help="every module; the default")
    parser.add_argument("--module", action="append", choices=list(EVERY), help="this module; may be repeated")
    parser.add_argument("--sample", type=int, metavar="N", help="so many mutants of each module instead of all")
    parser.add_argument("--seed", type=int, default=0, help="draws the sample")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin nothing after this; go on another time")
    parser.add_argument("--write", metavar="FILE", help="write the table of all that is known into this page")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
