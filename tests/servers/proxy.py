"""A proxy is a port that passes everything on to a server, until a test cuts its connections or makes it slow.

Behind it a server is what it is; only the way there changes. A broker is told to advertise the proxy's address.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from contextlib import suppress

_PIECE_BYTES = 1 << 16
_AT_ONCE = struct.pack("ii", 1, 0)


class Proxy:
    """Listens on ``port`` of 127.0.0.1, 0 for any, and passes on to ``target``. Threads of this process do the work."""

    def __init__(self, target: int, port: int = 0) -> None:
        self.target = target
        self.cuts = 0
        self._delay_seconds = 0.0
        self._left_bytes: int | None = None
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", port), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, after_bytes: int = 0) -> None:
        """Reset every connection once so many more bytes have passed, in both directions together: 0 is now, and any
        other number may lie in the middle of a message. Connections that are made afterwards are whole."""
        if after_bytes:
            with self._lock:
                self._left_bytes = after_bytes
        else:
            self.cuts += 1
            self._reset()

    def slow(self, seconds: float) -> None:
        """Hold each piece, of at most 64 kB, for so long."""
        self._delay_seconds = seconds

    def heal(self) -> None:
        """Pass on what comes, at once."""
        with self._lock:
            self._left_bytes, self._delay_seconds = None, 0.0

    def close(self) -> None:
        """Reset what is open, and listen no more."""
        self._listener.close()
        self._reset()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.target), timeout=10)
            except OSError:
                _end(client)
                continue
            server.settimeout(None)
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open |= {client, server}
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=self._pump, args=(one, other), daemon=True).start()

    def _pump(self, one: socket.socket, other: socket.socket) -> None:
        """Pass on from one to the other, until either ends."""
        with suppress(OSError):
            while piece := one.recv(_PIECE_BYTES):
                if self._delay_seconds:
                    time.sleep(self._delay_seconds)
                whole, cut = self._passing(one, len(piece))
                other.sendall(piece[:whole])
                for each in cut:
                    _end(each)
                if whole < len(piece):
                    break
        with self._lock:
            self._open -= {one, other}
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _passing(self, one: socket.socket, size: int) -> tuple[int, set[socket.socket]]:
        """How many of so many bytes may pass, and what is to be ended behind them. All connections are cut at the same
        moment: from then on none of those passes anything, ended yet or not."""
        with self._lock:
            if one not in self._open:
                return 0, set()
            if self._left_bytes is None or self._left_bytes >= size:
                self._left_bytes = None if self._left_bytes is None else self._left_bytes - size
                return size, set()
            whole, self._left_bytes = self._left_bytes, None
            self.cuts += 1
            found, self._open = self._open, set()
            return whole, found

    def _reset(self) -> None:
        with self._lock:
            found, self._open = self._open, set()
        for one in found:
            _end(one)


def _end(one: socket.socket) -> None:
    """End a connection at once, without a farewell; who waits for it wakes up."""
    with suppress(OSError):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        one.shutdown(socket.SHUT_RDWR)
