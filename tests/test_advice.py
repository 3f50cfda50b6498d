"""What an error advises works on the very input that raised it, and gives the right result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from monoids import Count, ListConcat, Sum, record
from persistent import (
    Dedupe,
    Evolution,
    FileSink,
    FileSource,
    MemorySink,
    MemorySource,
    NonWindowState,
    PersistentError,
    PersistentTask,
    Pipeline,
    Retention,
    SqliteSink,
    WindowState,
    assigned,
    calendar,
    operations,
    session,
    sliding,
    tumbling,
)
from persistent.metrics import PrometheusMetrics
from tests.tools.cli.visits import command

ROWS = [{"ts": 1_700_000_000_000 + 1_000 * n, "page": "aab"[n % 3], "n": n} for n in range(6)]
RIGHT = {"a": 4, "b": 2}
CSV = ["time,page,n", *(f"2024-05-06T10:00:{n:02}Z,{'aab'[n % 3]},{n}" for n in range(6))]
MINUTE = tumbling("1 min")


@dataclass(frozen=True)
class Advice:
    """``fails`` raises an error whose message has the words ``says``; ``works`` is what they advise, and gives
    ``right``."""

    name: str
    fails: Callable[[], object]
    says: str
    works: Callable[[], object]
    right: object = None

    def __repr__(self) -> str:
        return self.name


# -- jobs --------------------------------------------------------------------------------------------------------------


class Visits(PersistentTask):
    key: Any = "page"

    def __init__(self, state: Any = None) -> None:
        self.state = state

    def persistent_state(self) -> Any:
        return WindowState(Count(), MINUTE) if self.state is None else self.state

    def process_message(self, state: Any, message: Any) -> Any:
        state.update(message.timestamp, 1)


def task(process: Any = None, state: Any = None, **attributes: Any) -> PersistentTask:
    """Visits with another method, state or attributes."""
    members = attributes if process is None else {"process_message": lambda self, *given: process(*given), **attributes}
    return type("Visits", (Visits,), members)(state)


def batches(process: Any, **attributes: Any) -> PersistentTask:
    return task(process_batch=lambda self, *given: process(*given), **attributes)


def pipeline(given: Any = None, source: Any = None, **options: Any) -> Pipeline:
    made = {"sink": MemorySink(), "checkpoint": "checkpoint", **options}
    return Pipeline(source=source or MemorySource(ROWS, timestamp="ts"), task=given or Visits(), **made)


def counted(made: Pipeline, **options: Any) -> dict[Any, Any]:
    """What a run publishes by key, the newest row of each: of the first sink."""
    made.run(engine="embedded", end_of_input=True, **options)
    rows = next(iter(made.sinks.values())).rows()
    return {row.get("page", row.get("word")): row.get("value", row) for row in rows}


def run(*given: Any, **options: Any) -> dict[Any, Any]:
    return counted(pipeline(*given, **options))


def files(name: str, *lines: str, **options: Any) -> FileSource:
    """A file in the folder of views, and the source that reads it."""
    Path("views").mkdir(exist_ok=True)
    Path("views", name).write_text("".join(f"{line}\n" for line in lines))
    return FileSource("views", **{"timestamp": "time", **options})


def read(name: str, *lines: str, **options: Any) -> Callable[[], dict[Any, Any]]:
    """A run over that file."""
    return lambda: run(None, files(name, *lines, **options))


def after(first: Callable[[], object], second: Callable[[], object]) -> Callable[[], object]:
    """The second, once the first has been."""

    def both() -> object:
        first()
        return second()

    return both


def state(make: Callable[[], Any], **attributes: Any) -> Callable[[], dict[Any, Any]]:
    """A run of a task with that state."""
    return lambda: run(task(state=make(), **attributes))


def ok(*words: str) -> str:
    """The output of a command that must succeed."""
    result = command(*words)
    assert result.exit_code == 0, result.output
    return result.output


def refused(*words: str) -> Callable[[], None]:
    """A command that fails, as an error with its message."""

    def fails() -> None:
        result = command(*words)
        assert result.exit_code, result.output
        raise PersistentError(" ".join(result.stderr.split()))

    return fails


JOB = """
from tests.test_advice import pipeline as made
pipeline = made()
"""


def job(ran: bool = True) -> None:
    """A project with job.py, after a run."""
    Path("job.py").write_text(JOB)
    if ran:
        pipeline().run(engine="embedded")


def on_job(then: Callable[[], object]) -> Callable[[], object]:
    return after(job, then)


class Halves:
    """Windows of half a minute."""

    def windows(self, timestamps: Any) -> Any:
        starts = timestamps - timestamps % 30_000
        return starts, starts + 30_000

    def fingerprint(self) -> Mapping[str, Any]:
        return {"halves": 1}


def ordered() -> Any:
    """A monoid that is not declared commutative."""
    return ListConcat(str)


def commuting() -> Any:
    """The same of a user whose lists are bags, and who has declared it."""
    return type("Bag", (ListConcat,), {"commutative": True})(str)


def update(value: Any = 1, **given: Any) -> Callable[[Any, Any], None]:
    return lambda state, message: state.update(message.timestamp, value, **given)


# -- the table ---------------------------------------------------------------------------------------------------------


def of_pipelines() -> Iterator[Advice]:
    yield Advice(
        "a number as retention",
        lambda: pipeline(retention=10),
        "give Retention(last=10, hourly=24, daily=7)",
        lambda: run(retention=Retention(last=10, hourly=24, daily=7)),
        RIGHT,
    )
    yield Advice("its own name dropped", lambda: pipeline(allow_dropped=["Visits"]), "omit it", lambda: run(), RIGHT)
    yield Advice(
        "a name instead of a list",
        lambda: pipeline(allow_dropped="old"),
        'give the names in a list: ["old"]',
        lambda: run(allow_dropped=["old"]),
        RIGHT,
    )
    yield Advice(
        "the source of several",
        lambda: pipeline(source={"x": MemorySource(ROWS), "y": MemorySource(ROWS)}).source,
        "use pipeline.sources",
        lambda: [*pipeline(source={"x": MemorySource(ROWS), "y": MemorySource(ROWS)}).sources],
        ["x", "y"],
    )
    yield Advice(
        "the sink of several",
        lambda: pipeline(sink={"x": MemorySink(), "y": MemorySink()}).sink,
        "use pipeline.sinks",
        lambda: [*pipeline(sink={"x": MemorySink(), "y": MemorySink()}).sinks],
        ["x", "y"],
    )
    yield Advice(
        "an input that is complete and goes on",
        lambda: pipeline().run(follow=True, end_of_input=True),
        "choose one",
        run,
        RIGHT,
    )
    yield Advice(
        "a name with a blank", lambda: pipeline(name="my visits"), "or None", lambda: run(name="my-visits"), RIGHT
    )
    yield Advice(
        "no step at all", lambda: pipeline(step_rows=0), "at least 1, or None", lambda: run(step_rows=1), RIGHT
    )
    yield Advice(
        "another word for dead letters",
        lambda: pipeline(on_error="ignore"),
        'choose "stop" or "dead-letter"',
        lambda: run(on_error="dead-letter"),
        RIGHT,
    )
    yield Advice(
        "a word that is no guarantee",
        lambda: pipeline(require="exactly_once"),
        "choose one of at-least-once, exactly-once",
        lambda: run(require="exactly-once"),
        RIGHT,
    )
    yield Advice(
        "no time to be quiet",
        lambda: pipeline(quiet_after=0),
        "give a duration above zero, such as '10 min', or None",
        lambda: run(quiet_after="10 min"),
        RIGHT,
    )
    for number, unit in enumerate(("500 ms", "1 min", "2 days")):
        yield Advice(
            f"a duration in words {number}",
            lambda: pipeline(max_future="one day"),
            f"'{unit}'",
            lambda unit=unit: run(max_future=unit),
            RIGHT,
        )
    yield Advice(
        "a class as task", lambda: pipeline(Visits), "give an instance, Visits()", lambda: run(Visits()), RIGHT
    )
    yield Advice(
        "a class as sink",
        lambda: pipeline(sink=MemorySink),
        "give an instance, MemorySink(...)",
        lambda: run(sink=MemorySink()),
        RIGHT,
    )
    yield Advice(
        "a path as sink",
        lambda: pipeline(sink="results"),
        "FileSink('results')",
        lambda: pipeline(sink=FileSink("results")).run(engine="embedded", end_of_input=True).outputs,
        2,
    )
    yield Advice(
        "a path as source",
        after(lambda: files("a.csv", *CSV), lambda: pipeline(source="views")),
        "FileSource('views', timestamp=...)",
        lambda: run(source=FileSource("views", timestamp="time")),
        RIGHT,
    )
    yield Advice(
        "no sink in a mapping",
        lambda: pipeline(sink={}),
        "for none give sink=None",
        lambda: pipeline(sink=None, discard_closed=True).run(engine="embedded").rows,
        6,
    )
    yield Advice(
        "a list of sinks",
        lambda: pipeline(sink=[MemorySink(), FileSink("memory://advice-list")]),
        "give the names, sink={'one': ..., 'another': ...}",
        lambda: [*pipeline(sink={"one": MemorySink(), "another": FileSink("memory://advice-list")}).sinks],
        ["one", "another"],
    )
    twice = MemorySink()
    yield Advice(
        "a sink twice",
        lambda: pipeline(sink={"a": twice, "b": twice}),
        "Omit one",
        lambda: run(sink=MemorySink()),
        RIGHT,
    )
    for name, options in {
        "a sink": {"sink": MemorySink()},
        "a folder": {"sink": FileSink("memory://advice-closed")},
        "dropped": {"sink": None, "discard_closed": True},
    }.items():
        yield Advice(
            f"windows without a sink, {name}",
            lambda: pipeline(sink=None),
            "sink=FileSink(...) or MemorySink(); or discard_closed=True",
            lambda options=options: pipeline(**options).run(engine="embedded").rows,
            6,
        )
    yield Advice(
        "published and dropped",
        lambda: pipeline(discard_closed=True),
        "omit one of them",
        lambda: run(discard_closed=False),
        RIGHT,
    )
    yield Advice(
        "late records of a state that has none",
        lambda: pipeline(task(state=NonWindowState(Count())), late_sink=MemorySink()),
        "omit it",
        state(lambda: NonWindowState(Count())),
        RIGHT,
    )
    yield Advice(
        "a table of late records",
        lambda: pipeline(late_sink=SqliteSink("late.db", "late", mode="upsert")),
        'mode="append"',
        lambda: run(late_sink=SqliteSink("late.db", "late", mode="append")),
        RIGHT,
    )
    yield Advice(
        "a sink in the folder of the source",
        after(lambda: files("a.csv", *CSV), lambda: run(None, FileSource(".", timestamp="time"))),
        "Narrow the path of the source to a folder, or a pattern",
        lambda: run(None, FileSource("views/*.csv", timestamp="time")),
        RIGHT,
    )
    yield Advice(
        "metrics nowhere",
        lambda: PrometheusMetrics(),
        "such as '127.0.0.1:9464'",
        lambda: repr(PrometheusMetrics("127.0.0.1:9464")),
        "PrometheusMetrics('127.0.0.1:9464')",
    )
    yield Advice(
        "a checkpoint and a clock",
        lambda: pipeline().state(at=1, as_of=0),
        "give one of them",
        after(run, lambda: pipeline().state(at=3).num_rows),
        0,
    )


def of_tasks() -> Iterator[Advice]:
    yield Advice(
        "no method",
        lambda: pipeline(
            type("Visits", (PersistentTask,), {"persistent_state": Visits.persistent_state, "state": None})()
        ),
        "def process_message(self, state, message): state.update(message.timestamp, 1)",
        lambda: run(task(lambda state, message: state.update(message.timestamp, 1))),
        RIGHT,
    )
    yield Advice(
        "no state",
        lambda: pipeline(
            type("Visits", (PersistentTask,), {"process_message": Visits.process_message, "key": "page"})()
        ),
        'return WindowState(Count(), tumbling("1 min"))',
        state(lambda: WindowState(Count(), tumbling("1 min"))),
        RIGHT,
    )
    yield Advice(
        "a monoid as state",
        lambda: pipeline(task(state=Count())),
        "return a WindowState or a NonWindowState",
        state(lambda: NonWindowState(Count())),
        RIGHT,
    )
    yield Advice(
        "a class as monoid",
        lambda: NonWindowState(Count),
        "give for example Count()",
        state(lambda: NonWindowState(Count())),
        RIGHT,
    )
    yield Advice(
        "a state whose name has a blank",
        lambda: pipeline(task(state={"my total": NonWindowState(Count())}), sink=None),
        "use letters, digits and . _",
        lambda: counted(
            pipeline(
                task(
                    lambda state, message: state["my_total"].update(message.timestamp, 1),
                    {"my_total": NonWindowState(Count())},
                ),
                sink={"my_total": MemorySink()},
            )
        ),
        RIGHT,
    )
    several = {"total": NonWindowState(Count()), "minutes": WindowState(Count(), MINUTE)}
    yield Advice(
        "one sink of several states",
        lambda: pipeline(task(state=several)),
        "give the sinks by state, sink={'total': ...}",
        lambda: counted(
            pipeline(
                task(lambda state, message: state["total"].update(message.timestamp, 1), several),
                sink={"total": MemorySink(), "minutes": MemorySink()},
            )
        ),
        RIGHT,
    )
    yield Advice(
        "an update of none of several states",
        lambda: run(task(state=several), sink={"total": MemorySink(), "minutes": MemorySink()}),
        "state['total']",
        lambda: counted(
            pipeline(
                task(lambda state, message: state["total"].update(message.timestamp, 1), several),
                sink={"total": MemorySink(), "minutes": MemorySink()},
            )
        ),
        RIGHT,
    )
    yield Advice(
        "a column twice",
        lambda: pipeline(task(key=("page", "page"))),
        "name each once",
        lambda: run(task(key=("page",))),
        RIGHT,
    )
    for name, key in {"named": "page", "made": {"page": lambda message: message.value["page"]}}.items():
        yield Advice(
            f"a field that is not there, {name}",
            lambda: run(task(key="pagee")),
            'Name one of them, or make the key: key = {"name": lambda message: ...}',
            lambda key=key: run(task(key=key)),
            RIGHT,
        )
    yield Advice(
        "a function as key",
        lambda: pipeline(task(key=staticmethod(lambda message: message.value["page"]))),
        'give key = {"name": lambda message: ...}',
        lambda: run(task(key={"page": lambda message: message.value["page"]})),
        RIGHT,
    )
    for name, key in {"one": "page", "made": {"page": lambda message: message.value["page"]}}.items():
        yield Advice(
            f"a number as key, {name}",
            lambda: pipeline(task(key=7)),
            'name a field, key = "page"; several, key = ("page", "user"); or make it, key = {"name": lambda message',
            lambda key=key: run(task(key=key)),
            RIGHT,
        )
    for name, given in {
        "a function": {"key": {"page": lambda message: message.value["page"]}},
        "each update": {
            "key": {"page": None},
            "process": lambda state, message: state.update(message.timestamp, 1, key=message.value["page"]),
        },
    }.items():
        yield Advice(
            f"a field as function, {name}",
            lambda: pipeline(task(key={"page": "page"})),
            "give lambda message: message.value['page']; None if every update gives it with key=",
            lambda given=given: run(task(**given)),
            RIGHT,
        )
    nested = [{**row, "page": [row["page"]]} for row in ROWS]
    yield Advice(
        "a list as key",
        lambda: run(None, MemorySource(nested)),
        "Or convert it: key = {'page': lambda message: ...}",
        lambda: run(task(key={"page": lambda message: message.value["page"][0]}), MemorySource(nested)),
        RIGHT,
    )
    yield Advice(
        "a key that no update gives",
        lambda: run(task(key={"word": None})),
        "state.update(..., key=...)",
        lambda: run(
            task(
                lambda state, message: state.update(message.timestamp, 1, key=message.value["page"]), key={"word": None}
            )
        ),
        RIGHT,
    )
    yield Advice(
        "a key that the task does not have",
        lambda: run(task(update(key="a"), key=None)),
        "declare it, for example key = {'word': None}",
        lambda: run(
            task(
                lambda state, message: state.update(message.timestamp, 1, key=message.value["page"]), key={"word": None}
            )
        ),
        RIGHT,
    )
    yield Advice(
        "a key of two parts for one of three",
        lambda: run(task(update(key=("a",)), key=("page", "n"))),
        "give a tuple of 2, in the order page, n",
        lambda: len(
            run(task(lambda state, message: state.update(message.timestamp, 1, key=("a", 1)), key=("page", "n")))
        ),
        1,
    )

    def yielding(self: Any, state: Any, message: Any) -> Any:
        yield state.update(message.timestamp, 1)

    async def waiting(self: Any, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)

    yield Advice(
        "a method that yields",
        lambda: pipeline(task(process_message=yielding)),
        "updates the state and returns None",
        run,
        RIGHT,
    )
    yield Advice(
        "an async method", lambda: pipeline(task(process_message=waiting)), "write it without async", run, RIGHT
    )
    yield Advice(
        "a method that returns",
        lambda: run(task(lambda state, message: 1)),
        "it updates the state and returns None",
        run,
        RIGHT,
    )
    for name, time in {
        "the message's": lambda m: m.timestamp,
        "rounded": lambda m: round(1000 * (m.timestamp / 1000)),
    }.items():
        yield Advice(
            f"a time in seconds, {name}",
            lambda: run(task(lambda state, message: state.update(message.timestamp / 1000, 1))),
            "give message.timestamp, or round(1000 * seconds)",
            lambda time=time: run(task(lambda state, message: state.update(time(message), 1))),
            RIGHT,
        )
    yield Advice(
        "time and value swapped",
        lambda: run(task(lambda state, message: state.update(1, message.timestamp))),
        "state.update(timestamp, value)",
        run,
        RIGHT,
    )
    for name, ahead in {"far ahead": 10**12, "behind": -1_600_000_000_000}.items():
        yield Advice(
            f"a time that is not the message's, {name}",
            lambda ahead=ahead: run(
                task(lambda state, message: state.update(message.timestamp + ahead * (message.value["n"] > 3), 1)),
                step_rows=2,
            ),
            "update at the message's own timestamp",
            lambda: run(task(lambda state, message: state.update(message.timestamp, 1)), step_rows=2),
            RIGHT,
        )
    yield Advice(
        "a state that is read",
        lambda: run(task(lambda state, message: state.get(), NonWindowState(Count()))),
        "read it with pipeline.state()",
        after(
            state(lambda: NonWindowState(Count())),
            lambda: {
                row["page"]: row["value"] for row in pipeline(task(state=NonWindowState(Count()))).state().to_pylist()
            },
        ),
        RIGHT,
    )
    for name, given in {
        "one": task(update(1)),
        "a record": task(update({"count": 1}), WindowState(record(count=Count()), MINUTE)),
    }.items():
        yield Advice(
            f"a mapping that is counted, {name}",
            lambda: run(task(update({"visits": 1}))),
            "Give 1, as in state.update(timestamp, 1); or let the state be a record, as in record(count=Count())",
            lambda given=given: [row if isinstance(row, int) else row["count"] for row in run(given).values()],
            [4, 2],
        )
    yield Advice(
        "a field as attribute",
        lambda: run(
            task(lambda state, message: state.update(message.timestamp, message.n), WindowState(Sum(), MINUTE))
        ),
        "message.value['n']",
        lambda: run(
            task(lambda state, message: state.update(message.timestamp, message.value["n"]), WindowState(Sum(), MINUTE))
        ),
        {"a": 8, "b": 7},
    )
    yield Advice(
        "a batch without keys",
        lambda: run(batches(lambda state, batch: state.update_batch(batch.timestamps + 1, 1))),
        "only with the timestamps of a batch itself (batch.timestamps, or those of batch.filter(mask))",
        lambda: run(batches(lambda state, batch: state.update_batch(batch.timestamps, 1))),
        RIGHT,
    )
    for name, keys in {"message.key": lambda message: {"key": message.key}}.items():
        yield Advice(
            f"an update in a batch, {name}",
            lambda: run(
                batches(lambda state, batch: [state.update(m.timestamp, 1) for m in batch.messages()] and None)
            ),
            "key=message.key",
            lambda keys=keys: run(
                batches(
                    lambda state, batch: [state.update(m.timestamp, 1, **keys(m)) for m in batch.messages()] and None
                )
            ),
            RIGHT,
        )


def of_states() -> Iterator[Advice]:
    yield Advice(
        "windows of a sum in order",
        lambda: pipeline(task(state=WindowState(ordered(), sliding("1 min", every="30 s")))),
        "set commutative = True in its class",
        lambda: (
            pipeline(task(update("x"), WindowState(commuting(), sliding("1 min", every="30 s"))))
            .run(engine="embedded")
            .rows
        ),
        6,
    )
    yield Advice(
        "a history in order",
        lambda: NonWindowState(ordered(), history="1 h"),
        "Omit history",
        lambda: run(task(update("x"), NonWindowState(ordered())))["b"],
        ["x", "x"],
    )
    for name, options in {
        "its class": {"monoid": commuting()},
        "for ever": {"ttl": None},
    }.items():
        yield Advice(
            f"lives in order, {name}",
            lambda: NonWindowState(ordered(), ttl="1 day"),
            "set commutative = True in its class; First, Last, MinBy and MaxBy keep an order, and commute. Or omit ttl",
            lambda options=options: (
                pipeline(
                    task(update("x"), NonWindowState(**{"monoid": ordered(), "ttl": "1 day", **options})), sink=None
                )
                .run(engine="embedded")
                .rows
            ),
            6,
        )
    yield Advice(
        "no life",
        lambda: NonWindowState(Count(), ttl=0),
        'such as ttl="7 days", or omit ttl',
        state(lambda: NonWindowState(Count(), ttl="7 days")),
        RIGHT,
    )
    for name, options in {"ttl": {"ttl": "1 day"}, "history": {"history": "1 h"}}.items():
        yield Advice(
            f"lives and a history, {name}",
            lambda: NonWindowState(Count(), ttl="1 day", history="1 h"),
            "omit one of them",
            state(lambda options=options: NonWindowState(Count(), **options)),
            RIGHT,
        )
    yield Advice(
        "no grid",
        lambda: NonWindowState(Count(), interval_ms=0),
        "at least 1 ms",
        state(lambda: NonWindowState(Count(), interval_ms=1)),
        RIGHT,
    )
    windows = partial(WindowState, Count(), MINUTE)
    for option, wrong, words, right in (
        ("late", "ignore", "choose one of accumulate", {"late": "accumulate", "allowed_lateness": "1 min"}),
        ("emit", "changes", "choose one of close, final, change", {"emit": "change"}),
        ("changes", "all", "choose one of update, retract", {"emit": "change", "changes": "update"}),
        ("early", 0, "at least 1 ms", {"early": "1 ms"}),
        ("changes", "retract", 'add emit="change"', {"emit": "change", "changes": "retract"}),
        ("changes", "retract", "or omit changes", {}),
    ):
        yield Advice(
            f"{option}={wrong!r}, {'; '.join(right)}",
            lambda option=option, wrong=wrong: windows(**{option: wrong}),
            words,
            state(lambda right=right: windows(**right)),
            RIGHT,
        )
    for wrong, words, right in (
        ({"emit": "change", "late": "accumulate"}, "omit late", {"emit": "change", "changes": "update"}),
        (
            {"emit": "final", "late": "accumulate", "allowed_lateness": "1 min"},
            "omit one of them",
            {"emit": "final", "allowed_lateness": "1 min"},
        ),
        (
            {"emit": "final", "late": "accumulate", "allowed_lateness": "1 min"},
            "omit one of them",
            {"late": "accumulate", "allowed_lateness": "1 min"},
        ),
        ({"emit": "change", "early": "1 min"}, "omit one of them", {"emit": "change"}),
        ({"emit": "change", "early": "1 min"}, "omit one of them", {"early": "1 min"}),
    ):
        yield Advice(
            f"{' and '.join(wrong)}, {'; '.join(right)}",
            lambda wrong=wrong: windows(**wrong),
            words,
            state(lambda right=right: windows(**right)),
            RIGHT,
        )
    sessions = partial(WindowState, Count(), session("1 min", cut="1 h"))
    for wrong, words, right in (
        ({"emit": "change", "changes": "update"}, 'use changes="retract"', {"emit": "change", "changes": "retract"}),
        ({"emit": "change", "changes": "update"}, "omit changes=", {"emit": "change"}),
        (
            {"late": "accumulate", "allowed_lateness": "1 min"},
            'use late="retract"',
            {"late": "retract", "allowed_lateness": "1 min"},
        ),
        ({"late": "accumulate", "allowed_lateness": "1 min"}, "omit late=", {"allowed_lateness": "1 min"}),
        (
            {"late": "accumulate", "allowed_lateness": "1 min"},
            'emit="final"',
            {"allowed_lateness": "1 min", "emit": "final"},
        ),
        ({"interval_ms": 7}, "omit interval_ms=", {}),
    ):
        yield Advice(
            f"sessions with {', '.join(wrong)}: {words}",
            lambda wrong=wrong: sessions(**wrong),
            words,
            state(lambda right=right: sessions(**right)),
            RIGHT,
        )
    yield Advice(
        "a gap beyond the cut",
        lambda: session("2 h", cut="1 h"),
        "give a longer cut",
        state(lambda: WindowState(Count(), session("2 h", cut="3 h"))),
        RIGHT,
    )
    yield Advice(
        "a unit that no calendar has",
        lambda: calendar("fortnight"),
        "for windows of a fixed length use tumbling(size)",
        state(lambda: WindowState(Count(), tumbling("2 weeks"))),
        RIGHT,
    )
    yield Advice(
        "a city as zone",
        lambda: calendar("day", tz="Berlin"),
        "give a name such as 'Europe/Berlin' or 'UTC'",
        state(lambda: WindowState(Count(), calendar("day", tz="Europe/Berlin"))),
        RIGHT,
    )
    yield Advice(
        "a class as assigner",
        lambda: assigned(Halves),
        "give an instance, Halves()",
        state(lambda: WindowState(Count(), assigned(Halves()))),
        {"a": 4, "b": 2},
    )

    def added() -> PersistentTask:
        return task(state=windows(allowed_lateness="1 min", late="retract"))

    yield Advice(
        "a table of retractions",
        lambda: pipeline(
            task(state=windows(allowed_lateness="1 min", late="retract")), sink=SqliteSink("r.db", "t", mode="upsert")
        ),
        'mode="append"',
        lambda: (
            pipeline(
                task(state=windows(allowed_lateness="1 min", late="retract")),
                sink=SqliteSink("r.db", "t", mode="append"),
            )
            .run(engine="embedded", end_of_input=True)
            .outputs
        ),
        2,
    )


def of_dedupe() -> Iterator[Advice]:
    copies = [*ROWS, *ROWS[:2]]
    yield Advice(
        "a flag",
        lambda: pipeline(dedupe=True),
        'give Dedupe(origin="sender", sequence="number")',
        lambda: run(None, MemorySource(copies), dedupe=Dedupe(origin="page", sequence="n")),
        RIGHT,
    )
    yield Advice(
        "a source that is not there",
        lambda: pipeline(dedupe={"clicks": Dedupe.by_id("n")}),
        "the sources are memory",
        lambda: run(None, MemorySource(copies), dedupe={"memory": Dedupe.by_id("n")}),
        RIGHT,
    )
    yield Advice(
        "a column that is not there",
        lambda: run(dedupe=Dedupe.by_id("id")),
        "its columns are ts, page, n",
        lambda: run(None, MemorySource(copies), dedupe=Dedupe.by_id("n")),
        RIGHT,
    )
    yield Advice(
        "no time within",
        lambda: Dedupe.by_id("n", within=0),
        'give for example "15 min"',
        lambda: run(None, MemorySource(copies), dedupe=Dedupe.by_id("n", within="15 min")),
        RIGHT,
    )
    lines = [*CSV, CSV[1], CSV[2]]
    for kind in ("string", "int64"):
        schema = {"time": "string", "page": "string", "n": kind}
        yield Advice(
            f"numbers from text, {kind}",
            lambda: run(None, files("a.csv", *lines), dedupe=Dedupe.by_id("n")),
            f'{{..., "n": "{kind}"}}',
            lambda schema=schema: run(None, files("a.csv", *lines, schema=schema), dedupe=Dedupe.by_id("n")),
            RIGHT,
        )


def of_sources() -> Iterator[Advice]:
    yield Advice(
        "no file", lambda: run(None, FileSource("vews", timestamp="time")), "check the path", read("a.csv", *CSV), RIGHT
    )
    for name, source in {"format": {"format": "csv"}, "path": {}}.items():
        yield Advice(
            f"an ending that is none, {name}",
            read("a.txt", *CSV),
            "give format=, or narrow the path",
            (lambda: run(None, FileSource("views", timestamp="time", format="csv")))
            if source
            else after(
                lambda: Path("views/b.csv").write_text("\n".join(CSV) + "\n"),
                lambda: run(None, FileSource("views/*.csv", timestamp="time")),
            ),
            RIGHT,
        )
    yield Advice(
        "a format that is none",
        lambda: FileSource("views", timestamp="time", format="tsv"),
        "it is one of None, 'parquet', 'json', 'jsonl', 'ndjson', 'csv'",
        read("a.txt", *CSV, format="csv"),
        RIGHT,
    )
    yield Advice(
        "a column of times that is not there",
        read("a.csv", *CSV, timestamp="when"),
        "Give timestamp= with one of them",
        read("a.csv", *CSV, timestamp="time"),
        RIGHT,
    )
    seconds = ["time,page,n", *(f"{row['ts'] // 1000},{row['page']},{row['n']}" for row in ROWS)]
    yield Advice(
        "seconds without a unit",
        read("a.csv", *seconds),
        "give their unit: timestamp_unit='s'",
        read("a.csv", *seconds, timestamp_unit="s"),
        RIGHT,
    )
    semicolons = [line.replace(",", ";") for line in CSV]
    yield Advice(
        "semicolons", read("a.csv", *semicolons), "give delimiter=';'", read("a.csv", *semicolons, delimiter=";"), RIGHT
    )
    yield Advice(
        "a delimiter of two characters",
        lambda: FileSource("views", timestamp="time", delimiter="; "),
        "give for example delimiter=';'",
        read("a.csv", *semicolons, delimiter=";"),
        RIGHT,
    )
    yield Advice(
        "an encoding that nobody knows",
        lambda: FileSource("views", timestamp="time", encoding="latin-99"),
        "as 'cp1252' or 'utf-8'",
        read("a.csv", *CSV, encoding="cp1252"),
        RIGHT,
    )
    lines = [f'{{"time": "2024-05-06T10:00:0{n}Z", "page": "{"aab"[n % 3]}", "n": {n}}}' for n in range(6)]
    yield Advice(
        "an option of another format",
        read("a.jsonl", *lines, delimiter=";"),
        "is an option of CSV, but the files are json: omit it",
        read("a.jsonl", *lines),
        RIGHT,
    )
    yield Advice(
        "a schema without the time",
        read("a.csv", *CSV, schema={"page": "string"}),
        "schema={'time': 'string', ...}",
        read("a.csv", *CSV, schema={"time": "string", "page": "string"}),
        RIGHT,
    )
    for name, source in {"csv": "views/*.csv", "jsonl": "views/*.jsonl"}.items():
        yield Advice(
            f"two formats, {name}",
            after(lambda: files("a.csv", *CSV), read("b.jsonl", *lines)),
            "narrow the path to files of one format",
            lambda source=source: run(None, FileSource(source, timestamp="time")),
            RIGHT,
        )
    yield Advice(
        "no rows at all",
        lambda: MemorySource("a"),
        "give a list of mappings or an Arrow table",
        lambda: run(None, MemorySource(ROWS)),
        RIGHT,
    )
    yield Advice(
        "rows that are none",
        lambda: run(None, MemorySource([("a", 1)])),
        "[{'ts': 1714557600000, 'page': '/home'}]",
        lambda: run(None, MemorySource([{"ts": 1714557600000, "page": "/home"}])),
        {"/home": 1},
    )
    yield Advice(
        "another list than before",
        after(run, lambda: run(None, MemorySource(ROWS[:2]))),
        "give it the same list again, rows may only be appended",
        lambda: pipeline(None, MemorySource(ROWS), checkpoint="again").run(engine="embedded").rows,
        6,
    )
    kept = {"sink": None, "discard_closed": True}
    yield Advice(
        "another unit than before",
        after(
            lambda: pipeline(None, files("a.csv", *seconds, timestamp_unit="s"), **kept).run(engine="embedded"),
            lambda: run(None, FileSource("views", timestamp="time", timestamp_unit="ms")),
        ),
        "Give timestamp_unit='s' again",
        lambda: (
            pipeline(None, FileSource("views", timestamp="time", timestamp_unit="s"), **kept)
            .run(engine="embedded")
            .rows
        ),
        0,
    )


def of_checkpoints() -> Iterator[Advice]:
    plain = partial(task, state=NonWindowState(record(n=Count())), process=update({"n": 1}))

    def named(name: str) -> PersistentTask:
        return task(update({name: 1}), NonWindowState(record(**{name: Count()})))

    def first() -> object:
        return pipeline(plain(), sink=None).run(engine="embedded")

    yield Advice(
        "a field with a new name",
        after(first, lambda: run(named("visits"), evolve=Evolution(removed=["m"]), sink=None)),
        "n",
        lambda: (
            pipeline(named("visits"), evolve=Evolution(renamed={"n": "visits"}), sink=None).run(engine="embedded").rows
        ),
        0,
    )
    yield Advice(
        "another monoid: its old one",
        after(first, lambda: run(named("visits"))),
        "Restore the old task",
        lambda: pipeline(plain(), sink=None).run(engine="embedded").rows,
        0,
    )
    yield Advice(
        "another monoid: a migration",
        after(
            lambda: pipeline(plain(), sink=None).run(engine="embedded"),
            lambda: pipeline(named("visits"), sink=None).run(engine="embedded"),
        ),
        "migrate its state, Pipeline(evolve=Evolution(...))",
        after(
            lambda: pipeline(named("visits"), evolve=Evolution(renamed={"n": "visits"}), sink=None).run(
                engine="embedded"
            ),
            lambda: {row["page"]: row["visits"] for row in pipeline(named("visits"), sink=None).state().to_pylist()},
        ),
        RIGHT,
    )
    yield Advice(
        "another monoid: a new checkpoint",
        after(first, lambda: run(named("visits"))),
        "give the new task a new checkpoint, and read the source again",
        lambda: [row["visits"] for row in run(named("visits"), checkpoint="new").values()],
        [4, 2],
    )

    def orders() -> PersistentTask:
        return type("Orders", (Visits,), {})(NonWindowState(Count()))

    yield Advice(
        "another job: a checkpoint of its own",
        after(run, lambda: run(orders())),
        "Give this pipeline a checkpoint of its own",
        lambda: run(orders(), checkpoint="orders"),
        RIGHT,
    )
    yield Advice(
        "another job: its old name",
        after(run, lambda: run(orders(), sink=None)),
        "or the task its old name",
        lambda: (
            pipeline(type("Orders", (Visits,), {"name": "Visits"})(), sink=None, discard_closed=True)
            .run(engine="embedded")
            .rows
        ),
        0,
    )
    yield Advice(
        "another job: dropped",
        after(
            lambda: pipeline(sink=None, discard_closed=True).run(engine="embedded"), lambda: run(orders(), sink=None)
        ),
        "Pipeline(allow_dropped=['Visits'])",
        lambda: pipeline(orders(), sink=None, allow_dropped=["Visits"]).run(engine="embedded").rows,
        0,
    )

    def two(*names: str) -> dict[str, MemorySource]:
        return {name: MemorySource(ROWS) for name in names}

    yield Advice(
        "a source with a new name",
        after(lambda: run(None, two("clicks", "orders")), lambda: run(None, two("clicks", "sales"))),
        "source={'orders': ...}",
        lambda: pipeline(None, two("clicks", "orders"), sink=None, discard_closed=True).run(engine="embedded").rows,
        0,
    )
    lost = after(run, lambda: run(checkpoint="checkpoint"))
    yield Advice(
        "rows in the memory of another process: a new checkpoint",
        lost,
        'start a new checkpoint, with a FileSink("results", format="jsonl")',
        lambda: (
            pipeline(sink=FileSink("results", format="jsonl"), checkpoint="new")
            .run(engine="embedded", end_of_input=True)
            .outputs
        ),
        2,
    )
    yield Advice(
        "rows in the memory of another process: a copy",
        after(run, lambda: pipeline(sink=FileSink("results")).run(engine="embedded")),
        "at once in a new checkpoint that starts from this one",
        lambda: (
            pipeline(sink=FileSink("results"), checkpoint="new", start_from="checkpoint").run(engine="embedded").rows
        ),
        0,
    )
    yield Advice(
        "a savepoint that is not there",
        lambda: run(start_from="nowhere"),
        "make it again",
        after(lambda: run(), lambda: pipeline(checkpoint="copy", start_from="checkpoint").run(engine="embedded").rows),
        0,
    )
    yield Advice(
        "a checkpoint that began otherwise",
        after(
            run, after(lambda: run(checkpoint="other"), lambda: run(start_from="other", sink=None, discard_closed=True))
        ),
        "Omit start_from to continue this checkpoint",
        lambda: pipeline(sink=None, discard_closed=True).run(engine="embedded").rows,
        0,
    )
    yield Advice(
        "a savepoint of the same name",
        after(run, lambda: [operations.savepoint(pipeline().storage, "monday") for _ in range(2)]),
        "choose another",
        lambda: str(operations.savepoint(pipeline().storage, "tuesday"))[:0],
        "",
    )


def of_commands() -> Iterator[Advice]:
    yield Advice(
        "a file without a name",
        on_job(refused("run", "job.py")),
        "as in job.py:pipeline",
        lambda: "6 rows" in ok("explain", "job.py:pipeline") or "6 records read" in ok("explain", "job.py:pipeline"),
        True,
    )
    yield Advice(
        "a name that is not there",
        on_job(refused("explain", "job.py:pipelin")),
        "its pipelines: pipeline",
        lambda: ok("explain", "job.py:pipeline")[:8],
        "pipeline",
    )
    yield Advice(
        "a file that is not there",
        on_job(refused("explain", "jobb.py:pipeline")),
        "job.py is there",
        lambda: ok("explain", "job.py:pipeline")[:8],
        "pipeline",
    )
    yield Advice(
        "the state of a folder",
        on_job(refused("state", "checkpoint")),
        "give the pipeline as FILE.py:NAME",
        lambda: "a" in ok("state", "job.py:pipeline"),
        True,
    )
    yield Advice(
        "a checkpoint that is not kept",
        on_job(refused("show", "checkpoint", "99")),
        "it keeps ",
        lambda: "checkpoint" in ok("show", "checkpoint", "2"),
        True,
    )
    yield Advice(
        "nowhere to go back to",
        on_job(refused("rollback", "checkpoint", "--outputs", "retract")),
        "either its ID, or --clock",
        lambda: bool(ok("rollback", "checkpoint", "1", "--outputs", "retract")),
        True,
    )
    yield Advice(
        "a window that is none",
        on_job(refused("state", "job.py:pipeline", "--window", "2023-11-14T22:13:25Z")),
        "the previous one starts at 2023-11-14 22:13:00Z",
        lambda: "a" in ok("state", "job.py:pipeline", "--window", "2023-11-14T22:13:00Z"),
        True,
    )
    yield Advice(
        "a key in JSON without quotes",
        on_job(refused("state", "job.py:pipeline", "--key-json", "a")),
        "Put text in quotes, as in '\"de\"'",
        lambda: "a" in ok("state", "job.py:pipeline", "--key-json", '"a"'),
        True,
    )
    for name, words in {"--format": ("state.txt", "--format", "json"), "an ending": ("state.json",)}.items():
        yield Advice(
            f"a table in a file, {name}",
            on_job(refused("state", "job.py:pipeline", "--output", "state.txt")),
            "give --format json, parquet or arrow",
            lambda words=words: ok("state", "job.py:pipeline", "--output", *words),
            "",
        )
    yield Advice(
        "an error that is none",
        refused("why", "CorruptCheckpont"),
        "Did you mean CorruptCheckpoint",
        lambda: ok("why", "CorruptCheckpoint").split()[0],
        "CorruptCheckpoint",
    )
    yield Advice(
        "a difference of nothing",
        on_job(refused("diff", "checkpoint")),
        "diff takes TARGET ID",
        lambda: bool(ok("diff", "checkpoint", "2")),
        True,
    )


def of_places() -> Iterator[Advice]:
    yield Advice(
        "no place",
        lambda: pipeline(checkpoint=""),
        "give the path of a folder",
        lambda: run(checkpoint="visits-checkpoint"),
        RIGHT,
    )
    yield Advice(
        "a blank at the end",
        lambda: pipeline(checkpoint="visits "),
        "remove it",
        lambda: run(checkpoint="visits"),
        RIGHT,
    )
    yield Advice(
        "a blank that is meant",
        lambda: pipeline(checkpoint="visits "),
        "give its absolute path",
        lambda: run(checkpoint=f"{Path.cwd()}/visits "),
        RIGHT,
    )
    for name, place in {"coded": "file://{}/a%23b", "path": "{}/a#b"}.items():
        yield Advice(
            f"a fragment, {name}",
            lambda: pipeline(checkpoint=f"file://{Path.cwd()}/a#b"),
            "Write %23 for it or, without file://, the path",
            lambda place=place: run(checkpoint=place.format(Path.cwd())),
            RIGHT,
        )
    yield Advice(
        "a host",
        lambda: pipeline(checkpoint="file://host/a"),
        "Give file:/// and the path",
        lambda: run(checkpoint=f"file:///{Path.cwd()}/a"),
        RIGHT,
    )


TABLE = [
    advice
    for rows in (of_pipelines, of_tasks, of_states, of_dedupe, of_sources, of_checkpoints, of_commands, of_places)
    for advice in rows()
]


@pytest.mark.parametrize("advice", TABLE, ids=repr)
def test_an_advice_works_on_the_input_that_raised_the_error(here: Path, advice: Advice) -> None:
    """An advice that does not work costs more than an error without one."""
    with pytest.raises((PersistentError, TypeError, ValueError)) as told:
        advice.fails()
    assert advice.says in " ".join(str(told.value).split())
    assert advice.works() == advice.right
