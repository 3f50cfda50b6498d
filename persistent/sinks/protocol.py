"""A sink makes outputs visible once: they are staged out of sight, then published after a checkpoint names them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol, runtime_checkable

import pyarrow as pa

from persistent.checkpoint.names import Staged

ABILITIES = ("mark", "newest", "retract", "staged", "tidy")
"""The methods that a sink need not have; a checkpoint records which of them its sink has."""


@runtime_checkable
class Sink(Protocol):
    """Where the results of windows go.

    The driver of ``job`` (the id in its checkpoint) calls ``claim`` before it stages or sweeps anything: a sink belongs
    to one job for good, and raises ``StorageError`` for every other, without changing anything.
    Workers call ``stage``, perhaps more than once for the same rows, each time with another ``attempt``
    (``e<epoch>-c<id>-<uuid>``, unique): when it returns, the rows are durable but invisible.
    The driver calls ``publish`` after the checkpoint ``staging_id`` is committed, and again after a crash: twice has
    the effect of once. A file that is neither staged nor published raises ``StagedMissing``. ``sweep`` deletes every
    staged file that is not in ``live`` and whose epoch is below ``epoch``, or equal with an id at or below ``id``.
    ``shared`` says whether workers in other processes can stage.

    A sink may also have:
    ``retract(first, stop)``: take back what was published under the ids ``first <= id < stop``; twice has the effect of
    once. It must hold against a fenced driver that stalls in ``publish`` and continues after it.
    ``mark(first, stop)``: called before ``sweep`` and ``retract``; from then on nothing under these ids counts.
    ``tidy()``: delete what was published after it had been taken back.
    ``staged(job)``: the names of the staged files of this job, so that ``gc`` can list and sweep them.
    ``newest()``: the highest id under which anything is published, -1 if none, so that a checkpoint that has lost its
    newest manifest is detected.
    """

    shared: bool

    def claim(self, job: str) -> None: ...

    def stage(self, outputs: pa.Table, staging_id: int, attempt: str) -> Staged: ...

    def publish(self, staging_id: int, staged: Sequence[Staged]) -> None: ...

    def sweep(self, live: Collection[str], epoch: int, id: int) -> None: ...
