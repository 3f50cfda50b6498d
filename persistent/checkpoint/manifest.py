"""A manifest is one checkpoint: state, clock, positions and outputs of one moment, committed by one file.

Laws, along the chain of parents: ids and epochs never decrease, nor do positions and the clock, except where a
manifest sets the state anew (``SETS``); ``base`` is the manifest's own id where it holds a state of its own, and is
copied by fences and compactions; per partition ``read = processed + late + dead + duplicate``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from persistent.checkpoint.shapes import FORMATS, MANIFEST, RECORDED, WIDE, check_format
from persistent.clock import Clock
from persistent.codec import Run, decode_document, encode_document
from persistent.codec.shapes import check_shape
from persistent.sinks.protocol import Staged
from persistent.sources.protocol import Positions

FORMAT = FORMATS[-1]
HASH_VERSION = 1
_MODULUS = 1 << 64
_FENCES_KEPT = 16
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
    ``lowest``: the smallest pane that some open window still needs, None when nothing is held. ``known_from``: of a
    state with history, the clock from which on its panes were kept apart, whatever history it had; None where it is not
    recorded.
    """

    fingerprint: Mapping[str, Any]
    key_names: tuple[str, ...]
    key_types: tuple[str, ...]
    runs: tuple[Run, ...] = ()
    lowest: int | None = None
    published: int = 0
    known_from: int | None = None

    def described(self) -> dict[str, Any]:
        """What it is made of, its key included, as the words of a change are made from it."""
        return {**self.fingerprint, "key": list(self.key_names)}


@dataclass(frozen=True)
class SourcePart:
    """Where the source stands, and what was recorded of it. ``since``: records of an earlier time (ms) were counted
    when the source was read before, at positions that are gone."""

    kind: str
    partitions: tuple[str, ...]
    positions: Positions
    recorded: Mapping[str, Any] = field(default_factory=dict)
    index: tuple[Run, ...] = ()
    since: int | None = None


@dataclass(frozen=True)
class Manifest:
    """One entry of the manifest log.

    ``bases``: the ids that name files of their own and are kept, with the time of day of their commit (ms): the newest,
    those kept by the policy of retention, and ``pins``, kept until they are unpinned; ``burnt``: ids that were lost or
    could not be read when the job went back. ``committed_ms``: the time of day of its plan, 0 where unknown.
    ``target``: of a rollback, the id gone back to. ``origin``: job and id of the checkpoint that this job was started
    from.
    ``retract``: outputs published under ids from the first up to the second are to be taken back; done again by whoever
    publishes, until the next checkpoint. ``left``: the ids, from the first up to the second, that a rollback went back
    behind, and whether it took back what they published; as long as one of them is kept. ``publishes``: whether
    the driver of this state had a sink; None where it is not recorded. ``format``: the one it was read in.
    """

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
    bases: Mapping[int, int] = field(default_factory=dict)
    burnt: tuple[int, ...] = ()
    committed_ms: int = 0
    target: int | None = None
    retract: tuple[int, int] | None = None
    left: tuple[tuple[int, int, bool], ...] = ()
    origin: tuple[str, int] | None = None
    publishes: bool | None = None
    format: int = FORMAT

    @property
    def is_base(self) -> bool:
        """Whether it holds a state of its own, rather than that of the manifest before."""
        return self.base == self.id

    def keeps(self, id: int) -> bool:
        """Whether manifest ``id`` and its files are to be kept: those that hold a state of their own, and, of the
        fences that others stand on, no more than a few: however many a driver has left that was started again and
        again, what they say the newest says too."""
        if id in self.burnt or id < self.oldest:
            return id in self.bases and id not in self.burnt
        # The first format does not say which hold a state of their own. In blocks, so that not every start deletes one.
        is_recent = not self.bases or id >= self.id - self.id % _FENCES_KEPT or id + 1 == self.id
        return is_recent or id in self.bases or id + 1 in self.bases

    def files(self) -> set[str]:
        """The names of all runs this manifest needs."""
        named = {run.name for operator in self.operators.values() for run in operator.runs}
        return named | {run.name for run in self.source.index}

    def encode(self) -> bytes:
        """Its bytes, of the newest format."""
        return encode_document(
            {
                "format": FORMAT,
                "features": self._features(),
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
                    "since": self.source.since,
                },
                "operators": {
                    name: {
                        "fingerprint": operator.fingerprint,
                        "key_names": list(operator.key_names),
                        "key_types": list(operator.key_types),
                        "lowest": operator.lowest,
                        "published": operator.published,
                        "runs": [run.to_json() for run in operator.runs],
                        **({} if operator.known_from is None else {"known_from": operator.known_from}),
                    }
                    for name, operator in self.operators.items()
                },
                "outputs": [_outputs_json(outputs) for outputs in self.outputs],
                "ledger": {partition: account.__dict__ for partition, account in self.ledger.items()},
                "fences": self.fences,
                "replan": self.replan,
                "pins": list(self.pins),
                "bases": [[id, ms] for id, ms in sorted(self.bases.items())],
                "burnt": list(self.burnt),
                "committed_ms": self.committed_ms,
                "target": self.target,
                "retract": list(self.retract) if self.retract else None,
                "left": [list(branch) for branch in self.left],
                "origin": list(self.origin) if self.origin else None,
                **({} if self.publishes is None else {"publishes": self.publishes}),
            }
        )

    def _features(self) -> list[str]:
        operators = self.operators.values()
        is_wide = any(run.wide for one in operators for run in one.runs)
        is_recorded = self.publishes is not None or any(one.known_from is not None for one in operators)
        return [name for name, needed in ((WIDE, is_wide), (RECORDED, is_recorded)) if needed]

    @staticmethod
    def decode(data: bytes, place: str) -> Manifest:
        """The manifest that these bytes hold; CorruptCheckpoint, naming ``place``, if they hold none."""
        body = decode_document(data, place)
        check_format(body, place)
        check_shape(MANIFEST[body["format"]], body, place, "a manifest")
        return _manifest_of(body)


def manifest_sha256(data: bytes) -> str:
    """What a child says of its parent."""
    return hashlib.sha256(data).hexdigest()


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
    return tuple(Run.from_json(entry) for entry in entries)


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
            None if body["format"] == 1 else source["since"],
        ),
        operators={
            name: OperatorState(
                operator["fingerprint"],
                tuple(operator["key_names"]),
                tuple(operator["key_types"]),
                _runs(operator["runs"]),
                operator["lowest"],
                operator["published"],
                operator.get("known_from"),
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
        **({} if body["format"] == 1 else _since_format_2(body)),
        format=body["format"],
    )


def _since_format_2(body: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "bases": dict(body["bases"]),
        "burnt": tuple(body["burnt"]),
        "committed_ms": body["committed_ms"],
        "target": body["target"],
        "retract": (body["retract"][0], body["retract"][1]) if body["retract"] else None,
        "left": tuple((first, stop, taken_back) for first, stop, taken_back in body["left"]),
        "origin": (body["origin"][0], body["origin"][1]) if body["origin"] else None,
        "publishes": body.get("publishes"),
    }
