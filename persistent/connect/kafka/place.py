"""A place in Kafka is a topic with a mark in a topic beside it. A transaction writes rows and moves the mark.

``<topic>-persistent-marks`` is compacted and has one partition: its newest record under the id of the topic is the
mark. A topic that was deleted and created again has another id, and so no mark.

All writers of a place have one ``transactional.id``, ``persistent-<topic>``. A new producer aborts the transactions of
earlier ones, which can then commit nothing. So the mark that it reads afterwards is valid until it writes, or until
another producer begins; then it reads the mark again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from persistent.connect.kafka.client import KafkaClient, Topic
from persistent.connect.kafka.settings import Connection, error_name
from persistent.connect.marked import SinkMark
from persistent.errors import Fenced, SinkMismatch, StorageError
from persistent.time.clock import monotonic_s

T = TypeVar("T")
logger = logging.getLogger("persistent.sinks")

_CALL_SECONDS: Final = 10.0
_FENCE_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.1
_HEAR_SECONDS: Final = 1.0
_NOTE_SECONDS: Final = 5.0
_TAIL: Final = 1_000
"""The number of offsets before the end where the mark is searched first."""
_WAIT_SECONDS: Final = 0.02
_POLL_ROWS: Final = 10_000
_COMMIT_ROWS: Final = 10_000
"""The maximum number of undelivered rows at a commit, so that they fit the time of one call."""
_MARKS: Final = {"cleanup.policy": "compact", "segment.ms": "600000", "min.cleanable.dirty.ratio": "0.1"}
_FENCED: Final = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")
_PERMANENT: Final = (
    "AUTHORIZATION_FAILED",
    "AUTHENTICATION",
    "UNSUPPORTED",
    "INVALID_TRANSACTION_TIMEOUT",
    "INVALID_RECORD",
    "INVALID_CONFIG",
    "SIZE_TOO_LARGE",
    "POLICY_VIOLATION",
)
"""Parts of the names of errors that neither a retry nor another producer fixes."""


class KafkaPlace:
    """The place of one topic, as seen by one process. ``settings``: of producers. Work that another process or an
    absent broker has interrupted is retried; a call never lasts longer than ``server_away``."""

    def __init__(self, connection: Connection, topic: str, settings: Mapping[str, Any]) -> None:
        self.client = KafkaClient(connection, StorageError)
        self.topic = topic
        self._text = f"topic {topic!r} of Kafka at {connection.servers}"
        self._settings = {
            **settings,
            "message.timeout.ms": min(connection.server_away_ms, settings["transaction.timeout.ms"]),
            "transactional.id": f"persistent-{topic}",
            "delivery.report.only.error": True,
            "on_delivery": self._not_delivered,
        }
        self._max_bytes = 0
        self._producer: Any = None
        self._is_open = False
        self._failed: Any = None
        self._id: str | None = None
        self._mark: SinkMark | None = None

    @property
    def marks(self) -> str:
        """The topic of the marks."""
        return f"{self.topic}-persistent-marks"

    def look(self) -> SinkMark | None:
        """The mark, read without fencing, so possibly outdated."""
        return self.client.repeated(f"read {self.marks}", self._looked, self._is_worth_a_try, lambda: None)

    def change(self, what: str, act: Callable[[], T]) -> T:
        """``act()``, which fences, reads the mark and writes; repeated from the start if it fails. Fenced if other
        writers keep interfering, StorageError."""
        from confluent_kafka import KafkaException

        began = monotonic_s()
        try:
            return self.client.repeated(f"{what} {self.topic}", act, self._is_worth_a_try, self.close)
        except (KafkaException, TimeoutError, SystemError) as error:
            cause = self._cause(error)
        except BaseException:
            self.close()
            raise
        self.close()
        if cause in _FENCED:
            raise Fenced(f"{self._text}: another driver keeps writing there: end one of the two")
        raise self.client.away(f"{what} topic {self.topic}", cause, monotonic_s() - began)

    def fenced(self, expected: SinkMark | None = None) -> SinkMark | None:
        """The mark, which is valid until this producer writes, or another producer fences it. If ``expected`` is the
        mark that this producer knows, the mark is not read again."""
        topic = self.client.topic(self.topic)
        if self._producer is not None and topic.id == self._id and expected is not None and expected == self._mark:
            return expected
        self.close()
        self._id = topic.id
        self._producer = self.client.producer({**self._settings, _OF_CLIENT: self._limit()})
        self._begin()
        self._mark = self._read(topic)
        return self._mark

    def _begin(self) -> None:
        """Fence all earlier producers. The call is made in short turns, so that connection errors are noticed."""
        from confluent_kafka import KafkaException

        until = monotonic_s() + _FENCE_SECONDS
        while True:
            try:
                self._producer.init_transactions(_HEAR_SECONDS)
                return
            except KafkaException as error:
                self._hear()
                if error_name(error) != "_TIMED_OUT" or monotonic_s() > until:
                    raise

    def _hear(self) -> None:
        """Poll, which makes the connections of the producer report errors. StorageError if a broker has refused one for
        good."""
        self._producer.poll(0)
        self.client.check_refused(f"write to {self.topic}")
        self.client.require_waiting(f"write to {self.topic}")

    def write(self, rows: Iterable[tuple[list[Any], list[bytes]]], mark: SinkMark) -> None:
        """Write rows, as keys and values, and move the mark, in one transaction. Only after ``fenced``."""
        producer = self._producer
        producer.begin_transaction()
        self._is_open = True
        for keys, values in rows:
            self._append(keys, values)
        body = json.dumps({"job": mark.job, "number": mark.number, "topic": self.topic}).encode()
        producer.produce(self.marks, body, (self._id or "").encode(), partition=0)
        self._wait(_COMMIT_ROWS)
        self._commit()
        self._is_open = False
        self._mark = mark

    def make_marks(self) -> None:
        """Create the topic of marks, unless it exists. SinkMismatch if its records expire."""
        topic = self.client.topic(self.topic)
        if self.client.find_topic(self.marks) is None:
            self.client.create(self.marks, topic.replicas, _MARKS)
        policy = self.client.configured(self.marks).get("cleanup.policy", "compact")
        if policy != "compact":
            raise SinkMismatch(
                f"topic {self.marks!r} has cleanup.policy={policy}: the broker would delete the mark, and the job "
                f"could not continue. Correct it: kafka-configs.sh --alter --topic {self.marks} --add-config "
                "cleanup.policy=compact"
            )

    def max_bytes(self) -> int:
        """The maximum size of key and value of a row, in bytes."""
        return self._limit() - _OVERHEAD_BYTES

    def close(self) -> None:
        """Close the producer, and abort its transaction."""
        producer, self._producer, self._failed = self._producer, None, None
        if producer is None or not self._is_open:
            return
        self._is_open = False
        try:
            producer.abort_transaction(_CALL_SECONDS / 2)
        except Exception as error:
            # The next producer aborts it, or finally the broker.
            logger.debug("the transaction on %s stays open: %s", self.topic, error_name(error))

    def _looked(self) -> SinkMark | None:
        return self._read(self.client.topic(self.topic))

    def _read(self, topic: Topic) -> SinkMark | None:
        if self.client.find_topic(self.marks) is None:
            return None
        kept = self.client.kept(self.marks, ["0"])["0"]
        for first in dict.fromkeys((max(kept.first, kept.stop - _TAIL), kept.first)):
            value = self._newest(topic.id.encode(), first, kept.stop)
            if value is not None:
                return self._decoded(value)
        return None

    def _newest(self, key: bytes, start: int, stop: int) -> bytes | None:
        """The last record with this key from ``start`` to ``stop``."""
        from confluent_kafka import KafkaException, TopicPartition

        value: bytes | None = None
        heard = monotonic_s()
        with self.client.consumer() as consumer:
            consumer.assign([TopicPartition(self.marks, 0, start)])
            while start < stop:
                message = consumer.poll(_POLL_SECONDS)
                if message is None:
                    self.client.check_refused(f"read {self.marks}")
                    self.client.require_waiting(f"read {self.marks}")
                    if monotonic_s() - heard > _FENCE_SECONDS:
                        raise TimeoutError(f"{self.marks} is silent")
                    continue
                heard, error = monotonic_s(), message.error()
                if error is None:
                    start = message.offset() + 1
                    value = message.value() if message.key() == key else value
                elif error.name() == "_PARTITION_EOF":
                    start = max(start, message.offset())
                else:
                    raise KafkaException(error)
        return value

    def _decoded(self, value: bytes) -> SinkMark:
        try:
            body = json.loads(value)
            return SinkMark(str(body["job"]), int(body["number"]))
        except (ValueError, KeyError, TypeError) as error:
            raise SinkMismatch(
                f"topic {self.marks!r} has a record that is not a mark: something else writes there. Delete that topic "
                "only together with the results, and begin a new checkpoint"
            ) from error

    def _append(self, keys: list[Any], values: list[bytes]) -> None:
        produce, topic = self._producer.produce, self.topic
        for start in range(0, len(values), _POLL_ROWS):
            rows = slice(start, start + _POLL_ROWS)
            for key, value in zip(keys[rows], values[rows]):
                try:
                    produce(topic, value, key)
                except BufferError:
                    self._wait(len(self._producer) // 2)
                    produce(topic, value, key)
            self._producer.poll(0)

    def _wait(self, left_max: int) -> None:
        """Wait until the broker has all rows except at most ``left_max``."""
        left, moved, noted = len(self._producer), monotonic_s(), monotonic_s()
        while left > left_max and self._failed is None:
            self._producer.poll(_WAIT_SECONDS)
            self.client.check_refused(f"write to {self.topic}")
            now = monotonic_s()
            self.client.require_waiting(f"append to {self.topic}", now - moved)
            if len(self._producer) < left:
                left, moved = len(self._producer), now
            elif now - moved > self.client.server_away_s:
                raise TimeoutError(f"{left} rows are not delivered")
            elif now - max(moved, noted) > _NOTE_SECONDS:
                noted = now
                self.client.note(f"append to {self.topic}", now - moved)

    def _commit(self) -> None:
        """Commit, and retry while that can help. Otherwise the mark shows whether the commit succeeded."""
        from confluent_kafka import KafkaException

        began = monotonic_s()
        while True:
            try:
                self._producer.commit_transaction(_CALL_SECONDS)
                return
            except KafkaException as error:
                self._hear()
                waited = monotonic_s() - began
                if not error.args[0].retriable() or waited > self.client.server_away_s:
                    raise
                self.client.note(f"commit to {self.topic}", waited, error)

    def _not_delivered(self, error: Any, message: Any) -> None:
        if error is not None and self._failed is None:
            self._failed = error

    def _limit(self) -> int:
        """The largest message that both the topic and the client accept."""
        if not self._max_bytes:
            limits = (self.client.configured(self.topic).get(_OF_TOPIC), self._settings.get(_OF_CLIENT))
            self._max_bytes = min((int(limit) for limit in limits if limit is not None), default=_CLIENT_BYTES)
        return self._max_bytes

    def _is_worth_a_try(self, error: BaseException) -> bool:
        from confluent_kafka import KafkaException

        name = self._name(error)
        if isinstance(error, KafkaException):
            return not any(part in name for part in _PERMANENT)
        # An interpreter error of the client, from a call on a fenced producer.
        return isinstance(error, TimeoutError | SystemError)

    def _name(self, error: BaseException) -> str:
        """The name of an error; if it follows from an undelivered row, the name of that row's error."""
        name = error_name(error)
        return str(self._failed.name()) if self._failed is not None and name not in _FENCED else name

    def _cause(self, error: BaseException) -> str:
        name = self._name(error)
        if name in _FENCED:
            return name
        if self._failed is not None:
            return f"{name}: {self._failed.str()}"
        return self.client.reports.cause(error)


_OF_TOPIC, _OF_CLIENT = "max.message.bytes", "message.max.bytes"
_OVERHEAD_BYTES: Final = 256
"""The bytes that a broker counts in addition to key and value."""
_CLIENT_BYTES: Final = 1_000_000
"""The largest message, unless the topic or the client sets another limit."""
