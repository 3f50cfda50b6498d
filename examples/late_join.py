"""A job joins a topic late: what another process published before is retained, and counted with what comes.

python examples/late_join.py
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from monoids import Count
from persistent import PersistentTask, Pipeline, SqliteSink, TopicSource, WindowState, tumbling
from persistent.topic import Retain, TopicSender


class Visits(PersistentTask):
    """Visits per page and minute."""

    key = "page"

    def persistent_state(self) -> WindowState:
        return WindowState(Count(), tumbling("1 min"))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


def send() -> None:
    """The other process: it publishes, and serves what it retains until it is told to end."""
    with TopicSender("views", retain=Retain(age="10 min")) as sender:
        for second in range(200):
            view = {"ts": 1_000 * second, "page": "/a" if second % 3 else "/b"}
            sender.publish(json.dumps(view).encode())
        print(sender.address, flush=True)
        sys.stdin.read()


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    sender = subprocess.Popen(
        [sys.executable, __file__, "send"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert sender.stdout is not None
    address = sender.stdout.readline().strip()
    for run in ("first", "second"):
        source = TopicSource(address, "views", journal=folder / "journal", timestamp="ts", timestamp_unit="ms")
        sink = SqliteSink(str(folder / "visits.db"), "visits")
        job = Pipeline(source=source, task=Visits(), sink=sink, checkpoint=str(folder / "checkpoint"))
        report = job.run(engine="embedded", end_of_input=run == "second")
        print(f"{run} run: {report.rows} views, {report.outputs} windows in the table")
    print(job.guarantee().split(":")[0])
    sender.communicate("")


if __name__ == "__main__":
    send() if sys.argv[1:] == ["send"] else main()
