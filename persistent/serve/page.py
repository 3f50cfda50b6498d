"""The application answers each address of the page: the page itself, its assets, and what it shows as JSON."""

from __future__ import annotations

import mimetypes
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from persistent.errors import InvalidPipeline, PersistentError
from persistent.serve.account import account, aside
from persistent.serve.downloads import download
from persistent.serve.events import DEFECT, Verifying, all_lines, changes, event_stream, logger
from persistent.serve.graph import graph
from persistent.serve.guard import Guard, Guarded
from persistent.serve.now import now
from persistent.serve.runs_view import runs_view
from persistent.serve.shown import Shown
from persistent.serve.state_page import shape, sorted_page, state_page, why
from persistent.serve.state_reading import Wanted, key_of
from persistent.serve.time_line import PAGE, difference, in_words, kept, time_line
from persistent.serve.wording import NotFound, said_of

_PAGE_MAX = 500

View = Callable[[Shown, "Query"], Any]


class Query:
    """The query of a request, read with its types. InvalidPipeline names what cannot be read."""

    def __init__(self, query: Mapping[str, str]) -> None:
        self._query = query

    def text(self, name: str, default: str = "") -> str:
        return self._query.get(name, default)

    def flag(self, name: str) -> bool:
        return self._query.get(name, "") in ("1", "true", "yes")

    def number(self, name: str) -> int | None:
        text = self._query.get(name, "")
        if not text:
            return None
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            raise InvalidPipeline(f"{name}={text!r} is no number: give digits")
        return int(text)

    def count(self, name: str, default: int) -> int:
        """A number of rows, bounded."""
        return min(max(self.number(name) or default, 1), _PAGE_MAX)

    def wanted(self) -> Wanted:
        """The rows of a state."""
        key = key_of(self.text("key"))
        texts = (self.text("as_of"), key, self.text("window"), self.text("find"), self.text("name"))
        return Wanted(self.number("at"), *texts)

    def required(self, name: str) -> int:
        found = self.number(name)
        if found is None:
            raise InvalidPipeline(f"{name} is missing: give the id of a checkpoint")
        return found


VIEWS: Mapping[str, View] = {
    "now": lambda shown, asked: now(shown),
    "graph": lambda shown, asked: graph(shown),
    "timeline": lambda shown, asked: time_line(shown, asked.number("before"), asked.count("limit", PAGE)),
    "kept": lambda shown, asked: kept(shown),
    "manifest": lambda shown, asked: in_words(shown, asked.number("id")),
    "difference": lambda shown, asked: difference(
        shown, asked.required("from"), asked.number("to"), asked.flag("values"), asked.text("name")
    ),
    "account": lambda shown, asked: account(shown, asked.number("at")),
    "late": lambda shown, asked: aside(shown, "late", asked.text("cursor"), asked.count("limit", 50)),
    "state": lambda shown, asked: _state(shown, asked),
    "shape": lambda shown, asked: shape(shown, asked.number("at")),
    "why": lambda shown, asked: why(shown, asked.wanted()),
    "storage": lambda shown, asked: runs_view(shown, asked.number("at"), key_of(asked.text("key"))),
    "dead": lambda shown, asked: aside(shown, "dead", asked.text("cursor"), asked.count("limit", 50)),
}


def _state(shown: Shown, asked: Query) -> Any:
    by, cursor, limit = asked.text("sort"), asked.text("cursor"), asked.count("limit", 50)
    if by:
        return sorted_page(shown, asked.wanted(), by, asked.number("cursor") or 0, limit)
    return state_page(shown, asked.wanted(), cursor, limit)


def application(jobs: Mapping[str, Shown], guard: Guard | None = None) -> ASGIApp:
    """The page of these jobs, behind a guard; by default that of loopback."""
    verifying: dict[str, Verifying] = {}

    def job(request: Request) -> Shown:
        name = request.path_params["job"]
        if name not in jobs:
            raise NotFound(f"no job here is named {name!r}; there are {', '.join(jobs)}")
        return jobs[name]

    async def listed(request: Request) -> Response:
        return JSONResponse({"jobs": await all_lines(jobs)})

    def view(request: Request) -> Response:
        name = request.path_params["view"]
        if name not in VIEWS:
            raise NotFound(f"the page has no view {name!r}; it has {', '.join(VIEWS)}")
        return JSONResponse(VIEWS[name](job(request), Query(request.query_params)))

    def downloaded(request: Request) -> Response:
        asked = Query(request.query_params)
        found = download(job(request), asked.wanted(), asked.text("format", "csv"))
        attached = {"Content-Disposition": f'attachment; filename="{found.name}"'}
        return StreamingResponse(found.pieces, media_type=found.media_type, headers=attached)

    async def followed(request: Request) -> Response:
        return event_stream(changes(jobs))

    async def verified(request: Request) -> Response:
        shown = job(request)
        before = verifying.get(shown.name)
        if before is not None and before.is_at_work:
            raise InvalidPipeline(f"{shown.name} is being verified already: wait until that has ended")
        verifying[shown.name] = Verifying(shown)
        return event_stream(verifying[shown.name].events())

    routes = [
        Route("/", _page),
        Route("/assets/{name}", _asset),
        Route("/api/jobs", listed),
        Route("/api/events", followed),
        Route("/api/{job}/verify", verified),
        Route("/api/{job}/download", downloaded),
        Route("/api/{job}/{view}", view),
    ]
    handlers: Mapping[Any, Any] = {PersistentError: _said, 404: _not_found, Exception: _unexpected}
    return Guarded(Starlette(routes=routes, exception_handlers=handlers), guard or Guard())


# -- assets ----------------------------------------------------------------------------------------------------------


@cache
def assets() -> dict[str, bytes]:
    """The files of the page by name. They are part of the package: nothing is fetched from elsewhere."""
    folder = files("persistent.serve").joinpath("assets")
    return {one.name: one.read_bytes() for one in folder.iterdir() if one.is_file()}


def _page(request: Request) -> Response:
    return Response(assets()["index.html"], media_type="text/html")


def _asset(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in assets():
        return PlainTextResponse("The page has no such file.\n", 404)
    kind = "text/javascript" if name.endswith(".js") else mimetypes.guess_type(name)[0]
    return Response(assets()[name], media_type=kind, headers={"Cache-Control": "no-cache"})


# -- errors ----------------------------------------------------------------------------------------------------------


def _said(request: Request, error: Exception) -> Response:
    assert isinstance(error, PersistentError)
    status, words = said_of(error)
    return JSONResponse({"error": words}, status)


def _not_found(request: Request, error: Exception) -> Response:
    return _said(request, NotFound("the page has no such address: open / instead"))


def _unexpected(request: Request, error: Exception) -> Response:
    """A defect of ours is said in words as well; the log of the server has its trace."""
    logger.error("%s failed", request.url.path, exc_info=error)
    return JSONResponse({"error": {"kind": "defect", "title": "The page failed", "text": DEFECT}}, 500)
