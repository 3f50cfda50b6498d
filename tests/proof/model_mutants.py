"""A mutant is the protocol with one of its rules removed, or two.

``RULES`` are all the rules there are: the word by which each is removed, and what it says. ``GUARDED`` are those that
break nothing when they alone are removed, because another stands behind them: in a pair with that one they are found.
"""

from __future__ import annotations

from tests.proof.model_state import Bounds

RULES = {
    "fence": "every writer puts a fence first",
    "epoch": "a fence raises the epoch",
    "fence check": "after the fence the log is listed: nobody is above it",
    "fence copies outputs": "a fence copies the outputs not known to be published",
    "fence copies retract": "a fence copies what a rollback takes back",
    "stop": "a driver whose commit is another's stops, and does not reload and go on",
    "nonce": "what is read back counts as ours only with our nonce",
    "unknown": "an unknown answer is read back",
    "absent": "what is not there when read back is put again",
    "if absent": "a plan is put only where there is none",
    "plan ignored": "a plan that is found is looked for before a new one is made",
    "own plan": "a plan that another has put is run as it is",
    "plan put": "a plan is put before anything of its step is committed",
    "attempts": "only files of the attempt whose result came back are named",
    "names": "a file's name is unique to its attempt",
    "check": "after a commit the log is listed: nobody is above it",
    "staging id": "an output is published under the id that staged it",
    "publish after commit": "nothing is published before its manifest is put",
    "publish in time": "outputs are published before the next manifest is put",
    "publish before collect": "outputs are published before garbage is collected",
    "oldest": "oldest never decreases",
    "kept": "what any kept manifest names is live, not only the newest's",
    "pins": "what a pinned manifest names is live, and so is the manifest",
    "pins copied": "pins are copied from manifest to manifest",
    "pin unchecked": "only what is kept can be pinned, looked up again at each attempt to fence",
    "pending plan": "what the pending plan names is live",
    "settled": "index runs are let be until the plan of this base is put",
    "unpublished": "what is listed as not yet published is live",
    "epoch of garbage": "a file of a higher epoch is let be",
    "id of garbage": "a file of this epoch for a later id is let be",
    "base": "a compaction keeps the base",
    "compaction copies outputs": "a compaction copies the outputs not known to be published",
    "retract": "a rollback says in its manifest what is to be taken back",
    "mark": "a rollback that takes back leaves a mark, and what is marked does not count",
    "marks stay": "a mark is never deleted",
    "tidy": "what was published after it was taken back is deleted with the garbage",
    "readers": "where a rename is three operations, readers trust the lists alone",
    "list last": "a list is put when all its files are there",
    "list again": "where a staged file is gone, its list is looked for once more",
    "drop last": "a staged file is deleted after it was copied",
    "bases": "what names files of its own is kept, however many fences stand on it",
    "fences go": "a fence goes when others stand on it",
    "sweep before retract": "staged files that were rolled back are swept before what is visible is taken back",
    "target unchecked": "only what is kept can be gone back to, looked up again at each attempt to fence",
    "copies": "a rollback copies the runs under new names",
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
"""Where mutants are looked for; in each of them the whole protocol is checked to its end too."""

LARGE = {
    "three at once": Bounds(2, 6, 3, (("run", 3),)),
    "lost answers, wide plans": Bounds(3, 7, 2, (("run", 2),), unknowns=1, widths=(1, 2)),
    "other plans": Bounds(2, 7, 2, (("run", 3),), replan=1),
    "all commands": Bounds(2, 7, 2, (("run", 2), ("rollback", 1), ("compact", 1), ("pin", 1)), kept=2),
    "copies, three actors": Bounds(1, 6, 3, (("run", 3), ("rollback", 1)), kept=2, copies=True),
    "three actors": Bounds(2, 6, 3, (("run", 2), ("rollback", 1)), kept=2),
}
"""Larger ones, in which nothing is hunted."""

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
"""The world in which a rule is looked at first; "two drivers" where none is said."""

GUARDED: dict[str, tuple[str, ...]] = {
    "plan ignored": ("own plan",),
    "publish before collect": ("unpublished",),
    "epoch of garbage": ("id of garbage",),
    "id of garbage": ("epoch of garbage",),
    "copies": ("kept",),
    "sweep before retract": ("tidy",),
    "tidy": ("sweep before retract",),
}
"""Each with those that stand behind it."""

SOUND = {
    frozenset(
        {"epoch of garbage", "names"}
    ): "names without epoch and writer, collected by their id alone: a fence uses "
    "up its id, so no two attempts that matter share one",
}
"""Pairs that together make another protocol, and a sound one."""
