"""What is published to one sink as a whole is published to no other, where readers add up what they get."""

from __future__ import annotations

import sqlite3
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from monoids import Count, Sum, record
from persistent import Evolution, MemorySink, MemorySource, PersistentTask, Pipeline, WindowState, tumbling
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.errors import InvalidPipeline, Refused
from persistent.operations import restart, rollback, savepoint
from persistent.sinks import SqliteSink
from persistent.storage import MemoryStorage

ROWS = [{"ts": time, "key": key} for time, key in zip((1, 12, 25, 38, 46, 57, 68, 120), "abababaa")]
DELTAS: dict[str, Any] = {"early": 10, "late": "delta"}
ADDED = [DELTAS, {"early": 10, "late": "retract"}, {"emit": "change", "changes": "retract"}]


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
    run(there, sinks, DELTAS, 4)
    before = Log(there).newest()
    sinks["two"] = MemorySink()
    run(there, sinks, DELTAS, 5)
    assert before is not None
    first = rollback(there, before.manifest.id, outputs="retract")
    assert [first.manifest.sinks[name].emptied for name in ("one", "two")] == [False, True]
    run(there, sinks, DELTAS, 6)
    second = rollback(there, first.manifest.id, outputs="retract")
    assert second.manifest.sinks["two"].emptied
    run(there, sinks, DELTAS, 7, ends=True)
    newest = Log(there).newest()
    assert newest is not None and not any(one.emptied for one in newest.manifest.sinks.values())
    for sink in sinks.values():
        assert added(sink.rows()) == plain(7)


def test_a_release_without_emptied_sinks_reads_no_manifest_with_one() -> None:
    there, sinks = storage(), {"one": MemorySink()}
    run(there, sinks, DELTAS, 4)
    before = Log(there).newest()
    run(there, {**sinks, "two": MemorySink()}, DELTAS, 5)
    assert before is not None
    manifest = rollback(there, before.manifest.id, outputs="retract").manifest
    assert "emptied sinks" in manifest._features() and Manifest.decode(manifest.encode(), "there") == manifest
    assert "emptied sinks" not in before.manifest._features()


def test_a_rollback_that_publishes_again_repeats_no_delta_from_before() -> None:
    """The later rows are published a second time, as it says. Those before the target are not."""
    there, sink = storage(), MemorySink()
    run(there, sink, DELTAS, 4)
    before, kept = Log(there).newest(), added(sink.rows())
    run(there, sink, DELTAS, 6)
    later = added(sink.rows()) - kept
    assert before is not None and later
    rollback(there, before.manifest.id, outputs="again")
    run(there, sink, DELTAS, len(ROWS), ends=True)
    assert added(sink.rows()) == plain(len(ROWS)) + later


def test_an_evolution_is_refused_while_sinks_hold_deltas_of_open_windows() -> None:
    there, sink = storage(), MemorySink()
    run(there, sink, DELTAS, 4)
    more: dict[str, Any] = {"task": Visits(DELTAS, more=Sum()), "evolve": Evolution()}
    with pytest.raises(InvalidPipeline, match="would be added twice"):
        run(there, sink, DELTAS, 6, **more)
    run(there, sink, DELTAS, 4, ends=True)
    run(there, sink, DELTAS, len(ROWS), ends=True, **more)
    assert added(sink.rows()) == plain(4) + plain(len(ROWS)) - plain(7)


def test_a_restart_is_refused_while_sinks_hold_deltas_of_open_windows() -> None:
    there, sink = storage(), MemorySink()
    run(there, sink, DELTAS, 6)
    newest = Log(there).newest()
    with pytest.raises(Refused, match="it would be added twice"):
        restart(pipeline(there, sink, DELTAS, 6), 0, outputs="retract")
    assert Log(there).newest() == newest


def test_an_heir_takes_over_no_table_of_deltas(tmp_path: Path) -> None:
    def table(name: str) -> SqliteSink:
        return SqliteSink(tmp_path / "results.db", name)

    origin, heir = f"{tmp_path}/one", f"{tmp_path}/two"
    run(origin, table("a"), DELTAS, 4)
    savepoint(origin, "here")
    with pytest.raises(InvalidPipeline, match="give it new sinks"):
        run(heir, table("a"), DELTAS, len(ROWS), start_from=f"{origin}/s/here")
    run(heir, table("b"), DELTAS, len(ROWS), start_from=f"{origin}/s/here", ends=True)
    with sqlite3.connect(tmp_path / "results.db") as database:
        rows = database.execute(
            "SELECT key, SUM(visits) FROM b WHERE window_start < '1970-01-01T00:00:00.100' GROUP BY key"
        )
        assert dict(rows.fetchall()) == {key: count for (key, start), count in plain(len(ROWS)).items() if start == 0}
