"""Entering is looking and putting a fence; the moves of every put-if-absent are here too."""

from __future__ import annotations

from collections.abc import Iterator

from tests.proof.model_laws import check_commit
from tests.proof.model_moves import Move, Without, ended, first_move_after, kept_by, loop, plans_for, to
from tests.proof.model_state import Actor, Bounds, Broken, Manifest, Plan, Store, found_at, newest, plan_at


def look(store: Store, actor: Actor, bounds: Bounds, without: Without) -> Iterator[Move]:
    entry = newest(store)
    if actor.kind == "run":
        yield Move(f"look finds {entry.id}", store, to(actor, "look for plan", entry=entry))
    else:
        for target in _targets(entry, store, actor.kind):
            shown = f" for {target}" if target >= 0 else ""
            yield Move(f"look finds {entry.id}{shown}", store, to(actor, "fence", entry=entry, target=target))


def _targets(entry: Manifest, store: Store, kind: str) -> list[int]:
    """The possible targets of a rollback or pin."""
    if kind not in ("rollback", "pin"):
        return [-1]
    kept = [one.id for one in kept_by(entry, store) if one.id in entry.bases]
    return kept if kind == "rollback" else kept[:1]


def look_for_plan(store: Store, actor: Actor, bounds: Bounds, without: Without) -> Iterator[Move]:
    for label, plan, put in plans_for(store, actor, bounds, without):
        if plan is not None:
            yield Move(f"look: {label}", store, to(actor, "fence", plan=plan, put=put))
        elif actor.entry.retracts >= 0:  # type: ignore[union-attr]
            yield Move(f"look: {label}, but outputs to take back", store, to(actor, "fence"))
        elif actor.entry.outputs:  # type: ignore[union-attr]
            yield Move(f"look: {label}", store, to(actor, "publish only"))
        else:
            yield ended(store, actor, "has nothing to do")


def fence(store: Store, actor: Actor, bounds: Bounds, without: Without) -> Iterator[Move]:
    old = actor.entry
    assert old is not None
    if "fence" in without:
        yield Move("continues without a fence", store, _entered(actor, _kept_now(old, store), without))
        return
    pins = old.pins
    if actor.kind == "pin" and "pin unchecked" not in without and actor.target not in (*pins, *old.bases):
        yield ended(store, actor, "refuses: no such checkpoint")
        return
    if actor.kind == "pin":
        pins = tuple(sorted({*pins, actor.target})) if actor.target not in pins else ()
    there = bounds.replan and actor.kind == "run" and plan_at(store, old.base, old.replan) is not None
    # Corrected options replace a plan at any fence, a step that was begun too often at a late one.
    keeps = [] if there and old.fences >= bounds.replan else [old.replan]
    for replan in [*keeps, old.replan + 1] if there else keeps:
        yield from _put_fence(store, actor, bounds, without, replan=replan, pins=pins)


def _put_fence(
    store: Store, actor: Actor, bounds: Bounds, without: Without, *, replan: int, pins: tuple[int, ...]
) -> Iterator[Move]:
    old = actor.entry
    assert old is not None
    want = old._replace(
        id=old.id + 1,
        kind="pin" if actor.kind == "pin" else "fence",
        epoch=old.epoch + ("epoch" not in without),
        author=actor.incarnation,
        parent=(old.id, old.author),
        fences=old.fences + 1 if bounds.replan and replan == old.replan else min(1, bounds.replan),
        replan=replan,
        pins=() if "pins copied" in without and actor.kind != "pin" else pins,
        outputs=() if "fence copies outputs" in without else old.outputs,
        retracts=-1 if "fence copies retract" in without else old.retracts,
        oldest=0 if "oldest" in without else old.oldest,
    )
    if want.id <= bounds.ids:
        plans = f" for plan {replan}" if replan != old.replan else ""
        yield Move(f"fences {want.id}{plans}", store, to(actor, "put fence", want=want))


def _kept_now(entry: Manifest, store: Store) -> tuple[Manifest, ...]:
    return tuple(kept_by(entry, store))


def _entered(actor: Actor, kept: tuple[Manifest, ...], without: Without) -> Actor:
    actor = actor._replace(kept=kept)
    return first_move_after(actor, "check", without) if actor.kind == "run" else to(actor, _COMMANDS[actor.kind])


_COMMANDS = {"compact": "compact", "rollback": "roll back", "pin": "done", "collect": "pending"}


def fence_won(store: Store, actor: Actor, bounds: Bounds, without: Without) -> Iterator[Move]:
    """Check, and read the kept manifests."""
    entry = actor.entry
    assert entry is not None
    if "fence check" not in without and newest(store).id > entry.id:
        yield ended(store, actor, "finds itself fenced")
        return
    yield Move("is the driver", store, _entered(actor, _kept_now(entry, store), without))


def fence_lost(store: Store, actor: Actor, bounds: Bounds, without: Without) -> Iterator[Move]:
    entry = newest(store)
    assert actor.entry is not None
    if entry.epoch > actor.entry.epoch:
        yield ended(store, actor, "is fenced by another")
        return
    if actor.kind == "rollback" and "target unchecked" not in without and actor.target not in entry.bases:
        yield ended(store, actor, "refuses: no such checkpoint")
        return
    yield Move(f"fences again, above {entry.id}", store, to(actor, "fence", entry=entry, want=None))


def put(store: Store, actor: Actor, bounds: Bounds, without: Without) -> Iterator[Move]:
    """The request and its answer. ``unknowns`` are counted by the search."""
    want, goal = actor.want, actor.at.removeprefix("put ")
    assert want is not None
    there = found_at(store, want) is not None
    back = to(actor, f"read back {goal}")
    after = store if there else _put_down(store, want, actor, bounds, without)
    if there and "if absent" in without and isinstance(want, Plan):
        others = frozenset(plan for plan in store.plans if plan[:2] != want[:2])
        yield Move(f"overwrites {goal}", store._replace(plans=others | {want}), _won(actor, goal))
        return
    if there:
        yield Move(f"put {goal} lost", store, back)
    else:
        yield Move(f"put {goal} won", after, _won(actor, goal))
    if "unknown" in without:
        back = _won(actor, goal)
    if not there:
        yield Move(f"put {goal} done, answer lost", after, back, 1)
    yield Move(f"put {goal} not done, answer lost", store, back, 1)
    if not there:
        yield Move(f"put {goal} delayed", store._replace(flight=store.flight | {want}), back, 1)


def read_back(store: Store, actor: Actor, bounds: Bounds, without: Without) -> Iterator[Move]:
    want, goal = actor.want, actor.at.removeprefix("read back ")
    assert want is not None
    found = found_at(store, want)
    if found == want or (found is not None and "nonce" in without):
        yield Move(f"reads back its {goal}", store, _won(actor, goal))
    elif found is None:
        again = _won(actor, goal) if "absent" in without else to(actor, f"put {goal}")
        yield Move(f"reads back no {goal}", store, again)
    elif isinstance(found, Plan):
        if "own plan" in without:
            yield Move("keeps to its own plan", store, _won(actor, goal))
            return
        if found.start != actor.entry.position:  # type: ignore[union-attr]
            raise Broken(f"the plan of {found.base} starts elsewhere")
        yield Move(f"reads back plan {found.author}", store, to(actor, "map", plan=found, put=True, want=None))
    elif goal == "fence":
        yield Move("reads back another fence", store, to(actor, "fence lost"))
    elif "stop" in without and goal == "commit":
        entry = newest(store)
        yield Move("reloads and continues", store, loop(actor, entry, _kept_now(entry, store)))
    else:
        yield ended(store, actor, "is fenced by another")


def _won(actor: Actor, goal: str) -> Actor:
    if goal == "plan":
        assert isinstance(actor.want, Plan)
        return to(actor, "map", plan=actor.want, put=True, want=None)
    assert isinstance(actor.want, Manifest)
    if goal == "fence":
        return to(actor, "fence won", entry=actor.want, want=None)
    return to(actor, "check", entry=actor.want, want=None, made=(), plan=None, put=False)


def _put_down(store: Store, want: Manifest | Plan, actor: Actor | None, bounds: Bounds, without: Without) -> Store:
    """The effect of a put whose name is free."""
    if isinstance(want, Plan):
        first = not any(plan[:2] == want[:2] for plan in store.planned)
        planned = store.planned | {want} if first else store.planned
        return store._replace(plans=store.plans | {want}, planned=planned)
    if want.id < len(store.chain):
        strays = (*(stray for stray in store.strays if stray.id != want.id), want)
        return store._replace(strays=tuple(sorted(strays)))
    check_commit(store, want)
    return store._replace(chain=(*store.chain, want), here=store.here | {want.id})


def land(store: Store, bounds: Bounds, without: Without) -> Iterator[tuple[str, Store]]:
    """A delayed request takes effect, or is dropped."""
    for want in store.flight:
        left = store._replace(flight=store.flight - {want})
        if found_at(store, want) is None:
            yield f"a request of {want.author} arrives", _put_down(left, want, None, bounds, without)
        yield f"a request of {want.author} is lost", left
