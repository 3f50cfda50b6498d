"""What a worker is asked before it works, and what is said of errors that it meets."""

from __future__ import annotations

import pickle
from pathlib import Path

from persistent.errors import SourceError, StorageError, UserCodeError
from persistent.storage.failures import FaultKind, failure_of
from persistent.worker.requirements import needs_of, say_where, unfit


def test_a_process_is_fit_for_what_it_needs_itself(tmp_path: Path) -> None:
    """Every run on a cluster would be refused."""
    needs = needs_of(["s3://b/x", "hdfs://n/x", str(tmp_path)], [str(tmp_path), str(tmp_path / "none")])
    assert set(needs.modules) == {"s3fs", "hdfs_native.fsspec"}
    assert needs.paths == (str(tmp_path),)
    assert {"persistent-monoids", "pyarrow", "numpy", "cloudpickle"} <= dict(needs.versions).keys()
    assert unfit(needs) == ""


def test_an_import_inside_a_client_says_that_memory_is_short() -> None:
    """The remedy would be to install what is installed."""
    failure = failure_of(ImportError("a.so: failed to map segment from shared object"))
    assert failure.fault is FaultKind.PERMANENT and "too little memory" in failure.remedy
    assert "Install the client" in failure_of(ImportError("no botocore")).remedy


def test_where_an_error_was_met_is_said_once_and_travels() -> None:
    """Credentials would be given to the driver when an executor lacks them."""
    error = StorageError("cannot read s3://b/x: NoCredentialsError: none. " + failure_of(_credentials()).remedy)
    say_where(error, "executor ten, /usr/bin/python")
    back = pickle.loads(pickle.dumps(error))
    say_where(back, "the driver")
    assert str(back) == str(error)
    assert str(back).endswith("The driver and each executor have their own. (Met on executor ten, /usr/bin/python.)")
    gone = SourceError("x: gone before it was read.")
    say_where(gone, "executor ten")
    assert str(gone) == "x: gone before it was read. (Met on executor ten.)"
    code = UserCodeError("raised at row 1")
    say_where(code, "executor ten")
    assert str(code) == "raised at row 1"


def _credentials() -> Exception:
    kind = type("NoCredentialsError", (Exception,), {})
    return kind("none")


def test_a_folder_that_is_not_mounted_here_is_told(tmp_path: Path) -> None:
    """The files of a source would be "gone" on that machine alone."""
    mount = tmp_path / "mount"
    mount.mkdir()
    needs = needs_of([], [str(mount)])
    mount.rmdir()
    assert "mount it at the same path" in unfit(needs)
