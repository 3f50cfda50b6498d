"""A move is one atomic step of an actor: its effect on the store, and on the actor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from persistent.driver.step import EFFECTS, TAKING_OVER
from tests.proof.model_state import Actor, Bounds, Broken, File, Manifest, Plan, Store, manifest_at, newest, plan_at

Without = frozenset[str]
"""The rules that are removed."""


class Move(NamedTuple):
    """One event; ``actor`` None: it has ended. ``unknowns``: the number of answers that it loses."""

    label: str
    store: Store
    actor: Actor | None
    unknowns: int = 0


def ended(store: Store, actor: Actor, why: str) -> Move:
    return Move(f"{actor.at} and {why}", store, None)


def to(actor: Actor, at: str, **changes: object) -> Actor:
    return actor._replace(at=at, **changes)


def missing(store: Store, actor: Actor, what: str) -> Move:
    """A file is missing: the log is listed again, and a driver that was not overtaken reports damage."""
    assert actor.entry is not None
    if newest(store).id > actor.entry.id:
        return ended(store, actor, "finds itself fenced")
    raise Broken(f"{what} is missing, although no other driver has taken over")


def kept_by(entry: Manifest, store: Store) -> list[Manifest]:
    found = [manifest_at(store, id) for id in entry.bases if id < entry.id]
    return [*(one for one in found if one is not None), entry]


def retained(entry: Manifest, id: int, bounds: Bounds) -> tuple[int, tuple[int, ...]]:
    """The oldest, and all ids, that are kept once ``id`` is committed."""
    bases = (*entry.bases, id)
    oldest = max(entry.oldest, sorted(bases)[-bounds.kept :][0])
    return oldest, tuple(base for base in bases if base >= oldest or base in entry.pins)


def first_move_after(actor: Actor, effect: str, without: Without) -> Actor:
    """The actor before the effect that follows this one, in the driver's own order."""
    assert actor.entry is not None
    order = [one.value for one in (TAKING_OVER if takes_over(actor) else EFFECTS)]
    if "publish before collect" in without:
        publish, collect = order.index("publish"), order.index("collect")
        order[publish], order[collect] = order[collect], order[publish]
    left_out = {
        "mark": actor.entry.retracts < 0 or "mark" in without,
        "take back": actor.entry.retracts < 0,
        "sweep": "sweep before retract" in without,
        "publish": "publish in time" in without and not takes_over(actor),
    }
    following = [one for one in order[order.index(effect) + 1 :] if not left_out.get(one)]
    if not following:
        return finished(actor)
    first = following[0]
    return to(actor, "pending" if first == "collect" and takes_over(actor) else first, showing=0)


def new_file(
    kind: str, actor: Actor, entry: Manifest, messages: tuple[int, ...], without: Without, number: int = 0
) -> File:
    if "names" in without:
        return File(kind, 0, entry.id + 1, -1, messages, number)
    return File(kind, entry.epoch, entry.id + 1, actor.incarnation, messages, number)


def written(store: Store, *files: File) -> Store:
    """The store after these files are written; a file with the same name and other content is overwritten."""
    lost = {
        old
        for old in store.files
        for new in files
        if old != new and old._replace(messages=()) == new._replace(messages=())
    }
    return store._replace(files=(store.files - lost) | set(files))


def summed(runs: tuple[File, ...]) -> tuple[int, ...]:
    return tuple(sorted(message for run in runs for message in run.messages))


def loop(actor: Actor, entry: Manifest, kept: tuple[Manifest, ...]) -> Actor:
    fits = actor.plan is not None and (actor.plan.base, actor.plan.number) == (entry.base, entry.replan)
    at = "next" if not fits else "map" if actor.put else "plan"
    changes = {} if fits else {"plan": None, "put": False}
    return to(actor, at, entry=entry, kept=kept, made=(), want=None, victims=frozenset(), **changes)


def takes_over(actor: Actor) -> bool:
    """Whether it has committed only its fence."""
    entry = actor.entry
    assert entry is not None
    return entry.kind == "fence" or entry.author != actor.incarnation


def finished(actor: Actor) -> Actor:
    assert actor.entry is not None
    if actor.kind == "run":
        return loop(actor, actor.entry, actor.kept)
    return to(actor, "done")


def is_abandoned(file: File, entry: Manifest, without: Without) -> bool:
    if "epoch of garbage" in without and "id of garbage" in without:
        return True
    if "epoch of garbage" in without:
        return file.id <= entry.id
    if "id of garbage" in without:
        return file.epoch <= entry.epoch
    return file.epoch < entry.epoch or (file.epoch == entry.epoch and file.id <= entry.id)


def plans_for(store: Store, actor: Actor, bounds: Bounds, without: Without) -> Iterator[tuple[str, Plan | None, bool]]:
    """The plan of the next step: the one in the log, otherwise a new one of any width; None if no work is left."""
    entry = actor.entry
    assert entry is not None
    # After a checkpoint of its own it does not look: the put of its plan finds another driver's plan.
    looks = "plan ignored" not in without and (entry.kind != "checkpoint" or entry.author != actor.incarnation)
    found = plan_at(store, entry.base, entry.replan) if looks else None
    if found is not None:
        if found.start != entry.position:
            raise Broken(f"the plan of {found.base} starts at {found.start}, but the checkpoint is at {entry.position}")
        yield f"plan {found.author} found", found, True
        return
    earlier = plan_at(store, entry.base, entry.replan - 1) if looks and entry.replan else None
    if earlier is not None:
        again = earlier._replace(number=entry.replan, author=actor.incarnation)
        yield f"plan {earlier.number} again", again, False
    ends = {min(bounds.messages, entry.position + width) for width in bounds.widths} - {entry.position}
    if not ends:
        yield "nothing to plan", None, False
    for end in sorted(ends):
        yield f"plan to {end}", Plan(entry.base, entry.replan, actor.incarnation, entry.position, end, None), False
