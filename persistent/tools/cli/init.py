"""``persistent init``: makes a project of one's own from a few answers."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import click

from persistent.connect.formats.timestamps import UNITS
from persistent.driver.naming import check_columns, check_not_read_back
from persistent.errors import InvalidPipeline, PersistentError
from persistent.pipeline import Pipeline
from persistent.text.figures import shell_word
from persistent.tools.cli.options import json_option
from persistent.tools.cli.tables import print_json
from persistent.tools.project import (
    Answers,
    End,
    Field,
    Proposal,
    files_of,
    proposal_of,
    sink_of,
    source_of,
    window_of,
)
from persistent.tools.project.answers import SINKS, SOURCES, check_holds, checked_name, is_name

T = TypeVar("T")

_NO_KEY = "-"
_ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
_SAMPLE = Proposal(
    fields={"user": Field("user", "str"), "page": Field("page", "str"), "millis": Field("millis", "int")},
    others={},
    times={"time": None},
    key="user",
    values=("millis",),
    schema={},
    read=0,
    dead=0,
)
"""The columns of the records of ``sample``, which the project makes."""


@click.command()
@click.argument("folder", default=".", type=click.Path(path_type=Path))
@click.option(
    "--source", metavar="SOURCE", help=f"Where the records are: {SOURCES} [default: sample, which makes some]."
)
@click.option("--timestamp", metavar="FIELD", help="The field with the time of a record.")
@click.option("--timestamp-unit", type=click.Choice(UNITS), help="The unit, if the times are whole numbers.")
@click.option("--delimiter", metavar="CHARACTER", help="What separates the fields of CSV [default: seen in the file].")
@click.option("--encoding", metavar="NAME", help="Of the characters of CSV, as cp1252 [default: seen in the file].")
@click.option("--key", metavar="FIELD", help=f"The field that says whose state a record changes; {_NO_KEY} for none.")
@click.option("--value", "values", multiple=True, metavar="FIELD", help="A number to sum up; repeatable; - for none.")
@click.option("--window", metavar="WINDOW", help="minute, hour, day, a duration, session or none [default: hour].")
@click.option("--sink", metavar="SINK", help=f"Where results go: {SINKS} [default: files].")
@click.option("--yes", is_flag=True, help="Ask nothing: take what is proposed.")
@json_option
def init(folder: Path, yes: bool, as_json: bool, **options: Any) -> None:
    """Make a project: a task, its test, and a page that says how to run both.

    Asks where the records are, what they are counted by, and where the results go. It reads the first records of a
    file, and proposes an answer to each question: also what separates the fields of a CSV file, and whether these
    have several lines. Without a terminal, or with --yes, it asks nothing: an answer is
    that of an option, or else the one that is proposed.

    Writes task.py, test_task.py and README.md into FOLDER, which is made if it does not exist. Nothing is replaced.

    \b
    persistent init
    persistent init sales --source files:sales.csv
    persistent init visits --source files:'views/*.csv' --key page --window minute --sink sqlite --yes
    """
    asks = not yes and sys.stdin.isatty()
    answers = _answers(_Questions(options, asks))
    written = write(folder, files_of(answers, folder))
    if as_json:
        print_json([{"file": str(path)} for path in written])
        return
    for path in written:
        click.echo(f"wrote {path}")
    click.echo("\nNow run it:\n")
    if folder != Path("."):
        click.echo(f"  cd {shlex.quote(str(folder))}")
    click.echo("  persistent run task.py:pipeline --engine embedded --end-of-input")
    click.echo("\nREADME.md says how to look at the results, and how to test the task.")


class _Questions:
    """Answers a question by its option, or asks the user, or else takes the proposal."""

    def __init__(self, options: dict[str, Any], asks: bool) -> None:
        self._given = options
        self._asks = asks

    def answer(self, option: str, question: str, proposed: str | None, meant: Callable[[str], T]) -> T:
        """What the answer means, by ``meant``. A user is asked again after a wrong answer; without a user,
        InvalidPipeline."""
        if self._given[option] is not None:
            return meant(str(self._given[option]))
        if self._asks:
            return click.prompt(question, default=proposed, value_proc=_again(meant))
        if proposed is None:
            name = option.replace("_", "-")
            raise InvalidPipeline(f"--{name} is missing, and nothing can be proposed: give it ({question})")
        return meant(proposed)

    def file_here(self) -> str:
        """The only file with records in this folder, as a proposal; empty if there are several, or nobody is asked."""
        here = [path.name for path in Path().iterdir() if path.suffix in _ENDINGS]
        return f"files:{here[0]}" if self._asks and len(here) == 1 else ""

    def given(self, option: str) -> str | None:
        """The option, if it was given."""
        return None if self._given[option] is None else str(self._given[option])

    def values(self, proposed: tuple[str, ...], meant: Callable[[str], Field]) -> tuple[Field, ...]:
        """The fields to sum up."""

        def fields(names: Iterable[str]) -> tuple[Field, ...]:
            names = tuple(dict.fromkeys(names))
            return () if names == (_NO_KEY,) else tuple(map(meant, names))

        if not self._given["values"] and self._asks:
            default = " ".join(proposed) or _NO_KEY
            read = _again(lambda words: fields(words.replace(",", " ").split()))
            return click.prompt("Which numbers are summed up (- for none)", default=default, value_proc=read)
        return fields(self._given["values"] or proposed)


def _again(meant: Callable[[str], T]) -> Callable[[str], T]:
    """``meant`` for a prompt: a wrong answer raises UsageError, after which the prompt asks again."""

    def read(text: str) -> T:
        try:
            return meant(text)
        except PersistentError as error:
            raise click.UsageError(str(error)) from error

    return read


def _source_of(text: str) -> End:
    """The source that an answer names. A pattern, or a path that exists, names a source of files."""
    if ":" in text or text == "sample":
        return source_of(text)
    if "*" in text or Path(text).exists():
        return source_of(f"files:{text}")
    if Path(text).suffix or "/" in text:
        raise InvalidPipeline(f"--source {text!r}: no such file or folder below {Path.cwd()}: correct the path")
    return source_of(text)


def _answers(questions: _Questions) -> Answers:
    proposed = questions.file_here() or "sample"
    asked = f"Where are the records ({SOURCES}; sample makes some)"
    source = questions.answer("source", asked, proposed, _source_of)
    read = _from_topic if source.kind == "kafka" else _from_files
    timestamp, unit, key, values, schema, reading = read(source, questions)
    asked = "How long is a window (minute, hour, day, 15 min, session, none)"
    window = questions.answer("window", asked, "hour", window_of)
    sink = questions.answer("sink", f"Where do results go ({SINKS})", "files", sink_of)
    check_holds(sink, window, key)
    return Answers(source, timestamp, unit, key, values, window, sink, schema, reading)


Read = tuple[str, str | None, Field | None, tuple[Field, ...], dict[str, str], dict[str, Any]]


def _from_files(source: End, questions: _Questions) -> Read:
    """The time, its unit, the key, the values, the types of these fields, and the options of the source: proposed from
    what the files hold."""
    dialect = {name: value for name in ("delimiter", "encoding") if (value := questions.given(name)) is not None}
    proposal = proposal_of(source.path, dialect) if source.path else _SAMPLE
    if proposal.read:
        columns = ", ".join([*proposal.fields, *proposal.others])
        click.echo(f"{source.path}: read {proposal.read:,} records of the columns {columns}", err=True)
    if proposal.reading:
        options = ", ".join(f"{name}={value!r}" for name, value in proposal.reading.items())
        hint = "; --encoding names another" if "encoding" in proposal.reading and "encoding" not in dialect else ""
        click.echo(f"They are read with {options}{hint}", err=True)
    if strange := [repr(name) for name in proposal.fields if not is_name(name)]:
        click.echo(f"Not proposed, as their names are none in Python: {', '.join(strange)}", err=True)
    if dead := proposal.dead:
        click.echo(f"{dead:,} of them cannot be decoded, and will be dead letters: {proposal.why_dead}", err=True)
    first, *_ = proposal.times
    asked = f"Which field is the time ({', '.join(proposal.times)})"
    timestamp = questions.answer("timestamp", asked, first, lambda name: _time_of(name, proposal))
    if lacking := proposal.timeless.get(timestamp):
        click.echo(f"{lacking:,} of them have no time in {timestamp!r}, and will be dead letters", err=True)
    unit = questions.given("timestamp_unit") or proposal.times[timestamp]
    choices = [name for name in proposal.fields if name != timestamp]
    proposed = proposal.key or _NO_KEY

    def field_of(option: str, name: str) -> Field:
        return proposal.chosen(checked_name(name, option), option)

    asked = f"Whose state does a record change ({', '.join(choices)}; {_NO_KEY})"
    key = questions.answer("key", asked, proposed, _unless_none(lambda name: field_of("--key", name)))
    proposed_values = tuple(name for name in proposal.values if key is None or name != key.name)
    values = questions.values(proposed_values, lambda name: field_of("--value", name))
    _check_apart(timestamp, key, values)
    read = dict.fromkeys([timestamp, *([key.name] if key else []), *(field.name for field in values)])
    schema = {name: proposal.schema[name] for name in read if name in proposal.schema}
    return timestamp, unit, key, values, schema, proposal.reading


def _time_of(name: str, proposal: Proposal) -> str:
    """A column that can be the time. InvalidPipeline for another."""
    if name not in proposal.times:
        raise InvalidPipeline(
            f"--timestamp {name!r} does not hold times in the first records: choose one of {', '.join(proposal.times)}"
        )
    return checked_name(name, "--timestamp")


def _unless_none(meant: Callable[[str], Field]) -> Callable[[str], Field | None]:
    return lambda name: None if name == _NO_KEY else meant(name)


def _from_topic(source: End, questions: _Questions) -> Read:
    """The same as ``_from_files``, for a topic: from the answers alone, as the topic is not read."""
    broker = "_timestamp"
    timestamp = questions.answer("timestamp", f"Which field is the time ({broker}: that of the broker)", broker, str)
    unit = questions.given("timestamp_unit")
    asked = f"Whose state does a record change (a field; {_NO_KEY} for none)"
    key = questions.answer("key", asked, None, _unless_none(lambda name: Field(checked_name(name, "--key"), "str")))
    values = questions.values((), lambda name: Field(checked_name(name, "--value"), "float"))
    _check_apart(timestamp, key, values)
    schema = {} if timestamp == broker else {checked_name(timestamp, "--timestamp"): "int64" if unit else "string"}
    schema |= {key.name: "string"} if key else {}
    schema |= {field.name: "double" for field in values}
    return timestamp, unit, key, values, schema, {}


def _check_apart(timestamp: str, key: Field | None, values: tuple[Field, ...]) -> None:
    """InvalidPipeline if one field has two uses (time, key, value), or a value is no number."""
    taken = {timestamp: "the time of the records"}
    if key is not None:
        if key.name in taken:
            raise InvalidPipeline(f"--key {key.name!r} is {taken[key.name]}: choose another field, or {_NO_KEY}")
        taken[key.name] = "the key"
    for field in values:
        what = taken.get(field.name) or ("" if field.type in ("int", "float") else f"of type {field.type}")
        if what:
            raise InvalidPipeline(f"--value {field.name!r} is {what}, and other numbers are summed up: choose another")


def write(folder: Path, files: Mapping[str, str]) -> list[Path]:
    """Write the files, and return their paths. InvalidPipeline if one of them exists, or the task is no pipeline:
    nothing is written then."""
    paths = [folder / name for name in files]
    there = [str(path) for path in paths if path.exists() or path.is_symlink()]
    if there:
        raise InvalidPipeline(
            f"{', '.join(there)}: there already, and nothing is replaced: name a new folder, as in "
            f"'persistent init {shell_word(str(folder / 'totals'))}'"
        )
    _check_runs(files["task.py"], folder)
    _make(folder)
    for path, text in zip(paths, files.values()):
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    return paths


def _check_runs(task: str, folder: Path) -> None:
    """InvalidPipeline unless the task makes a pipeline whose results its sink can hold and no source reads."""
    module = ModuleType("task")
    module.__file__ = str(folder / "task.py")
    try:
        exec(compile(task, module.__file__, "exec"), module.__dict__)
    except PersistentError:
        raise
    except Exception as error:
        raise InvalidPipeline(
            f"{module.__file__}: these answers make no pipeline ({type(error).__name__}: {error}): give others"
        ) from error
    pipeline = module.__dict__["pipeline"]
    assert isinstance(pipeline, Pipeline)
    check_not_read_back(pipeline.sources, pipeline.all_sinks, pipeline.storage)
    check_columns(pipeline.job())


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidPipeline(f"{folder}: cannot be made ({error.strerror}): name another folder") from error
