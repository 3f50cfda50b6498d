"""persistent verify and doctor say what is sound."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.tools.cli.visits import command, json_of

VISITS = "visits.py:pipeline"


def test_verify(done: Path) -> None:
    """Without it a damaged checkpoint would first be noticed when it is needed."""
    sound = command("verify", "checkpoint")
    assert sound.exit_code == 0, sound.output
    newest = json_of("history", "checkpoint")[-1]["id"]
    assert f"checkpoint {newest} verifies" in sound.stdout
    path = done / "checkpoint" / "m" / f"{newest:020d}.json"
    path.write_bytes(path.read_bytes().replace(b'"late":1', b'"late":0'))
    damaged = command("verify", "checkpoint")
    assert damaged.exit_code == 4
    assert f"fault: m/{newest:020d}.json: SHA-256 differs from its trailer" in damaged.stdout
    assert re.search(
        rf"1 fault: m/{newest:020d}.json: SHA-256 differs.*; checkpoint {newest - 1} is the", damaged.stderr
    )
    told = command("verify", "checkpoint", "--json")
    assert json.loads(told.stdout)["ok"] is False
    assert told.exit_code == 4


def test_verify_with_the_source_names_the_partition(done: Path) -> None:
    """Without it a source that was changed behind the job's back would never be noticed."""
    assert command("verify", VISITS, "--source").exit_code == 0
    path = done / "views" / "1.csv"
    path.write_text(path.read_text().replace("10:00:40Z", "10:00:41Z"))
    said = command("verify", VISITS, "--source")
    assert said.exit_code == 4
    assert "1.csv" in said.stdout
    assert "is the newest, and itself verifies" in said.stderr


def test_verify_of_a_pipeline_looks_at_its_sinks(done: Path) -> None:
    """Without it a result that was damaged after it was published would be found by whoever trusts it."""
    assert "note: sinks: not looked at: only the pipeline knows them" in command("verify", "checkpoint").stdout
    sound = command("verify", VISITS)
    assert sound.exit_code == 0 and "not looked at" not in sound.stdout, sound.output
    assert "sink file" in sound.stdout
    path = sorted((done / "visits").glob("*.parquet"))[0]
    path.write_bytes(path.read_bytes() + b"x")
    damaged = command("verify", VISITS)
    assert damaged.exit_code == 4
    assert re.search(rf"fault: \S*{path.name}: has [\d,]+ bytes, but [\d,]+ were published. Restore", damaged.stdout)
    assert "is the newest, and itself verifies" in damaged.stderr
    assert command("verify", "checkpoint").exit_code == 0
    found = json.loads(command("verify", VISITS, "--json").stdout)
    assert [one["severity"] for one in found["findings"]] == ["fault"]


@pytest.mark.check
def test_doctor(folder: Path) -> None:
    """Without it nobody would know whether another store can be trusted."""
    rows = json_of("doctor", "checkpoint")
    assert rows and all(row["passed"] for row in rows)
    Path("file").write_text("")
    said = command("doctor", "file")
    assert said.exit_code == 6
    assert "is not fit for checkpoints" in said.stderr
