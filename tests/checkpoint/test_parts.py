"""The parts of a manifest: named by our alphabet, added up, and told apart."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from persistent.checkpoint.manifest import check_name
from persistent.checkpoint.output_parts import Aside, SinkBatch, SinkPart
from persistent.checkpoint.parts import (
    Account,
    NodeClock,
    NodePart,
    ReadBefore,
    SeenColumns,
    SeenPart,
    SourcePart,
    default_name,
    total,
)
from persistent.names import STATE, Staged
from persistent.time.clock import Clock
from tests.checkpoint.samples import full_manifest, json_of, node, read_back, run
from tests.single import only

STAGED = (Staged("d/V/x", 1, 1, ""),)


@pytest.mark.parametrize(
    ("kind", "part", "name"),
    [
        ("FileSource", "source", "file"),
        ("MemorySource", "source", "memory"),
        ("FileSink", "sink", "file"),
        ("Source", "source", "source"),
        ("SourceOfAll", "source", "sourceofall"),
        ("FileSink", "source", "filesink"),
        ("", "source", "source"),
        ("é", "sink", "sink"),
        ("_Own Kafka/topic:1", "source", "own-kafka-topic-1"),
        ("-._=@+x", "source", "x"),
        ("k" * 300, "source", "k" * 200),
    ],
)
def test_a_name_that_nobody_gave_is_that_of_the_kind(kind: str, part: str, name: str) -> None:
    """From run to run the same, whatever a kind is called: under another name it is another source."""
    assert default_name(kind, part) == name
    check_name(name, "a name")


SEEN = SeenPart(SeenColumns(("o",), "n"), 10, 20, (run("e1-c1-s"),))


def test_what_was_seen_expires_by_whole_panes_and_never_comes_back() -> None:
    """Too early, and a copy counts again; back, and what is gone by then is taken for new."""
    assert SeenPart(SeenColumns(()), 10).horizon(5, 40) == SeenPart(SeenColumns(()), 10).horizon(49, 40) == 0
    assert SeenPart(SeenColumns(()), 10).horizon(50, 40) == 10 and SeenPart(SeenColumns(()), 10).horizon(79, 40) == 30
    assert SEEN.horizon(0, 40) == SEEN.horizon(69, 40) == 20 and SEEN.horizon(70, 40) == 30


def test_what_was_seen_is_read_as_it_was_written() -> None:
    """A restart that has seen less counts copies."""
    one = SourcePart("MemorySource", ("memory",), {"memory": (0, 7)}, index=(run("e1-c1-i"),), seen=SEEN)
    assert read_back(one) == one and read_back(SEEN) == SEEN
    known = replace(SEEN, kinds={"o": "text"})
    assert read_back(known) == known
    assert one.runs == (run("e1-c1-i"), run("e1-c1-s"))
    plain = replace(one, seen=None)
    assert read_back(plain) == plain
    assert plain.runs == (run("e1-c1-i"),)


def test_how_records_were_read_is_read_as_it_was_written() -> None:
    """They would be verified by another schema than that which counted them."""
    readings = (ReadBefore({"f": (2, 7)}, {"schema": ["a"]}), ReadBefore({}, {}))
    one = SourcePart("FileSource", ("f",), {"f": (3, 0)}, readings=readings)
    assert json_of(one)["readings"] == [
        {"until": {"f": [2, 7]}, "recorded": {"schema": ["a"]}},
        {"until": {}, "recorded": {}},
    ]
    assert read_back(one) == one
    plain = replace(one, readings=())
    assert "readings" not in json_of(plain) and read_back(plain) == plain


def test_a_clock_went_quiet_at_what_its_sources_reached() -> None:
    """It would move on again by what it has moved already."""
    clock = NodeClock(100, quiet_ms=30)
    assert clock.quiet_from(50) == 50 and clock.quiet_from(0) == 70


def test_accounts_add_up() -> None:
    """I9: the ledger is a sum like any other, its mix modulo 2**64."""
    a, b = Account(5, 2, 1, 1, 1, (1 << 64) - 1, 2), Account(10, 4, 1, 2, 3, 3, 5)
    assert a + b == Account(15, 6, 2, 3, 4, 2, 7)
    assert a.balances and (a + b).balances
    assert total([a, b, Account(1)]).fates == {**(a + b).fates, "read": 16}
    assert a.fates == {"read": 5, "processed": 2, "late": 1, "dead": 1, "duplicate": 1, "skipped": 2}
    assert not Account(1).balances
    assert Account() == Account(0, 0, 0, 0, 0, 0, 0)


def test_a_batch_without_files_is_owed_to_nobody() -> None:
    """A run without a sink has discarded its outputs: to ask for that sink, though nothing waits, would end the job."""
    full, empty = SinkBatch(5, None, STAGED), SinkBatch(6, 5, ())
    assert SinkPart((), 6, (full, empty)).owed == (full,) and SinkPart((), 6, (empty,)).owed == ()


@pytest.mark.parametrize("kind", ["late", "dead"])
def test_what_is_set_aside_of_one_kind_is_set_aside(kind: str) -> None:
    """Dead letters without late rows would not be published."""
    assert Aside(1, **{kind: STAGED})
    assert not Aside(1)


def test_what_is_not_said_is_nothing() -> None:
    """A first manifest that began with something would never balance, or publish what nobody counted."""
    assert NodePart({}) == NodePart({}, NodeClock(), (), (), (), None, 0, None)
    assert SinkPart() == SinkPart((), None, ()) and NodeClock() == NodeClock(0, 0, False)
    assert SourcePart("K", (), {}) == SourcePart("K", (), {}, {}, (), None, {}, (), "ordinal-offset/1")


def test_a_clock_has_two_places() -> None:
    """What a task has reached stands with the task; the largest timestamps stand with their source."""
    assert NodeClock.of(Clock(9, 7, {"a": 11}, True)) == NodeClock(9, 7, True)


def test_a_definition_is_the_fingerprint_with_the_key() -> None:
    """A key of another column is another state, though the monoid is the same."""
    one = node({"a": 1}, ("page",), ("string",), runs=(run(),), lowest=3)
    assert one.described() == {"a": 1, "key": ["page"]}


TTL = {"ttl_ms": 10}


def test_sinks_know_only_of_what_was_published() -> None:
    """A key that no sink has would be taken back, or one that a sink has would stay for ever."""
    runs = (run(first=1, last=2), run(first=3, last=4))
    fresh, told = NodePart(TTL, runs=runs), NodePart(TTL, runs=runs, published=2, shown_at=7)
    assert fresh.shown_to(runs) is None and told.shown_to(runs) == told.shown_to(runs[:1]) == 7
    assert told.shown_to(runs[1:]) is None, "no sink has any key of a run that is not published"
    assert told.unpublished().shown_to(runs) == 7, "whoever goes on may have what was published"
    assert fresh.shown_after(9, publishes=True) == told.shown_after(9, publishes=True) == 9
    assert fresh.shown_after(9, publishes=False) is None and told.shown_after(9, publishes=False) == 7
    assert NodePart({}).shown_after(9, publishes=True) is None, "without a time to live nothing expires"


def test_run_0_of_a_savepoint_is_published_anew_under_its_number() -> None:
    """The others were; with another number, a manifest before would describe the same run in another way."""
    runs = (run(first=0, last=0), run(first=1, last=1), run(first=2, last=4))
    node = NodePart({}, runs=runs, published=4)
    assert not node.fresh() and node.unpublished().fresh() == runs


def test_sinks_that_keep_later_outputs_know_no_earlier_end() -> None:
    """What they knew before, they still know; else they may have each key that expires from now on."""
    fresh, plain = node(TTL), node({})
    assert fresh.shown_since(9) == replace(fresh, shown_at=9) and plain.shown_since(9) == plain
    assert replace(fresh, shown_at=7).shown_since(9).shown_at == 7


def test_each_part_is_read_as_it_was_written() -> None:
    """A field forgotten on the way is state, position or output lost at the next restart."""
    one = full_manifest()
    parts = (only(one.sources), only(one.nodes), only(one.sinks), one.aside[0], one.inherits["file"])
    for part in (*parts, SinkBatch(5, None, STAGED)):
        assert read_back(part) == part
    assert re.fullmatch(r"[a-z]+", STATE)
