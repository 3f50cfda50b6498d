"""Agreement between the parts of a manifest or plan: each refers to exactly the partitions of its source, and no id to
a later manifest.

What a field may be stands in its class. A function here raises Misfit, with the place of the first contradiction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from persistent.checkpoint.positions import CODECS
from persistent.codec import type_of
from persistent.codec.documents import Misfit
from persistent.time.lateness import EARLY


def manifest_agrees(manifest: Any) -> None:
    """A task reads sources that exist, and positions, clock and accounts refer to exactly the partitions of their
    source. Final windows are closed."""
    _in_order(manifest)
    _nodes_agree(manifest)
    for name, source in manifest.sources.items():
        partitions, place = source.partitions, f"sources.{name}"
        _check_once(partitions, f"{place}.partitions")
        _check_same(source.positions, partitions, f"{place}.positions")
        for part, among in (("largest", source.largest), ("idle", source.idle)):
            _check_among(among, partitions, f"{place}.{part}")
        _check_fit(source.codec, source.positions, f"{place}.positions")
        for number, reading in enumerate(source.readings):
            _check_fit(source.codec, reading.until, f"{place}.readings[{number}].until")
            _check_among(reading.until, partitions, f"{place}.readings[{number}].until")
    for aside in manifest.aside:
        for staged in (*aside.late, *aside.dead):
            if not staged.name.startswith("d/"):
                raise Misfit(f"aside: {staged.name!r:.60} is not a file in d/")
    for name, node in manifest.nodes.items():
        place = f"nodes.{name}"
        _check_key_types(node, f"{place}.key_types")
        _check_closed(node.final_at, node.clock.closed, f"{place}.final_at")
        if node.passed is not None and node.emit is None:
            raise Misfit(f"{place}: the clock of early results, of which there are none")
    for name, task in manifest.tasks.items():
        _check_some(f"inputs of {name}", task.inputs)
        _check_among(task.inputs, manifest.sources, f"tasks.{name}.inputs", "sources")
        for source, accounts in task.inputs.items():
            place = f"tasks.{name}.inputs.{source}"
            _check_same(accounts, manifest.sources[source].partitions, place)
            if any(account.mix >> 64 for account in accounts.values()):
                raise Misfit(f"{place}: a mix is no sum modulo 2**64")
    read = {source for task in manifest.tasks.values() for source in task.inputs}
    for name in manifest.sources:
        if name not in read:
            raise Misfit(f"sources.{name}: no task reads it")


def _in_order(manifest: Any) -> None:
    """No id refers to a later manifest."""
    for name, id in (("base", manifest.base), ("oldest", manifest.oldest), ("epoch", manifest.epoch)):
        if id > manifest.id:
            raise Misfit(f"{name} {id} is above its id {manifest.id}")
    if manifest.parent is not None and manifest.parent[0] >= manifest.id:
        raise Misfit(f"its parent {manifest.parent[0]} is not below its id {manifest.id}")
    ids = [id for id, _ in manifest.commits]
    if ids != sorted(set(ids)):
        raise Misfit("commits: the ids do not ascend")


def _nodes_agree(manifest: Any) -> None:
    """Each node belongs to a task, which has its key columns in all of them, and each task has a node."""
    for name, parts in (("sources", manifest.sources), ("tasks", manifest.tasks), ("nodes", manifest.nodes)):
        _check_some(name, parts)
    keys = dict[str, tuple[str, ...]]()
    for name, node in manifest.nodes.items():
        if keys.setdefault(name.partition("/")[0], node.key_names) != node.key_names:
            raise Misfit(f"nodes.{name}.key_names: differs from another node of its task")
    if keys.keys() != manifest.tasks.keys():
        raise Misfit(f"the nodes are of the tasks {_names(keys)}, the tasks are {_names(manifest.tasks)}")


def plan_agrees(plan: Any) -> None:
    """A step ends at its start or later. It reads only what lies between, from partitions that existed or join with the
    step."""
    _check_some("sources", plan.sources)
    _check_some("tasks", plan.tasks)
    for name, source in plan.sources.items():
        place, joins = f"sources.{name}.", source.joins
        _check_once(joins, f"{place}joins")
        known = [partition for partition in joins if partition in source.start]
        if known:
            raise Misfit(f"{place}joins: {_names(known)} joins and has a start")
        _check_fit(source.codec, source.start, f"{place}start")
        _check_fit(source.codec, source.end, f"{place}end")
        _check_same(source.end, [*source.start, *joins], f"{place}end")
        splits = [split.partition for split in source.splits]
        for part, partitions in (("splits", splits), ("idle", source.idle), ("skipped", source.skipped)):
            _check_among(partitions, source.end, f"{place}{part}")
        _check_no_way_back(source, place)
    for task, step in plan.tasks.items():
        _check_closed(step.final_at, step.close_at, f"tasks.{task}.final_at")
        if step.emit == EARLY and step.passed is None:
            raise Misfit(f"tasks.{task}.emit: is early, and by no clock")


def _check_some(what: str, names: Collection[str]) -> None:
    if not names:
        raise Misfit(f"has no {what}, which no release writes")


def _check_closed(final: int | None, closed: int, place: str) -> None:
    if final is not None and final > closed:
        raise Misfit(f"{place}: {final}: windows are final that end after {closed}, up to which they are closed")


def _check_fit(codec: str, positions: Mapping[str, Any], place: str) -> None:
    """Whether all of these are positions of the codec."""
    for partition, position in positions.items():
        if not CODECS[codec].has(position):
            raise Misfit(f"{place}: {position} of {partition:.60} is no position of the codec {codec}")


def _check_key_types(node: Any, place: str) -> None:
    """Every key column has a type, or none has until the first key is counted."""
    for name in node.key_types:
        try:
            type_of(name)
        except ValueError as error:
            raise Misfit(f"{place}: {error}") from error
    if node.key_types and len(node.key_types) != len(node.key_names):
        raise Misfit(f"{place}: needs as many key types as key names")


def _check_no_way_back(source: Any, place: str) -> None:
    codec, start = CODECS[source.codec], source.start
    read = ((split.partition, codec.of(span.ordinal, span.start)) for split in source.splits for span in split.spans)
    for part, positions in (("end", source.end.items()), ("splits", read)):
        for partition, at in positions:
            if partition in start and at < start[partition]:
                raise Misfit(f"{place}{part}: {partition:.60} at {at} is before its start {start[partition]}")


def _check_once(names: Collection[str], place: str) -> None:
    if len(set(names)) != len(names):
        raise Misfit(f"{place}: {_names(names)}: one of them twice")


def _check_same(names: Collection[str], partitions: Collection[str], place: str) -> None:
    if set(names) != set(partitions):
        raise Misfit(f"{place}: of {_names(names)}, the partitions are {_names(partitions)}")


def _check_among(names: Collection[str], there: Collection[str], place: str, what: str = "partitions") -> None:
    known = set(there)
    others = [name for name in names if name not in known]
    if others:
        raise Misfit(f"{place}: {_names(others)}, the {what} are {_names(there)}")


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"{name:.60}" for name in list(names)[:10]) or "none"
