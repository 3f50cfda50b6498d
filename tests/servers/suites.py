"""The suites of sources and sinks over real servers, with a step before whatever a server hears of."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from persistent import KafkaSink, KafkaSource, PostgresSink, RabbitStreamSink, RabbitStreamSource
from persistent.connect.kafka.place import KafkaPlace
from persistent.connect.postgres.session import Session
from persistent.connect.rabbitmq.stream_place import StreamPlace
from persistent.testing import SinkSuite, SourceSuite
from persistent.testing.sink_driver import OnOperation
from tests.servers.reading import json_values
from tests.servers.shared import shared_kafka, shared_postgres, shared_rabbit
from tests.servers.streams import LOGIN, Streams

CALLS = ("init_transactions", "begin_transaction", "produce", "commit_transaction")
"""What a producer says to the broker."""


class KafkaSourceSuite(SourceSuite):
    """A topic with two partitions, and a transaction that was aborted."""

    @pytest.fixture(autouse=True)
    def _topic(self) -> None:
        kafka = shared_kafka()
        self.kafka, self.name = kafka, kafka.create(2)
        times = [7 * number % 40 for number in range(14)]
        kafka.produce(self.name, [(time % 2, _value("a", 1), {"timestamp": time}) for time in times[:9]])
        kafka.produce(self.name, [(0, _value("a", 2), {"timestamp": 3})] * 4, transaction="suite", abort=True)
        kafka.produce(self.name, [(time % 2, _value("a", 1), {"timestamp": time}) for time in times[9:]])
        kafka.produce(self.name, [(1, b"nonsense", {"timestamp": 5})])

    def source(self) -> KafkaSource:
        return KafkaSource(self.kafka.bootstrap, self.name)

    def append(self) -> None:
        self.kafka.produce(self.name, [(0, _value("a", 1), {"timestamp": 50}), (1, _value("b", 1), {"timestamp": 2})])


class RabbitStreamSourceSuite(SourceSuite):
    """Two streams; one holds a note of the broker, which takes an offset, and a record that is no JSON."""

    @pytest.fixture(autouse=True)
    def _streams(self) -> None:
        self.streams = Streams(shared_rabbit())
        self.names = [self.streams.create() for _ in range(2)]
        self.streams.append(self.names[0], [_value("a", n) for n in range(6)], at_once=2)
        self.streams.note_offset(self.names[0], "somebody", 3)
        self.streams.append(self.names[0], [_value("b", 1), b"nonsense", _value("b", 2)])
        self.streams.append(self.names[1], [_value("a", n) for n in range(5)])
        self.streams.append_raw(self.names[1], [b"no message"])

    def source(self) -> RabbitStreamSource:
        return RabbitStreamSource(self.streams.address, self.names, client=LOGIN)

    def append(self) -> None:
        self.streams.append(self.names[0], [_value("a", 1)])
        self.streams.append(self.names[1], [_value("b", 1)])


def _value(page: str, n: int) -> bytes:
    return json.dumps({"page": page, "n": n, "ts": 0}).encode()


class Stepped:
    """A producer that takes a step before each call that the broker hears of."""

    def __init__(self, producer: Any, step: Callable[[str], object]) -> None:
        self._producer, self._step = producer, step

    def __len__(self) -> int:
        return len(self._producer)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._producer, name)
        if name not in CALLS:
            return method

        def call(*words: Any, **more: Any) -> Any:
            self._step(name)
            return method(*words, **more)

        return call


class SteppedKafkaSink(KafkaSink):
    """A sink whose producer takes steps."""

    step: Any = staticmethod(lambda what: None)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "step"}

    @property
    def _place(self) -> KafkaPlace:
        if self._own_place is None:
            place = super()._place
            make = place.client.producer
            place.client.producer = lambda settings: Stepped(make(settings), self.step)  # type: ignore[method-assign]
        return super()._place


class KafkaSinkSuite(SinkSuite):
    """A topic of a broker, from which nothing can be taken back."""

    kills_one_in = 4
    test_what_is_retracted_is_gone = None  # type: ignore[assignment]
    test_what_a_rollback_owes_is_published_before = None  # type: ignore[assignment]
    test_a_driver_that_slept_publishes_nothing_taken_back = None  # type: ignore[assignment]

    def place(self, folder: Path) -> str:
        return shared_kafka().create(2)

    def make(self, place: str, step: Any) -> KafkaSink:
        made = SteppedKafkaSink(shared_kafka().bootstrap, place)
        made.step = step
        return made

    def rows(self, place: str) -> list[dict[str, Any]]:
        return json_values(shared_kafka(), place)


class SteppedPlace(StreamPlace):
    """A place that takes a step before each frame of one row, and before whatever it asks."""

    frame_rows = 1
    step: Any = staticmethod(lambda what: None)

    def prepare(self) -> int:
        self.step("prepare")
        return super().prepare()

    def mark(self) -> Any:
        self.step("read the mark")
        return super().mark()

    def sequence(self) -> int:
        self.step("ask for the last row")
        return super().sequence()

    def send(self, *words: Any) -> None:
        self.step("send a frame")
        super().send(*words)


class SteppedStreamSink(RabbitStreamSink):
    """A sink whose place takes steps."""

    step: Any = staticmethod(lambda what: None)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "step"}

    @property
    def _place(self) -> StreamPlace:
        if self._own_place is None:
            self._own_place = place = SteppedPlace(self._access, self.stream)
            place.step = self.step
        return self._own_place


class RabbitStreamSinkSuite(SinkSuite):
    """A stream, from which nothing can be taken back."""

    test_what_is_retracted_is_gone = None  # type: ignore[assignment]
    test_what_a_rollback_owes_is_published_before = None  # type: ignore[assignment]
    test_a_driver_that_slept_publishes_nothing_taken_back = None  # type: ignore[assignment]

    def place(self, folder: Path) -> str:
        return Streams(shared_rabbit()).create()

    def make(self, place: str, step: Any) -> RabbitStreamSink:
        made = SteppedStreamSink(Streams(shared_rabbit()).address, place, client=LOGIN)
        made.step = step
        return made

    def rows(self, place: str) -> list[dict[str, Any]]:
        return Streams(shared_rabbit()).rows(place)


class SteppedSession(Session):
    """A session that takes a step before each of its statements."""

    step: OnOperation

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "step"}

    def execute(self, statement: str, words: Iterable[Any] = ()) -> Any:
        self._step(statement)
        return super().execute(statement, words)

    def copy(self, statement: str, pieces: Iterable[bytes]) -> int:
        self._step(statement)
        rows = super().copy(statement, pieces)
        self._step("the end of COPY")
        return rows

    def _step(self, what: str) -> None:
        step = self.__dict__.get("step")
        if step is not None:
            step(what)


def stepped(sink: PostgresSink, step: OnOperation) -> PostgresSink:
    """The sink, which takes a step before each statement."""
    sink._session.__class__ = SteppedSession
    sink._session.step = step  # type: ignore[attr-defined]
    return sink


class PostgresSuite(SinkSuite):
    """A schema of a server."""

    mode = "append"
    sink: type[PostgresSink] = PostgresSink

    def place(self, folder: Path) -> str:
        schema = f"s{uuid.uuid4().hex[:12]}"
        shared_postgres().ask(f"CREATE SCHEMA {schema}")
        return schema

    def make(self, place: str, step: OnOperation) -> PostgresSink:
        return stepped(self.sink(shared_postgres().url(), f"{place}.visits", mode=self.mode), step)

    def rows(self, place: str) -> list[dict[str, Any]]:
        if shared_postgres().ask(f"SELECT to_regclass('{place}.visits')") == [(None,)]:
            return []
        return [row for (row,) in shared_postgres().ask(f"SELECT row_to_json(v) FROM {place}.visits v")]
