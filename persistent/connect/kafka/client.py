"""A client of Kafka: it retries until a timeout, then reports the cause.

At the start of a run it waits ``connect_timeout``; once the broker has answered, ``server_away``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final, TypeVar
from weakref import WeakMethod

from persistent.connect.kafka.settings import Connection, Reports, error_name, is_final
from persistent.connect.offsets import Kept
from persistent.errors import InvalidPipeline, PersistentError, SourceChanged, SourceError
from persistent.text.figures import duration_text
from persistent.time import clock
from persistent.time.clock import monotonic_s

T = TypeVar("T")
logger = logging.getLogger("persistent.clients")

_CALL_SECONDS: Final = 10.0
_HEAR_SECONDS: Final = 0.1
_SILENT_SECONDS: Final = 1.0
_IDLE_CONSUMERS: Final = 4
_OURS: Final = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "group.id": "persistent",
    # The default of a second limits the speed of a consumer of small messages.
    "fetch.queue.backoff.ms": 10,
    # The records of a split exist already, and a waiting fetch delays the next split on the same connection.
    "fetch.wait.max.ms": 10,
}
_UNKNOWN: Final = "UNKNOWN_TOPIC_OR_PART"
_SURE_SECONDS: Final = 3.0
"""How long a broker is asked again before its answer that the topic does not exist is believed."""


@dataclass(frozen=True)
class Topic:
    """A topic: its id, which is not reused with its name, its partitions, and the number of their replicas."""

    id: str
    partitions: tuple[str, ...]
    replicas: int = 1


class KafkaClient:
    """Asks the broker of one connection. Each source and sink has one in each process. ``failure``: the error to raise;
    ``reports``: what its connections have reported."""

    def __init__(self, connection: Connection, failure: type[PersistentError] = SourceError) -> None:
        _library()
        self._connection = connection
        self._failure = failure
        self._has_answered = False
        self.reports = Reports(connection.redacted)
        self._lock = Lock()
        self._idle: list[Any] = []
        self._admin: Any = None

    def topic(self, name: str) -> Topic:
        """The topic of this name. ``failure`` if it does not exist."""
        none = f"there is no topic {name!r}. Create it, or correct topic="
        return self._asked(f"describe topic {name}", lambda admin: self._described(admin, name), {_UNKNOWN: none})

    def find_topic(self, name: str) -> Topic | None:
        """The topic of this name, None if it does not exist. Call it only once ``topic`` has answered: a broker that
        was just started knows no topics yet."""

        def found(admin: Any) -> Topic | None:
            try:
                return self._described(admin, name)
            except Exception as error:
                if error_name(error) == _UNKNOWN:
                    return None
                raise

        return self._asked(f"describe topic {name}", found, {})

    def configured(self, topic: str) -> dict[str, str]:
        """The configuration of a topic; empty if we may not read it."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import ConfigResource

        asked = ConfigResource(ConfigResource.Type.TOPIC, topic)

        def found(admin: Any) -> dict[str, str]:
            try:
                answer = admin.describe_configs([asked], request_timeout=self._call_seconds)[asked]
                return {name: str(entry.value) for name, entry in self._awaited(admin, answer).items()}
            except KafkaException as error:
                if "AUTHORIZATION_FAILED" in error_name(error):
                    return {}
                raise

        return self._asked(f"read the configuration of topic {topic}", found, {})

    def create(self, topic: str, replicas: int, config: Mapping[str, str]) -> None:
        """Create a topic of one partition, unless it exists."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import NewTopic

        made = NewTopic(topic, 1, replicas, config=dict(config))
        options = ",".join(f"{name}={value}" for name, value in config.items())
        none = (
            f"topic {topic!r} is missing, and we may not create it. Create it: kafka-topics.sh --create --topic "
            f"{topic} --partitions 1 --replication-factor {replicas} --config {options}"
        )

        def created(admin: Any) -> None:
            try:
                self._awaited(admin, admin.create_topics([made], request_timeout=self._call_seconds)[topic])
            except KafkaException as error:
                if error_name(error) != "TOPIC_ALREADY_EXISTS":
                    raise

        refused = ("TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED", "POLICY_VIOLATION")
        self._asked(f"create topic {topic}", created, dict.fromkeys(refused, none))

    def kept(self, topic: str, partitions: Sequence[str]) -> dict[str, Kept]:
        """The offsets that are kept, up to the first that an open transaction holds back."""
        from confluent_kafka.admin import OffsetSpec

        # The end first: a deletion in between only narrows the range.
        stops = self._offsets(topic, dict.fromkeys(partitions, OffsetSpec.latest()))
        firsts = self._offsets(topic, dict.fromkeys(partitions, OffsetSpec.earliest()))
        ends = self._offsets(topic, dict.fromkeys(partitions, OffsetSpec.latest()), committed=False)
        return {number: Kept(min(firsts[number], stops[number]), stops[number], ends[number]) for number in partitions}

    def at_time(self, topic: str, partitions: Sequence[str], ms: int) -> dict[str, int]:
        """The first offset with a timestamp of ``ms`` or later; without one, the end as it was before the request."""
        from confluent_kafka.admin import OffsetSpec

        stops = self._offsets(topic, dict.fromkeys(partitions, OffsetSpec.latest()))
        offsets = self._offsets(topic, dict.fromkeys(partitions, OffsetSpec.for_timestamp(max(ms, 0))), least=-1)
        return {number: offsets[number] if offsets[number] >= 0 else stops[number] for number in partitions}

    def _offsets(
        self, topic: str, asked: Mapping[str, Any], *, committed: bool = True, least: int = 0
    ) -> dict[str, int]:
        """The offset of each partition. An offset below ``least``, as after a lost connection, is not an answer."""
        from confluent_kafka import IsolationLevel, TopicPartition

        wanted = {TopicPartition(topic, int(number)): spec for number, spec in asked.items()}

        def listed(admin: Any) -> dict[str, int]:
            level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
            futures = admin.list_offsets(wanted, isolation_level=level, request_timeout=self._call_seconds)
            offsets = {place.partition: int(self._awaited(admin, future).offset) for place, future in futures.items()}
            if min(offsets.values()) < least:
                raise TimeoutError("some offsets were not answered")
            return {str(number): offset for number, offset in offsets.items()}

        return self._asked(f"list the offsets of topic {topic}", listed, {}) if wanted else {}

    def _described(self, admin: Any, name: str) -> Topic:
        from confluent_kafka import TopicCollection

        asked = admin.describe_topics(TopicCollection([name]), request_timeout=self._call_seconds)
        description = self._awaited(admin, asked[name])
        partitions = sorted(description.partitions, key=lambda partition: partition.id)
        replicas = max((len(partition.replicas) for partition in partitions), default=1)
        return Topic(str(description.topic_id), tuple(str(partition.id) for partition in partitions), replicas)

    def _asked(self, what: str, ask: Callable[[Any], T], answers: Mapping[str, str]) -> T:
        """The answer of the broker, with retries. An error after the timeout, or at once if retries cannot help.
        ``answers``: errors that are answers, with the text for them."""
        from confluent_kafka import KafkaException

        def tried() -> T:
            answer = ask(self._admin_client())
            self._has_answered = True
            self.reports.clear()
            return answer

        def failed() -> None:
            # The client keeps its old leaders, and does not ask for newer ones.
            self._admin = None

        # Earlier reports are of other connections, or of another time.
        self.reports.clear()
        began = monotonic_s()
        try:
            return self.repeated(what, tried, self._is_worth_a_try, failed, answers)
        except (KafkaException, TimeoutError) as error:
            text, cause = answers.get(error_name(error)), self.reports.cause(error)
        if text is not None:
            raise self._failure(f"Kafka at {self._connection.servers}: {text}")
        raise self.away(what, cause, monotonic_s() - began)

    def _awaited(self, admin: Any, answer: Any) -> Any:
        """The result of a call. TimeoutError, at once if the broker has refused the connection."""
        until = monotonic_s() + self._call_seconds + 5
        while True:
            try:
                return answer.result(_HEAR_SECONDS)
            except TimeoutError:
                # The client reports its errors only when it is polled.
                admin.poll(0)
                self.require_waiting("get an answer")
                if self.reports.refused or monotonic_s() > until:
                    raise

    def repeated(
        self,
        what: str,
        act: Callable[[], T],
        is_worth: Callable[[BaseException], bool],
        failed: Callable[[], None],
        answers: Collection[str] = (),
    ) -> T:
        """``act()``, repeated with growing pauses while it raises an error that ``is_worth`` another try, as long as a
        broker may be away; then its error. An error named in ``answers`` is final after some seconds. ``failed()`` is
        called before each pause."""
        import tenacity

        began, bound_ms = monotonic_s(), self._bound_ms

        def is_over(state: Any) -> bool:
            seconds = monotonic_s() - began + state.upcoming_sleep
            is_answer = error_name(state.outcome.exception()) in answers
            return bool(seconds > (min(_SURE_SECONDS, bound_ms / 1_000) if is_answer else bound_ms / 1_000))

        def noted(state: Any) -> None:
            failed()
            self.note(what, monotonic_s() - began, state.outcome.exception())

        def sleep(seconds: float) -> None:
            clock.pause(seconds, self.waiting(what), tenacity.nap.sleep)

        retrying = tenacity.Retrying(
            sleep=sleep,
            wait=tenacity.wait_random_exponential(0.2, 5),
            stop=is_over,
            retry=tenacity.retry_if_exception(is_worth),
            before_sleep=noted,
            reraise=True,
        )
        answer: T = retrying(act)
        return answer

    @property
    def _call_seconds(self) -> float:
        """The longest time of one call."""
        return max(1.0, min(_CALL_SECONDS, self._bound_ms / 1_000))

    @property
    def _bound_ms(self) -> int:
        return self._connection.server_away_ms if self._has_answered else self._connection.connect_timeout_ms

    def note(self, what: str, seconds: float, error: Any = None) -> None:
        """Log that the broker has not done ``what`` yet."""
        servers, bound = self._connection.servers, duration_text(self._bound_ms)
        text = "Kafka at %s: cannot %s yet, for %.0f s of %s: %s"
        logger.warning(text, servers, what, seconds, bound, self.reports.cause(error))

    def waiting(self, what: str) -> str:
        """The text for users that says what the run waits for."""
        return f"Kafka at {self._connection.servers}: cannot {what} yet: {self.reports.cause()}"

    def require_waiting(self, what: str, silent_s: float = _SILENT_SECONDS) -> None:
        """Stopped if the run is asked to stop, and the broker has been silent for a while."""
        if silent_s >= _SILENT_SECONDS and clock.is_over():
            clock.require_waiting(self.waiting(what))

    def away(self, what: str, cause: str, seconds: float) -> PersistentError:
        """The error for a broker that did not do ``what`` in time, or refused to."""
        waited = "" if self.reports.refused else f" ({seconds:.0f} s)"
        return self._failure(
            f"Kafka at {self._connection.servers}: cannot {what}: {cause}{waited}. Nothing was lost, the last "
            f"checkpoint is good: {self.reports.remedy}"
        )

    def _is_worth_a_try(self, error: BaseException) -> bool:
        from confluent_kafka import KafkaException

        if self.reports.refused:
            return False
        if isinstance(error, TimeoutError):
            return True
        if not isinstance(error, KafkaException):
            return False
        return not is_final(error)

    def check_refused(self, what: str) -> None:
        """Raise if the broker has refused a connection for good: no waiting for ``what`` makes it."""
        if self.reports.refused:
            raise self.away(what, self.reports.cause(), 0)

    def _admin_client(self) -> Any:
        from confluent_kafka.admin import AdminClient

        with self._lock:
            if self._admin is None:
                self.reports.clear()
                self._admin = self._made(lambda: AdminClient(self._settings()))
            return self._admin

    def _settings(self) -> dict[str, Any]:
        # librdkafka holds references to its callbacks: a consumer must not keep its client alive.
        heard = WeakMethod(self.reports.hear)

        def hear(error: Any) -> None:
            listener = heard()
            if listener is not None:
                listener(error)

        return {
            **self._connection.settings,
            "bootstrap.servers": self._connection.servers,
            "error_cb": hear,
            # The callback hears every error; the log would repeat each many times a second.
            "log_level": 0,
        }

    def _made(self, make: Callable[[], T]) -> T:
        """A client of librdkafka. InvalidPipeline if it refuses a setting; the text names the setting, never a
        password."""
        from confluent_kafka import KafkaException

        try:
            return make()
        except KafkaException as error:
            refusal = error.args[0]
        raise InvalidPipeline(self._connection.redacted(f"client= is refused by librdkafka: {refusal.str()}"))

    def producer(self, settings: Mapping[str, Any]) -> Any:
        """A new producer with these settings and those of the user."""
        from confluent_kafka import Producer

        return self._made(lambda: Producer({**self._settings(), **settings}, logger=logger))

    @contextmanager
    def consumer(self) -> Iterator[Any]:
        """A consumer of this connection for one caller at a time. A consumer that failed is not used again."""
        from confluent_kafka import Consumer

        with self._lock:
            consumer = self._idle.pop() if self._idle else None
        if consumer is None:
            consumer = self._made(lambda: Consumer({**self._settings(), **_OURS}))
        try:
            yield consumer
            consumer.unassign()
        except BaseException:
            consumer.close()
            raise
        with self._lock:
            if len(self._idle) < _IDLE_CONSUMERS:
                self._idle.append(consumer)
                return
        consumer.close()

    @property
    def server_away_s(self) -> float:
        return self._connection.server_away_ms / 1_000


def require_same_topic(name: str, recorded: str | None, topic: Topic) -> None:
    """Raise SourceChanged if the topic is not the one whose offsets the checkpoint holds."""
    if recorded not in (None, topic.id):
        raise SourceChanged(
            f"topic {name!r} was deleted and created again: the checkpoint has read the one with the id {recorded}, "
            f"this one has {topic.id}. Its offsets mean other records: continue from a clock with 'persistent "
            "restart', or read it into a fresh checkpoint and sink"
        )


def _library() -> None:
    try:
        import confluent_kafka  # noqa: F401
    except ImportError as error:
        raise InvalidPipeline("Kafka needs a client: pip install 'persistent-monoids[kafka]'") from error
