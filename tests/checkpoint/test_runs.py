"""A run is read whole, or the error says how to recover."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from persistent.checkpoint.runs import read_run, read_table, run_place, with_recovery_advice
from persistent.codec import KEY_GROUPS, Run, encode_table
from persistent.errors import CorruptCheckpoint, Fenced
from persistent.storage import MemoryStorage

TABLE = pa.table({"path": ["a", "b"]})


def stored() -> tuple[MemoryStorage, Run]:
    """A storage that holds one run of an index."""
    storage = MemoryStorage("checkpoint-runs")
    storage.clear()
    data, sha256 = encode_table(TABLE)
    storage.write("d/FileSource/one.arrow", data)
    return storage, Run("d/FileSource/one.arrow", 2, len(data), sha256, 0, 0, KEY_GROUPS, 0, 0, 1, 1)


def test_damage_comes_with_recovery_advice() -> None:
    """A command that only says what is wrong leaves its user alone; what is no damage stays as it is."""
    with (
        pytest.raises(CorruptCheckpoint, match=r"^torn\. Restore the file from a copy; or 'persistent verify URL'"),
        with_recovery_advice("URL"),
    ):
        raise CorruptCheckpoint("torn")
    with pytest.raises(Fenced, match=r"^first$"), with_recovery_advice("URL"):
        raise Fenced("first")
    with with_recovery_advice("URL"):
        pass


def test_a_run_is_what_was_written() -> None:
    """The bytes are not interpreted here: runs of rows and runs of an index are read alike."""
    storage, run = stored()
    assert read_run(storage, run).to_pybytes() == storage.read(run.name).to_pybytes()
    assert read_table(storage, run).equals(TABLE)
    assert run_place(storage, run) == "memory://checkpoint-runs/d/FileSource/one.arrow"


def test_a_run_that_is_gone_or_changed_is_corrupt_with_advice() -> None:
    """Read as empty, its rows would be missing from every sum after it."""
    storage, run = stored()
    with pytest.raises(CorruptCheckpoint, match=r"one\.arrow: .*Restore the file"):
        read_table(storage, replace(run, sha256="0" * 64))
    storage.delete(run.name)
    for read in (read_run, read_table):
        with pytest.raises(CorruptCheckpoint, match=r"one\.arrow: missing, though a manifest names it\. Restore"):
            read(storage, run)
