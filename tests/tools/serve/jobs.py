"""Jobs to show: one with late rows, dead letters and hostile keys, one with several states, and their page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import httpx
import uvicorn
from starlette.testclient import TestClient

from monoids import Count, Max, record
from persistent import (
    MemorySink,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    Retention,
    WindowState,
    tumbling,
)
from persistent.storage import MemoryStorage
from persistent.tools.serve import Guard, Shown, application

SCRIPT = "<script>alert('key')</script>"
WIDE = 2**53 + 1
"""The first integer that a browser rounds."""


class Visits(PersistentTask):
    key = ("page", "shop")

    def persistent_state(self) -> WindowState:
        return WindowState(record(visits=Count(), largest=Max()), tumbling("1 min"))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, {"visits": 1, "largest": message.value["size"]})


class Each(Visits):
    """The same by minute, of keys that live on, and in all."""

    name = "Each"

    def __init__(self, *names: str) -> None:
        self.names = names or ("minutes", "living")

    def persistent_state(self) -> Any:
        made = {
            "minutes": WindowState(record(visits=Count(), largest=Max()), tumbling("1 min")),
            "total": NonWindowState(record(visits=Count(), largest=Max())),
            "living": NonWindowState(record(visits=Count(), largest=Max()), ttl="2500 ms"),
        }
        return {name: made[name] for name in self.names}

    def process_message(self, state: Any, message: Any) -> None:
        for name in self.names:
            state[name].update(message.timestamp, {"visits": 1, "largest": message.value["size"]})


PAGES = ["/", "/cart", SCRIPT, "=cmd()", "ä ö\n", ""]


def rows(count: int) -> list[dict[str, Any]]:
    found = [
        {"ts": 1_000 * n, "page": PAGES[n % len(PAGES)], "shop": [7, None][n % 2], "size": WIDE + n}
        for n in range(count)
    ]
    if count > 90:
        # Late by the clock of the step before, and without a time.
        found[90] = {**found[90], "ts": 5_000}
        found[91] = {**found[91], "ts": None}
    return found


def pipeline(name: str, count: int = 100, **options: Any) -> Pipeline:
    source = options.pop("sources", None) or MemorySource(rows(count), timestamp="ts", ordered=True)
    given = {"step_rows": 10, "retention": Retention(last=50), **options}
    given = {"task": Visits(), "sink": MemorySink(), "checkpoint": f"memory://serve-{name}", **given}
    return Pipeline(source=source, **given)


def several(name: str, *names: str, count: int = 100, **options: Any) -> Shown:
    """The shown job with several states, each with a sink, and a sink of late records, after a run in fresh memory."""
    task = Each(*names)
    sinks = {one: MemorySink() for one in task.names}
    return ran(name, count, task=task, sink=sinks, late_sink=MemorySink(), **options)


def ran(name: str, count: int = 100, **options: Any) -> Shown:
    """The shown job after a run in fresh memory."""
    storage = MemoryStorage(f"serve-{name}")
    storage.clear()
    made = pipeline(name, count, **options)
    made.run(engine="embedded")
    return Shown(name, "visits.py:pipeline", made.storage, made)


def corrected(name: str, again: str = "") -> Shown:
    """The shown job after a correction, and perhaps another, of which the second adds two."""
    shown = ran(name)
    assert shown.pipeline is not None
    one = {"ts": 99_000, "page": "/", "shop": 7, "size": 1}
    for number, called in enumerate(("ticket", again), 1):
        if called:
            shown.pipeline.correct(name=called, add=[one] * number, engine="embedded")
    return Shown(name, "visits.py:pipeline", shown.storage, shown.pipeline)


def page(*shown: Shown, guard: Guard | None = None, **client: Any) -> httpx.Client:
    """A client of the page of these jobs."""
    jobs = {one.name: one for one in shown}
    app = application(jobs, guard)
    return TestClient(app, base_url="http://127.0.0.1:8321", raise_server_exceptions=False, **client)


def json(client: httpx.Client, path: str, status: int = 200, **asked: Any) -> Any:
    answer = client.get(f"/api/{path}", params=asked)
    assert answer.status_code == status, answer.text
    return answer.json()


@contextmanager
def serving(*shown: Shown) -> Iterator[str]:
    """The page of these jobs on a free port of loopback."""
    config = uvicorn.Config(
        application({one.name: one for one in shown}), "127.0.0.1", 0, log_level="warning", lifespan="off"
    )
    server, socket = uvicorn.Server(config), config.bind_socket()
    socket.listen()
    thread = Thread(target=server.run, kwargs={"sockets": [socket]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{socket.getsockname()[1]}/"
    finally:
        server.should_exit = server.force_exit = True
        thread.join(10)
