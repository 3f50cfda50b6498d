"""The page answers within five seconds of looking, in a real browser: is it alive, how far behind, is anything lost,
and why is this row here. Jobs are killed, their clocks poisoned, their checkpoints damaged."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from persistent import MemorySink, MemorySource, Pipeline, Retention
from persistent.storage import MemoryStorage, open_storage
from persistent.tools.serve import Shown
from tests.tools.cli.made import ROOT
from tests.tools.serve.jobs import Visits, ran, serving

pytestmark = [pytest.mark.check, pytest.mark.browser]

GLANCE_MS = 5_000

JOB = """
import sys
sys.path.insert(0, {root!r})
from persistent import FileSink, FileSource, Pipeline
from tests.tools.serve.jobs import Visits

source = FileSource("in/*.jsonl", timestamp="ts", timestamp_unit="ms", ordered=True)
pipeline = Pipeline(source=source, task=Visits(), sink=FileSink("out"), checkpoint="visits", step_rows=10)
"""


def write(folder: Path, number: int, count: int = 10) -> None:
    now = int(time.time() * 1000)
    rows = [{"ts": now, "page": "/", "shop": 7, "size": one} for one in range(count)]
    made = folder / f"{number}.tmp"
    made.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made.rename(folder / "in" / f"{number:03}.jsonl")


@contextmanager
def driver(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    words = [sys.executable, "-m", "persistent", "run", "visits.py:pipeline", "--engine", "embedded", "--follow"]
    with subprocess.Popen(words, cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT)}) as process:
        yield process
        process.kill()


def glance(page: Any, text: str) -> None:
    page.get_by_text(text).first.wait_for(timeout=GLANCE_MS)


@pytest.mark.apart
def test_a_job_that_is_killed_and_goes_on(page: Any, tmp_path: Path) -> None:
    """A killed job would look like one at work, or one that goes on like one that has lost something."""
    (tmp_path / "in").mkdir()
    (tmp_path / "visits.py").write_text(JOB.format(root=str(ROOT)))
    write(tmp_path, 1)
    with serving(Shown("visits", "visits.py:pipeline", open_storage(str(tmp_path / "visits")))) as url:
        page.goto(url)
        page.get_by_text("No checkpoint yet").wait_for()
        with driver(tmp_path) as process:
            page.get_by_text("all 10 records accounted for").wait_for()
            glance(page, "At work")
            process.send_signal(signal.SIGKILL)
            process.wait()
            glance(page, "Killed")
            glance(page, "the next run continues")
            assert page.get_by_text("Nothing lost").is_visible()
            ago = page.get_by_text("the next run continues; its last checkpoint was planned").inner_text()
            page.get_by_text(ago, exact=True).wait_for(state="hidden")
        write(tmp_path, 2)
        with driver(tmp_path):
            page.get_by_text("all 20 records accounted for").wait_for()
            glance(page, "At work")
            page.reload()
            glance(page, "behind")
            glance(page, "Nothing lost")


def test_a_poisoned_clock(page: Any) -> None:
    """Everything would be late, and nobody would see why."""
    now = int(time.time() * 1000)
    records = [{"ts": now - 60_000 + n, "page": "/", "shop": 7, "size": n} for n in range(40)]
    records[9]["ts"] = now + 20 * 3_600_000
    MemoryStorage("serve-poisoned").clear()
    source = MemorySource(records, timestamp="ts", ordered=True)
    pipeline = Pipeline(
        source=source,
        task=Visits(),
        sink=MemorySink(),
        checkpoint="memory://serve-poisoned",
        step_rows=10,
        retention=Retention(last=50),
    )
    pipeline.run(engine="embedded")
    with serving(Shown("poisoned", "visits.py:pipeline", pipeline.storage, pipeline)) as url:
        page.goto(f"{url}#/poisoned/now")
        glance(page, "20.0 h ahead")
        glance(page, "--set-back --not-after")
        glance(page, "at offsets 0 to 9, counted by checkpoint")
        glance(page, "30 late")
        glance(page, "Most of the last 40 records were late")
        page.goto(f"{url}#/poisoned/account?rows=late")
        glance(page, "is final")


def test_a_corrupt_checkpoint_and_its_repair(page: Any) -> None:
    """The page would show an older checkpoint as the newest, or stay at the error once the file is back."""
    shown = ran("corrupt-now")
    storage = MemoryStorage("serve-corrupt-now")
    newest = f"m/{storage.list('m')[-1]}"
    whole = storage._files[newest]
    storage._files[newest] = whole.slice(0, 100)
    with serving(shown) as url:
        page.goto(f"{url}#/corrupt-now/now")
        glance(page, "This checkpoint is damaged")
        glance(page, "persistent rollback")
        storage._files[newest] = whole
        page.get_by_text("1 late and 1 dead").wait_for()


def test_a_row_says_at_a_glance_why_it_is_here(page: Any) -> None:
    """Somebody would have to read the runs."""
    with serving(ran("why")) as url:
        page.goto(f'{url}#/why/state?key=["/","7"]')
        glance(page, "Why is this row here?")
        glance(page, "each added by the checkpoints named")
