"""The pictures of the page in the docs: ``python -m tests.tools.serve.pictures docs`` makes them anew, in light and
dark, from a job that is made for them."""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from threading import Event, Thread
from typing import Any
from unittest import mock

from monoids import Bag, Count, Histogram, Max, Quantiles, record
from persistent import FileSink, FileSource, MemorySink, PersistentTask, Pipeline, Retention, WindowState, tumbling
from persistent.storage import Storage
from persistent.time.clock import wall_ms
from persistent.tools.serve import Shown
from tests.tools.serve.jobs import serving

STEPS, ROWS = 70, 400
PAGES = ["/", "/cart", "/search", "/item/1207", "/item/88", "/help"]
COUNTRIES = ["de", "fr", "it", "pl"]


class Views(PersistentTask):
    key = ("page", "country")

    def persistent_state(self) -> Any:
        latency, spread = Quantiles(), Histogram([0, 50, 100, 200, 400, 800])
        monoid = record(visits=Count(), slowest=Max(), latency=latency, spread=spread, referrers=Bag(str))
        return WindowState(monoid, tumbling("5 min"))

    def process_message(self, state: Any, message: Any) -> None:
        ms, referrer = message.value["ms"], message.value["referrer"]
        values = {"visits": 1, "slowest": ms, "latency": ms, "spread": ms, "referrers": referrer}
        state.update(message.timestamp, values)


class Plain:
    """A storage under another URL: no path of the machine that makes the pictures is shown."""

    def __init__(self, storage: Storage, url: str) -> None:
        self._storage = storage
        self.url = url

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)


def write(folder: Path, number: int, now: int, chance: random.Random) -> None:
    rows = []
    for _ in range(int(ROWS * chance.uniform(0.6, 1.4))):
        ts: Any = now - chance.randrange(20_000)
        ts = now - 900_000 if chance.random() < 0.002 else "soon" if chance.random() < 0.0015 else ts
        page = chance.choices(PAGES, [9, 3, 4, 2, 2, 1])[0]
        ms = int(chance.lognormvariate(4.6, 0.6))
        referrer = chance.choices(["google", "partner", "bing", "direct", "newsletter"], [6, 3, 3, 2, 1])[0]
        rows.append({"ts": ts, "page": page, "country": chance.choice(COUNTRIES), "ms": ms, "referrer": referrer})
    made = folder / f"{number:04}.tmp"
    made.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made.rename(made.with_suffix(".jsonl"))


def job(folder: Path) -> Pipeline:
    source = FileSource(
        f"{folder}/in/*.jsonl", timestamp="ts", timestamp_unit="ms", ordered=True, max_out_of_orderness="20 s"
    )
    return Pipeline(
        source=source,
        task=Views(),
        sink=FileSink(str(folder / "results")),
        late_sink=MemorySink(),
        checkpoint=str(folder / "views"),
        step_rows=ROWS,
        retention=Retention(last=60),
    )


PICTURES = {
    "now": ("light", "now", "Clock by partition", 960),
    "now-dark": ("dark", "now", "Clock by partition", 960),
    "graph": ("light", "graph", "Rows a second are those", 760),
    "graph-dark": ("dark", "graph", "Rows a second are those", 760),
    "timeline": ("light", "timeline", "A step was counted", 800),
    "state": ("light", 'state?key=["/","de"]', "together", 1200),
    "account": ("light", "account?rows=late", "Set aside, newest first", 800),
    "storage-dark": ("dark", 'storage?key=["/","de"]', "Every run, the largest first", 900),
}


def take(url: str, into: Path) -> None:
    """A picture of each view, in light or dark."""
    from playwright.sync_api import sync_playwright

    from tests.tools.serve.conftest import chromium

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        for name, (scheme, view, text, height) in PICTURES.items():
            size = {"width": 1280, "height": height}
            page = browser.new_page(viewport=size, color_scheme=scheme, reduced_motion="reduce")
            page.goto(f"{url}#/views/{view}")
            page.get_by_text(text).first.wait_for()
            page.wait_for_timeout(600)
            page.screenshot(path=str(into / f"serve-{name}.png"))
            page.close()
        browser.close()


def main(into: Path) -> None:
    folder, chance, stop = Path(tempfile.mkdtemp()), random.Random(7), Event()
    (folder / "in").mkdir()
    now = wall_ms() - STEPS * 3_000
    for number in range(STEPS):
        write(folder / "in", number, now + number * 3_000, chance)
    pipeline = job(folder)

    def feed() -> None:
        number = STEPS
        while not stop.wait(0.2):
            write(folder / "in", number, wall_ms(), chance)
            number += 1

    def follow() -> None:
        def over(_: Any) -> None:
            if stop.is_set():
                raise KeyboardInterrupt

        try:
            pipeline.run(engine="embedded", follow=True, on_step=over, on_idle=over)
        except KeyboardInterrupt:
            return

    # No path of the machine that makes the pictures is shown.
    plain = mock.patch("persistent.tools.serve.graph.place_text", lambda url: url.replace(f"{folder}", "/data/views"))
    with mock.patch("socket.gethostname", lambda: "worker-1"), plain:
        pipeline.run(engine="embedded")
        threads = [Thread(target=one, daemon=True) for one in (feed, follow)]
        for one in threads:
            one.start()
        time.sleep(15)
        reader = job(folder)
        shown = Shown("views", "visits.py:pipeline", Plain(reader.storage, "checkpoints/views"), reader)
        with serving(shown) as url:
            take(url, into)
        stop.set()
        for one in threads:
            one.join(10)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
