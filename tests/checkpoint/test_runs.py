"""A run is read whole, or the error says how to recover."""

from __future__ import annotations

import pyarrow as pa
import pytest
from msgspec.structs import replace

from persistent.checkpoint.runs import (
    fold_index,
    read_run,
    read_table,
    run_place,
    with_recovery_advice,
    write_index,
    write_new,
    write_table,
)
from persistent.codec.fields import KEY_GROUPS, Run
from persistent.codec.sealed import decode_table, encode_table
from persistent.errors import CorruptCheckpoint, Fenced
from persistent.names import Attempt, attempt_of
from persistent.storage import MemoryStorage
from tests.figures import FILES

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
        with pytest.raises(CorruptCheckpoint, match=r"one\.arrow: missing, although a manifest names it\. Restore"):
            read(storage, run)


def test_every_file_has_a_name_of_its_own() -> None:
    """A worker that repeats an item would overwrite what a manifest names; and garbage is told by the attempt."""
    storage = MemoryStorage("checkpoint-runs-new")
    storage.clear()
    names = [write_new(storage, "d/Visits", Attempt(3, 41), data) for data in (b"one", b"two")]
    assert len({*names}) == 2 and {attempt_of(name) for name in names} == {(3, 41)}
    assert sorted(f"d/Visits/{name}" for name in storage.list("d/Visits")) == sorted(names)
    assert [storage.read(name).to_pybytes() for name in names] == [b"one", b"two"]


def test_a_table_is_described_as_it_is_written() -> None:
    """The manifest says what was written: a row or a byte more, and it is corrupt."""
    storage, _ = stored()
    one = write_table(storage, "d/Visits", Attempt(3, 41), TABLE)
    assert (one.rows, one.bytes) == (2, storage.read(one.name).size) and one.name.startswith("d/Visits/e3-c41-")
    assert decode_table(storage.read(one.name), one.sha256, one.name).equals(TABLE)
    run = write_index(storage, "FileSource", Attempt(3, 41), TABLE)
    assert run == Run(run.name, 2, one.bytes, one.sha256, 0, 0, KEY_GROUPS, 0, 0, 41, 41)
    assert run.name.startswith("d/FileSource/e3-c41-") and read_table(storage, run).equals(TABLE)


def test_a_folded_index_has_every_row_in_order() -> None:
    """A position is a number of a row of the index: another order, and every position means another file."""
    storage, first = stored()
    more = pa.table({"path": ["c"], "lane": ["x"]})
    second = write_index(storage, "FileSource", Attempt(3, 7), more)
    whole = fold_index(storage, "FileSource", Attempt(4, 9), [first, second])
    assert read_table(storage, whole).to_pydict() == {"path": ["a", "b", "c"], "lane": [None, None, "x"]}
    assert (whole.rows, whole.first, whole.last, attempt_of(whole.name)) == (3, 1, 7, (4, 9))


def test_runs_are_named_here_alone() -> None:
    """Who names a file by itself may forget the attempt in it, and then it is never deleted, or too early."""
    users = {module for module, path in FILES.items() if "run_name" in path.read_text(encoding="utf-8")}
    assert users == {"persistent.names", "persistent.checkpoint.runs"}
