"""What is published to one sink as a whole is published to no other, where readers add up what they get."""

from __future__ import annotations

import uuid
from collections import Counter
from typing import Any

import pytest

from monoids import Count, record
from persistent import MemorySink, MemorySource, PersistentTask, Pipeline, WindowState, tumbling
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.operations import rollback
from persistent.storage import MemoryStorage

ROWS = [{"ts": time, "key": key} for time, key in zip((1, 12, 25, 38, 46, 57, 68, 120), "abababaa")]
RETRACTS: dict[str, Any] = {"early": 10, "late": "retract"}
ADDED = [RETRACTS, {"emit": "change", "changes": "retract"}]


class Visits(PersistentTask):
    name = "visits"
    key = "key"

    def __init__(self, options: dict[str, Any], **more: Any) -> None:
        self.options, self.more = options, more

    def persistent_state(self) -> WindowState:
        return WindowState(record(visits=Count(), **self.more), tumbling(100), **self.options)

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, dict.fromkeys(("visits", *self.more), 1))


def pipeline(storage: Any, sinks: Any, options: dict[str, Any], rows: int, **more: Any) -> Pipeline:
    source = MemorySource(ROWS[:rows], timestamp="ts", ordered=True)
    given = {"task": Visits(options), "step_rows": 1, "max_future": "40000 days", **more}
    return Pipeline(source=source, sink=sinks, checkpoint=storage, **given)


def run(storage: Any, sinks: Any, options: dict[str, Any], rows: int, *, ends: bool = False, **more: Any) -> Any:
    return pipeline(storage, sinks, options, rows, **more).run(engine="embedded", end_of_input=ends)


def added(rows: Any) -> Counter[tuple[str, int]]:
    """What a reader has who adds all rows, and subtracts those that are taken back."""
    found: Counter[tuple[str, int]] = Counter()
    for row in rows:
        sign = -1 if row.get("retracted") else 1
        found[row["key"], round(row["window_start"].timestamp() * 1_000)] += sign * row["visits"]
    return found


def plain(rows: int) -> Counter[tuple[str, int]]:
    return Counter((row["key"], row["ts"] // 100 * 100) for row in ROWS[:rows])


def storage() -> MemoryStorage:
    return MemoryStorage(f"anew-{uuid.uuid4().hex}")


@pytest.mark.parametrize("options", ADDED, ids=str)
def test_a_rollback_to_before_a_sink_joined_gives_every_key_to_that_sink_alone(options: dict[str, Any]) -> None:
    """The other one holds what it was given up to there: with every key anew its readers would count twice."""
    there, sinks = storage(), {"one": MemorySink()}
    run(there, sinks, options, 4)
    before = Log(there).newest()
    sinks["two"] = MemorySink()
    run(there, sinks, options, 6)
    assert before is not None and sinks["two"].rows()
    rollback(there, before.manifest.id, outputs="retract")
    run(there, sinks, options, len(ROWS), ends=True)
    for sink in sinks.values():
        assert added(sink.rows()) == plain(len(ROWS))


def test_a_sink_that_is_emptied_twice_gets_every_key_once() -> None:
    """The second rollback is to the first one, whose checkpoint says that the sink is empty."""
    there, sinks = storage(), {"one": MemorySink()}
    run(there, sinks, RETRACTS, 4)
    before = Log(there).newest()
    sinks["two"] = MemorySink()
    run(there, sinks, RETRACTS, 5)
    assert before is not None
    first = rollback(there, before.manifest.id, outputs="retract")
    assert [first.manifest.sinks[name].emptied for name in ("one", "two")] == [False, True]
    run(there, sinks, RETRACTS, 6)
    second = rollback(there, first.manifest.id, outputs="retract")
    assert second.manifest.sinks["two"].emptied
    run(there, sinks, RETRACTS, 7, ends=True)
    newest = Log(there).newest()
    assert newest is not None and not any(one.emptied for one in newest.manifest.sinks.values())
    for sink in sinks.values():
        assert added(sink.rows()) == plain(7)


def test_a_manifest_with_an_emptied_sink_is_read_as_it_was_written() -> None:
    there, sinks = storage(), {"one": MemorySink()}
    run(there, sinks, RETRACTS, 4)
    before = Log(there).newest()
    run(there, {**sinks, "two": MemorySink()}, RETRACTS, 5)
    assert before is not None
    manifest = rollback(there, before.manifest.id, outputs="retract").manifest
    assert Manifest.decode(manifest.encode(), "there") == manifest
