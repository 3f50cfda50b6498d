"""Stores: checkpointing to HDFS and to S3 against a plain client that makes the same requests with as many bytes.

A run of small steps, counts per key and minute without a sink, commits every step to a real server of this machine
(``tests/servers``: an HDFS of one NameNode and one DataNode, moto as S3). Every request is written down, for S3 by the
server, for HDFS at the calls of the client. The plain side repeats them one after the other, with boto3 and
``hdfs_native``, on names of its own, with random bytes, and does nothing else. The sides take turns.

A request of HDFS is a call: a file written is one (create, blocks, complete). A client of HDFS that completes a file
before its DataNode has told the NameNode of it asks again after half a second. It is by chance who waits more often,
so the ratio is given also with these half seconds taken off both sides.

What a step needs beside its runs is counted apart from them: a target of six, and one for each run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import click

from benchmarks import engines, measure, workloads
from monoids import Count
from persistent import PersistentTask, Pipeline, WindowState, tumbling
from persistent.sources import FileSource

WAIT_SECONDS = 0.5
STORES = ("hdfs", "s3")


class Counts(PersistentTask):
    """Clicks per key and minute."""

    key = "key"

    def persistent_state(self) -> WindowState:
        return WindowState(Count(), tumbling("1 min"))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)

    def process_batch(self, state: Any, batch: Any) -> None:
        state.update_batch(batch.timestamps, 1)


@dataclass(frozen=True)
class Request:
    """``verb`` of the store's own, the path without the folder of the run, bytes sent, and how long it took (0.0:
    nobody looked)."""

    verb: str
    path: str
    bytes: int = 0
    seconds: float = 0.0

    @property
    def is_run(self) -> bool:
        """Whether it writes a run."""
        return self.bytes > 0 and "/d/" in self.path


class Store:
    """A server with what both sides need. ``requests`` empties the list of what was asked of it."""

    name: str
    url: str

    def requests(self, folder: str) -> list[Request]:
        raise NotImplementedError

    def repeat(self, requests: Sequence[Request], folder: str) -> float:
        """Make them again, in ``folder``; how many seconds were spent waiting for files to be complete."""
        raise NotImplementedError


class S3Store(Store):
    """The S3 server, seen from the server; the plain client is boto3."""

    name = "s3"

    def __init__(self, server: Any) -> None:
        import boto3

        self.url = server.bucket("benchmark")
        self._server = server
        self._client = boto3.client("s3")

    def requests(self, folder: str) -> list[Request]:
        found = []
        for line, size in self._server.sized_requests():
            method, _, target = line.partition(" ")
            parts = urlsplit(target)
            prefix = parse_qs(parts.query).get("prefix", [""])[0]
            verb = "LIST" if prefix and method == "GET" else method
            path = prefix or parts.path.removeprefix("/benchmark/")
            found.append(Request(verb, f"/{path.removeprefix(folder).lstrip('/')}", size))
        return found

    def repeat(self, requests: Sequence[Request], folder: str) -> float:
        bodies = [os.urandom(request.bytes) for request in requests]
        for request, body in zip(requests, bodies):
            key = folder + request.path
            if request.verb == "PUT":
                self._client.put_object(Bucket="benchmark", Key=key, Body=body)
            elif request.verb == "LIST":
                self._client.list_objects_v2(Bucket="benchmark", Prefix=key, Delimiter="/")
            elif request.verb == "DELETE":
                self._client.delete_object(Bucket="benchmark", Key=key)
            else:
                self._asked(key)
        return 0.0

    def _asked(self, key: str) -> None:
        try:
            self._client.get_object(Bucket="benchmark", Key=key)["Body"].read()
        except self._client.exceptions.NoSuchKey:
            return


class HdfsStore(Store):
    """The HDFS server, seen from the calls of the client; the plain client is ``hdfs_native``."""

    name = "hdfs"

    def __init__(self, server: Any, seen: list[Request]) -> None:
        import hdfs_native

        self.url = server.url("benchmark")
        self._seen = seen
        self._client: Any = hdfs_native.Client(server.url("").rstrip("/"))

    def requests(self, folder: str) -> list[Request]:
        found = [
            Request(one.verb, one.path.replace(f"/benchmark/{folder}", ""), one.bytes, one.seconds)
            for one in self._seen
        ]
        self._seen.clear()
        return found

    def repeat(self, requests: Sequence[Request], folder: str) -> float:
        bodies = [os.urandom(request.bytes) for request in requests]
        for request, body in zip(requests, bodies):
            paths = [f"/benchmark/{folder}{path}" for path in request.path.split(" ")]
            if request.verb == "write":
                _written(self._client, paths[0], body)
            else:
                _tried(getattr(self._client, request.verb), *_ARGUMENTS[request.verb](paths))
        made = self.requests(folder)
        return waited(made)


_ARGUMENTS: dict[str, Callable[[list[str]], tuple[Any, ...]]] = {
    "rename": lambda paths: (*paths, False),
    "delete": lambda paths: (paths[0], False),
    "mkdirs": lambda paths: (paths[0], 0o755, True),
    "list_status": lambda paths: (paths[0],),
    "get_file_info": lambda paths: (paths[0],),
    "read": lambda paths: (paths[0],),
}


def _tried(call: Callable[..., Any], *arguments: Any) -> None:
    try:
        found = call(*arguments)
        getattr(found, "read", lambda: None)() if call.__name__ == "read" else list(found or ())
    except (OSError, TypeError):
        return


def _written(client: Any, path: str, body: bytes) -> None:
    import hdfs_native

    file = client.create(path, hdfs_native.WriteOptions(overwrite=True, create_parent=True))
    if body:
        file.write(body)
    file.close()


def waited(requests: Sequence[Request]) -> float:
    """The half seconds for which a client waited to complete a file."""
    return sum(request.seconds // WAIT_SECONDS * WAIT_SECONDS for request in requests if request.verb == "write")


@contextmanager
def recorded_hdfs() -> Iterator[list[Request]]:
    """Every call of every client of HDFS of this process, as they are made."""
    import hdfs_native

    seen: list[Request] = []
    client = hdfs_native.Client

    class Recorded:
        def __init__(self, *arguments: Any, **options: Any) -> None:
            self._client = client(*arguments, **options)

        def create(self, path: str, *arguments: Any, **options: Any) -> Any:
            return _RecordedFile(seen, path, time.perf_counter(), self._client.create(path, *arguments, **options))

        def __getattr__(self, verb: str) -> Any:
            call = getattr(self._client, verb)

            def recorded(*arguments: Any, **options: Any) -> Any:
                paths = [argument for argument in arguments if isinstance(argument, str)]
                seen.append(Request(verb, " ".join(paths)))
                return call(*arguments, **options)

            recorded.__name__ = verb
            return recorded

    hdfs_native.Client = Recorded
    try:
        yield seen
    finally:
        hdfs_native.Client = client


class _RecordedFile:
    def __init__(self, seen: list[Request], path: str, began: float, file: Any) -> None:
        self._seen, self._path, self._began, self._file = seen, path, began, file
        self._bytes = 0

    def write(self, data: Any) -> int:
        self._bytes += memoryview(data).nbytes
        written: int = self._file.write(data)
        return written

    def close(self) -> None:
        self._file.close()
        self._seen.append(Request("write", self._path, self._bytes, time.perf_counter() - self._began))


@dataclass(frozen=True)
class Turn:
    """One run of ours and its repetition: seconds, of which spent waiting for files; requests of every step."""

    ours: float
    plain: float
    ours_waited: float
    plain_waited: float
    steps: tuple[tuple[Request, ...], ...]

    @property
    def ratio(self) -> float:
        return self.ours / self.plain

    @property
    def ratio_without_waits(self) -> float:
        return (self.ours - self.ours_waited) / (self.plain - self.plain_waited)


def take_turn(store: Store, source: Path, step_rows: int, number: int) -> Turn:
    """Run ours, then repeat its requests. The first step takes the checkpoint over, the others are counted."""
    ours, plain = f"ours-{number}", f"plain-{number}"
    pipeline = Pipeline(
        source=FileSource(f"{source}/*.parquet", timestamp="ts", ordered=True),
        task=Counts(),
        checkpoint=f"{store.url}/{ours}",
        discard_closed=True,
        step_rows=step_rows,
    )
    times: list[float] = []
    steps: list[tuple[Request, ...]] = []

    def on_step(_: Any) -> None:
        times.append(time.perf_counter())
        steps.append(tuple(store.requests(ours)))
        # What it takes to ask the server for its list is no part of the next step.
        times.append(time.perf_counter())

    engines.drain(pipeline, end_of_input=False, on_step=on_step)
    store.requests(ours)
    seconds = sum(times[place + 1] - times[place] for place in range(1, len(times) - 1, 2))
    requests = [request for step in steps[1:] for request in step]
    began = time.perf_counter()
    plain_waited = store.repeat(requests, plain)
    repeated = time.perf_counter() - began
    store.requests(plain)
    return Turn(seconds, repeated, _ours_waited(steps[1:]), plain_waited, tuple(steps[1:]))


def _ours_waited(steps: Sequence[Sequence[Request]]) -> float:
    """Runs are written side by side: of those of a step the longest wait counts."""
    total = 0.0
    for step in steps:
        runs = [waited([request]) for request in step if request.is_run]
        total += waited([request for request in step if not request.is_run]) + max(runs, default=0.0)
    return total


def figures(store: str, turns: Sequence[Turn]) -> list[measure.Figure]:
    """The figures of one store."""
    steps = [step for turn in turns for step in turn.steps]
    runs = [sum(request.is_run for request in step) for step in steps]
    others = [len(step) - count for step, count in zip(steps, runs)]
    seconds = measure.median([turn.ours / len(turn.steps) for turn in turns])
    found = [
        measure.Figure(f"{store}: ours / plain", measure.median([turn.ratio for turn in turns]), "", 1.2, 1.3, False),
        measure.Figure(f"{store}: requests a step, without runs", measure.median(others), "", 5, 6, at_least=False),
        measure.Figure(f"{store}: the same, 99 of 100 steps", measure.quantile(others, 0.99), ""),
        measure.Figure(f"{store}: runs a step", sum(runs) / len(runs), ""),
        measure.Figure(f"{store}: a step", seconds * 1000, "ms"),
        measure.Figure(f"{store}: bytes a step", sum(one.bytes for step in steps for one in step) / len(steps), ""),
    ]
    if store == "hdfs":
        value = measure.median([turn.ratio_without_waits for turn in turns])
        found.insert(1, measure.Figure("hdfs: the same, without waits for files", value, "", 1.2, 1.3, at_least=False))
    return found


@contextmanager
def served(name: str) -> Iterator[Store]:
    """The store, on a server of its own."""
    from tests.servers.hdfs import hdfs_server
    from tests.servers.s3 import client_environment, s3_server

    with ExitStack() as stack:
        if name == "s3":
            server = stack.enter_context(s3_server())
            stack.enter_context(client_environment(server))
            yield S3Store(server)
        else:
            server = stack.enter_context(hdfs_server())
            yield HdfsStore(server, stack.enter_context(recorded_hdfs()))


@click.command(help="Checkpoints to HDFS and S3 against a plain client that makes the same requests.")
@click.option("--steps", default=40, show_default=True)
@click.option("--step-rows", default=50_000, show_default=True)
@click.option("--runs", default=5, show_default=True, help="Turns that count, after one that does not.")
@click.option("--stores", default=",".join(STORES), show_default=True)
@measure.common
def main(steps: int, step_rows: int, runs: int, stores: str, cache: Path, work: Path | None, seed: int) -> None:
    source = workloads.clicks(cache, (steps + 1) * step_rows, step_rows, seed=seed)
    found: list[measure.Figure] = []
    by_verb: dict[str, dict[str, float]] = {}
    for name in stores.split(","):
        with served(name) as store:
            turns = []
            for number in range(runs + 1):
                turn = take_turn(store, source, step_rows, number)
                label = f"run {number} of {runs}" if number else "warm-up"
                click.echo(f"{label}: {name} ours {turn.ours:.2f} s, plain {turn.plain:.2f} s")
                turns.append(turn)
        found += figures(name, turns[1:])
        by_verb[name] = verbs(turns[1:])
    parameters = {"steps": steps, "step_rows": step_rows, "runs": runs, "stores": stores}
    measure.publish("stores", parameters, found, requests_a_step=by_verb)


def verbs(turns: Sequence[Turn]) -> dict[str, float]:
    """How often a step makes each kind of request."""
    steps = [step for turn in turns for step in turn.steps]
    kinds: dict[str, float] = {}
    for step in steps:
        for request in step:
            folder = request.path.strip("/").partition("/")[0]
            kind = f"{request.verb} {folder}/"
            kinds[kind] = kinds.get(kind, 0.0) + 1 / len(steps)
    return {kind: round(count, 2) for kind, count in sorted(kinds.items())}


if __name__ == "__main__":
    main()
