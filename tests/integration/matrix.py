"""The whole matrix: so many rounds of every cell, and the page that says what they came to.

python -m tests.integration.matrix ROUNDS SEED [PAGE] [PART]

It goes on where it ended: each round is a line of ``build/matrix-SEED.jsonl``. PART: only the cells whose name has it;
the page is written when all cells have their rounds. Several of these may run at once, each with servers of its own.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from tests.integration.cells import CELLS, REPEATS, Tally, page
from tests.integration.rounds import play

BUILD = Path(__file__).parents[2] / "build"


def main(rounds: str, seed: str, out: str = "", chosen: str = "") -> int:
    """How many rounds were wrong."""
    BUILD.mkdir(exist_ok=True)
    notes = BUILD / f"matrix-{seed}.jsonl"
    found, wrong = _noted(notes), 0
    for number in range(int(rounds)):
        for part, fault in CELLS:
            cell = part.name, fault
            if chosen not in f"{part.name}: {fault}" or found.get(cell, (0, Tally()))[0] > number:
                continue
            began = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="matrix-", ignore_cleanup_errors=True) as folder:
                try:
                    tally = play(part, fault, Path(folder), f"{seed} {part.name} {fault} {number}")
                except Exception as error:
                    print(f"{number + 1:3} WRONG {part.name}: {fault}: {error}", flush=True)
                    wrong += 1
                    continue
            with notes.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"cell": cell, **asdict(tally)}) + "\n")
            bad = bool(tally.lost or (tally.duplicates and part.sink not in REPEATS))
            wrong += bad
            said = "WRONG" if bad else "right"
            print(f"{number + 1:3} {said} {part.name}: {fault}: {tally}, {time.monotonic() - began:.1f} s", flush=True)
    found = _noted(notes)
    if out and all(found.get((part.name, fault), (0, None))[0] >= int(rounds) for part, fault in CELLS):
        Path(out).write_text(page(found, int(seed)), encoding="utf-8")
        print(f"written: {out}")
    return wrong


def _noted(notes: Path) -> dict[tuple[str, str], tuple[int, Tally]]:
    """What the rounds so far came to, by cell."""
    found: dict[tuple[str, str], tuple[int, Tally]] = {}
    for line in notes.read_text(encoding="utf-8").splitlines() if notes.exists() else ():
        said = json.loads(line)
        part, fault = said.pop("cell")
        count, tally = found.get((part, fault), (0, Tally()))
        found[part, fault] = count + 1, tally + Tally(**said)
    return found


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
