"""The features of a document: what a reader must know besides its format, or refuse it by name.

A document names a feature only if it needs it, so that older releases read all others.
"""

from __future__ import annotations

from typing import Final

WIDE: Final = "wide totals"
"""The feature of a manifest of format 2 that names a run with totals beyond the types of its monoid."""
RECORDED: Final = "recorded options"
"""The feature of a manifest or plan of format 2 with fields that the first release of that format does not know."""
MANY_SOURCES: Final = "several sources"
MANY_SINKS: Final = "several sinks"
"""Features of a manifest or plan of format 3 of a job with more than one of them."""
DEDUPLICATION: Final = "deduplication"
"""The feature of a manifest that holds seen records of a source: without it copies would count."""
READINGS: Final = "readings"
"""The feature of a manifest that holds how records were read before that changed."""
ZONES: Final = "time zones"
"""The feature of a manifest or plan that holds the rules of a time zone, by which its windows have their borders."""
LATENESS: Final = "allowed lateness"
"""The feature of a manifest or plan of a state whose closed windows take late records, or whose steps publish what they
have changed: without it both would be lost."""
QUIET: Final = "quiet streams"
"""The feature of a manifest or plan whose clock has moved on while nothing was read."""
LIMITED: Final = "limited timestamps"
"""The feature of a manifest or plan of a job whose clock was set back: later timestamps are dead letters."""
EARLY_RESULTS: Final = "early results"
"""The feature of a manifest or plan of a state that is published early: without it all that has changed since would be
published when its windows close, or never."""
EMPTIED_SINKS: Final = "emptied sinks"
"""The feature of a manifest of a job with a sink that a rollback has emptied: without it the sink would get only what
changes."""
LATE_OUTPUTS: Final = "late outputs"
"""The feature of a manifest with a sink of late records: without it that sink would be taken for one of results."""
CORRECTIONS: Final = "corrections"
"""The feature of a manifest of a state that was corrected: without it a correction could be applied twice."""
MANY_STATES: Final = "several states"
"""The feature of a manifest or plan of a task whose states have names, or of a state that was added to one."""
LATE_SESSIONS: Final = "late records of sessions"
"""The feature of a manifest or plan of sessions that take late records, and of a manifest of those that are published
as they change: without it what they change would not be taken back."""
TIME_TO_LIVE: Final = "time to live"
"""The feature of a manifest of a state whose keys expire: without it they would count for ever."""
CSV_DIALECT: Final = "csv dialect"
"""The feature of a manifest or plan of a source of CSV with another delimiter or encoding: without it the fields that a
comma separates would be read, in UTF-8."""
FEATURES: Final = frozenset(
    {
        *(WIDE, RECORDED, MANY_SOURCES, MANY_SINKS, MANY_STATES, DEDUPLICATION, READINGS, ZONES, LATENESS, QUIET),
        *(LIMITED, EARLY_RESULTS, EMPTIED_SINKS, LATE_OUTPUTS, CORRECTIONS, TIME_TO_LIVE, LATE_SESSIONS),
        CSV_DIALECT,
    }
)
"""The features that a document may need of its reader."""
