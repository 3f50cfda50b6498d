"""persistent explain says what a run will do, and starts nothing."""

from __future__ import annotations

import json
from pathlib import Path

from tests.tools.cli.visits import command


def test_explain_says_what_a_run_will_do(folder: Path) -> None:
    """Whoever reviews a pipeline would have to run it."""
    before = sorted(folder.rglob("*"))
    result = command("explain", "visits.py:pipeline", "--workers", "2")
    assert result.exit_code == 0, result.output
    for text in (
        "task Visits: a new job",
        "A step reads exactly 2 records.",
        "It waits for files that are listed and not read yet",
        'record(visits=Count(), bytes=Sum(int)) for each key (page, status), by tumbling("1 min")',
        "A window closes in the step after the clock has passed its end",
        "To file: each window when it closes.",
        "exactly-once.",
        "2 workers",
    ):
        assert text in " ".join(result.stdout.split()), result.stdout
    assert [one for one in sorted(folder.rglob("*")) if "__pycache__" not in str(one)] == before


def test_explain_as_json(done: Path) -> None:
    """A review by a program would have to read prose."""
    found = json.loads(command("explain", "visits.py:pipeline", "--json").stdout)
    assert found["pipeline"]["checkpoint"] > 0 and found["reads"]["sources"]["file"]["partitions"] == 1
    assert found["promises"]["parts"]["sink"]["level"] == "exactly-once"
    assert found["memory"]["row_bytes_from"] == {"Visits": "measured"} and found["reads"]["text"]
