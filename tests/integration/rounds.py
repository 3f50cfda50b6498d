"""A round feeds a job part by part, strikes in each, and counts what was published twice or not at all."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from persistent.topic import Retain, TopicSender
from tests.integration import places
from tests.integration.cells import CUT, KILLED, REPEATS, SERVER, SLOW, Part, Tally
from tests.integration.places import DISORDER_MS, WINDOW_MS, Order, Record, fresh
from tests.servers.drivers import Driver
from tests.servers.proxy import Proxy
from tests.servers.queues import fresh_queue, send_rows
from tests.servers.reading import json_values
from tests.servers.s3 import client_environment
from tests.servers.shared import shared_hdfs, shared_kafka, shared_postgres, shared_rabbit, shared_s3
from tests.servers.streams import Streams

_FEEDS = 3
_RECORDS = 180
_STEP_ROWS = 30
_PAGES = 4
_FEED_MS = 1_000_000
_TRIES_MAX = 6
_ANSWER_SECONDS = 240.0

_STOPS = {"hdfs": ("StorageError", "SourceError"), "s3": ("StorageError", "SourceError")}
"""How a run may end, before its end, where a server was away: stores are given up sooner than brokers and databases."""

Key = tuple[str, int]


@cache
def proxy_of(server: str) -> Proxy:
    """What stands between a driver and this server."""
    if server == "kafka":
        return shared_kafka().proxy
    ports = {
        "postgres": lambda: shared_postgres().port,
        "rabbit stream": lambda: shared_rabbit().stream_port,
        "rabbit": lambda: shared_rabbit().port,
        "hdfs": lambda: shared_hdfs().name_node.port,
        "s3": lambda: shared_s3().server.port,
    }
    return Proxy(ports[server]())


class World:
    """The input, the job and the output of a round, in ``folder``."""

    def __init__(self, part: Part, folder: Path, random: Random) -> None:
        self.part, self.folder, self.random = part, folder, random
        self.written: list[Record] = []
        self.sender: TopicSender | None = None
        if part.server == "topic":
            self.sender = TopicSender("numbers", retain=Retain("1 h"))
            self.proxy: Proxy | None = Proxy(int(self.sender.address.rpartition(":")[2]))
        else:
            self.proxy = proxy_of(part.server) if part.server else None
        self.environment: dict[str, str] = {}
        self._files = str(folder / "input")
        input, output, address = self._files, self._output(), ""
        if part.server == "kafka":
            address = shared_kafka().proxied
            input = shared_kafka().create(3) if part.source == "kafka" else input
        elif part.server == "rabbit stream":
            address, streams = f"127.0.0.1:{self._proxy.port}", Streams(shared_rabbit())
            input = ",".join(streams.create() for _ in range(2)) if part.source == "rabbit stream" else input
        elif part.server == "rabbit":
            address = shared_rabbit().url(port=self._proxy.port)
            input = fresh_queue(shared_rabbit(), part.source.partition(" ")[2])
        elif part.server == "postgres":
            address = shared_postgres().url(port=self._proxy.port)
        elif part.server == "topic":
            address = f"127.0.0.1:{self._proxy.port}"
        elif part.server:
            there, away = self._remote()
            input, output = (away, output) if part.source == "remote" else (input, away)
            self._there = there
        checkpoint = str(folder / "checkpoint")
        self.order = Order(part.source, input, part.sink, output, address, checkpoint, _STEP_ROWS)

    @property
    def _proxy(self) -> Proxy:
        assert self.proxy is not None
        return self.proxy

    def _output(self) -> str:
        if self.part.sink == "kafka":
            return shared_kafka().create(2)
        if self.part.sink == "rabbit stream":
            return Streams(shared_rabbit()).create()
        if self.part.sink.startswith("postgres"):
            return fresh("matrix_")
        return str(self.folder / "output")

    def _remote(self) -> tuple[str, str]:
        """Where this process finds the files, and where the driver does, behind the proxy."""
        if self.part.server == "hdfs":
            server, name = shared_hdfs(), fresh("matrix-")
            self.environment = dict(server.environment)
            return server.url(name), f"hdfs://127.0.0.1:{self._proxy.port}/{name}"
        store = shared_s3()
        self.environment = {**store.environment, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._proxy.port}"}
        url = f"{store.bucket(fresh('matrix-'))}/files"
        return url, url

    def close(self) -> None:
        """End what is of this round alone."""
        if self.sender is not None:
            self.sender.close(0)
            self._proxy.close()

    # -- the input -----------------------------------------------------------------------------------------------

    def feed(self, number: int) -> None:
        """Write a part of the input: numbers, in an order that the job allows for."""
        begin = len(self.written)
        records = []
        for at in range(begin, begin + _RECORDS):
            time_ms = number * _FEED_MS + (at - begin) * 10 + self.random.randrange(DISORDER_MS) // 2
            records.append({"n": at, "ts": time_ms, "page": f"p{self.random.randrange(_PAGES)}"})
        self.written += records
        if self.part.source == "kafka":
            self._produce(records)
            return
        if self.part.server == "rabbit":
            send_rows(shared_rabbit(), self.order.input, records)
            return
        if self.part.source == "rabbit stream":
            for index, name in enumerate(self.order.input.split(",")):
                some = [json.dumps(one).encode() for one in records if one["n"] % 2 == index]
                Streams(shared_rabbit()).append(name, some, at_once=self.random.randrange(1, 40))
            return
        if self.sender is not None:
            for one in records:
                self.sender.publish(json.dumps(one).encode())
            return
        if self.part.source == "log":
            places.append_to_log(self._files, records)
            return
        folder = self._files if self.part.source == "file" else self._there
        for index in range(2):
            half = records[index * _RECORDS // 2 : (index + 1) * _RECORDS // 2]
            places.write_file(folder, f"{number}-{index}", self.part.format, half)

    def _produce(self, records: Sequence[Record]) -> None:
        """In transactions, some of which are aborted: their records would be seen as numbers below 0."""
        batches = []
        for start in range(0, len(records), 45):
            messages = [(one["n"] % 3, json.dumps(one).encode()) for one in records[start : start + 45]]
            noise = [(at, json.dumps({**records[start], "n": -1}).encode()) for at in range(3)]
            batches += [(False, noise)] * (self.random.random() < 0.5)
            batches.append((True, messages))
        shared_kafka().transact(self.order.input, batches)

    # -- the output ----------------------------------------------------------------------------------------------

    def rows(self) -> list[dict[str, Any]]:
        """What a reader sees in the end."""
        kind, output = self.part.sink.partition(" ")[0], self.order.output
        if kind == "kafka":
            return json_values(shared_kafka(), output)
        if self.part.sink == "rabbit stream":
            return Streams(shared_rabbit()).rows(output)
        if kind == "postgres":
            return [row for (row,) in shared_postgres().ask(f"SELECT row_to_json(v) FROM {output} v")]
        if kind == "sqlite":
            return places.sqlite_rows(output)
        if kind == "log":
            return places.log_rows(output)
        if kind == "function":
            return places.noted_rows(output)
        return places.file_rows(self._there if kind == "remote" else output)


def play(part: Part, fault: str, folder: Path, seed: str) -> Tally:
    """A round. AssertionError if a run ends otherwise than it may."""
    random = Random(seed)
    with ExitStack() as stack:
        if part.server == "s3":
            stack.enter_context(client_environment(shared_s3()))
        world = World(part, folder, random)
        stack.callback(world.proxy.heal if world.proxy else lambda: None)
        stack.callback(world.close)
        feeds = 2 if fault == SERVER else _FEEDS
        chosen = random.randrange(feeds)
        tally = Tally()
        for number in range(feeds):
            world.feed(number)
            strikes = fault != SERVER or number == chosen
            tally += _run(world, fault if strikes else "")
        return tally + judge(world.written, world.rows(), part.sink in REPEATS)


def _run(world: World, fault: str) -> Tally:
    """Run to the end of what is there, as often as it takes, and strike once."""
    tally = Tally()
    with _driver(world) as drivers:
        driver = drivers[-1]
        driver.begin(world.order)
        driver.wait_for_steps(world.random.randrange(_RECORDS // _STEP_ROWS))
        time.sleep(world.random.random() * driver.step_seconds)
        if fault and driver.is_under_way:
            _strike(world, fault, driver)
            tally += Tally(strikes=1)
        for _ in range(_TRIES_MAX):
            answer = driver.answer(_ANSWER_SECONDS)
            if not answer.error:
                return tally
            stops = ("killed",) if fault == KILLED else _STOPS.get(world.part.server, ())
            assert answer.error in stops, f"{answer.error}: {answer.text}"
            tally += Tally(restarts=1)
            driver = Driver("embedded", world.folder / "driver.log", world.environment)
            drivers.append(driver)
            driver.begin(world.order)
    raise AssertionError(f"after {_TRIES_MAX} runs it has not come to its end: {answer.error}: {answer.text}")


@contextmanager
def _driver(world: World) -> Iterator[list[Driver]]:
    """Drivers, the first of which is there; nothing of them is left afterwards."""
    drivers = [Driver("embedded", world.folder / "driver.log", world.environment)]
    try:
        yield drivers
    finally:
        for one in drivers:
            one.end()


def _strike(world: World, fault: str, driver: Driver) -> None:
    """Let it happen, now or in a moment."""
    if fault == KILLED:
        driver.kill()
    elif fault == SERVER:
        _restart(world)
    elif fault == CUT:
        world._proxy.cut(world.random.choice([0, world.random.randrange(1, 200), world.random.randrange(1, 20_000)]))
    elif fault == SLOW:
        world._proxy.slow(world.random.uniform(0.001, 0.01))


def _restart(world: World) -> None:
    """Kill the server with -9; it is away for a moment, and serves again."""
    away = world.random.random() / 2
    if world.part.server == "hdfs":
        hdfs = shared_hdfs()
        node = world.random.choice([hdfs.name_node, hdfs.data_node])
        node.kill()
        time.sleep(away)
        hdfs.restart(node)
        return
    servers: Mapping[str, Any] = {
        "kafka": shared_kafka,
        "postgres": shared_postgres,
        "rabbit": shared_rabbit,
        "rabbit stream": shared_rabbit,
    }
    server = servers[world.part.server]()
    server.kill()
    time.sleep(away)
    server.restart()


def judge(written: Sequence[Record], rows: Sequence[Mapping[str, Any]], may_repeat: bool = False) -> Tally:
    """Compare what was published with what was written, number for number.

    A row stands twice if its key and window do. A number is lost if no row has it where it belongs; what a row has
    beyond that, it has twice. ``may_repeat``: rows that stand twice must be alike.
    """
    windowed = any("window_start" in row for row in rows)
    expected: dict[Key, Counter[int]] = {}
    for one in written:
        start = one["ts"] // WINDOW_MS * WINDOW_MS if windowed else 0
        expected.setdefault((one["page"], start), Counter())[one["n"]] += 1
    found: dict[Key, Counter[int]] = {}
    twice = 0
    for row in rows:
        key = row["page"], _milliseconds(row["window_start"]) if windowed else 0
        value = row["value"]
        pairs = json.loads(value) if isinstance(value, str) else value
        numbers = Counter({pair["value"]: pair["count"] for pair in pairs})
        if key in found:
            twice += 1
            assert not may_repeat or numbers == found[key], f"{key} was given again, and otherwise"
            continue
        found[key] = numbers
    lost = sum((numbers - found.get(key, Counter())).total() for key, numbers in expected.items())
    more = sum((numbers - expected.get(key, Counter())).total() for key, numbers in found.items())
    return Tally(duplicates=twice + more, lost=lost)


def _milliseconds(time: Any) -> int:
    """Milliseconds since 1970 of a timestamp, in the text of any sink."""
    from datetime import datetime

    return round(datetime.fromisoformat(str(time).replace("Z", "+00:00")).timestamp() * 1000)
