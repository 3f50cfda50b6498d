"""A model check visits every state that the protocol can reach within stated bounds, and every law holds in each.

python -m tests.proof.model            every world to its end, and every mutant
python -m tests.proof.model --table    the lists of worlds and mutants, into docs/protocol.md
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.proof.model_mutants import GUARDED, HOMES, LARGE, RULES, SOUND, WORLDS
from tests.proof.model_search import Found, Space, explore, replay
from tests.proof.result import Result

PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"
BEGIN, END = "<!-- mutants begin -->", "<!-- mutants end -->"
WORLDS_BEGIN, WORLDS_END = "<!-- worlds begin -->", "<!-- worlds end -->"
_STATES_MAX = (40_000, 120_000)
"""The number of states to visit in each world while hunting a mutant: in a first pass, then in a second."""


@dataclass(frozen=True)
class Kill:
    """How a mutant was found: in which world, after how many states, by which law."""

    rules: frozenset[str]
    world: str
    found: Found


def prove(seconds_max: float | None, seed: int = 0, scale: float = 1.0) -> Result:
    """Every world to its end, then every rule removed, alone and in pairs. At a scale below 1 only the worlds that
    are small enough, and that share of the pairs, drawn by ``seed``."""
    began = time.monotonic()
    until = began + (seconds_max if seconds_max is not None else float("inf"))
    failures: list[str] = []
    states, left_out = 0, []
    worlds = {**WORLDS, **(LARGE if scale >= 1 else {})}
    for name, bounds in worlds.items():
        found = explore(Space(bounds), int(1e9), until)
        states += found.states
        if found.fault:
            failures.append(f"{name}: {found.fault} after: {'; '.join(found.trace)}")
        elif not found.complete:
            left_out.append(name)
    kills, survivors = hunted(pairs(seed, scale), until)
    failures += [f"without {' and '.join(sorted(rules))}: not found" for rules in survivors]
    planted = len(kills) + len(survivors)
    note = f"{states:,} states in {len(worlds)} worlds"
    if left_out:
        note += f"; not to the end: {', '.join(left_out)}"
    return Result("model", states, tuple(failures), (len(kills), planted), time.monotonic() - began, note)


def pairs(seed: int, scale: float) -> list[frozenset[str]]:
    """Every rule alone, except those that another guards; and a share of the pairs."""
    alone = [frozenset({rule}) for rule in RULES if rule not in GUARDED]
    both = [frozenset(pair) for pair in itertools.combinations(RULES, 2) if not _guarded_still(pair)]
    both = [pair for pair in both if pair not in SOUND]
    every = max(1, round(1 / scale)) if scale > 0 else len(both)
    return alone + both[seed % every :: every]


def _guarded_still(pair: tuple[str, str]) -> bool:
    """Whether two rules break nothing when removed, alone or together."""
    return all(rule in GUARDED for rule in pair) and not any(
        other in GUARDED[rule] for rule, other in itertools.permutations(pair)
    )


def hunted(mutants: Sequence[frozenset[str]], until: float) -> tuple[list[Kill], list[frozenset[str]]]:
    """How each of these mutants was found, and the mutants that were not."""
    kills: list[Kill] = []
    survivors: list[frozenset[str]] = []
    known: dict[str, Kill] = {}
    for rules in mutants:
        if time.monotonic() > until:
            break
        kill = hunt(rules, [known[rule] for rule in sorted(rules) if rule in known])
        if kill is None:
            survivors.append(rules)
            continue
        kills.append(kill)
        if len(rules) == 1:
            known[next(iter(rules))] = kill
    return kills, survivors


def hunt(rules: frozenset[str], hints: Sequence[Kill] = ()) -> Kill | None:
    """Find what breaks without these rules, first in the history in which one of them alone broke something."""
    for hint in hints:
        found = replay(Space(WORLDS[hint.world], rules), hint.found.trace)
        if found.fault:
            return Kill(rules, hint.world, found)
    homes = [HOMES.get(rule, "two drivers") for rule in sorted(rules)]
    for states_max in _STATES_MAX:
        for world in dict.fromkeys([*homes, *WORLDS]):
            found = explore(Space(WORLDS[world], rules), states_max)
            if found.fault:
                return Kill(rules, world, found)
    return None


def table() -> str:
    """What breaks without each rule, as a list in Markdown; then the pairs."""
    began = time.monotonic()
    alone, both = [[one for one in pairs(0, 1.0) if len(one) == size] for size in (1, 2)]
    kills, survivors = hunted([*alone, *both], float("inf"))
    found = {kill.rules: kill for kill in kills}
    lines, numbers = [], {rule: number for number, rule in enumerate(RULES, 1)}
    for number, (rule, says) in enumerate(RULES.items(), 1):
        kill = found.get(frozenset({rule}))
        if kill is not None:
            lines.append(f"{number}. {says}: {_law(kill.found)}")
        elif rule in GUARDED:
            others = [found[frozenset({rule, other})] for other in GUARDED[rule] if frozenset({rule, other}) in found]
            behind = " and ".join(str(numbers[other]) for other in GUARDED[rule])
            broken = _law(others[0].found) if others else "NOT FOUND"
            lines.append(f"{number}. {says}: backed up by {behind}; without both: {broken}")
        else:
            lines.append(f"{number}. {says}: NOT FOUND")
    pair_count = sum(len(kill.rules) == 2 for kill in kills)
    lines += ["", f"Pairs: {pair_count:,} of {len(both):,} found.", ""]
    lines += [f"- not found: without the rules that {_both(rules)}" for rules in survivors]
    lines += [
        f"- omitted, because sound: without the rules that {_both(rules)} ({why})" for rules, why in SOUND.items()
    ]
    guarded = [frozenset(pair) for pair in itertools.combinations(RULES, 2) if _guarded_still(pair)]
    lines.append(f"- omitted, because a third rule backs up each of the two: {len(guarded)} pairs")
    print(f"{time.monotonic() - began:.0f} seconds", flush=True)
    return "\n".join(lines)


def worlds_table() -> str:
    """The worlds, who starts in each and what fails, and how many states each has, as a list in Markdown."""
    lines = []
    for name, bounds in {**WORLDS, **LARGE}.items():
        found = explore(Space(bounds), int(1e9))
        assert found.complete, f"{name}: {found.fault} after {found.trace}"
        events = [f"{count} {kind}" for kind, count in bounds.starts]
        events += [f"{bounds.crashes} killed"] * bool(bounds.crashes)
        events += [f"{bounds.unknowns} answer lost"] * bool(bounds.unknowns)
        events += [f"{bounds.alive} at once"] * (bounds.alive != 2)
        lines.append(f"- {name} ({', '.join(events)}): {found.states:,} states")
    return "\n".join(lines)


def _both(rules: frozenset[str]) -> str:
    return " and that ".join(RULES[rule] for rule in sorted(rules))


def _law(found: Found) -> str:
    """The fault, without the actor and the operation that showed it."""
    return re.sub(r"^\w+ \d+: (?:[a-z ]+: )*", "", found.fault or "")


def main(arguments: Sequence[str]) -> int:
    """The exit code: 1 if a law does not hold, or a mutant was not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof.model")
    parser.add_argument("--table", action="store_true", help="write the lists into docs/protocol.md")
    parser.add_argument("--scale", type=float, default=1.0)
    options = parser.parse_args(arguments)
    if options.table:
        for begin, end, make in ((WORLDS_BEGIN, WORLDS_END, worlds_table), (BEGIN, END, table)):
            before, _, rest = PAGE.read_text().partition(begin)
            PAGE.write_text(f"{before}{begin}\n{make()}\n{end}{rest.partition(end)[2]}")
        return "NOT FOUND" in PAGE.read_text()
    for name, bounds in {**WORLDS, **LARGE}.items():
        began = time.monotonic()
        found = explore(Space(bounds), int(1e9))
        seconds = time.monotonic() - began
        print(
            f"{name:<26} {found.states:>10,} states {seconds:>7.1f} s  {found.fault or 'every law holds'}", flush=True
        )
    result = prove(None, scale=options.scale)
    print("\n".join(result.failures))
    print(result)
    return not result.passed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
