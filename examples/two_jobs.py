"""Two jobs that need not wait for each other share a log: one counts visits a minute, the other finds the busiest page.

python examples/two_jobs.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from monoids import Count, Max
from persistent import (
    LogSink,
    LogSource,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    SegmentedLog,
    WindowState,
    tumbling,
)


class Visits(PersistentTask):
    """Visits per page and minute."""

    key = "page"

    def persistent_state(self) -> WindowState:
        return WindowState(Count(), tumbling("1 min"))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


class Busiest(PersistentTask):
    """The most visits that a page had in a minute."""

    key = "page"

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(Max())

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, message.value["value"])


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    log = SegmentedLog(folder / "log", keep_age="7 days")
    views = [{"ts": 1_000 * second, "page": "/a" if second % 3 else "/b"} for second in range(200)]
    first = Pipeline(
        source=MemorySource(views), task=Visits(), sink=LogSink(log), checkpoint=str(folder / "visits-checkpoint")
    )
    print("first job:", first.run(engine="embedded", end_of_input=True).outputs, "windows in the log")
    second = Pipeline(source=LogSource(log), task=Busiest(), checkpoint=str(folder / "busiest-checkpoint"))
    second.run(engine="embedded")
    for row in second.state().to_pylist():
        print("second job:", row["page"], "had at most", row["value"], "visits in a minute")


if __name__ == "__main__":
    main()
