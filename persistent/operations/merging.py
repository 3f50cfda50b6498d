"""Merging joins two jobs over disjoint sources: the merged state is the sum of both."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

from msgspec.structs import replace

from persistent.checkpoint.commit_change import Decision, Location, Manifests, commit_change, log_of
from persistent.checkpoint.copies import Target, copied, newest_of, renumbered_source
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.output_parts import all_corrections
from persistent.checkpoint.parts import Accounts, NodeClock, NodePart, SourcePart, TaskPart
from persistent.checkpoint.running import marks
from persistent.checkpoint.successor import Entry, first
from persistent.codec.documents import canonical_json
from persistent.codec.fields import common_key_types
from persistent.connect.formats.schemas import from_json
from persistent.connect.halves import halves_of
from persistent.connect.offsets import place_id
from persistent.driver.same_job import check_same_job
from persistent.errors import Refused, StillRunning
from persistent.names import Attempt, new_nonce
from persistent.text.figures import utc_text
from persistent.text.fingerprints import changes_text
from persistent.time.clock import wall_ms


def merge(first: Location, second: Location, into: Location) -> Entry:
    """Put the sum of two jobs into the new checkpoint ``into``, as a job of its own; neither job changes.

    A pipeline over both sources continues from there as if it had read both from the beginning. Sources with the same
    name and kind but different partitions become one source. All others stay separate, each under its name; if both
    jobs use a name, the second source is numbered, as in a pipeline with a list of both.

    Refused if the jobs may have read the same records; if node, key, monoid or window differ; if one has an
    unfinished step or unpublished outputs, which one more run completes; or if one has published windows that the other
    still holds. Published outputs, late rows and dead letters stay with the old jobs, and what is published is final. A
    state without windows publishes every key again at the next end of input. For monoids that do not commute, the first
    job's updates come first.

    Only a sink knows whether it published everything staged, so run both jobs to the end of their input first. Repeat
    the call after an interrupted merge. Raises StillRunning if either job runs.
    """
    first_log, second_log, there = log_of(first), log_of(second), log_of(into)
    jobs = newest_of(first_log).manifest, newest_of(second_log).manifest
    for log, manifest in zip((first_log, second_log), jobs, strict=True):
        _check_at_rest(log, manifest)
    urls = first_log.storage.url, second_log.storage.url
    _check_disjoint(jobs, urls)
    _check_same_nodes(jobs, urls)
    _check_same_limit(jobs, urls)
    nodes = {id: _node(id, (jobs[0].nodes[id], jobs[1].nodes[id]), urls) for id in jobs[0].nodes}
    names = _names_of_second(jobs)
    empty = _empty(jobs[0].nodes, _sources(jobs, names, urls))

    def decide(manifests: Manifests) -> Decision:
        old = manifests.newest.manifest
        if old.base != 0:
            raise Refused(f"{there.storage.url}: already holds a job; merge into a new checkpoint")
        check_same_job(old, empty, there.storage.url)

        def write(attempt: Attempt) -> dict[str, Any]:
            now_ms, target = wall_ms(), Target(there.storage, attempt)
            copies = [copied(log.storage, job, target) for log, job in zip((first_log, second_log), jobs, strict=True)]
            return {
                "sources": _sources((copies[0], copies[1]), names, urls),
                "tasks": dict.fromkeys(jobs[0].tasks, TaskPart(_accounts(jobs, names))),
                "nodes": {
                    id: replace(node, runs=_counted_once(*(copy.nodes[id] for copy in copies)))
                    for id, node in nodes.items()
                },
                "commits": ((attempt.id, now_ms),),
                "committed_ms": now_ms,
                "origin": (jobs[0].job, jobs[0].id),
                "revision_base": max(job.revision for job in jobs),
                "not_after": jobs[0].not_after,
                "corrections": all_corrections(jobs[0].corrections, jobs[1].corrections),
            }

        return Decision("merge", write=write)

    # An interrupted call may have created it.
    there.create(empty)
    return commit_change(there, decide, take_over=True)


def _check_at_rest(log: Log, manifest: Manifest) -> None:
    """StillRunning or Refused unless the job is stopped, with nothing left to commit or publish."""
    log.check_whole(manifest)
    url = log.storage.url
    once = "run its pipeline once more, to the end of its input, then merge"
    for mark in marks(log.storage):
        if mark.epoch >= manifest.epoch and mark.may_run:
            raise StillRunning(f"{url}: a driver runs: {mark}. Stop it first; or, if it is gone, {once}")
        if mark.epoch >= manifest.epoch:
            raise Refused(f"{url}: its last driver was killed, and may have left outputs unpublished: {once}")
    if manifest.retract is not None:
        raise Refused(
            f"{url}: went back to checkpoint {manifest.target}, and may not have taken back later outputs yet: {once}. "
            f"If that run finds nothing to do, nothing is left to take back; then run 'persistent rollback {url} "
            f"{manifest.base} --outputs=again'"
        )
    if log.plan(manifest.base, manifest.replan) is not None:
        raise Refused(f"{url}: a step was begun but not committed: {once}")
    staged = {file.name for aside in manifest.aside for file in (*aside.late, *aside.dead)}
    for folder in {name.rpartition("/")[0] for name in staged}:
        if any(f"{folder}/{name}" in staged for name in log.storage.list(folder)):
            raise Refused(f"{url}: late rows or dead letters are not published yet: {once}")
    for name, node in manifest.nodes.items():
        if any(run.low > run.start for run in node.runs):
            raise Refused(
                f"{url}: a fold of the state of {name} is unfinished: finish it with 'persistent compact', then merge"
            )


def _check_disjoint(jobs: tuple[Manifest, Manifest], urls: tuple[str, str]) -> None:
    """Refused if two sources of one kind may have read the same records: they share a partition name, and are not known
    to be at different places."""
    parts = [
        [part for source in job.sources.values() for part in halves_of(source.kind, source.recorded, source.partitions)]
        for job in jobs
    ]
    for (kind, recorded, partitions), (other_kind, other_recorded, others) in product(*parts):
        shared = sorted({*partitions} & {*others})
        if kind == other_kind and shared and not _are_apart(recorded, other_recorded):
            raise Refused(
                f"both {urls[0]} and {urls[1]} have read partition {', '.join(shared)}: records that both have read "
                "would count twice. Only jobs over disjoint partitions can be merged"
            )


def _are_apart(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    """Whether two recorded sources are known to be at different places.

    >>> _are_apart({"root": "/in/eu"}, {"root": "/in/us"}), _are_apart({"root": "/in"}, {"root": "/in/us"})
    (True, False)
    >>> _are_apart({"topic_id": "a"}, {"topic_id": "b"}), _are_apart({}, {"topic_id": "b"})
    (True, False)
    """
    ids = place_id(left), place_id(right)
    if None not in ids:
        return ids[0] != ids[1]
    if "root" in left and "root" in right:
        a, b = (f"{recorded['root']}".rstrip("/") + "/" for recorded in (left, right))
        return not (a.startswith(b) or b.startswith(a))
    return False


def _names_of_second(jobs: tuple[Manifest, Manifest]) -> dict[str, str]:
    """The names of the second job's sources in the merged one."""
    taken, names = set(jobs[0].sources), dict[str, str]()
    for name, source in jobs[1].sources.items():
        before, number, chosen = jobs[0].sources.get(name), 2, name
        if before is None or before.kind != source.kind or {*before.partitions} & {*source.partitions}:
            while chosen in taken:
                chosen, number = f"{name}-{number}", number + 1
        names[name] = chosen
        taken.add(chosen)
    return names


def _sources(jobs: tuple[Manifest, Manifest], names: Mapping[str, str], urls: tuple[str, str]) -> dict[str, SourcePart]:
    """The sources of the merged job. ``names``: the merged names of the second job's sources."""
    sources = dict(jobs[0].sources)
    for name, source in jobs[1].sources.items():
        before = sources.get(names[name])
        sources[names[name]] = source if before is None else _joined(before, source, urls)
    return {name: renumbered_source(source) for name, source in sorted(sources.items())}


def _accounts(jobs: tuple[Manifest, Manifest], names: Mapping[str, str]) -> dict[str, Accounts]:
    first_accounts, second = jobs[0].inputs, jobs[1].inputs
    accounts = dict(first_accounts)
    for name, source_accounts in second.items():
        accounts[names[name]] = {**accounts.get(names[name], {}), **source_accounts}
    return accounts


def _check_same_nodes(jobs: tuple[Manifest, Manifest], urls: tuple[str, str]) -> None:
    a, b = (sorted(job.nodes) for job in jobs)
    if a != b:
        raise Refused(f"the nodes of {urls[0]} are {', '.join(a)}, those of {urls[1]} are {', '.join(b)}")


def _check_same_limit(jobs: tuple[Manifest, Manifest], urls: tuple[str, str]) -> None:
    """Refused if the two jobs limit timestamps differently: under the limit of one job, records of the other job would
    become dead letters, or set the clock ahead again."""
    limits = [job.not_after for job in jobs]
    if limits[0] != limits[1]:
        first, second = ("none" if limit is None else utc_text(limit) for limit in limits)
        raise Refused(
            f"timestamps are dead letters after {first} in {urls[0]}, after {second} in {urls[1]}, since a clock was "
            "set back. Lift the limit ('persistent clock URL --not-after none') once the record that it was set for is "
            "read again, then merge"
        )


def _node(name: str, nodes: tuple[NodePart, NodePart], urls: tuple[str, str]) -> NodePart:
    """The merged node, of the same node of two jobs, without its runs. Refused if the nodes differ in kind."""
    a, b = nodes
    changed = changes_text(a.described(), b.described())
    if changed:
        raise Refused(f"the state of {name} is not the same in {urls[0]} and in {urls[1]}: {changed}")
    if a.zone != b.zone:
        raise Refused(
            f"the windows of {name} in {urls[0]} and in {urls[1]} have their borders by other rules of one time zone: "
            "its zone data changed in between. Run one pipeline over both inputs from the beginning"
        )
    try:
        types = common_key_types([a.key_types, b.key_types])
    except TypeError as error:
        raise Refused(f"the keys of {name} in {urls[0]} and in {urls[1]}: {error}") from error
    lowest = min((node.lowest for node in nodes if node.lowest is not None), default=None)
    known, added = (
        max((at for node in nodes if (at := getattr(node, since)) is not None), default=None)
        for since in ("known_from", "added")
    )
    # Each job has published results of its own: what is published is final, and no correction covers both.
    clock, none = _clock(name, nodes, urls), {"runs": (), "published": 0, "final_at": None}
    return replace(a, clock=clock, key_types=types, lowest=lowest, known_from=known, added=added, **none)


def _counted_once(a: NodePart, b: NodePart) -> tuple[Any, ...]:
    """The runs of both, as the unpublished delta of one checkpoint."""
    return tuple(replace(run, first=1, last=1) for run in (*a.runs, *b.runs))


def _clock(name: str, nodes: tuple[NodePart, NodePart], urls: tuple[str, str]) -> NodeClock:
    """The clock of the job that is behind, for one node.

    If one job has published a window, the other must hold no state for it.
    """
    a, b = (node.clock for node in nodes)
    if nodes[0].has_time_to_live:
        raise Refused(
            f"{urls[0]} and {urls[1]} keep keys with a time to live, in {name}: a message that one has "
            "counted may join a life that has left the other, as each goes by a clock of its own. Run one pipeline "
            "over both inputs from the beginning"
        )
    if nodes[0].has_sessions and not (a.ended and b.ended):
        raise Refused(
            f"{urls[0]} and {urls[1]} keep sessions: a session that one has published, and one of the same key that is "
            "open in the other, may be one. Run both to their end (--end-of-input), then merge"
        )
    closed = min(a.closed, b.closed)
    if a.closed != b.closed and nodes[0].has_windows:
        behind = 0 if a.closed < b.closed else 1
        has_state = any(run.pane_max >= closed for run in nodes[behind].runs)
        if has_state or not nodes[behind].clock.ended:
            raise Refused(
                f"{urls[1 - behind]} has closed its windows up to {utc_text(max(a.closed, b.closed))}, {urls[behind]} "
                f"only up to {utc_text(closed)} and may still add to those between. Run {urls[behind]} until it has "
                "closed the same windows, or both to their end (--end-of-input)"
            )
        closed = max(a.closed, b.closed)
    return NodeClock(
        watermark=max(min(a.watermark, b.watermark), closed),
        closed=closed,
        ended=a.ended and b.ended,
    )


def _joined(a: SourcePart, b: SourcePart, urls: tuple[str, str]) -> SourcePart:
    """One source with the partitions of both. Refused if they were not read alike."""
    if a.index and b.index:
        raise Refused(
            f"{urls[0]} and {urls[1]} each list their inputs, numbered from 0: such lists cannot be joined. Run one "
            "pipeline over both inputs from the beginning"
        )
    if a.recorded and b.recorded and canonical_json(a.recorded) != canonical_json(b.recorded):
        raise Refused(f"{urls[0]} and {urls[1]} have not read alike: {_differing(a.recorded, b.recorded)}")
    if a.seen is not None or b.seen is not None:
        with_seen = " and ".join(url for job, url in zip((a, b), urls) if job.seen is not None)
        raise Refused(
            f"{with_seen}: recognises copies (dedupe=). The seen records of two jobs cannot be merged: a record that "
            "both have read would count twice. Run one pipeline over both inputs from the beginning"
        )
    if a.since != b.since:
        raise Refused(f"{urls[0]} began as of clock {a.since}, {urls[1]} as of {b.since}: they must be the same")
    return SourcePart(
        a.kind,
        (*a.partitions, *b.partitions),
        {**a.positions, **b.positions},
        a.recorded or b.recorded,
        (*a.index, *b.index),
        a.since,
        {**a.largest, **b.largest},
        codec=a.codec,
        readings=(*a.readings, *b.readings),
    )


def _empty(nodes: Mapping[str, NodePart], sources: Mapping[str, SourcePart]) -> Manifest:
    """The empty checkpoint of the merged job."""
    none = NodePart({})
    unread = {name: getattr(none, name) for name in ("clock", "key_types", "runs", "lowest", "published", "final_at")}
    return first(new_nonce(), sources, {name: replace(node, **unread) for name, node in nodes.items()})


def _differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    """The differences between two recorded sources.

    >>> _differing({"format": "csv"}, {"format": "csv", "timestamp": "ts"})
    'timestamp: none and ts'
    """
    names = [name for name in sorted({*a, *b}) if canonical_json(a.get(name)) != canonical_json(b.get(name))]
    return "; ".join(f"{name}: {_recorded_text(name, a)} and {_recorded_text(name, b)}" for name in names)


def _recorded_text(name: str, recorded: Mapping[str, Any]) -> str:
    if name == "schema" and name in recorded:
        return ", ".join(f"{field.name}: {field.type}" for field in from_json(recorded[name]))
    return str(recorded.get(name, "none"))
