"""TLS to a broker and to a database: the right certificates work, and an error names the wrong ones at once."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from persistent import KafkaSink, KafkaSource, Pipeline, PostgresSink, SourceError, StorageError
from persistent.connect.sink import Claim
from persistent.errors import PersistentError
from persistent.storage import MemoryStorage
from tests.certificates import Certificates, certificates
from tests.servers.kafka import KafkaServer
from tests.servers.postgres import PASSWORD, USER, PostgresServer
from tests.servers.test_kafka import ByPage, counted, rows, total

pytestmark = [pytest.mark.check, pytest.mark.timeout(600)]
AT_ONCE_SECONDS = 20
"""What is refused for good is not waited for: the patience below is longer."""
PATIENT = {"connect_timeout": "45 s", "server_away": "45 s"}


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates by an authority that no server knows."""
    return certificates(tmp_path_factory.mktemp("strangers"), "a stranger")


def trusting(ca: str, **more: str) -> dict[str, str]:
    return {"security.protocol": "SSL", "ssl.ca.location": ca} | {k.replace("_", "."): v for k, v in more.items()}


def refused(act: Any, error: type[PersistentError], match: str) -> str:
    """The text of an error that comes at once."""
    began = time.monotonic()
    with pytest.raises(error, match=match) as raised:
        act()
    assert time.monotonic() - began < AT_ONCE_SECONDS
    return str(raised.value)


def test_a_topic_is_read_over_tls(kafka: KafkaServer) -> None:
    """One-sided, and where the broker wants to know the client."""
    topic, own = kafka.create(2), kafka.keys
    kafka.produce(topic, rows(300, 2))
    mutual = trusting(own.ca, ssl_certificate_location=own.client_certificate, ssl_key_location=own.client_key)
    for servers, client in ((kafka.tls, trusting(own.ca)), (kafka.mutual, mutual)):
        source = KafkaSource(servers, topic, timestamp="ts", timestamp_unit="ms", client=client)
        one = Pipeline(source=source, task=ByPage(), checkpoint=MemoryStorage(uuid.uuid4().hex))
        assert one.run(engine="embedded").rows == 300
        assert counted(one) == total(300)


def test_a_broker_that_is_not_trusted(kafka: KafkaServer, strangers: Certificates) -> None:
    """And a client that the broker does not trust: both are told in a sentence, of source and sink."""
    topic, own = kafka.create(1), kafka.keys
    alien = trusting(own.ca, ssl_certificate_location=strangers.client_certificate)
    for servers, client, said in (
        (kafka.tls, trusting(strangers.ca), "certificate verify failed"),
        (kafka.tls, {"security.protocol": "SSL"}, "certificate verify failed"),
        (kafka.mutual, trusting(own.ca), "SSL alert number"),
        (kafka.mutual, {**alien, "ssl.key.location": strangers.client_key}, "alert"),
    ):
        source = KafkaSource(servers, topic, client=client, **PATIENT)
        refused(lambda: source.position_at("0", 5), SourceError, f"Kafka at .*{said}.*check servers= and client=")  # noqa: B023
        sink = KafkaSink(servers, topic, client=client, **PATIENT)
        refused(lambda: sink.newest("job"), StorageError, f"Kafka at .*{said}.*check servers= and client=")  # noqa: B023


def test_a_client_that_does_not_know_of_tls(kafka: KafkaServer) -> None:
    """Two that wait for each other's first word: no hang, but an error within connect_timeout, with the remedy."""
    topic = kafka.create(1)
    for servers, client in ((kafka.tls, {}), (kafka.bootstrap, trusting(kafka.keys.ca))):
        source = KafkaSource(servers, topic, connect_timeout="3 s", client=client)
        refused(lambda: source.position_at("0", 5), SourceError, r"\([345] s\).*does the broker want TLS")  # noqa: B023


def test_a_key_with_a_password_is_not_shown(kafka: KafkaServer, tmp_path: Path) -> None:
    """Neither is the file of the key an error of the network."""
    client = trusting(kafka.keys.ca, ssl_key_location=str(tmp_path / "none.key"), ssl_key_password="hunter2-of-key")
    client["ssl.certificate.location"] = kafka.keys.client_certificate
    with pytest.raises(PersistentError, match=r"client= is refused.*ssl\.key\.location") as error:
        KafkaSource(kafka.mutual, "t", connect_timeout="3 s", client=client).position_at("0", 5)
    assert "hunter2-of-key" not in f"{error.value!r}{error.value.__context__!r}"


@pytest.fixture(scope="module")
def tls_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[PostgresServer, Certificates]]:
    """A server of which the database "guarded" takes TLS alone, and "certified" a client's certificate too."""
    from tests.servers.postgres import postgres_server

    keys = certificates(tmp_path_factory.mktemp("keys"))
    with postgres_server() as server:
        server.demand_tls(keys, encrypted="guarded", certified="certified")
        yield server, keys


def sink(url: str, **options: Any) -> PostgresSink:
    return PostgresSink(url, f"t{uuid.uuid4().hex[:8]}", **{**PATIENT, **options})


def test_a_database_that_demands_tls(
    tls_postgres: tuple[PostgresServer, Certificates], strangers: Certificates
) -> None:
    """It is written over TLS, verified if the dsn says so; and refused without, with the words to add."""
    server, keys = tls_postgres
    url = server.url(database="guarded")
    for words in ("", "?sslmode=require", f"?sslmode=verify-full&sslrootcert={keys.ca}"):
        one = sink(url + words)
        one.claim(Claim("job"))
        assert one.newest("job") == 0
        one.close()
    plain = refused(lambda: sink(f"{url}?sslmode=disable").claim(Claim("j")), StorageError, "no encryption")
    assert "sslmode=require" in plain and "sslrootcert=" in plain and PASSWORD not in plain
    for words, said in (
        (f"?sslmode=verify-full&sslrootcert={strangers.ca}", "certificate verify failed"),
        ("?sslmode=verify-full&sslrootcert=/none/root.pem", "root certificate file"),
    ):
        text = refused(lambda: sink(url + words).claim(Claim("j")), StorageError, said)  # noqa: B023
        assert "sslrootcert= in the dsn" in text and "credentials" not in text
    named = f"postgresql://{USER}:{PASSWORD}@localhost:{server.port}/guarded?hostaddr=127.0.0.1"
    sink(f"{named}&sslmode=verify-full&sslrootcert={keys.ca}").claim(Claim("j"))
    wrong = refused(lambda: sink(url.replace(PASSWORD, "hunter3-of-app")).claim(Claim("j")), StorageError, "password")
    assert "Give valid credentials" in wrong and "hunter3" not in wrong


def test_a_database_that_demands_a_certificate(tls_postgres: tuple[PostgresServer, Certificates]) -> None:
    """Mutual TLS, by the settings of libpq."""
    server, keys = tls_postgres
    url = f"postgresql://app@127.0.0.1:{server.port}/certified?sslmode=verify-full&sslrootcert={keys.ca}"
    sink(f"{url}&sslcert={keys.client_certificate}&sslkey={keys.client_key}").claim(Claim("j"))
    text = refused(lambda: sink(url).claim(Claim("j")), StorageError, "certificate")
    assert "sslcert= and sslkey=" in text


def test_a_database_without_tls(postgres: PostgresServer) -> None:
    """The dsn of production against the server of the desk."""
    text = refused(lambda: sink(f"{postgres.url()}?sslmode=require").claim(Claim("j")), StorageError, "support SSL")
    assert "The server has no TLS" in text


def test_a_server_that_dies_under_tls_is_waited_for(tls_postgres: tuple[PostgresServer, Certificates]) -> None:
    """What TLS says of a cut connection is no refusal."""
    server, keys = tls_postgres
    one = sink(f"{server.url(database='guarded')}?sslmode=verify-full&sslrootcert={keys.ca}")
    one.claim(Claim("job"))
    for _ in range(3):
        server.kill()
        server.restart()
        assert one.newest("job") == 0
