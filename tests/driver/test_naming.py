"""The names by which a checkpoint knows the sources and sinks of a pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from persistent import (
    FileSink,
    FileSource,
    FunctionSink,
    InvalidPipeline,
    LogSink,
    LogSource,
    MemorySink,
    MemorySource,
    Pipeline,
    SqliteSink,
    then,
)
from persistent.driver.naming import check_columns, check_not_read_back, named_sinks, named_sources
from persistent.names import new_nonce
from persistent.storage import MemoryStorage
from tests.driver.visits import Visits

ONE, OTHER = MemorySource([{"ts": 1}]), MemorySource([{"ts": 2}])


def test_one_is_called_by_its_kind() -> None:
    """A job that is given a second source, or sink, under a name goes on."""
    sink = MemorySink()
    assert named_sources(ONE) == {"memory": ONE}
    assert named_sinks(sink) == {"memory": sink} and named_sinks(None) == {}


def test_a_list_is_refused_with_the_names_to_give() -> None:
    """A place in a list would be a name, which changes if the list does."""
    with pytest.raises(InvalidPipeline, match=r"is a list, .* give the names, source=\{'one': \.\.\.,"):
        named_sources([ONE, OTHER])  # type: ignore[arg-type]
    sinks = (MemorySink(), FileSink("memory://naming"))
    with pytest.raises(InvalidPipeline, match=r"give the names, sink=\{'one': \.\.\.,"):
        named_sinks(sinks)  # type: ignore[arg-type]


def test_a_mapping_names_them() -> None:
    """So that the order in which they are written means nothing."""
    assert named_sources({"clicks": ONE, "orders": OTHER}) == {"clicks": ONE, "orders": OTHER}


@pytest.mark.parametrize("name", ["a/b", "", "-a", ".a", "é", 5, None])
def test_a_name_that_a_checkpoint_cannot_hold_is_refused(name: Any) -> None:
    """The manifest would be refused after the first step was done; and a slash would make two partitions one."""
    for named, part in ((named_sources, ONE), (named_sinks, MemorySink())):
        with pytest.raises(InvalidPipeline, match=r"^(source|sink)=\{.*: \.\.\.\}: "):
            named({name: part})  # type: ignore[arg-type]


def test_an_empty_mapping_names_nothing() -> None:
    """It is a mistake of the program that made it: nothing would be read, or published, and nobody told."""
    with pytest.raises(InvalidPipeline, match="contains no source"):
        named_sources({})
    with pytest.raises(InvalidPipeline, match="contains no sink: for none give sink=None"):
        named_sinks({})


def test_the_same_source_twice_is_refused(tmp_path: Path) -> None:
    """What both read would count twice."""
    paths = (tmp_path / "a.jsonl", tmp_path / "." / "a.jsonl", f"local://{tmp_path}/a.jsonl")
    one, again, url = (FileSource(path, timestamp="ts") for path in paths)
    other = FileSource(tmp_path / "b.jsonl", timestamp="ts")
    logs = [LogSource(tmp_path / "log"), LogSource(tmp_path / "log", max_out_of_orderness=1_000)]
    for two in ((ONE, ONE), (one, again), (one, url), logs):
        with pytest.raises(
            InvalidPipeline, match=r"source: .* and .* are the same, .*: records that both read would count"
        ):
            named_sources(dict(zip("ab", two)))
    assert len(named_sources({"a": one, "b": other, "c": ONE, "d": OTHER})) == 4


def test_the_half_of_a_source_is_not_read_by_another(tmp_path: Path) -> None:
    """Its records would count twice, although the whole is another object."""
    archive = FileSource(tmp_path / "a.jsonl", timestamp="ts")
    both = then(archive, ONE, at=5)
    for two in ({"a": both, "b": FileSource(tmp_path / "a.jsonl", timestamp="ts")}, {"a": ONE, "b": both}):
        with pytest.raises(InvalidPipeline, match="records that both read would count twice"):
            named_sources(two)
    assert list(named_sources({"a": both, "b": OTHER})) == ["a", "b"]


def test_two_sinks_at_one_place_are_refused(tmp_path: Path) -> None:
    """The second would find the mark of the first, and leave out its rows, or two lists for one checkpoint."""
    (tmp_path / "link").symlink_to(tmp_path)
    both: list[Any] = [
        [FileSink(tmp_path / "a"), FileSink(tmp_path / "a", format="jsonl")],
        [FileSink(tmp_path / "a"), FileSink(tmp_path / "link" / "a")],
        [SqliteSink(tmp_path / "db", "t"), SqliteSink(tmp_path / "link" / "db", "T", mode="upsert")],
        [FunctionSink(print), FunctionSink(print)],
        [LogSink(tmp_path / "log"), LogSink(tmp_path / "log")],
    ]
    for two in both:
        with pytest.raises(InvalidPipeline, match=r"are the same, .*: it has one set of rows, and one mark"):
            named_sinks(dict(zip("ab", two)))
    tables = [SqliteSink(tmp_path / "db", name) for name in "tu"]
    assert len(named_sinks(dict(zip("abcd", [FileSink(tmp_path / "a"), FileSink(tmp_path / "b"), *tables])))) == 4


class Half:
    """A source of a user's that subclasses nothing."""

    kind = "Half"


@pytest.mark.parametrize(
    ("part", "given", "says"),
    [
        ("source", MemorySource, r"^source=MemorySource is a class: give an instance, MemorySource\(\.\.\.\)$"),
        ("source", "in/", r"^source='in/' is not a source: use FileSource\('in/', timestamp=\.\.\.\)$"),
        (
            "source",
            Half(),
            r" is not a source: one of your own is a subclass of Source; or use FileSource\(",
        ),
        ("source", 5, r"^source=5 is not a source: use FileSource\(\.\.\.\) or MemorySource\(\.\.\.\)$"),
        ("sink", MemorySink, "^sink=MemorySink is a class"),
        ("sink", "out/", r"^sink='out/' is not a sink: use FileSink\('out/'\)$"),
        ("sink", 5, r"^sink=5 is not a sink: use FileSink\(\.\.\.\), MemorySink\(\) or None$"),
    ],
)
def test_what_is_none_is_told_with_what_to_write(part: str, given: Any, says: str) -> None:
    """Also as the second of a mapping: it would fail in the first step, in words of the driver."""
    good, named = (ONE, named_sources) if part == "source" else (MemorySink(), named_sinks)
    for one in (given, {"good": good, "other": given}):
        with pytest.raises(InvalidPipeline, match=says):
            named(one)  # type: ignore[operator]


class Retracting(MemorySink):
    abilities = MemorySink.abilities - {"retract"}


class Tidy(MemorySink):
    abilities = MemorySink.abilities | {"tidy"}


class Forgetful(MemorySource):
    forgets = True


class Off(MemorySink):
    retract = None  # type: ignore[assignment]


class Tuple(MemorySink):
    abilities = ("newest", "retract", "staged")  # type: ignore[assignment]


class Lists(MemorySource):
    def listed(self, index: Any, recorded: Any) -> Any: ...


@pytest.mark.parametrize(
    ("part", "says"),
    [
        (Retracting(), "the ability 'retract' is written, but not declared"),
        (Tidy(), "the ability 'tidy' is declared, but its method is not written"),
        (Forgetful([{"ts": 1}]), "the ability 'forgets' is declared, but its method is not written"),
        (Off(), "the ability 'retract' is declared, but its method is not written"),
        (Tuple(), r"abilities=\('newest', 'retract', 'staged'\) is no set: write abilities = frozenset"),
        (
            then(Lists([{"ts": 1}]), MemorySource([{"ts": 9}]), at=5),
            "the ability 'lists' is written, but not declared",
        ),
    ],
)
def test_an_ability_is_declared_and_written_or_neither(part: Any, says: str) -> None:
    """A rollback would leave the outputs of a sink whose ``retract`` nobody calls."""
    with pytest.raises(InvalidPipeline, match=says):
        named_sinks(part) if isinstance(part, MemorySink) else named_sources(part)


class Shelf(MemorySink):
    """A sink of a user's that publishes files, and takes no column of the name "value"."""

    def names(self) -> tuple[str, ...]:
        return ("0.shelf",)

    def check_names(self, names: Sequence[str]) -> None:
        if "value" in names:
            raise InvalidPipeline("no value")


class Shelves(MemorySource):
    """A source of a user's that reads such files of every folder."""

    def would_read(self, url: str, names: Iterable[str]) -> bool:
        return "0.shelf" in names


def test_parts_of_a_users_are_asked_as_ours_are() -> None:
    """Results of its own would be its input, or lie among the files of the checkpoint."""
    sink, checkpoint = Shelf(), MemoryStorage(new_nonce())
    check_not_read_back({"a": Shelves([{"ts": 1}])}, {"b": sink}, checkpoint)
    sink.storage = MemoryStorage(new_nonce())
    check_not_read_back({"a": ONE}, {"b": sink}, checkpoint)
    with pytest.raises(InvalidPipeline, match=f"the sink {sink.storage.url} is inside the source MemorySource"):
        check_not_read_back({"a": Shelves([{"ts": 1}])}, {"b": sink}, checkpoint)
    with pytest.raises(InvalidPipeline, match="no value"):
        check_columns(Pipeline(source=ONE, task=Visits(), sink=sink, checkpoint=checkpoint).job())
    sink.storage = checkpoint
    with pytest.raises(InvalidPipeline, match="is the folder of the checkpoint"):
        check_not_read_back({"a": ONE}, {"b": sink}, checkpoint)
