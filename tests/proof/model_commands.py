"""The commands of the model fold, go back or pin, each after a fence, as in ``persistent.operations``."""

from __future__ import annotations

from collections.abc import Iterator

from tests.proof.model_laws import check_end
from tests.proof.model_moves import Move, Without, ended, missing, new_file, summed, to, written
from tests.proof.model_state import Actor, Bounds, Manifest, Store, manifest_at


def compact(store: Store, actor: Actor, bounds: Bounds, without: Without) -> Iterator[Move]:
    """Fold all runs into one; state, clock, positions and outputs stay."""
    entry = actor.entry
    assert entry is not None
    if len(entry.runs) < 2 or entry.id + 1 > bounds.ids:
        yield ended(store, actor, "has nothing to do")
        return
    if not set(entry.runs) <= store.files:
        yield missing(store, actor, "a run to fold")
        return
    folded = new_file("r", actor, entry, summed(entry.runs), without)
    want = entry._replace(
        id=entry.id + 1,
        kind="compaction",
        base=entry.id + 1 if "base" in without else entry.base,
        author=actor.incarnation,
        parent=(entry.id, entry.author),
        runs=(folded,),
        outputs=() if "compaction copies outputs" in without else entry.outputs,
    )
    yield Move("folds", written(store, folded), to(actor, "put commit", want=want))


def roll_back(store: Store, actor: Actor, bounds: Bounds, without: Without) -> Iterator[Move]:
    """Name the runs of the target again, which is kept; take back later outputs."""
    entry, target = actor.entry, manifest_at(store, actor.target)
    assert entry is not None
    if entry.id + 1 > bounds.ids:
        return
    if target is None or not target.names() <= store.files:
        yield missing(store, actor, f"a file of checkpoint {actor.target}, which is kept,")
        return
    id = entry.id + 1
    want = Manifest(
        id=id,
        kind="rollback",
        base=id,
        oldest=entry.oldest,
        bases=(*entry.bases, id),
        epoch=entry.epoch,
        author=actor.incarnation,
        parent=(entry.id, entry.author),
        position=target.position,
        runs=target.runs,
        index=target.index,
        outputs=tuple(output for output in entry.outputs if output.id <= target.id),
        pins=entry.pins,
        retracts=target.id if "retract" not in without else -1,
        target=target.id,
    )
    yield Move(f"names {target.id}", store, to(actor, "put commit", want=want))


def done(store: Store, actor: Actor, bounds: Bounds, without: Without) -> Iterator[Move]:
    check_end(store, actor)
    yield ended(store, actor, "is done")
