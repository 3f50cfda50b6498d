"""An S3 of one machine is moto, an S3 in memory, as a process of its own that takes one request at a time.

Moto looks whether an object exists and then stores it, without a lock: two conditional puts at once can both
win. Behind our front a request is read whole, then answered alone: so a conditional put is what it is on the
real service, atomic, and a client that was stopped in the middle of a request holds up nobody.

The front also writes down every request, and answers as an ailing service does when it is told to (``Fault``).
What it holds is lost when it is killed; ``pause`` and ``resume`` stand for a service that is away for a while.

    python -m tests.servers.s3 PORT        serves until it is interrupted
"""

from __future__ import annotations

import io
import json
import os
import socket
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.servers.processes import Server, free_port

_CONTROL = "/_front/"
_CODES = {409: "ConditionalRequestConflict", 412: "PreconditionFailed", 503: "SlowDown"}


@dataclass(frozen=True)
class Fault:
    """What the next ``times`` requests of ``method``, after the first ``after``, whose path holds ``path`` meet.

    ``status``: the answer, 0 for a connection that is closed without one. ``performed``: the request is
    carried out before, so that only its answer is lost.
    """

    method: str = "PUT"
    path: str = ""
    status: int = 503
    performed: bool = False
    times: int = 1
    after: int = 0


class S3Server:
    """A moto server, in ``folder`` only its log. Buckets are made by ``bucket``."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        self.endpoint = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "tests.servers.s3", str(port)]
        root = str(Path(__file__).parents[2])
        self.server = Server(command, port, folder / "s3.log", {"PYTHONPATH": root, "PYTHONUNBUFFERED": "1"})

    @property
    def environment(self) -> dict[str, str]:
        """What a client needs: credentials that open nothing, and where to go. Nothing of the machine's own is used."""
        return {
            "AWS_ACCESS_KEY_ID": "key-of-nobody",
            "AWS_SECRET_ACCESS_KEY": "secret-of-nobody",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def bucket(self, name: str) -> str:
        """Make a bucket; ``s3://name``."""
        request = urllib.request.Request(f"{self.endpoint}/{name}", method="PUT")
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.status == 200
        return f"s3://{name}"

    def requests(self) -> list[str]:
        """The requests since the last call, each "METHOD /path?query"; the front's own are left out."""
        return [line for line, _ in self.sized_requests()]

    def sized_requests(self) -> list[tuple[str, int]]:
        """The same, each with the bytes of its body."""
        return [(line, size) for line, size in self._control("requests")]

    def fail(self, *faults: Fault) -> None:
        """Meet requests with these faults, the first that fits; those told before are forgotten."""
        self._control("fail", [asdict(fault) for fault in faults])

    def _control(self, verb: str, data: Any = None) -> Any:
        body = json.dumps(data).encode()
        with urllib.request.urlopen(f"{self.endpoint}{_CONTROL}{verb}", body, timeout=60) as answer:
            return json.loads(answer.read())


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """An S3 that serves, without a bucket; nothing of it is left afterwards."""
    with tempfile.TemporaryDirectory(prefix="s3-") as folder:
        server = S3Server(Path(folder))
        try:
            server.server.start()
            server.server.wait()
            yield server
        finally:
            server.server.kill()


@contextmanager
def client_environment(server: S3Server) -> Iterator[None]:
    """This process is a client of the server."""
    before = {name: os.environ.get(name) for name in server.environment}
    os.environ.update(server.environment)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class Front:
    """A WSGI application that passes requests on one at a time, whole, and writes them down."""

    def __init__(self, application: Any) -> None:
        self._application = application
        self._lock = threading.Lock()
        self._seen: list[tuple[str, int]] = []
        self._faults: list[dict[str, Any]] = []

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        body = self._body(environ)
        with self._lock:
            if environ["PATH_INFO"].startswith(_CONTROL):
                return self._controlled(environ["PATH_INFO"].removeprefix(_CONTROL), body, start_response)
            query = environ.get("QUERY_STRING")
            line = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}{'?' + query if query else ''}"
            self._seen.append((line, len(body)))
            fault = self._fault(environ["REQUEST_METHOD"], environ["PATH_INFO"])
            if fault is None or fault["performed"]:
                answered: list[Any] = []
                parts = self._application(environ, lambda *words: answered.append(words))
                data = b"".join(parts)
                getattr(parts, "close", lambda: None)()
        if fault is None:
            start_response(*answered[-1][:2])
            return [data]
        return self._failed(fault["status"], environ, start_response)

    def _controlled(self, verb: str, body: bytes, start_response: Any) -> Iterable[bytes]:
        if verb == "fail":
            self._faults = json.loads(body)
        answer, self._seen = (self._seen, []) if verb == "requests" else (None, self._seen)
        start_response("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(answer).encode()]

    def _fault(self, method: str, path: str) -> dict[str, Any] | None:
        for fault in self._faults:
            if fault["method"] == method and fault["path"] in path and fault["times"] > 0:
                if fault["after"] > 0:
                    fault["after"] -= 1
                    return None
                fault["times"] -= 1
                return fault
        return None

    @staticmethod
    def _body(environ: dict[str, Any]) -> bytes:
        given = environ["wsgi.input"]
        whole, size = bool(environ.get("wsgi.input_terminated")), environ.get("CONTENT_LENGTH", "")
        body: bytes = given.read() if whole else given.read(int(size or 0))
        if environ["REQUEST_METHOD"] == "PUT" and not (whole or (size and len(body) == int(size))):
            # A request that was cut off, even in its headers, reaches us as if it ended there. The real service has it
            # whole or not at all.
            raise ConnectionAbortedError(f"the client has sent {len(body)} of {size or 'some'} bytes")
        environ["wsgi.input"] = io.BytesIO(body)
        return body

    @staticmethod
    def _failed(status: int, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if status == 0:
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionAbortedError("told to close the connection")
        code = {409: "ConditionalRequestConflict", 412: "PreconditionFailed", 503: "SlowDown"}.get(
            status, "InternalError"
        )
        start_response(f"{status} {code}", [("Content-Type", "application/xml")])
        return [f"<Error><Code>{code}</Code><Message>told to</Message></Error>".encode()]


def serve(port: int) -> None:
    """Be the server."""
    import logging

    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import run_simple

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    run_simple("127.0.0.1", port, Front(DomainDispatcherApplication(create_backend_app)), threaded=True)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
