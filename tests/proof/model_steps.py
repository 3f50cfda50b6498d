"""A step of the model is plan, map, commit, check and publish, as in ``persistent.driver``."""

from __future__ import annotations

from collections.abc import Iterator

from tests.proof.model_laws import check_effect, check_end
from tests.proof.model_moves import (
    Move,
    Without,
    ended,
    finished,
    is_abandoned,
    missing,
    new_file,
    oldest_of,
    plans_for,
    summed,
    takes_over,
    to,
    written,
)
from tests.proof.model_state import Actor, Bounds, Manifest, Output, Store, newest


def next_step(store: Store, actor: Actor, bounds: Bounds, without: Without) -> Iterator[Move]:
    for label, plan, put in plans_for(store, actor, bounds, without):
        if plan is not None:
            yield Move(label, store, to(actor, "map" if put else "plan", plan=plan, put=put))
        else:
            check_end(store, actor)
            yield ended(store, actor, "has come to the end")


def make_plan(store: Store, actor: Actor, bounds: Bounds, without: Without) -> Iterator[Move]:
    """Write what was listed, under a name of its own."""
    entry, plan = actor.entry, actor.plan
    assert entry is not None and plan is not None
    if entry.id + 1 > bounds.ids:
        return
    if "plan put" in without:
        yield Move("does not put its plan", store, to(actor, "map", put=True))
        return
    listed = new_file("i", actor, entry, tuple(range(plan.start, plan.end)), without)
    want = plan._replace(author=actor.incarnation, listed=listed)
    yield Move("lists", written(store, listed), to(actor, "put plan", want=want))


def map_step(store: Store, actor: Actor, bounds: Bounds, without: Without) -> Iterator[Move]:
    """Read, sum, fold, and stage: every file under a name of its own."""
    entry, plan = actor.entry, actor.plan
    assert entry is not None and plan is not None
    if entry.id + 1 > bounds.ids:
        return
    if not set(entry.runs) <= store.files:
        yield missing(store, actor, "a run to fold")
        return
    read = tuple(range(plan.start, plan.end))
    made = [new_file("r", actor, entry, read, without), new_file("o", actor, entry, read, without)]
    if "attempts" in without:
        made.append(new_file("r", actor, entry, read, without, number=1))
    if len(entry.runs) > 1:
        made.append(new_file("r", actor, entry, summed(entry.runs), without, number=2))
    store = written(store, *made)
    at = "publish early" if "publish after commit" in without else "commit"
    yield Move("maps", store, to(actor, at, made=tuple(made)))


def commit_step(store: Store, actor: Actor, bounds: Bounds, without: Without) -> Iterator[Move]:
    entry, plan = actor.entry, actor.plan
    assert entry is not None and plan is not None
    id = entry.id + 1
    made = [file for file in actor.made if file.kind == "r"]
    folded = len(entry.runs) > 1
    runs = (made[-1], *made[:-1]) if folded else (*entry.runs, *made)
    checkpoints = [one.id for one in actor.kept if one.base == one.id] + [id]
    want = Manifest(
        id=id,
        kind="checkpoint",
        base=id,
        oldest=oldest_of(checkpoints, entry, bounds),
        epoch=entry.epoch,
        author=actor.incarnation,
        parent=(entry.id, entry.author),
        position=plan.end,
        runs=runs,
        index=(*entry.index, plan.listed) if plan.listed else entry.index,
        outputs=tuple(Output(id, file) for file in actor.made if file.kind == "o"),
        pins=() if "pins copied" in without else entry.pins,
        plan=plan,
    )
    yield Move(f"commits {id}", store, to(actor, "put commit", want=want))


def check(store: Store, actor: Actor, bounds: Bounds, without: Without) -> Iterator[Move]:
    """No effect without it."""
    entry = actor.entry
    assert entry is not None
    if "check" not in without and newest(store).id > entry.id:
        yield ended(store, actor, "finds itself fenced")
        return
    kept, dropped = (*actor.kept, entry), ()
    if entry.kind in ("checkpoint", "rollback"):
        dropped = tuple(one for one in kept if not (one.id >= entry.oldest or one.id in entry.pins))
        kept = tuple(one for one in kept if one not in dropped)
    actor = actor._replace(dropped=dropped)
    if actor.kind != "run":
        yield Move("check", store, to(actor, "done"))
    elif "publish in time" in without:
        yield Move("check, publishes later", store, to(actor, "collect", kept=kept))
    elif "publish before collect" in without:
        yield Move("check, collects first", store, to(actor, "collect", kept=kept))
    else:
        yield Move("check", store, to(actor, "publish", kept=kept))


def publish(store: Store, actor: Actor, bounds: Bounds, without: Without) -> Iterator[Move]:
    """One output after the other; what was rolled back is first swept, then taken back."""
    entry = actor.entry
    assert entry is not None
    only = actor.at == "publish only"
    if entry.retracts >= 0:
        if "sweep before retract" not in without:
            live = {output.file for output in entry.outputs}
            victims = {f for f in store.files if f.kind == "o" and f not in live and is_abandoned(f, entry, without)}
            store = store._replace(files=store.files - victims)
        at = "retract only" if only else "retract"
        yield Move("sweeps what was rolled back", store, to(actor, at))
        return
    yield from _publish_outputs(store, actor, bounds, without)


def retract(store: Store, actor: Actor, bounds: Bounds, without: Without) -> Iterator[Move]:
    entry = actor.entry
    assert entry is not None
    shown = frozenset(output for output in store.visible if not entry.retracts < output.id < entry.base)
    yield from _publish_outputs(store._replace(visible=shown), actor, bounds, without)


def _publish_outputs(store: Store, actor: Actor, bounds: Bounds, without: Without) -> Iterator[Move]:
    entry = actor.entry
    assert entry is not None
    for output in entry.outputs:
        name = Output(entry.id, output.file) if "staging id" in without else output
        if name in store.visible:
            continue
        if output.file not in store.files:
            yield missing(store, actor, f"staged output of {output.id}")
            return
        check_effect(store, entry, name)
        store = store._replace(files=store.files - {output.file}, visible=store.visible | {name})
    if actor.at.endswith("only"):
        yield Move("publishes, and ends", store, None)
    elif takes_over(actor):
        yield Move("publishes", store, to(actor, "pending"))
    elif "publish before collect" in without:
        yield Move("publishes", store, finished(actor))
    else:
        yield Move("publishes", store, to(actor, "collect"))


def publish_early(store: Store, actor: Actor, bounds: Bounds, without: Without) -> Iterator[Move]:
    entry = actor.entry
    assert entry is not None
    outputs = {Output(entry.id + 1, file) for file in actor.made if file.kind == "o"}
    yield Move("publishes before its commit", store._replace(visible=store.visible | outputs), to(actor, "commit"))
