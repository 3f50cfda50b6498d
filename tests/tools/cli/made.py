"""What may lie where a checkpoint is looked for."""

from __future__ import annotations

import hashlib
from pathlib import Path

from click.testing import CliRunner

from persistent.tools.cli import main

ROOT = Path(__file__).parents[3]


VISITS = """
from monoids import Count
from persistent import FileSink, MemorySource, PersistentTask, Pipeline, WindowState, tumbling

class Visits(PersistentTask):
    key = "page"

    def persistent_state(self):
        return WindowState(Count(), tumbling("1 min"))

    def process_message(self, state, message):
        state.update(message.timestamp, 1)

rows = [{"ts": 1_000 * n, "page": "ab"[n % 2]} for n in range(50)]
pipeline = Pipeline(
    source=MemorySource(rows, timestamp="ts"), task=Visits(), sink=FileSink("published"), checkpoint="checkpoint",
    step_rows=10,
)
nothing = None
"""


READS: dict[str, tuple[str, ...]] = {
    "history": ("history", "URL"),
    "show": ("show", "URL"),
    "show of an id": ("show", "URL", "3"),
    "clock": ("clock", "URL"),
    "diff": ("diff", "URL", "3"),
    "diff of two": ("diff", "URL", "URL"),
    "diff of values": ("diff", "PIPELINE", "3"),
    "state": ("state", "PIPELINE"),
    "state of a key": ("state", "PIPELINE", "--key", "a"),
    "state of an id": ("state", "PIPELINE", "--at", "3"),
    "late": ("late", "URL"),
    "dead-letters": ("dead-letters", "URL"),
    "verify": ("verify", "URL"),
    "verify of the source": ("verify", "PIPELINE", "--source"),
    "export": ("export", "PIPELINE", "out"),
    "gc of nothing": ("gc", "URL", "--dry-run"),
}


WRITES: dict[str, tuple[str, ...]] = {
    "savepoint": ("savepoint", "URL", "monday"),
    "rollback": ("rollback", "URL", "3", "--outputs=retract"),
    "rollback to a clock": ("rollback", "URL", "--clock", "20000", "--outputs=again"),
    "clock set back": ("clock", "URL", "--set-back", "--not-after", "20000", "--outputs=retract"),
    "pin": ("pin", "URL", "3"),
    "gc": ("gc", "URL"),
    "compact": ("compact", "PIPELINE"),
    "correct": ("correct", "PIPELINE", "ticket", "--add", "more.jsonl"),
    "merge": ("merge", "URL", "URL", "both"),
}


COMMANDS = {**READS, **WRITES}


def contents(folder: Path) -> dict[str, str]:
    """Every file and folder there is, with the hash of its bytes."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for path in sorted(folder.rglob("*"))
        if "__pycache__" not in path.parts
    }


def told(words: tuple[str, ...]) -> tuple[int, str]:
    """The exit code, and the one line that says why."""
    words = tuple({"URL": "checkpoint", "PIPELINE": "visits.py:pipeline"}.get(word, word) for word in words)
    result = CliRunner().invoke(main, list(words))
    assert "Traceback" not in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    lines = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert len(lines) == (result.exit_code != 0), result.stderr
    return result.exit_code, "".join(lines)
