"""A mutant is the protocol with one of its rules removed, or two.

``RULES`` lists all rules: the word by which each is removed, and its text. ``GUARDED`` lists the rules that break
nothing when removed alone, because another rule backs them up: the search finds them when both are removed.
"""

from __future__ import annotations

from tests.proof.model_state import Bounds

RULES = {
    "fence": "every writer puts a fence first",
    "epoch": "a fence raises the epoch",
    "fence check": "after a fence the log is listed, and no newer manifest exists",
    "fence copies outputs": "a fence copies the outputs not known to be published",
    "fence copies retract": "a fence copies the range that a rollback takes back",
    "stop": "a driver that loses a commit stops, instead of reloading and continuing",
    "nonce": "a manifest that is read back counts as ours only with our nonce",
    "unknown": "a put without an answer is read back",
    "absent": "a put that is not found when read back is repeated",
    "if absent": "a plan is put only if none exists",
    "plan ignored": "an existing plan is looked for before a new one is made",
    "own plan": "a plan that another driver has put is run unchanged",
    "plan put": "a plan is put before its step commits anything",
    "attempts": "a manifest names only files of the attempt whose result arrived",
    "names": "a file's name is unique to its attempt",
    "check": "after a commit the log is listed, and no newer manifest exists",
    "staging id": "an output is published under the id that staged it",
    "publish after commit": "nothing is published before its manifest is put",
    "publish in time": "outputs are published before the next manifest is put",
    "publish before collect": "outputs are published before garbage is collected",
    "oldest": "oldest never decreases",
    "kept": "every file that any kept manifest names is live, not only those of the newest",
    "pins": "a pinned manifest is live, and so is every file that it names",
    "pins copied": "pins are copied from manifest to manifest",
    "pin unchecked": "only a kept checkpoint can be pinned, checked again at each attempt to fence",
    "pending plan": "every file that the pending plan names is live",
    "settled": "index runs are not collected until the plan of this base is put",
    "unpublished": "every output listed as unpublished is live",
    "epoch of garbage": "a file of a higher epoch is not collected",
    "id of garbage": "a file of this epoch for a later id is not collected",
    "base": "a compaction keeps the base",
    "compaction copies outputs": "a compaction copies the outputs not known to be published",
    "retract": "a rollback records in its manifest what to take back",
    "mark": "a rollback that takes back leaves a mark, and marked outputs do not count",
    "marks stay": "a mark is never deleted",
    "tidy": "outputs published after they were taken back are deleted with the garbage",
    "readers": "if a rename is three operations, readers trust only the lists",
    "list last": "a list is put after all its files",
    "list again": "if a staged file is missing, its list is looked for once more",
    "drop last": "a staged file is deleted after it was copied",
    "bases": "a manifest with files of its own is kept, however many fences follow it",
    "fences go": "a fence is deleted once others follow it",
    "sweep before retract": "rolled-back staged files are swept before visible outputs are taken back",
    "target unchecked": "only a kept checkpoint can be a rollback target, checked again at each attempt to fence",
}

WORLDS = {
    "two drivers": Bounds(2, 6, 2, (("run", 2),), widths=(1, 2), sweeps=True),
    "three drivers": Bounds(2, 6, 2, (("run", 3),), crashes=1),
    "lost answers": Bounds(2, 5, 2, (("run", 2),), unknowns=1),
    "compaction": Bounds(3, 7, 2, (("run", 2), ("compact", 1))),
    "rollback": Bounds(2, 7, 2, (("run", 2), ("rollback", 1)), kept=2),
    "pins": Bounds(2, 7, 2, (("run", 2), ("pin", 2))),
    "collection": Bounds(2, 7, 2, (("run", 2), ("collect", 1)), sweeps=True),
    "copies": Bounds(2, 7, 2, (("run", 2), ("rollback", 1)), kept=2, copies=True),
    "readers": Bounds(2, 6, 2, (("run", 2),), reads=1),
    "readers of copies": Bounds(2, 6, 2, (("run", 2),), copies=True, reads=1),
    "crash loop": Bounds(1, 6, 2, (("run", 4),), crashes=2),
}
"""Mutants are hunted in these worlds; in each the whole protocol is also checked to its end."""

LARGE = {
    "three at once": Bounds(2, 6, 3, (("run", 3),)),
    "lost answers, wide plans": Bounds(3, 7, 2, (("run", 2),), unknowns=1, widths=(1, 2)),
    "other plans": Bounds(2, 7, 2, (("run", 3),), replan=1),
    "corrected plans": Bounds(2, 6, 2, (("run", 2), ("collect", 1)), replan=2, sweeps=True),
    "all commands": Bounds(2, 7, 2, (("run", 2), ("rollback", 1), ("compact", 1), ("pin", 1)), kept=2),
    "copies, three actors": Bounds(1, 6, 3, (("run", 3), ("rollback", 1)), kept=2, copies=True),
    "three actors": Bounds(2, 6, 3, (("run", 2), ("rollback", 1)), kept=2),
}
"""Larger worlds, in which no mutant is hunted."""

HOMES = {
    "unknown": "lost answers",
    "absent": "lost answers",
    "fence copies retract": "rollback",
    "retract": "rollback",
    "mark": "copies",
    "marks stay": "copies",
    "readers": "copies",
    "list last": "two drivers",
    "list again": "readers",
    "drop last": "copies",
    "bases": "rollback",
    "fences go": "crash loop",
    "fence check": "compaction",
    "sweep before retract": "rollback",
    "tidy": "rollback",
    "target unchecked": "rollback",
    "kept": "compaction",
    "base": "compaction",
    "compaction copies outputs": "compaction",
    "pins": "pins",
    "pins copied": "pins",
    "pin unchecked": "pins",
    "unpublished": "collection",
}
"""The world in which a rule is hunted first; otherwise "two drivers"."""

GUARDED: dict[str, tuple[str, ...]] = {
    "plan ignored": ("own plan",),
    "publish before collect": ("unpublished",),
    "epoch of garbage": ("id of garbage",),
    "id of garbage": ("epoch of garbage",),
    "sweep before retract": ("tidy",),
    "tidy": ("sweep before retract",),
}
"""Each rule with the rules that back it up."""

SOUND = {
    frozenset(
        {"epoch of garbage", "names"}
    ): "names without epoch and writer, collected by their id alone: a fence uses "
    "up its id, so no two attempts that matter share one",
}
"""Pairs whose removal makes another, sound protocol."""
