"""The marathon of a topic: late join, a journal, a task, and a table of PostgreSQL, while everything dies in turn.

A sender publishes numbered orders; it, the driver and the database die by -9, and the connection is cut. In the end
each order stands in the table once, or a dead letter names it: the tail that a sender took with it, and nothing else.

    python -m tests.integration.marathon_topic [MINUTES] [SEED]
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from persistent import Pipeline, PostgresSink
from persistent.connect.topic.source import TopicSource
from persistent.topic import JoinOptions
from tests.integration.places import ByWindow, fresh
from tests.integration.topic_sender import PAGES, TOPIC
from tests.servers.drivers import Driver
from tests.servers.processes import die_with_parent, free_port
from tests.servers.proxy import Proxy
from tests.servers.shared import shared_postgres

_AWAY = "3 min"
_DRAIN_SECONDS = 240.0
_KILLS_MIN = 4
_RANGE = re.compile(r"messages (\d+) to (\d+) of session (\w+)")
_TAIL = re.compile(r"messages from (\d+) on, if any, of session (\w+)")


@dataclass(frozen=True)
class TopicJob:
    """The job, as its driver is told."""

    address: str
    journal: str
    dsn: str
    table: str
    checkpoint: str
    ends: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """Of ``run``: it follows the topic, until the input ends."""
        return {"end_of_input": True} if self.ends else {"follow": True}

    def pipeline(self) -> Pipeline:
        """The job."""
        join = JoinOptions(discovery="100 ms", attempts=100_000, retry="100 ms", silence="3 s")
        times = {"timestamp": "ts", "timestamp_unit": "ms"}
        schema = {"n": "int64", "ts": "int64", "page": "string"}
        source = TopicSource(self.address, TOPIC, journal=self.journal, join=join, schema=schema, **times)  # type: ignore[arg-type]
        sink = PostgresSink(self.dsn, self.table, mode="append", server_away=_AWAY, connect_timeout=_AWAY)
        return Pipeline(source=source, task=ByWindow(), sink=sink, checkpoint=self.checkpoint)


class TopicMarathon:
    """A sender, a driver and a database, in ``folder``."""

    def __init__(self, folder: Path, seed: str) -> None:
        self.folder, self.random = folder, Random(seed)
        self.kills: Counter[str] = Counter()
        self.noted = folder / "published"
        self.lost = 0
        self._port = free_port()
        self._proxy = Proxy(self._port)
        self.job = TopicJob(
            f"127.0.0.1:{self._proxy.port}",
            str(folder / "journal"),
            shared_postgres().url(),
            fresh("topic_"),
            str(folder / "checkpoint"),
        )
        self._sender: subprocess.Popen[bytes] | None = None
        self._driver: Driver | None = None

    def run(self, seconds: float) -> None:
        """All of it, in about so many seconds and the time that draining takes. AssertionError if it ends wrong."""
        victims: list[tuple[str, Callable[[], None]]] = [
            ("driver", self._kill_driver),
            ("sender", self._kill_sender),
            ("connection", partial(self._proxy.cut, 0)),
            ("database", self._kill_database),
        ]
        with ExitStack() as stack:
            stack.callback(self._end_all)
            self._begin_sender()
            self._begin_driver()
            deadline, turn = time.monotonic() + seconds, 0
            while time.monotonic() < deadline or turn < _KILLS_MIN:
                self._wait_for_a_step()
                time.sleep(self.random.random())
                what, strike = victims[turn % len(victims)]
                print(f"{time.strftime('%H:%M:%S')} {what}", flush=True)
                strike()
                self.kills[what] += 1
                turn += 1
            self._wait_for_a_step()
            self._drain()
        self.judge()

    # -- what dies -----------------------------------------------------------------------------------------------

    def _begin_sender(self) -> None:
        command = [sys.executable, "-m", "tests.integration.topic_sender", str(self._port), str(self.noted)]
        self._sender = subprocess.Popen(command, cwd=Path(__file__).parents[2], preexec_fn=die_with_parent)

    def _kill_sender(self) -> None:
        assert self._sender is not None
        self._sender.kill()
        self._sender.wait()
        time.sleep(self.random.random())
        self._begin_sender()

    def _begin_driver(self) -> None:
        self._driver = Driver("embedded", self.folder / "driver.log", {})
        self._driver.begin(self.job)

    def _kill_driver(self) -> None:
        assert self._driver is not None
        self._driver.kill()
        self._driver.end()
        self._begin_driver()

    def _kill_database(self) -> None:
        shared_postgres().kill()
        time.sleep(self.random.random())
        shared_postgres().restart()

    def _wait_for_a_step(self) -> None:
        driver = self._driver
        assert driver is not None
        driver.wait_for_steps(len(driver.ids) + 1)
        if not driver.is_under_way:
            answer = driver.answer()
            raise AssertionError(f"{answer.error}: {answer.text}")

    def _drain(self) -> None:
        """The sender publishes no more, and lives until everything was taken."""
        assert self._driver is not None and self._sender is not None
        self._driver.kill()
        self._driver.end()
        Path(f"{self.noted}.stop").touch()
        time.sleep(0.5)
        self._driver = Driver("embedded", self.folder / "driver.log", {})
        self._driver.begin(replace(self.job, ends=True))
        answer = self._driver.answer(_DRAIN_SECONDS)
        assert not answer.error, f"{answer.error}: {answer.text}"

    def _end_all(self) -> None:
        if self._driver is not None:
            self._driver.end()
        if self._sender is not None:
            self._sender.kill()
            self._sender.wait()
        self._proxy.close()

    # -- the truth -----------------------------------------------------------------------------------------------

    def judge(self) -> None:
        """AssertionError unless each order counts once, or a dead letter names it."""
        counted: Counter[int] = Counter()
        for (row,) in shared_postgres().ask(f"SELECT row_to_json(v) FROM {self.job.table} v"):
            value = row["value"]
            for pair in json.loads(value) if isinstance(value, str) else value:
                counted[pair["value"]] += pair["count"]
        published = [line.split() for line in self.noted.read_text().splitlines()]
        letters = [letter["reason"] for letter in self.job.pipeline().dead_letters().to_pylist()]
        named = set().union(*(_named(reason, published) for reason in letters)) if letters else set()
        orders = {int(order) for _, _, order in published}
        assert set(counted) <= orders, f"nobody published {sorted(set(counted) - orders)[:9]}"
        twice = [order for order, count in counted.items() if count > 1]
        assert not twice, f"{twice[:9]} count twice"
        missing = orders - set(counted)
        assert missing <= named, f"{sorted(missing - named)[:9]} are lost, and no dead letter says so: {letters}"
        assert not named & set(counted), f"{sorted(named & set(counted))[:9]} are there, and a dead letter says lost"
        assert len(letters) <= 2 * self.kills["sender"], f"more is lost than senders have died: {letters}"
        assert len(counted) > 10 * PAGES
        self.lost = len(missing)


def main(minutes: str = "5", seed: str = "0") -> None:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="marathon-", ignore_cleanup_errors=True) as folder:
        marathon = TopicMarathon(Path(folder), f"{seed} topic")
        marathon.run(float(minutes) * 60)
        published = len(marathon.noted.read_text().splitlines())
    killed = ", ".join(f"{what} {count}" for what, count in marathon.kills.items())
    print(
        f"topic, seed {seed}: {killed}; of {published:,} orders {marathon.lost:,} are named by dead letters, each "
        f"other one counts once; {time.monotonic() - began:.0f} s",
        flush=True,
    )


def _named(reason: str, published: list[list[str]]) -> set[int]:
    """The orders that a dead letter names."""
    found, tail = _RANGE.search(reason), _TAIL.search(reason)
    assert found or tail, reason
    first, stop, session = (int(found[1]), int(found[2]) + 1, found[3]) if found else (int(tail[1]), 10**9, tail[2])  # type: ignore[index]
    return {int(order) for one, number, order in published if one == session and first <= int(number) < stop}


if __name__ == "__main__":
    main(*sys.argv[1:])
