"""The files of a project: the task, its test, and a page with the commands. They follow from the answers alone.

An example is a few records, and what the task of a project makes of them, by a plain computation.
"""

from __future__ import annotations

import os
import textwrap
from pathlib import Path
from typing import Any, Final

from persistent.tools.project.answers import NO_WINDOW, SAMPLE, SESSION, Answers, End

_SOURCES: Final = {"files": "FileSource", "kafka": "KafkaSource"}
_SINKS: Final = {"files": "FileSink", "sqlite": "SqliteSink", "postgres": "PostgresSink", "kafka": "KafkaSink"}
_WIDTH: Final = 120
_EXTRAS: Final = ("kafka", "postgres")


def files_of(answers: Answers, folder: Path) -> dict[str, str]:
    """The text of each file by its name. ``folder``: where the project will be, as paths are relative to it."""
    files = {"task.py": _task(answers, folder), "test_task.py": _test(answers), "README.md": _readme(answers)}
    return files if answers.source.path else {**files, SAMPLE: sample_text()}


def _task(answers: Answers, folder: Path) -> str:
    from_persistent = ["Message", "PersistentTask", "Pipeline", "State", _state_class(answers)]
    from_persistent += [_SOURCES[answers.source.kind], _SINKS[answers.sink.kind]]
    from_persistent += [{SESSION: "session", NO_WINDOW: ""}.get(answers.window.kind, "tumbling")]
    from_monoids = ["Count", "record", *(["Max"] if answers.values else [])]
    from_monoids += ["Sum" if field.type == "int" else "ExactSum" for field in answers.values]
    return f'''"""{textwrap.fill(_what(answers), _WIDTH, initial_indent="123").removeprefix("123")}

persistent run task.py:pipeline                     count what is there, and later what is new
persistent run task.py:pipeline --end-of-input      ... and {_ended(answers)}
persistent state task.py:pipeline                   {_shown(answers)}
"""

from __future__ import annotations

from pathlib import Path

from monoids import {_sorted(from_monoids)}
from persistent import {_sorted(from_persistent)}

HERE = Path(__file__).parent

# A state is a sum of what the records add, and Count(), Max() and the like say what adding means: the catalogue of
# monoids has many more. So a step adds up its own records only, and a crash loses nothing and counts nothing twice.
TOTALS = record({_fields(answers)})


class Totals(PersistentTask):
    """What is kept, and what a record adds to it."""

{_key(answers)}

    def persistent_state(self) -> {_state_class(answers)}:
{_state(answers)}

    def process_message(self, state: State, message: Message) -> None:
        # Update the state here, and do nothing else: after a crash a record may come by again. A record for which there
        # is no update is left out.
{_update(answers)}


pipeline = Pipeline(
{_source(answers, folder)}
    task=Totals(),
{_sink(answers)}
    # Where the state is kept, with how far the records have been read. To begin anew, delete it together with the
    # results.
    checkpoint=str(HERE / "checkpoint"),
)
'''


def _what(answers: Answers) -> str:
    counted = "The number of records"
    counted += "".join(f", the sum and the largest of {field.name}" for field in answers.values)
    by = [answers.key.name] if answers.key else []
    by += {SESSION: ["session"], NO_WINDOW: []}.get(answers.window.kind, [f"window of {answers.window.length}"])
    return f"{counted}, for each {' and '.join(by)}." if by else f"{counted}, of all records."


def _ended(answers: Answers) -> str:
    return "publish the totals" if answers.window.kind == NO_WINDOW else "close the windows that are still open"


def _shown(answers: Answers) -> str:
    return "the totals so far" if answers.window.kind == NO_WINDOW else "the windows that are still open"


def _sorted(names: list[str]) -> str:
    """Names as an import lists them: classes first, then functions."""
    return ", ".join(sorted({*names} - {""}, key=lambda name: (name[0].islower(), name)))


def _state_class(answers: Answers) -> str:
    return "NonWindowState" if answers.window.kind == NO_WINDOW else "WindowState"


def _key(answers: Answers) -> str:
    if answers.key is None:
        return (
            "    # One state for all records. For a state of each user, name the field that tells them apart:\n"
            '    # key = "user"; of several fields, key = ("user", "page").\n'
            "    key = None"
        )
    second_key = "user" if answers.key.name != "user" else "page"
    return (
        "    # The field that says whose state a record changes. Of several fields:\n"
        f'    # key = ("{answers.key.name}", "{second_key}"). One state for all records: key = None.\n'
        f'    key = "{answers.key.name}"'
    )


def _fields(answers: Answers) -> str:
    fields = [f"{count_name(answers)}=Count()"]
    for field in answers.values:
        total, largest = ("Sum()", "Max()") if field.type == "int" else ("ExactSum()", "Max(float)")
        fields += [f"{field.name}_sum={total}", f"{field.name}_max={largest}"]
    line = ", ".join(fields)
    return line if len(line) < 105 else "\n    " + ",\n    ".join(fields) + ",\n"


def _state(answers: Answers) -> str:
    kind, length = answers.window.kind, answers.window.length
    if kind == NO_WINDOW:
        return (
            "        # Without windows the totals grow for ever, and are published at the end of the input; with\n"
            '        # emit="change" after each step.\n'
            "        return NonWindowState(TOTALS)"
        )
    if kind == SESSION:
        return (
            f"        # A session ends when its key has been silent for {length}. Then it is published, once.\n"
            f'        return WindowState(TOTALS, session("{length}"))'
        )
    return (
        "        # A window is published, once, when the clock has passed its end: when a later record was read.\n"
        '        # Windows begin in UTC; days of a place are calendar("day", tz="Europe/Berlin").\n'
        f'        return WindowState(TOTALS, tumbling("{length}"))'
    )


def _update(answers: Answers) -> str:
    parts = [f'"{count_name(answers)}": 1']
    for field in answers.values:
        parts += [f'"{field.name}_{what}": value["{field.name}"]' for what in ("sum", "max")]
    taken = "        value = message.value\n" if answers.values else ""
    line = f"        state.update(message.timestamp, {{{', '.join(parts)}}})"
    if len(line) > 110:
        line = "        added = {\n" + "".join(f"            {part},\n" for part in parts) + "        }\n"
        line += "        state.update(message.timestamp, added)"
    return taken + line


def _source(answers: Answers, folder: Path) -> str:
    unit = f', timestamp_unit="{answers.unit}"' if answers.unit else ""
    times = f'timestamp="{answers.timestamp}"{unit}'
    place = answers.source
    if place.kind == "kafka":
        note = "    # The values are JSON objects. A record may come 10 s behind a later one, and is still on time.\n"
        arguments = [f'"{place.server}", "{place.path}"', times, 'max_out_of_orderness="10 s"', *_schema(answers)]
        return note + _told_schema(answers) + _call("KafkaSource", *arguments)
    lines = [_path(place.path, folder) if place.path else f'HERE / "{SAMPLE}"', times]
    note = "    # Each file is read once. New ones may appear at any time; one that was read must not change.\n"
    lines += [f"{name}={_text(value) if isinstance(value, str) else value}" for name, value in answers.reading.items()]
    return note + _told_schema(answers) + _call("FileSource", *lines, *_schema(answers))


def _schema(answers: Answers) -> list[str]:
    types = ", ".join(f'"{name}": "{kind}"' for name, kind in answers.schema.items())
    return [f"schema={{{types}}}"] if types else []


def _told_schema(answers: Answers) -> str:
    if not answers.schema:
        return ""
    return "    # schema names the fields that are read; a record that does not fit their types is a dead letter.\n"


def _call(source: str, *arguments: str) -> str:
    """The source with its options, in the lines that the formatter gives it."""
    line = f"    source={source}({', '.join(arguments)}),"
    return (
        line
        if len(line) <= _WIDTH
        else f"    source={source}(\n" + "".join(f"        {argument},\n" for argument in arguments) + "    ),"
    )


def _path(path: str, folder: Path) -> str:
    """The path as the task names it: from its own folder or the one above, so that both can move; otherwise whole."""
    if "://" in path:
        return _text(path)
    whole, here = Path(os.path.abspath(os.path.expanduser(path))), Path(os.path.abspath(folder))
    for name, above in (("HERE", here), ("HERE.parent", here.parent)):
        if whole.is_relative_to(above) and whole != above:
            return f"{name} / {_text(str(whole.relative_to(above)))}"
    return _text(str(whole))


def _text(text: str) -> str:
    """The literal of a text, in double quotes where that needs no escape."""
    literal = repr(text)
    return f'"{literal[1:-1]}"' if literal.startswith("'") and '"' not in text else literal


def _sink(answers: Answers) -> str:
    place = answers.sink
    mode = ', mode="upsert"' if answers.window.kind == NO_WINDOW and answers.key is not None else ""
    if place.kind == "files":
        return f'    sink=FileSink(HERE / "{place.path}", format="jsonl"),'
    if place.kind == "sqlite":
        return f'    sink=SqliteSink(HERE / "{place.path}", "totals"{mode}),'
    if place.kind == "postgres":
        return f'    sink=PostgresSink({_text(place.path)}, "totals"{mode}),'
    return f'    sink=KafkaSink("{place.server}", "{place.path}"),'


def _test(answers: Answers) -> str:
    records = ",\n    ".join(_literal(record) for record in records_of(answers))
    expected = ",\n    ".join(f"{_one(key)}: {_literal(value)}" for key, value in expected_of(answers).items())
    return f'''"""The task on a few records: what comes out, however it runs, and the laws of its state."""

from __future__ import annotations

from monoids.laws import assert_monoid_laws
from persistent.testing import verify_task

from task import TOTALS, Totals

# Times are in milliseconds since 1970.
RECORDS = [
    {records},
]

# By key{"" if answers.window.kind == NO_WINDOW else ", and the start of the window"}.
EXPECTED = {{
    {expected},
}}


def test_totals() -> None:
    """All at once, one by one, shuffled, killed and restarted, on several workers: each must give the same."""
    verify_task(Totals, RECORDS, timestamp="{answers.timestamp}", timestamp_unit="ms", expected=EXPECTED)


def test_the_state_is_a_sum() -> None:
    """Without it records that are added in other steps, or by other workers, could come to another total."""
    assert_monoid_laws(TOTALS, examples=20)
'''


def _literal(value: dict[str, Any]) -> str:
    return "{" + ", ".join(f'"{name}": {_one(item)}' for name, item in value.items()) + "}"


def _one(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_one, value))})"
    if isinstance(value, int) and not isinstance(value, bool) and value > 9_999:
        return f"{value:_}"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _readme(answers: Answers) -> str:
    extras = [kind for kind in _EXTRAS if kind in (answers.source.kind, answers.sink.kind)]
    client = f"pip install 'persistent-monoids[{','.join(extras)}]'\n" if extras else ""
    return f"""# Totals

{textwrap.fill(_what(answers), _WIDTH)}

```console
{client}pip install pytest
pytest                                                                  # the task, in every way in which it may run
persistent run task.py:pipeline --engine embedded --end-of-input        # read what is there
{_look(answers.sink)}
persistent state task.py:pipeline                                       # {_shown(answers)}
persistent dead-letters checkpoint                                      # the records that could not be read
```

- Run it again, and it reads what is new. Kill it anywhere, and run it again: the results are the same.
- `--end-of-input` says that the records are complete: it will {_ended(answers)}. Leave it out as
  long as more come; with `--follow` instead, the run waits for them.
- `persistent serve task.py:pipeline` shows the job on a page; `pip install 'persistent-monoids[serve]'` brings what it
  needs. In a notebook, `from task import pipeline` and then `pipeline` alone shows it too.
{_late(answers)}- Leave out `--engine embedded` to run on Spark. It needs Java 17 or 21, and PySpark from
  4.0 on: if there is none, `pip install 'persistent-monoids[spark]'`.
- `task.py` may change freely until its first run. After that, delete `checkpoint` and the results, and the next run
  reads the records anew; or keep the state, with `Pipeline(evolve=...)`.
"""


def _late(answers: Answers) -> str:
    if answers.window.kind == NO_WINDOW:
        return ""
    return """- A record whose window was published before it came is late: `persistent late checkpoint` shows it.
  `max_out_of_orderness="5 min"` of the source waits for such records; `allowed_lateness="1 day"` of the state corrects
  what was published.
"""


def _look(sink: End) -> str:
    rows = "sqlite3.connect('results.db').execute('SELECT * FROM totals')"
    command = {
        "files": "cat results/*.jsonl",
        "sqlite": f'python -c "import sqlite3; print(*{rows}, sep=chr(10))"',
        "postgres": f"psql {sink.path} --command 'SELECT * FROM totals'",
        "kafka": f"kafka-console-consumer.sh --bootstrap-server {sink.server} --topic {sink.path} --from-beginning "
        "--isolation-level read_committed",
    }[sink.kind]
    return f"{command:<71} # the results"


_AROUND_MS: Final = 1_714_989_600_000
"""2024-05-06, 10 o'clock."""
_DAY_MS: Final = 86_400_000
_KEYS: Final[dict[str, tuple[Any, Any]]] = {
    "str": ("ann", "bob"),
    "int": (1, 2),
    "float": (0.5, 1.5),
    "bool": (False, True),
}
_VALUES: Final[dict[str, tuple[Any, ...]]] = {"int": (4, 2, 7, 1), "float": (4.0, 2.5, 7.0, 1.5)}

COUNT_NAMES: Final = ("count", "records", "messages")


def count_name(answers: Answers) -> str:
    """How the number of records is called: as no other column is."""
    taken = {answers.key.name} if answers.key else set()
    return next(name for name in COUNT_NAMES if name not in taken)


def records_of(answers: Answers) -> list[dict[str, Any]]:
    """Three records of a window, of two keys, and one of a later window."""
    size = answers.window.ms
    # Long windows begin earlier: a record of the future would be a dead letter.
    start = (_AROUND_MS - 3 * size if size > _DAY_MS else _AROUND_MS) // size * size
    times = (start, start + size // 10, start + size // 5, start + 2 * size + size // 10)
    records = []
    for place, time in enumerate(times):
        record: dict[str, Any] = {answers.timestamp: time}
        if answers.key is not None:
            record[answers.key.name] = _KEYS[answers.key.type][place == 1]
        for value in answers.values:
            record.setdefault(value.name, _VALUES[value.type][place])
        records.append(record)
    return records


def expected_of(answers: Answers) -> dict[Any, dict[str, Any]]:
    """Key to value; with windows (key, start of the window in ms) to value."""
    expected: dict[Any, dict[str, Any]] = {}
    starts: dict[Any, int] = {}
    size = answers.window.ms
    for record in records_of(answers):
        time = record[answers.timestamp]
        key = None if answers.key is None else record[answers.key.name]
        if answers.window.kind == SESSION:
            # Within a fifth of the gap, or more than the gap apart.
            starts[key] = starts[key] if time - starts.get(key, -size) < size else time
            place: Any = (key, starts[key])
        else:
            place = key if answers.window.kind == NO_WINDOW else (key, time - time % size)
        value = expected.setdefault(place, {count_name(answers): 0})
        value[count_name(answers)] += 1
        for field in answers.values:
            number = record[field.name]
            value[f"{field.name}_sum"] = value.get(f"{field.name}_sum", 0) + number
            value[f"{field.name}_max"] = max(value.get(f"{field.name}_max", number), number)
    return expected


def sample_text() -> str:
    """Page views of three users during a morning, as CSV."""
    lines = ["time,user,page,millis"]
    for number in range(72):
        # Half an hour of views, then a break of 37 minutes.
        minute = number // 12 * 70 + number % 12 * 3
        user, page = ("ann", "bob", "cyd")[number * number % 7 % 3], ("/home", "/cart", "/home", "/help")[number % 4]
        time = f"2024-05-06T{8 + minute // 60:02}:{minute % 60:02}:{number * 17 % 60:02}Z"
        lines.append(f"{time},{user},{page},{40 + number * 37 % 211}")
    return "\n".join(lines) + "\n"
