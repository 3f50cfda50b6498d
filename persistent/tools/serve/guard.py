"""The guard lets in who may look, and only to look: GET and HEAD, under the page's own name, with the token if there is
one.

- A page of another site can make a browser ask this server under the name of that site (DNS rebinding). The guard
  refuses a ``Host`` that is not one of the page's names.
- Such a page can also send requests across sites. ``Sec-Fetch-Site`` marks them, and the guard refuses them data.
- The token is compared in constant time. Given once in the URL, it moves into a cookie that scripts cannot read, and
  the URL forgets it.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from persistent.errors import InvalidPipeline
from persistent.text.figures import is_loopback

COOKIE = "persistent_serve"
TOKEN_LENGTH_MIN = 16
_COOKIE_S = 30 * 86_400

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class Guard:
    """``host``: the address that the page listens on. ``token``: what a reader must present; None asks for none, which
    only loopback allows. ``names``: further names that the page is reached under, as behind a proxy."""

    host: str = "127.0.0.1"
    token: str | None = None
    names: frozenset[str] = field(default_factory=frozenset)

    def __post_init__(self) -> None:
        if self.token is None and not is_loopback(self.host):
            raise InvalidPipeline(f"host {self.host} is reached from other machines: give a token")
        if self.token is not None and len(self.token) < TOKEN_LENGTH_MIN:
            raise InvalidPipeline(f"a token of {len(self.token)} characters is guessed: give {TOKEN_LENGTH_MIN}")

    def knows(self, host: str) -> bool:
        """Whether the page answers to this ``Host``: to its own names and to loopback. A page that listens beyond
        loopback also answers to every IP address, since DNS cannot rebind an address."""
        name = _name_of(host)
        if name in self.names or name == self.host or is_loopback(name):
            return True
        return not is_loopback(self.host) and _is_address(name)

    def admits(self, token: str | None) -> bool:
        """Whether a token is the right one."""
        return self.token is None or hmac.compare_digest((token or "").encode(), self.token.encode())


def _name_of(host: str) -> str:
    """The name in a ``Host`` without its port and brackets, in small letters."""
    name = host.rpartition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
    return name.lower().removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Guarded:
    """An application behind a guard."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self.app = app
        self.guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = self._answer(scope)
        await (self.app if answer is None else answer)(scope, receive, with_headers)

    def _answer(self, scope: Scope) -> Response | None:
        """What to answer instead of the page; None to show it."""
        headers = Headers(scope=scope)
        if scope["method"] not in ("GET", "HEAD"):
            text = "This page only shows: use the persistent command to change a checkpoint.\n"
            return PlainTextResponse(text, 405, {"Allow": "GET, HEAD"})
        if not self.guard.knows(headers.get("host", "")):
            text = "The page is not known by this name. Open it by its address, or start it with --name NAME.\n"
            return PlainTextResponse(text, 421)
        if scope["path"].startswith("/api/") and headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return PlainTextResponse("Another site asked for this. Open the page itself.\n", 403)
        return self._asks_for_token(scope, headers)

    def _asks_for_token(self, scope: Scope, headers: Headers) -> Response | None:
        query = parse_qs(scope["query_string"].decode("latin-1"))
        token = query.pop("token", [None])[0]
        if self.guard.token is not None and token is not None and scope["path"] == "/" and self.guard.admits(token):
            answer = RedirectResponse("/" + (f"?{urlencode(query, doseq=True)}" if query else ""), 303)
            answer.set_cookie(COOKIE, token, max_age=_COOKIE_S, httponly=True, samesite="strict")
            return answer
        bearer = headers.get("authorization", "")
        cookie = cookie_parser(headers.get("cookie", "")).get(COOKIE)
        credential = bearer.removeprefix("Bearer ") if bearer.startswith("Bearer ") else cookie
        if self.guard.admits(credential):
            return None
        text = "This page asks for its token: open the address with ?token=... that 'persistent serve' printed."
        if scope["path"].startswith("/api/"):
            return JSONResponse({"error": {"kind": "token", "title": "A token is needed", "text": text}}, 401)
        return PlainTextResponse(f"{text}\n", 401)
