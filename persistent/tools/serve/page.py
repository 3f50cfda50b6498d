"""The application answers each address of the page: the page itself, its assets, and what it shows as JSON.

The storage of a checkpoint is shown as its runs, by key group and by the checkpoints that a run sums up, with the runs
that one key needs.

A download is the rows of a state as CSV, JSON lines or Parquet. It is made while it is sent, a few key groups at a
time. A download that cannot be finished breaks off, so that nobody takes it for a whole one.
"""

from __future__ import annotations

import io
import mimetypes
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from persistent.checkpoint.manifest import Manifest
from persistent.codec.fields import KEY_GROUPS, Run
from persistent.connect.formats.json_rows import beyond_digits, encode_json_lines
from persistent.errors import InvalidPipeline, PersistentError
from persistent.text.readable import readable_list
from persistent.tools.serve.account import account, aside
from persistent.tools.serve.graph import graph
from persistent.tools.serve.now import now
from persistent.tools.serve.shown import Shown
from persistent.tools.serve.state_page import shape, sorted_page, state_page, why
from persistent.tools.serve.state_reading import Wanted, key_of, one_key, reading
from persistent.tools.serve.time_line import PAGE, difference, in_words, kept, time_line
from persistent.tools.serve.web import DEFECT, Guard, Guarded, Verifying, all_lines, changes, event_stream, logger
from persistent.tools.serve.wording import NotFound, cell, said_of

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
        number = self.number(name)
        if number is None:
            raise InvalidPipeline(f"{name} is missing: give the id of a checkpoint")
        return number


VIEWS: Mapping[str, View] = {
    "now": lambda job, asked: now(job),
    "graph": lambda job, asked: graph(job),
    "timeline": lambda job, asked: time_line(job, asked.number("before"), asked.count("limit", PAGE)),
    "kept": lambda job, asked: kept(job),
    "manifest": lambda job, asked: in_words(job, asked.number("id")),
    "difference": lambda job, asked: difference(
        job, asked.required("from"), asked.number("to"), asked.flag("values"), asked.text("name")
    ),
    "account": lambda job, asked: account(job, asked.number("at")),
    "late": lambda job, asked: aside(job, "late", asked.text("cursor"), asked.count("limit", 50)),
    "state": lambda job, asked: _state(job, asked),
    "shape": lambda job, asked: shape(job, asked.number("at")),
    "why": lambda job, asked: why(job, asked.wanted()),
    "storage": lambda job, asked: runs_view(job, asked.number("at"), key_of(asked.text("key"))),
    "dead": lambda job, asked: aside(job, "dead", asked.text("cursor"), asked.count("limit", 50)),
}


def _state(job: Shown, asked: Query) -> Any:
    by, cursor, limit = asked.text("sort"), asked.text("cursor"), asked.count("limit", 50)
    if by:
        return sorted_page(job, asked.wanted(), by, asked.number("cursor") or 0, limit)
    return state_page(job, asked.wanted(), cursor, limit)


def application(jobs: Mapping[str, Shown], guard: Guard | None = None) -> ASGIApp:
    """The application that shows these jobs, behind a guard; by default the guard of a page on loopback."""
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
        file = download(job(request), asked.wanted(), asked.text("format", "csv"))
        attached = {"Content-Disposition": f'attachment; filename="{file.name}"'}
        return StreamingResponse(file.pieces, media_type=file.media_type, headers=attached)

    async def followed(request: Request) -> Response:
        return event_stream(changes(jobs))

    async def verified(request: Request) -> Response:
        requested_job = job(request)
        before = verifying.get(requested_job.name)
        if before is not None and before.is_at_work:
            raise InvalidPipeline(f"{requested_job.name} is being verified already: wait until that has ended")
        verifying[requested_job.name] = Verifying(requested_job)
        return event_stream(verifying[requested_job.name].events())

    routes = [
        Route("/", lambda request: Response(assets()["index.html"], media_type="text/html")),
        Route("/assets/{name}", _asset),
        Route("/api/jobs", listed),
        Route("/api/events", followed),
        Route("/api/{job}/verify", verified),
        Route("/api/{job}/download", downloaded),
        Route("/api/{job}/{view}", view),
    ]
    handlers: Mapping[Any, Any] = {PersistentError: _said, 404: _not_found, Exception: _unexpected}
    return Guarded(Starlette(routes=routes, exception_handlers=handlers), guard or Guard())


@cache
def assets() -> dict[str, bytes]:
    """The files of the page by name. They are part of the package: nothing is fetched from elsewhere."""
    folder = files("persistent.tools.serve").joinpath("assets")
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


def _asset(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in assets():
        return PlainTextResponse("The page has no such file.\n", 404)
    kind = "text/javascript" if name.endswith(".js") else mimetypes.guess_type(name)[0]
    return Response(assets()[name], media_type=kind, headers={"Cache-Control": "no-cache"})


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


_RUNS_MAX = 2_000


def runs_view(job: Shown, at: int | None = None, key: tuple[str | None, ...] | None = None) -> dict[str, Any]:
    """All runs of a checkpoint, the largest first if they are too many; with ``key``, its group and the runs that hold
    it."""
    entry = job.entry(at)
    manifest = entry.manifest
    node = max(manifest.nodes.values(), key=lambda part: len(part.key_types))
    runs = sorted(_all(manifest), key=lambda run: -run["bytes"])
    answer: dict[str, Any] = {
        "id": manifest.id,
        "groups": KEY_GROUPS,
        "runs": runs[:_RUNS_MAX],
        "runs_more": max(0, len(runs) - _RUNS_MAX),
        "count": len(runs),
        "bytes": sum(run["bytes"] for run in runs),
        "manifest_bytes": entry.bytes,
        "manifests": len(job.look().ids),
        "key": [f"{name}: {kind}" for name, kind in zip(node.key_names, node.key_types)],
    }
    if key is not None:
        if not node.key_names:
            raise InvalidPipeline("the task has no key: every run holds its one sum")
        group = one_key(node.key_names, node.key_types, key).group
        answer["needed"] = {"group": group, "runs": list(_needed(manifest, key))}
    return answer


def _needed(manifest: Manifest, key: tuple[str | None, ...]) -> Iterator[str]:
    """The names of the runs, of every state, that hold the group of the key. Each state has its own key types, and so
    its own group. A state that has counted no record has neither types nor runs."""
    for node in manifest.nodes.values():
        if node.runs:
            group = one_key(node.key_names, node.key_types, key).group
            yield from (run.name for run in node.runs if run.low <= group < run.high)


def _all(manifest: Manifest) -> Iterator[dict[str, Any]]:
    for name, node in manifest.nodes.items():
        yield from (_run(run, f"state {name}", "state", node.has_windows) for run in node.runs)
    for name, source in manifest.sources.items():
        yield from (_run(run, f"index of {name}", "index", False) for run in source.index)
        if source.seen is not None:
            yield from (_run(run, f"seen records of {name}", "seen", True) for run in source.seen.runs)


def _run(run: Run, of: str, kind: str, has_times: bool) -> dict[str, Any]:
    return {
        "name": run.name,
        "of": of,
        "kind": kind,
        "rows": run.rows,
        "rows_left": run.rows_left,
        "bytes": run.bytes,
        "start": run.start,
        "low": run.low,
        "high": run.high,
        "first": run.first,
        "last": run.last,
        "pane_min": run.pane_min if has_times else None,
        "pane_max": run.pane_max if has_times else None,
    }


@dataclass(frozen=True)
class Download:
    """The pieces of a file, its name and its type."""

    name: str
    media_type: str
    pieces: Iterator[bytes]


def download(job: Shown, wanted: Wanted, form: str) -> Download:
    """The rows in a form: ``csv``, ``jsonl`` or ``parquet``. The first rows are read at once, so that an error
    is answered in words, and not by a broken file."""
    if form not in _FORMS:
        raise InvalidPipeline(f"format={form!r}: choose one of {', '.join(_FORMS)}")
    media_type, pieces = _FORMS[form]
    state = reading(job, wanted)
    tables = (table for _, _, table in state.slices())
    first = next(tables)
    prefix = f"{state.node.name}-" if state.all_names else ""
    name = f"{job.name}-{prefix}{state.manifest.id}.{form}"
    return Download(name, media_type, pieces(first, chain([first], tables)))


def _csv(first: pa.Table, tables: Iterator[pa.Table]) -> Iterator[bytes]:
    yield (",".join(f'"{name.replace(chr(34), chr(34) * 2)}"' for name in first.column_names) + "\n").encode()
    options = pyarrow.csv.WriteOptions(include_header=False)
    for table in tables:
        if table.num_rows:
            sink = io.BytesIO()
            # In one chunk: for an empty one Arrow's writer repeats a buffer that is no longer its own.
            pyarrow.csv.write_csv(_flat(table).combine_chunks(), sink, options)
            yield sink.getvalue()


def _flat(table: pa.Table) -> pa.Table:
    """The table with text for nested values and bytes, which CSV cannot hold, and for times that Arrow cannot write."""
    for place, field in enumerate(table.schema):
        column, kind = table.column(place), field.type
        if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            texts = pa.array([cell(value) for value in readable_list(column)], pa.string())
        elif pa.types.is_date(kind) or pa.types.is_timestamp(kind):
            column = column.combine_chunks()
            far = beyond_digits(column)
            if not pc.any(far).as_py():
                continue
            texts = pa.array(readable_list(column.filter(far)), pa.string())
            texts = pc.replace_with_mask(column.cast(pa.string()), far, texts)
        else:
            continue
        table = table.set_column(place, field.name, texts)
    return table


def _json_lines(first: pa.Table, tables: Iterator[pa.Table]) -> Iterator[bytes]:
    for table in tables:
        if table.num_rows:
            yield encode_json_lines(table).to_pybytes()


class _Pipe(io.RawIOBase):
    """A file that keeps the bytes written to it, until ``taken`` returns them."""

    def __init__(self) -> None:
        self._held: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        piece = bytes(memoryview(data))  # type: ignore[arg-type]
        self._held.append(piece)
        return len(piece)

    def taken(self) -> bytes:
        data, self._held = b"".join(self._held), []
        return data


def _parquet(first: pa.Table, tables: Iterator[pa.Table]) -> Iterator[bytes]:
    pipe = _Pipe()
    with pa.PythonFile(pipe, mode="w") as file:
        writer = pyarrow.parquet.ParquetWriter(file, first.schema, compression="zstd")
        try:
            for table in tables:
                if table.num_rows:
                    writer.write_table(table)
                yield pipe.taken()
        finally:
            # Its footer goes nowhere if the file breaks off: what was sent before is not a Parquet file.
            writer.close()
        file.flush()
        yield pipe.taken()


_FORMS: Mapping[str, tuple[str, Callable[[pa.Table, Iterator[pa.Table]], Iterator[bytes]]]] = {
    "csv": ("text/csv", _csv),
    "jsonl": ("application/x-ndjson", _json_lines),
    "parquet": ("application/vnd.apache.parquet", _parquet),
}
