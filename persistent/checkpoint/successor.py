"""The table of succession says, of each kind of manifest, which fields it copies from the manifest before it, which it
sets, and which begin anew.

``succeed`` is the only maker of a manifest that has one before it, and refuses what the table does not let that kind
set. The laws between neighbours in the log derive from the same table: a manifest is checked by them before it is put,
and again by ``verify`` after it is read. A new field is one row here.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Any

from persistent.checkpoint.manifest import FORMAT, Account, Manifest, OperatorState, SourcePart
from persistent.checkpoint.shapes import SETS
from persistent.clock import Clock
from persistent.errors import LawBroken


@dataclass(frozen=True)
class Entry:
    """A manifest as it stands in the log, with the SHA-256 of its bytes and their number."""

    manifest: Manifest
    sha256: str
    bytes: int


class Rule(Enum):
    """What becomes of a field: ``COPIED`` from the manifest before; ``SET`` by its maker; ``MAY``, set or copied;
    ``RESET`` to what it is in the first manifest of a job; ``OWN``, the id of the manifest itself."""

    COPIED = "copied"
    SET = "set"
    MAY = "may be set"
    RESET = "reset"
    OWN = "its own id"


KINDS = ("fence", "checkpoint", "compaction", "migration", "rollback", "savepoint", "merge")

_COPIED, _SET, _MAY, _RESET, _OWN = Rule
# fmt: off
_ROWS: Mapping[str, tuple[Rule, ...]] = {
    #               fence    checkpoint compaction migration rollback savepoint merge
    "job":          (_COPIED, _COPIED,  _COPIED,   _COPIED,  _COPIED, _COPIED,  _COPIED),
    "base":         (_COPIED, _OWN,     _COPIED,   _COPIED,  _OWN,    _OWN,     _OWN),
    "oldest":       (_COPIED, _SET,     _COPIED,   _COPIED,  _COPIED, _OWN,     _OWN),
    "epoch":        (_SET,    _COPIED,  _COPIED,   _COPIED,  _SET,    _COPIED,  _COPIED),
    "clock":        (_COPIED, _SET,     _COPIED,   _COPIED,  _SET,    _SET,     _SET),
    "source":       (_COPIED, _SET,     _SET,      _COPIED,  _SET,    _SET,     _SET),
    "operators":    (_COPIED, _SET,     _SET,      _SET,     _SET,    _SET,     _SET),
    "ledger":       (_COPIED, _SET,     _COPIED,   _COPIED,  _SET,    _SET,     _SET),
    "outputs":      (_COPIED, _SET,     _COPIED,   _COPIED,  _SET,    _RESET,   _RESET),
    "fences":       (_SET,    _RESET,   _COPIED,   _SET,     _RESET,  _RESET,   _RESET),
    "replan":       (_SET,    _RESET,   _COPIED,   _SET,     _RESET,  _RESET,   _RESET),
    "pins":         (_MAY,    _COPIED,  _COPIED,   _COPIED,  _SET,    _RESET,   _RESET),
    "bases":        (_MAY,    _SET,     _SET,      _SET,     _SET,    _SET,     _SET),
    "burnt":        (_MAY,    _SET,     _COPIED,   _COPIED,  _SET,    _RESET,   _RESET),
    "committed_ms": (_COPIED, _SET,     _COPIED,   _COPIED,  _SET,    _SET,     _SET),
    "target":       (_COPIED, _RESET,   _COPIED,   _COPIED,  _SET,    _RESET,   _RESET),
    "retract":      (_COPIED, _RESET,   _COPIED,   _COPIED,  _SET,    _RESET,   _RESET),
    "left":         (_COPIED, _SET,     _COPIED,   _COPIED,  _SET,    _RESET,   _RESET),
    "origin":       (_COPIED, _COPIED,  _COPIED,   _COPIED,  _COPIED, _SET,     _SET),
    "publishes":    (_COPIED, _SET,     _COPIED,   _COPIED,  _SET,    _RESET,   _RESET),
}
# fmt: on

TABLE: Mapping[str, Mapping[str, Rule]] = {
    kind: {name: rules[column] for name, rules in _ROWS.items()} for column, kind in enumerate(KINDS)
}
"""Of each kind of manifest, the rule of each field. ``id``, ``kind``, ``nonce``, ``parent`` and ``format`` are the
manifest's own."""

_FIRST = {field.name: field.default for field in fields(Manifest)} | {"bases": {}}


def new_nonce() -> str:
    """A name that nobody else has drawn."""
    return uuid.uuid4().hex


def succeed(
    last: Entry, kind: str, *, id: int | None = None, nonce: str | None = None, format: int = FORMAT, **given: Any
) -> Manifest:
    """The manifest of that kind after ``last``, with the fields that its maker has to give.

    ``id`` and ``nonce``: by default the next, and one of its own. TypeError where a field is given that this kind does
    not set, or one is missing; LawBroken where it does not follow.
    """
    old, rules = last.manifest, TABLE[kind]
    settable = {name for name, rule in rules.items() if rule in (Rule.SET, Rule.MAY)}
    missing = {name for name, rule in rules.items() if rule is Rule.SET} - given.keys()
    wrong = [f"sets {name}" for name in sorted(given.keys() - settable)]
    wrong += [f"does not say {name}" for name in sorted(missing)]
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
        format=format,
        **derived,
        **given,
    )
    check_follows(manifest, old)
    return manifest


def first(nonce: str, source: SourcePart, operators: Mapping[str, OperatorState]) -> Manifest:
    """The empty checkpoint of a job over that source, of which nothing has been read."""
    return Manifest(
        job=nonce,
        id=0,
        kind="checkpoint",
        base=0,
        oldest=0,
        epoch=0,
        nonce=nonce,
        clock=Clock(),
        source=SourcePart(source.kind, source.partitions, dict.fromkeys(source.partitions, (0, 0))),
        operators=operators,
        ledger={partition: Account() for partition in source.partitions},
        bases={0: 0},
    )


def check_follows(manifest: Manifest, parent: Manifest) -> None:
    """Raise LawBroken unless the laws between neighbours in the log hold (I2, I9)."""
    for law in broken(manifest, parent):
        raise LawBroken(f"manifest {manifest.id} after {parent.id} breaks the law that {law}; nothing was committed")


def broken(manifest: Manifest, parent: Manifest) -> Iterator[str]:
    """The laws between neighbours that do not hold, each as a sentence."""
    for name, rule in TABLE[manifest.kind].items():
        value = getattr(manifest, name)
        if rule is Rule.COPIED and value != getattr(parent, name):
            yield f"a {manifest.kind} copies {name}"
        if rule is Rule.RESET and value != _FIRST[name]:
            yield f"a {manifest.kind} resets {name}"
        if rule is Rule.OWN and value != manifest.id:
            yield f"a {manifest.kind} has its own id as {name}"
    old, new = parent.clock, manifest.clock
    goes_on = manifest.kind not in SETS
    above_burnt = max((parent.id, *manifest.burnt)) + 1
    epoch = parent.epoch + (manifest.kind == "fence")
    laws = [
        ("ids count up by one, or go on above what is burnt", manifest.id in (parent.id + 1, above_burnt)),
        (
            "only a fence raises the epoch, by one",
            manifest.epoch == epoch or above_burnt == manifest.id != parent.id + 1,
        ),
        ("the oldest kept id never decreases", manifest.oldest >= parent.oldest),
        ("what is closed lies behind the clock", 0 <= new.closed <= new.watermark),
        ("the clock never goes back", not goes_on or new.watermark >= old.watermark),
        ("what is closed never opens", not goes_on or old.closed <= new.closed),
    ]
    for partition, position in parent.source.positions.items() if goes_on else ():
        at = manifest.source.positions.get(partition)
        laws.append((f"positions of {partition} never go back", at is not None and at >= position))
    for partition, account in manifest.ledger.items():
        laws.append((f"the account of {partition} balances: {account}", account.balances))
    yield from (law for law, holds in laws if not holds)


def table_text() -> str:
    """The table as the page of the protocol has it.

    >>> print(table_text().splitlines()[2])
    | job | copied | copied | copied | copied | copied | copied | copied |
    """
    lines = [f"| field | {' | '.join(KINDS)} |", "|---" * (len(KINDS) + 1) + "|"]
    lines += [f"| {name} | {' | '.join(rule.value for rule in rules)} |" for name, rules in _ROWS.items()]
    return "\n".join(lines)
