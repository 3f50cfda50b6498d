"""A run that a manifest names is read whole, or ``CorruptCheckpoint`` says how to recover."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from persistent.codec import Run, decode_table
from persistent.errors import CorruptCheckpoint
from persistent.storage import Storage


@contextmanager
def with_recovery_advice(url: str) -> Iterator[None]:
    """Add instructions to CorruptCheckpoint: how to recover the checkpoint at ``url``."""
    try:
        yield
    except CorruptCheckpoint as error:
        raise CorruptCheckpoint(
            f"{error}. Restore the file from a copy; or 'persistent verify {url}' names the newest checkpoint that "
            "verifies, and how to go back to it"
        ) from error


def run_place(storage: Storage, run: Run) -> str:
    """The URL of a run, for errors."""
    return f"{storage.url}/{run.name}"


def read_run(storage: Storage, run: Run) -> pa.Buffer:
    """The bytes of a run. CorruptCheckpoint if it is missing."""
    with with_recovery_advice(storage.url):
        try:
            return storage.read(run.name)
        except FileNotFoundError as error:
            raise CorruptCheckpoint(f"{run_place(storage, run)}: missing, though a manifest names it") from error


def read_table(storage: Storage, run: Run) -> pa.Table:
    """The verified table in a run of the source's index."""
    data = read_run(storage, run)
    with with_recovery_advice(storage.url):
        return decode_table(data, run.sha256, run_place(storage, run))
