"""A rollback commits an older checkpoint again, as the newest."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from persistent.checkpoint.copies import Target, copied, newest_of, verified_runs
from persistent.checkpoint.log import Log, Trace
from persistent.checkpoint.manifest import FORMAT, Manifest
from persistent.checkpoint.names import Attempt
from persistent.checkpoint.older_formats import SINK
from persistent.checkpoint.output_parts import SinkPart
from persistent.checkpoint.parts import Account, SourcePart
from persistent.checkpoint.successor import Entry, at_all, succeed
from persistent.clock import Instant, instant_ms, wall_ms
from persistent.driver.evolution import holds_deltas, to_tell_anew
from persistent.errors import CorruptCheckpoint, NewerFormat, Refused, UnknownCheckpoint
from persistent.operations.fencing import Location, check_not_running, committed, fenced, log_of
from persistent.sources.offsets import begun, begun_anew, gone_back
from persistent.task import STATE, state_name
from persistent.text.figures import utc_text
from persistent.text.shell import shell_word

_OUTPUTS = ("retract", "again")


@dataclass(frozen=True)
class Readable:
    """The readable part of a log: its entries and the ``newest`` of them, the ``unreadable`` ids, the ``highest``
    id."""

    entries: Mapping[int, Entry]
    unreadable: tuple[int, ...]
    newest: Entry
    highest: int

    def bases(self) -> dict[int, Manifest]:
        """The manifests that name their own files."""
        known = self.newest.manifest.bases
        manifests = {id: entry.manifest for id, entry in self.entries.items()}
        return {id: one for id, one in manifests.items() if id in known or (not known and one.is_base)}


def rollback(
    storage: Location,
    to: int | None = None,
    *,
    clock: Instant | None = None,
    outputs: str,
    take_over: bool = False,
) -> Entry:
    """Return to checkpoint ``to``, or to the newest whose clock is at most ``clock``: restore state, clock, positions
    and account; the next run reads the source from there.

    ``outputs``: what happens to later outputs. "retract": the next run takes them back before it publishes anything, so
    that nothing appears twice. "again": they stay and are published a second time; the guarantee is at-least-once from
    then on, and the history shows a rollback that retracts nothing.

    Every run of the checkpoint is verified and copied before anything changes. This also works if the newest manifest
    is lost or damaged: its id is never used again, and the new manifest has the newest format. Raises
    UnknownCheckpoint; CorruptCheckpoint if the checkpoint does not verify; NewerFormat if a newer release has written;
    StillRunning; Refused, for instance if a sink cannot take back.
    """
    check_outputs(outputs)
    if (to is None) == (clock is None):
        raise Refused("give either the id of a checkpoint or a clock to go back to")
    log, clock_ms = log_of(storage), None if clock is None else instant_ms(clock)
    return go_back(log, lambda kept: _target(log, kept, to, clock_ms), outputs=outputs, take_over=take_over)


def go_back(
    log: Log,
    choose: Callable[[Readable], Manifest],
    *,
    outputs: str,
    take_over: bool,
    not_after: int | None = None,
) -> Entry:
    """Return to the checkpoint that ``choose`` finds among the kept ones. ``not_after``: from then on, later timestamps
    are dead letters; None: as before."""
    kept = readable(log)
    epoch = kept.newest.manifest.epoch
    check_not_running(log, epoch, take_over=take_over)
    check_can_take_back(kept.newest.manifest, outputs, log.storage.url)
    target = choose(kept)
    _check_not_taken_back(log, kept, target.id)
    check_left_out(kept, target.id, outputs, log.storage.url)
    _verify(log, target)
    if kept.highest == kept.newest.manifest.id:
        newest = kept.newest.manifest
        # An upgrade is refused if a manifest is lost, and recommends a rollback: so the rollback upgrades.
        is_old = newest.format != FORMAT and log.lost(newest.base, newest.id) is not None
        last = fenced(log, take_over=True, goes_back=True, upgrade=is_old)
        if not last.manifest.keeps(target.id):
            raise UnknownCheckpoint(f"{log.storage.url}: meanwhile checkpoint {target.id} is no longer kept")
        # A driver that ran meanwhile may have another sink.
        check_can_take_back(last.manifest, outputs, log.storage.url)
        id, epoch = last.manifest.id + 1, last.manifest.epoch
    else:
        # No manifest to fence with. Epochs never exceed ids: this one is above every epoch that was used.
        lost = log.lost(kept.highest, kept.highest) or Trace()
        last, id = kept.newest, max(kept.highest, lost.id) + 1
        kept = replace(kept, unreadable=(*kept.unreadable, id - 1))
        epoch = id
    with log.unless_fenced(id - 1):
        copy = copied(log.storage, target, Target(log.storage, Attempt(epoch, id)))
    left_out = _left_out(last.manifest, kept, target.id) if outputs == "retract" else {}
    sinks = {name: part for name, part in {**left_out, **last.manifest.sinks}.items() if not part.late}
    copy, emptied = _published_to_all(_begun_again(copy, last.manifest), sinks, again=outputs == "again")
    copy = _with_acknowledged(copy, last.manifest, is_known=id == last.manifest.id + 1)
    manifest = rolled_back(last, copy, kept, id, epoch, take_back=outputs == "retract", emptied=emptied)
    return committed(log, manifest if not_after is None else replace(manifest, not_after=not_after), last.manifest)


def _begun_again(copy: Manifest, newest: Manifest) -> Manifest:
    """The copy of a checkpoint from before a source's first plan, with partitions where the job began to read them: a
    new plan would begin elsewhere, as ``start=`` now says."""
    sources, accounts = dict(copy.sources), dict(copy.inputs)
    for name, source in newest.sources.items():
        begins = begun(source.recorded)
        if begins and (name not in sources or not sources[name].partitions):
            recorded = begun_anew(source.recorded, begins)
            sources[name] = SourcePart(source.kind, tuple(begins), begins, recorded, codec=source.codec)
            accounts[name] = dict.fromkeys(begins, Account())
    return copy if sources == copy.sources else replace(copy, **at_all(copy, sources=sources, accounts=accounts))


def _published_to_all(copy: Manifest, sinks: Mapping[str, SinkPart], *, again: bool) -> tuple[Manifest, frozenset[str]]:
    """The copy of a checkpoint, and those of the ``sinks`` that get every key of a state without windows, or of one
    that is published as it changes: they have joined since, and nothing that they were given counts any more.

    ``again``: the sinks keep later outputs, which every key must replace, in all of them. Deltas replace nothing."""
    taking = {name: {sink for sink, part in sinks.items() if _takes(part, name)} for name in copy.operators}
    lacking = {name: _lacking(copy.of(name), taking[name], again=again) for name in copy.operators}
    anew = {name: found for name, found in lacking.items() if found is not None}
    if not anew:
        return copy, frozenset()
    clocks = {name: replace(clock, ended=clock.ended and name not in anew) for name, clock in copy.clocks.items()}
    copy = replace(copy, **at_all(copy, clocks=clocks))
    if not again:
        return copy, frozenset().union(*anew.values())
    told = {name: to_tell_anew(copy.operators[name], clocks[name].closed) for name in anew}
    return replace(copy, operators={**copy.operators, **told}), frozenset()


def _takes(sink: SinkPart, operator: str) -> bool:
    return (sink.state or STATE) == state_name(operator)


def _lacking(copy: Manifest, sinks: Collection[str], *, again: bool) -> frozenset[str] | None:
    """Those of the sinks of the only state that lack every key; None if nothing is published again."""
    known = {name for name, part in copy.sinks.items() if part.last is not None and not part.emptied}
    state = copy.operator.state
    # An older format lists no sink to which everything has been published.
    is_told = bool(copy.result_sinks()) or not state.published
    is_shown = state.emit is not None or (not state.has_windows and is_told)
    new = frozenset(sinks) - known
    if again and sinks and state.has_time_to_live:
        return new
    if not state.runs or not is_shown or not (new or (again and state.emit)) or (again and holds_deltas(copy)):
        return None
    return new


def _with_acknowledged(copy: Manifest, newest: Manifest, *, is_known: bool) -> Manifest:
    """The copy, whose sources record what was acknowledged up to the newest checkpoint."""
    sources = dict(copy.sources)
    for name, source in newest.sources.items():
        if name in sources:
            recorded = gone_back(sources[name].recorded, source.recorded, source.positions, is_known=is_known)
            sources[name] = replace(sources[name], recorded=recorded)
    return replace(copy, sources=sources)


def check_outputs(outputs: str) -> None:
    """Refused unless ``outputs`` is known."""
    if outputs not in _OUTPUTS:
        raise Refused(
            f'outputs={outputs!r}: choose what happens to later outputs: "retract" takes them back, "again" '
            "publishes them a second time"
        )


def check_can_take_back(newest: Manifest, outputs: str, url: str) -> None:
    """Refused if outputs are to be taken back but a sink of the job cannot: no run could continue."""
    unable = [name for name, part in newest.sinks.items() if not _may_take_back(name, part)]
    if outputs == "retract" and unable:
        raise Refused(
            f"{url}: the sink {', '.join(map(repr, unable))} of this job cannot take back its published outputs, so "
            'outputs="retract" is not possible. Nothing was changed. outputs="again" (--outputs=again) publishes '
            "them a second time, to every sink; or delete them there by hand, and then begin a new checkpoint"
        )


def check_left_out(kept: Readable, target: int, outputs: str, url: str) -> None:
    """Refused likewise, for a sink that was omitted since the target."""
    newest = kept.newest.manifest
    check_can_take_back(replace(newest, sinks=_left_out(newest, kept, target)), outputs, url)


def _may_take_back(name: str, sink: SinkPart) -> bool:
    """Whether a sink can take back, as far as is known."""
    return "retract" in sink.does or _is_of_older_format(name, sink)


def _is_of_older_format(name: str, sink: SinkPart) -> bool:
    """Whether the part stands for any sink of a job: older formats record only its batches."""
    return name == SINK and not sink.does


def rolled_back(
    last: Entry,
    copy: Manifest,
    kept: Readable,
    id: int,
    epoch: int,
    *,
    take_back: bool,
    emptied: Collection[str] = (),
) -> Manifest:
    """The manifest that sets the job to ``copy``. ``emptied``: the sinks that get every key.

    Outputs staged up to the target stay listed, because they may be unpublished. Later ones stay too, unless they are
    taken back, because a further rollback may return to a checkpoint where they count.
    """
    old, target, now_ms = last.manifest, copy.id, wall_ms()
    found = kept.bases()
    # Files of a driver that ran meanwhile are not known to be lost.
    lost = {one for one in kept.newest.manifest.bases if one not in found}
    before = old.bases or {one: manifest.committed_ms for one, manifest in found.items()}
    # Include fences and compactions: outputs published under an id above their checkpoint's are of a lost one.
    first = copy.base + 1
    if old.retract is not None and target >= old.retract[0] and not old.has_left(target):
        # The last rollback is incomplete: the next publication takes back everything at once.
        first = min(first, old.retract[0])
    return succeed(
        last,
        "rollback",
        id=id,
        epoch=epoch,
        sources=copy.sources,
        clocks=copy.clocks,
        operators=copy.operators,
        ledger=copy.ledger,
        corrections=copy.corrections,
        sinks={
            name: _gone_back(replace(sink, emptied=name in emptied), id, target if take_back else id)
            for name, sink in {**(_left_out(old, kept, target) if take_back else {}), **old.sinks}.items()
        },
        aside=tuple(aside for aside in old.aside if aside.id <= target or not take_back),
        pins=tuple(pin for pin in old.pins if pin not in lost),
        bases={**{one: ms for one, ms in before.items() if one not in lost}, id: now_ms},
        burnt=tuple(sorted({*old.burnt, *kept.unreadable, *lost})),
        committed_ms=now_ms,
        target=target,
        retract=(first, id) if take_back else None,
        publishes=_publishes(old, kept, target, take_back=take_back),
        left=(*(branch for branch in old.left if not branch[0] <= target < branch[1]), (target + 1, id, take_back)),
    )


def _left_out(old: Manifest, kept: Readable, target: int) -> dict[str, SinkPart]:
    """The sinks that the job has omitted since the target, and that may have received later batches, which nothing else
    takes back. All their batches were published, or they could not have been omitted."""
    since = {id: kept.entries[id].manifest for id in sorted(kept.entries) if id >= target}
    is_whole = len(since) == kept.highest - target + 1
    return {
        name: replace(part, unpublished=())
        for manifest in since.values()
        for name, part in manifest.sinks.items()
        if name not in old.sinks and (not is_whole or (part.last or 0) > target)
        if not _is_of_older_format(name, part)
    }


def _publishes(old: Manifest, kept: Readable, target: int, *, take_back: bool) -> bool | None:
    """Whether the branch that is left had a sink: None if that is unknown and its outputs are to be taken back."""
    if any(one.publishes for at, one in kept.bases().items() if at >= target):
        return True
    return None if take_back and not _nothing_since(old, kept, target) else old.publishes


def _nothing_since(old: Manifest, kept: Readable, target: int) -> bool:
    """Whether it is certain that no sink received a batch since the target, although later checkpoints are
    collected."""
    entry = kept.entries.get(target)
    if entry is None or entry.manifest.format != FORMAT:
        # Older formats do not list a sink that has published everything.
        return False
    if not old.result_sinks():
        # As far as the log shows, the job never had a sink. A run without a sink lists earlier sinks.
        return True
    lost = any(id > target for id in (*kept.unreadable, *old.burnt))
    # Only the last sink is listed. If it has no batch yet, another sink may have been used in between.
    same = {name: part.last for name, part in old.result_sinks().items()} == {
        name: part.last for name, part in entry.manifest.result_sinks().items() if part.last is not None
    }
    return same and not lost


def _gone_back(sink: SinkPart, id: int, shown: int) -> SinkPart:
    """The batches of a sink after rollback ``id``, if those staged above ``shown`` are taken back. The rollback is the
    sink's last known batch: lost manifests may have published batches that no other manifest lists."""
    return replace(sink, last=id, unpublished=tuple(batch for batch in sink.unpublished if batch.id <= shown))


def readable(log: Log) -> Readable:
    """All readable manifests and ids. NewerFormat if a manifest needs a newer release: that one is sound."""
    _check_begun(log)
    ids = log.ids()
    entries: dict[int, Entry] = {}
    unreadable = []
    for id in reversed(ids):
        newest = entries[max(entries)].manifest if entries else None
        if newest is not None and not newest.keeps(id):
            continue
        try:
            entries[id] = log.read(id)
        except NewerFormat:
            raise
        except CorruptCheckpoint:
            if id in log.ids():
                unreadable.append(id)
            elif not entries:  # A driver that runs has collected it, and perhaps all that was listed.
                return readable(log)
    if not entries:
        raise CorruptCheckpoint(f"{log.storage.url}: no manifest can be read: restore the folder from a copy")
    return Readable(entries, tuple(sorted(unreadable)), entries[max(entries)], ids[-1])


def _check_begun(log: Log) -> None:
    """Raise unless the checkpoint has a good FORMAT: only manifests may be damaged, and none may be of a newer
    release."""
    try:
        newest_of(log)
    except NewerFormat:
        raise
    except CorruptCheckpoint as error:
        if f"{log.storage.url}/FORMAT" in str(error):
            raise


def _target(log: Log, kept: Readable, to: int | None, clock: int | None) -> Manifest:
    bases = kept.bases()
    if to is not None:
        if to in kept.entries:
            return kept.entries[to].manifest
        what = "cannot be read" if to in kept.unreadable else "is not kept"
        there = ", ".join(map(str, sorted(bases)))
        raise UnknownCheckpoint(f"{log.storage.url}: checkpoint {to} {what}; you can go back to {there}")
    found = [id for id, manifest in bases.items() if manifest.furthest <= (clock or 0)]
    if not found:
        clocks = [manifest.furthest for manifest in bases.values()]
        earliest = f"the earliest is at {utc_text(min(clocks))}" if clocks else "there is none"
        raise UnknownCheckpoint(
            f"{log.storage.url} keeps no checkpoint whose clock is at most {utc_text(clock or 0)}; {earliest}"
        )
    return bases[max(found)]


def was_taken_back(kept: Readable, target: int) -> bool:
    """Whether the outputs of the target's branch were taken back."""
    return any(taken_back and first <= target < stop for first, stop, taken_back in kept.newest.manifest.left)


def _check_not_taken_back(log: Log, kept: Readable, target: int) -> None:
    """Refused if the outputs of the target's branch were taken back: its windows would never be published again."""
    for first, stop, taken_back in kept.newest.manifest.left:
        if taken_back and first <= target < stop:
            raise Refused(
                f"{log.storage.url}: a rollback went back behind checkpoint {target} and takes back its outputs: "
                f"go back to one from {stop} on, or to one before {first}"
            )


def _newest_keeps(log: Log, id: int) -> bool:
    """Whether the newest manifest keeps that checkpoint; True if the manifest cannot be read."""
    try:
        newest = log.newest()
    except NewerFormat:
        raise
    except CorruptCheckpoint:
        return True
    return newest is not None and newest.manifest.keeps(id)


def _verify(log: Log, target: Manifest) -> None:
    try:
        for _ in verified_runs(log.storage, target):
            pass
    except CorruptCheckpoint as error:
        url = log.storage.url
        if not _newest_keeps(log, target.id):
            raise UnknownCheckpoint(f"{url}: checkpoint {target.id} is no longer kept: a driver runs") from error
        raise CorruptCheckpoint(
            f"{error}. You cannot go back to checkpoint {target.id}; 'persistent verify {shell_word(url)}' names "
            "the newest that verifies. Nothing was changed"
        ) from error
