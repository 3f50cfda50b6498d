"""What a driver does on a cluster, told as JSON: one session for all, because starting one takes longest.

python -m tests.servers.on_cluster FOLDER BUCKET
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from monoids import Count
from persistent import FileSource, NonWindowState, PersistentTask, Pipeline
from persistent.engines.spark_session import session_at
from persistent.errors import PersistentError


class Visits(PersistentTask):
    """How often each page was seen."""

    key = "page"

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(Count())

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


def pipeline(source: str, checkpoint: str, **options: Any) -> Pipeline:
    """Six steps over the files of ``source``."""
    return Pipeline(
        source=FileSource(source, timestamp="ts", timestamp_unit="ms", **options),
        task=Visits(),
        checkpoint=checkpoint,
        step_rows=500,
    )


def told(call: Callable[[], Any]) -> str:
    """The error that a run ends with."""
    try:
        call()
    except PersistentError as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def executors() -> list[int]:
    """The executors there are, as the test tells after each line that it reads."""
    print("executors?", flush=True)
    return [int(pid) for pid in json.loads(sys.stdin.readline())]


def main(folder: Path, bucket: str) -> None:
    """Run one thing after the other."""
    session, said = session_at()
    events, answer = str(folder / "events"), {"said": said}
    answer["local source"] = told(lambda: pipeline(events, f"{bucket}/refused").run(session))
    answer["local checkpoint"] = told(
        lambda: pipeline(events, str(folder / "checkpoint"), shared_mount=True).run(session)
    )
    killed: list[int] = []

    def kill(step: Any) -> None:
        if not killed:
            killed.extend(executors()[:1])
            os.kill(killed[0], signal.SIGKILL)

    job = pipeline(events, f"{bucket}/job", shared_mount=True)
    answer["rows"] = str(job.run(session, on_step=kill).rows)
    answer["killed"] = str(len(killed))
    answer["state"] = json.dumps({row["page"]: row["value"] for row in job.state().to_pylist()})
    answer["python"] = session.sparkContext.pythonExec
    environment = session.sparkContext.environment
    environment["AWS_ACCESS_KEY_ID"] = environment["AWS_SECRET_ACCESS_KEY"] = ""
    answer["credentials"] = told(lambda: pipeline(events, f"{bucket}/other", shared_mount=True).run(session))
    environment["PYTHONPATH"] = str(folder / "without")
    answer["no client"] = told(lambda: pipeline("hdfs://127.0.0.1:9/events", f"{bucket}/hdfs").run(session))
    os.environ["AWS_ACCESS_KEY_ID"] = os.environ["AWS_SECRET_ACCESS_KEY"] = ""
    del environment["PYTHONPATH"]
    answer["driver"] = told(lambda: pipeline(events, f"{bucket}/third", shared_mount=True).run(session))
    print(json.dumps(answer), flush=True)
    session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
