"""The servers of the tests do what their docstrings say: what is proved on them depends on it."""

from __future__ import annotations

import http.client
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from persistent.storage import open_storage
from tests.servers import processes
from tests.servers.drivers import descendants
from tests.servers.processes import Server, free_port, java
from tests.servers.rabbit import RabbitServer
from tests.servers.s3 import Fault, Front, S3Server


def put(server: S3Server, path: str, data: bytes) -> int:
    """The status of a PUT; 0 for a connection closed without an answer."""
    request = urllib.request.Request(f"{server.endpoint}/{path}", data, method="PUT")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except (http.client.RemoteDisconnected, ConnectionResetError):
        return 0


def test_the_front_answers_one_request_at_a_time() -> None:
    """Moto looks and then stores: without the front two conditional puts at once would both win."""
    inside: list[int] = []
    most: list[int] = []

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        inside.append(1)
        most.append(len(inside))
        threading.Event().wait(0.01)
        inside.pop()
        start_response("200 OK", [])
        return [b""]

    class Input:
        def read(self, size: int) -> bytes:
            return b""

    front = Front(application)
    environ = {"REQUEST_METHOD": "PUT", "PATH_INFO": "/b/k", "CONTENT_LENGTH": "0", "wsgi.input": Input()}
    clients = [threading.Thread(target=lambda: front(dict(environ), lambda *_: None)) for _ in range(6)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    assert most == [1] * 6


@pytest.mark.parametrize("status", [0, 503])
@pytest.mark.parametrize("performed", [False, True])
def test_a_fault_is_met_as_told(s3_server: S3Server, status: int, performed: bool) -> None:
    """A test of a lost answer would be one of a request that never came."""
    bucket = f"test-{uuid.uuid4().hex}"
    s3_server.bucket(bucket)
    s3_server.fail(Fault("PUT", "/faulty", status, performed, times=1, after=1))
    assert put(s3_server, f"{bucket}/other", b"x") == 200
    assert put(s3_server, f"{bucket}/faulty-1", b"x") == 200
    assert put(s3_server, f"{bucket}/faulty-2", b"x") == status
    assert put(s3_server, f"{bucket}/faulty-3", b"x") == 200
    assert ("faulty-2" in open_storage(f"s3://{bucket}").list("")) == performed


@pytest.mark.parametrize("sent", ["", "Content-Len", "Content-Length: 9\r\n\r\n", "Content-Length: 9\r\n\r\nhalf"])
def test_an_object_that_was_cut_off_is_not_stored(s3_server: S3Server, sent: str) -> None:
    """The real service has it whole or not at all: a torn one would be a fault that nobody else can cause."""
    bucket = uuid.uuid4().hex
    s3_server.bucket(bucket)
    host, port = s3_server.endpoint.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as client:
        client.sendall(f"PUT /{bucket}/torn HTTP/1.1\r\nHost: {host}\r\n{sent}".encode())
        client.shutdown(socket.SHUT_WR)
        while client.recv(4_096):
            pass
    assert put(s3_server, f"{bucket}/whole", b"x") == 200
    assert open_storage(f"s3://{bucket}").list("") == ["whole"]


def test_requests_are_written_down_with_their_size(s3_server: S3Server) -> None:
    """The figure of requests a step is counted here."""
    bucket = f"test-{uuid.uuid4().hex}"
    s3_server.bucket(bucket)
    s3_server.requests()
    put(s3_server, f"{bucket}/a", b"12345")
    assert s3_server.sized_requests() == [(f"PUT /{bucket}/a", 5)]
    assert s3_server.requests() == []


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    """A missing Java would look like a test that hangs."""
    server = Server([sys.executable, "-c", "raise SystemExit('no such thing')"], free_port(), tmp_path / "log")
    server.start()
    with pytest.raises(AssertionError, match="no such thing"):
        server.wait()
    server.kill()
    assert not server.is_running


def test_a_server_does_not_outlive_who_started_it(tmp_path: Path) -> None:
    """A test run killed with -9 would leave its servers behind, and the next one would meet them."""
    script = (
        "import sys, time; from pathlib import Path; from tests.servers.processes import Server\n"
        f"server = Server([sys.executable, '-c', 'import time; time.sleep(60)'], 1, Path({str(tmp_path / 'log')!r}))\n"
        "server.start(); print(server.pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert child in [pid for pid, _ in descendants(parent.pid)]
    ended = os.pidfd_open(child)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert select.select([ended], [], [], 30)[0], "it goes on"
    os.close(ended)
    parent.stdout.close()


def test_a_port_is_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two servers that are given one port the second would die for it, now and then: while the first is starting, or
    while it is down."""
    ports = range(12_000, 12_100)
    script = (
        f"import time; from tests.servers import processes; processes._PORTS = {ports!r}\n"
        "print(*(processes.free_port() for _ in range(40)), flush=True); time.sleep(60)"
    )
    other = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
    assert other.stdout is not None
    with other, other.stdout:
        theirs = [int(port) for port in other.stdout.readline().split()]
        monkeypatch.setattr(processes, "_PORTS", ports)
        monkeypatch.setattr(processes, "_TAKEN", [])
        ours = [processes.free_port() for _ in range(40)]
        other.kill()
    assert len({*theirs, *ours}) == len(theirs) + len(ours) == 80


def test_a_missing_server_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skipped without a word where all has to be tried, a broken connector would be taken for a whole one."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"no Java found .*: apt-get install openjdk"):
        java()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=r"no Java found .*: apt-get install openjdk"):
        java()


def test_a_broker_keeps_what_it_confirmed_when_it_is_killed(rabbit: RabbitServer) -> None:
    """What is proved of kills of the broker would hold of a broker that forgets."""
    import pika

    body, kept = uuid.uuid4().bytes, pika.BasicProperties(delivery_mode=2)
    names = {kind: f"{kind}-{uuid.uuid4().hex}" for kind in ("classic", "quorum")}
    connection = rabbit.connect()
    channel = connection.channel()
    channel.confirm_delivery()
    for kind, name in names.items():
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": kind})
        channel.basic_publish("", name, body, kept, mandatory=True)
    rabbit.kill()
    with pytest.raises((pika.exceptions.AMQPError, OSError)):
        rabbit.connect()
    rabbit.restart()
    with closing(rabbit.connect()) as connection:
        channel = connection.channel()
        for name in names.values():
            assert next(channel.consume(name, inactivity_timeout=60))[2] == body, name
            channel.cancel()
            channel.queue_delete(name)
