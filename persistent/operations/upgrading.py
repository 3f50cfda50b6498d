"""An upgrade writes the newest format from now on; older manifests stay readable."""

from __future__ import annotations

from persistent.checkpoint.copies import newest_of
from persistent.checkpoint.manifest import FORMAT
from persistent.checkpoint.successor import Entry
from persistent.operations.fencing import Location, fenced, log_of


def upgrade(storage: Location, *, take_over: bool = False) -> Entry:
    """Put a fence of the newest format on a checkpoint. Releases that know only older formats can no longer read it. If
    there is nothing to do, returns the newest manifest. Raises StillRunning."""
    log = log_of(storage)
    newest = newest_of(log)
    return newest if newest.manifest.format == FORMAT else fenced(log, take_over=take_over, upgrade=True)
