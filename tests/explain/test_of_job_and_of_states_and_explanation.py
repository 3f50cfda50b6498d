"""An explanation says of each kind of pipeline what a run of it does; the words are kept here."""

from __future__ import annotations

from typing import Any

import pytest

from monoids import Count
from persistent import (
    Dedupe,
    MemorySink,
    MemorySource,
    NonWindowState,
    Pipeline,
    WindowState,
    session,
    tumbling,
)
from tests.tools.serve.jobs import Each
from tests.tools.serve.jobs import pipeline as several
from tests.visits import GOOD, Counted


def pipeline_of(state: Any, name: str, **options: Any) -> Pipeline:
    source = MemorySource(GOOD, timestamp="ts", max_out_of_orderness="10 s")
    given = {"source": source, "task": Counted(state), "sink": MemorySink(), "checkpoint": f"memory://explain-{name}"}
    return Pipeline(**{**given, **options})


def words(pipeline: Pipeline, section: str) -> str:
    return " ".join(pipeline.explain(parallelism=4)[section].lines)


WHOLE = """\
pipeline    explain-whole, task Visits: a new job, in memory://explain-whole.
reads       memory: MemorySource(20 rows, timestamp='ts'); partitions are known after the first step.
            A step reads exactly 10 records.
            The clock is the largest timestamp of the partition that is furthest behind, minus the disorder that
              is waited for: 10 s.
            A timestamp more than 1 d ahead of both clock and time of day is a dead letter.
keeps       Count() for each key (page), by tumbling("1 min").
closes      A window closes in the step after the clock has passed its end (end <= clock).
            It still takes records until the clock has passed its end by 30 s; then it is final.
            A record is late if every window that holds it was final by the clock of the step before.
            With --end-of-input (end_of_input=True) every window closes at the end of the input.
publishes   To memory: each window when it closes.
            A late record that counts corrects a published result by the new value, with a larger revision.
            Late records and dead letters are set aside in the checkpoint. A record for which the task raises
              stops the run.
runs        A step is one job of the engine: up to 4 splits of each source, what the clock has closed (state in
              1 shard, by what is stored now), and the runs that are due to be folded.
            Where late records or changes touch what is published, another job follows in the same step: state.
            The driver commits the checkpoint by one file, then publishes, then deletes what nobody needs.
promises    exactly-once while this process lives.
            source: exactly-once: rows are read from the same place again.
            checkpoint: exactly-once while this process lives: memory://explain-whole is in its memory.
            sink: exactly-once: rows are shown once, while this process lives.
memory      At most about 150.0 MB for each of 4 workers (threads share the first part): 150.0 MB for Python and
              Arrow, 300 B for the records of a split, and three times the larger of its delta (120 B) and a
              shard of the state (0 B).
            Assumed: 3 records a split, 100 bytes a record, each with a key and pane of its own; state: 40 bytes
              a row (fixed)."""


def test_a_whole_explanation() -> None:
    """A sentence could vanish, or say what is no longer so."""
    state = WindowState(Count(), tumbling("1 min"), allowed_lateness="30 s")
    assert str(pipeline_of(state, "whole", step_rows=10).explain(parallelism=4)) == WHOLE


STATES = {
    "total": (
        NonWindowState(Count()),
        "There are no windows: the value of a key is that of all its records. Nothing is late.",
        "every key at the end of the input.",
    ),
    "living": (
        NonWindowState(Count(), ttl="1 h"),
        "A key is forgotten once the clock has passed its last record by 1 h.",
        "every key at the end of the input.",
    ),
    "session": (
        WindowState(Count(), session("5 min")),
        "A session closes in the step after the clock has passed its last record by 5 min, the gap. "
        "A record is late if it is older than the clock of the step before.",
        "each window when it closes.",
    ),
    "late sessions": (
        WindowState(Count(), session("5 min"), allowed_lateness="1 h"),
        "A record is late if it is older than the clock of the step before, less 1 h.",
        "A late record that counts corrects a published result by the old row with retracted = true and then the new "
        "one. A published session that becomes longer, or joins another, is taken back by a row with retracted = true.",
    ),
    "growing sessions": (
        WindowState(Count(), session("5 min"), emit="change"),
        "A record is late if it is older than the clock of the step before. ",
        "what each step has changed. A published session that becomes longer, or joins another, is taken back by a row",
    ),
    "final": (
        WindowState(Count(), tumbling("1 min"), allowed_lateness="1 min", emit="final"),
        "It still takes records until the clock has passed its end by 1 min",
        "each window once, when it is final.",
    ),
    "change": (
        WindowState(Count(), tumbling("1 min"), emit="change"),
        "A record is late if every window that holds it had closed by the clock of the step before.",
        "what each step has changed.",
    ),
    "early": (
        WindowState(Count(), tumbling("1 min"), early="10 s"),
        "A window closes",
        "each window when it closes, and what has changed whenever the clock passes a multiple of 10 s.",
    ),
}


@pytest.mark.parametrize("name", STATES)
def test_when_results_are_published_and_what_is_late(name: str) -> None:
    """Whoever plans for late records would plan for others."""
    state, closes, publishes = STATES[name]
    pipeline = pipeline_of(state, name)
    assert closes in words(pipeline, "closes")
    assert publishes in words(pipeline, "publishes")
    assert ("another job follows" in words(pipeline, "runs")) == (
        name in ("living", "change", "early", "late sessions", "growing sessions")
    )


def test_each_of_several_states_and_sources() -> None:
    """Of several, one would be explained for all."""
    job = several("explained", task=Each(), sink={"minutes": MemorySink()}, discard_closed=False)
    closes = job.explain()["closes"].lines
    assert [line.partition(":")[0] for line in closes] == ["minutes", "living"]
    assert "living: Nothing: there is no sink. The state can be read." in job.explain()["publishes"].lines
    slow = MemorySource(GOOD, timestamp="ts", max_out_of_orderness="1 min")
    sources = {"fast": MemorySource([{**GOOD[0], "page": "c"}], timestamp="ts"), "slow": slow}
    options: dict[str, Any] = {"quiet_after": "5 s", "max_drift": "1 h", "on_error": "dead-letter"}
    options |= {"late_sink": MemorySink(), "dedupe": {"slow": Dedupe.by_id("n")}}
    pipeline = pipeline_of(WindowState(Count(), tumbling("1 min")), "sources", source=sources, **options)
    text = words(pipeline, "reads")
    for part in (
        "fast 0 ms, slow 1 min",
        "after 5 s without a record",
        "more than 1 h ahead",
        "copies of a record by (n)",
    ):
        assert part in text, part
    assert "late records go to the late sink too" in words(pipeline, "publishes") and "raises" not in words(
        pipeline, "publishes"
    )
    assert "files that are listed" not in text
    assert "source slow: " in words(pipeline, "promises")
    with pytest.raises(KeyError):
        pipeline.explain()["nothing"]
