"""The laws are what must hold in every state of the model, whoever crashed, slept or raced.

- one manifest per id, each on top of the one before, in the epoch of the fence below it (I5);
- ids, epochs, bases, oldest and positions never decrease, rollbacks aside (I2);
- a checkpoint sums exactly the messages before its position, each once (I3), and ran the plan of its base;
- every file of a kept or pinned manifest, of the pending plan and of an unpublished output is there;
- an output is visible only if a manifest names it, under the id that staged it, each message once (I6);
- nothing that was committed is lost on its way: it is visible, or the newest manifest still lists it.
"""

from __future__ import annotations

from tests.proof.model_state import Actor, Broken, File, Manifest, Output, Store


def check_commit(store: Store, new: Manifest) -> None:
    """The laws between a manifest about to be put and those before it."""
    old = store.chain[-1]
    _require(new.id == len(store.chain), f"manifest {new.id} would leave a gap after {old.id}")
    _require(new.parent == (old.id, old.author), f"manifest {new.id} is not on top of {old.id}")
    fences = ("fence", "pin")
    raised = new.epoch == old.epoch + 1 if new.kind in fences else new.epoch == old.epoch
    _require(raised, f"{new.kind} {new.id} has epoch {new.epoch} after {old.epoch}")
    if new.kind not in fences:
        fence = next((one for one in reversed(store.chain) if one.kind in fences), None)
        _require(fence is not None and fence.author == new.author, f"{new.id} is by one who did not fence")
    _require(new.oldest >= old.oldest, f"oldest goes back from {old.oldest} to {new.oldest}")
    own = new.kind in ("checkpoint", "rollback")
    _require(new.base == (new.id if own else old.base), f"{new.kind} {new.id} has base {new.base}")
    if new.kind == "checkpoint":
        _require(new.position >= old.position, "positions go back")
        _check_plan(store, new, old)
    elif new.kind != "rollback":
        _require(new.position == old.position, f"a {new.kind} moves the position")
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
    """A command that ends in peace has done what it says; a driver leaves nothing to be published."""
    last = store.chain[-1]
    _require(actor.entry in store.chain, "ends in peace, and what it has put is not in the log")
    if actor.entry == last and actor.kind == "run":
        _require(set(last.outputs) <= store.visible, "a driver has ended without publishing")


def check_store(store: Store) -> None:
    """The laws of a state."""
    last = store.chain[-1]
    kept = [one for one in store.chain if one.id >= last.oldest or one.id in last.pins]
    for one in kept:
        _require(one.id in store.here, f"manifest {one.id} is kept, and gone")
        gone = one.names() - store.files
        _require(not gone, f"manifest {one.id} is kept, its {_shown(gone)} gone")
    for plan in store.plans:
        if (plan.base, plan.number) == (last.base, last.replan) and plan.listed is not None:
            _require(plan.listed in store.files, f"the plan of {plan.base} is pending, its listing gone")
    for output in last.outputs:
        there = output in store.visible or output.file in store.files
        _require(there, f"an output of {output.id} is neither staged nor visible")
    _check_visible(store, last)


def _check_visible(store: Store, last: Manifest) -> None:
    lineage = _lineage(store)
    named = {output for one in store.chain for output in one.outputs if one.kind == "checkpoint"}
    _require(store.visible <= named, "an output is visible that no manifest names")
    if last.retracts >= 0:
        # What was rolled back may be seen until it has been taken back.
        shown = {output for output in store.visible if not last.retracts < output.id < last.base}
    else:
        shown = set(store.visible)
    stale = {output.id for output in shown} - lineage
    _require(not stale, f"outputs of {sorted(stale)}, which was rolled back, are visible")
    messages = sorted(message for output in shown for message in output.file.messages)
    _require(len(messages) == len(set(messages)), f"visible more than once: {messages}")
    owed = {output for one in store.chain if one.id in lineage and one.kind == "checkpoint" for output in one.outputs}
    lost = owed - store.visible - set(last.outputs)
    _require(not lost, f"outputs of {sorted(output.id for output in lost)} are lost")


def _lineage(store: Store) -> set[int]:
    """The ids that the newest manifest goes back to: those that were rolled back are left out."""
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
