"""Jobs to show: one with late rows, dead letters and hostile keys, and its page."""

from __future__ import annotations

from typing import Any

import httpx
from starlette.testclient import TestClient

from monoids import Count, Max, record
from persistent import (
    MemorySink,
    MemorySource,
    PersistentTask,
    Pipeline,
    Retention,
    WindowState,
    tumbling,
)
from persistent.serve import Guard, Shown, application
from persistent.storage import MemoryStorage

SCRIPT = "<script>alert('key')</script>"
WIDE = 2**53 + 1
"""The first integer that a browser rounds."""


class Visits(PersistentTask):
    key = ("page", "shop")

    def persistent_state(self) -> WindowState:
        return WindowState(record(visits=Count(), largest=Max()), tumbling("1 min"))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, {"visits": 1, "largest": message.value["size"]})


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
    source = MemorySource(rows(count), timestamp="ts", ordered=True)
    given = {"step_rows": 10, "retention": Retention(last=50), **options}
    return Pipeline(source=source, task=Visits(), sink=MemorySink(), checkpoint=f"memory://serve-{name}", **given)


def ran(name: str, count: int = 100, **options: Any) -> Shown:
    """The shown job after a run in fresh memory."""
    storage = MemoryStorage(f"serve-{name}")
    storage.clear()
    made = pipeline(name, count, **options)
    made.run(engine="embedded")
    return Shown(name, "visits.py:pipeline", made.storage, made)


def page(*shown: Shown, guard: Guard | None = None, **client: Any) -> httpx.Client:
    """A client of the page of these jobs."""
    jobs = {one.name: one for one in shown}
    app = application(jobs, guard)
    return TestClient(app, base_url="http://127.0.0.1:8321", raise_server_exceptions=False, **client)


def json(client: httpx.Client, path: str, status: int = 200, **asked: Any) -> Any:
    answer = client.get(f"/api/{path}", params=asked)
    assert answer.status_code == status, answer.text
    return answer.json()
