"""What the page does over HTTP: a guard lets in who may look, and events tell a page what is new.

The guard lets in who may look, and only to look: GET and HEAD, under the page's own name, with the token if there is
one.

- A page of another site can make a browser ask this server under the name of that site (DNS rebinding). The guard
  refuses a ``Host`` that is not one of the page's names.
- Such a page can also send requests across sites. ``Sec-Fetch-Site`` marks them, and the guard refuses them data.
- The token is compared in constant time. Given once in the URL, it moves into a cookie that scripts cannot read, and
  the URL forgets it.

Server-sent events: a page hears that a job has a new checkpoint, or how far a verification is.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import logging
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass, field
from threading import Event, Thread
from typing import Any
from urllib.parse import parse_qs, urlencode

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from persistent.errors import InvalidPipeline, PersistentError
from persistent.storage.failures import without_secrets
from persistent.text.figures import is_loopback
from persistent.tools.serve.now import brief, unread
from persistent.tools.serve.shown import Shown
from persistent.tools.serve.wording import place_text, said_of
from persistent.verify import FAULT, WARNING, Verification, verify, verify_sinks

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


logger = logging.getLogger("persistent.serve")

DEFECT = "This is a defect of the page, not of the checkpoint. The log of 'persistent serve' says where."

_POLL_S = 1.0
_PROGRESS_S = 0.2
_BEAT_S = 15.0
_LINES_S = 1.0
_FINDINGS_MAX = 200


def event_stream(events: AsyncIterator[str]) -> StreamingResponse:
    return StreamingResponse(events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


def event(name: str, data: Any) -> str:
    """One event; JSON has no line breaks of its own."""
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


async def changes(jobs: Mapping[str, Shown]) -> AsyncIterator[str]:
    """The line of each job at first, and after each change; a comment now and then, so that a proxy keeps the
    connection. A store that does not answer holds no other job up."""
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def follow(job: Shown) -> None:
        known: Any = None
        while True:
            line = await run_in_threadpool(line_of, job)
            if known != line["version"]:
                known = line["version"]
                heard.put_nowait(event("job", line))
            await asyncio.sleep(_POLL_S)

    followers = [asyncio.create_task(follow(job)) for job in jobs.values()]
    try:
        while True:
            try:
                yield await asyncio.wait_for(heard.get(), _BEAT_S)
            except TimeoutError:
                yield ": alive\n\n"
    finally:
        for follower in followers:
            follower.cancel()


async def all_lines(jobs: Mapping[str, Shown]) -> list[dict[str, Any]]:
    """The line of each job. A job whose store takes long is listed as waiting, so that the page shows the others."""
    asked = {job.name: asyncio.create_task(run_in_threadpool(line_of, job)) for job in jobs.values()}
    if asked:
        await asyncio.wait(asked.values(), timeout=_LINES_S)
    return [asked[name].result() if asked[name].done() else _waited_for(jobs[name]) for name in asked]


def line_of(job: Shown) -> dict[str, Any]:
    """The line of a job, whatever happens: a defect of ours ends no stream."""
    try:
        return brief(job)
    except Exception as error:
        logger.error("%s cannot be listed", job.name, exc_info=error)
        return unread(job, {"kind": "defect", "title": "The page failed", "text": DEFECT})


def _waited_for(job: Shown) -> dict[str, Any]:
    text = f"{place_text(job.storage.url)} has not answered yet. The page shows the job as soon as it does."
    return unread(job, {"kind": "waiting", "title": "Waiting for the store", "text": text})


class Verifying:
    """One verification of a checkpoint at work, in a thread of its own. Leaving the page ends it."""

    def __init__(self, job: Shown) -> None:
        self._shown = job
        self._left = Event()
        self.done: tuple[int, int] = (0, 0)
        self.result: dict[str, Any] | None = None
        self._thread = Thread(target=self._run, name=f"verify {job.name}", daemon=True)

    def _run(self) -> None:
        try:
            report = verify(self._shown.storage, on_progress=self._progress)
            if self._shown.pipeline is not None and report.newest is not None:
                report.add(verify_sinks(self._shown.pipeline, on_progress=self._in_sinks))
            self.result = verification_of(report)
        except _Left:
            self.result = {}
        except PersistentError as error:
            self.result = {"error": said_of(error)[1]}
        except Exception as error:
            text = without_secrets(f"the verification ended early: {type(error).__name__}: {error}")
            self.result = {"error": {"kind": "error", "title": "Not verified", "text": text}}

    def _progress(self, done: int, total: int) -> None:
        self.done = done, total
        self._in_sinks(done, total)

    def _in_sinks(self, done: int, total: int) -> None:
        if self._left.is_set():
            raise _Left

    async def events(self) -> AsyncIterator[str]:
        self._thread.start()
        try:
            while self.result is None:
                yield event("progress", {"done": self.done[0], "total": self.done[1]})
                await asyncio.sleep(_PROGRESS_S)
            yield event("verified", self.result)
        finally:
            self._left.set()

    @property
    def is_at_work(self) -> bool:
        """Not before somebody listens, and not after it has ended."""
        return self._thread.is_alive()


class _Left(Exception):
    """Nobody looks any more."""


def verification_of(report: Verification) -> dict[str, Any]:
    """What was checked, and what was found, faults first."""
    findings = sorted(report.findings, key=lambda finding: (finding.severity != FAULT, finding.severity != WARNING))
    return {
        "ok": report.ok,
        "newest_good": report.newest_good,
        "verdict": None if report.ok else without_secrets(report.verdict),
        "url": place_text(report.url),
        "parts": [
            {"name": name, **asdict(part), "faults": report.faults_of(name)} for name, part in report.parts.items()
        ],
        "findings": [
            {**asdict(finding), "place": without_secrets(finding.place), "text": without_secrets(finding.text)}
            for finding in findings[:_FINDINGS_MAX]
        ],
        "findings_more": max(0, len(findings) - _FINDINGS_MAX),
    }
