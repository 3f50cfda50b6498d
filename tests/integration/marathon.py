"""The marathon is two jobs over one topic, into a table, and into a table and a topic, while everything dies in turn.

Orders are written in transactions, some of which are aborted, with disorder, into three partitions. Drivers, broker,
database and the executors of Spark die by -9, one after the other. In between the jobs are rolled back, copied to a
savepoint and started again from it. In the end the table and the topic are compared with what a plain reader of the
orders adds up.

    python -m tests.integration.marathon [MINUTES] [SEED] [embedded|cluster ...]
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from monoids import Count, Sum, record
from persistent import KafkaSink, KafkaSource, PersistentTask, Pipeline, PostgresSink, WindowState, tumbling
from persistent.checkpoint.log import Log
from persistent.operations import rollback, savepoint
from tests.integration.places import fresh
from tests.servers.drivers import Driver, descendants, kill, spark_home
from tests.servers.reading import json_values
from tests.servers.shared import shared_kafka, shared_postgres

WINDOW_MS = 1_000
DISORDER_MS = 400
AWAY = "3 min"
_CUSTOMERS = 5
_STEP_ROWS = 400
_SECONDS_BETWEEN = 2.0
_KILLS_MIN = 2
"""In each third: so all of them have their turn, however slow the machine is."""
_DRAIN_SECONDS = 240.0
_EXECUTOR = "CoarseGrainedExecutorBackend"

Totals = dict[tuple[str, int], tuple[int, int]]
"""Orders and their amount, by customer and start of the window in milliseconds."""


class Turnover(PersistentTask):
    """Orders and their amount, by customer and second."""

    key = "customer"

    def persistent_state(self) -> Any:
        return WindowState(record(orders=Count(), amount=Sum()), tumbling(f"{WINDOW_MS} ms"))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, {"orders": 1, "amount": message.value["amount"]})


@dataclass(frozen=True)
class Job:
    """A job of the marathon, as its driver is told. ``topic``: of its results, beside the table; without one it appends
    to the table alone."""

    orders: str
    table: str
    topic: str
    servers: str
    dsn: str
    checkpoint: str
    start_from: str | None = None
    ends: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """Of ``run``: it follows the topic, until the input ends."""
        return {"end_of_input": True} if self.ends else {"follow": True}

    def pipeline(self) -> Pipeline:
        """The job."""
        away = {"server_away": AWAY, "connect_timeout": AWAY}
        schema = {"customer": "string", "amount": "int64", "ts": "int64"}
        times: dict[str, Any] = {"timestamp": "ts", "timestamp_unit": "ms"}
        disorder: dict[str, Any] = {"max_out_of_orderness": f"{DISORDER_MS} ms", "schema": schema}
        source = KafkaSource(self.servers, self.orders, **times, **disorder, **away)
        table = PostgresSink(self.dsn, self.table, mode="upsert" if self.topic else "append", **away)
        return Pipeline(
            source=source,
            task=Turnover(),
            sink={"table": table, "topic": KafkaSink(self.servers, self.topic, **away)} if self.topic else table,
            checkpoint=self.checkpoint,
            start_from=self.start_from,
            step_rows=_STEP_ROWS,
        )


class Orders(threading.Thread):
    """Writes orders into a topic until it is stopped. What a broker that died has taken of a transaction is found out
    by reading the topic."""

    def __init__(self, topic: str, random: Random) -> None:
        super().__init__(daemon=True)
        self._topic, self._random = topic, random
        self._is_over = threading.Event()
        self._number = 0
        self.aborted = 0

    def run(self) -> None:
        while not self._is_over.is_set():
            with suppress(Exception):
                self._write_until_broken()

    def stop(self) -> None:
        """Write no more; the last transaction is over."""
        self._is_over.set()
        self.join(120)
        assert not self.is_alive()

    def _write_until_broken(self) -> None:
        from confluent_kafka import Producer

        settings = {"bootstrap.servers": shared_kafka().bootstrap, "transactional.id": f"shop-{self._topic}"}
        producer = Producer({**settings, "log_level": 0, "transaction.timeout.ms": 10_000, "linger.ms": 0})
        producer.init_transactions(20)
        while not self._is_over.is_set():
            producer.begin_transaction()
            for _ in range(60):
                producer.produce(self._topic, json.dumps(self._order()), partition=self._random.randrange(3))
            producer.flush(20)
            aborts = self._random.random() < 0.25
            self.aborted += aborts
            (producer.abort_transaction if aborts else producer.commit_transaction)(20)
            self._is_over.wait(0.1)

    def _order(self) -> dict[str, Any]:
        self._number += 1
        ts = 1_000_000 + self._number * 5 + self._random.randrange(DISORDER_MS) // 2
        customer, amount = f"c{self._random.randrange(_CUSTOMERS)}", self._random.randrange(1, 999)
        return {"customer": customer, "amount": amount, "ts": ts}


class Marathon:
    """Two jobs with a driver each, on ``engine``, in ``folder``."""

    def __init__(self, engine: str, folder: Path, seed: str) -> None:
        self.folder = folder
        # Six Javas at once are too many for two cores: the jobs are on Spark in turn.
        self.engines = {"table": engine, "both": "embedded"}
        self.random = Random(seed)
        self.kills: Counter[str] = Counter()
        kafka = shared_kafka()
        self.topic = kafka.create(3, fresh("orders-"))
        topics = {"table": "", "both": kafka.create(2, fresh("turnover-"))}
        self.jobs = {
            name: Job(self.topic, fresh("turnover_"), out, kafka.bootstrap, shared_postgres().url(), str(folder / name))
            for name, out in topics.items()
        }
        self.drivers: dict[str, Driver] = {}
        self._turn = 0
        self.orders = Orders(self.topic, Random(f"{seed} orders"))
        self._environment: dict[str, str] = {}
        if engine == "cluster":
            self._environment = {"SPARK_HOME": str(spark_home(folder))}

    def run(self, seconds: float) -> None:
        """All of it, in about so many seconds and the time that draining takes. AssertionError if it ends wrong."""
        self.orders.start()
        with ExitStack() as stack:
            stack.callback(self._end_all)
            self._kill_for(seconds / 3)
            self._stop_all()
            self._roll_back()
            self._kill_for(seconds / 3)
            self._stop_all()
            self._start_anew()
            self._kill_for(seconds / 3)
            self.orders.stop()
            self._stop_all()
            for name, job in self.jobs.items():
                self._drain(name, replace(job, ends=True))
        self.judge()

    # -- what dies -----------------------------------------------------------------------------------------------

    def _kill_for(self, seconds: float) -> None:
        """Kill one thing after the other, and let each job commit something in between."""
        for name in self.jobs:
            self._begin(name)
        victims: list[tuple[str, Callable[[], None]]] = [
            ("driver", partial(self._kill_driver, "table")),
            ("broker", self._kill_broker),
            ("driver", partial(self._kill_driver, "both")),
            ("database", self._kill_database),
        ]
        if "cluster" in self.engines.values():
            victims.insert(2, ("executor", self._kill_executor))
        deadline, killed = time.monotonic() + seconds, 0
        while time.monotonic() < deadline or killed < _KILLS_MIN:
            what, strike = victims[self._turn % len(victims)]
            print(f"{time.strftime('%H:%M:%S')} {what}", flush=True)
            strike()
            self.kills[what] += 1
            self._turn += 1
            killed += 1
            for name in self.jobs:
                self._wait_for_a_step(name)
            time.sleep(self.random.random() * _SECONDS_BETWEEN)

    def _kill_driver(self, name: str) -> None:
        self.drivers[name].kill()
        self._begin(name)

    def _kill_broker(self) -> None:
        shared_kafka().kill()
        time.sleep(self.random.random())
        shared_kafka().restart()

    def _kill_database(self) -> None:
        shared_postgres().kill()
        time.sleep(self.random.random())
        shared_postgres().restart()

    def _kill_executor(self) -> None:
        pids = [pid for one in self.drivers.values() for pid, words in descendants(one.pid) if _EXECUTOR in words]
        if pids:
            kill([self.random.choice(pids)])

    # -- drivers -------------------------------------------------------------------------------------------------

    def _begin(self, name: str) -> None:
        """A new driver of the job, in the place of the last."""
        if name in self.drivers:
            self.drivers[name].end()
        self.drivers[name] = Driver(self.engines[name], self.folder / f"{name}.log", self._environment)
        self.drivers[name].begin(self.jobs[name])

    def _wait_for_a_step(self, name: str) -> None:
        """Until it has committed one more; a run may have stopped because its server was away."""
        driver = self.drivers[name]
        driver.wait_for_steps(len(driver.ids) + 1)
        if not driver.is_under_way:
            answer = driver.answer()
            raise AssertionError(f"{name}: {answer.error}: {answer.text}")

    def _stop_all(self) -> None:
        """Kill both drivers; each job goes on with the engine of the other."""
        for driver in self.drivers.values():
            driver.kill()
        self.engines = dict(zip(self.engines, reversed(self.engines.values())))

    def _end_all(self) -> None:
        for driver in self.drivers.values():
            driver.end()

    def _drain(self, name: str, job: Job) -> None:
        """Run to the end of what is there."""
        driver = Driver("embedded", self.folder / f"{name}.log", self._environment)
        try:
            driver.begin(job)
            answer = driver.answer(_DRAIN_SECONDS)
            assert not answer.error, f"{name}: {answer.error}: {answer.text}"
        finally:
            driver.end()

    # -- operations ----------------------------------------------------------------------------------------------

    def _roll_back(self) -> None:
        """Some checkpoints back: the table takes rows back; a topic cannot, so both are given them again."""
        for name, outputs in (("table", "retract"), ("both", "again")):
            log = Log(self.jobs[name].pipeline().storage)
            kept = [id for id in log.ids() if log.read(id).manifest.kind == "checkpoint"]
            rollback(log.storage, self.random.choice(kept[-5:-1]), outputs=outputs, take_over=True)
            self.kills[f"rollback, {outputs}"] += 1

    def _start_anew(self) -> None:
        """Each job is stopped at the edge of a step, all of it published, and another begins as a copy of it."""
        for name, job in self.jobs.items():
            driver = Driver("embedded", self.folder / f"{name}.log", self._environment)
            try:
                driver.begin(job)
                driver.wait_for_steps(1)
                os.kill(driver.pid, signal.SIGTERM)
                answer = driver.answer(_DRAIN_SECONDS)
                assert not answer.error, f"{name}: {answer.error}: {answer.text}"
            finally:
                driver.end()
            copy = savepoint(job.checkpoint, "half")
            self.jobs[name] = replace(job, checkpoint=f"{job.checkpoint}-2", start_from=copy)
            self.kills["start from a savepoint"] += 1

    # -- the truth -----------------------------------------------------------------------------------------------

    def judge(self) -> None:
        """AssertionError unless the table and the topic have what a plain reader of the orders adds up."""
        expected: Totals = {}
        for order in json_values(shared_kafka(), self.topic):
            key = order["customer"], order["ts"] // WINDOW_MS * WINDOW_MS
            orders, amount = expected.get(key, (0, 0))
            expected[key] = orders + 1, amount + order["amount"]
        for name in self.jobs:
            rows = self.rows_of(name)
            assert len(rows) == len({row[:2] for row in rows}), f"{name}: a row stands twice in the table"
            assert {(row[0], row[1]): (row[2], row[3]) for row in rows} == expected, f"{name}: the table differs"
        assert self._of_topic() == expected, "the topic differs"
        assert len(expected) > 5 * _CUSTOMERS and self.orders.aborted

    def rows_of(self, name: str) -> Sequence[tuple[Any, ...]]:
        """Customer, start of the window, orders and amount of each row in the table of a job."""
        start = "(extract(epoch FROM window_start) * 1000)::bigint"
        return shared_postgres().ask(f"SELECT customer, {start}, orders, amount FROM {self.jobs[name].table}")

    def _of_topic(self) -> Totals:
        """What the topic says: of a window that a rollback has published again, the largest revision."""
        newest: dict[tuple[str, int], tuple[int, tuple[int, int]]] = {}
        seen: set[tuple[str, int, int]] = set()
        for row in json_values(shared_kafka(), self.jobs["both"].topic):
            key = row["customer"], _milliseconds(row["window_start"])
            assert (*key, row["revision"]) not in seen, f"{row} stands twice"
            seen.add((*key, row["revision"]))
            newest[key] = max(newest.get(key, (-1, (0, 0))), (row["revision"], (row["orders"], row["amount"])))
        return {key: value for key, (_, value) in newest.items()}


def _milliseconds(text: str) -> int:
    from datetime import datetime

    return round(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000)


def main(minutes: str = "5", seed: str = "0", *engines: str) -> None:
    for engine in engines or ("embedded", "cluster"):
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="marathon-", ignore_cleanup_errors=True) as folder:
            marathon = Marathon(engine, Path(folder), f"{seed} {engine}")
            marathon.run(float(minutes) * 60)
        killed = ", ".join(f"{what} {count}" for what, count in marathon.kills.items())
        rows = len(marathon.rows_of("table"))
        print(
            f"{engine}, seed {seed}: {killed}; {rows} rows are what a plain computation gives; "
            f"{time.monotonic() - began:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
