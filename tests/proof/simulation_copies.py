"""Senders that send again: what a seed draws of them, for a simulated job that recognises copies.

By numbers, with gaps and a sender that begins again under another epoch; by numbers, where a copy has a time of its
own; or by ids. Copies come at once, in another split, in a later step, and after their original is forgotten.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from persistent import Dedupe
from tests.proof.simulation_twin import Copies


def drawn_copies(drawn: random.Random) -> Copies | None:
    """How the job of a seed recognises copies; None for most jobs."""
    if drawn.random() > 0.4:
        return None
    within = drawn.choice((8, 20, 60))
    return drawn.choice(
        (
            Copies(Dedupe(origin="origin", sequence="number", epoch="epoch", within=within)),
            Copies(Dedupe(origin=("origin", "epoch"), sequence="number", within=within, restamped=True)),
            Copies(Dedupe.by_id("uid", within=within)),
        )
    )


def sent_again(rows: Sequence[dict[str, Any]], copies: Copies, drawn: random.Random) -> list[dict[str, Any]]:
    """The rows with the names that their senders give them, and some of them once more. Each has an "id" of its own,
    which only the judge of the simulation looks at."""
    epochs, numbers = {"a": 0, "b": 0}, {"a": 0, "b": 0}
    sent: list[dict[str, Any]] = []
    for row in rows:
        origin = drawn.choice("ab")
        if drawn.random() < 0.05:
            epochs[origin], numbers[origin] = epochs[origin] + 1, 0
        numbers[origin] += drawn.choice((1, 1, 1, 2, 5))
        named = {"origin": origin, "epoch": epochs[origin], "number": numbers[origin]}
        uid = None if sent and drawn.random() < 0.05 else "-".join(map(str, named.values()))
        sent.append({**row, **named, "origin": None if uid is None else origin, "uid": uid})
    for original in drawn.sample(sent, len(sent) // 2):
        at = sent.index(original) + drawn.choice((1, 1, 2, 5, 12, 30))
        later = drawn.choice((0, 0, 2, 9)) if copies.dedupe.restamped and original["ts"] >= 0 else 0
        sent.insert(at, {**original, "id": 1_000 + len(sent), "ts": original["ts"] + later})
    return sent
