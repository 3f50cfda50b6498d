"""An upgrade writes the newest format from here on; older manifests stay readable as they are."""

from __future__ import annotations

from persistent.checkpoint.copies import newest_of
from persistent.checkpoint.manifest import FORMAT
from persistent.checkpoint.successor import Entry
from persistent.operations.fencing import Location, fenced, log_of


def upgrade(storage: Location, *, take_over: bool = False) -> Entry:
    """Put a fence of the newest format on a checkpoint, which releases that know only older formats cannot read. If
    there is nothing to do, it returns the newest manifest. StillRunning."""
    log = log_of(storage)
    newest = newest_of(log)
    return newest if newest.manifest.format == FORMAT else fenced(log, take_over=take_over, upgrade=True)
