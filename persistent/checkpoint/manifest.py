"""A manifest is one checkpoint: state, clock, positions and outputs of one moment, committed by one file.

Laws, along the chain of parents: ids, epochs, positions and the clock never decrease; ``base`` is the
manifest's own id for a checkpoint and that of the last checkpoint for a fence; per partition ``read =
processed + late + dead + duplicate``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from persistent.clock import Clock
from persistent.codec import KEY_GROUPS, Run, decode_document, encode_document
from persistent.errors import CorruptCheckpoint
from persistent.sinks.protocol import Staged
from persistent.sources.protocol import Positions

FORMAT = 1
HASH_VERSION = 1
_MODULUS = 1 << 64
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=@+-]{0,199}")


@dataclass(frozen=True)
class Account:
    """What became of the records read from one partition, each counted once.

    ``mix``: the sum modulo 2**64 of the hashes of (partition, ordinal, offset, timestamp) of every record read.
    """

    read: int = 0
    processed: int = 0
    late: int = 0
    dead: int = 0
    duplicate: int = 0
    mix: int = 0

    def __add__(self, other: Account) -> Account:
        return Account(
            self.read + other.read,
            self.processed + other.processed,
            self.late + other.late,
            self.dead + other.dead,
            self.duplicate + other.duplicate,
            (self.mix + other.mix) % _MODULUS,
        )

    @property
    def balances(self) -> bool:
        return self.read == self.processed + self.late + self.dead + self.duplicate


@dataclass(frozen=True)
class Outputs:
    """What a checkpoint staged, to be published under its id: windows for the sink, late rows and dead letters."""

    id: int
    sink: tuple[Staged, ...] = ()
    late: tuple[Staged, ...] = ()
    dead: tuple[Staged, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.sink or self.late or self.dead)

    def names(self) -> set[str]:
        return {staged.name for staged in (*self.sink, *self.late, *self.dead)}


@dataclass(frozen=True)
class OperatorState:
    """The state of one task: what it is made of, and the runs whose sum it is, oldest first.

    ``published``: the id of the checkpoint that last published a state without windows.
    ``lowest``: the smallest pane that some open window still needs, None when nothing is held.
    """

    fingerprint: Mapping[str, Any]
    key_names: tuple[str, ...]
    key_types: tuple[str, ...]
    runs: tuple[Run, ...] = ()
    lowest: int | None = None
    published: int = 0


@dataclass(frozen=True)
class SourcePart:
    """Where the source stands, and what was recorded of it."""

    kind: str
    partitions: tuple[str, ...]
    positions: Positions
    recorded: Mapping[str, Any] = field(default_factory=dict)
    index: tuple[Run, ...] = ()


@dataclass(frozen=True)
class Manifest:
    """One entry of the manifest log."""

    job: str
    id: int
    kind: str
    base: int
    oldest: int
    epoch: int
    nonce: str
    clock: Clock
    source: SourcePart
    operators: Mapping[str, OperatorState]
    ledger: Mapping[str, Account]
    outputs: tuple[Outputs, ...] = ()
    parent: tuple[int, str] | None = None
    fences: int = 0
    replan: int = 0
    pins: tuple[int, ...] = ()

    def files(self) -> set[str]:
        """The names of all runs this manifest needs."""
        named = {run.name for operator in self.operators.values() for run in operator.runs}
        return named | {run.name for run in self.source.index}

    def encode(self) -> bytes:
        return encode_document(
            {
                "format": FORMAT,
                "features": [],
                "job": self.job,
                "id": self.id,
                "kind": self.kind,
                "base": self.base,
                "oldest": self.oldest,
                "epoch": self.epoch,
                "nonce": self.nonce,
                "parent": {"id": self.parent[0], "sha256": self.parent[1]} if self.parent else None,
                "clock": self.clock.to_json(),
                "source": {
                    "kind": self.source.kind,
                    "partitions": list(self.source.partitions),
                    "positions": {name: list(position) for name, position in self.source.positions.items()},
                    "recorded": self.source.recorded,
                    "index": [run.to_json() for run in self.source.index],
                },
                "operators": {
                    name: {
                        "fingerprint": operator.fingerprint,
                        "key_names": list(operator.key_names),
                        "key_types": list(operator.key_types),
                        "lowest": operator.lowest,
                        "published": operator.published,
                        "runs": [run.to_json() for run in operator.runs],
                    }
                    for name, operator in self.operators.items()
                },
                "outputs": [_outputs_json(outputs) for outputs in self.outputs],
                "ledger": {partition: account.__dict__ for partition, account in self.ledger.items()},
                "fences": self.fences,
                "replan": self.replan,
                "pins": list(self.pins),
            }
        )

    @staticmethod
    def decode(data: bytes, place: str) -> Manifest:
        body = decode_document(data, place)
        check_format(body, place)
        try:
            return _manifest_of(body)
        except (KeyError, TypeError, IndexError) as error:
            raise CorruptCheckpoint(f"{place}: not a manifest ({error!r})") from error


def manifest_sha256(data: bytes) -> str:
    """What a child says of its parent."""
    return hashlib.sha256(data).hexdigest()


def check_format(body: Mapping[str, Any], place: str) -> None:
    """Refuse a format or feature that this release does not know."""
    if body.get("format") != FORMAT:
        raise CorruptCheckpoint(
            f"{place}: format {body.get('format')}, this release reads {FORMAT}: use a newer release"
        )
    if body.get("features"):
        raise CorruptCheckpoint(f"{place}: needs {', '.join(body['features'])}, unknown here: use a newer release")


def check_name(name: str, what: str) -> str:
    """Only names from our alphabet stand in a checkpoint."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{what} {name!r}: use letters, digits and . _ = @ + - (at most 200), starting with one of the first two"
        )
    return name


def _outputs_json(outputs: Outputs) -> dict[str, Any]:
    return {
        "id": outputs.id,
        **{kind: [dict(staged.__dict__) for staged in getattr(outputs, kind)] for kind in ("sink", "late", "dead")},
    }


def _staged(entries: Sequence[Mapping[str, Any]]) -> tuple[Staged, ...]:
    return tuple(Staged(**entry) for entry in entries)


def _runs(entries: Sequence[dict[str, Any]]) -> tuple[Run, ...]:
    runs = tuple(Run.from_json(entry) for entry in entries)
    for run in runs:
        for part in run.name.split("/"):
            check_name(part, "run")
        if not 0 <= run.start <= run.low < run.high <= KEY_GROUPS:
            raise KeyError(f"run {run.name}: key groups {run.low} to {run.high}")
    return runs


def _manifest_of(body: Mapping[str, Any]) -> Manifest:
    source = body["source"]
    return Manifest(
        job=body["job"],
        id=body["id"],
        kind=body["kind"],
        base=body["base"],
        oldest=body["oldest"],
        epoch=body["epoch"],
        nonce=body["nonce"],
        parent=(body["parent"]["id"], body["parent"]["sha256"]) if body["parent"] else None,
        clock=Clock.from_json(body["clock"]),
        source=SourcePart(
            source["kind"],
            tuple(source["partitions"]),
            {name: (position[0], position[1]) for name, position in source["positions"].items()},
            source["recorded"],
            _runs(source["index"]),
        ),
        operators={
            name: OperatorState(
                operator["fingerprint"],
                tuple(operator["key_names"]),
                tuple(operator["key_types"]),
                _runs(operator["runs"]),
                operator["lowest"],
                operator["published"],
            )
            for name, operator in body["operators"].items()
        },
        outputs=tuple(
            Outputs(entry["id"], _staged(entry["sink"]), _staged(entry["late"]), _staged(entry["dead"]))
            for entry in body["outputs"]
        ),
        ledger={partition: Account(**account) for partition, account in body["ledger"].items()},
        fences=body["fences"],
        replan=body["replan"],
        pins=tuple(body["pins"]),
    )
