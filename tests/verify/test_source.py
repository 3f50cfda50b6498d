"""The account of a checkpoint is proved by its source, as far as that is still there."""

from __future__ import annotations

from pathlib import Path

import pytest

from persistent import (
    FileSource,
    MemorySource,
    Pipeline,
)
from persistent.checkpoint.copies import newest_of
from persistent.checkpoint.log import Log
from persistent.operations import restart
from persistent.verify import Verification, verify_source
from tests.single import only
from tests.verify.checkpoints import Visits, change_account, change_newest, pipeline, rows


def source_findings(made: Pipeline) -> list[tuple[str, str]]:
    found = verify_source(made, newest_of(Log(made.storage)))
    assert found.ok == (not found.findings)
    return [(one.place, one.text) for one in found.findings]


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
    assert "as many as the account says, but not the same records" in text


def test_records_lost_from_the_account_are_counted(tmp_path: Path) -> None:
    """Without it records that a bug never read would not be missed."""
    made = pipeline(tmp_path, 1500)
    made.run(engine="embedded")
    account = newest_of(Log(made.storage)).manifest.accounts["memory"]
    lost = {"read": account.read - 3, "processed": account.processed - 3}
    change_newest(tmp_path, lambda m: change_account(m, **lost))
    ((place, text),) = source_findings(made)
    assert place == "memory"
    assert "holds 1,500 records before position (0, 1500), but the account says 1,497 were read" in text
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
    reads = {entry.manifest.accounts["files"].read: entry for entry in entries}
    assert sorted(reads) == [0, 130, 260, 300]
    for entry in reads.values():
        assert verify_source(made, entry).findings == []
    text = (tmp_path / "input" / "1.jsonl").read_text()
    (tmp_path / "input" / "1.jsonl").write_text(text.replace('"bytes": 1', '"bytes": 2'))
    ((_, found),) = source_findings(made)
    assert "1.jsonl" in found


def lines(count: int, begin: int, size: str) -> str:
    """Lines of which every tenth has no whole number as its size."""
    made = [
        f'{{"ts": {1000 * n}, "page": "a", "country": "de", "bytes": 1, "size": {size if n % 10 else 1.5}}}'
        for n in range(begin, begin + count)
    ]
    return "\n".join(made) + "\n"


TEXT = {"ts": "int64", "page": "string", "country": "string", "bytes": "int64"}


def sized(tmp_path: Path, kind: str | None, step_rows: int) -> Pipeline:
    schema = TEXT if kind is None else {**TEXT, "size": kind}
    source = FileSource(tmp_path / "input", timestamp="ts", timestamp_unit="ms", schema=schema)
    place = str(tmp_path / "c")
    return Pipeline(source=source, task=Visits(), checkpoint=place, discard_closed=True, step_rows=step_rows)


def test_records_are_read_as_they_were_when_they_were_counted(tmp_path: Path) -> None:
    """Another schema= is allowed, and makes dead letters of other records: whoever changed it would be told, with the
    exit code of corruption, that the source no longer holds what was read."""
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "0.jsonl").write_text(lines(100, 0, "1"))
    made = sized(tmp_path, "int64", 130)
    made.run(engine="embedded")
    (tmp_path / "input" / "1.jsonl").write_text(lines(100, 100, "1"))
    # The step borders of the first two schemas lie within a file.
    (tmp_path / "input" / "2.jsonl").write_text(lines(100, 200, "1"))
    assert source_findings(made) == []
    made = sized(tmp_path, "double", 50)
    assert source_findings(made) == []
    stop_after_a_step(made)
    assert newest_of(Log(made.storage)).manifest.accounts["files"].read == 150
    assert source_findings(made) == source_findings(sized(tmp_path, "int64", 50)) == []
    made = sized(tmp_path, "int64", 30)
    stop_after_a_step(made)
    assert source_findings(made) == []
    made = sized(tmp_path, None, 130)
    made.run(engine="embedded")
    account = newest_of(Log(made.storage)).manifest.accounts["files"]
    assert (account.read, account.dead) == (300, 10 + 3)
    assert source_findings(made) == source_findings(sized(tmp_path, "int64", 1)) == []
    # What is wrong is still found, whatever reading it belongs to.
    for change in ({"read": 299, "processed": account.processed - 1}, {"mix": account.mix + 1}):
        change_newest(tmp_path / "c", lambda m, change=change: change_account(m, **change))  # type: ignore[misc]
        assert len(source_findings(made)) == 1


def test_a_restart_reads_by_the_present_schema(tmp_path: Path) -> None:
    """Records that are read again count as they are read then, whatever read them before."""
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "0.jsonl").write_text(lines(100, 0, "1"))
    sized(tmp_path, "int64", 50).run(engine="embedded")
    (tmp_path / "input" / "1.jsonl").write_text(lines(100, 100, "1"))
    made = sized(tmp_path, "double", 50)
    made.run(engine="embedded")
    assert only(newest_of(Log(made.storage)).manifest.sources).readings
    restart(made, clock=156_000, outputs="again")
    made.run(engine="embedded")
    account = newest_of(Log(made.storage)).manifest.accounts["files"]
    assert (account.read, account.dead) == (200, 0)
    assert source_findings(made) == []


class Stopped(Exception):
    pass


def stop_after_a_step(made: Pipeline) -> None:
    def stop(report: object) -> None:
        raise Stopped

    with pytest.raises(Stopped):
        made.run(engine="embedded", on_step=stop)


def test_a_schema_that_was_forgotten_is_no_fault(tmp_path: Path) -> None:
    """After many changes the oldest are no longer known: what was read then would be compared by another schema."""
    (tmp_path / "input").mkdir()
    for number in range(18):
        (tmp_path / "input" / f"{number:02}.jsonl").write_text(lines(10, 10 * number, "1"))
        made = sized(tmp_path, "int64" if number % 2 else "double", 10)
        made.run(engine="embedded")
        if number < 17:
            assert source_findings(made) == []
    found = verify_source(made, newest_of(Log(made.storage)))
    assert found.ok and "changed so often" in found.findings[0].text


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
    assert "1.jsonl was listed up to the checkpoint, but no longer exists" in told and "rollback" in told
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
    assert "read only up to offset" in gone_told(verify_source(made, entry))
    # What comes after the checkpoint is no matter of its account.
    (tmp_path / "input" / "2.jsonl").unlink()
    assert "2.jsonl" not in gone_told(verify_source(made, entry))


def _reads(made: Pipeline, id: int) -> int:
    ledger = Log(made.storage).read(id).manifest.accounts
    return ledger["files"].read if ledger else 0


def test_a_source_that_is_all_gone_cannot_be_compared(tmp_path: Path) -> None:
    """An input that is swept once it has been read is as it should be; one whose disk is away looks the same."""
    made = three_files(tmp_path)
    for number in range(3):
        (tmp_path / "input" / f"{number}.jsonl").unlink()
    assert "gone or empty" in gone_told(verify_source(made, newest_of(Log(made.storage))))
