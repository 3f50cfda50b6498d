"""Server-sent events: a page hears that a job has a new checkpoint, or how far a verification is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict
from threading import Event, Thread
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from persistent.errors import PersistentError
from persistent.serve.now import brief
from persistent.serve.shown import Shown
from persistent.serve.wording import place_text, said_of
from persistent.storage.failures import without_secrets
from persistent.verify import Verification, verify

_POLL_S = 1.0
_PROGRESS_S = 0.2
_BEAT_POLLS = 15
_FINDINGS_MAX = 200


def event_stream(events: AsyncIterator[str]) -> StreamingResponse:
    return StreamingResponse(events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


def event(name: str, data: Any) -> str:
    """One event; JSON has no line breaks of its own."""
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


async def changes(jobs: Mapping[str, Shown]) -> AsyncIterator[str]:
    """The line of each job at first, and after each change; a comment now and then, so that a proxy keeps the
    connection."""
    known: dict[str, Any] = {}
    polls = 0
    while True:
        for name, shown in jobs.items():
            line = await run_in_threadpool(brief, shown)
            if known.get(name) != line["version"]:
                known[name] = line["version"]
                yield event("job", line)
        polls += 1
        if polls % _BEAT_POLLS == 0:
            yield ": alive\n\n"
        await asyncio.sleep(_POLL_S)


class Verifying:
    """One verification of a checkpoint at work, in a thread of its own. Leaving the page ends it."""

    def __init__(self, shown: Shown) -> None:
        self._shown = shown
        self._left = Event()
        self.done: tuple[int, int] = (0, 0)
        self.result: dict[str, Any] | None = None
        self._thread = Thread(target=self._run, name=f"verify {shown.name}", daemon=True)

    def _run(self) -> None:
        try:
            self.result = verification_of(verify(self._shown.storage, on_progress=self._progress))
        except _Left:
            self.result = {}
        except PersistentError as error:
            self.result = {"error": said_of(error)[1]}
        except Exception as error:
            text = without_secrets(f"the verification ended early: {type(error).__name__}: {error}")
            self.result = {"error": {"kind": "error", "title": "Not verified", "text": text}}

    def _progress(self, done: int, total: int) -> None:
        self.done = done, total
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


def verification_of(found: Verification) -> dict[str, Any]:
    """What was checked, and what was found, faults first."""
    findings = sorted(found.findings, key=lambda one: one.severity)
    return {
        "ok": found.ok,
        "newest": found.newest,
        "newest_good": found.newest_good,
        "url": place_text(found.url),
        "parts": [
            {"name": name, **asdict(part), "faults": found.faults_of(name)} for name, part in found.parts.items()
        ],
        "findings": [{**asdict(one), "text": without_secrets(one.text)} for one in findings[:_FINDINGS_MAX]],
        "findings_more": max(0, len(findings) - _FINDINGS_MAX),
    }
