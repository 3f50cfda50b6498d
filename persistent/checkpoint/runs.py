"""A run is written under a unique name and read as a whole; otherwise ``CorruptCheckpoint`` says how to recover."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from msgspec.structs import replace

from persistent.codec.fields import KEY_GROUPS, Run
from persistent.codec.sealed import decode_table, encode_table
from persistent.errors import CorruptCheckpoint
from persistent.names import Attempt, Staged, run_name, runs_folder
from persistent.storage.protocol import Storage
from persistent.text.figures import shell_word


class with_recovery_advice:
    """Add instructions to CorruptCheckpoint: how to recover the checkpoint at ``url``."""

    __slots__ = ("_url",)

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> None:
        """Nothing is corrupt yet."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, CorruptCheckpoint):
            raise CorruptCheckpoint(
                f"{error}. Restore the file from a copy; or 'persistent verify {shell_word(self._url)}' names the "
                "newest checkpoint that verifies, and how to go back to it"
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
            raise CorruptCheckpoint(f"{run_place(storage, run)}: missing, although a manifest names it") from error


def read_table(storage: Storage, run: Run) -> pa.Table:
    """The verified table in a run of the source's index."""
    data = read_run(storage, run)
    with with_recovery_advice(storage.url):
        return decode_table(data, run.sha256, run_place(storage, run))


def write_new(storage: Storage, folder: str, attempt: Attempt, data: bytes | pa.Buffer) -> str:
    """Write a file that no manifest names yet; returns its name."""
    name = run_name(folder, attempt.name())
    storage.write(name, data)
    return name


def write_table(storage: Storage, folder: str, attempt: Attempt, table: pa.Table) -> Staged:
    """Write a table: late rows, dead letters, or rows of an index."""
    data, sha256 = encode_table(table)
    return Staged(write_new(storage, folder, attempt, data), len(table), len(data), sha256)


def write_index(storage: Storage, kind: str, attempt: Attempt, table: pa.Table) -> Run:
    """Write rows of the index of a source of that kind as a run."""
    staged = write_table(storage, runs_folder(kind), attempt, table)
    return Run(staged.name, staged.rows, staged.bytes, staged.sha256, 0, 0, KEY_GROUPS, 0, 0, attempt.id, attempt.id)


def fold_index(storage: Storage, kind: str, attempt: Attempt, runs: Sequence[Run]) -> Run:
    """Write the rows of several runs of such an index, oldest first, as one."""
    table = pa.concat_tables([read_table(storage, run) for run in runs], promote_options="default")
    whole = write_index(storage, kind, attempt, table)
    return replace(whole, first=min(run.first for run in runs), last=max(run.last for run in runs))
