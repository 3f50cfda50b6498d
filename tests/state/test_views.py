"""Closing publishes each window once, with a bounded number of rows in memory."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from monoids import Sum
from persistent import MemorySink, MemorySource, PersistentTask, Pipeline, WindowState, sliding
from persistent.engines.embedded import Embedded
from persistent.state import views
from persistent.storage import MemoryStorage
from persistent.worker import publish_shard


class Totals(PersistentTask):
    def persistent_state(self) -> WindowState:
        return WindowState(Sum(), sliding(60, 1))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, message.timestamp)


class ByName(Totals):
    key = "name"


NAMES = ("a" * 200, "b" * 200)
ROWS = [{"ts": time, "name": NAMES[time % 2]} for time in range(100, 500, 3)]


def published(task: PersistentTask) -> dict[tuple[Any, int], int]:
    sink, memory = MemorySink(), MemoryStorage(uuid.uuid4().hex)
    Pipeline(source=MemorySource(ROWS, timestamp="ts"), task=task, sink=sink, checkpoint=memory, step_rows=50).run(
        engine=Embedded(threads=1), end_of_input=True
    )
    rows = sink.table.to_pylist()
    found = {(row.get("name"), int(row["window_start"].timestamp() * 1000 + 0.5)): row["value"] for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize("task", [Totals, ByName])
@pytest.mark.parametrize(("bound", "limit"), [("_WINDOW_ROWS_MAX", 100), ("_WINDOW_KEY_BYTES_MAX", 100 * 204)])
def test_few_keys_in_many_windows_are_closed_in_pieces(
    monkeypatch: pytest.MonkeyPatch, task: type[PersistentTask], bound: str, limit: int
) -> None:
    """A day of windows that start each second holds each of its panes thousands of times: gigabytes for one key."""
    sizes: list[int] = []
    window_outputs = publish_shard.window_outputs

    def measured(*arguments: Any) -> Any:
        sizes.append(len(arguments[4]))
        return window_outputs(*arguments)

    monkeypatch.setattr(publish_shard, "window_outputs", measured)
    monkeypatch.setattr(views, bound, limit)
    found = published(task())
    expected: dict[tuple[Any, int], int] = {}
    for row in ROWS:
        for start in range(row["ts"] - 59, row["ts"] + 1):
            place = row["name"] if task is ByName else None, start
            expected[place] = expected.get(place, 0) + row["ts"]
    assert found == expected
    if task is ByName or bound == "_WINDOW_ROWS_MAX":
        assert len(sizes) > 5
        assert max(sizes) == 100


def test_long_keys_are_closed_in_more_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """More text than a column holds could never be closed, however often the job is run again."""
    ranges: list[tuple[int, int]] = []

    def noted(job: Any, item: Any) -> Any:
        ranges.append((item.low, item.high))
        return publish_shard.close_shard(job, item)

    whole = published(ByName())
    monkeypatch.setattr("persistent.worker.dispatch.close_shard", noted)
    monkeypatch.setattr("persistent.checkpoint.compaction._BYTES_MAX", 1_000)
    assert published(ByName()) == whole
    assert len({low for low, _ in ranges}) > 2
