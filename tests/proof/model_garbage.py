"""Garbage in the model: the moves that read the pending plan, list, choose and delete, as in
``persistent.driver.publish``."""

from __future__ import annotations

from collections.abc import Iterator

from tests.proof.model_moves import Move, Without, finished, first_move_after, is_abandoned, takes_over, to
from tests.proof.model_state import Actor, Bounds, Manifest, Store, plan_at


def pending(store: Store, actor: Actor, bounds: Bounds, without: Without) -> Iterator[Move]:
    """Read the pending plan, before listing the files to delete."""
    entry = actor.entry
    assert entry is not None
    plan = plan_at(store, entry.base, entry.replan)
    yield Move("reads the pending plan", store, to(actor, "collect", want=plan))


def collect(store: Store, actor: Actor, bounds: Bounds, without: Without) -> Iterator[Move]:
    """List, and choose files to delete; in most steps only those of manifests that are no longer kept."""
    entry, pending = actor.entry, actor.want
    assert entry is not None and not isinstance(pending, Manifest)
    kept = (entry,) if "kept" in without else actor.kept
    in_step = actor.kind == "run" and not takes_over(actor)
    if "pins" in without:
        kept = tuple(one for one in kept if one.id >= entry.oldest or one is entry)
    live = {name for one in kept for name in one.names()}
    if "unpublished" not in without:
        live |= {output.file for output in entry.outputs}
    if pending is not None and pending.listed is not None and "pending plan" not in without:
        live.add(pending.listed)
    settled = entry.kind in ("checkpoint", "rollback") or pending is not None or "settled" in without
    if in_step:
        named = {name for one in actor.dropped for name in one.names()} - live
        victims = frozenset(file for file in named if is_abandoned(file, entry, without))
        yield Move("deletes what it drops", store, to(actor, "delete dropped", victims=victims, want=None))
        if not bounds.sweeps:
            return
    victims = frozenset(
        file
        for file in store.files
        if file not in live and (settled or file.kind != "i") and is_abandoned(file, entry, without)
    )
    yield Move("lists what to delete", store, to(actor, "delete", victims=victims, want=None))


def delete(store: Store, actor: Actor, bounds: Bounds, without: Without) -> Iterator[Move]:
    entry = actor.entry
    assert entry is not None

    def kept(id: int) -> bool:
        if "fences go" in without and id >= entry.oldest:
            return True
        if "pins" in without and id < entry.oldest:
            return False
        if "bases" in without:
            return id in (entry.parent[0], entry.base) or id >= entry.id
        return entry.keeps(id)

    store = _tidied(store, without)._replace(
        files=store.files - actor.victims,
        here=frozenset(id for id in store.here if kept(id)),
        strays=tuple(stray for stray in store.strays if kept(stray.id)),
        plans=frozenset(plan for plan in store.plans if plan.base >= entry.oldest or plan.base >= entry.id),
    )
    yield Move("deletes", store, _collected(actor, without))


def _tidied(store: Store, without: Without) -> Store:
    """Delete what was published after it was taken back; marks stay for good."""
    visible = frozenset(one for one in store.visible if "tidy" in without or not store.is_marked(one.id))
    marks = frozenset() if "marks stay" in without else store.marks
    return store._replace(visible=visible, marks=marks)


def delete_dropped(store: Store, actor: Actor, bounds: Bounds, without: Without) -> Iterator[Move]:
    entry, dropped = actor.entry, actor.dropped
    assert entry is not None
    ids = {one.id for one in dropped}
    plans = {(one.base, n) for one in dropped if one.base < entry.oldest for n in range(one.replan + 1)}
    store = store._replace(
        files=store.files - actor.victims,
        here=store.here - ids,
        strays=tuple(stray for stray in store.strays if stray.id not in ids),
        plans=frozenset(plan for plan in store.plans if plan[:2] not in plans),
    )
    yield Move("deletes", store, _collected(actor, without))


def _collected(actor: Actor, without: Without) -> Actor:
    actor = actor._replace(victims=frozenset(), dropped=())
    return first_move_after(actor, "collect", without) if actor.kind == "run" else finished(actor)
