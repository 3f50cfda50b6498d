"""A rollback commits an older checkpoint again, as the newest."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from msgspec.structs import replace

from persistent.checkpoint.commit_change import Decision, Location, Manifests, commit_change, log_of, look_at_all
from persistent.checkpoint.copies import Target, copied, verified_runs
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest, commits_of
from persistent.checkpoint.output_parts import SinkPart, named_after
from persistent.checkpoint.parts import Account, Accounts, NodePart, SourcePart, TaskPart
from persistent.checkpoint.successor import Entry
from persistent.connect.offsets import begun, begun_anew, gone_back
from persistent.driver.evolution import to_tell_anew
from persistent.driver.output_batches import has_nothing
from persistent.driver.undoing import adds_up, why_not
from persistent.errors import CorruptCheckpoint, NewerFormat, Refused, UnknownCheckpoint
from persistent.text.figures import shell_word, utc_text
from persistent.time.clock import Instant, instant_ms, wall_ms

_OUTPUTS = ("retract", "again")


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

    ``outputs``: what happens to later outputs. "retract": the next run takes them back before it publishes anything, in
    place, or by further rows in a sink that can only append. "again": they stay and are published a second time; the
    guarantee is at-least-once from then on, and the history shows a rollback that retracts nothing.

    Every run of the checkpoint is verified before anything changes, and none is copied: the new manifest names the same
    runs. This also works if the newest manifest is lost or damaged: its id is never used again. Raises
    UnknownCheckpoint; CorruptCheckpoint if the checkpoint does not verify; NewerFormat if a newer release has written;
    StillRunning; Refused, for instance if a sink cannot take back.
    """
    check_outputs(outputs)
    if (to is None) == (clock is None):
        raise Refused("give either the id of a checkpoint or a clock to go back to")
    log, clock_ms = log_of(storage), None if clock is None else instant_ms(clock)
    return go_back(log, lambda manifests: _target(log, manifests, to, clock_ms), outputs=outputs, take_over=take_over)


def go_back(
    log: Log, choose: Callable[[Manifests], Manifest], *, outputs: str, take_over: bool, not_after: int | None = None
) -> Entry:
    """Return to the checkpoint that ``choose`` finds among the kept ones. ``not_after``: from then on, later timestamps
    are dead letters; None: as before."""
    limited = {} if not_after is None else {"not_after": not_after}

    def decide(manifests: Manifests) -> Decision:
        target = choose(manifests)
        if outputs == "retract":
            _check_can_undo(log, manifests, target)
        _verify(log, target)

        def fields(target: Manifest) -> dict[str, Any]:
            return {**_gone_back_to(target, manifests, outputs), **limited}

        if not manifests.may_lose(target):
            return Decision("rollback", fields(target))
        storage = log.storage
        return Decision("rollback", write=lambda attempt: fields(copied(storage, target, Target(storage, attempt))))

    return commit_change(log, decide, look=look_at_all, take_over=take_over, goes_back=True)


def _gone_back_to(target: Manifest, manifests: Manifests, outputs: str) -> dict[str, Any]:
    """The fields of the manifest that sets the job to ``target``."""
    newest = manifests.newest.manifest
    left_out = _left_out(manifests, target.id) if outputs == "retract" else {}
    sinks = named_after({**left_out, **newest.sinks}, target.nodes)
    target = replace(_begun_again(target, newest), inherits=newest.inherits)
    target, emptied = _published_to_all(target, sinks, again=outputs == "again")
    target = _with_acknowledged(target, newest, is_known=not manifests.is_lost)
    return rolled_back(manifests, target, take_back=outputs == "retract", emptied=emptied)


def _begun_again(target: Manifest, newest: Manifest) -> Manifest:
    """A target from before a source's first plan, with partitions where the job began to read them: a new plan would
    begin elsewhere, as ``start=`` now says."""
    sources, accounts = dict(target.sources), dict[str, Accounts]()
    for name, source in newest.sources.items():
        begins = begun(source.recorded)
        if begins and (name not in sources or not sources[name].partitions):
            recorded = begun_anew(source.recorded, begins)
            sources[name] = SourcePart(source.kind, tuple(begins), begins, recorded, codec=source.codec)
            accounts[name] = dict.fromkeys(begins, Account())
    tasks = {name: TaskPart({**task.inputs, **accounts}) for name, task in target.tasks.items()}
    return replace(target, sources=sources, tasks=tasks)


def _published_to_all(
    target: Manifest, sinks: Mapping[str, SinkPart], *, again: bool
) -> tuple[Manifest, frozenset[str]]:
    """The target, and the ``sinks`` that have nothing of it: they joined after it, or taking back by rows leaves them
    without what stood there. These sinks get every key of a state without windows, or of a state that is published as
    it changes, or every window that could be corrected.

    ``again``: the sinks keep later outputs, which every key must replace, in all of them."""
    taking = {name: {sink for sink, part in sinks.items() if part.node == name} for name in target.nodes}
    turned = set() if again else _lacking_places(target, sinks)
    lacking = {name: _lacking(target, name, taking[name], turned, again=again) for name in target.nodes}
    anew = {name: names for name, names in lacking.items() if names is not None}
    emptied = frozenset[str]() if again else frozenset().union(*anew.values())
    anew = {name: names for name, names in anew.items() if _shows_all(target.nodes[name]) and target.nodes[name].runs}
    if not anew:
        return target, emptied
    nodes = {name: target.nodes[name] for name in anew}
    nodes = {name: replace(node, clock=replace(node.clock, ended=False)) for name, node in nodes.items()}
    if again:
        nodes = {name: to_tell_anew(node, node.clock.closed) for name, node in nodes.items()}
    return replace(target, nodes={**target.nodes, **nodes}), emptied


def _shows_all(node: NodePart) -> bool:
    """Whether sinks are given all that it holds, not only what has closed."""
    return node.emit is not None or not node.has_windows


def _lacking_places(target: Manifest, sinks: Mapping[str, SinkPart]) -> set[str]:
    """The sinks that lack what they held at the target, once later outputs are taken back by rows: their readers
    replace rows, and the sinks never got the old row of a replaced one."""
    return {
        name
        for name, part in sinks.items()
        if part.is_undone_by_rows and (part.last or 0) > target.id
        if part.node is not None and part.node in target.nodes and not adds_up(target.nodes[part.node])
    }


def _lacking(
    target: Manifest, node: str, sinks: Collection[str], turned: Collection[str], *, again: bool
) -> frozenset[str] | None:
    """The sinks of a node that lack every key; None if nothing is published again."""
    parts, state = target.sinks_of(node), target.nodes[node]
    known = {name for name, part in parts.items() if part.last is not None and not part.emptied}
    is_shown = _shows_all(state) or (state.late is not None and not again)
    new = frozenset(name for name in sinks if name in turned or (name not in known and has_nothing(target, name)))
    if again and sinks and state.has_time_to_live:
        return new
    is_lacking = bool(new) or (again and state.emit is not None)
    # A sink that was given nothing by then lacks all, also what the state will hold.
    return new if is_shown and is_lacking and (state.runs or not again) else None


def _with_acknowledged(target: Manifest, newest: Manifest, *, is_known: bool) -> Manifest:
    """The target, whose sources record what was acknowledged up to the newest checkpoint."""
    sources = dict(target.sources)
    for name, source in newest.sources.items():
        if name in sources:
            recorded = gone_back(sources[name].recorded, source.recorded, source.positions, is_known=is_known)
            sources[name] = replace(sources[name], recorded=recorded)
    return replace(target, sources=sources)


def check_outputs(outputs: str) -> None:
    """Refused unless ``outputs`` is known."""
    if outputs not in _OUTPUTS:
        raise Refused(
            f'outputs={outputs!r}: choose what happens to later outputs: "retract" takes them back, "again" '
            "publishes them a second time"
        )


def check_can_take_back(newest: Manifest, outputs: str, url: str) -> None:
    """Refused if outputs are to be taken back but a sink of the job cannot: no run could continue."""
    unable = [name for name, part in newest.sinks.items() if "retract" not in part.does]
    if outputs == "retract" and unable:
        raise Refused(
            f"{url}: the sink {', '.join(map(repr, unable))} of this job cannot take back its published outputs, so "
            'outputs="retract" is not possible. Nothing was changed. outputs="again" (--outputs=again) publishes '
            "them a second time, to every sink; or delete them there by hand, and then begin a new checkpoint"
        )


def _check_can_undo(log: Log, manifests: Manifests, target: Manifest) -> None:
    """Refused if a sink of the job, or one that was omitted since the target, can neither take back in place nor append
    rows that do."""
    url, newest = log.storage.url, manifests.newest.manifest
    sinks = {**_left_out(manifests, target.id), **newest.sinks}
    by_rows = {name: part for name, part in sinks.items() if part.is_undone_by_rows}
    others = {name: part for name, part in sinks.items() if name not in by_rows}
    check_can_take_back(replace(newest, sinks=others), "retract", url)
    first = _first_undone(manifests, target)
    for name, part in by_rows.items():
        fault = why_not(log, manifests, target, first, name, part)
        if fault:
            raise Refused(
                f"{url}: the sink {name!r} can take back its published outputs only by further rows, and {fault}. "
                'Nothing was changed. outputs="again" (--outputs=again) publishes them a second time, to every sink; '
                "or go back to a later checkpoint"
            )


def _first_undone(manifests: Manifests, target: Manifest) -> int:
    """The id from which outputs are taken back."""
    old = manifests.newest.manifest
    # Include fences and compactions: outputs published under an id above their checkpoint's are of a lost one.
    first = target.base + 1
    if old.retract is not None and target.id >= old.retract[0] and not old.has_left(target.id):
        # The last rollback is incomplete: the next publication takes back everything at once.
        first = min(first, old.retract[0])
    return first


def check_left_out(manifests: Manifests, target: int, outputs: str, url: str) -> None:
    """Refused as in ``check_can_take_back``, for a sink that was omitted since the target."""
    check_can_take_back(replace(manifests.newest.manifest, sinks=_left_out(manifests, target)), outputs, url)


def rolled_back(
    manifests: Manifests, target: Manifest, *, take_back: bool, emptied: Collection[str] = ()
) -> dict[str, Any]:
    """The fields of the manifest that sets the job to what ``target`` holds. ``emptied``: the sinks that get every key.

    Outputs staged up to the target stay listed, because they may be unpublished. Later ones stay too, unless they are
    taken back, because a further rollback may return to a checkpoint where they count.
    """
    old, id, now_ms = manifests.newest.manifest, manifests.attempt.id, wall_ms()
    sinks = named_after({**(_left_out(manifests, target.id) if take_back else {}), **old.sinks}, target.nodes)
    lost = old.bases.keys() - manifests.bases().keys()
    first = _first_undone(manifests, target)
    return {
        "epoch": manifests.attempt.epoch,
        "sources": target.sources,
        "tasks": target.tasks,
        "nodes": target.nodes,
        "corrections": target.corrections,
        "sinks": {
            name: _gone_back(replace(sink, emptied=name in emptied), id, target.id if take_back else id)
            for name, sink in sinks.items()
        },
        "aside": tuple(aside for aside in old.aside if aside.id <= target.id or not take_back),
        "pins": tuple(pin for pin in old.pins if pin not in lost),
        "commits": commits_of({**{base: ms for base, ms in old.bases.items() if base not in lost}, id: now_ms}),
        "burnt": tuple(sorted({*old.burnt, *manifests.unreadable, *lost, *({manifests.above} - {-1})})),
        "committed_ms": now_ms,
        "target": target.id,
        "retract": (first, id) if take_back else None,
        "publishes": _publishes(manifests, target.id, take_back=take_back),
        "left": (
            *(branch for branch in old.left if not branch[0] <= target.id < branch[1]),
            (target.id + 1, id, take_back),
        ),
    }


def _left_out(manifests: Manifests, target: int) -> dict[str, SinkPart]:
    """The sinks that the job has omitted since the target, and that may have received later batches, which nothing else
    takes back. All their batches were published, or they could not have been omitted."""
    newest = manifests.newest.manifest
    since = {id: manifests.entries[id].manifest for id in sorted(manifests.entries) if id >= target}
    is_whole = len(since) == newest.id - target + 1 and not manifests.is_lost
    return {
        name: replace(part, unpublished=())
        for manifest in since.values()
        for name, part in manifest.sinks.items()
        if name not in newest.sinks and (not is_whole or (part.last or 0) > target)
    }


def _publishes(manifests: Manifests, target: int, *, take_back: bool) -> bool | None:
    """Whether the branch that is left had a sink: None if that is unknown and its outputs are to be taken back."""
    if any(manifest.publishes for id, manifest in manifests.bases().items() if id >= target):
        return True
    return None if take_back and not _nothing_since(manifests, target) else manifests.newest.manifest.publishes


def _nothing_since(manifests: Manifests, target: int) -> bool:
    """Whether it is certain that no sink received a batch since the target, although later checkpoints are
    collected."""
    old = manifests.newest.manifest
    if target not in manifests.entries:
        return False
    if not old.result_sinks():
        # As far as the log shows, the job never had a sink. A run without a sink lists earlier sinks.
        return True
    lost = any(id > target for id in (*manifests.unreadable, *old.burnt))
    # Only the last sink is listed. If it has no batch yet, another sink may have been used in between.
    same = {name: part.last for name, part in old.result_sinks().items()} == {
        name: part.last
        for name, part in manifests.entries[target].manifest.result_sinks().items()
        if part.last is not None
    }
    return same and not lost


def _gone_back(sink: SinkPart, id: int, limit: int) -> SinkPart:
    """The batches of a sink after rollback ``id``, if those staged above ``limit`` are taken back. The rollback is the
    sink's last known batch: lost manifests may have published batches that no other manifest lists."""
    return replace(sink, last=id, unpublished=tuple(batch for batch in sink.unpublished if batch.id <= limit))


def _target(log: Log, manifests: Manifests, to: int | None, clock: int | None) -> Manifest:
    bases = {id: manifest for id, manifest in manifests.bases().items() if not was_taken_back(manifests, id)}
    there = f"you can go back to {', '.join(map(str, sorted(bases)))}"
    if to is not None:
        if to in manifests.entries and was_taken_back(manifests, to):
            # Its windows would never be published again.
            raise Refused(
                f"{log.storage.url}: a rollback went back behind checkpoint {to} and takes back its outputs; {there}"
            )
        # A fence can outlive the checkpoint whose files it names.
        if to in manifests.entries and manifests.keeps(manifests.entries[to].manifest):
            return manifests.entries[to].manifest
        what = "cannot be read" if to in manifests.unreadable else "is not kept"
        raise UnknownCheckpoint(f"{log.storage.url}: checkpoint {to} {what}; {there}")
    ids = [id for id, manifest in bases.items() if manifest.furthest <= (clock or 0)]
    if not ids:
        clocks = [manifest.furthest for manifest in bases.values()]
        earliest = f"the earliest is at {utc_text(min(clocks))}" if clocks else "there is none"
        raise UnknownCheckpoint(
            f"{log.storage.url} keeps no checkpoint whose clock is at most {utc_text(clock or 0)}; {earliest}"
        )
    return bases[max(ids)]


def was_taken_back(manifests: Manifests, target: int) -> bool:
    """Whether the outputs of the target's branch were taken back."""
    return any(taken_back and first <= target < stop for first, stop, taken_back in manifests.newest.manifest.left)


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
