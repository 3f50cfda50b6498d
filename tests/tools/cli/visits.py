"""A folder with a job of visits, and its commands."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner, Result

from persistent.tools.cli import main

VISITS = """
from monoids import Count, Sum, record
from persistent import FileSink, FileSource, PersistentTask, Pipeline, WindowState, tumbling


class Visits(PersistentTask):
    key = ("page", "status")

    def persistent_state(self):
        return WindowState(record(visits=Count(), bytes=Sum()), tumbling("1 min"))

    def process_message(self, state, message):
        state.update(message.timestamp, {"visits": 1, "bytes": message.value["bytes"]})


pipeline = Pipeline(
    source=FileSource("views/*.csv", timestamp="time", ordered=True),
    task=Visits(), sink=FileSink("visits"), checkpoint="checkpoint", step_rows=2,
)
"""


FIRST = """time,page,status,bytes
2024-05-01T10:00:03Z,/home,200,10
2024-05-01T10:00:40Z,/home,200,20
2024-05-01T10:00:58Z,/ä,404,30
2024-05-01T10:02:10Z,/home,200,40
2024-05-01T10:00:59Z,/home,200,50
a bad line
2024-05-01T10:02:11Z,/home,200,60
"""


def command(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


def json_of(*words: str) -> list[dict[str, Any]]:
    result = command(*words, "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]
