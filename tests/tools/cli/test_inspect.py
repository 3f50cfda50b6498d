"""persistent history and show tell what a checkpoint holds."""

from __future__ import annotations

from pathlib import Path

from tests.tools.cli.visits import command, json_of


def test_history(done: Path) -> None:
    """Without it nobody would see how a checkpoint came about."""
    lines = json_of("history", "checkpoint")
    assert [line["id"] for line in lines] == list(range(len(lines)))
    assert [line["kind"] for line in lines][:3] == ["checkpoint", "fence", "checkpoint"]
    assert (lines[-1]["read"], lines[-1]["processed"], lines[-1]["late"], lines[-1]["dead"]) == (7, 5, 1, 1)
    table = command("history", "visits.py:pipeline").stdout
    assert len(table.splitlines()) == len(lines) + 1
    assert "2024-05-01 10:02:11Z" in table.splitlines()[-1]


def test_only_a_rollback_goes_to_a_checkpoint(done: Path) -> None:
    """The fence of the next run copies the target, and was shown as one that goes back too."""
    assert command("rollback", "checkpoint", "0", "--outputs=again").exit_code == 0
    assert command("run", "visits.py:pipeline", "--engine", "embedded").exit_code == 0
    table = command("history", "checkpoint").stdout
    assert table.count(" to 0") == 1 and "rollback to 0" in table


def test_show(done: Path) -> None:
    """Without it the content of a manifest could be read only by hand."""
    shown = command("show", "checkpoint").stdout
    assert "read 7, processed 5, late 1, dead 1" in shown
    assert "page: string, status: int64" in shown
    assert "record(visits=Count(), bytes=Sum(int))" in shown
    (manifest,) = json_of("show", "checkpoint", "0")
    assert (manifest["id"], manifest["kind"]) == (0, "checkpoint")
    missing = command("show", "checkpoint", "999")
    assert missing.exit_code == 3
    assert "keeps no checkpoint 999" in missing.stderr
