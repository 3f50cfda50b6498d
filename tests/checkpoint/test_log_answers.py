"""What the manifest log says where something is missing, newer, older or another's; and what is kept of it."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec import structs

from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.errors import CorruptCheckpoint, Fenced, NewerFormat, Refused, StorageError
from persistent.names import manifest_name, new_nonce, plan_name
from persistent.storage import LocalStorage, MemoryStorage, Put
from tests.checkpoint.samples import ForgetfulStorage, body_of, document, logged, manifest, plan, run
from tests.single import only


class Acting(ForgetfulStorage):
    """Does something before a name is read for the first time."""

    def __init__(self) -> None:
        super().__init__()
        self.before_read: dict[str, Callable[[], None]] = {}

    def read(self, name: str) -> pa.Buffer:
        self.before_read.pop(name, lambda: None)()
        return super().read(name)


def rewritten(log: Log, name: str, **changes: Any) -> None:
    """The document under this name, with other fields, and hashes that fit."""
    body = body_of(log.storage.read(name).to_pybytes(), name)
    put(log, name, document({**body, **changes}))


def put(log: Log, name: str, data: bytes) -> None:
    log.storage.delete(name)
    log.storage.write(name, data)


def test_names_sort_as_ids_do() -> None:
    """And are the same for every release: another one would find no manifest."""
    assert manifest_name(41) == "m/00000000000000000041.json"
    assert plan_name(41, 0) == "p/00000000000000000041.json"
    assert plan_name(41, 2) == "p/00000000000000000041-2.json"
    assert len(new_nonce()) == 32 and new_nonce() != new_nonce()


def test_other_names_are_no_entries() -> None:
    """Each of these is as long, or ends, or begins as a manifest does."""
    log = logged(Acting(), 0)
    for name in ("0000000000000000000a.json", "00000000000000000009xjson", "000000000000000000009.json", "0" * 25):
        log.storage.write(f"m/{name}", b"")
    assert log.ids() == [0]


# -- the newest -------------------------------------------------------------------------------------------------------


def test_a_manifest_that_is_not_there_is_missing() -> None:
    """By its name: it may be in a copy."""
    with pytest.raises(CorruptCheckpoint, match=r"/m/00000000000000000009\.json: missing"):
        logged(Acting(), 1).read(9)


def test_the_newest_may_be_collected_while_it_is_read() -> None:
    """A job that went on that fast is not corrupt."""
    log = logged(Acting(), 1)

    def go_on() -> None:
        log.put(manifest(2))
        log.storage.delete(manifest_name(1))

    log.storage.before_read[manifest_name(1)] = go_on  # type: ignore[attr-defined]
    newest = log.newest()
    assert newest is not None and newest.manifest.id == 2
    assert log.ids() == [0, 2]


class Listing(MemoryStorage):
    """Counts how often its names are asked for."""

    lists = 0

    def list(self, folder: str) -> list[str]:
        self.lists += 1
        return super().list(folder)


def test_the_newest_is_found_with_one_list() -> None:
    """On a store each list of many manifests is several requests, and every command begins with this."""
    storage = Listing(uuid.uuid4().hex)
    log = logged(storage, 1)
    storage.lists = 0
    newest = log.newest()
    assert newest is not None and (newest.manifest.id, storage.lists) == (1, 1)


def test_a_newer_manifest_is_not_called_corrupt() -> None:
    """To go back behind it would throw away what a newer release has done."""
    log = logged(Acting(), 1)
    rewritten(log, manifest_name(1), format=9)
    with pytest.raises(NewerFormat, match=r"format 9, but this release reads 4: use a newer release$"):
        log.newest()


def test_a_newer_manifest_is_no_way_back_and_no_damage() -> None:
    """To go back behind it, where the one after it is torn, would throw away what a newer release has done."""
    log = logged(Acting(), 2)
    rewritten(log, manifest_name(1), format=9)
    put(log, manifest_name(2), b"torn")
    with pytest.raises(NewerFormat, match=r"00001\.json: format 9, but this release reads 4: use a newer release$"):
        log.newest()


def test_without_any_that_verifies_only_a_copy_helps() -> None:
    """To name a way back that there is not would waste the night."""
    log = logged(Acting(), 0)
    put(log, manifest_name(0), b"torn")
    with pytest.raises(CorruptCheckpoint, match="No other checkpoint verifies: restore the folder from a copy"):
        log.newest()


def test_a_checkpoint_whose_runs_are_gone_is_no_way_back() -> None:
    """A fence that is kept no more may lie there longer than its runs: to go back to it would fail, in the night."""
    log = logged(Acting(), 1)
    gone = {"Visits": structs.replace(only(manifest().nodes), runs=(run(),))}
    log.put(manifest(2, nodes=gone))
    put(log, manifest_name(3), b"torn")
    with pytest.raises(CorruptCheckpoint, match=r"Checkpoint 1 is the newest whose manifest verifies"):
        log.newest()
    log.storage.write(run().name, b"there")
    with pytest.raises(CorruptCheckpoint, match=r"Checkpoint 2 is the newest whose manifest verifies"):
        log.newest()


# -- FORMAT -----------------------------------------------------------------------------------------------------------


def test_manifest_0_may_be_there_before_format() -> None:
    """Its driver died between the two: the next one puts FORMAT before any other id."""
    log = logged(Acting(), 0)
    log.storage.delete("FORMAT")
    entry = log.newest()
    assert entry is not None
    assert log.fence(entry, "me").manifest.id == 1
    assert log.storage.list("") == ["FORMAT"]
    assert Log(log.storage).newest() is not None


def test_without_format_a_manifest_tells_how_to_make_it() -> None:
    """FORMAT says no more than any manifest does, of which the newest may be torn."""
    log = logged(Acting(), 2)
    data = log.storage.read("FORMAT").to_pybytes()
    put(log, manifest_name(2), b"torn")
    for damage in (lambda: log.storage.delete("FORMAT"), lambda: log.storage.write("FORMAT", data[:-3])):
        damage()
        with pytest.raises(CorruptCheckpoint, match=r"FORMAT: .*from manifest 1: printf '%s\\n'") as told:
            log.newest()
        body, sha256 = data.decode().splitlines()
        assert f"'{body}' '{sha256}' > FORMAT" in str(told.value)
    for id in (0, 1):
        put(log, manifest_name(id), b"torn")
    with pytest.raises(CorruptCheckpoint, match=r"FORMAT: SHA-256 differs from its trailer: restore it from a copy$"):
        log.newest()


def test_the_command_that_makes_format_writes_it_where_it_belongs(tmp_path: Path) -> None:
    """Typed in another folder, it would leave a file there, and the job as it was."""
    place = tmp_path / "of a job"
    log = logged(LocalStorage(place), 2)
    data = (place / "FORMAT").read_bytes()
    (place / "FORMAT").unlink()
    with pytest.raises(CorruptCheckpoint) as told:
        log.newest()
    command = "printf" + str(told.value).partition("printf")[2]
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    assert (place / "FORMAT").read_bytes() == data


def test_without_format_a_newer_manifest_is_for_a_newer_release() -> None:
    """To make FORMAT anew as an older manifest has it would be to go on beside what a newer release has done."""
    log = logged(Acting(), 2)
    rewritten(log, manifest_name(2), format=9)
    log.storage.delete("FORMAT")
    with pytest.raises(NewerFormat, match=r"00002\.json: format 9, but this release reads 4: use a newer release$"):
        log.newest()


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"format": 9}, NewerFormat, "FORMAT: format 9, but this release reads 4"),
        (
            {"format": 3},
            Refused,
            "FORMAT: format 3 is that of a tree before the first release, which nothing reads: start",
        ),
        ({"job": 5}, CorruptCheckpoint, r"FORMAT: not a FORMAT \(Expected `str`"),
        ({"more": 5}, CorruptCheckpoint, r"FORMAT: not a FORMAT \(Object contains unknown field `more`"),
        ({"key_groups": 512}, CorruptCheckpoint, "key groups 512 and hash 1 are unknown here"),
        ({"hash": 2}, CorruptCheckpoint, "key groups 1024 and hash 2 are unknown here"),
    ],
    ids=str,
)
def test_another_format_is_refused_before_any_manifest(changes: dict[str, Any], error: Any, says: str) -> None:
    """Keys would be looked for in the groups of another division."""
    log = logged(Acting(), 1)
    rewritten(log, "FORMAT", **changes)
    with pytest.raises(error, match=says):
        log.newest()


def test_a_copy_begins_with_format_alone() -> None:
    """Two copies that begin together must come to one job."""
    log = Log(MemoryStorage(new_nonce()))
    assert log.begin("ours") == "ours"
    assert Log(log.storage).begin("theirs") == "ours"
    assert log.storage.list("") == ["FORMAT"] and log.ids() == []


# -- what is kept -----------------------------------------------------------------------------------------------------


def test_what_is_kept_is_read_once() -> None:
    """What the manifest names, and itself."""
    log = logged(Acting(), 4)
    one = manifest(4, commits=((0, 0), (2, 0), (4, 0)))
    assert log.kept(one) == {0: log.read(0).manifest, 2: log.read(2).manifest, 4: one}
    fence = manifest(4, base=3, commits=((1, 0), (3, 0)))
    assert log.kept(fence) == {1: log.read(1).manifest, 3: log.read(3).manifest, 4: fence}


def test_a_fence_may_pin() -> None:
    """A pin that came with the next checkpoint only would come too late."""
    log = logged(Acting(), 1, pins=(0,))
    entry = log.newest()
    assert entry is not None
    fence = log.fence(entry, "me", changes=lambda old: {"pins": (*old.manifest.pins, old.manifest.id)})
    assert fence.manifest.pins == (0, 1) and fence.manifest.replan == entry.manifest.replan
    assert log.fence(fence, "me").manifest.pins == (0, 1)


# -- plans ------------------------------------------------------------------------------------------------------------


def test_a_torn_plan_may_be_deleted() -> None:
    """Nothing has followed from it: to go back to a checkpoint before would lose a step for nothing."""
    log = logged(Acting(), 0)
    log.storage.write(plan_name(0, 0), b"torn")
    with pytest.raises(CorruptCheckpoint, match=r"p/0+\.json: SHA-256.*Nothing of its step has been"):
        log.plan(0, 0)


def test_a_newer_plan_may_not() -> None:
    """It is sound: a newer release will run it."""
    log = logged(Acting(), 0)
    log.put_plan(plan())
    rewritten(log, plan_name(0, 0), format=9)
    with pytest.raises(NewerFormat, match=r"format 9, but this release reads 4: use a newer release$"):
        log.plan(0, 0)


@pytest.mark.parametrize("changes", [{"job": "other"}, {"start": {"memory": (0, 1)}, "splits": ()}], ids=str)
def test_a_plan_of_another_start_is_refused(changes: dict[str, Any]) -> None:
    """Records would be skipped or repeated."""
    log = logged(Acting(), 0)
    log.put_plan(plan(**changes))
    with pytest.raises(CorruptCheckpoint, match="this plan does not start at checkpoint 0"):
        log.put_plan(plan())


def test_a_plan_of_another_base_is_refused() -> None:
    """A file under another name: nothing but its bytes says so."""
    log = logged(Acting(), 1)
    log.put_plan(plan(1))
    log.storage.write(plan_name(0, 0), log.storage.read(plan_name(1, 0)).to_pybytes())
    with pytest.raises(CorruptCheckpoint, match="this plan does not start at checkpoint 0"):
        log.put_plan(plan())


def test_a_plan_that_was_there_and_is_gone_is_not_run() -> None:
    """Another driver has put it, gone on and collected it: this one is behind."""
    log = logged(Acting(), 0)
    log.put_plan(plan())
    storage, name = log.storage, plan_name(0, 0)
    assert isinstance(storage, Acting)
    # Found once more after it was not ours, and then gone.
    storage.before_read[name] = lambda: storage.before_read.update({name: lambda: storage.delete(name)})
    with pytest.raises(CorruptCheckpoint, match="this plan does not start at checkpoint 0"):
        log.put_plan(plan())


# -- who is fenced ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [CorruptCheckpoint("gone"), StorageError("full")], ids=repr)
def test_what_a_successor_swept_is_not_corrupt(error: Exception) -> None:
    """A fenced driver that cries corruption sends its operator after a loss that there is not."""
    log = logged(Acting(), 2)
    with pytest.raises(Fenced, match="another driver committed 2 after our 1"), Log(log.storage).unless_fenced(1):
        raise error
    with pytest.raises(type(error), match=str(error)), Log(log.storage).unless_fenced(2):
        raise error
    with Log(log.storage).unless_fenced(0):
        pass


def test_what_we_have_put_ourselves_fences_nobody() -> None:
    """The answer was lost, and the manifest is ours."""
    log = logged(Acting(), 1)
    with pytest.raises(StorageError, match="no answer"), log.unless_fenced(0):
        raise StorageError("no answer")


def test_nobody_is_fenced_by_nothing() -> None:
    """An empty log has no other driver."""
    Log(MemoryStorage(new_nonce())).check(0)
    log = logged(Acting(), 3)
    log.check(3)
    with pytest.raises(Fenced, match="committed 3 after our 2"):
        log.check(2)


def test_an_entry_is_the_bytes_it_was_read_from() -> None:
    """The child names its parent by their hash."""
    log = logged(Acting(), 1)
    entry = log.read(1)
    data = log.storage.read(manifest_name(1)).to_pybytes()
    assert Manifest.decode(data, "m") == entry.manifest and entry.bytes == len(data)
    later = manifest(2)
    assert isinstance(log.storage, Acting)
    log.storage.script = [(True, Put.WON)]
    assert log.put(later) == log.read(2)
