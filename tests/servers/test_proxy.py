"""A proxy passes on, cuts and holds up: what is proved behind it depends on it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from tests.servers.proxy import Proxy


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """Before a server that gives back what it gets."""
    listener = socket.create_server(("127.0.0.1", 0))

    def echo(one: socket.socket) -> None:
        while piece := one.recv(100):
            one.sendall(piece)
        one.close()

    def serve() -> None:
        while True:
            try:
                one, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=echo, args=(one,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    made = Proxy(listener.getsockname()[1])
    yield made
    made.close()
    listener.close()


def connected(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=60)


def said(one: socket.socket, data: bytes) -> bytes:
    """What comes back until all has, or the connection ends."""
    found = b""
    try:
        one.sendall(data)
        while len(found) < len(data) and (piece := one.recv(100)):
            found += piece
    except ConnectionError:
        pass
    return found


def test_what_is_said_comes_back(proxy: Proxy) -> None:
    """A proxy that loses something would blame the server."""
    data = bytes(range(256)) * 1_000
    with connected(proxy) as one, connected(proxy) as other:
        for each in (one, other):
            sender = threading.Thread(target=each.sendall, args=(data,))
            sender.start()
            found = b""
            while len(found) < len(data):
                found += each.recv(1 << 16)
            sender.join()
            assert found == data
    assert proxy.cuts == 0


def test_a_connection_is_cut_at_the_byte(proxy: Proxy) -> None:
    """A cut between messages alone would leave out those in the middle of one."""
    with connected(proxy) as one, connected(proxy) as other:
        # A connection that the proxy has not accepted yet is one that is made after the cut.
        assert said(one, b"before") == said(other, b"before") == b"before"
        proxy.cut(after_bytes=14)
        assert said(one, b"0123456789") == b"0123" and proxy.cuts == 1
        assert said(other, b"x") == b""
    with connected(proxy) as again:
        assert said(again, b"whole again") == b"whole again"
        proxy.cut()
        assert said(again, b"x") == b"" and proxy.cuts == 2


def test_a_slow_way_is_slow_until_it_is_healed(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault that outlives its test would be met by the next one."""
    slept: list[float] = []
    monkeypatch.setattr("tests.servers.proxy.time.sleep", slept.append)
    with connected(proxy) as one:
        proxy.slow(0.25)
        assert said(one, b"x") == b"x" and slept == [0.25, 0.25]
        proxy.cut(after_bytes=5)
        proxy.heal()
        assert said(one, b"y" * 50) == b"y" * 50 and slept == [0.25, 0.25]
