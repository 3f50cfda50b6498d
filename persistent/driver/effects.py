"""An effect is an action of a driver on the world. The effects of a step have one order, and so have those of taking
over.

Of a step:

 PLAN       put the plan: what the step will read, before anything of it is committed
 MAP        run the items; every file under a name of its own
 COMMIT     put the manifest that names them: from here on the step has happened
 CHECK      look for a manifest above ours: another driver has taken over
 PUBLISH    make the outputs visible, under the id that staged them
 COLLECT    delete what no kept manifest names

Of a driver that takes over, before its first step:

 FENCE      put the newest manifest once more, under a higher epoch
 CHECK      look for a manifest above ours
 MARK       after a rollback: outputs that it takes back no longer count, even if a fenced driver still publishes them
 SWEEP      delete staged files that no driver will publish: nothing can show them now
 TAKE_BACK  delete the published files that do not count
 PUBLISH    make visible what is committed and may still be unpublished
 COLLECT    delete what no kept manifest names, and outputs published after they were taken back

The driver takes the order from these two tuples, and so does the model of the protocol. A step refuses any other.
"""

from __future__ import annotations

from enum import Enum


class Effect(Enum):
    """An action of a driver on the world."""

    PLAN = "plan"
    MAP = "map"
    COMMIT = "commit"
    FENCE = "fence"
    CHECK = "check"
    MARK = "mark"
    SWEEP = "sweep"
    TAKE_BACK = "take back"
    PUBLISH = "publish"
    COLLECT = "collect"


EFFECTS = (Effect.PLAN, Effect.MAP, Effect.COMMIT, Effect.CHECK, Effect.PUBLISH, Effect.COLLECT)
"""Of a step."""

TAKING_OVER = (
    Effect.FENCE,
    Effect.CHECK,
    Effect.MARK,
    Effect.SWEEP,
    Effect.TAKE_BACK,
    Effect.PUBLISH,
    Effect.COLLECT,
)
"""Of a driver that takes over."""


class OutOfOrder(AssertionError):
    """An effect was reported as performed while another one is due."""
