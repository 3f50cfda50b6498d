"""A result needs a destination: closed windows leave the state, and a sink must be able to hold their corrections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from persistent.errors import InvalidPipeline
from persistent.lateness import ACCUMULATE, CHANGE
from persistent.sinks.protocol import AnySink
from persistent.state import PersistentState
from persistent.task import key_names
from persistent.worker.job import Job
from persistent.worker.output_tables import check_names


def check_every_destination(job: Job) -> None:
    """``check_destinations`` for each state of a job; with several, it names the one at fault."""
    discards, keys, each = job.discard_closed, key_names(job.task), job.each().values()
    if len(each) > 1 and discards is True and all(one.sinks or one.state.window is None for one in each):
        raise InvalidPipeline(
            "discard_closed=True drops closed windows, and each state with windows has a sink: omit it"
        )
    for one in each:
        # Of several states, those without a sink discard.
        own = False if discards is True and len(each) > 1 and one.sinks else discards
        try:
            check_destinations(one.state, keys, one.sinks, own)
        except InvalidPipeline as error:
            if len(each) == 1:
                raise
            raise InvalidPipeline(
                f"the state {one.name!r}: {error}. Sinks are given by state, sink={{{one.name!r}: ...}}"
            ) from error


def check_destinations(
    state: PersistentState, names: Sequence[str], sinks: Mapping[str, AnySink], discard_closed: Any
) -> None:
    """InvalidPipeline if two columns of the results would share a name, if closed windows would be lost and the user
    has not declared it, or if a sink cannot hold their corrections."""
    check_names(state, names)
    if not isinstance(discard_closed, bool):
        raise InvalidPipeline(f"discard_closed={discard_closed!r}: give True or False")
    if sinks and discard_closed:
        raise InvalidPipeline("sink= publishes closed windows, discard_closed=True drops them: omit one of them")
    if not sinks and state.window is not None and not discard_closed:
        raise InvalidPipeline(
            "a WindowState without sink=: a closed window leaves the state, and its result would be lost. Give it a "
            "destination: sink=FileSink(...) or MemorySink(); or discard_closed=True, if only open windows matter"
        )
    if discard_closed and state.lateness.allowed_ms and state.lateness.emit == "close":
        raise InvalidPipeline(
            "allowed_lateness= corrects what is published when a window closes, and discard_closed=True publishes "
            "nothing: omit one of them"
        )
    option, other = f"late={state.lateness.answer!r}", 'late="accumulate"'
    if state.lateness.emit == CHANGE:
        option, other = 'changes="retract"', 'changes="update"'
    for sink in sinks.values() if state.lateness.answer not in (None, ACCUMULATE) else ():
        if getattr(sink, "replaces", False):
            raise InvalidPipeline(
                f"{sink!r} keeps one row of a key and window, the newest, and {option} publishes rows that count "
                f'together: use {other}, whose new value replaces the old one; or mode="append", which keeps all rows'
            )
