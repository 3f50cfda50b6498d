"""A scrape shows what a run has committed, and no run waits for it."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from persistent import InvalidPipeline, MemorySink, MemorySource, Pipeline, PrometheusMetrics, StepReport
from persistent.operations import rollback
from persistent.storage import MemoryStorage
from persistent.testing.faults import Killed
from persistent.testing.scripted import CRASH, ScriptedSource
from tests.metrics.promtool import promtool
from tests.metrics.scrapes import OURS, Scrape, parsed, records, scrape
from tests.visits import GOOD, Visits

ROOT = Path(__file__).parents[2]
LATE = {"ts": 1_700_000_000_000, "page": "a", "n": 1}


class Minutes(Visits):
    """Of ten seconds, so that some close."""

    size = "10 s"


def pipeline_of(source: Any, storage: MemoryStorage, **options: Any) -> Pipeline:
    given = {"step_rows": 5, "sink": MemorySink(), **options}
    return Pipeline(source=source, task=Minutes(), checkpoint=storage, **given)


def source_of(rows: list[Any]) -> MemorySource:
    return MemorySource(rows, timestamp="ts", ordered=True)


def test_a_scrape_shows_what_is_committed() -> None:
    """An operator would look at figures that no checkpoint has."""
    metrics = PrometheusMetrics("127.0.0.1:0")
    seen: list[tuple[StepReport, Scrape]] = []
    urls: list[str] = []

    def look(step: StepReport) -> None:
        urls.append(str(metrics.url))
        seen.append((step, scrape(metrics.url)))

    pipeline = pipeline_of(source_of([*GOOD, LATE, {"ts": None, "page": "a", "n": 1}]), MemoryStorage("shown"))
    report = pipeline.run(engine="embedded", metrics=metrics, on_step=look)
    assert len(seen) == report.steps > 4 and metrics.url is None
    socket.create_server(("127.0.0.1", int(urls[0].split(":")[2].split("/")[0]))).close()
    rows = published = 0
    for number, (step, found) in enumerate(seen, 1):
        rows, published = rows + step.rows, published + step.outputs
        assert sum(records(found).values()) == rows
        assert found["checkpoint_id", "shown"] == step.id
        assert found["clock_timestamp_seconds", "shown", "state", "Minutes"] == step.clock_ms / 1000
        assert found["clock_lag_seconds", "shown", "state", "Minutes"] == pytest.approx(step.lag_ms / 1000, abs=30)
        assert found["step_duration_seconds_count", "shown"] == number
        assert found["published_rows_total", "shown"] == published
        assert found["run_active", "shown"] == 1
    last = seen[-1][1]
    assert records(last) == {"processed": 20, "late": 1, "dead": 1, "duplicate": 0}
    assert last["unread_rows", "shown"] == 0 and last["state_rows", "shown", "state", "Minutes"] > 0
    assert last["step_duration_seconds_sum", "shown"] == pytest.approx(sum(step.seconds for step, _ in seen))
    assert [key for key in last if key[0] == "run_info"] == [
        ("run_info", "embedded", last_job(pipeline), "shown", "0.1.0")
    ]


def last_job(pipeline: Pipeline) -> str:
    from persistent.checkpoint.log import Log

    newest = Log(pipeline.storage).newest()
    assert newest is not None
    return newest.manifest.job


def test_a_counter_of_the_checkpoint_survives_every_death() -> None:
    """A record would be counted twice, or not at all, whenever a run is killed."""
    storage, counted = MemoryStorage("killed"), list[float]()
    source = ScriptedSource([*GOOD[:7], CRASH, *GOOD[7:13], CRASH, *GOOD[13:]], timestamp="ts")
    pipeline = pipeline_of(source, storage)
    for _ in range(3):
        registry = CollectorRegistry()

        def look(step: StepReport, registry: CollectorRegistry = registry) -> None:
            counted.append(sum(records(parsed(generate_latest(registry).decode())).values()))

        try:
            pipeline.run(engine="embedded", metrics=PrometheusMetrics(registry=registry), on_step=look)
        except Killed:
            continue
    assert counted == sorted(counted) and counted[-1] == len(GOOD)


def test_a_rollback_is_told() -> None:
    """A counter that goes back looks like a restart from zero, with all records counted anew."""
    storage = MemoryStorage("back")
    registry, seen, sink = CollectorRegistry(), list[Scrape](), MemorySink()
    metrics = PrometheusMetrics(registry=registry)

    def look(step: StepReport) -> None:
        seen.append(parsed(generate_latest(registry).decode()))

    pipeline_of(source_of(GOOD), storage, sink=sink).run(engine="embedded", metrics=metrics, on_step=look)
    assert seen[-1]["rollback_id", "back"] == 0
    entry = rollback(storage, int(seen[1]["checkpoint_id", "back"]), outputs="again")
    pipeline_of(source_of(GOOD), storage, sink=sink).run(engine="embedded", metrics=metrics, on_step=look)
    assert seen[-1]["rollback_id", "back"] == entry.manifest.id
    assert sum(records(seen[-1]).values()) == len(GOOD)


def test_a_taken_port_ends_the_run_before_it_begins() -> None:
    """A run without the metrics that were asked for is one that nobody watches."""
    storage = MemoryStorage("taken")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidPipeline, match=f"cannot listen on 127.0.0.1:{port}: .*choose another"):
            pipeline_of(source_of(GOOD), storage).run(engine="embedded", metrics=f"127.0.0.1:{port}")
    assert not storage.list("")
    for wrong in ("127.0.0.1", "a:b:c", "127.0.0.1:99999", ""):
        with pytest.raises(InvalidPipeline, match="HOST:PORT"):
            PrometheusMetrics(wrong)
    with pytest.raises(InvalidPipeline, match="an address"):
        PrometheusMetrics()


def test_one_endpoint_shows_several_pipelines() -> None:
    """Each would need a port of its own; or one would end the endpoint of the other."""
    metrics = PrometheusMetrics("127.0.0.1:0")
    first, second = (MemoryStorage(f"{name}/visits") for name in ("several-a", "several-b"))
    inner: list[Scrape] = []

    def other(step: StepReport) -> None:
        if not inner:
            pipeline_of(source_of(GOOD), second).run(engine="embedded", metrics=metrics)
            inner.append(scrape(metrics.url))

    pipeline_of(source_of(GOOD), first).run(engine="embedded", metrics=[metrics], on_step=other)
    (found,) = inner
    assert found["run_active", "several-a-visits"] == 1 and found["run_active", "several-b-visits"] == 0
    assert found["step_duration_seconds_count", "several-b-visits"] == 4


def test_a_registry_of_the_user() -> None:
    """A process that serves metrics already would have to serve them at two places."""
    registry = CollectorRegistry()
    metrics = PrometheusMetrics(registry=registry)
    storage, sink = MemoryStorage("registered"), MemorySink()
    for ends in (False, True):
        pipeline_of(source_of(GOOD), storage, sink=sink).run(engine="embedded", metrics=metrics, end_of_input=ends)
    found = parsed(generate_latest(registry).decode())
    assert sum(records(found).values()) == len(GOOD) and metrics.url is None
    assert found["step_duration_seconds_count", "registered"] == 5, "counters of the process go on"
    assert found["run_active", "registered"] == 0
    other = MemoryStorage("registered-twice")
    with pytest.raises(InvalidPipeline, match="give all pipelines of this process the same PrometheusMetrics"):
        pipeline_of(source_of(GOOD), other).run(engine="embedded", metrics=PrometheusMetrics(registry=registry))
    assert not other.list("")


def test_a_scrape_waits_for_no_step() -> None:
    """The figures would be missing exactly while a step hangs."""
    going, held = threading.Event(), threading.Event()

    class Held(Minutes):
        def process_message(self, state: Any, message: Any) -> None:
            if message.value["n"] == 12:
                held.set()
                going.wait(30)
            super().process_message(state, message)

    metrics = PrometheusMetrics("127.0.0.1:0")
    storage = MemoryStorage("held")
    pipeline = Pipeline(source=source_of(GOOD), task=Held(), sink=MemorySink(), checkpoint=storage, step_rows=5)
    thread = threading.Thread(target=pipeline.run, kwargs={"engine": "embedded", "metrics": metrics})
    thread.start()
    try:
        assert held.wait(30)
        lags = []
        for _ in range(2):
            found = scrape(metrics.url)
            assert sum(records(found).values()) == 10
            lags.append(found["clock_lag_seconds", "held", "state", "Held"])
            time.sleep(0.01)
        assert lags[0] < lags[1], "the lag grows while nothing is committed"
    finally:
        going.set()
        thread.join(30)


def test_every_name_of_the_table_is_shown_and_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """The table would promise what no scrape has."""
    caplog.set_level(logging.INFO, logger="persistent")
    texts: list[str] = []
    metrics = PrometheusMetrics("127.0.0.1:0")
    storage = MemoryStorage("me:secret@named/jobs?key=secret")
    pipeline = pipeline_of(MemorySource(GOOD, timestamp="ts"), storage)
    pipeline.run(engine="embedded", metrics=metrics, on_step=lambda _: texts.append(httpx.get(str(metrics.url)).text))
    told = {line.split()[2] for line in texts[0].splitlines() if line.startswith("# TYPE persistent_")}
    created = {name.replace("_total", "") + "_created" for name in OURS}
    assert told - created == OURS
    assert "secret" not in texts[0] and "process_resident_memory_bytes" in texts[0]
    assert "the metrics of this run are at http://127.0.0.1:" in caplog.text


def test_another_host_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever opens it to the network would not know that nothing guards it."""
    metrics = PrometheusMetrics("0.0.0.0:0")
    pipeline_of(source_of(GOOD), MemoryStorage("open")).run(engine="embedded", metrics=metrics)
    assert "every machine that reaches 0.0.0.0:0 can read them" in caplog.text


FOLLOWED = """
import pathlib, time
from monoids import Count
from persistent import FileSource, NonWindowState, PersistentTask, Pipeline

class Visits(PersistentTask):
    key = "page"
    def persistent_state(self):
        return NonWindowState(Count())
    def process_message(self, state, message):
        time.sleep(0.02)
        state.update(message.timestamp, 1)

pipeline = Pipeline(source=FileSource("*.csv", timestamp="ts"), task=Visits(), checkpoint="visits", step_rows=5)
"""


@pytest.mark.check
def test_a_run_that_is_killed_and_resumed(here: Path) -> None:
    """A restart of a real process would lose the count, or begin it again."""
    (here / "visits.py").write_text(FOLLOWED)
    (here / "1.csv").write_text("ts,page\n" + "".join(f"2024-05-01T10:00:{n % 60:02d}Z,/{n}\n" for n in range(200)))
    counted, found = [0.0], Scrape()
    for stops_at in (40, 110, 200):
        run, url = running(here)
        try:
            while counted[-1] < stops_at:
                assert run.poll() is None
                found = scrape(url)
                counted.append(sum(records(found).values()))
            run.send_signal(signal.SIGKILL if stops_at < 200 else signal.SIGTERM)
            assert run.wait(60) == (-signal.SIGKILL if stops_at < 200 else 0)
        finally:
            run.kill()
            run.communicate()
    assert counted == sorted(counted) and counted[-1] == 200
    assert found["checkpoint_epoch", f"{here.name}-visits"] == 3


def running(folder: Path) -> tuple[subprocess.Popen[str], str]:
    words = ["run", "visits.py:pipeline", "--engine", "embedded", "--follow", "--metrics", "0"]
    run = subprocess.Popen(
        [sys.executable, "-m", "persistent", *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert run.stderr is not None
    assert run.stderr.readline().startswith("pipeline visits.py:pipeline, checkpoint ")
    line = run.stderr.readline()
    found = re.match(r"the metrics of this run are at (http://127\.0\.0\.1:\d+/metrics)$", line)
    assert found, line
    return run, found[1]


@pytest.mark.check
def test_prometheus_own_check_finds_nothing() -> None:
    """A name could break the rules that its tools rely on."""
    registry = CollectorRegistry()
    pipeline = pipeline_of(source_of(GOOD), MemoryStorage("linted"))
    pipeline.run(engine="embedded", metrics=PrometheusMetrics(registry=registry))
    promtool("check", "metrics", given=generate_latest(registry))


@pytest.mark.parametrize("ci, outcome", [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_where_nothing_may_skip_it_is_not_skipped(ci: str, outcome: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check of everything would pass without what only Prometheus can tell."""
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(outcome, match="no promtool found: apt-get install prometheus"):
        promtool("--version")
