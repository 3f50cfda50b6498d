"""Operations change a checkpoint without running its pipeline.

    rollback           return to a kept checkpoint, and retract or repeat the outputs published since
    restart            return to a clock, and read a source with other positions from there
    savepoint          copy a checkpoint, also of a running job, to URL/s/NAME
    pin                keep a checkpoint until it is unpinned
    collect_garbage    delete what no kept checkpoint names
    compact            fold all runs of the state
    upgrade            write the newest format from here on
    merge              join two jobs over disjoint sources into one

``storage`` is a ``Storage`` or the URL of a checkpoint. Each operation fences first, so that a driver still at work
stops; only a savepoint and a dry run, which change nothing, do not. If a driver seems to run they raise
``StillRunning``, unless ``take_over=True``. An interrupted operation leaves the job as it was before or as it is after,
and can be repeated; the next run collects its leftovers.
"""

from persistent.operations.collection import collect_garbage
from persistent.operations.compaction import compact
from persistent.operations.merging import merge
from persistent.operations.pinning import pin
from persistent.operations.restarting import restart
from persistent.operations.rolling_back import rollback
from persistent.operations.savepoints import savepoint
from persistent.operations.upgrading import upgrade

__all__ = ["collect_garbage", "compact", "merge", "pin", "restart", "rollback", "savepoint", "upgrade"]
