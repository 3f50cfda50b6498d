"""The table of succession defines which fields each kind of manifest copies from its predecessor, which it sets, and
which it resets.

``succeed`` makes every manifest but the first, and refuses a field that the table does not let that kind set. The laws
between neighbours in the log derive from the same table: they are checked before a manifest is put, and again by
``verify`` after it is read. CONTRIBUTING.md lists what a new field needs besides its row here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from msgspec import NODEFAULT
from msgspec.structs import asdict, fields, replace

from persistent.checkpoint.manifest import KINDS, SETS, Manifest
from persistent.checkpoint.output_parts import correction_laws, named_after
from persistent.checkpoint.parts import Account, NodePart, SourcePart, TaskPart
from persistent.codec.fields import CODECS
from persistent.errors import LawBroken
from persistent.names import new_nonce


@dataclass(frozen=True)
class Entry:
    """A manifest in the log, with the SHA-256 of its bytes and their number."""

    manifest: Manifest
    sha256: str
    bytes: int


class Rule(Enum):
    """The origin of a field: ``COPIED`` from the previous manifest; ``SET`` by the maker; ``MAY``, set or copied;
    ``RESET`` to its value in the first manifest of a job; ``OWN``, the id of the manifest itself."""

    COPIED = "copied"
    SET = "set"
    MAY = "may be set"
    RESET = "reset"
    OWN = "its own id"


_COPIED, _SET, _MAY, _RESET, _OWN = Rule
# fmt: off
_ROWS: Mapping[str, tuple[Rule, ...]] = {
    #               fence    checkpoint correction compaction migration rollback savepoint merge
    "job":           (_COPIED, _COPIED,   _COPIED,   _COPIED,   _COPIED,  _COPIED,  _COPIED,  _COPIED),
    "base":          (_COPIED, _OWN,      _OWN,      _COPIED,   _COPIED,  _OWN,     _OWN,     _OWN),
    "oldest":        (_COPIED, _SET,      _SET,      _COPIED,   _COPIED,  _COPIED,  _OWN,     _OWN),
    "epoch":         (_SET,    _COPIED,   _COPIED,   _COPIED,   _COPIED,  _SET,     _COPIED,  _COPIED),
    "sources":       (_COPIED, _SET,      _COPIED,   _SET,      _COPIED,  _SET,     _SET,     _SET),
    "tasks":         (_COPIED, _SET,      _COPIED,   _COPIED,   _SET,     _SET,     _SET,     _SET),
    "nodes":         (_COPIED, _SET,      _SET,      _SET,      _SET,     _SET,     _SET,     _SET),
    "sinks":         (_COPIED, _SET,      _SET,      _COPIED,   _SET,     _SET,     _RESET,   _RESET),
    "aside":         (_COPIED, _SET,      _SET,      _COPIED,   _COPIED,  _SET,     _RESET,   _RESET),
    "fences":        (_SET,    _RESET,    _RESET,    _COPIED,   _SET,     _RESET,   _RESET,   _RESET),
    "replan":        (_SET,    _RESET,    _RESET,    _COPIED,   _SET,     _RESET,   _RESET,   _RESET),
    "pins":          (_MAY,    _COPIED,   _COPIED,   _COPIED,   _COPIED,  _SET,     _RESET,   _RESET),
    "commits":       (_MAY,    _SET,      _SET,      _SET,      _SET,     _SET,     _SET,     _SET),
    "burnt":         (_MAY,    _SET,      _SET,      _COPIED,   _COPIED,  _SET,     _RESET,   _RESET),
    "committed_ms":  (_COPIED, _SET,      _SET,      _COPIED,   _COPIED,  _SET,     _SET,     _SET),
    "target":        (_COPIED, _RESET,    _RESET,    _COPIED,   _COPIED,  _SET,     _RESET,   _RESET),
    "retract":       (_COPIED, _RESET,    _RESET,    _COPIED,   _COPIED,  _SET,     _RESET,   _RESET),
    "left":          (_COPIED, _SET,      _SET,      _COPIED,   _COPIED,  _SET,     _RESET,   _RESET),
    "origin":        (_COPIED, _COPIED,   _COPIED,   _COPIED,   _COPIED,  _COPIED,  _SET,     _SET),
    "publishes":     (_COPIED, _SET,      _SET,      _COPIED,   _COPIED,  _SET,     _RESET,   _RESET),
    "revision_base": (_COPIED, _COPIED,   _COPIED,   _COPIED,   _COPIED,  _COPIED,  _SET,     _SET),
    "inherits":      (_MAY,    _COPIED,   _COPIED,   _COPIED,   _COPIED,  _COPIED,  _SET,     _RESET),
    "not_after":     (_MAY,    _COPIED,   _COPIED,   _COPIED,   _COPIED,  _MAY,     _SET,     _SET),
    "corrections":   (_COPIED, _COPIED,   _SET,      _COPIED,   _COPIED,  _SET,     _SET,     _SET),
}
# fmt: on

TABLE: Mapping[str, Mapping[str, Rule]] = {
    kind: {name: rules[column] for name, rules in _ROWS.items()} for column, kind in enumerate(KINDS)
}
"""The rule of each field, by kind of manifest. ``id``, ``kind``, ``nonce`` and ``parent`` are the manifest's own."""

_FIRST = {
    field.name: field.default if field.default_factory is NODEFAULT else field.default_factory()
    for field in fields(Manifest)
}


def succeed(last: Entry, kind: str, *, id: int | None = None, nonce: str | None = None, **changes: Any) -> Manifest:
    """The manifest of that kind after ``last``, with the fields that its maker sets: the ``changes``.

    ``id`` and ``nonce``: by default the next id, and a new nonce. TypeError if one of the ``changes`` is no field for
    this kind to set, or such a field is missing; LawBroken if a law between neighbours does not hold.
    """
    old, rules = last.manifest, TABLE[kind]
    settable = {name for name, rule in rules.items() if rule in (Rule.SET, Rule.MAY)}
    missing = {name for name, rule in rules.items() if rule is Rule.SET} - changes.keys()
    wrong = [f"sets {name}" for name in sorted(changes.keys() - settable)]
    wrong += [f"omits {name}" for name in sorted(missing)]
    if wrong:
        raise TypeError(f"a manifest of kind {kind} after {old.id} {', '.join(wrong)}")
    id = old.id + 1 if id is None else id
    derived: dict[str, Any] = {name: id for name, rule in rules.items() if rule is Rule.OWN}
    derived |= {name: _FIRST[name] for name, rule in rules.items() if rule is Rule.RESET}
    manifest = replace(
        old,
        id=id,
        kind=kind,
        nonce=nonce or new_nonce(),
        parent=(old.id, last.sha256),
        **derived,
        **changes,
    )
    check_follows(manifest, old)
    return manifest


def first(nonce: str, sources: Mapping[str, SourcePart], nodes: Mapping[str, NodePart]) -> Manifest:
    """The empty checkpoint of a job with these sources and nodes, before anything is read."""
    accounts = {name: dict.fromkeys(source.partitions, Account()) for name, source in sources.items()}
    return Manifest(
        job=nonce,
        id=0,
        kind="checkpoint",
        base=0,
        oldest=0,
        epoch=0,
        nonce=nonce,
        sources={name: _unread(source) for name, source in sources.items()},
        tasks={name.partition("/")[0]: TaskPart(accounts) for name in nodes},
        nodes=nodes,
        commits=((0, 0),),
    )


def _unread(source: SourcePart) -> SourcePart:
    positions: dict[str, Any] = dict.fromkeys(source.partitions, CODECS[source.codec].first)
    seen = source.seen and replace(source.seen, expired=0, runs=())
    return SourcePart(source.kind, source.partitions, positions, codec=source.codec, seen=seen)


def check_follows(manifest: Manifest, parent: Manifest) -> None:
    """Raise LawBroken unless the laws between neighbours in the log hold (I2, I9)."""
    for law in broken(manifest, parent):
        raise LawBroken(f"manifest {manifest.id} after {parent.id} breaks the law that {law}; it was not committed")


def broken(manifest: Manifest, parent: Manifest) -> Iterator[str]:
    """The broken laws between neighbours, each as a sentence."""
    before, after = asdict(parent), asdict(manifest)
    for name, rule in TABLE[manifest.kind].items():
        value = after[name]
        if rule is Rule.COPIED and value != before[name]:
            yield f"a {manifest.kind} copies {name}"
        if rule is Rule.RESET and value != _FIRST[name]:
            yield f"a {manifest.kind} resets {name}"
        if rule is Rule.OWN and value != manifest.id:
            yield f"a {manifest.kind} has its own id as {name}"
    goes_on = manifest.kind not in SETS
    above_burnt = max((parent.id, *manifest.burnt)) + 1
    epoch = parent.epoch + (manifest.kind == "fence")
    laws = [
        ("ids count up by one, or continue above burnt ids", manifest.id in (parent.id + 1, above_burnt)),
        (
            "only a fence raises the epoch, by one",
            manifest.epoch == epoch or above_burnt == manifest.id != parent.id + 1,
        ),
        ("the oldest kept id never decreases", manifest.oldest >= parent.oldest),
        *_node_laws(manifest, parent, goes_on=goes_on),
        *(_source_laws(manifest, parent) if goes_on else ()),
        *_sink_laws(manifest, parent),
        *correction_laws(manifest.id, manifest.kind, parent.corrections, manifest.corrections),
        *_account_laws(manifest),
    ]
    yield from (law for law, holds in laws if not holds)


HeldLaw = tuple[str, bool]
"""A sentence, and whether it holds."""


def _node_laws(manifest: Manifest, parent: Manifest, *, goes_on: bool) -> Iterator[HeldLaw]:
    """A migration can bring a renamed task, which begins with the clock of an old one."""
    for name, node in manifest.nodes.items():
        new = node.clock
        yield "closed windows lie behind the clock", 0 <= new.closed <= new.watermark
        yield "final windows are closed", node.final <= new.closed
        before = parent.nodes.get(name)
        if goes_on and before is not None:
            yield "the clock never goes back", new.watermark >= before.clock.watermark
            yield "a closed window never reopens", new.closed >= before.clock.closed
            yield "a final window stays final", node.final >= before.final
    is_same, kind = manifest.nodes.keys() == parent.nodes.keys(), manifest.kind
    yield "only a migration brings other nodes", is_same or not goes_on or kind == "migration"
    if kind in ("compaction", "migration"):
        yield f"a {kind} moves no clock", _moves_none(manifest, parent)
    if kind == "migration":
        yield "a migration changes no account", _are_among(manifest.tasks, parent.tasks)


def _moves_none(manifest: Manifest, parent: Manifest) -> bool:
    """Whether each node keeps its clock. A new node has the clock of an old node, or that clock with all windows
    closed."""
    after, before = ({name: node.clock for name, node in version.nodes.items()} for version in (manifest, parent))
    known = {clock.watermark for clock in before.values()}
    added = {name for name, clock in after.items() if name not in before and clock.closed == clock.watermark in known}
    return _are_among({name: clock for name, clock in after.items() if name not in added}, before)


def _are_among(after: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Whether each name keeps its value, and each new name has the value of an old one."""
    return all(value == before[name] if name in before else value in before.values() for name, value in after.items())


def _source_laws(manifest: Manifest, parent: Manifest) -> Iterator[HeldLaw]:
    for name, before in parent.sources.items():
        after = manifest.sources.get(name, SourcePart("", (), {}))
        names = after.partitions[: len(before.partitions)]
        yield f"partitions of {name} join at the end, and none vanishes", names == before.partitions
        yield f"the positions of {name} keep their codec", after.codec == before.codec
        if before.seen is not None and after.seen is not None:
            yield f"seen records of {name} expire once", after.seen.expired >= before.seen.expired
        reached: Mapping[str, Any] = after.positions
        for partition, position in before.positions.items():
            at = reached.get(partition)
            holds = at is not None and after.codec == before.codec and position <= at
            yield f"positions of {partition} never go back", holds
        if manifest.kind == "compaction":
            index = replace(after, index=before.index) == before
            yield f"a compaction changes only the index of {name}", index


def _sink_laws(manifest: Manifest, parent: Manifest) -> Iterator[HeldLaw]:
    for name, after in manifest.sinks.items():
        before = parent.sinks.get(name)
        if before is not None and before.last is not None:
            yield f"the last batch of {name} never goes back", after.last is not None and after.last >= before.last
    if manifest.kind == "migration":
        renamed = named_after(parent.sinks, manifest.nodes)
        yield "a migration changes only the node of a sink", manifest.sinks == renamed


def _account_laws(manifest: Manifest) -> Iterator[HeldLaw]:
    for task in manifest.tasks.values():
        for accounts in task.inputs.values():
            for partition, account in accounts.items():
                if not account.balances:
                    yield f"the account of {partition} balances: {account}", False


def table_text() -> str:
    """The table in Markdown, as on the page of the protocol. Fields with the same rules share a row; an empty cell
    stands for a copied field.

    >>> print(table_text().splitlines()[2])
    | job | | | | | | | | |
    """
    names: dict[tuple[Rule, ...], list[str]] = {}
    for name, rules in _ROWS.items():
        names.setdefault(rules, []).append(name)
    cells = {rule: f" {rule.value} |" for rule in Rule} | {Rule.COPIED: " |"}
    lines = [f"| field | {' | '.join(KINDS)} |", "|---" * (len(KINDS) + 1) + "|"]
    lines += [f"| {', '.join(alike)} |{''.join(cells[rule] for rule in rules)}" for rules, alike in names.items()]
    return "\n".join(lines)
