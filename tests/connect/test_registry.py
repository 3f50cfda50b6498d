"""A registry is asked until it answers, and an error says whose fault it is, without a secret."""

from __future__ import annotations

import pickle
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from persistent import InvalidPipeline, SourceError
from persistent.connect import registry as clients
from persistent.connect.registry import Registered, Registry, registry_access
from tests.certificates import Certificates, certificates
from tests.registry import RegistryServer, registry_server

SECRET = "hunter2-of-registry"
LONG_MS = 300_000


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "_SURE_SECONDS", 0.05)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates(tmp_path_factory.mktemp("keys"))


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with registry_server() as found:
        yield found


def asking(url: str, connect_ms: int = LONG_MS, away_ms: int = LONG_MS, **client: str) -> Registry:
    access = registry_access(url, {name.replace("_", "."): value for name, value in client.items()})
    return Registry(access, connect_ms, away_ms)


def test_schemas_by_id_and_by_subject(server: RegistryServer) -> None:
    """A subject may have a slash in its name; the newest of it is the one that was registered last."""
    old, new = (server.register("a/b c", text) for text in ('"int"', '"long"'))
    other = server.register("j", "{}", kind="JSON")
    registry = asking(server.url)
    assert registry.schema(old) == Registered('"int"') and registry.schema(new) == Registered('"long"')
    assert registry.newest("a/b c") == Registered('"long"') and registry.schema(other) == Registered("{}", kind="JSON")
    assert registry.schema(99) is None and registry.newest("c") is None


def test_references_come_before_those_that_need_them(server: RegistryServer) -> None:
    """Each is asked for once, however many refer to it."""

    def to(*subjects: str) -> list[dict[str, Any]]:
        return [{"name": one, "subject": one, "version": 1} for one in subjects]

    server.register("a", '"a"')
    server.register("b", '"b"', references=to("a"))
    server.register("c", '"c"', references=to("a", "b"))
    number = server.register("d", '"d"', references=to("c", "b"))
    assert asking(server.url).schema(number) == Registered('"d"', ('"a"', '"b"', '"c"'))
    assert server.asked["/subjects/a/versions/1"] == 1
    lost = server.register("e", '"e"', references=to("gone"))
    with pytest.raises(SourceError, match="has no version 1 of subject gone, which a schema refers to"):
        asking(server.url).schema(lost)


def test_an_id_that_was_registered_a_moment_ago(server: RegistryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another server of the registry may not know it yet."""
    monkeypatch.setattr(clients, "_SURE_SECONDS", 60)
    late = threading.Timer(0.3, server.register, ["a", '"int"'])
    late.start()
    assert asking(server.url).schema(1) == Registered('"int"')
    assert server.asked["/schemas/ids/1"] > 1


def test_doubt_has_an_end(server: RegistryServer) -> None:
    """A thousand unknown ids must not take a thousand times as long."""
    registry = asking(server.url)
    assert [registry.schema(number) for number in range(20)] == [None] * 20
    assert all(server.asked[f"/schemas/ids/{number}"] == 1 for number in range(10, 20))


def test_a_registry_that_ails_is_asked_again(server: RegistryServer) -> None:
    """A deployment of the registry is no reason to stop."""
    server.register("a", '"int"')
    server.fail += [503, None, 429]
    assert asking(server.url).schema(1) == Registered('"int"')
    assert server.asked["/schemas/ids/1"] == 4


def test_several_servers_are_one_registry(server: RegistryServer) -> None:
    """One of them is away: the next answers."""
    server.register("a", '"int"')
    assert asking(f"http://127.0.0.1:1, {server.url}/").schema(1) == Registered('"int"')


def test_how_long_it_is_waited_for(server: RegistryServer) -> None:
    """At the start a typing error must be seen soon; under way a restart must not end the run."""
    server.register("a", '"int"')
    known = asking(server.url, connect_ms=1, away_ms=LONG_MS)
    assert known.schema(1) is not None
    server.fail += [503]
    assert known.schema(1) is not None
    for registry in (asking(server.url, connect_ms=1), pickle.loads(pickle.dumps(known))):
        server.fail[:] = [503, 503]
        with pytest.raises(SourceError, match=r"cannot read schema 1 of registry http.*status 503: the store of the"):
            registry.schema(1)
        server.fail.clear()
        assert registry.schema(1, under_way=True) is not None


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n<html/>", "no registry answers there"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n[{}]", "no registry answers there"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "is not a schema. Correct registry="),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 7\r\n\r\n<html/>", "status 404.*is a schema registry there"),
        (b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n", "status 302.*is a schema registry there"),
        (b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n", "status 403.*Give valid credentials"),
    ],
)
def test_another_server_at_that_address(answer: bytes, said: str) -> None:
    """To ask it again would help nobody."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            line, _ = listening.accept()
            with line:
                line.recv(65_536)
                line.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(SourceError, match=said):
            asking(f"http://127.0.0.1:{listening.getsockname()[1]}").schema(1)
        thread.join()


def test_passwords_and_tokens(made: Certificates) -> None:
    """Right ones open the door, and none is in an error."""
    with registry_server(user_info=f"app:{SECRET}") as server:
        server.register("a", '"int"')
        own = server.url.replace("//", f"//app:{SECRET}@")
        assert asking(own).schema(1) and asking(server.url, basic_auth_user_info=f"app:{SECRET}").schema(1)
        for registry in (
            asking(server.url),
            asking(server.url, basic_auth_user_info=f"app:{SECRET}3"),
            asking(server.url, bearer_auth_token=f"{SECRET}4"),
        ):
            with pytest.raises(SourceError, match=r"status 401.*Give valid credentials") as error:
                registry.schema(1)
            assert SECRET not in f"{error.value!r}{error.value.__context__!r}{registry!r}{registry._access!r}"


def test_tls(made: Certificates, tmp_path: Path) -> None:
    """With the authority's certificate; without it the error names the setting, at once."""
    with registry_server(made) as server:
        server.register("a", '"int"')
        assert asking(server.url, ssl_ca_location=made.ca).schema(1)
        other = certificates(tmp_path, "another authority")
        for registry in (asking(server.url), asking(server.url, ssl_ca_location=other.ca)):
            with pytest.raises(SourceError, match=r"CERTIFICATE_VERIFY_FAILED.*ssl\.ca\.location"):
                registry.schema(1)
        with pytest.raises(SourceError, match="is it https"):
            asking(server.url, ssl_ca_location=str(tmp_path / "none.pem")).schema(1)
        with pytest.raises(SourceError, match=r"or https:// if it demands TLS"):
            asking(server.url.replace("https", "http"), connect_ms=1).schema(1)
    with registry_server() as server, pytest.raises(SourceError, match="is it https"):
        asking(server.url.replace("http", "https")).schema(1)


def test_a_password_of_a_letter_leaves_the_text_whole() -> None:
    """What is wrong could not be read."""
    for client in ({"basic.auth.user.info": "u:e"}, {"bearer.auth.token": "e"}, {"ssl.key.password": "e"}):
        assert registry_access("http://a", client).scrubbed("refused the letter e") == "refused the letter ..."


def test_the_options_are_checked() -> None:
    """And what is refused shows no secret."""
    for url, client, said in (
        ("localhost:8081", {}, "give the URL of a schema registry"),
        (None, {}, "give the URL of a schema registry"),
        ("http://", {}, "give the URL"),
        (f"http://a,ftp://u:{SECRET}@b", {}, "give the URL"),
        ("http://a", [("a", "b")], "is a mapping to texts"),
        ("http://a", {"ssl.ca.location": Path("x")}, "is a mapping to texts"),
        ("http://a", {"ssl.ca": "x"}, "has no 'ssl.ca'. It can have basic.auth.user.info, "),
    ):
        with pytest.raises(InvalidPipeline, match=said) as error:
            registry_access(url, client)
        assert SECRET not in str(error.value)
    assert registry_access(" http://a/ , http://u:p%40q@b:1", {}).servers == ("http://a", "http://b:1")
    assert registry_access("http://u:p%40q@b:1", {}).settings == {"basic.auth.user.info": "u:p@q"}
