"""A registry of schemas for tests speaks the protocol of Confluent's over HTTP, in a thread of this process.

It knows what is registered with it; ``fail`` makes it answer otherwise, and ``asked`` counts what it was asked for.
"""

from __future__ import annotations

import base64
import io
import json
import ssl
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote

from tests.certificates import Certificates

_TYPE = "application/vnd.schemaregistry.v1+json"


class _Quiet(ThreadingHTTPServer):
    """Clients that do not trust it hang up."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: the client says why."""


class RegistryServer:
    """``url``: where it is. ``fail``: so many requests are answered with this status first, or with None cut off."""

    def __init__(self, certificates: Certificates | None, user_info: str | None, port: int) -> None:
        self.asked: Counter[str] = Counter()
        self.fail: list[int | None] = []
        self._schemas: dict[int, dict[str, Any]] = {}
        self._subjects: dict[str, list[int]] = {}
        self._expected = None if user_info is None else f"Basic {base64.b64encode(user_info.encode()).decode()}"
        self._http = _Quiet(("127.0.0.1", port), self._handler())
        self._http.daemon_threads = True
        if certificates is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificates.certificate, certificates.key)
            self._http.socket = context.wrap_socket(self._http.socket, server_side=True, do_handshake_on_connect=False)
        self.port: int = self._http.server_address[1]
        self.url = f"{'http' if certificates is None else 'https'}://127.0.0.1:{self.port}"
        Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()

    def register(
        self, subject: str, schema: Any, *, kind: str = "AVRO", references: list[dict[str, Any]] | None = None
    ) -> int:
        """The id of a schema, which is the newest of its subject from now on."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        body: dict[str, Any] = {"schema": text} | ({"schemaType": kind} if kind != "AVRO" else {})
        body |= {"references": references} if references else {}
        number = next((one for one, known in self._schemas.items() if known == body), len(self._schemas) + 1)
        self._schemas[number] = body
        self._subjects.setdefault(subject, []).append(number)
        return number

    def forget(self, number: int) -> None:
        """Have no schema of this id any more."""
        del self._schemas[number]

    def close(self) -> None:
        """End it."""
        self._http.shutdown()
        self._http.server_close()

    def answer(self, path: str, authorization: str | None) -> tuple[int | None, dict[str, Any]]:
        """The status and the body for a request; None: no answer at all."""
        self.asked[path] += 1
        if self.fail:
            status = self.fail.pop(0)
            return status, {"error_code": 50001, "message": "the store of the registry ails"}
        if self._expected not in (None, authorization):
            return 401, {"error_code": 401, "message": "Unauthorized"}
        match [unquote(part) for part in path.split("/")[1:]]:
            case ["schemas", "ids", number]:
                found = self._schemas.get(int(number))
                return (200, found) if found else (404, {"error_code": 40403, "message": "Schema not found"})
            case ["subjects", subject, "versions", version] if subject in self._subjects:
                numbers = self._subjects[subject]
                nth = len(numbers) if version == "latest" else int(version)
                if nth > len(numbers):
                    return 404, {"error_code": 40402, "message": "Version not found"}
                number = numbers[nth - 1]
                return 200, {"subject": subject, "version": nth, "id": number, **self._schemas[number]}
            case ["subjects", *_]:
                return 404, {"error_code": 40401, "message": "Subject not found"}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                status, body = owner.answer(self.path, self.headers.get("Authorization"))
                if status is None:
                    self.close_connection = True
                    return
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", _TYPE)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing: tests ask ``asked``."""

        return Handler


def framed(number: int, schema: Any, record: Any) -> bytes:
    """A value as a serializer writes it."""
    import fastavro

    out = io.BytesIO()
    out.write(b"\0" + number.to_bytes(4, "big"))
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    return out.getvalue()


@contextmanager
def registry_server(
    certificates: Certificates | None = None, user_info: str | None = None, port: int = 0
) -> Iterator[RegistryServer]:
    """A registry, empty; with TLS if it has certificates, for one user if there is a ``user:password``."""
    server = RegistryServer(certificates, user_info, port)
    try:
        yield server
    finally:
        server.close()
