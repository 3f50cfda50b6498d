"""Avro from a real broker and a registry: what is registered, lost or away meanwhile changes no result."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from persistent import Avro, KafkaSource, Pipeline, SourceChanged, SourceError
from persistent.connect import registry as clients
from persistent.storage import MemoryStorage
from tests.certificates import certificates
from tests.registry import RegistryServer, framed, registry_server
from tests.servers.kafka import KafkaServer
from tests.servers.test_kafka import ByPage, counted, newest
from tests.single import only

pytestmark = [pytest.mark.check, pytest.mark.timeout(600)]

FIELDS: list[Any] = [
    {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "page", "type": "string"},
    {"name": "n", "type": "int"},
]
VISIT = {"type": "record", "name": "Visit", "fields": FIELDS}
WIDER = {"type": "record", "name": "Visit", "fields": [{"name": "by", "type": "string", "default": "me"}, *FIELDS]}


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    monkeypatch.setattr(clients, "_SURE_SECONDS", 0.2)
    with registry_server() as server:
        yield server


def job(kafka: KafkaServer, topic: str, avro: Avro, storage: Any = None, **options: Any) -> Pipeline:
    source = KafkaSource(kafka.bootstrap, topic, format=avro, timestamp="ts", **options)
    return Pipeline(source=source, task=ByPage(), checkpoint=storage or MemoryStorage(uuid.uuid4().hex))


def visits(number: int, schema: Any, ns: range) -> list[tuple[int, bytes]]:
    plain = {**schema, "fields": [{**one, "type": "long"} if one["name"] == "ts" else one for one in schema["fields"]]}
    return [(n % 2, framed(number, plain, {"ts": n, "page": "ab"[n % 2], "n": n, "by": "you"})) for n in ns]


def test_a_schema_that_grows_while_the_job_runs(kafka: KafkaServer, registry: RegistryServer) -> None:
    """The columns stay those of the first plan; a job that is new begins with the newest."""
    topic = kafka.create(2)
    first = registry.register(f"{topic}-value", VISIT)
    kafka.produce(topic, [*visits(first, VISIT, range(100)), (0, b"no avro"), (1, b"\0\0\0\0\1\7")])
    one = job(kafka, topic, Avro(registry.url))
    report = one.run(engine="embedded")
    assert (report.rows, report.dead) == (102, 2)
    second = registry.register(f"{topic}-value", WIDER)
    kafka.produce(topic, visits(second, WIDER, range(100, 200)))
    again = job(kafka, topic, Avro(registry.url), one.storage)
    assert again.run(engine="embedded").rows == 100
    assert counted(again) == {"a": sum(range(0, 200, 2)), "b": sum(range(1, 200, 2))}
    assert [name for name, _ in only(newest(again).sources).recorded["schema"]] == ["ts", "page", "n"]
    other = job(kafka, topic, Avro(registry.url))
    other.run(engine="embedded")
    assert [name for name, _ in only(newest(other).sources).recorded["schema"]] == ["by", "ts", "page", "n"]
    assert counted(other) == counted(again)
    assert registry.asked[f"/schemas/ids/{first}"] == 2


def test_no_dead_letter_because_the_registry_is_away(kafka: KafkaServer) -> None:
    """The run stops where it was, and goes on when the registry is back."""
    topic = kafka.create(2)
    with registry_server() as server:
        port, number = server.port, server.register(f"{topic}-value", VISIT)
        kafka.produce(topic, visits(number, VISIT, range(10)))
        one = job(kafka, topic, Avro(server.url), server_away="1 s", connect_timeout="1 s")
        assert one.run(engine="embedded").rows == 10
    kafka.produce(topic, visits(number, VISIT, range(10, 20)))
    away = job(kafka, topic, Avro(server.url), one.storage, server_away="1 s", connect_timeout="1 s")
    with pytest.raises(SourceError, match="cannot read schema 1 of registry"):
        away.run(engine="embedded")
    fresh = job(kafka, topic, Avro(server.url), server_away="1 s", connect_timeout="1 s")
    with pytest.raises(SourceError, match=r"cannot read subject .*-value of registry"):
        fresh.run(engine="embedded")
    with registry_server(port=port) as server:
        assert server.register(f"{topic}-value", VISIT) == number
        report = job(kafka, topic, Avro(server.url), one.storage).run(engine="embedded")
        assert (report.rows, report.dead) == (10, 0)
        assert counted(one) == {"a": sum(range(0, 20, 2)), "b": sum(range(1, 20, 2))}


def test_a_schema_that_was_lost_stops_the_run(kafka: KafkaServer, registry: RegistryServer) -> None:
    """Whoever restores the registry loses nothing."""
    topic = kafka.create(2)
    number = registry.register(f"{topic}-value", VISIT)
    kafka.produce(topic, visits(number, VISIT, range(10)))
    kafka.produce(topic, visits(99, VISIT, range(4)))
    one = job(kafka, topic, Avro(registry.url))
    with pytest.raises(SourceError, match=r"has no schema 99.*on_unknown_id"):
        one.run(engine="embedded")
    report = job(kafka, topic, Avro(registry.url, on_unknown_id="dead-letter"), one.storage).run(engine="embedded")
    assert (report.rows, report.dead) == (14, 4)


def test_a_registry_that_was_made_anew(kafka: KafkaServer, registry: RegistryServer) -> None:
    """Its ids are those of other schemas: whoever believes it counts one field as another."""
    topic = kafka.create(2)
    number = registry.register(f"{topic}-value", VISIT)
    kafka.produce(topic, visits(number, VISIT, range(10)))
    one = job(kafka, topic, Avro(registry.url, reader=VISIT))
    one.run(engine="embedded")
    kafka.produce(topic, visits(number, VISIT, range(10, 14)))
    one.run(engine="embedded")
    assert list(only(newest(one).sources).recorded["writers"]) == [str(number)]
    kafka.produce(topic, visits(number, VISIT, range(14, 20)))
    with registry_server() as other:
        assert other.register(f"{topic}-value", {**VISIT, "fields": [*FIELDS[1:], FIELDS[0]]}) == number
        with pytest.raises(SourceChanged, match=rf"schema {number} is not the one .*correct registry="):
            job(kafka, topic, Avro(other.url), one.storage).run(engine="embedded")
    report = job(kafka, topic, Avro(registry.url), one.storage).run(engine="embedded")
    assert (report.rows, report.dead) == (6, 0)
    assert counted(one) == {"a": sum(range(0, 20, 2)), "b": sum(range(1, 20, 2))}


def test_a_guarded_registry(kafka: KafkaServer, tmp_path: Path) -> None:
    """With a password, over TLS, on Spark's way of pickling too; and no secret in an error."""
    made, topic = certificates(tmp_path), kafka.create(2)
    with registry_server(made, "app:hunter2-of-registry") as server:
        number = server.register(f"{topic}-value", VISIT)
        kafka.produce(topic, visits(number, VISIT, range(10)))
        right = {"basic.auth.user.info": "app:hunter2-of-registry", "ssl.ca.location": made.ca}
        assert job(kafka, topic, Avro(server.url, client=right)).run(engine="embedded").rows == 10
        wrong = job(kafka, topic, Avro(server.url, client={**right, "basic.auth.user.info": "app:hunter3"}))
        with pytest.raises(SourceError, match=r"status 401.*Give valid credentials") as error:
            wrong.run(engine="embedded")
        assert "hunter3" not in str(error.value)
