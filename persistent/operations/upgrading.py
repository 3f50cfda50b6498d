"""To upgrade is to write the newest format from here on: what is there stays as it is, and is read as before."""

from __future__ import annotations

from persistent.checkpoint.copies import newest_of
from persistent.checkpoint.manifest import FORMAT
from persistent.checkpoint.successor import Entry
from persistent.operations.fencing import Location, fenced, log_of


def upgrade(storage: Location, *, take_over: bool = False) -> Entry:
    """Put a fence of the newest format on a checkpoint of an older one. Releases that know only the older cannot read
    it then. The newest manifest as it is, where there is nothing to do. StillRunning."""
    log = log_of(storage)
    newest = newest_of(log)
    return newest if newest.manifest.format == FORMAT else fenced(log, take_over=take_over, upgrade=True)
