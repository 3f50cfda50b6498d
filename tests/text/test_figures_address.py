"""An address is read as people write it, and as nothing else."""

from __future__ import annotations

import pytest

from persistent.text.figures import Endpoint, address_of, is_loopback


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0.0.0.0:1", Endpoint("0.0.0.0", 1)),
        ("host.example:65535", Endpoint("host.example", 65535)),
        ("[::]:0", Endpoint("::", 0)),
        (" 9464 ", Endpoint("127.0.0.1", 9464)),
    ],
)
def test_an_address(text: str, address: Endpoint) -> None:
    """A server would listen elsewhere."""
    assert address_of(text) == address
    assert address_of(str(address)) == address


@pytest.mark.parametrize("text", ["", ":1", "a:", "a:b", "::1:80", "[]:1", "1.2.3.4", "a:65536", "a:-1", "a:１"])
def test_what_is_none(text: str) -> None:
    """A mistyped one would be taken for another."""
    with pytest.raises(ValueError, match="HOST:PORT"):
        address_of(text)


def test_what_only_this_machine_reaches() -> None:
    """An open door would be taken for a closed one."""
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "localhost.example", "")))
