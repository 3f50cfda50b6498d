"""What looks like a mistake is said where a person looks, once: in the log as it is found, and in the report."""

from __future__ import annotations

import logging
import uuid
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from monoids import Count
from persistent import (
    FileSink,
    FileSource,
    MemorySink,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    RunReport,
    WindowState,
    sliding,
    tumbling,
)
from persistent.checkpoint.running import put_mark
from persistent.driver.cautions import of_records, of_refused

ROWS = [{"ts": 60_000 * n, "page": "ab"[n % 2]} for n in range(10)]


class Visits(PersistentTask):
    key: Any = "page"
    window: Any = tumbling("1 min")

    def persistent_state(self) -> WindowState:
        return WindowState(Count(), self.window)

    def process_message(self, state: Any, message: Any) -> None:
        if message.value["page"] is None:
            raise ValueError("no page")
        state.update(message.timestamp, 1)


@pytest.fixture(autouse=True)
def nothing_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    """What another test has logged in this process would not be logged again."""
    monkeypatch.setattr("persistent.driver.notes._LOGGED", set())


def pipeline_of(task: PersistentTask, rows: Any = ROWS, url: str = "", **options: Any) -> Pipeline:
    return Pipeline(
        source=MemorySource(rows, timestamp="ts", ordered=True),
        task=task,
        sink=options.pop("sink", None) or MemorySink(),
        checkpoint=url or f"memory://{uuid.uuid4().hex}",
        on_error="dead-letter",
        **options,
    )


def run(task: PersistentTask, rows: Any = ROWS, url: str = "", **options: Any) -> RunReport:
    return pipeline_of(task, rows, url, **options).run(engine="embedded")


def test_a_run_without_a_doubt_has_no_notes() -> None:
    """Warnings that are always there are read by nobody."""
    report = run(Visits())
    assert report.notes == () and "\n" not in str(report)


def test_records_that_are_all_dead_or_late_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """'0 rows published', and an exit code of 0: a wrong unit or a wrong field looks like an empty day."""
    with caplog.at_level(logging.WARNING, "persistent"):
        dead = run(Visits(), [{**row, "page": None} for row in ROWS], step_rows=2)
    (note,) = dead.notes
    assert note.startswith(
        "WARNING: all 10 records read became dead letters and count nowhere, the first of them: ValueError: no page "
    )
    assert str(dead).endswith(f"\n{note}") and "into a new checkpoint and sink" in note
    (logged,) = (one.getMessage() for one in caplog.records if one.name == "persistent.driver")  # Once a run.
    assert "WARNING" not in logged and logged.endswith(note.removeprefix("WARNING: ")), "the log shows its level"
    behind = [ROWS[-1], *({**row, "ts": row["ts"] % 180_000} for row in ROWS)]
    (note,) = run(Visits(), behind, step_rows=1).notes
    assert note.startswith("10 of 11 records read came too late") and "max_out_of_orderness=" in note


@pytest.mark.parametrize(
    ("rows", "late", "dead", "ended", "fates"),
    [
        (0, 0, 0, True, []),
        (10, 5, 5, True, ["dead", "late"]),
        (10, 4, 4, True, []),
        (2, 0, 1, True, ["dead"]),
        (10, 6, 4, True, ["late"]),
        (10, 0, 10, False, []),
        (1_000, 500, 0, False, ["late"]),
        (1_000, 0, 500, False, ["dead"]),
        (1_000, 499, 499, False, []),
    ],
)
def test_half_is_told_and_while_it_runs_of_enough(
    rows: int, late: int, dead: int, ended: bool, fates: list[str]
) -> None:
    """Half is what a first file against a second looks like; the first record of an endless stream is no half."""
    assert [fate for fate, _ in of_records(rows, late, dead, "", ended=ended)] == fates


class ByMinuteAndInAll(Visits):
    def persistent_state(self) -> Any:
        return {"minutes": WindowState(Count(), self.window), "total": NonWindowState(Count())}

    def process_message(self, state: Any, message: Any) -> None:
        for one in state.values():
            one.update(message.timestamp, 1)


def test_most_records_missing_in_one_state_are_told() -> None:
    """Totals beside it take every record, so nothing is late, and nobody would see that the windows are empty."""
    rows = [{"ts": 60_000 * n, "page": "a"} for n in (9, 1, 2, 3)]
    pipeline = Pipeline(
        source=MemorySource(rows, timestamp="ts", ordered=True),
        task=ByMinuteAndInAll(),
        sink={"minutes": MemorySink(), "total": MemorySink()},
        checkpoint=f"memory://{uuid.uuid4().hex}",
        step_rows=1,
    )
    report = pipeline.run(engine="embedded")
    assert report.late == 0
    assert [note[:65] for note in report.notes] == ["3 of 4 records read came too late for the state 'minutes' and are"]


def test_no_key_is_told_unless_it_was_said() -> None:
    """A task without key counts everything as one: that is seldom meant, and never seen."""

    class Silent(PersistentTask):
        def persistent_state(self) -> NonWindowState:
            return NonWindowState(Count())

        def process_message(self, state: Any, message: Any) -> None:
            state.update(message.timestamp, 1)

    class Said(Silent):
        key = None

    url = f"memory://{uuid.uuid4().hex}"
    (note,) = run(Silent(), url=url).notes
    assert note.startswith("Silent declares no key") and "key = None" in note
    assert run(Said()).notes == ()
    assert run(Silent(), url=url).notes == (), "what has begun so is meant so"


@pytest.mark.parametrize(
    ("window", "says"),
    [
        (tumbling(60), 'tumbling(60) is windows of 60 ms, as a bare number is milliseconds: give "60 s"'),
        (tumbling(3600), "tumbling(3600) is windows of 3600 ms"),
        (tumbling(86_400), "tumbling(86400) is windows of 86400 ms"),
        (sliding(300, every=60), "sliding(300, every=60) is windows of 300 ms"),
        (sliding(300, every=60, offset=7), "sliding(300, every=60, offset=7) is windows of 300 ms"),
        (tumbling(60, offset="7 ms"), "tumbling(60, offset='7 ms') is windows of 60 ms"),
        (tumbling(60_000), None),
        (tumbling("60 ms"), None),
        (sliding("1 h", every=60), None),
    ],
)
def test_a_bare_number_that_may_be_seconds_is_told(window: Any, says: str | None) -> None:
    """A window of a minute that is sixty milliseconds gives a thousand times the rows, and each looks right."""
    task = Visits()
    task.window = window
    notes = run(task, ROWS[:2]).notes
    assert [note.startswith(says) for note in notes] == [True] if says else notes == ()
    assert window == replace(window, bare=""), "how it was written is no part of what it is"


def test_what_is_written_so_is_logged_once_and_what_happens_each_time(caplog: pytest.LogCaptureFixture) -> None:
    """A notebook or a service that runs its pipelines again and again would bury the rest of its log."""
    dead = [{**row, "page": None} for row in ROWS]

    class Own(Visits):
        window = tumbling(7_001)

    class Other(Own):
        pass

    with caplog.at_level(logging.WARNING, "persistent"):
        reports = [run(Own(), dead) for _ in range(3)]
        said = [record.getMessage() for record in caplog.records]
        run(Other(), dead)
    assert sum("as a bare number is milliseconds" in one for one in said) == 1
    assert sum("as a bare number is milliseconds" in record.getMessage() for record in caplog.records) == 2
    assert sum("became dead letters" in one for one in said) == 3
    assert all(any("as a bare number" in note for note in report.notes) for report in reports)


@pytest.mark.parametrize(
    ("source", "history", "options", "says"),
    [
        (
            {"max_out_of_orderness": 60},
            None,
            {},
            ["max_out_of_orderness=60 is 60 ms, as a bare number is milliseconds: "],
        ),
        ({}, None, {"max_future": 60}, ['max_future=60 is 60 ms, as a bare number is milliseconds: give "60 s" if']),
        ({}, 3600, {}, ["history=3600 is 3600 ms"]),
        ({"max_out_of_orderness": 5}, None, {"max_future": 1}, ["max_out_of_orderness=5 is", "max_future=1 is"]),
        ({"max_out_of_orderness": "60 ms"}, "60 ms", {"max_future": "60 ms"}, []),
        ({"max_out_of_orderness": 0}, 0, {"max_future": 60_000}, []),
        ({"max_out_of_orderness": timedelta(milliseconds=60)}, None, {}, []),
    ],
)
def test_other_bare_numbers_that_may_be_seconds_are_told(
    source: Any, history: Any, options: Any, says: list[str], tmp_path: Path
) -> None:
    """A disorder of 60 that is sixty milliseconds makes late what is on time, and the report says only that it is."""

    class Total(Visits):
        def persistent_state(self) -> NonWindowState:  # type: ignore[override]
            return NonWindowState(Count(), history=history)

    (tmp_path / "a.jsonl").write_text('{"ts": 1, "page": "a"}\n')
    for made in (
        MemorySource(ROWS[:1], **source),
        FileSource(tmp_path, timestamp="ts", timestamp_unit="ms", **source),
    ):
        checkpoint = f"memory://{uuid.uuid4().hex}"
        pipeline = Pipeline(source=made, task=Total(), checkpoint=checkpoint, **options)
        notes = pipeline.run(engine="embedded").notes
        assert len(notes) == len(says)
        assert all(note.startswith(said) for note, said in zip(notes, says))
        assert pipeline.run(engine="embedded").notes == (), "what has begun so is meant so"


def test_what_looks_like_a_mistake_is_told_before_anything_is_read(caplog: pytest.LogCaptureFixture) -> None:
    """At the end of a run of hours it would be too late."""
    task = Visits()
    task.window = tumbling(15)
    told: list[list[str]] = []
    with caplog.at_level(logging.WARNING, "persistent"):
        pipeline_of(task, max_future=60, step_rows=2).run(
            engine="embedded", on_step=lambda step: told.append([record.getMessage() for record in caplog.records])
        )
    first = told[0]
    assert any("tumbling(15) is windows of 15 ms" in text for text in first)
    assert any("max_future=60 is 60 ms" in text for text in first)


def test_another_driver_that_seemed_to_run_is_told_and_fenced() -> None:
    """Two schedulers on one checkpoint take turns for ever, and each of them says that all is well."""
    pipeline = pipeline_of(Visits(), step_rows=3)
    pipeline.run(engine="embedded")
    name = put_mark(pipeline.storage, 1, "0" * 32)
    more = Pipeline(
        source=MemorySource([*ROWS, {"ts": 600_000, "page": "a"}], timestamp="ts"),
        task=Visits(),
        sink=pipeline.sink,
        checkpoint=pipeline.storage,
    )
    (note,) = more.run(engine="embedded").notes
    assert note.startswith("another driver seemed to run: process") and "now fenced" in note
    assert name.removeprefix("r/") not in pipeline.storage.list("r")


@pytest.mark.parametrize(
    ("unit", "times", "says"),
    [
        ("ms", [1_700_000_000, 1_700_000_060], "the latest record of source 'memory' is of 1970-01-20 16:13:20.060Z"),
        ("us", [1_700_000_000_000], "the latest record of source 'memory' is of 1970-01-20 16:13:20Z"),
        ("s", [1_700_000_000], None),
        ("ms", [1_700_000_000_000, 1_700_000_000], None),
        ("ms", [1_000, 600_000_000], None),
        ("ms", [4_200_000_000], None),
    ],
)
def test_seconds_that_are_read_as_milliseconds_are_told(unit: str, times: list[int], says: str | None) -> None:
    """All of a year falls into one window of an hour, in January 1970, and nothing is late."""
    made = [{"ts": time, "page": "a"} for time in times]
    job = Pipeline(
        source=MemorySource(made, timestamp="ts", timestamp_unit=unit),
        task=Visits(),
        sink=MemorySink(),
        checkpoint=f"memory://{uuid.uuid4().hex}",
        step_rows=1,
    )
    notes = job.run(engine="embedded").notes
    assert [note.startswith(says) for note in notes] == [True] if says else notes == ()
    if says:
        assert "of 2023-11-14 22:1" in notes[0] and 'give timestamp_unit="s"' in notes[0]
        more = Pipeline(
            source=MemorySource([*made, made[-1]], timestamp="ts", timestamp_unit=unit),
            task=Visits(),
            sink=job.sink,
            checkpoint=job.storage,
        )
        assert more.run(engine="embedded").notes == (), "what has begun so is meant so"


def test_files_of_others_in_the_folder_of_a_sink_are_told(tmp_path: Path) -> None:
    """Who reads the folder would count them with the results."""
    for hidden in (".notes", "_SUCCESS", "more.jsonl"):
        (tmp_path / hidden).write_text("{}\n")
    jobs = [
        Pipeline(source=source, task=Visits(), sink=FileSink(tmp_path, format="jsonl"), checkpoint=tmp_path / "_state")
        for source in (MemorySource(ROWS, timestamp="ts"), MemorySource([*ROWS, *ROWS], timestamp="ts"))
    ]
    (note,) = (note for note in jobs[0].run(engine="embedded").notes if "folder" in note)
    assert (
        "holds a file already, of others, such as more.jsonl" in note and "a folder of its own, or remove them" in note
    )
    assert not [note for note in jobs[1].run(engine="embedded").notes if "folder" in note], "they are its own now"


def test_late_records_name_the_repair_of_a_clock_that_one_record_set_ahead() -> None:
    """One record far ahead made the next 20 late, and only the disorder was spoken of."""
    texts = [text for _, text in (*of_records(21, 20, 0, "", ended=True), *of_refused(21, 1, {"a": 20}, ended=True))]
    assert len(texts) == 2
    for text in texts:
        assert "--find' names it" in text and "--set-back" in text and "max_future=" in text


class Totals(Visits):
    options: Any = {}
    names: Any = ()

    def persistent_state(self) -> Any:
        state = NonWindowState(Count(), **self.options)
        return {"total": state, "minutes": WindowState(Count(), self.window)} if self.names else state

    def process_message(self, state: Any, message: Any) -> None:
        for one in (state[name] for name in self.names) if self.names else (state,):
            one.update(message.timestamp, 1)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "a run that follows publishes nothing of the state: without windows"),
        ({"names": ("total", "minutes")}, "a run that follows publishes nothing of the state 'total': without windows"),
        ({"options": {"emit": "change"}}, ""),
        ({"options": {"early": "1 min"}}, ""),
    ],
)
def test_a_state_that_a_run_which_follows_never_publishes_is_told(
    caplog: pytest.LogCaptureFixture, given: dict[str, Any], says: str
) -> None:
    """Hours of an empty sink, and not a word. Each advice is tried: what it says is published while the run follows."""
    task = type("Totals", (Totals,), given)()
    sinks = {name: MemorySink() for name in given.get("names", ())}
    job = pipeline_of(task, **({"sink": sinks} if sinks else {}))
    published = []

    def stop(idle: Any) -> None:
        published.append(len(job.all_sinks[next(iter(job.all_sinks))].rows()))
        raise KeyboardInterrupt

    with caplog.at_level(logging.WARNING, "persistent"), pytest.raises(KeyboardInterrupt):
        job.run(engine="embedded", follow=True, on_idle=stop)
    notes = [text for text in caplog.messages if "follows publishes nothing" in text]
    assert [says in text and 'emit="change"' in text for text in notes] == [True] * bool(says)
    assert (published[0] > 0) == (not says)
    caplog.clear()
    assert not [note for note in job.run(engine="embedded", end_of_input=True).notes if "follows" in note]
    assert len(job.all_sinks[next(iter(job.all_sinks))].rows()) >= 2, "the other advice: at the end of the input"
    assert ("(--follow) publishes nothing" in str(job.explain())) == bool(says)
