"""Last week's orders are in files, today's are in a log, and both hold yesterday: each order counts once.

python examples/history_and_stream.py
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from monoids import Sum
from persistent import (
    FileSource,
    LogSource,
    MemorySink,
    PersistentTask,
    Pipeline,
    SegmentedLog,
    WindowState,
    then,
    tumbling,
)

HOUR = 3_600_000
FIRST = 1_714_953_600_000
"""2024-05-06, midnight."""


class Revenue(PersistentTask):
    """Cents taken per day."""

    key = None

    def persistent_state(self) -> WindowState:
        return WindowState(Sum(), tumbling("1 day"))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, message.value["cents"])


def order(hour: int) -> dict[str, Any]:
    return {"ts": FIRST + hour * HOUR, "order": hour, "cents": 100}


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    (folder / "archive").mkdir()
    # The archive has five days, with some orders of the sixth; the log has everything from the fifth day on.
    archived = "".join(json.dumps(order(hour)) + "\n" for hour in range(126))
    (folder / "archive" / "orders.jsonl").write_text(archived)
    log = SegmentedLog(folder / "log")
    with log.writer() as writer:
        for hour in range(96, 168):
            writer.append(json.dumps(order(hour)).encode(), time=FIRST + hour * HOUR)
    source = then(
        FileSource(folder / "archive", timestamp="ts", timestamp_unit="ms"),
        LogSource(log, timestamp="ts", timestamp_unit="ms"),
        at="2024-05-11T00:00Z",
        max_skew="2 h",
    )
    sink = MemorySink()
    pipeline = Pipeline(source=source, task=Revenue(), sink=sink, checkpoint=str(folder / "checkpoint"))
    report = pipeline.run(engine="embedded", end_of_input=True)
    for row in sorted(sink.rows(), key=lambda row: row["window_start"]):
        print(f"{row['window_start']:%Y-%m-%d}: {row['value']} cents")
    for partition, account in report.ledger.items():
        print(f"{partition}: {account.read} read, {account.processed} counted here")


if __name__ == "__main__":
    main()
