"""The guard lets in who may look, and only to look."""

from __future__ import annotations

import httpx
import pytest

from persistent.errors import InvalidPipeline
from persistent.tools.serve.web import COOKIE, Guard
from tests.tools.serve.jobs import page, ran

TOKEN = "a-token-of-24-characters"
OPEN = Guard("0.0.0.0", TOKEN, frozenset({"jobs.example"}))


@pytest.fixture(scope="module")
def client() -> httpx.Client:
    return page(ran("guarded"))


@pytest.fixture(scope="module")
def asking() -> httpx.Client:
    return page(ran("asking"), guard=OPEN)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
@pytest.mark.parametrize("path", ["/", "/api/jobs", "/api/guarded/verify", "/nowhere"])
def test_only_reads(client: httpx.Client, method: str, path: str) -> None:
    """Another page could make a browser change something."""
    answer = client.request(method, path)
    assert answer.status_code == 405 and answer.headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    "host, ok",
    [("127.0.0.1:8321", 1), ("localhost", 1), ("[::1]:80", 1), ("LOCALHOST.", 1), ("evil.example", 0), ("", 0)]
    + [("localhost.evil.example", 0), ("127.0.0.1.evil.example:8321", 0), ("10.0.0.7", 0), ("evil.example:8321", 0)],
)
def test_the_host_is_ours(client: httpx.Client, host: str, ok: int) -> None:
    """A page of another site, its name rebound to this machine, would read every state."""
    assert client.get("/api/jobs", headers={"host": host}).status_code == (200 if ok else 421)


def test_beyond_loopback_any_address_and_given_name(asking: httpx.Client) -> None:
    """The page would not open by the address it was printed with, or open under any name."""
    assert OPEN.knows("10.0.0.7:8321") and OPEN.knows("jobs.example") and not OPEN.knows("evil.example")


@pytest.mark.parametrize("site, ok", [("same-origin", 1), ("none", 1), ("cross-site", 0), ("same-site", 0)])
def test_other_sites_are_refused(client: httpx.Client, site: str, ok: int) -> None:
    """An image on any page could start a verification of every byte."""
    assert client.get("/api/jobs", headers={"sec-fetch-site": site}).status_code == (200 if ok else 403)


@pytest.mark.parametrize("path", ["/", "/api/jobs", "/assets/main.js", "/api/asking/now", "/nowhere"])
def test_a_token_is_asked_for_everywhere(asking: httpx.Client, path: str) -> None:
    """One open address would show the job."""
    assert asking.get(path).status_code == 401
    for wrong in ("", TOKEN[:-1], f"{TOKEN}x", "ä"):
        assert asking.get(path, headers=[(b"authorization", f"Bearer {wrong}".encode())]).status_code == 401
        assert asking.get(path, headers={"cookie": f"{COOKIE}={wrong}".encode()}).status_code == 401
    assert asking.get(path, headers={"authorization": f"Bearer {TOKEN}"}).status_code in (200, 404)


def test_the_token_moves_from_the_url_into_a_cookie() -> None:
    """It would stay in the history of the browser, or be read by a script."""
    client = page(ran("cookie"), guard=OPEN, follow_redirects=False)
    answer = client.get("/", params={"token": TOKEN})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie
    assert client.get("/api/jobs").status_code == 200
    assert client.get("/", params={"token": "wrong" * 5}, headers={"cookie": ""}).status_code in (200, 401)


def test_an_open_page_without_a_token_is_refused() -> None:
    """Everybody in the network would read the state."""
    with pytest.raises(InvalidPipeline, match="give a token"):
        Guard("0.0.0.0")
    with pytest.raises(InvalidPipeline, match="guessed"):
        Guard("127.0.0.1", "short")
    assert Guard("::1").token is None


@pytest.mark.parametrize("path", ["/", "/api/jobs", "/assets/main.js", "/nowhere", "/api/guarded/state?at=999"])
def test_every_answer_has_the_headers(client: httpx.Client, path: str) -> None:
    """Text of a key that became markup after all would run as a script."""
    headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
    assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"
    assert headers["x-frame-options"] == "DENY"
