"""Verify: whatever is damaged in a checkpoint is found, and what is whole is not called damaged."""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from monoids import Count, Sum, record
from monoids.groupby.summing import GroupSums
from monoids.hashing import hash_keys
from persistent import (
    FileSink,
    FileSource,
    MemorySink,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    WindowState,
    tumbling,
)
from persistent.checkpoint.copies import newest_of
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.names import manifest_name
from persistent.checkpoint.running import put_mark
from persistent.checkpoint.subfolder import savepoint_folder
from persistent.codec import KEY_GROUPS, Run, encode_run
from persistent.engines.embedded import Embedded
from persistent.operations import compact, pin, rollback, savepoint
from persistent.storage import LocalStorage, MemoryStorage
from persistent.verify import Verification, verify, verify_source
from persistent.verify.rows import state_faults


class Visits(PersistentTask):
    key = ("page", "country")

    def persistent_state(self) -> WindowState:
        return WindowState(record(visits=Count(), bytes=Sum()), tumbling(12_000))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, {"visits": 1, "bytes": message.value["bytes"]})


class Totals(Visits):
    key = None

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(Count())

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


def rows(count: int) -> list[dict[str, Any]]:
    """Mostly in order; some late by more than a window, one before 1970."""
    rng = random.Random(7)
    made = [
        {
            "ts": 30_000 + 20 * i - (20_000 if rng.random() < 0.02 else rng.randrange(500)),
            "page": rng.choice(["/home", "/ä", None]),
            "country": rng.choice(["de", "fr"]),
            "bytes": rng.randrange(100),
        }
        for i in range(count)
    ]
    for row in made[50:51]:
        row["ts"] = -5
    return made


def pipeline(folder: Path, count: int, task: PersistentTask | None = None, step_rows: int = 60) -> Pipeline:
    source = MemorySource(rows(count), timestamp="ts")
    sink = FileSink(f"{folder}-published")
    return Pipeline(source=source, task=task or Visits(), sink=sink, checkpoint=str(folder), step_rows=step_rows)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of many steps with folded runs, late rows, a dead letter, and two runs' fences."""
    folder = tmp_path_factory.mktemp("made") / "checkpoint"
    pipeline(folder, 1500).run(engine="embedded")
    pipeline(folder, 1860).run(engine="embedded")
    newest = Log(LocalStorage(folder)).newest()
    assert newest is not None
    assert len(newest.manifest.operators["Visits"].runs) > 2
    return folder


@pytest.fixture
def checkpoint(made: Path, tmp_path: Path) -> Path:
    """A copy of it to damage."""
    return Path(shutil.copytree(made, tmp_path / "checkpoint"))


def look(folder: Path) -> Verification:
    return verify(LocalStorage(folder))


def faults(found: Verification) -> str:
    return "\n".join(f"{one.place}: {one.text}" for one in found.findings if one.severity == "fault")


def test_a_whole_checkpoint_verifies(made: Path) -> None:
    """Without it verify could call sound checkpoints damaged, and nobody would believe it."""
    found = look(made)
    assert found.findings == []
    assert found.newest_good == found.newest == Log(LocalStorage(made)).ids()[-1]
    for part in ("manifests", "plans", "state runs", "late rows", "dead letters"):
        assert found.parts[part].checked > 0, part
    ledger = Log(LocalStorage(made)).newest().manifest.ledger["memory"]  # type: ignore[union-attr]
    assert found.parts["late rows"].rows == ledger.late > 0
    assert found.parts["dead letters"].rows == ledger.dead == 1


def test_states_of_every_shape_verify(tmp_path: Path) -> None:
    """Without it the checks could hold only for keyed windows."""
    pipeline(tmp_path / "totals", 900, Totals(), step_rows=40).run(engine="embedded", end_of_input=True)
    found = look(tmp_path / "totals")
    assert found.findings == []
    assert found.parts["state runs"].checked > 1


def test_a_checkpoint_before_its_first_record_verifies(tmp_path: Path) -> None:
    """Without it an empty checkpoint could count as damaged."""
    pipeline(tmp_path / "run", 60).run(engine="embedded")
    for name in ("FORMAT", manifest_name(0)):
        (tmp_path / "begun" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tmp_path / "run" / name, tmp_path / "begun" / name)
    found = look(tmp_path / "begun")
    assert found.findings == []
    assert found.newest_good == 0


def test_no_checkpoint_is_a_fault(tmp_path: Path) -> None:
    """Without it a wrong URL would be reported as sound."""
    found = look(tmp_path / "nowhere")
    assert not found.ok
    assert found.newest_good is None


def kept_files(folder: Path) -> Iterator[Path]:
    manifest = Log(LocalStorage(folder)).newest().manifest  # type: ignore[union-attr]
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        number = path.name.partition(".")[0].partition("-")[0]
        if path.parent.name not in ("m", "p") or int(number) >= manifest.oldest:
            yield path


def test_every_flipped_byte_is_found(checkpoint: Path) -> None:
    """Without it bits that a disk has turned would be folded into results."""
    rng = random.Random(3)
    for path in kept_files(checkpoint):
        data = path.read_bytes()
        place = rng.randrange(len(data))
        path.write_bytes(data[:place] + bytes([data[place] ^ (1 << rng.randrange(8))]) + data[place + 1 :])
        assert not look(checkpoint).ok, f"{path}, byte {place}"
        path.write_bytes(data)
    assert look(checkpoint).findings == []


def test_every_lost_and_every_torn_file_is_found(checkpoint: Path) -> None:
    """Without it a file that a broken copy has left out would be missed until it is needed."""
    for number, path in enumerate(kept_files(checkpoint)):
        data = path.read_bytes()
        path.unlink()
        # Plans are only needed until their step is committed.
        if path.parent.name != "p":
            assert look(checkpoint).findings, f"{path} lost"
        path.write_bytes(data[: len(data) // 2] if number % 2 else b"")
        assert look(checkpoint).findings, f"{path} torn"
        path.write_bytes(data)


def change_newest(folder: Path, change: Callable[[Manifest], Manifest]) -> Manifest:
    """Put another manifest in place of the newest, with a trailer that fits."""
    storage = LocalStorage(folder)
    newest = Log(storage).newest()
    assert newest is not None
    changed = change(newest.manifest)
    (folder / manifest_name(newest.manifest.id)).write_bytes(changed.encode())
    return changed


def change_run(manifest: Manifest, **values: Any) -> Manifest:
    state = manifest.operators["Visits"]
    runs = (*state.runs[:-1], replace(state.runs[-1], **values))
    return replace(manifest, operators={"Visits": replace(state, runs=runs)})


def change_account(manifest: Manifest, **values: Any) -> Manifest:
    return replace(manifest, ledger={name: replace(one, **values) for name, one in manifest.ledger.items()})


BROKEN_LAWS: dict[str, tuple[Callable[[Manifest], Manifest], str]] = {
    "another parent": (lambda m: replace(m, parent=(m.id - 1, "0" * 64)), "names another parent"),
    "another job": (lambda m: replace(m, job="0" * 32), "is of job"),
    "clock back": (
        lambda m: replace(m, clock=replace(m.clock, watermark=1, closed=1)),
        ": the clock never goes back",
    ),
    "closed ahead": (lambda m: replace(m, clock=replace(m.clock, closed=1 << 40)), "ahead of the clock"),
    "positions back": (
        lambda m: replace(m, source=replace(m.source, positions={"memory": (0, 1)})),
        ": positions of memory never go back",
    ),
    "positions lost": (lambda m: replace(m, source=replace(m.source, positions={})), "does not follow"),
    "epoch back": (lambda m: replace(m, epoch=0), "does not follow"),
    "epoch without fence": (lambda m: replace(m, epoch=m.epoch + 1), "only a fence raises the epoch"),
    "base": (lambda m: replace(m, base=m.id - 1), "with base"),
    "account": (lambda m: change_account(m, read=10_000), "does not balance"),
    "account back": (lambda m: change_account(m, read=0, processed=0, late=0, dead=0), "the account goes back"),
    "rows": (lambda m: change_run(m, rows=m.operators["Visits"].runs[-1].rows + 1), "its manifest says"),
    "run missing": (lambda m: change_run(m, name="d/Visits/e9-c9-0.arrow"), "missing"),
    "counted twice": (lambda m: change_run(m, first=0, last=m.id), "both count deltas"),
    "deltas ahead": (lambda m: change_run(m, first=m.id + 1, last=m.id + 1), "sums the deltas"),
    "key type": (
        lambda m: replace(m, operators={"Visits": replace(m.operators["Visits"], key_types=("int64", "string"))}),
        "holds string",
    ),
    "key name": (
        lambda m: replace(m, operators={"Visits": replace(m.operators["Visits"], key_names=("a", "b"))}),
        "its columns are",
    ),
}


@pytest.mark.parametrize("law", BROKEN_LAWS)
def test_every_broken_law_is_found(checkpoint: Path, law: str) -> None:
    """Without it a manifest with a good checksum and a wrong content, as a bug would write it, would pass."""
    change, text = BROKEN_LAWS[law]
    change_newest(checkpoint, change)
    found = look(checkpoint)
    assert text in faults(found)


def test_overlapping_sums_are_found(checkpoint: Path) -> None:
    """Without it a delta could count twice: once in a folded run, and once more by itself."""

    def twice(manifest: Manifest) -> Manifest:
        state = manifest.operators["Visits"]
        return replace(manifest, operators={"Visits": replace(state, runs=(*state.runs, state.runs[0]))})

    change_newest(checkpoint, twice)
    assert "both count deltas" in faults(look(checkpoint))


def test_the_newest_sound_checkpoint_is_named(checkpoint: Path) -> None:
    """Without it nobody would know how far to go back."""
    newest = Log(LocalStorage(checkpoint)).newest()
    assert newest is not None
    made_at = {
        int(run.name.partition("-c")[2].partition("-")[0]): run for run in newest.manifest.operators["Visits"].runs
    }
    last = max(made_at)
    (checkpoint / made_at[last].name).unlink()
    found = look(checkpoint)
    assert f"{made_at[last].name}: missing" in faults(found)
    assert found.newest_good == last - 1


def test_strays_are_warnings(checkpoint: Path) -> None:
    """Without it the files of a killed attempt would raise an alarm, or be passed over in silence."""
    (checkpoint / "d" / "Visits" / f"e1-c3-{'0' * 32}.arrow").write_bytes(b"torn")
    (checkpoint / "notes.txt").write_text("mine")
    found = look(checkpoint)
    assert found.ok
    assert [one.severity for one in found.findings] == ["warning", "warning"]


def test_a_run_at_work_may_be_looked_at() -> None:
    """Without it what a run collects meanwhile would be called lost, so that nobody could verify a live checkpoint."""
    storage = MemoryStorage("verify-live")
    source = MemorySource(rows(3_000), timestamp="ts")
    live = Pipeline(source=source, task=Visits(), sink=MemorySink(), checkpoint=storage, step_rows=20)
    running = threading.Thread(target=live.run, kwargs={"engine": Embedded(threads=1)})
    running.start()
    looks, ids = 0, set()
    while running.is_alive():
        if "FORMAT" in storage.list(""):
            found = verify(storage)
            assert found.ok, faults(found)
            assert not [one for one in found.findings if one.part != "strays"]
            looks, ids = looks + 1, ids | {found.newest}
    running.join()
    assert looks >= 5
    assert len(ids) >= 5
    assert verify(storage).findings == []


def test_late_rows_deleted_are_told(checkpoint: Path) -> None:
    """Without it late rows could be lost after they were counted."""
    sorted((checkpoint / "late").iterdir())[0].unlink()
    assert any("the account says" in one.text for one in look(checkpoint).findings)


def test_a_fence_that_changes_something_is_found(tmp_path: Path) -> None:
    """Without it a fence could move the clock past records never read."""
    pipeline(tmp_path, 100).run(engine="embedded")
    log = Log(LocalStorage(tmp_path))
    newest = log.newest()
    assert newest is not None
    log.fence(newest, "1" * 32, 0)
    assert look(tmp_path).ok
    change_newest(tmp_path, lambda m: replace(m, clock=replace(m.clock, watermark=m.clock.watermark + 1)))
    assert "a fence copies clock" in faults(look(tmp_path))


# -- after operations ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outputs", ["retract", "again"])
def test_what_operations_leave_verifies(tmp_path: Path, outputs: str) -> None:
    """Without it verify would cry out at every checkpoint that was ever gone back to, pinned, compacted or copied."""
    storage = LocalStorage(tmp_path / "checkpoint")
    made = pipeline(tmp_path / "checkpoint", 1500)
    made.run(engine="embedded")
    ids = Log(storage).ids()
    pin(storage, ids[-8])
    compact(made)
    assert look(tmp_path / "checkpoint").findings == []
    savepoint(storage, "monday")
    copy = verify(savepoint_folder(storage, "monday"))
    assert (copy.ok, copy.findings) == (True, [])
    rollback(storage, ids[-9], outputs=outputs)
    rolled = look(tmp_path / "checkpoint")
    assert rolled.ok and rolled.newest_good == rolled.newest
    more = pipeline(tmp_path / "checkpoint", 1600)
    more.run(engine="embedded", end_of_input=True)
    found = look(tmp_path / "checkpoint")
    assert found.ok, faults(found)
    again = [one.text for one in found.findings]
    assert all("a rollback published some again" in text for text in again)
    assert outputs == "again" or not again
    assert verify_source(more, newest_of(Log(storage))).findings == []


def test_a_rollback_past_what_cannot_be_read_verifies(checkpoint: Path) -> None:
    """Without it nobody could tell whether the way back from damage has worked."""
    storage = LocalStorage(checkpoint)
    last = Log(storage).ids()[-1]
    (checkpoint / manifest_name(last)).write_bytes(b"torn")
    found = look(checkpoint)
    assert (found.ok, found.newest_good) == (False, last - 1)
    rollback(storage, last - 1, outputs="retract")
    assert look(checkpoint).ok, faults(look(checkpoint))
    assert look(checkpoint).newest_good == last + 1


def test_marks_and_the_word_of_the_doctor_are_no_strays(checkpoint: Path) -> None:
    """Without it a running job would look littered."""
    storage = LocalStorage(checkpoint)
    put_mark(storage, 7, "0" * 32)
    storage.put_if_absent("DOCTOR", b"fit")
    assert look(checkpoint).findings == []
    (checkpoint / "r" / "notes.txt").write_text("mine")
    assert [one.place for one in look(checkpoint).findings] == ["r/notes.txt"]


def test_a_compaction_that_changes_more_than_runs_is_found(tmp_path: Path) -> None:
    """Without it a fold could move the clock or the account past records never read."""
    made = pipeline(tmp_path, 400)
    made.run(engine="embedded")
    compact(made)
    assert look(tmp_path).ok
    change_newest(tmp_path, lambda m: replace(m, clock=replace(m.clock, watermark=m.clock.watermark + 1)))
    assert "a compaction copies clock" in faults(look(tmp_path))


def test_progress_ends_with_every_byte(made: Path) -> None:
    """Without it a long look would show nothing, or never reach its end."""
    told: list[tuple[int, int]] = []
    found = verify(LocalStorage(made), on_progress=lambda done, total: told.append((done, total)))
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1][0] == told[-1][1] == found.parts["state runs"].bytes


# -- the source ------------------------------------------------------------------------------------------------------


def source_findings(made: Pipeline) -> list[tuple[str, str]]:
    found = verify_source(made, newest_of(Log(made.storage)))
    assert found.ok == (not found.findings)
    return [(one.place, one.text) for one in found.findings]


class Prices(PersistentTask):
    """Counts by price."""

    key = {"price": lambda message: Decimal(message.value["price"])}

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(Count())

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


def test_decimal_keys_that_grow_are_no_damage(tmp_path: Path) -> None:
    """Each step may bring longer ones: the runs before would be called corrupt, and 0 the newest good checkpoint."""
    prices = ["1.5", "22.25", "333.125", "4444.0625", "1"]
    source = MemorySource([{"ts": n, "price": price} for n, price in enumerate(prices)], timestamp="ts")
    made = Pipeline(source=source, task=Prices(), checkpoint=str(tmp_path), step_rows=1)
    made.run(engine="embedded")
    found = look(tmp_path)
    assert not faults(found) and found.newest_good == found.newest
    assert sorted(row["price"] for row in made.state().to_pylist()) == sorted(map(Decimal, prices))
    compact(made)
    assert not faults(look(tmp_path))


@pytest.mark.parametrize("said", ["decimal128(2, 1)", "decimal128(12, 1)", "string"])
def test_decimal_keys_that_do_not_fit_are_damage(tmp_path: Path, said: str) -> None:
    """A manifest that says less than its runs hold could not be read as it says."""
    source = MemorySource([{"ts": 1, "price": "22.25"}], timestamp="ts")
    Pipeline(source=source, task=Prices(), checkpoint=str(tmp_path)).run(engine="embedded")

    def changed(manifest: Manifest) -> Manifest:
        return replace(manifest, operators={"Prices": replace(manifest.operators["Prices"], key_types=(said,))})

    change_newest(tmp_path, changed)
    assert f"column key:price holds decimal128(4, 2), its manifest says {said}" in faults(look(tmp_path))


def test_the_source_proves_the_account(tmp_path: Path) -> None:
    """Without it the account would only be consistent with itself."""
    made = pipeline(tmp_path, 1500)
    made.run(engine="embedded")
    assert source_findings(made) == []
    # What came after the checkpoint is not counted.
    assert source_findings(pipeline(tmp_path, 1860)) == []
    changed = rows(1500)
    changed[700] = {**changed[700], "ts": changed[700]["ts"] + 1}
    source = MemorySource(changed, timestamp="ts")
    other = Pipeline(source=source, task=Visits(), checkpoint=str(tmp_path), discard_closed=True)
    ((place, text),) = source_findings(other)
    assert place == "memory"
    assert "as many as the account says, but not the same ones" in text


def test_records_lost_from_the_account_are_counted(tmp_path: Path) -> None:
    """Without it records that a bug never read would not be missed."""
    made = pipeline(tmp_path, 1500)
    made.run(engine="embedded")
    account = newest_of(Log(made.storage)).manifest.ledger["memory"]
    lost = {"read": account.read - 3, "processed": account.processed - 3}
    change_newest(tmp_path, lambda m: change_account(m, **lost))
    ((place, text),) = source_findings(made)
    assert place == "memory"
    assert "holds 1,500 records before position (0, 1500), the account says 1,497 were read" in text
    change_newest(tmp_path, lambda m: change_account(m, dead=0, processed=account.processed + 1, read=account.read))
    ((_, text),) = source_findings(made)
    assert "1 records without a time" in text


def test_files_are_read_once_more_up_to_the_positions(tmp_path: Path) -> None:
    """Without it a checkpoint in the middle of a file, with bad lines and new files behind it, could not be proved."""
    (tmp_path / "input").mkdir()
    for number in range(3):
        lines = [f'{{"ts": {1000 * n}, "page": "a", "country": "de", "bytes": 1}}' for n in range(100)]
        lines[7] = "nonsense"
        (tmp_path / "input" / f"{number}.jsonl").write_text("\n".join(lines) + "\n")
    source = FileSource(f"{tmp_path}/input/*.jsonl", timestamp="ts", timestamp_unit="ms")
    place = str(tmp_path / "c")
    made = Pipeline(source=source, task=Visits(), checkpoint=place, discard_closed=True, step_rows=130)
    made.run(engine="embedded")
    (tmp_path / "input" / "3.jsonl").write_text('{"ts": 1, "page": "a", "country": "de", "bytes": 1}\n')
    log = Log(made.storage)
    entries = [log.read(id) for id in log.ids()]
    reads = {entry.manifest.ledger["files"].read: entry for entry in entries}
    assert sorted(reads) == [0, 130, 260, 300]
    for entry in reads.values():
        assert verify_source(made, entry).findings == []
    text = (tmp_path / "input" / "1.jsonl").read_text()
    (tmp_path / "input" / "1.jsonl").write_text(text.replace('"bytes": 1', '"bytes": 2'))
    ((_, found),) = source_findings(made)
    assert "1.jsonl" in found


def three_files(tmp_path: Path, on_bad_file: str = "raise") -> Pipeline:
    (tmp_path / "input").mkdir()
    for number in range(3):
        lines = [f'{{"ts": {1000 * n}, "page": "a", "country": "de", "bytes": 1}}' for n in range(100)]
        (tmp_path / "input" / f"{number}.jsonl").write_text("\n".join(lines) + "\n")
    source = FileSource(tmp_path / "input", timestamp="ts", timestamp_unit="ms", on_bad_file=on_bad_file)
    made = Pipeline(source=source, task=Visits(), checkpoint=str(tmp_path / "c"), discard_closed=True, step_rows=130)
    made.run(engine="embedded")
    return made


def gone_told(found: Verification) -> str:
    ((severity, text),) = [(one.severity, one.text) for one in found.findings]
    assert severity == "warning" and found.ok and "before it was read" not in text
    return text


@pytest.mark.parametrize("on_bad_file", ["raise", "dead-letter"])
def test_a_file_that_was_read_may_be_gone(tmp_path: Path, on_bad_file: str) -> None:
    """What has been read may be deleted: whoever does so would be told that records are lost, and what is wrong in the
    files that are left would not be seen."""
    made = three_files(tmp_path, on_bad_file)
    entry = newest_of(Log(made.storage))
    (tmp_path / "input" / "1.jsonl").unlink()
    told = gone_told(verify_source(made, entry))
    assert "1.jsonl was listed up to the checkpoint, and is gone" in told and "rollback" in told
    change_newest(tmp_path / "c", lambda m: change_account(m, read=150, processed=150, dead=0, late=0))
    ((_, text),) = [
        (one.place, one.text)
        for one in verify_source(made, newest_of(Log(made.storage))).findings
        if one.severity == "fault"
    ]
    assert "holds at least 200 records" in text and "150 were read" in text
    (tmp_path / "input" / "2.jsonl").write_text("other\n")
    assert any("2.jsonl" in one.text and one.severity == "fault" for one in verify_source(made, entry).findings)


def test_a_file_that_was_read_in_part_is_told_so(tmp_path: Path) -> None:
    """Its rest is lost where it is not put back."""
    made = three_files(tmp_path)
    entry = Log(made.storage).read(next(one for one in Log(made.storage).ids() if _reads(made, one) == 130))
    (tmp_path / "input" / "1.jsonl").unlink()
    assert "read up to offset" in gone_told(verify_source(made, entry))
    # What comes after the checkpoint is no matter of its account.
    (tmp_path / "input" / "2.jsonl").unlink()
    assert "2.jsonl" not in gone_told(verify_source(made, entry))


def _reads(made: Pipeline, id: int) -> int:
    ledger = Log(made.storage).read(id).manifest.ledger
    return ledger["files"].read if ledger else 0


def test_a_source_that_is_all_gone_cannot_be_compared(tmp_path: Path) -> None:
    """An input that is swept once it has been read is as it should be; one whose disk is away looks the same."""
    made = three_files(tmp_path)
    for number in range(3):
        (tmp_path / "input" / f"{number}.jsonl").unlink()
    assert "gone or empty" in gone_told(verify_source(made, newest_of(Log(made.storage))))


# -- rows ------------------------------------------------------------------------------------------------------------

PLACE = "d/Visits/run"


def a_run(hashes: Any, keys: pa.Array, panes: list[int], listed: list[int] | None = None) -> tuple[pa.Buffer, Run]:
    made = GroupSums(hashes, (keys,), np.array(panes, np.int64), Count().pack([1] * len(panes)))
    data, sha256 = encode_run(Count(), made, ["page"], sorted(set(panes)) if listed is None else listed)
    low, high = (min(panes), max(panes)) if panes else (0, 0)
    return pa.py_buffer(data), Run(PLACE, len(panes), len(data), sha256, 0, 0, KEY_GROUPS, low, high, 1, 1)


def sound(pages: list[str]) -> tuple[Any, pa.Array]:
    hashes = hash_keys([pa.array(pages)], len(pages))
    order = np.argsort(hashes, kind="stable")
    return hashes[order], pa.array(pages).take(pa.array(order))


def found_in(data: pa.Buffer, run: Run) -> str:
    return "\n".join(state_faults(data, run, PLACE, ["page"], ["string"]))


def test_sound_rows_pass() -> None:
    """Without it the following tests would prove nothing."""
    hashes, keys = sound(["a", "a", "b", "c"])
    data, run = a_run(hashes, keys, [0, 1000, 0, 0] if keys[0].as_py() == "a" else [0, 0, 0, 0])
    if keys.to_pylist().index("a") == 0:
        assert found_in(data, run) == ""
    hashes, keys = sound(["a", "b", "c"])
    assert found_in(*a_run(hashes, keys, [3, 2, 1])) == ""


def test_rows_out_of_order_are_found() -> None:
    """Without it slices by key range would silently miss rows."""
    hashes, keys = sound(["a", "b", "c"])
    data, run = a_run(hashes[::-1].copy(), keys.take(pa.array([2, 1, 0])), [0, 0, 0])
    assert "stand before one of a smaller hash" in found_in(data, run)


@pytest.mark.parametrize("panes", [[1000, 0], [1000, 1000]])
def test_panes_out_of_order_or_twice_are_found(panes: list[int]) -> None:
    """Without it a (key, pane) could stand twice in a run that says it is a sum."""
    hashes, keys = sound(["a", "a"])
    assert "of the same or an earlier pane" in found_in(*a_run(hashes, keys, panes))


def test_order_is_looked_at_across_batches() -> None:
    """Without it the border between two record batches would be a blind spot."""
    count = (1 << 16) + 1
    hashes, keys = sound(["a"] * count)
    panes = list(range(1 << 16))
    assert "of the same or an earlier pane" in found_in(*a_run(hashes, keys, [*panes, panes[-1]]))


def test_a_hash_that_is_not_the_keys_is_found() -> None:
    """Without it a key could live in a range where nobody looks for it."""
    hashes, keys = sound(["a", "b"])
    data, run = a_run(hashes + np.uint64(1), keys, [0, 0])
    assert "another hash" in found_in(data, run)


def test_what_a_manifest_says_is_compared() -> None:
    """Without it reads that trust the manifest's ranges would skip rows."""
    hashes, keys = sound(["a", "b"])
    data, run = a_run(hashes, keys, [1000, 2000])
    assert found_in(data, run) == ""
    assert "bytes" in found_in(data, replace(run, bytes=1))
    assert "rows" in found_in(data, replace(run, rows=3))
    assert "panes" in found_in(data, replace(run, pane_min=2000))
    assert "key groups" in found_in(data, replace(run, start=1023, low=1023))
    data, run = a_run(hashes, keys, [1000, 2000], listed=[1000])
    assert "its index lists other panes" in found_in(data, run)
