"""``persistent laws``: the laws of one monoid on the command line, as a user types it."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from monoids import Sum
from monoids.laws import laws_of
from persistent.tools.cli import main

SUMS = """
from hypothesis import strategies
from monoids import Count, Monoid, Sum, record
from persistent import FileSource, NonWindowState, PersistentTask, Pipeline


class Longest(Monoid[str]):
    identity = ""
    commutative = True

    def combine(self, a: str, b: str) -> str:
        return b if len(b) > len(a) else a


class Boom(Monoid[int]):
    identity = 0

    def combine(self, a: int, b: int) -> int:
        raise KeyError("boom")


class Untyped(Monoid):
    identity = 0

    def combine(self, a, b):
        return a + b


class Capped(Monoid[int]):
    def __init__(self, most):
        self.most = most

    identity = 0

    def lift(self, value):
        return min(value, self.most)

    def combine(self, a, b):
        return min(a + b, self.most)


class Totals(PersistentTask):
    key = "page"

    def persistent_state(self):
        return NonWindowState(record(rows=Count(), total=Sum()))

    def process_message(self, state, message):
        state.update(message.timestamp, {"rows": 1})


class Parcel:
    def __init__(self, grams: "Kilos"):
        self.grams = grams


class Silent(Monoid):
    identity = 0

    def lift(self, parcel):
        return parcel.grams

    def combine(self, a, b):
        return a + b


class Anything(Silent):
    def lift(self, parcel: object):
        return parcel.grams


class Unread(Silent):
    def lift(self, parcel: "Parcels"):
        return parcel.grams


class Weight(Silent):
    def lift(self, parcel: Parcel):
        return parcel.grams


class Keyed(Silent):
    def lift(self, parcel: dict):
        return parcel["grams"]


total = Sum()
capped = (Capped(5), strategies.integers(0, 9))
wrong = (Sum(), strategies.text())
nothing = 3
pipeline = Pipeline(source=FileSource("views/*.csv", timestamp="time"), task=Totals(), checkpoint="checkpoint")


def chosen():
    return Sum(float)
"""


@pytest.fixture
def folder(here: Path) -> Path:
    (here / "sums_of_mine.py").write_text(SUMS)
    return here


def laws(*words: str, examples: int = 20) -> Result:
    return CliRunner().invoke(main, ["laws", *words, "--examples", str(examples)])


def test_lawful_monoid_has_a_table_of_laws(folder: Path) -> None:
    """The table is what is copied into a pull request."""
    result = laws("sums_of_mine.py:total")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    names = [law.name for law in laws_of(Sum())]
    assert [line.split("  ")[0] for line in lines[1 : len(names) + 1]] == names
    assert all(" holds " in line for line in lines[1 : len(names) + 1])
    assert f"Sum(): {len(names)} of {len(names)} laws hold, on 20 examples each" in lines


def test_broken_law_is_shown_with_its_counterexample(folder: Path) -> None:
    """A verdict without the example is not believed."""
    result = laws("sums_of_mine.py:Longest", examples=200)
    assert result.exit_code == 1
    assert "commutativity" in next(line for line in result.stdout.splitlines() if " BROKEN " in line)
    assert "Longest() breaks 'commutativity': combine(a, b) == combine(b, a)\n  a = lift('" in result.stdout
    assert "laws hold" in result.stdout and "Traceback" not in result.output


def test_json_is_one_law_a_line(folder: Path) -> None:
    """A script reads it."""
    result = laws("sums_of_mine:Longest", "--json", examples=200)
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == 1
    (broken,) = [row for row in rows if not row["holds"]]
    assert broken["law"] == "commutativity" and broken["formula"] == "combine(a, b) == combine(b, a)"
    assert broken["examples"] == 200 and broken["violation"].startswith("Longest() breaks")
    assert all(row["violation"] is None for row in rows if row["holds"])


@pytest.mark.parametrize(
    ("name", "monoid"),
    [
        ("pipeline", "record(rows=Count(), total=Sum())"),
        ("Totals", "record(rows=Count(), total=Sum())"),
        ("chosen", "Sum(float)"),
        ("capped", "Capped()"),
    ],
)
def test_monoid_of_a_task_pipeline_function_or_pair(folder: Path, name: str, monoid: str) -> None:
    """The monoid that matters is the one that the pipeline runs with."""
    result = laws(f"sums_of_mine.py:{name}")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1].startswith(f"{monoid}: ")


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("sums_of_mine.py:Untyped", "no inputs are known for Untyped()"),
        ("sums_of_mine.py:Capped", "cannot be created without arguments"),
        ("sums_of_mine.py:wrong", "lift takes none of the drawn inputs"),
        ("sums_of_mine.py:nothing", "is int, not a monoid, nor a task or pipeline"),
        (
            "sums_of_mine.py:missing",
            "has no 'missing'; its monoids: Anything, Boom, Capped, Keyed, Longest, Silent, Unread, ",
        ),
        ("sums_of_mine.py", "name a monoid as FILE.py:NAME or package.module:NAME"),
        ("sums_of_mine.py:Boom", "Boom: combine(identity, identity) raises KeyError"),
        ("sums_of_nobody:total", "No module named 'sums_of_nobody': run the command in the folder that holds it"),
        ("nowhere.py:total", "nowhere.py: no such file"),
    ],
)
def test_what_cannot_be_tried_is_told_in_one_line(folder: Path, target: str, told: str) -> None:
    """A traceback is no answer to a typing error."""
    result = laws(target)
    assert result.exit_code == 1
    assert told in result.stderr
    assert len([line for line in result.stderr.splitlines() if line.startswith("Error: ")]) == 1
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("name", "fault", "helps"),
    [
        ("Untyped", "combine(self, a, b) (sums_of_mine.py line {}) does not give", "combine(self, a: str, b: str)"),
        ("Silent", "lift(self, parcel) (sums_of_mine.py line {}) does not give", "lift(self, parcel: str)"),
        ("Anything", "lift(self, parcel: object) (sums_of_mine.py line {}) does not give", "lift(self, parcel: str)"),
        ("Unread", "the annotations of lift (sums_of_mine.py line {}) cannot be read: name 'Parcels'", "import"),
        (
            "Weight",
            "lift (sums_of_mine.py line {}) takes Parcel, which",
            "register_type_strategy(Parcel,",
        ),
        ("Keyed", "lift takes none of the drawn inputs, such as {{}}", ""),
    ],
)
def test_a_monoid_without_known_inputs_says_where_and_what_to_write(
    folder: Path, name: str, fault: str, helps: str
) -> None:
    """ "Annotate lift(self, value: str)", told to someone whose lift is annotated, is no help; and a call in a test is
    none on the command line."""
    result = laws(f"sums_of_mine.py:{name}")
    assert result.exit_code == 1 and result.stdout == ""
    lines = SUMS.splitlines()
    method = "def combine" if name == "Untyped" else "def lift"
    below = next(number for number, line in enumerate(lines, 1) if line.startswith(f"class {name}("))
    line = next(number for number, line in enumerate(lines, 1) if number > below and method in line)
    (told,) = result.stderr.splitlines()
    assert fault.format(line) in told and helps in told
    assert f"For this command define a pair in the file: tried = ({name}(), strategies.text())" in told


def test_laws_that_are_not_tried_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """It printed "42 of 42 laws hold", on 0 examples, and exited with 0."""
    used = itertools.count(0, 2**40)
    monkeypatch.setattr("monoids.laws.budget._memory", lambda: next(used))
    monkeypatch.setattr("monoids.laws.budget._CHECK_S", -1)
    result = CliRunner().invoke(main, ["laws", "monoids:Sum"])
    last = result.output.strip().splitlines()[-1]
    assert result.exit_code == 1 and "not tried" in result.output
    assert re.fullmatch(
        r"Sum\(\): (\d+) of (\d+) laws hold, on at least \d+ examples each; [1-9]\d* not tried", last
    ), last
