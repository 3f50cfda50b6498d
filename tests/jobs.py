"""A job of the suite is a task (by message, and by batch), its input, and a plain twin that says what must come out.

The twin knows Python's collections and nothing of this package: it puts every contribution into a list for each
key and window, and sums the list up.
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from monoids import (
    Bag,
    Count,
    ExactSum,
    HyperLogLog,
    Last,
    Max,
    Mean,
    Min,
    MinBy,
    Monoid,
    SetUnion,
    Sum,
    TopK,
    exact_until,
    mapping,
    record,
)
from persistent import (
    Batch,
    FileSource,
    MemorySource,
    Message,
    NonWindowState,
    PersistentTask,
    Pipeline,
    State,
    WindowState,
    sliding,
    tumbling,
)

Row = Mapping[str, Any]
Place = tuple[tuple[Any, ...], int | None]
"""A key as a tuple, and the start of a window (ms); None of a state without windows."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE = 60_000
START = 1_700_000_040_000


@dataclass(frozen=True)
class Record:
    """A row that is not late, with the watermark under which it was read: it counts in windows that end after that."""

    row: Row
    watermark: int = 0


@dataclass(frozen=True, eq=False)
class Job:
    """``contributions``: the (key, value) pairs of a row. ``summary``: the output values of a list of values, in
    order of position. ``window``: (size, every) in ms, each
    moved by ``offset``. ``parsed``: output columns that are JSON."""

    name: str
    by_message: Callable[[], PersistentTask]
    by_batch: Callable[[], PersistentTask]
    rows: Sequence[Row]
    contributions: Callable[[Row], Iterable[tuple[tuple[Any, ...], Any]]]
    summary: Callable[[list[Any]], tuple[Any, ...]]
    window: tuple[int, int] | None
    keys: tuple[str, ...]
    values: tuple[str, ...]
    parsed: frozenset[str] = frozenset()
    offset: int = 0

    def __repr__(self) -> str:
        return self.name

    # -- the job ---------------------------------------------------------------------------------------------

    def pipeline(self, source: Any, sink: Any, checkpoint: Any, *, batch: bool = False, **options: Any) -> Pipeline:
        """The pipeline; ``source``: or the rows themselves."""
        if isinstance(source, (list, tuple)):
            source = MemorySource(source, timestamp="ts", ordered=True)
        task = self.by_batch() if batch else self.by_message()
        return Pipeline(source=source, task=task, sink=sink, checkpoint=checkpoint, **options)

    def write(self, folder: Path, format: str, files: int) -> None:
        """The rows as files in order of time; ``format``: "parquet" or "jsonl"."""
        folder.mkdir(parents=True)
        cuts = [len(self.rows) * number // files for number in range(files + 1)]
        schema = pa.Table.from_pylist(list(self.rows)).schema
        for number, (start, stop) in enumerate(pairwise(cuts)):
            rows = self.rows[start:stop]
            path = folder / f"{number:03d}.{format}"
            if format == "parquet":
                pq.write_table(pa.Table.from_pylist(list(rows), schema), path, row_group_size=70)
            else:
                lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
                path.write_text("".join(lines), encoding="utf-8")

    def files(self, folder: Path) -> FileSource:
        """The source that reads what was written."""
        return FileSource(folder, timestamp="ts", timestamp_unit="ms", ordered=True)

    # -- its twin --------------------------------------------------------------------------------------------

    def expected(self, records: Iterable[Record]) -> dict[Place, tuple[Any, ...]]:
        """What the windows of these records, or the whole state, must hold."""
        groups: dict[Place, list[Any]] = {}
        for each in records:
            for key, value in self.contributions(each.row):
                for start, end in self.windows(each.row["ts"]):
                    if end is None or end > each.watermark:
                        groups.setdefault((key, start), []).append(value)
        return {place: self.summary(values) for place, values in groups.items()}

    def windows(self, time: int) -> list[tuple[int | None, int | None]]:
        """The windows that hold a time, as (start, end)."""
        if self.window is None:
            return [(None, None)]
        size, every = self.window
        found: list[tuple[int | None, int | None]] = []
        start = (time - self.offset) // every * every + self.offset
        while start + size > time:
            found.append((start, start + size))
            start -= every
        return found

    def is_late(self, record: Record) -> bool:
        """Whether windows hold the record, and all of them had ended."""
        ends = [end for _, end in self.windows(record.row["ts"]) if end is not None]
        return bool(ends) and max(ends) <= record.watermark

    def read(self, rows: Iterable[Row]) -> dict[Place, tuple[Any, ...]]:
        """Output rows as the twin has them. AssertionError if a window stands twice, or its end is wrong."""
        found: dict[Place, tuple[Any, ...]] = {}
        for row in rows:
            start = milliseconds(row["window_start"]) if self.window else None
            if self.window:
                assert milliseconds(row["window_end"]) == start + self.window[0]
            place = tuple(row[name] for name in self.keys), start
            assert place not in found, f"{place} stands twice"
            found[place] = tuple(json.loads(row[v]) if v in self.parsed else row[v] for v in self.values)
        return found


def milliseconds(time: datetime) -> int:
    return (time - _EPOCH) // (datetime.resolution * 1000)


def watermarks(times: Sequence[int], step_rows: int | None) -> list[int]:
    """The watermark under which each row of an ordered source is read: the largest time of all steps before its own."""
    steps = len(times) if step_rows is None else step_rows
    largest, found = 0, []
    for start in range(0, len(times), max(steps, 1)):
        step = times[start : start + steps]
        found += [largest] * len(step)
        largest = max(largest, *step)
    return found


def records_of(rows: Sequence[Row], step_rows: int | None) -> list[Record]:
    """Every row with its watermark."""
    marks = watermarks([row["ts"] for row in rows], step_rows)
    return [Record(row, mark) for row, mark in zip(rows, marks)]


def plain_max(values: Iterable[Any]) -> Any:
    return max((value for value in values if value is not None), default=None)


def plain_min(values: Iterable[Any]) -> Any:
    return min((value for value in values if value is not None), default=None)


def _times(rng: random.Random, rows: int, step_ms: int, behind_ms: int) -> Iterator[int]:
    """Times that advance by about a step, most up to ``behind_ms`` in disorder, a few much more; some on borders."""
    for row in range(rows):
        behind = rng.randrange(behind_ms) if rng.random() > 0.05 else rng.randrange(20 * behind_ms)
        time = START + row * step_ms - behind
        yield time // 10_000 * 10_000 if rng.random() < 0.2 else time


# -- visits: count, sum and largest per page and minute ------------------------------------------------------------


class Visits(PersistentTask):
    name = "visits"
    key: Any = "page"

    def persistent_state(self) -> WindowState:
        return WindowState(record(visits=Count(), total=Sum(), top=Max()), tumbling("1 min"))

    def process_message(self, state: State, message: Message) -> None:
        taken = message.value["bytes"]
        state.update(message.timestamp, {"visits": 1, "total": taken, "top": taken})


class VisitsByBatch(Visits):
    def process_batch(self, state: State, batch: Batch) -> None:
        state.update_batch(batch.timestamps, {"visits": 1, "total": batch["bytes"], "top": batch["bytes"]})


def _visits() -> Job:
    rng = random.Random(1)
    rows = [
        {"ts": ts, "id": number, "page": rng.choice(["/", "/a", "/b", "/ä"]), "bytes": rng.randrange(-50, 1000)}
        for number, ts in enumerate(_times(rng, 400, 1_500, 4_000))
    ]
    return Job(
        name="visits",
        by_message=Visits,
        by_batch=VisitsByBatch,
        rows=rows,
        contributions=lambda row: [((row["page"],), row["bytes"])],
        summary=lambda values: (len(values), sum(values), max(values)),
        window=(MINUTE, MINUTE),
        keys=("page",),
        values=("visits", "total", "top"),
    )


# -- word count: many keys a message ---------------------------------------------------------------------------------


class WordCount(PersistentTask):
    name = "words"
    key: Any = {"word": None}

    def persistent_state(self) -> WindowState:
        return WindowState(Count(), tumbling("1 min"))

    def process_message(self, state: State, message: Message) -> None:
        for word in (message.value["line"] or "").split():
            state.update(message.timestamp, 1, key=word)


class WordCountByBatch(WordCount):
    def process_batch(self, state: State, batch: Batch) -> None:
        words = pc.utf8_split_whitespace(batch["line"])
        lines = np.asarray(pc.list_parent_indices(words))
        flat = pc.list_flatten(words)
        said = np.asarray(pc.not_equal(flat, ""))
        state.update_batch(batch.timestamps[lines[said]], 1, keys=flat.filter(pa.array(said)))


def _words() -> Job:
    rng = random.Random(2)
    known = ["the", "cat", "naïve", "日本", "🐈", "ß", "The"]
    lines = [" ".join(rng.choices(known, k=rng.randrange(6))) for _ in range(250)]
    lines[7:9] = [None, "   "]
    rows = [
        {"ts": ts, "id": number, "line": line}
        for number, (ts, line) in enumerate(zip(_times(rng, 250, 2_000, 5_000), lines))
    ]
    return Job(
        name="words",
        by_message=WordCount,
        by_batch=WordCountByBatch,
        rows=rows,
        contributions=lambda row: [((word,), 1) for word in (row["line"] or "").split()],
        summary=lambda values: (len(values),),
        window=(MINUTE, MINUTE),
        keys=("word",),
        values=("value",),
    )


# -- a count of everything: no key -----------------------------------------------------------------------------------


class CountAll(PersistentTask):
    name = "count"

    def persistent_state(self) -> WindowState:
        return WindowState(Count(), tumbling("10 s"))

    def process_message(self, state: State, message: Message) -> None:
        state.update(message.timestamp, message.value["id"])


class CountAllByBatch(CountAll):
    def process_batch(self, state: State, batch: Batch) -> None:
        state.update_batch(batch.timestamps, batch["id"])


def _count() -> Job:
    rng = random.Random(3)
    rows = [{"ts": ts, "id": number} for number, ts in enumerate(_times(rng, 300, 700, 3_000))]
    return Job(
        name="count",
        by_message=CountAll,
        by_batch=CountAllByBatch,
        rows=rows,
        contributions=lambda row: [((), 1)],
        summary=lambda values: (len(values),),
        window=(10_000, 10_000),
        keys=(),
        values=("value",),
    )


# -- views per campaign: a filter, and a key that is a function of the message ----------------------------------------

CAMPAIGNS = {f"ad-{ad}": f"campaign-{ad % 4}" for ad in range(12)}


def _campaign(message: Message) -> str:
    return CAMPAIGNS[message.value["ad_id"]]


class Campaigns(PersistentTask):
    """Other events than views name no ad: their key cannot be made, and must not be asked for."""

    name = "campaigns"
    key: Any = {"campaign": _campaign}

    def persistent_state(self) -> WindowState:
        return WindowState(Count(), tumbling("10 s"))

    def process_message(self, state: State, message: Message) -> None:
        if message.value["event_type"] == "view":
            state.update(message.timestamp, 1)


class CampaignsByBatch(Campaigns):
    def process_batch(self, state: State, batch: Batch) -> None:
        views = batch.filter(pc.equal(batch["event_type"], "view"))
        campaigns = pa.array([CAMPAIGNS[ad] for ad in views["ad_id"].to_pylist()], pa.string())
        state.update_batch(views.timestamps, 1, keys=campaigns)


class CampaignsByFilter(Campaigns):
    """The same by the batch's own keys."""

    def process_batch(self, state: State, batch: Batch) -> None:
        views = batch.filter(pc.equal(batch["event_type"], "view"))
        state.update_batch(views.timestamps, 1)


def _campaigns(by_batch: type[PersistentTask] = CampaignsByBatch) -> Job:
    rng = random.Random(4)
    rows = []
    for number, ts in enumerate(_times(rng, 400, 400, 2_000)):
        kind = rng.choice(["view", "click", "purchase"])
        ad = f"ad-{rng.randrange(12)}" if kind == "view" else None
        rows.append({"ts": ts, "id": number, "event_type": kind, "ad_id": ad})
    return Job(
        name="campaigns" if by_batch is CampaignsByBatch else "campaigns-by-filter",
        by_message=Campaigns,
        by_batch=by_batch,
        rows=rows,
        contributions=lambda row: [((CAMPAIGNS[row["ad_id"]],), 1)] if row["event_type"] == "view" else [],
        summary=lambda values: (len(values),),
        window=(10_000, 10_000),
        keys=("campaign",),
        values=("value",),
    )


# -- the largest in a sliding window: no inverse ---------------------------------------------------------------------


class SlidingMax(PersistentTask):
    name = "sliding-max"
    key: Any = "sensor"

    def __init__(self, size: int, every: int, offset: int) -> None:
        self.size, self.every, self.offset = size, every, offset

    def persistent_state(self) -> WindowState:
        return WindowState(Max(), sliding(self.size, every=self.every, offset=self.offset))

    def process_message(self, state: State, message: Message) -> None:
        state.update(message.timestamp, message.value["heat"])


class SlidingMaxByBatch(SlidingMax):
    def process_batch(self, state: State, batch: Batch) -> None:
        state.update_batch(batch.timestamps, batch["heat"])


def _sliding(name: str, size: int, every: int, offset: int = 0) -> Job:
    rng = random.Random(f"{size} {every}")
    rows = [
        {"ts": ts, "id": number, "sensor": rng.randrange(3), "heat": rng.choice([None, *range(-40, 40)])}
        for number, ts in enumerate(_times(rng, 300, 900, 9_000))
    ]
    return Job(
        name=name,
        by_message=lambda: SlidingMax(size, every, offset),
        by_batch=lambda: SlidingMaxByBatch(size, every, offset),
        rows=rows,
        contributions=lambda row: [((row["sensor"],), row["heat"])],
        summary=lambda values: (plain_max(values),),
        window=(size, every),
        offset=offset,
        keys=("sensor",),
        values=("value",),
    )


# -- a monoid of the user's own, over Python objects -----------------------------------------------------------------


class Trail(Monoid[dict[str, Any]]):
    """How often each page was seen, and in which order: does not commute."""

    identity: Any = {"seen": {}, "path": []}

    def combine(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        seen = {page: a["seen"].get(page, 0) + b["seen"].get(page, 0) for page in {**a["seen"], **b["seen"]}}
        return {"seen": seen, "path": a["path"] + b["path"]}

    def lift(self, value: Any) -> dict[str, Any]:
        return {"seen": {}, "path": []} if value is None else {"seen": {value: 1}, "path": [value]}


class Trails(PersistentTask):
    name = "trails"
    key: Any = "user"

    def persistent_state(self) -> WindowState:
        return WindowState(record(trail=Trail(), steps=Count()), tumbling("1 min"))

    def process_message(self, state: State, message: Message) -> None:
        page = message.value["page"]
        state.update(message.timestamp, {"trail": page, "steps": page})


class TrailsByBatch(Trails):
    def process_batch(self, state: State, batch: Batch) -> None:
        state.update_batch(batch.timestamps, {"trail": batch["page"], "steps": batch["page"]})


def _trails() -> Job:
    rng = random.Random(6)
    rows = [
        {"ts": ts, "id": number, "user": rng.randrange(4), "page": rng.choice([None, "a", "b", "ü"])}
        for number, ts in enumerate(_times(rng, 300, 1_000, 4_000))
    ]

    def summary(pages: list[Any]) -> tuple[Any, ...]:
        seen = [page for page in pages if page is not None]
        return {"seen": dict(Counter(seen)), "path": seen}, len(seen)

    return Job(
        name="trails",
        by_message=Trails,
        by_batch=TrailsByBatch,
        rows=rows,
        contributions=lambda row: [((row["user"],), row["page"])],
        summary=summary,
        window=(MINUTE, MINUTE),
        keys=("user",),
        values=("trail", "steps"),
        parsed=frozenset({"trail"}),
    )


# -- every kind of key and value: composite, non-ASCII, null ---------------------------------------------------------


class Cities(PersistentTask):
    name = "cities"
    key: Any = ("city", "floor")

    def persistent_state(self) -> WindowState:
        fields = record(
            rows=Count(),
            given=Count(),
            total=Sum(),
            exact=Sum(float),
            mean=Mean(),
            least=Min(str),
            names=SetUnion(str),
        )
        return WindowState(fields, tumbling("2 min"))

    def process_message(self, state: State, message: Message) -> None:
        n, share, name = (message.value[field] for field in ("n", "share", "name"))
        values = {"rows": 1, "given": n, "total": n, "exact": share, "mean": n, "least": name, "names": name}
        state.update(message.timestamp, values)


class CitiesByBatch(Cities):
    def process_batch(self, state: State, batch: Batch) -> None:
        n, share, name = (batch[field] for field in ("n", "share", "name"))
        values = {"rows": 1, "given": n, "total": n, "exact": share, "mean": n, "least": name, "names": name}
        state.update_batch(batch.timestamps, values)


def _cities() -> Job:
    rng = random.Random(7)
    cities = ["Zürich", "東京", "Zu\u0308rich", "", None, "𝄞"]
    rows = [
        {
            "ts": ts,
            "id": number,
            "city": rng.choice(cities),
            "floor": rng.choice([None, -1, 0, 2**40]),
            "n": rng.choice([None, *range(-5, 6)]),
            "share": rng.choice([None, 0.25, -1.5, 8.0]),
            "name": rng.choice([None, "Ångström", "z", "\U0001f600", "\uffff"]),
        }
        for number, ts in enumerate(_times(rng, 400, 1_000, 5_000))
    ]

    def summary(given: list[Row]) -> tuple[Any, ...]:
        n = [row["n"] for row in given if row["n"] is not None]
        names = {row["name"] for row in given if row["name"] is not None}
        exact = sum((row["share"] for row in given if row["share"] is not None), 0.0)
        mean = sum(n) / len(n) if n else None
        return len(given), len(n), sum(n), exact, mean, plain_min(names), sorted(names)

    return Job(
        name="cities",
        by_message=Cities,
        by_batch=CitiesByBatch,
        rows=rows,
        contributions=lambda row: [((row["city"], row["floor"]), row)],
        summary=summary,
        window=(2 * MINUTE, 2 * MINUTE),
        keys=("city", "floor"),
        values=("rows", "given", "total", "exact", "mean", "least", "names"),
    )


# -- running totals: no window ---------------------------------------------------------------------------------------


class Totals(PersistentTask):
    name = "totals"
    key: Any = "user"

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(record(orders=Count(), total=Sum(), first=Min()))

    def process_message(self, state: State, message: Message) -> None:
        amount = message.value["amount"]
        state.update(message.timestamp, {"orders": 1, "total": amount, "first": message.timestamp})


class TotalsByBatch(Totals):
    def process_batch(self, state: State, batch: Batch) -> None:
        state.update_batch(batch.timestamps, {"orders": 1, "total": batch["amount"], "first": batch.timestamps})


def _totals() -> Job:
    rng = random.Random(8)
    rows = [
        {"ts": ts, "id": number, "user": f"user-{rng.randrange(30)}", "amount": rng.randrange(-100, 1000)}
        for number, ts in enumerate(_times(rng, 300, 1_000, 9_000))
    ]
    return Job(
        name="totals",
        by_message=Totals,
        by_batch=TotalsByBatch,
        rows=rows,
        contributions=lambda row: [((row["user"],), (row["amount"], row["ts"]))],
        summary=lambda v: (len(v), sum(amount for amount, _ in v), min(ts for _, ts in v)),
        window=None,
        keys=("user",),
        values=("orders", "total", "first"),
    )


# -- sales: sets, sketches, lists of values and what depends on the order, in sliding windows -----------------------


class Sales(PersistentTask):
    name = "sales"
    key: Any = "shop"

    def persistent_state(self) -> WindowState:
        fields = record(
            buyers=exact_until(1_000, HyperLogLog()),
            spent=ExactSum(),
            best=TopK(2),
            tags=Bag(str),
            last=Last(str),
            units=mapping(Sum(), key=str),
            cheapest=MinBy(str, by=int),
        )
        return WindowState(fields, sliding("1 min", "20 s"))

    def process_message(self, state: State, message: Message) -> None:
        sale = message.value
        state.update(message.timestamp, self.values(sale, message.order, {sale["tag"]: sale["n"]}))

    def values(self, sale: Any, order: Any, units: Any) -> dict[str, Any]:
        return {
            "buyers": sale["buyer"],
            "spent": sale["price"],
            "best": sale["n"],
            "tags": sale["tag"],
            "last": (order, sale["tag"]),
            "units": units,
            "cheapest": (sale["n"], sale["tag"]),
        }


class SalesByBatch(Sales):
    def process_batch(self, state: State, batch: Batch) -> None:
        offsets = pa.array(np.arange(len(batch) + 1, dtype=np.int32))
        units = pa.MapArray.from_arrays(offsets, batch["tag"], batch["n"])
        state.update_batch(batch.timestamps, self.values(batch, batch.order, units))


def _sales() -> Job:
    rng = random.Random(9)
    rows = [
        {
            "ts": ts,
            "id": number,
            "shop": rng.choice(["a", "b", None]),
            "buyer": rng.randrange(40),
            "price": rng.choice([0.1, 0.2, 1e15, -1e15, 3.3]),
            "n": rng.randrange(6),
            "tag": rng.choice(["red", "blue", "grün", ""]),
        }
        for number, ts in enumerate(_times(rng, 300, 1_000, 5_000))
    ]

    def summary(given: list[Row]) -> tuple[Any, ...]:
        units: Counter[str] = Counter()
        for row in given:
            units[row["tag"]] += row["n"]
        tags = Counter(row["tag"] for row in given)
        return (
            len({row["buyer"] for row in given}),
            math.fsum(row["price"] for row in given),
            sorted((row["n"] for row in given), reverse=True)[:2],
            [{"value": tag, "count": tags[tag]} for tag in sorted(tags)],
            max(given, key=lambda row: (row["ts"], row["id"]))["tag"],
            [(tag, units[tag]) for tag in sorted(units) if units[tag]],
            min((row["n"], row["tag"]) for row in given)[1],
        )

    return Job(
        name="sales",
        by_message=Sales,
        by_batch=SalesByBatch,
        rows=rows,
        contributions=lambda row: [((row["shop"],), row)],
        summary=summary,
        window=(MINUTE, 20_000),
        keys=("shop",),
        values=("buyers", "spent", "best", "tags", "last", "units", "cheapest"),
    )


JOBS: tuple[Job, ...] = (
    _visits(),
    _words(),
    _count(),
    _campaigns(),
    _campaigns(CampaignsByFilter),
    _sliding("sliding-overlapping", MINUTE, 20_000),
    _sliding("sliding-tumbling", 30_000, 30_000),
    _sliding("sliding-not-dividing", MINUTE, 25_000),
    _sliding("sliding-with-gaps", 20_000, 30_000),
    _sliding("sliding-moved", MINUTE, 25_000, 7_000),
    _sliding("sliding-moved-tumbling", 30_000, 30_000, 7_000),
    _trails(),
    _cities(),
    _totals(),
    _sales(),
)
BY_NAME: Mapping[str, Job] = {job.name: job for job in JOBS}
