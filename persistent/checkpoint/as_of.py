"""The state as of a clock is in the newest kept checkpoint that separates earlier records from later ones.

    the rows before the clock of that checkpoint = the sum of every record before the clock that the job has counted

An older checkpoint that knows the clock may lack some of these records. A clock never goes back, so the job may count a
record from before the clock later: of a source that joined, of an idle partition that woke up, or out of order. The
newer checkpoint holds it. Only a record that the job counted after the newest such checkpoint, behind the history of
the state, is missed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from persistent.checkpoint.copies import newest_of
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.output_parts import check_read_with
from persistent.checkpoint.successor import Entry
from persistent.codec.documents import canonical_json
from persistent.errors import CorruptCheckpoint, FingerprintChanged, UnknownCheckpoint
from persistent.names import state_name
from persistent.state.state import NonWindowState, PersistentState
from persistent.task.task import PersistentTask, key_names, node_name, task_name
from persistent.text.figures import utc_text


def checkpoint_as_of(
    log: Log, task: PersistentTask, states: Mapping[str, PersistentState], clock: int, *, unpublished: bool = False
) -> Entry:
    """The newest kept checkpoint, on the line of the newest, that holds everything before ``clock`` and separates it
    from later records, in each of these states of the task. ``unpublished``: it has published no window that was open
    at the clock. UnknownCheckpoint, with the range of clocks, if there is none; FingerprintChanged if the only ones
    precede a migration of a state."""
    newest = newest_of(log)
    kept = _line_of(newest.manifest, {entry.manifest.id: entry for entry in _kept(log, newest)})
    each = [_Asked(task, state, clock, unpublished, node_name(task, name)) for name, state in states.items()]
    knowing = [
        entry
        for entry in kept
        if all(asked.is_known_by(entry.manifest) for asked in each) and not _is_replaced(entry, kept, clock)
    ]
    for entry in reversed(knowing):
        if all(asked.has_state_of(entry.manifest) for asked in each):
            if not unpublished:
                corrections = entry.manifest.corrections
                check_read_with(corrections, newest.manifest.corrections, clock, entry.manifest.id, log.storage.url)
            return entry
    if knowing:
        asked = next(asked for asked in each if not asked.has_state_of(knowing[-1].manifest))
        ours = [asked.watermark(entry.manifest) for entry in kept if asked.has_state_of(entry.manifest)]
        since = f"; the migrated state goes back to {utc_text(min(ours))}" if ours else ""
        raise FingerprintChanged(
            f"{log.storage.url}: checkpoint {knowing[-1].manifest.id} holds the state as of {utc_text(clock)}, from "
            f"before the state was migrated{since}. Read it with the earlier task, or choose a later clock"
        )
    asked = next((asked for asked in each if not any(asked.is_known_by(entry.manifest) for entry in kept)), each[0])
    clocks = f"{utc_text(asked.watermark(kept[0].manifest))} to {utc_text(asked.watermark(kept[-1].manifest))}"
    of = "" if len(each) == 1 else f" {state_name(asked.node)!r}"
    raise UnknownCheckpoint(
        f"{log.storage.url}: no kept checkpoint holds the state{of} as of {utc_text(clock)}: their clocks are {clocks}"
        f"{asked.why_unknown([entry.manifest for entry in kept], _nearest(each, kept, clock))}"
    )


def _nearest(each: Sequence[_Asked], kept: Sequence[Entry], clock: int) -> str:
    """The clocks next to this one, before and after, that one of these checkpoints knows in each state."""
    cuts = set()
    for asked in each:
        for manifest in (entry.manifest for entry in kept):
            node = manifest.nodes.get(asked.node)
            known_from = None if node is None else node.known_from
            cuts |= {asked.state.panes.cut_before(time) for time in (asked.watermark(manifest), known_from or 0)}
    known = [
        cut
        for cut in cuts
        if any(all(replace(asked, clock=cut).is_known_by(entry.manifest) for asked in each) for entry in kept)
    ]
    before, after = (
        max((cut for cut in known if cut < clock), default=None),
        min((cut for cut in known if cut > clock), default=None),
    )
    return " and ".join(utc_text(cut) for cut in (before, after) if cut is not None)


def _kept(log: Log, newest: Entry) -> list[Entry]:
    """The kept checkpoints, including ``newest``. A checkpoint that a driver collects meanwhile is skipped."""
    entries = []
    for id in log.kept_ids(newest.manifest):
        try:
            entries.append(newest if id == newest.manifest.id else log.read(id))
        except CorruptCheckpoint:
            if newest_of(log).manifest.keeps(id):
                raise
    return entries


def _line_of(newest: Manifest, kept: Mapping[int, Entry]) -> list[Entry]:
    """The kept checkpoints that led to the newest, oldest first, without those that a rollback abandoned."""
    return [kept[id] for id in sorted(kept) if not newest.has_left(id)]


def _is_replaced(entry: Entry, kept: Sequence[Entry], clock: int) -> bool:
    """Whether a later restart has read records from before the clock anew; this checkpoint has them as first read."""
    since = {name: part.since for name, part in entry.manifest.sources.items()}
    return any(
        part.since is not None and part.since != since.get(name) and part.since < clock
        for later in kept[kept.index(entry) :]
        for name, part in later.manifest.sources.items()
    )


@dataclass(frozen=True)
class _Asked:
    """The state of a task, as of a clock."""

    task: PersistentTask
    state: PersistentState
    clock: int
    unpublished: bool
    node: str

    def is_known_by(self, manifest: Manifest) -> bool:
        node, since = manifest.nodes.get(self.node), None
        if node is None and manifest.tasks.keys() == {task_name(self.task)}:
            # The state was added since.
            return False
        times = manifest.clock if node is None else node.clock
        if node is not None:
            starts = [start for start in (node.known_from, node.added) if start is not None]
            since = max(starts, default=None)
        state = self.state.in_zone(None if node is None else node.zone)
        known, window = state.knows(self.clock, times.watermark), state.window
        if known and window is not None:
            # No window that was open at the clock has lost its panes since.
            gone = times.closed if self.unpublished or node is None else node.final
            known = window.first_number(gone) <= window.first_number(self.clock)
            known = known and (not self.unpublished or window.is_untouched(self.clock, times.closed))
        return known and (since is None or self.clock >= since)

    def watermark(self, manifest: Manifest) -> int:
        """The clock of the state; of the task, if it has no such state."""
        node = manifest.nodes.get(self.node)
        return (manifest.clock if node is None else node.clock).watermark

    def has_state_of(self, manifest: Manifest) -> bool:
        """Whether the manifest holds the state of the current task."""
        node = manifest.nodes.get(self.node)
        return node is not None and (canonical_json(node.fingerprint), node.key_names) == (
            canonical_json(self.state.fingerprint()),
            key_names(self.task),
        )

    def why_unknown(self, kept: list[Manifest], nearest: str) -> str:
        """Why none of these manifests knows the clock, and what to do. ``nearest``: the clocks that are known."""
        nodes = [manifest.nodes[self.node] for manifest in kept if self.node in manifest.nodes]
        state, clock = self.state.in_zone(nodes[-1].zone if nodes else None), self.clock
        if state.time_to_live is not None:
            return (
                f". A state with a time to live ({state.time_to_live}) keeps the lives of its keys, and no times within"
                " them: choose a kept checkpoint (persistent state --at ID)"
            )
        if not state.panes.is_cut(clock):
            before = utc_text(state.panes.cut_before(clock))
            return f", and it is not on the grid of this state, {state.panes}: the previous one is {before}"
        if isinstance(state, NonWindowState) and state.history_ms is None:
            return ". Declare how far back to keep it: NonWindowState(..., interval_ms=..., history=...)"
        added = max((node.added or 0 for node in nodes), default=0)
        if clock < added:
            return f". The state was added later, and is known from {utc_text(added)} on: choose a later clock"
        since = min((node.known_from or 0 for node in nodes), default=0)
        if clock < since:
            return f". The panes before {utc_text(since)} are summed up: choose a later clock, or a checkpoint's id"
        known = f" that is known, the nearest are {nearest}" if nearest else ""
        return f". Choose a clock in that range{known}, or a kept checkpoint (persistent state --at ID)"
