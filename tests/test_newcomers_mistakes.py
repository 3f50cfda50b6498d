"""What newcomers get wrong. Each message says the fault, the place and the remedy; where nothing can be refused, the
report does, or a dead letter."""

from __future__ import annotations

import gzip
import json
import logging
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from monoids import Count, Last, ListConcat, Max, Sum, record
from persistent import (
    FileSink,
    FileSource,
    KafkaSource,
    MemorySink,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    SqliteSink,
    WindowState,
    calendar,
    session,
    sliding,
    tumbling,
)
from persistent.testing import verify_task
from tests.tools.cli.visits import command

ROWS = [{"ts": 1_700_000_000_000 + 1_000 * n, "page": "ab"[n % 2], "n": n} for n in range(20)]
CSV = ["time,page,n", *(f"2024-05-06T10:00:{n:02}Z,{'ab'[n % 2]},{n}" for n in range(20))]
MINUTE = tumbling("1 min")


class Visits(PersistentTask):
    key: Any = "page"
    state: Any = WindowState(Count(), MINUTE)

    def persistent_state(self) -> Any:
        return self.state

    def process_message(self, state: Any, message: Any) -> Any:
        state.update(message.timestamp, 1)


# -- ways to make a mistake --------------------------------------------------------------------------------------------


def pipeline(task: Any = None, source: Any = None, **options: Any) -> Pipeline:
    given = {"sink": MemorySink(), "checkpoint": "checkpoint", **options}
    return Pipeline(source=source or MemorySource(ROWS, timestamp="ts"), task=task or Visits(), **given)


def run(task: Any = None, source: Any = None, **options: Any) -> str:
    """What the report of a run says."""
    return str(pipeline(task, source, **options).run(engine="embedded", end_of_input=True))


def task(state: Any = None, key: Any = "page", process: Callable[[Any, Any], Any] | None = None) -> PersistentTask:
    """The task Visits, with another state, key or method."""

    class Changed(Visits):
        name = "Visits"

        def process_message(self, state: Any, message: Any) -> Any:
            return (process or (lambda state, message: state.update(message.timestamp, 1)))(state, message)

    Changed.__name__ = "Visits"
    Changed.key = key
    Changed.state = Visits.state if state is None else state
    return Changed()


def does(process: Callable[[Any, Any], Any], state: Any = None) -> str:
    return run(task(state, process=process))


def files(name: str, *lines: str, **options: Any) -> FileSource:
    """A file in the folder of views, and the source that reads it."""
    Path("views").mkdir(exist_ok=True)
    Path("views", name).write_text("".join(f"{line}\n" for line in lines))
    return FileSource("views", **{"timestamp": "time", **options})


def twice(first: Callable[[], object], second: Callable[[], object]) -> object:
    """The first run is right; before the second something was changed."""
    first()
    return second()


def said(*words: str) -> str:
    """What a command prints; a pipeline is in job.py."""
    beside = "from tests.test_newcomers_mistakes import pipeline as made\n"
    Path("job.py").write_text(f"{beside}pipeline = made()\nnumber = 3\n")
    return command(*words).output


def ran(*words: str) -> str:
    """The same after a run."""
    said("run", "job.py:pipeline", "--engine", "embedded")
    return said(*words)


def dead_letter(source: FileSource) -> str:
    """The only dead letter of a run."""
    made = pipeline(source=source)
    report = made.run(engine="embedded", end_of_input=True)
    assert "1 dead letter" in str(report)
    (letter,) = made.dead_letters().to_pylist()
    return str(letter)


class NoState(PersistentTask):
    key = "page"

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


class NoMethod(PersistentTask):
    def persistent_state(self) -> Any:
        return WindowState(Count(), MINUTE)

    def process_mesage(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


class NoKey(PersistentTask):
    def persistent_state(self) -> Any:
        return WindowState(Count(), MINUTE)

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


class KeepsInItself(Visits):
    state = NonWindowState(Max())
    seen: dict[Any, int] = {}

    def process_message(self, state: Any, message: Any) -> None:
        self.seen[message.key] = self.seen.get(message.key, 0) + 1
        state.update(message.timestamp, self.seen[message.key])


class Yields(Visits):
    def process_message(self, state: Any, message: Any) -> Any:
        yield message


class Waits(Visits):
    async def process_message(self, state: Any, message: Any) -> Any:
        state.update(message.timestamp, 1)


def forgotten(state: Any, message: Any) -> Any:
    """A generator, which does nothing until somebody reads it."""
    state.update(message.timestamp, 1)
    yield


def adds(state: Any, message: Any) -> None:
    state += 1


def without(module: str, call: Callable[[], object]) -> object:
    """The same where a package is not installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, module, None)
        return call()


def without_java(*words: str) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("JAVA_HOME", raising=False)
        patch.setenv("PATH", "/nowhere")
        return said(*words)


def logged(call: Callable[[], object]) -> str:
    """What the log says meanwhile."""
    found: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())

    kept = Kept()
    logging.getLogger("persistent").addHandler(kept)
    try:
        call()
    finally:
        logging.getLogger("persistent").removeHandler(kept)
    return "\n".join(found)


def truncated() -> FileSource:
    lines = "".join(f"{line},{os.urandom(30).hex() if n else 'noise'}\n" for n, line in enumerate(CSV))
    source = files("a.csv")
    Path("views", "a.csv").unlink()
    Path("views", "a.csv.gz").write_bytes(gzip.compress(lines.encode())[:-300])
    return source


def encoded(encoding: str) -> FileSource:
    source = files("a.csv")
    Path("views", "a.csv").write_text("\n".join(CSV).replace(",a,", ",ä,") + "\n", encoding=encoding)
    return source


def folder_gone(folder: str, **options: Any) -> object:
    return twice(lambda: run(**options), lambda: (shutil.rmtree(folder), run(**options)))


STATES = {"hourly": WindowState(Count(), tumbling("1 h")), "total": NonWindowState(Count())}
TWO = {"hourly": MemorySink(), "total": MemorySink()}


# -- the table ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mistake:
    """What somebody does, and the words that say what is wrong, where, and what to do."""

    does: Callable[[], object]
    fault: str
    place: str
    remedy: str


MISTAKES = {
    # the task
    "no persistent_state": Mistake(
        lambda: run(NoState()), "does not define persistent_state", "NoState", "return WindowState(Count()"
    ),
    "a misspelled method": Mistake(
        lambda: run(NoMethod()), "'process_mesage'", "NoMethod", "def process_message(self, state, message)"
    ),
    "the class, not an instance": Mistake(lambda: run(Visits), "task=Visits", "Visits", "give an instance, Visits()"),
    "a monoid in place of a state": Mistake(
        lambda: run(task(Count())), "returned Count()", "Visits.persistent_state()", "return a WindowState"
    ),
    "the class of a monoid": Mistake(
        lambda: WindowState(Count, MINUTE), "not of <class", "a state is made of a monoid", "for example Count()"
    ),
    "no window": Mistake(lambda: WindowState(Count()), "missing", "WindowState()", "give window="),
    "a window in a state without": Mistake(
        lambda: NonWindowState(Count(), MINUTE), "2 values without a name", "NonWindowState()", "Its options: monoid"
    ),
    "a duration in place of a window": Mistake(
        lambda: WindowState(Count(), "1 hour"), "not '1 hour'", "a window", "write tumbling('1 hour')"
    ),
    "a counter in the class": Mistake(
        lambda: verify_task(KeepsInItself, ROWS, elsewhere=False),
        "has a different result",
        "KeepsInItself",
        "use only the message",
    ),
    "no key": Mistake(lambda: run(NoKey()), "one state for all records", "NoKey declares no key", 'key = "page"'),
    "a key that no field has": Mistake(
        lambda: run(task(key="pgae")), "no field 'pgae'", "Visits.key", "its fields are ts, page, n"
    ),
    "several keys in one text": Mistake(
        lambda: run(task(key="page, n")), "no field 'page, n'", "Visits.key", "key = ('page', 'n')"
    ),
    "a function as key": Mistake(
        lambda: run(task(key=lambda message: 1)), "is a function", "Visits.key", 'key = {"name": lambda'
    ),
    "a key that is a dict": Mistake(
        lambda: run(source=MemorySource([{"ts": 1, "page": {"a": 1}}])),
        "of type struct<a: int64> is not supported",
        "Visits.key: field 'page'",
        "convert it: key = {'page': lambda message",
    ),
    "a function that makes a dict a key": Mistake(
        lambda: run(task(key={"page": lambda message: {"a": 1}})),
        "is a dict, but a key is one value",
        "key 'page' raised at",
        "join them to text",
    ),
    "a monoid that does not commute in sliding windows": Mistake(
        lambda: run(task(WindowState(ListConcat(str), sliding("1 min", every="10 s")))),
        "not declared commutative",
        "Visits: ListConcat(str)",
        "set commutative = True",
    ),
    "the same in sessions": Mistake(
        lambda: WindowState(ListConcat(str), session("1 min")),
        "not declared commutative",
        "Sessions: ListConcat(str)",
        "First, Last, MinBy and MaxBy keep an order",
    ),
    "a window without length": Mistake(lambda: tumbling(0), "not 0", "a window's size", "at least 1 ms"),
    "a negative gap": Mistake(lambda: session("-5 min"), "'-5 min' is not a duration", "gap", "'1 min'"),
    "an unknown unit": Mistake(lambda: tumbling("1 fortnight"), "'1 fortnight' is not", "size", "The units: ms"),
    "a number without unit": Mistake(
        lambda: run(task(WindowState(Count(), tumbling(60)))), "60 ms", "tumbling(60)", 'give "60 s"'
    ),
    "size and step exchanged": Mistake(
        lambda: run(task(WindowState(Count(), sliding("1 min", every="5 min")))),
        "leaves gaps of 4 min",
        'sliding("1 min", every="5 min")',
        'give sliding("5 min", every="1 min")',
    ),
    "an unknown time zone": Mistake(
        lambda: calendar("day", tz="Europe/Berln"), "is not a time zone", "tz: 'Europe/Berln'", "'Europe/Berlin'"
    ),
    "an unknown unit of the calendar": Mistake(
        lambda: calendar("dya", tz="UTC"), "'dya'", "calendar(", "the units are 'hour', 'day'"
    ),
    # what a message adds
    "a wrong keyword of update": Mistake(
        lambda: does(lambda state, message: state.update(message.timestamp, valeu=1)),
        "unexpected keyword argument 'valeu'",
        "position (0, 0), key 'a'",
        "use state.update(timestamp, value)",
    ),
    "no value": Mistake(
        lambda: does(lambda state, message: state.update(1)), "missing", "state.update()", "state.update(timestamp,"
    ),
    "value and time exchanged": Mistake(
        lambda: does(lambda state, message: state.update(1, message.timestamp)),
        "the two are swapped",
        "position (0, 0)",
        "Use state.update(timestamp, value)",
    ),
    "the time of day": Mistake(
        lambda: does(lambda state, message: state.update(datetime(2024, 5, 6), 1)),
        "a timestamp is an integer",
        "position (0, 0)",
        "give message.timestamp",
    ),
    "a field that the message lacks": Mistake(
        lambda: does(lambda state, message: state.update(message.timestamp, message.value["m"])),
        "no field 'm'",
        "test_newcomers_mistakes.py, line",
        "the fields are ts, page, n",
    ),
    "a field as an attribute": Mistake(
        lambda: does(lambda state, message: state.update(message.timestamp, message.n)),
        "message.n",
        "position (0, 0)",
        "use message.value['n']",
    ),
    "floats into whole numbers": Mistake(
        lambda: does(lambda state, message: state.update(message.timestamp, 1.5), WindowState(Sum(), MINUTE)),
        "Sum() takes integers, not 1.5",
        "position (0, 0)",
        "write Sum(float)",
    ),
    "a field that the record lacks": Mistake(
        lambda: does(
            lambda state, message: state.update(message.timestamp, {"vists": 1}),
            WindowState(record(visits=Count()), MINUTE),
        ),
        "unknown field 'vists'",
        "position (0, 0)",
        "the record's fields are visits",
    ),
    "a number into a record": Mistake(
        lambda: does(
            lambda state, message: state.update(message.timestamp, 1), WindowState(record(visits=Count()), MINUTE)
        ),
        "not int",
        "position (0, 0)",
        "a mapping of its fields (visits)",
    ),
    "a function in the state": Mistake(
        lambda: does(
            lambda state, message: state.update(message.timestamp, (message.order, len)), NonWindowState(Last())
        ),
        "Last() takes integers",
        "Visits.process_message raised at",
        "fix the task",
    ),
    "a result that is returned": Mistake(
        lambda: does(lambda state, message: 1), "returned something", "process_message", "it updates the state"
    ),
    "a result that is yielded": Mistake(
        lambda: run(Yields()), "yields", "Yields.process_message", "it updates the state and returns None"
    ),
    "an async method": Mistake(lambda: run(Waits()), "nobody would await it", "Waits.process_message", "without async"),
    "a generator that nobody reads": Mistake(
        lambda: does(lambda state, message: (forgotten(state, message), None)[1]),
        "nothing published",
        "the task has updated no window",
        "not in a generator that nobody reads",
    ),
    "the state that is read": Mistake(
        lambda: does(lambda state, message: state.update(message.timestamp, state.get() + 1)),
        "state.get() in a pipeline",
        "position (0, 0)",
        "read it with pipeline.state()",
    ),
    "the state that is set": Mistake(lambda: does(adds), "a state is only added to", "line", "state.update(timestamp,"),
    # several states
    "a state without its name": Mistake(
        lambda: run(task(STATES), sink=TWO), "has the states", "state.update(...)", "state['hourly'].update(...)"
    ),
    "sinks of a state that is not there": Mistake(
        lambda: run(task(STATES), sink={"wrong name": MemorySink()}),
        "'wrong name' is no state",
        "sink={'wrong name'",
        "sink={'hourly': ...}",
    ),
    # the pipeline
    "a misspelled option": Mistake(
        lambda: pipeline(chekpoint="x"), "no option 'chekpoint'", "Pipeline()", "Did you mean checkpoint=?"
    ),
    "options without names": Mistake(
        lambda: Pipeline("views", Visits()), "without a name", "Pipeline()", "name the others, as in source="
    ),
    "a path as source": Mistake(
        lambda: pipeline(source="views/*.csv"),
        "is not a source",
        "source='views/*.csv'",
        "use FileSource('views/*.csv'",
    ),
    "a path as sink": Mistake(
        lambda: pipeline(sink="visits"), "is not a sink", "sink='visits'", "use FileSink('visits')"
    ),
    "no sink": Mistake(lambda: pipeline(sink=None), "its result would be lost", "without sink=", "sink=FileSink(...)"),
    "the checkpoint as sink": Mistake(
        lambda: run(sink=FileSink("checkpoint")), "readers of the results", "/checkpoint", "a folder of its own"
    ),
    "a folder of the checkpoint as sink": Mistake(
        lambda: run(sink=FileSink("checkpoint/late")), "persistent verify", "/checkpoint/late", "a folder of its own"
    ),
    "the folder of a checkpoint's drivers as sink": Mistake(
        lambda: run(sink=FileSink("checkpoint/r")), "persistent verify", "/checkpoint/r", "a folder of its own"
    ),
    "a sink that the source reads": Mistake(
        lambda: run(source=files("a.csv", *CSV), sink=FileSink("views/out")),
        "would read the files written there",
        "/views/out",
        "give the sink another folder",
    ),
    "one sink for two jobs": Mistake(
        lambda: twice(
            lambda: run(sink=FileSink("out")), lambda: run(sink=FileSink("out"), checkpoint="another checkpoint")
        ),
        "Two jobs write here",
        "/out",
        "give each its own folder",
    ),
    "one checkpoint for two tasks": Mistake(
        lambda: twice(run, lambda: run(KeepsInItself())),
        "is the checkpoint of another job",
        "/checkpoint",
        "the task its old name",
    ),
    "another window after a run": Mistake(
        lambda: twice(run, lambda: run(task(WindowState(Count(), tumbling("2 min"))))),
        'tumbling("1 min") -> tumbling("2 min")',
        "the state of Visits",
        "Restore the old task",
    ),
    "another key after a run": Mistake(
        lambda: twice(run, lambda: run(task(key="n"))), "key: page -> n", "the state of Visits", "a new checkpoint"
    ),
    "the checkpoint is deleted, the results are not": Mistake(
        lambda: folder_gone("checkpoint", sink=FileSink("out")), "holds the results of job", "/out", "delete this one"
    ),
    "the results are deleted, the checkpoint is not": Mistake(
        lambda: folder_gone("out", sink=FileSink("out")), "split over two folders", "/out", "its old url"
    ),
    "a scheme that nobody knows": Mistake(
        lambda: run(checkpoint="s4://bucket/visits"), "not a store", "s4://bucket/visits", "Did you mean s3://?"
    ),
    "the same of a source": Mistake(
        lambda: run(source=FileSource("hfds://name/*.csv", timestamp="time")),
        "not a store",
        "hfds://name/*.csv",
        "Did you mean hdfs://?",
    ),
    "a scheme with one slash": Mistake(
        lambda: run(checkpoint="s3:/bucket/visits"), "neither a path nor a URL", "s3:/bucket/visits", "Write s3://"
    ),
    "S3 without its package": Mistake(
        lambda: without("s3fs", lambda: run(checkpoint="s3://a-bucket-of-nobody/x")),
        "needs",
        "s3://",
        "pip install s3fs",
    ),
    "Kafka without its package": Mistake(
        lambda: without("confluent_kafka", lambda: run(source=KafkaSource("localhost:1", "views", timestamp="ts"))),
        "needs a client",
        "Kafka",
        "pip install 'persistent-monoids[kafka]'",
    ),
    "server and topic exchanged": Mistake(
        lambda: KafkaSource("views", "localhost:9092"),
        "the other way round",
        "topic='localhost:9092'",
        "servers='views'",
    ),
    "path and table exchanged": Mistake(
        lambda: SqliteSink("visits", "results.db"), "the other way round", "table='results.db'", "path='visits'"
    ),
    "an object that is no session": Mistake(
        lambda: pipeline().run(object()), "is not a SparkSession", "spark=<object", 'engine="embedded"'
    ),
    "an unknown engine": Mistake(
        lambda: pipeline().run(engine="sparc"), "'sparc'", "engine=", 'choose "spark", "embedded"'
    ),
    # the records
    "seconds for milliseconds": Mistake(
        lambda: run(source=MemorySource([{**row, "ts": row["ts"] // 1000} for row in ROWS])),  # type: ignore[operator]
        "is of 1970-01-20",
        "source 'memory'",
        'give timestamp_unit="s"',
    ),
    "microseconds for milliseconds": Mistake(
        lambda: run(source=MemorySource([{**row, "ts": row["ts"] * 1000} for row in ROWS])),  # type: ignore[operator]
        "too far ahead",
        "the first of them",
        "or timestamp_unit= is wrong",
    ),
    "whole numbers without unit": Mistake(
        lambda: run(source=files("a.csv", "time,page", "1700000000,a")),
        "holds integers",
        "/views/a.csv",
        "timestamp_unit='s', 'ms'",
    ),
    "fractions of seconds": Mistake(
        lambda: run(source=files("a.csv", "time,page", "1700000000.5,a", timestamp_unit="s")),
        "of type double",
        "/views/a.csv",
        "it must be a timestamp",
    ),
    "dates of another country": Mistake(
        lambda: run(source=files("a.csv", "time,page", "05/06/2024 10:00,a")),
        "ISO 8601 is expected",
        "column 'time'",
        "correct it where it is written",
    ),
    "rows that are no mappings": Mistake(
        lambda: run(source=MemorySource([("a", 1)])),
        "is a tuple",
        "rows[0]",
        "give mappings",  # type: ignore[list-item]
    ),
    "a column of times that is not there": Mistake(
        lambda: run(source=files("a.csv", *CSV, timestamp="when")),
        "no column 'when'",
        "/views/a.csv",
        "the columns are time, page, n. Give timestamp=",
    ),
    "a code that looks like a number": Mistake(
        lambda: logged(lambda: run(source=files("a.csv", "time,page", "2024-05-06T10:00Z,007", "2024-05-06T10:00Z,7"))),
        "007 in column 'page' is read as the number 7",
        "/views/a.csv",
        "schema={'page': 'string', ...}",
    ),
    "a CSV with semicolons": Mistake(
        lambda: run(source=files("a.csv", *(line.replace(",", ";") for line in CSV))),
        "separated by ';'",
        "/views/a.csv",
        "give delimiter=';'",
    ),
    "a CSV without names": Mistake(
        lambda: run(source=files("a.csv", *CSV[1:])), "seems to be a record", "/views/a.csv", "add them"
    ),
    "a CSV in Latin-1": Mistake(
        lambda: run(source=encoded("latin-1")), "invalid UTF8", "column 'page'", "iconv -t UTF-8"
    ),
    "a CSV in UTF-16": Mistake(
        lambda: run(source=encoded("utf-16")), "UTF-16", "/views/a.csv", "iconv -f UTF-16 -t UTF-8"
    ),
    "a space in the header": Mistake(
        lambda: run(source=files("a.csv", "time, page", "2024-05-06T10:00Z,a")),
        "no field 'page'",
        "its fields are time, ' page'",
        "Name one of them",
    ),
    "decimal commas": Mistake(
        lambda: run(source=files("a.csv", "time,page,n", "2024-05-06T10:00Z,a,1,5")),
        "Expected 3 columns, got 4",
        "the first of them",
        "fix that and read the source again",
    ),
    "fields of several lines": Mistake(
        lambda: run(source=files("a.csv", "time,page", '2024-05-06T10:00Z,"a', 'b"')),
        "a quote in it is not closed",
        "the first of them",
        "multiline=True",
    ),
    "a decimal where the first file had whole numbers": Mistake(
        lambda: twice(
            lambda: files("a.csv", *CSV),
            lambda: dead_letter(files("b.csv", "time,page,n", "2024-05-06T10:00Z,a,1.5")),
        ),
        "CSV conversion error to int64",
        "'file': 'b.csv', 'ordinal': 1",
        "give all columns their types with schema=",
    ),
    "one bad line of JSON": Mistake(
        lambda: dead_letter(files("a.jsonl", *map(json.dumps, ROWS), "{oops", timestamp="ts", timestamp_unit="ms")),
        "not a JSON object",
        "'a.jsonl', 'ordinal': 0, 'offset': ",
        "write each record in one line",
    ),
    "a list in JSON": Mistake(
        lambda: run(source=files("a.json", json.dumps(ROWS), timestamp="ts")),
        "not a JSON object, but a list",
        "/views/a.json",
        "jq -c '.[]'",
    ),
    "an empty folder": Mistake(
        lambda: (Path("views").mkdir(), run(source=FileSource("views", timestamp="time"))),
        "no file exists",
        "/views",
        "check the path",
    ),
    "a table of another program": Mistake(
        lambda: run(source=files("a.xlsx", *CSV)), "does not show its format", "/views/a.xlsx", "give format="
    ),
    "files of two formats": Mistake(
        lambda: (files("a.csv", *CSV), run(source=files("b.jsonl", "{}"))),
        "the first file is csv",
        "/views/b.jsonl",
        "narrow the path",
    ),
    "a compressed file that breaks off": Mistake(
        lambda: run(source=truncated()), "break off", "/views/a.csv.gz", "Repair or remove the file"
    ),
    "a file with other columns": Mistake(
        lambda: (files("a.csv", *CSV), run(source=files("b.csv", "when,page,n", "2024-05-06T10:00Z,a,1"))),
        "no column 'time'",
        "/views/b.csv",
        "give schema= with only those columns that every file has",
    ),
    "a file that grows": Mistake(
        lambda: twice(
            lambda: run(source=files("a.csv", *CSV)),
            lambda: run(source=files("a.csv", *CSV, "2024-05-06T10:01Z,a,1")),
        ),
        "Files must not change once listed",
        "/views/a.csv",
        "Restore the old bytes; or move the file to a new name",
    ),
    "a file that is changed after it was read": Mistake(
        lambda: twice(
            lambda: run(source=files("a.csv", *CSV)),
            lambda: run(source=files("a.csv", *(line.replace(",a,", ",b,") for line in CSV))),
        ),
        "its bytes are not those that were listed",
        "/views/a.csv",
        "Restore the old bytes",
    ),
    # the command line
    "a file without a name": Mistake(
        lambda: said("run", "job.py"), "name a pipeline", "job.py", "as in job.py:pipeline"
    ),
    "the same of a checkpoint": Mistake(
        lambda: said("verify", "job.py"), "is a file", "job.py", "as in job.py:pipeline"
    ),
    "a misspelled name": Mistake(
        lambda: said("run", "job.py:pipline"), "no 'pipline'", "job.py", "its pipelines: pipeline"
    ),
    "a misspelled file": Mistake(
        lambda: said("run", "jbo.py:pipeline"), "no such file", "jbo.py", "but job.py is there"
    ),
    "another object": Mistake(
        lambda: said("run", "job.py:number"), "is int, not a Pipeline", "job.py:number", "its pipelines: pipeline"
    ),
    "a misspelled command": Mistake(lambda: said("rnu", "job.py:pipeline"), "No such command", "'rnu'", "mean 'run'"),
    "a state by its checkpoint": Mistake(
        lambda: ran("state", "checkpoint"), "needs the task's own monoid", "checkpoint", "as FILE.py:NAME"
    ),
    "a checkpoint that is not there": Mistake(
        lambda: said("history", "chekpoint"), "there is no checkpoint here", "/chekpoint", "check the URL"
    ),
    "a rollback without a word on outputs": Mistake(
        lambda: ran("rollback", "checkpoint", "1"), "Missing option", "'--outputs'", "retract"
    ),
    "a follower that is to end": Mistake(
        lambda: said("run", "job.py:pipeline", "--follow", "--end-of-input"), "none follows", "--follow", "choose one"
    ),
    "Spark without Java": Mistake(
        lambda: without_java("run", "job.py:pipeline", "--engine", "spark"),
        "no Java found",
        "in JAVA_HOME or on the path",
        "--engine embedded",
    ),
    "a run that ends before its window": Mistake(
        lambda: said("run", "job.py:pipeline", "--engine", "embedded"),
        "nothing published",
        "1 window is open, until the clock reaches",
        "run with --end-of-input",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_with_place_and_remedy(name: str, here: Path) -> None:
    """Without it the first hour of a newcomer could end with a wrong number, or an error that only we understand."""
    mistake = MISTAKES[name]
    try:
        text = str(mistake.does())
    except Exception as error:
        text = str(error)
    missing = [part for part in (mistake.fault, mistake.place, mistake.remedy) if part not in text]
    assert not missing, f"{missing} in: {text}"


def test_these_are_no_mistakes(here: Path) -> None:
    """Without it what is right could be refused with the others."""
    marked = files("a.csv", "\ufefftime,page,n", *CSV[1:])
    assert run(source=marked, checkpoint="marked").startswith("20 rows")
    nan = [{"ts": 1, "page": float("nan")}, {"ts": 2, "page": float("nan")}]
    assert "1 row published" in run(source=MemorySource(nan), checkpoint="nan")
    naive = [{"ts": datetime(2024, 5, 6, 10), "page": "a"}]
    assert "clock 2024-05-06 10:01:00Z" in run(source=MemorySource(naive), checkpoint="naive")
    assert "2 rows published" in run(sink=FileSink("checkpoint/results"))
    assert "2 rows published" in run(task(key=["page"]), checkpoint="list")
    assert "note" not in run(task(WindowState(Count(), sliding("1 min", every="1 min"))), checkpoint="sliding")
    Path("views", "a.csv").write_text("time,page\n2024-05-06T10:00Z,0\n2024-05-06T10:00Z,-0\n2024-05-06T10:00:01Z,10\n")
    numbers = FileSource("views", timestamp="time")
    assert logged(lambda: run(source=numbers, checkpoint="numbers")) == ""
