"""The operations and the reading commands, on real checkpoints, as an operator types them."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from persistent.checkpoint.log import Log
from persistent.storage import LocalStorage
from persistent.text.figures import utc_text
from persistent.tools.cli.load import load_pipeline
from tests.tools.cli.visits import command, json_of

VISITS = "visits.py:pipeline"


def kinds() -> list[str]:
    return [line["kind"] for line in json_of("history", "checkpoint")]


def test_every_format_holds_the_same_rows(done: Path) -> None:
    """Without it a script would get other values than the eye."""
    rows = json_of("state", VISITS)
    assert len(rows) == 1
    for name in ("s.parquet", "s.arrow", "s.jsonl"):
        assert command("state", VISITS, "--output", name).exit_code == 0
    tables = [pq.read_table("s.parquet"), pa.ipc.open_file("s.arrow").read_all()]
    for table in tables:
        assert [(row["page"], row["visits"], row["bytes"]) for row in table.to_pylist()] == [("/home", 2, 100)]
        assert str(table.schema.field("window_start").type) == "timestamp[ms, tz=UTC]"
    assert [json.loads(line) for line in Path("s.jsonl").read_text().splitlines()] == rows
    binary = command("state", VISITS, "--format", "parquet")
    assert pq.read_table(pa.BufferReader(binary.stdout_bytes)).equals(tables[0])


def test_one_window_by_its_time(done: Path) -> None:
    """Without it one minute of a long state could not be looked at."""
    assert len(json_of("state", VISITS, "--window", "2024-05-01T10:02Z")) == 1
    assert json_of("state", VISITS, "--window", "2024-05-01T12:03+02:00") == []
    assert len(json_of("state", VISITS, "--window", "1714557720000", "--key", "/home", "--key", "200")) == 1


def test_the_state_as_of_a_clock(done: Path) -> None:
    """Without it the clock on the command line could be another than that of the method."""
    newest = json_of("history", "checkpoint")[-1]["clock_ms"]
    clock = newest // 60_000 * 60_000
    expected = load_pipeline(VISITS).state(as_of=clock).to_pylist()
    rows = json_of("state", VISITS, "--as-of", utc_text(clock).replace(" ", "T"))
    assert [(row["page"], row["visits"]) for row in rows] == [(row["page"], row["visits"]) for row in expected]
    assert json_of("state", VISITS, "--as-of", str(clock), "--key", "/none", "--key", "1") == []
    for wrong in (clock + 1, clock + 3_600_000):
        assert command("state", VISITS, "--as-of", str(wrong)).exit_code == 3


def test_diff_tells_clock_positions_and_values(done: Path) -> None:
    """Without it nobody would see what a step has done."""
    rows = json_of("diff", VISITS, "2")
    parts = {(row.get("part"), row.get("name")): row for row in rows}
    assert parts["account", "read of files"] == {"part": "account", "name": "read of files", "before": 2, "after": 7}
    assert {row["change"] for row in rows if "change" in row} == {"added", "closed"}
    assert parts["values", None]["differing"] == 2
    table = command("diff", VISITS, "2").stdout
    assert "2024-05-01 10:02:11Z" in table and "2 values differ, 0 are equal" in table
    assert "no difference between" in command("diff", VISITS, "5", "5").stdout
    assert not any("change" in row for row in json_of("diff", "checkpoint", "2", "5"))


def test_a_savepoint_is_a_checkpoint(done: Path) -> None:
    """Without it a copy could be made and never be read."""
    (made,) = json_of("savepoint", "checkpoint", "monday")
    assert made["url"].endswith("checkpoint/s/monday")
    assert command("verify", "checkpoint/s/monday").exit_code == 0
    (found,) = json_of("verify", "checkpoint", "--savepoint", "monday")
    assert found["parts"]["s/monday: state runs"]["checked"] > 0
    rows = json_of("diff", VISITS, "checkpoint/s/monday")
    assert {row["part"] for row in rows} <= {"checkpoint", "run", "values"}
    assert rows[-1] == {"part": "values", "differing": 0, "equal": 1}
    path = next(path for path in (done / "checkpoint" / "s" / "monday" / "d" / "Visits").iterdir())
    path.write_bytes(path.read_bytes()[:-1])
    broken = command("verify", "checkpoint", "--savepoint", "monday")
    assert broken.exit_code == 4
    assert "s/monday/d/Visits" in broken.stdout
    assert command("savepoint", "checkpoint", "monday").exit_code == 1


@pytest.mark.parametrize("name", ["tuesday", "../x", ""])
def test_a_savepoint_that_is_not_there_is_not_corrupt(done: Path, name: str) -> None:
    """A misspelt name would be taken for a lost manifest."""
    found = command("verify", "checkpoint", "--savepoint", name)
    assert found.exit_code == 3 and f"no savepoint is named {name!r}" in found.output


def test_a_correction_by_files_is_applied_once(done: Path) -> None:
    """A ticket names files, and whoever works it off may press the key twice."""
    head = "time,page,status,bytes\n"
    (done / "right.csv").write_text(f"{head}2024-05-01T10:05:03Z,/home,200,10\n2024-05-01T10:05:04Z,/home,200,20\n")
    (done / "wrong.csv").write_text(f"{head}2024-05-01T10:05:04Z,/home,200,20\n")
    words = ("correct", VISITS, "ticket-42", "--add", "right.csv", "--remove", "wrong.csv")
    (made,) = json_of(*words)
    assert (made["name"], made["added"], made["removed"]) == ("ticket-42", 2, 1) and json_of(*words) == [made]
    (row,) = (one for one in json_of("state", VISITS) if "10:05" in one["window_start"])
    assert (row["visits"], row["bytes"]) == (1, 10)
    shown = command("show", "checkpoint").stdout
    assert f"ticket-42, by {made['checkpoint']}: 2 added, 1 removed" in shown
    assert "correction" in command("history", "checkpoint").stdout
    refused = command("correct", VISITS, "ticket-42", "--add", "right.csv")
    assert refused.exit_code == 1 and "of other records" in refused.stderr
    assert "2 added, 1 removed" in command(*words).stdout
    assert command("verify", VISITS, "--source").exit_code == 0
    json_of("rollback", "checkpoint", str(made["checkpoint"] - 1), "--outputs=retract")
    assert not [one for one in json_of("state", VISITS) if "10:05" in one["window_start"] and one["visits"]]


def test_rollback_pin_compact_and_gc(done: Path) -> None:
    """Without it an operator would have to write Python while the job is down."""
    (pinned,) = json_of("pin", "checkpoint", "2")
    assert pinned["pins"] == [2]
    (back,) = json_of("rollback", "checkpoint", "3", "--outputs=retract")
    assert (back["kind"], back["target"]) == ("rollback", 3)
    history = command("history", "checkpoint").stdout
    assert "rollback to 3" in history and "checkpoint, pinned" in history
    (report,) = json_of("run", VISITS, "--engine", "embedded", "--end-of-input")
    assert report["rows"] == 3
    rows = [row for file in (done / "visits").glob("*.parquet") for row in pq.read_table(file).to_pylist()]
    assert sorted((row["page"], row["visits"], row["bytes"]) for row in rows) == [
        ("/home", 2, 30),
        ("/home", 2, 100),
        ("/ä", 1, 30),
    ]
    (folded,) = json_of("compact", VISITS)
    assert folded["id"] == json_of("history", "checkpoint")[-1]["id"]
    stray = done / "checkpoint" / "d" / "Visits" / f"e1-c3-{'0' * 32}.arrow"
    stray.write_bytes(b"torn")
    assert json_of("gc", "checkpoint", "--dry-run") == [{"name": f"d/Visits/{stray.name}", "deleted": False}]
    assert stray.exists()
    assert {"name": f"d/Visits/{stray.name}", "deleted": True} in json_of("gc", "checkpoint")
    assert not stray.exists()
    (free,) = json_of("pin", "checkpoint", "2", "--remove")
    assert free["pins"] == []
    assert command("verify", VISITS, "--source").exit_code == 0


@pytest.mark.parametrize(
    ("outputs", "says"),
    [("retract", "is still there: the next run takes it back"), ("again", "the next run publishes it a second time")],
)
def test_a_rollback_says_what_the_next_run_does_with_the_outputs(done: Path, outputs: str, says: str) -> None:
    """Until then the outputs are there, and would be taken for those of the checkpoint."""
    said = command("rollback", "checkpoint", "2", f"--outputs={outputs}").stdout
    assert says in said and len(list((done / "visits").glob("*.parquet")))


def test_rollback_to_a_clock(done: Path) -> None:
    """Without it a time from a log would first have to be translated into an id."""
    (back,) = json_of("rollback", "checkpoint", "--clock", "2024-05-01T10:01Z", "--outputs=again")
    assert back["target"] == 2
    assert command("rollback", "checkpoint", "--clock", "-5", "--outputs=again").exit_code == 3


def test_merge_of_two_jobs(done: Path) -> None:
    """Without it two jobs over one source could be added up."""
    said = command("merge", "checkpoint", "checkpoint", "both")
    assert said.exit_code == 1
    assert "would count twice" in said.stderr
    assert not Path("both").exists()


def test_export_is_read_by_duckdb(done: Path) -> None:
    """Without it the promise of the help text would be untried."""
    (made,) = json_of("export", VISITS, "out")
    assert (made["rows"], made["checkpoint"]) == (1, json_of("history", "checkpoint")[-1]["id"])
    assert duckdb.sql("select page, visits, bytes from 'out/*.parquet'").fetchall() == [("/home", 2, 100)]
    assert "1 row in 1 file," in command("export", VISITS, "again").stdout
    assert command("export", VISITS, "out").exit_code == 1


def test_progress_is_shown_on_a_terminal_only(done: Path) -> None:
    """Without it a log would fill with spinners."""
    for words in (("verify", VISITS, "--source"), ("export", VISITS, "out"), ("savepoint", "checkpoint", "s")):
        assert command(*words).stderr == ""
    assert kinds()[-1] == "checkpoint"
    assert Log(LocalStorage("checkpoint")).ids()
