"""Whole runs into a table of PostgreSQL, each killed with -9 at another statement, then resumed.

python -m tests.servers.postgres_drivers URL SCHEMA FOLDER

This run's share of the statements (``tests/few.py``): one in three.

A process that has done nothing yet is forked for each run, so that a run begins in a moment.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterable
from contextlib import closing
from typing import Any

import psycopg

from monoids import Count
from persistent import MemorySource, PersistentTask, Pipeline, PostgresSink, WindowState, tumbling
from persistent.connect.postgres.session import Session
from persistent.engines.embedded import Embedded
from tests.few import share

ROWS = [{"ts": number, "page": f"p{number % 3}"} for number in range(1, 25)]
_KILLS_MAX = 400


class Visits(PersistentTask):
    """Counts."""

    key = "page"

    def persistent_state(self) -> Any:
        return WindowState(Count(), tumbling(10))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


class DeadlySession(Session):
    """A session that kills its process at statement ``at``."""

    at = -1
    count = 0

    def execute(self, statement: str, words: Iterable[Any] = ()) -> Any:
        self._step()
        return super().execute(statement, words)

    def copy(self, statement: str, pieces: Iterable[bytes]) -> int:
        self._step()
        return super().copy(statement, pieces)

    def _step(self) -> None:
        if DeadlySession.count == self.at:
            os.kill(os.getpid(), signal.SIGKILL)
        DeadlySession.count += 1


def run(url: str, table: str, folder: str, mode: str, at: int) -> None:
    """Run the job to its end, or to statement ``at``."""
    sink = PostgresSink(url, table, mode=mode)
    sink._session.__class__ = DeadlySession
    DeadlySession.at = at
    source = MemorySource(ROWS, timestamp="ts", ordered=True)
    job = Pipeline(source=source, task=Visits(), sink=sink, checkpoint=folder, step_rows=12)
    job.run(engine=Embedded(threads=1), end_of_input=True)


def forked(*words: Any) -> int:
    """The status of a process that runs the job."""
    child = os.fork()
    if child == 0:
        try:
            run(*words)
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
    return os.waitpid(child, 0)[1]


def main(url: str, schema: str, folder: str) -> None:
    expected: dict[tuple[str, int], int] = {}
    for row in ROWS:
        place = (str(row["page"]), int(str(row["ts"])) // 10 * 10)
        expected[place] = expected.get(place, 0) + 1
    killed, wrong = 0, []
    for mode, every in (("append", 3), ("upsert", 9)):
        for at in share(every, range(_KILLS_MAX)):
            table, checkpoint = f"{schema}.{mode}_{at}", f"{folder}/{mode}-{at}"
            status = forked(url, table, checkpoint, mode, at)
            if status == 0:
                break
            killed += os.WIFSIGNALED(status)
            again = forked(url, table, checkpoint, mode, -1)
            with closing(psycopg.connect(url)) as connection:
                rows = connection.execute(
                    f"SELECT page, (extract(epoch FROM window_start) * 1000)::int, value FROM {table}"
                ).fetchall()
            if again or {row[:2]: row[2] for row in rows} != expected or len(rows) != len(expected):
                wrong.append([mode, at, again, rows])
    print(json.dumps({"killed": killed, "wrong": wrong}, default=str))


if __name__ == "__main__":
    main(*sys.argv[1:])
