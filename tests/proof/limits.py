"""The section "limits": values at the limits of their types, and folds that raise, for every monoid of the catalogue.

A job is run in pieces: many small steps, drivers of one to three threads that are killed between steps, folds of two
or three runs, compactions by hand. Then the input ends, and for each key and window there is what the left fold of its
values presents, or, where that raises, a dead letter with the key and the window, and nothing else is touched.

    python -m tests.proof --only limits [--seed s] [--scale x]
"""

from __future__ import annotations

import itertools
import json
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import hypothesis
import pyarrow as pa
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st

from monoids import CountMin, ExactSum, HeavyHitters, Mean, Min, Monoid, Product, Sum, mapping, option, record
from monoids.containers.intervals import Sessions
from monoids.fixed import sum_int64
from monoids.laws.instances import INSTANCES
from monoids.numbers.products import IntegerProduct
from monoids.numbers.sums import IntegerSum
from monoids.numbers.wide import WideIntegers
from persistent import (
    MemorySink,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    WindowState,
    session,
    sliding,
    tumbling,
)
from persistent.checkpoint import compaction
from persistent.driver import results
from persistent.engines.embedded import Embedded
from persistent.operations import compact
from persistent.testing.outcome import same
from persistent.time.session_window import SessionWindow
from persistent.verify import verify
from persistent.worker import dispatch, merge_runs, publish_shard
from tests.proof.borders import Gap
from tests.proof.result import Result

HIGH, LOW = 2**63 - 1, -(2**63)
_KEYS = "abc"
_MS = 20_000
_GAP = Gap(_MS + 5_000, 5 * _MS)
_WINDOWS = (None, tumbling(3 * _MS), sliding(3 * _MS, every=_MS), session(_GAP.gap, cut=_GAP.cut))
_FAILURES_MAX = 20
_NAMES = itertools.count()


class Refusing(Monoid[Any]):
    """A user's monoid that knows no sum of two different values."""

    identity = None
    commutative = True
    output_type = pa.int64()

    def combine(self, a: Any, b: Any) -> Any:
        if None not in (a, b) and a != b:
            raise ValueError(f"{a} and {b} cannot be combined")
        return b if a is None else a


EDGES = st.none() | st.sampled_from([HIGH, LOW, HIGH - 1, LOW + 1, 2**62, -(2**62), 0, 1, -1])
REALS = st.none() | st.sampled_from([math.nan, math.inf, -math.inf, 1.7e308, -1.7e308, 5e-324, -0.0, 0.0, 1.5])
WEIGHTED = st.none() | st.tuples(st.integers(0, 2), st.sampled_from([1, 2**61, 2**62, HIGH]))

_FIELDS = st.fixed_dictionaries({"total": EDGES, "product": EDGES, "least": REALS})
_RAISES = "a fold out of range raises, and stops compaction"

AT_LIMITS: tuple[tuple[Monoid[Any], st.SearchStrategy[Any]], ...] = (
    (Sum(), EDGES),
    (Refusing(), st.none() | st.sampled_from([1, 1, 1, 2])),
    (CountMin(int, width=4, depth=2), WEIGHTED),
    (Product(), EDGES),
    (option(Sum()), EDGES),
    (Min(), EDGES),
    (Sum(float), REALS),
    (ExactSum(), REALS),
    (Mean(), REALS),
    (record(total=Sum(), product=Product(), least=Min(float)), _FIELDS),
    (mapping(Sum(), key=str), st.dictionaries(st.sampled_from(["x", "y"]), EDGES, max_size=2)),
    (HeavyHitters(2, int, error="0.5", confidence="0.5"), WEIGHTED),
)
"""Beside the instances of the catalogue, whose strategies seldom draw limits."""


def catalogue() -> list[tuple[Monoid[Any], st.SearchStrategy[Any]]]:
    """Every monoid of a user. That of the rows of sessions is none: there it is the windows that are tried."""
    return [*AT_LIMITS, *(one for one in INSTANCES if not isinstance(one[0], Sessions))]


@dataclass(frozen=True)
class Story:
    """Where a case can be found again, and what it is: values of keys, one each ``_MS`` / 2."""

    monoid: Monoid[Any]
    values: Sequence[tuple[str, Any]]
    window: Any
    seed: str

    def __str__(self) -> str:
        return f"{self.monoid!r}, {self.window}, seed {self.seed}, {self.values!r:.300}"


class Totals(PersistentTask):
    """The values of a story, by their numbers: so they need be of no Arrow type."""

    name = "totals"
    key: Any = "k"

    def __init__(self, story: Story) -> None:
        self.story = story

    def persistent_state(self) -> Any:
        monoid, window = self.story.monoid, self.story.window
        return NonWindowState(monoid) if window is None else WindowState(monoid, window)

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, self.story.values[message.value["n"]][1])


Place = tuple[str, int | None]
APART = "no result"


def expected(story: Story) -> dict[Place, Any]:
    """What is to be shown at each key and window (its start), ``APART`` where it cannot be."""
    groups: dict[Place, list[Any]] = {}
    ends: dict[str, tuple[int, int]] = {}
    for number, (key, value) in enumerate(story.values):
        at = number * _MS // 2
        starts = _starts(story.window, at)
        if isinstance(story.window, SessionWindow):
            start, end = ends.get(key, (0, 0))
            ends[key] = (start if at < end else at), _GAP.of(at)[1]
            starts = [ends[key][0]]
        for start in starts:
            groups.setdefault((key, start), []).append(story.monoid.lift(value))
    return {place: _presented(story.monoid, elements) for place, elements in groups.items()}


def _starts(window: Any, at: int) -> list[int | None]:
    if window is None or isinstance(window, SessionWindow):
        return [None]
    numbers = range(int(window.first_number(at)), int(window.last_number(at)) + 1)
    return [number * window.every_ms for number in numbers]


def _presented(monoid: Monoid[Any], elements: Sequence[Any]) -> Any:
    try:
        total = elements[0]
        for element in elements[1:]:
            total = monoid.combine(total, element)
        monoid.present(total)
        columns = monoid.present_fields(monoid.pack([total]))
        return {name: column[0].as_py() for name, column in columns.items()}
    except (OverflowError, ValueError):
        return APART


def run(story: Story) -> list[str]:
    """What is wrong with the story, run in pieces; nothing, if all is right."""
    drawn = random.Random(f"limits {story.seed} {story.monoid!r} {story.window}")
    storage, sink = f"memory://limits-{next(_NAMES)}", MemorySink()
    rows = [{"ts": number * _MS // 2, "k": key, "n": number} for number, (key, _) in enumerate(story.values)]
    task = Totals(story)

    def pipeline(count: int) -> Pipeline:
        source = MemorySource(rows[:count], timestamp="ts", ordered=True)
        # One value a step where a sum may raise: two of one step are summed where they are read.
        options: dict[str, Any] = {"step_rows": drawn.choice([1, 1, 2, 5]) if story.monoid.widens else 1}
        return Pipeline(source=source, task=task, sink=sink, checkpoint=storage, on_error="dead-letter", **options)

    reached = 0
    while reached < len(rows):
        reached = min(len(rows), reached + drawn.randint(1, 1 + len(rows) // 2))
        _driven(pipeline(reached), drawn, end_of_input=False)
        if drawn.random() < 0.3:
            compact(pipeline(reached), take_over=True)
    last = pipeline(len(rows))
    _driven(last, drawn, end_of_input=True)
    faults = [f"{finding.part}: {finding.text}" for finding in verify(last.storage).findings]
    return faults + _differences(story, sink, last)


class _Dies(BaseException):
    """What befalls a driver between two steps."""


def _driven(job: Pipeline, drawn: random.Random, *, end_of_input: bool) -> None:
    """Run to the end, through as many deaths as are drawn."""
    for lives in itertools.count():

        def on_step(report: Any, lives: int = lives) -> None:
            if lives < 2 and drawn.random() < 0.2:
                raise _Dies

        try:
            job.run(engine=Embedded(threads=drawn.choice([1, 2, 3])), end_of_input=end_of_input, on_step=on_step)
            return
        except _Dies:
            continue


def _differences(story: Story, sink: MemorySink, job: Pipeline) -> list[str]:
    shown = {}
    for row in sink.rows():
        start = row.pop("window_start", None)
        row.pop("window_end", None)
        place = (row.pop("k"), None if start is None else round(start.timestamp() * 1000))
        if row.pop("revision", None) is None and place in shown:
            return [f"{place} is shown twice"]
        if row.pop("retracted", False):
            # Its new value has no result: a dead letter says so.
            del shown[place]
        else:
            shown[place] = row
    for letter in job.dead_letters().to_pylist():
        facts = json.loads(letter["data"])
        shown[facts["key"]["k"], facts["window_start"]] = APART
    wanted = expected(story)
    faults = [f"{place} is not to be there: {shown[place]}" for place in shown.keys() - wanted.keys()]
    for place, value in wanted.items():
        found = shown.get(place, "missing")
        if not _agree(story.monoid, value, found):
            faults.append(f"{place}: expected {value!r:.100}, found {found!r:.100}")
    return faults


def _agree(monoid: Monoid[Any], value: Any, found: Any) -> bool:
    if APART in (value, found) or not isinstance(found, Mapping):
        return bool(value == found)
    if monoid.exact:
        return same(value, found)
    # Beyond the floats it depends on the order whether a sum is infinite.
    return "inf" in repr((value, found)).lower() or "nan" in repr((value, found)).lower() or same(value, found, 1e-6)


def drawn_values(strategy: st.SearchStrategy[Any], count: int, seed: int) -> list[Any]:
    """Values of a strategy, the same for equal seeds."""
    found: list[Any] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count,
        database=None,
        phases=[Phase.generate],
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(strategy)
    def draw(value: Any) -> None:
        found.append(value)

    draw()
    return found[:count]


def stories(seed: int, rounds: int, instances: Sequence[tuple[Monoid[Any], st.SearchStrategy[Any]]]) -> Iterator[Story]:
    """So many rounds over these monoids, each with every kind of window."""
    for number in range(rounds):
        for monoid, strategy in instances:
            drawn = random.Random(f"{seed} {number} {monoid!r}")
            values = drawn_values(strategy, 40, drawn.randrange(2**31))
            for window in _WINDOWS if monoid.commutative else _WINDOWS[:2]:
                length = drawn.choice([1, 3, 12, 24])
                chosen = [(drawn.choice(_KEYS), drawn.choice(values)) for _ in range(length)]
                yield Story(monoid, chosen, window, f"{seed}/{number}")


@contextmanager
def eager() -> Iterator[None]:
    """While inside, two runs of a size are folded."""
    with mock.patch.object(compaction, "FAN_IN", 2):
        yield


def told(story: Story) -> str | None:
    """What is wrong with a story, as a line; None where nothing is."""
    try:
        with eager():
            faults = run(story)
    except Exception as error:
        faults = [f"{type(error).__name__}: {error}"]
    return f"{story}: {'; '.join(faults)}"[:900] if faults else None


# Planted defects: the production code without one of its rules.


def _raising_fold(self: Any, columns: Any, starts: Any) -> Any:
    return (sum_int64(self, columns[0], starts),)


def _wrapping_product(self: Any, factors: Any, size: float) -> int:
    return (math.prod(factors.tolist()) + 2**63) % 2**64 - 2**63


def _cut(self: Any, columns: Any) -> Any:
    column = columns[0]
    if column.dtype == object:
        column = pa.array([(total + 2**63) % 2**64 - 2**63 for total in column.tolist()], pa.int64()).to_numpy()
    return [pa.array(column)]


def _made_or_all_apart(make: Any, rows: Any, alone: Any) -> Iterator[Any]:
    try:
        yield make(rows)
    except OverflowError as error:
        yield from alone(rows.slice(0, 1), error)


def _present_zero(self: Any, columns: Any) -> Any:
    return pa.array([total if LOW <= total <= HIGH else 0 for total in columns[0].tolist()], pa.int64())


def _stops(job: Any, item: Any) -> Any:
    return merge_runs._compacted(job, item)


Patch = tuple[Any, str, Any]

MUTANTS: Mapping[str, Sequence[Patch]] = {
    _RAISES: ((IntegerSum, "reduce_sorted", _raising_fold), (dispatch, "compact_runs", _stops)),
    "a fold that raises stops compaction": ((dispatch, "compact_runs", _stops),),
    "what is left unfolded is dropped": ((results, "unfolded", lambda found: frozenset()),),
    "a product beyond 64 bits wraps": ((IntegerProduct, "_product", _wrapping_product),),
    "a wide total is stored in 64 bits": ((WideIntegers, "to_arrow", _cut),),
    "a result out of range is shown as 0": ((WideIntegers, "present_columns", _present_zero),),
    "what is set aside is not written": ((publish_shard, "stage_failing_keys", lambda *_: None),),
    "a result that cannot be shown takes its neighbours along": ((publish_shard, "isolated", _made_or_all_apart),),
}


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """While inside, the production code has that defect."""
    patches = [mock.patch.object(where, what, instead) for where, what, instead in MUTANTS[name]]
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in reversed(patches):
            patch.stop()


def is_found(name: str, tell: Callable[[Story], str | None] = told, seed: int = 0) -> bool:
    """Whether a story of the monoids at their limits tells of the defect."""
    with mutated(name):
        return any(tell(story) is not None for story in stories(seed, 6, AT_LIMITS))


def prove(seconds_max: float | None = None, seed: int = 0, scale: float = 1.0) -> Result:
    """Rounds over the whole catalogue, then the mutants."""
    began = time.monotonic()
    until = began + 0.9 * (seconds_max or float("inf"))
    rounds = max(1, round(3 * scale))
    failures: list[str] = []
    planned = rounds * sum(len(_WINDOWS) if monoid.commutative else 2 for monoid, _ in catalogue())
    cases = 0
    for story in stories(seed, rounds, catalogue()):
        if len(failures) >= _FAILURES_MAX or time.monotonic() > until:
            break
        cases += 1
        line = told(story)
        if line is not None:
            failures.append(line)
    found = sum(is_found(name) for name in MUTANTS)
    note = "" if cases == planned else f"stopped, {planned:,} were planned"
    return Result("limits", cases, tuple(failures), (found, len(MUTANTS)), time.monotonic() - began, note)
