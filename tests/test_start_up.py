"""A command answers in a moment: what only some runs need is loaded by those runs."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEAVY = ("pyspark", "hypothesis", "duckdb", "polars", "pandas", "fsspec", "s3fs", "pytest", "prometheus_client")
HEAVY += ("opentelemetry", "starlette", "uvicorn", "confluent_kafka", "psycopg", "pika", "rstream", "fastavro")
HEAVY += ("rich.console", "rich.table", "tenacity")
HEAVY_FOR_A_LIST = ("numpy", "pyarrow", "monoids.monoid")
HEAVY_FOR_A_LIST += ("persistent.pipeline", "persistent.storage", "persistent.sources")
"""What no list of commands needs, and every run does."""
SECONDS_MAX = 3.0
"""Of the processor: six times what a quiet machine needs, so that a busy one passes."""
SECONDS_OF_A_LIST_MAX = 1.0
"""Of the processor: ten times what a quiet machine needs."""
HELP = """
import sys; sys.argv = ["persistent", "--help"]; from persistent.tools.cli import main; main(standalone_mode=False)"""
COMPLETE = """
import os, sys
os.environ |= {"COMP_WORDS": "persistent ", "COMP_CWORD": "1", "_PERSISTENT_COMPLETE": "bash_complete"}
from persistent.tools.cli import main
try:
    main(prog_name="persistent")
except SystemExit:
    pass
"""
RUN = """
import sys
from monoids import Count
from persistent import FileSink, FileSource, NonWindowState, PersistentTask, Pipeline
class Visits(PersistentTask):
    key = "page"
    def persistent_state(self): return NonWindowState(Count())
    def process_message(self, state, message): state.update(message.timestamp, 1)
source, sink = FileSource("*.csv", timestamp="ts"), FileSink("out")
pipeline = Pipeline(source=source, task=Visits(), sink=sink, checkpoint="checkpoint")
assert pipeline.run(engine="embedded", end_of_input=True).outputs == 1
"""
TOLD = "\nprint('loaded', *(name for name in {names!r} if name in sys.modules))"


def loaded(code: str, names: tuple[str, ...], seconds_max: float) -> str:
    """Which of the modules the code loads; an error if it takes longer."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    told = TOLD.format(names=names)
    done = subprocess.run([sys.executable, "-c", code + told], env=environment, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < seconds_max
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("code", ["import sys, persistent, monoids", HELP, RUN], ids=["import", "help", "run"])
def test_what_starts_loads_nothing_heavy_and_soon(code: str, here: Path) -> None:
    """A command that is called often, as by completion or a supervisor, would take seconds each time."""
    (here / "1.csv").write_text("ts,page\n1970-01-01T00:00:01Z,a\n")
    # Arrow looks for pandas itself, once it makes an array of Python values.
    assert loaded(code, HEAVY, SECONDS_MAX).replace(" pandas" if code == RUN else "", "") == "loaded"


@pytest.mark.parametrize("code", ["import sys, persistent", HELP, COMPLETE], ids=["import", "help", "completion"])
def test_a_list_of_commands_is_there_at_once(code: str) -> None:
    """Each press of the tab key would wait for half a second."""
    assert loaded(code, HEAVY + HEAVY_FOR_A_LIST, SECONDS_OF_A_LIST_MAX) == "loaded"
