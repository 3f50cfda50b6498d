"""The marathon of a queue: RabbitMQ, a journal, a task that drops copies, and Kafka, while all of them die.

A publisher sends numbered orders, and some of them again with the same message id; so it does after each error, as a
message that nobody has confirmed may be there. Driver, RabbitMQ and Kafka die by -9, and connections are cut. In the
end each order that was published stands in the topic once.

    python -m tests.integration.marathon_queue [MINUTES] [SEED]
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from persistent import Dedupe, KafkaSink, Pipeline, RabbitQueueSource
from tests.integration.places import ByWindow, fresh
from tests.servers.drivers import Driver
from tests.servers.kafka import KafkaServer
from tests.servers.proxy import Proxy
from tests.servers.queues import fresh_queue, ready, wait_for
from tests.servers.rabbit import RabbitServer
from tests.servers.reading import json_values
from tests.servers.shared import shared_kafka, shared_rabbit

VICTIMS = ("driver", "RabbitMQ", "connection", "Kafka")
_AWAY = "3 min"
_DRAIN_SECONDS = 240.0
_PAGES = 5
_BURST = 20


@dataclass(frozen=True)
class QueueJob:
    """The job, as its driver is told."""

    address: str
    queue: str
    acknowledge: str
    servers: str
    topic: str
    folder: str
    ends: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """Of ``run``: it follows the queue, until the input ends."""
        return {"end_of_input": True} if self.ends else {"follow": True}

    def pipeline(self) -> Pipeline:
        """The job. Its event time is that of the journal: what is delivered again is never late."""
        away: dict[str, Any] = {"server_away": _AWAY, "connect_timeout": _AWAY}
        source = RabbitQueueSource(
            self.address,
            self.queue,
            journal=f"{self.folder}/journal",
            acknowledge=self.acknowledge,
            schema={"n": "int64", "page": "string"},
            recovery_interval="200 ms",
            **away,
        )
        return Pipeline(
            source=source,
            task=ByWindow(),
            sink=KafkaSink(self.servers, self.topic, **away),
            checkpoint=f"{self.folder}/checkpoint",
            dedupe=Dedupe.by_id("_message_id", within="1 day"),
        )


class Publisher(threading.Thread):
    """Publishes orders until it is stopped; each is confirmed then. ``again``: how many it has sent more than once."""

    def __init__(self, address: str, queue: str, random: Random) -> None:
        super().__init__(daemon=True)
        self._address, self._queue, self._random = address, queue, random
        self._is_over = threading.Event()
        self.orders: list[dict[str, Any]] = []
        self._confirmed = 0
        self.again = 0

    def run(self) -> None:
        from pika.exceptions import AMQPError

        is_done = False
        while not is_done:
            with suppress(AMQPError, OSError):
                self._publish_until_stopped()
                is_done = True
            time.sleep(0.1)

    def stop(self) -> None:
        """Publish no more; all is in the queue."""
        self._is_over.set()
        self.join(_DRAIN_SECONDS)
        assert not self.is_alive(), "the last order is not confirmed"

    def _publish_until_stopped(self) -> None:
        """What broke off, and more. A last burst comes after the stop: a broker that confirms it knows its queue."""
        import pika

        with closing(pika.BlockingConnection(pika.URLParameters(self._address))) as connection:
            channel = connection.channel()
            channel.confirm_delivery()

            def publish(order: dict[str, Any]) -> None:
                said = pika.BasicProperties(message_id=str(order["n"]), delivery_mode=2)
                channel.basic_publish("", self._queue, json.dumps(order), said, mandatory=True)

            while self._confirmed < len(self.orders):
                self.again += 1
                publish(self.orders[self._confirmed])
                self._confirmed += 1
            is_last = False
            while not is_last:
                is_last = self._is_over.is_set()
                for _ in range(_BURST):
                    self.orders.append({"n": len(self.orders), "page": f"p{self._random.randrange(_PAGES)}"})
                    publish(self.orders[-1])
                    self._confirmed += 1
                if self._random.random() < 0.5:
                    self.again += 1
                    publish(self._random.choice(self.orders))
                connection.sleep(0.05)


class QueueMarathon:
    """A publisher, a driver and two brokers, in ``folder``. The seed decides on the kind of the queue and when its
    messages are acknowledged, too."""

    def __init__(self, folder: Path, seed: str) -> None:
        self.folder, self.random = folder, Random(seed)
        self.kills: Counter[str] = Counter()
        rabbit, kafka = shared_rabbit(), shared_kafka()
        self.proxy = Proxy(rabbit.port)
        self.job = QueueJob(
            rabbit.url(port=self.proxy.port),
            fresh_queue(rabbit, self.random.choice(["classic", "quorum"])),
            self.random.choice(["journal", "checkpoint"]),
            kafka.proxied,
            kafka.create(2, fresh("orders-")),
            str(folder),
        )
        self.publisher = Publisher(self.job.address, self.job.queue, Random(f"{seed} orders"))
        self._driver: Driver | None = None

    def run(self, seconds: float) -> None:
        """All of it, in about so many seconds and the time that draining takes. AssertionError if it ends wrong."""
        kill_rabbit, kill_kafka = (partial(self._kill_broker, one) for one in (shared_rabbit(), shared_kafka()))
        strikes: list[Callable[[], None]] = [self._kill_driver, kill_rabbit, self._cut, kill_kafka]
        victims = list(zip(VICTIMS, strikes))
        self.publisher.start()
        with ExitStack() as stack:
            stack.callback(self._end_all)
            self._begin_driver(self.job)
            deadline, turn = time.monotonic() + seconds, 0
            while time.monotonic() < deadline or turn < len(victims):
                self._wait_for_a_step()
                time.sleep(self.random.random())
                what, strike = victims[turn % len(victims)]
                print(f"{time.strftime('%H:%M:%S')} {what}", flush=True)
                strike()
                self.kills[what] += 1
                turn += 1
            self._wait_for_a_step()
            self.publisher.stop()
            self._drain()
        self.judge()

    # -- what dies -----------------------------------------------------------------------------------------------

    def _begin_driver(self, job: QueueJob) -> None:
        """A new driver, in the place of the last."""
        if self._driver is not None:
            self._driver.end()
        self._driver = Driver("embedded", self.folder / "driver.log", {})
        self._driver.begin(job)

    def _kill_driver(self) -> None:
        assert self._driver is not None
        self._driver.kill()
        self._begin_driver(self.job)

    def _kill_broker(self, broker: RabbitServer | KafkaServer) -> None:
        broker.kill()
        time.sleep(self.random.random())
        broker.restart()

    def _cut(self) -> None:
        """A connection to RabbitMQ, or to Kafka."""
        self.random.choice([self.proxy, shared_kafka().proxy]).cut()

    def _wait_for_a_step(self) -> None:
        """Until it has committed one more; a run may have stopped because its server was away."""
        driver = self._driver
        assert driver is not None
        driver.wait_for_steps(len(driver.ids) + 1)
        assert driver.is_under_way, driver.answer()

    def _drain(self) -> None:
        """A driver that died with messages in its hands, and one that takes all that is there."""
        assert self._driver is not None
        self._driver.kill()
        wait_for(lambda: not self._consumers(), "RabbitMQ has not found out that the driver is gone")
        self._begin_driver(replace(self.job, ends=True))
        answer = self._driver.answer(_DRAIN_SECONDS)
        assert not answer.error, answer
        wait_for(lambda: not self._consumers(), "the run is over, and its connection is not")

    def _consumers(self) -> int:
        with closing(shared_rabbit().connect()) as connection:
            return int(connection.channel().queue_declare(self.job.queue, passive=True).method.consumer_count)

    def _end_all(self) -> None:
        if self._driver is not None:
            self._driver.end()
        self.publisher.stop()
        self.proxy.close()

    # -- the truth -----------------------------------------------------------------------------------------------

    def judge(self) -> None:
        """AssertionError unless each order of a page is in the topic once, and nothing is left in the queue."""
        counted: Counter[tuple[str, int]] = Counter()
        for row in json_values(shared_kafka(), self.job.topic):
            for pair in row["value"]:
                counted[row["page"], pair["value"]] += pair["count"]
        expected = {(order["page"], order["n"]) for order in self.publisher.orders}
        twice = [order for order, count in counted.items() if count > 1]
        how = f"{self.job.queue}, acknowledge={self.job.acknowledge!r}"
        assert not twice, f"{how}: {len(twice)} count twice: {twice[:9]}"
        differing = sorted(expected ^ set(counted))
        assert not differing, f"{how}: {len(differing)} are lost, or published by nobody: {differing[:9]}"
        assert not self.job.pipeline().dead_letters().num_rows, "an order is a dead letter"
        assert ready(shared_rabbit(), self.job.queue) == 0, f"{how}: something is left"
        assert len(expected) > 10 * _PAGES and self.publisher.again


def main(minutes: str = "5", seed: str = "0") -> None:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="marathon-", ignore_cleanup_errors=True) as folder:
        marathon = QueueMarathon(Path(folder), f"{seed} queue")
        marathon.run(float(minutes) * 60)
    killed = ", ".join(f"{what} {count}" for what, count in marathon.kills.items())
    print(
        f"queue ({marathon.job.queue.partition('-')[0]}, {marathon.job.acknowledge}), seed {seed}: {killed}; "
        f"{len(marathon.publisher.orders):,} orders, {marathon.publisher.again:,} of them sent again, count once; "
        f"{time.monotonic() - began:.0f} s",
        flush=True,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
