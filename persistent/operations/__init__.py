"""Operations change a checkpoint without running its pipeline.

    rollback           return to a kept checkpoint, and retract or repeat later outputs
    set_back           return to before a record that set the clock ahead, which is a dead letter from then on
    restart            return to a clock, and read a source with other positions from there
    savepoint          copy a checkpoint to URL/s/NAME; the job can run
    pin                keep a checkpoint until it is unpinned
    collect_garbage    delete files that no kept checkpoint names
    compact            fold all runs of the state
    merge              join two jobs over disjoint sources into one

``storage`` is a ``Storage`` or the URL of a checkpoint. Each operation decides what to change, and
``persistent.checkpoint.commit_change`` commits it behind a fence, so that a running driver stops; only a savepoint, a
dry run and ``undone``, which change nothing, do without. If a driver seems to run they raise ``StillRunning``, unless
``take_over=True``. An interrupted operation leaves the job in its state before or after the
operation, and can be repeated; the next run collects its leftovers.
"""

from monoids.on_demand import TYPE_CHECKING, on_demand

if TYPE_CHECKING:
    from persistent.operations.collection import collect_garbage
    from persistent.operations.compaction import compact
    from persistent.operations.merging import merge
    from persistent.operations.restarting import restart
    from persistent.operations.rolling_back import rollback
    from persistent.operations.savepoints import pin, savepoint
    from persistent.operations.setting_back import Undone, lift_limit, set_back, undone
else:
    __getattr__, __dir__ = on_demand(
        __name__,
        {
            "persistent.operations.collection": "collect_garbage",
            "persistent.operations.compaction": "compact",
            "persistent.operations.merging": "merge",
            "persistent.operations.restarting": "restart",
            "persistent.operations.rolling_back": "rollback",
            "persistent.operations.savepoints": "pin savepoint",
            "persistent.operations.setting_back": "Undone lift_limit set_back undone",
        },
    )

__all__ = [
    "Undone",
    "collect_garbage",
    "compact",
    "lift_limit",
    "merge",
    "pin",
    "restart",
    "rollback",
    "savepoint",
    "set_back",
    "undone",
]
