"""The manifest log has one winner for each id, whatever the store answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest, manifest_sha256
from persistent.checkpoint.successor import Entry
from persistent.errors import CorruptCheckpoint, Fenced, StorageError
from persistent.names import manifest_name, new_nonce, plan_name
from persistent.operations import rollback
from persistent.storage import MemoryStorage, Put
from tests.checkpoint.samples import ForgetfulStorage, manifest, plan
from tests.single import only


def following(entry: Entry, **changes: object) -> Manifest:
    """The checkpoint after an entry."""
    old = entry.manifest
    fields: dict[str, Any] = {
        "id": old.id + 1,
        "base": old.id + 1,
        "kind": "checkpoint",
        "nonce": new_nonce(),
        "fences": 0,
    }
    return structs.replace(old, parent=(old.id, entry.sha256), **{**fields, **changes})


@pytest.fixture
def log() -> Log:
    """A log with manifest 0."""
    log = Log(ForgetfulStorage())
    log.create(manifest())
    return log


def storage(log: Log) -> ForgetfulStorage:
    assert isinstance(log.storage, ForgetfulStorage)
    return log.storage


@pytest.mark.parametrize(
    "script",
    [
        [(True, Put.WON)],
        [(True, Put.UNKNOWN)],
        [(True, Put.LOST)],
        [(False, Put.UNKNOWN), (True, Put.WON)],
        [(False, Put.UNKNOWN), (False, Put.UNKNOWN), (True, Put.UNKNOWN)],
    ],
    ids=str,
)
def test_ours_is_won_whatever_is_answered(log: Log, script: list[tuple[bool, Put]]) -> None:
    """An answer lost on the network must not make a driver give up what it committed, nor commit it twice."""
    entry = log.newest()
    assert entry is not None
    storage(log).script = script
    ours = following(entry)
    assert log.put(ours).manifest == ours
    assert log.ids() == [0, 1]
    newest = log.newest()
    assert newest is not None and newest.manifest == ours and newest.sha256 == manifest_sha256(ours.encode())


@pytest.mark.parametrize("answer", [Put.LOST, Put.UNKNOWN])
def test_anothers_means_fenced(log: Log, answer: Put) -> None:
    """Two drivers that both believe to have won id 1 publish twice."""
    entry = log.newest()
    assert entry is not None
    theirs = log.put(following(entry)).manifest
    storage(log).script = [(True, answer)]
    with pytest.raises(Fenced, match="checkpoint 1 was committed by another driver"):
        log.put(following(entry))
    newest = log.newest()
    assert newest is not None and newest.manifest == theirs


def test_a_store_that_never_takes_it_is_an_error(log: Log) -> None:
    """To try for ever, or to go on as if it were done, would both be wrong."""
    entry = log.newest()
    assert entry is not None
    storage(log).script = [(False, Put.UNKNOWN)] * 5
    with pytest.raises(StorageError, match="neither accepted nor showed it in 5 tries"):
        log.put(following(entry))


@pytest.mark.parametrize("happens", [True, False])
@pytest.mark.parametrize("lost", [0, 1])
def test_the_first_manifest_and_format_survive_lost_answers(happens: bool, lost: int) -> None:
    """A FORMAT that was never written makes the checkpoint unreadable as soon as it holds something."""
    script = [(True, Put.WON)] * lost + [(happens, Put.UNKNOWN)]
    log = Log(ForgetfulStorage(*script))
    entry = log.create(manifest())
    assert entry.manifest.id == 0
    log.put(following(entry))
    newest = log.newest()
    assert newest is not None and newest.manifest.id == 1
    assert log.storage.list("") == ["FORMAT"]


def test_whoever_creates_later_finds_what_is_there(log: Log) -> None:
    """Two drivers that start together must come to one job, or the checkpoint belongs to nobody."""
    first = log.newest()
    again = Log(log.storage).create(manifest(job="another"))
    assert again == first and again.manifest.job == "job"


def test_a_race_of_creation_has_one_job() -> None:
    """The other driver creates all of it between our look and our put."""
    store = ForgetfulStorage()
    other = Log(store.inner)

    def first(name: str) -> None:
        store.before_put = lambda name: None
        other.put(following(other.create(manifest(job="theirs"))))

    store.before_put = first
    entry = Log(store).create(manifest(job="ours"))
    assert (entry.manifest.id, entry.manifest.job) == (1, "theirs")


def test_a_fence_goes_on_top_of_a_working_driver(log: Log) -> None:
    """Whoever takes over must not give up because the other is still fast: the newest state is what it fences."""
    entry = log.newest()
    assert entry is not None
    working = Log(storage(log).inner)
    left = 3

    def commit(name: str) -> None:
        nonlocal left
        newest = working.newest()
        assert newest is not None
        if left:
            left -= 1
            working.put(following(newest))

    storage(log).before_put = commit
    fence = log.fence(entry, "me", 0).manifest
    assert (fence.id, fence.kind, fence.base, fence.epoch, fence.fences) == (4, "fence", 3, 1, 1)
    newest = working.newest()
    assert newest is not None
    with pytest.raises(Fenced):
        working.put(following(replace(newest, manifest=structs.replace(newest.manifest, id=3))))
    with pytest.raises(Fenced, match="committed 4 after our 3"):
        working.check(3)
    log.check(4)


def test_of_two_fences_one_yields(log: Log) -> None:
    """Two drivers that fence each other for ever would never work."""
    entry = log.newest()
    assert entry is not None
    storage(log).before_put = lambda name: (Log(storage(log).inner).fence(entry, "other", 0), None)[1]
    with pytest.raises(Fenced):
        log.fence(entry, "me", 0)


def test_fences_are_counted_until_a_checkpoint_or_another_plan(log: Log) -> None:
    """The count is what tells a poisonous plan from bad luck."""
    entry = log.newest()
    assert entry is not None
    for count in (1, 2, 3):
        entry = log.fence(entry, new_nonce(), 0)
        assert entry.manifest.fences == count
    entry = log.fence(entry, new_nonce(), 1)
    assert (entry.manifest.fences, entry.manifest.replan, entry.manifest.epoch) == (1, 1, 4)
    assert log.put(following(entry, replan=0)).manifest.fences == 0


def test_a_fence_keeps_what_it_fences(log: Log) -> None:
    """The fence is the state of the job: what it left out would be lost."""
    entry = log.newest()
    assert entry is not None
    fence = log.fence(entry, "me", 0).manifest
    changed = {"id", "kind", "epoch", "nonce", "parent", "fences"}
    same = {name: value for name, value in structs.asdict(fence).items() if name not in changed}
    assert same == {name: value for name, value in structs.asdict(entry.manifest).items() if name not in changed}
    assert fence.parent == (0, entry.sha256)


# -- what does not verify ---------------------------------------------------------------------------------------------


def test_a_corrupt_newest_manifest_stops_and_names_the_way_back(log: Log) -> None:
    """To fall back by itself would publish again what has been seen; to start afresh would lose everything."""
    entry = log.newest()
    assert entry is not None
    log.put(following(entry))
    log.storage.write(manifest_name(2), b"torn")
    with pytest.raises(
        CorruptCheckpoint, match=r"0002\.json: SHA-256 differs.*Checkpoint 1 is the newest whose manifest verifies"
    ):
        log.newest()
    log.storage.write(manifest_name(3), b"")
    with pytest.raises(CorruptCheckpoint, match="Checkpoint 1 is the newest") as told:
        log.newest()
    command = str(told.value).partition("persistent rollback ")[2].partition("'")[0].split()
    assert (command[0], command[2]) == (log.storage.url, "--outputs=retract")
    back = rollback(log.storage, int(command[1]), outputs=command[2].partition("=")[2])
    assert (back.manifest.id, back.manifest.target, back.manifest.burnt) == (4, 1, (2, 3))
    assert log.newest() == back
    assert log.fence(back, new_nonce()).manifest.id == 5


def test_an_unreadable_id_is_not_used_again(log: Log) -> None:
    """A file that exists is taken, valid or not: another reader may have seen it."""
    entry = log.newest()
    assert entry is not None
    log.storage.write(manifest_name(1), b"torn")
    with pytest.raises(CorruptCheckpoint):
        log.put(following(entry))
    assert bytes(log.storage.read(manifest_name(1))) == b"torn"


def test_a_manifest_under_another_id_is_refused(log: Log) -> None:
    """A file copied to another name would move the job back in time."""
    data = log.storage.read(manifest_name(0)).to_pybytes()
    log.storage.write(manifest_name(1), data)
    with pytest.raises(CorruptCheckpoint, match="holds manifest 0, not 1"):
        log.newest()


def test_a_single_bad_read_is_read_again(log: Log) -> None:
    """A bit that flips on the way from the disk is no reason to stop a job."""

    class Flaky(ForgetfulStorage):
        bad = 1

        def read(self, name: str):  # type: ignore[no-untyped-def]
            data = super().read(name)
            if name.startswith("m/") and self.bad:
                self.bad -= 1
                return data.slice(1)
            return data

    flaky = Flaky()
    flaky.inner = storage(log).inner
    newest = Log(flaky).newest()
    assert newest is not None and newest.manifest.id == 0 and flaky.bad == 0


def test_format_and_manifests_belong_together(log: Log) -> None:
    """A folder of which half is missing must not be taken for an empty checkpoint."""
    entry = log.newest()
    assert entry is not None
    log.put(following(entry))
    data = log.storage.read("FORMAT").to_pybytes()
    log.storage.delete("FORMAT")
    with pytest.raises(CorruptCheckpoint, match="FORMAT: missing"):
        log.newest()
    other = Log(MemoryStorage(new_nonce()))
    other.storage.write("FORMAT", data)
    with pytest.raises(CorruptCheckpoint, match="exists, but every manifest is missing"):
        other.newest()
    torn = Log(MemoryStorage(new_nonce()))
    torn.storage.write("FORMAT", data[:-9])
    with pytest.raises(CorruptCheckpoint, match="FORMAT: SHA-256"):
        torn.newest()


def test_other_files_are_not_manifests(log: Log) -> None:
    """An editor's copy or a note beside the manifests must not become the newest checkpoint."""
    for name in ("m/notes.txt", "m/00000000000000000009.json.bak", "m/9.json"):
        log.storage.write(name, b"")
    assert log.ids() == [0]


# -- plans ------------------------------------------------------------------------------------------------------------


def test_the_first_plan_is_the_plan(log: Log) -> None:
    """Two plans for one step, and what is late depends on who crashed when."""
    first, second = plan(), plan(end={"memory": (0, 9)})
    assert log.plan(0, 0) is None
    assert log.put_plan(first) == first
    assert log.put_plan(second) == first
    assert log.plan(0, 0) == first
    assert log.plan(0, 1) is None
    assert only(log.put_plan(structs.replace(second, number=1)).sources).end == {"memory": (0, 9)}
    assert log.storage.list("p") == [plan_name(0, 1)[2:], plan_name(0, 0)[2:]]


@pytest.mark.parametrize("happens", [True, False])
def test_a_plan_survives_a_lost_answer(log: Log, happens: bool) -> None:
    """A driver that mistakes its own plan for another's, or none for its own, runs what is not written down."""
    ours = plan()
    storage(log).script = [(happens, Put.UNKNOWN)]
    assert log.put_plan(ours) == ours
    assert log.plan(0, 0) == ours


def test_a_plan_that_starts_elsewhere_is_refused(log: Log) -> None:
    """To run it would skip or repeat records."""
    log.put_plan(plan(start={"memory": (0, 2)}, splits=()))
    with pytest.raises(CorruptCheckpoint, match="does not start at checkpoint 0"):
        log.put_plan(plan())
