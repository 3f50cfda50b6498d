"""Operations change a checkpoint without running its pipeline: they move it, copy it, keep it, tidy it.

    rollback           go back to a kept checkpoint, and say what becomes of the outputs published since
    restart            go back to a clock, and read from there a source whose positions are others
    savepoint          a self-contained copy at URL/s/NAME, of a running job too
    pin                keep a checkpoint until it is unpinned
    collect_garbage    delete what no kept checkpoint names
    compact            fold all runs of the state
    upgrade            write the newest format from here on
    merge              two jobs over disjoint sources into one

``storage`` is a ``Storage`` or the URL of a checkpoint. Each of them fences first, so that a driver that still works
stops instead of going on beside it; only a savepoint and a dry run do not, for they change nothing. Where a driver
seems to be running they refuse with ``StillRunning``, unless ``take_over=True``. Cut off anywhere, each leaves the job
as it was before or as it is after, and can be repeated; what it leaves lying about, the next run collects.
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
