"""A sink makes outputs visible once: first staged, out of sight, then published after a checkpoint names
them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa


@dataclass(frozen=True)
class Staged:
    """A staged output file: its name (which fixes its final name too), rows and bytes; ``sha256`` where the
    checkpoint reads it again."""

    name: str
    rows: int
    bytes: int
    sha256: str = ""


ABILITIES = ("mark", "newest", "retract", "staged", "tidy")
"""The methods that a sink need not have; a checkpoint records which of them its sink has."""


@runtime_checkable
class Sink(Protocol):
    """Where windows go.

    ``claim`` is called by the driver of ``job`` (the id in its checkpoint) before it stages or sweeps anything:
    a sink is one job's for good, and raises ``StorageError`` for every other, having changed nothing.
    ``stage`` is called by workers, perhaps more than once for the same rows, each time with another
    ``attempt`` (``e<epoch>-c<id>-<uuid>``, unique): the rows are durable but invisible when it returns.
    ``publish`` is called by the driver after the checkpoint ``staging_id`` is committed, and again after a
    crash: twice is once; a staged file that is neither staged nor published raises ``StagedMissing``.
    ``sweep`` deletes every staged file that is not in ``live`` and whose epoch is lower than ``epoch``, or
    equal with an id at or below ``id``. ``shared`` tells whether workers in other processes can stage.

    A sink that can may also have:
    ``retract(first, stop)``: take back what was published under the ids ``first <= id < stop``; twice is once. It has
    to hold against a driver that is fenced, has slept in ``publish``, and goes on after it.
    ``mark(first, stop)``: called before ``sweep`` and ``retract``; from here on nothing of these ids counts.
    ``tidy()``: delete what was published after it had been taken back.
    ``staged(job)``: the names of what is staged, of this job; then ``gc`` can list and sweep it.
    ``newest()``: the highest id under which anything is published, -1 if none; then a checkpoint that has lost its
    newest manifest is told by what it published.
    """

    shared: bool

    def claim(self, job: str) -> None: ...

    def stage(self, outputs: pa.Table, staging_id: int, attempt: str) -> Staged: ...

    def publish(self, staging_id: int, staged: Sequence[Staged]) -> None: ...

    def sweep(self, live: Collection[str], epoch: int, id: int) -> None: ...
