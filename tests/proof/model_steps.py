"""A step of the model is plan, map, commit, check and publish, as in ``persistent.driver.step_effects``."""

from __future__ import annotations

from collections.abc import Iterator

from tests.proof.model_laws import check_effect, check_end
from tests.proof.model_moves import (
    Move,
    Without,
    ended,
    first_move_after,
    is_abandoned,
    missing,
    new_file,
    plans_for,
    retained,
    summed,
    to,
    written,
)
from tests.proof.model_state import Actor, Bounds, Broken, Manifest, Output, Store, newest


def next_step(store: Store, actor: Actor, bounds: Bounds, without: Without) -> Iterator[Move]:
    for label, plan, put in plans_for(store, actor, bounds, without):
        if plan is not None:
            yield Move(label, store, to(actor, "map" if put else "plan", plan=plan, put=put))
        else:
            check_end(store, actor)
            yield ended(store, actor, "is done")


def make_plan(store: Store, actor: Actor, bounds: Bounds, without: Without) -> Iterator[Move]:
    """Write the listing, under a unique name."""
    entry, plan = actor.entry, actor.plan
    assert entry is not None and plan is not None
    if entry.id + 1 > bounds.ids:
        return
    if "plan put" in without:
        yield Move("does not put its plan", store, to(actor, "map", put=True))
        return
    if plan.listed is not None:
        yield Move("has the listing of an earlier plan", store, to(actor, "put plan", want=plan))
        return
    listed = new_file("i", actor, entry, tuple(range(plan.start, plan.end)), without)
    want = plan._replace(author=actor.incarnation, listed=listed)
    yield Move("lists", written(store, listed), to(actor, "put plan", want=want))


def map_step(store: Store, actor: Actor, bounds: Bounds, without: Without) -> Iterator[Move]:
    """Read, sum, fold, and stage: every file under a unique name."""
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
    oldest, bases = retained(entry, id, bounds)
    want = Manifest(
        id=id,
        kind="checkpoint",
        base=id,
        oldest=oldest,
        bases=bases,
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
    """Check before any effect."""
    entry = actor.entry
    assert entry is not None
    if "check" not in without and newest(store).id > entry.id:
        yield ended(store, actor, "finds itself fenced")
        return
    kept, dropped = (*actor.kept, entry), ()
    if entry.kind in ("checkpoint", "rollback"):
        dropped = tuple(one for one in kept if not entry.keeps(one.id))
        kept = tuple(one for one in kept if one not in dropped)
    actor = actor._replace(dropped=dropped)
    if actor.kind != "run":
        yield Move("check", store, to(actor, "done"))
    else:
        yield Move("check", store, first_move_after(actor._replace(kept=kept), "check", without))


def mark(store: Store, actor: Actor, bounds: Bounds, without: Without) -> Iterator[Move]:
    """Put a mark that says which outputs no longer count; it is never deleted."""
    entry = actor.entry
    assert entry is not None
    store = store._replace(marks=store.marks | {(entry.retracts + 1, entry.id)})
    yield Move("marks what is taken back", store, first_move_after(actor, "mark", without))


def sweep(store: Store, actor: Actor, bounds: Bounds, without: Without) -> Iterator[Move]:
    """Delete staged files that will never be published."""
    entry = actor.entry
    assert entry is not None
    live = set() if "unpublished" in without else {output.file for output in entry.outputs}
    victims = {f for f in store.files if f.kind == "o" and f not in live and is_abandoned(f, entry, without)}
    store = store._replace(files=store.files - victims)
    yield Move("sweeps what is staged", store, first_move_after(actor, "sweep", without))


def take_back(store: Store, actor: Actor, bounds: Bounds, without: Without) -> Iterator[Move]:
    entry = actor.entry
    assert entry is not None
    ids = range(entry.retracts + 1, entry.id)
    visible = frozenset(output for output in store.visible if output.id not in ids)
    store = store._replace(visible=visible, lists=store.lists - set(ids))
    yield Move("takes back", store, first_move_after(actor, "take back", without))


def publish(store: Store, actor: Actor, bounds: Bounds, without: Without) -> Iterator[Move]:
    """Read the list of the next output: a listed output is published."""
    output, name = _shown_next(actor, without)
    if output is None:
        yield _published(store, actor, without)
        return
    assert actor.entry is not None and name is not None
    if store.is_marked(name.id) and newest(store).id <= actor.entry.id:
        raise Broken(f"the outputs to publish under {name.id} were taken back, although no other driver has taken over")
    if name.id in store.lists:
        yield Move(f"finds {name.id} published", store, to(actor, actor.at, showing=actor.showing + 1))
    elif "list last" in without:
        listed = store._replace(lists=store.lists | {name.id})
        yield Move(f"lists {name.id} first", listed, _to_part(actor, "get" if bounds.copies else "show"))
    else:
        yield Move(f"finds {name.id} not published", store, _to_part(actor, "get" if bounds.copies else "show"))


def show(store: Store, actor: Actor, bounds: Bounds, without: Without) -> Iterator[Move]:
    """Rename the file to its final name, in one operation; or read it, the first of three operations."""
    output, name = _shown_next(actor, without)
    entry = actor.entry
    assert output is not None and name is not None and entry is not None
    if output.file in store.files:
        if bounds.copies:
            yield Move(f"reads {name.id}", store, _to_part(actor, "drop" if "drop last" in without else "put"))
            return
        check_effect(store, entry, name)
        store = store._replace(files=store.files - {output.file}, visible=store.visible | {name})
        yield Move(f"renames {name.id}", store, _to_part(actor, "list"))
    elif name in store.visible:
        yield Move(f"finds {name.id} there", store, _to_part(actor, "list"))
    elif name.id in store.lists and "list again" not in without:
        yield Move(f"finds {name.id} published meanwhile", store, _to_part(actor, "list"))
    else:
        yield missing(store, actor, f"staged output of {output.id}")


def put_copy(store: Store, actor: Actor, bounds: Bounds, without: Without) -> Iterator[Move]:
    """The second operation: create the file, unless it exists."""
    _, name = _shown_next(actor, without)
    assert name is not None and actor.entry is not None
    check_effect(store, actor.entry, name)
    store = store._replace(visible=store.visible | {name})
    yield Move(f"copies {name.id}", store, _to_part(actor, "list" if "drop last" in without else "drop"))


def drop(store: Store, actor: Actor, bounds: Bounds, without: Without) -> Iterator[Move]:
    """The third operation: delete the copied file."""
    output, _ = _shown_next(actor, without)
    assert output is not None
    store = store._replace(files=store.files - {output.file})
    yield Move(f"drops {output.id}", store, _to_part(actor, "put" if "drop last" in without else "list"))


def put_list(store: Store, actor: Actor, bounds: Bounds, without: Without) -> Iterator[Move]:
    """Put the list of the outputs that are published under an id; it is put once."""
    _, name = _shown_next(actor, without)
    assert name is not None
    store = store._replace(lists=store.lists | {name.id})
    yield Move(f"lists {name.id}", store, to(actor, _whole(actor.at), showing=actor.showing + 1))


def _shown_next(actor: Actor, without: Without) -> tuple[Output | None, Output | None]:
    """The next output to publish, and its name."""
    entry = actor.entry
    assert entry is not None
    if actor.showing >= len(entry.outputs):
        return None, None
    output = entry.outputs[actor.showing]
    return output, Output(entry.id, output.file) if "staging id" in without else output


def _to_part(actor: Actor, part: str) -> Actor:
    """The actor before a part of its publication, in the same mode."""
    return to(actor, f"{_whole(actor.at)}: {part}")


def _whole(at: str) -> str:
    return at.partition(":")[0]


def _published(store: Store, actor: Actor, without: Without) -> Move:
    if actor.at == "publish only":
        return Move("publishes, and ends", store, None)
    return Move("has published", store, first_move_after(actor, "publish", without))


def publish_early(store: Store, actor: Actor, bounds: Bounds, without: Without) -> Iterator[Move]:
    entry = actor.entry
    assert entry is not None
    outputs = {Output(entry.id + 1, file) for file in actor.made if file.kind == "o"}
    lists = store.lists | {output.id for output in outputs}
    early = store._replace(visible=store.visible | outputs, lists=lists)
    yield Move("publishes before its commit", early, to(actor, "commit"))
