"""Server-sent events: a page hears that a job has a new checkpoint, or how far a verification is."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict
from threading import Event, Thread
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from persistent.errors import PersistentError
from persistent.storage.failures import without_secrets
from persistent.tools.serve.now import brief, unread
from persistent.tools.serve.shown import Shown
from persistent.tools.serve.wording import place_text, said_of
from persistent.verify import FAULT, WARNING, Verification, verify, verify_sinks

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
