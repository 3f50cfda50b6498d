"""The laws must hold in every state of the model, whichever processes crashed, slept or raced.

- one manifest per id, each on top of the one before, in the epoch of the fence below it (I5);
- ids, epochs, bases, oldest and positions never decrease, rollbacks aside (I2);
- a checkpoint sums exactly the messages before its position, each once (I3), and ran the plan of its base;
- every file of a kept or pinned manifest, of the pending plan and of an unpublished output exists;
- an output is visible only if a manifest names it, under the id that staged it, each message once (I6);
- a reader that trusts the lists sees no message twice, nothing that was taken back, and all files of a list or none;
  if a rename is one operation, so does a reader that lists the folder, and files that it takes away do not reappear;
- no committed output is lost: it counts, or the newest manifest still lists it;
- a driver that ends leaves no more manifests than it must.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.proof.model_moves import Without
from tests.proof.model_state import Actor, Bounds, Broken, File, Manifest, Output, Store


def check_commit(store: Store, new: Manifest) -> None:
    """The laws between a manifest about to be put and earlier ones."""
    old = store.chain[-1]
    _require(new.id == len(store.chain), f"manifest {new.id} would leave a gap after {old.id}")
    _require(new.parent == (old.id, old.author), f"manifest {new.id} is not on top of {old.id}")
    fences = ("fence", "pin")
    raised = new.epoch == old.epoch + 1 if new.kind in fences else new.epoch == old.epoch
    _require(raised, f"{new.kind} {new.id} has epoch {new.epoch} after {old.epoch}")
    if new.kind not in fences:
        fence = next((one for one in reversed(store.chain) if one.kind in fences), None)
        _require(fence is not None and fence.author == new.author, f"{new.id} is by a writer that did not fence")
    _require(new.oldest >= old.oldest, f"oldest goes back from {old.oldest} to {new.oldest}")
    own = new.kind in ("checkpoint", "rollback")
    _require(new.base == (new.id if own else old.base), f"{new.kind} {new.id} has base {new.base}")
    if new.kind == "checkpoint":
        _require(new.position >= old.position, "positions go back")
        _check_plan(store, new, old)
    elif new.kind != "rollback":
        _require(new.position == old.position, f"a {new.kind} moves the position")
    _require(set(new.pins) <= set(new.bases), f"{new.kind} {new.id} pins a checkpoint that is not kept")
    _require(new.kind == "pin" or new.pins == old.pins, f"{new.kind} {new.id} loses pins")
    summed = tuple(sorted(message for run in new.runs for message in run.messages))
    _require(summed == tuple(range(new.position)), f"manifest {new.id} at {new.position} sums {summed}")
    listed = {message for run in new.index for message in run.messages}
    _require(listed == set(range(new.position)), f"the index of {new.id} lists {sorted(listed)}")


def _check_plan(store: Store, new: Manifest, old: Manifest) -> None:
    planned = [plan for plan in store.planned if (plan.base, plan.number) == (old.base, old.replan)]
    _require(planned == [new.plan], f"checkpoint {new.id} did not run the plan of {old.base}")


def check_effect(store: Store, entry: Manifest, output: Output) -> None:
    """An output about to be shown must be named by a manifest that is in the log."""
    _require(entry in store.chain, f"an effect of manifest {entry.id}, which is not in the log")
    _require(output in entry.outputs, f"shown under {output.id}, staged under another id")


def check_end(store: Store, actor: Actor) -> None:
    """A command that ends normally has done its work; a driver leaves no unpublished outputs, and no fence below
    another fence."""
    last = store.chain[-1]
    _require(actor.entry in store.chain, "ends normally, but its last put is not in the log")
    if actor.entry == last and actor.kind in ("run", "collect"):
        # Manifests that were kept when it took over are deleted with its next full collection.
        fence = next((one for one in reversed(store.chain) if one.kind == "fence"), last)
        left = {id for id in store.here if not last.keeps(id) and not fence.keeps(id)}
        _require(not left, f"fences {sorted(left)} are never collected")
    if actor.entry == last and actor.kind == "run":
        _require(set(last.outputs) <= counted(store) | store.taken, "a driver has ended without publishing")


def check_store(store: Store, bounds: Bounds, without: Without = frozenset()) -> None:
    """The laws of a state."""
    last = store.chain[-1]
    for one in store.chain:
        if one.id in last.bases or one is last:
            _require(one.id in store.here, f"manifest {one.id} is kept, but gone")
            gone = one.names() - store.files
            _require(not gone, f"manifest {one.id} is kept, but its {_shown(gone)} are gone")
    for plan in store.plans:
        if (plan.base, plan.number) == (last.base, last.replan) and plan.listed is not None:
            _require(plan.listed in store.files, f"the plan of {plan.base} is pending, but its listing is gone")
    for output in last.outputs:
        there = output in store.visible | store.taken or output.file in store.files
        _require(there, f"an output of {output.id} is neither staged nor visible")
    _check_visible(store, last)
    _check_counted(store, last, store.visible if "readers" in without and bounds.copies else counted(store))
    if not bounds.copies:
        _require(not store.visible & store.taken, "an output that a reader took away is visible again")
        _check_counted(store, last, store.visible)


def counted(store: Store) -> frozenset[Output]:
    """The outputs that a reader sees if it trusts only the lists."""
    return frozenset(one for one in store.visible if one.id in store.lists and not store.is_marked(one.id))


def _check_visible(store: Store, last: Manifest) -> None:
    """Visible outputs were committed, committed outputs are not lost, and listed outputs exist."""
    named = {output for one in store.chain for output in one.outputs if one.kind == "checkpoint"}
    _require(store.visible <= named, "an output is visible that no manifest names")
    lineage = _lineage(store)
    owed = {output for one in store.chain if one.id in lineage and one.kind == "checkpoint" for output in one.outputs}
    lost = owed - counted(store) - store.taken - set(last.outputs)
    _require(not lost, f"outputs of {sorted(output.id for output in lost)} are lost")
    listed = {one for one in owed if one.id in store.lists and not store.is_marked(one.id)}
    gone = listed - store.visible - store.taken
    _require(not gone, f"outputs of {sorted(output.id for output in gone)} are listed, but missing")


def _check_counted(store: Store, last: Manifest, seen: Iterable[Output]) -> None:
    """A reader sees only outputs of the newest manifest's past, each message once."""
    if last.retracts >= 0:
        # Rolled-back outputs may be visible until they have been taken back.
        shown = {output for output in seen if not last.retracts < output.id < last.id}
    else:
        shown = set(seen)
    stale = {output.id for output in shown} - _lineage(store)
    _require(not stale, f"outputs of {sorted(stale)}, which was rolled back, are visible")
    messages = sorted(message for output in shown for message in output.file.messages)
    _require(len(messages) == len(set(messages)), f"visible more than once: {messages}")


def _lineage(store: Store) -> set[int]:
    """The ids in the newest manifest's past, without those that were rolled back."""
    found, at = set(), len(store.chain) - 1
    while at >= 0:
        found.add(at)
        one = store.chain[at]
        at = one.target if one.kind == "rollback" else at - 1
    return found


def _shown(files: set[File]) -> str:
    return ", ".join(sorted(f"{file.kind} e{file.epoch}-c{file.id}" for file in files))


def _require(holds: bool, fault: str) -> None:
    if not holds:
        raise Broken(fault)
