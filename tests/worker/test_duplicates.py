"""The judgement of a split, compared with a set of Python objects that is asked one record at a time."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monoids import Count, encoding
from persistent import Dedupe, InvalidPipeline, MemorySource, NonWindowState, PersistentTask
from persistent.codec.fields import KEY_GROUPS
from persistent.names import STATE, Attempt
from persistent.storage import MemoryStorage
from persistent.worker.duplicates import Duplicates, Fate
from persistent.worker.job import Job
from persistent.worker.merge_runs import read_rows, write_run
from persistent.worker.seen_items import SeenBefore
from persistent.worker.seen_state import SeenCache, seen_monoid, seen_node
from tests.few import examples

PANE_MS = 10
BY_NUMBER = Dedupe(origin="origin", sequence="n", within=40)
BY_ID = Dedupe.by_id("n", within=40)
BY_TWO = Dedupe.by_id(("origin", "n"), within=40, restamped=False)
BY_EPOCH = Dedupe(origin=("origin", "lane"), sequence="n", epoch="epoch", within=40)


class Visits(PersistentTask):
    def persistent_state(self) -> NonWindowState:
        return NonWindowState(Count())


@dataclass
class Plainly:
    """The definition: what was seen, as a mapping of key to number to pane, and of key and pane to the newest time."""

    dedupe: Dedupe
    numbers: dict[Any, dict[int, int]] = field(default_factory=dict)
    latest: dict[Any, dict[int, int]] = field(default_factory=dict)

    def expire(self, horizon: int) -> None:
        for of_key in self.numbers.values():
            for number in [number for number, pane in of_key.items() if pane < horizon]:
                del of_key[number]
        for panes in self.latest.values():
            for pane in [pane for pane in panes if pane < horizon]:
                del panes[pane]

    def judge(self, row: dict[str, Any], horizon: int) -> Fate:
        key, time = tuple(row[name] for name in self.dedupe.keys), row["ts"]
        number = 0 if self.dedupe.by_ids else row["n"]
        if None in key or number is None or not -(2**63) <= number < 2**63:
            return Fate.NAMELESS
        seen, panes = self.numbers.setdefault(key, {}), self.latest.setdefault(key, {})
        if number in seen:
            is_younger = not self.dedupe.restamped and time > max(panes.values())
            return Fate.USED_AGAIN if is_younger else Fate.COPY
        if time < horizon:
            return Fate.TOO_OLD
        pane = time // PANE_MS * PANE_MS
        seen[number] = pane
        panes[pane] = max(time, panes.get(pane, -1))
        return Fate.NEW


def job(storage: Any = None, dedupe: Dedupe = BY_NUMBER) -> Job:
    state, source = NonWindowState(Count()), MemorySource([])
    place = storage or MemoryStorage("unit")
    return Job(Visits(), {STATE: state}, {"memory": source}, {}, place, False, dedupe={"memory": dedupe})


def batch_of(rows: list[dict[str, Any]], numbers: pa.DataType) -> pa.RecordBatch:
    types = {"origin": pa.string(), "lane": pa.int32(), "epoch": pa.int64(), "n": numbers, "ts": pa.int64()}
    return pa.RecordBatch.from_pylist(rows, pa.schema(types))


def times_of(rows: list[dict[str, Any]]) -> Any:
    return np.array([row["ts"] for row in rows], np.int64)


NUMBERS = st.integers(0, 6) | st.none() | st.sampled_from([-(2**63), 2**63 - 1, 2**32 - 1, 2**32])
ROWS = st.fixed_dictionaries(
    {
        "origin": st.sampled_from(["a", "b", "", None]),
        "lane": st.sampled_from([0, 0, 1]),
        "epoch": st.sampled_from([1, 1, 2, None]),
        "n": NUMBERS,
        "ts": st.integers(0, 99),
    }
)
STEPS = st.lists(st.tuples(st.integers(0, 60), st.lists(ROWS, max_size=30)), min_size=1, max_size=4)
CUTS = st.lists(st.integers(0, 30), max_size=3)


@pytest.mark.parametrize("dedupe", [BY_NUMBER, BY_EPOCH, replace(BY_NUMBER, restamped=True), BY_ID, BY_TWO], ids=repr)
@settings(max_examples=examples(150))
@given(steps=STEPS, cuts=CUTS)
def test_every_record_meets_the_fate_that_a_plain_set_gives_it(
    dedupe: Dedupe, steps: list[tuple[int, list[dict[str, Any]]]], cuts: list[int]
) -> None:
    """A copy judged new counts twice, a new record judged a copy never counts. In whatever batches the rows come, and
    whatever was folded: the steps go through runs, with a horizon that moves on."""
    plainly, storage, runs, horizon = Plainly(dedupe), MemoryStorage("fates"), [], 0
    made = seen_node(job(storage, dedupe), "memory", PANE_MS)
    cache = SeenCache()
    for id, (ahead, rows) in enumerate(steps, 1):
        horizon = max(horizon, ahead // PANE_MS * PANE_MS)
        plainly.expire(horizon)
        split = Duplicates(made.storage, dedupe, SeenBefore(tuple(runs), horizon, PANE_MS), cache)
        borders = sorted({0, len(rows), *(min(cut, len(rows)) for cut in cuts)})
        found: list[int] = []
        for start, stop in pairwise(borders):
            some = rows[start:stop]
            found += split.judge(batch_of(some, pa.int64()), times_of(some)).tolist()
        assert found == [plainly.judge(row, horizon) for row in rows], (id, horizon)
        assert (split.oldest_copy is None) == (Fate.COPY not in found and Fate.USED_AGAIN not in found)
        seen = split.rows()
        if seen is not None:
            runs.append(write_run(made, Attempt(1, id), seen, id, id)[0])
    storage.clear()


@given(st.lists(ROWS, min_size=1, max_size=30), st.integers(0, 60))
def test_what_a_split_has_seen_is_what_it_found_new(rows: list[dict[str, Any]], horizon: int) -> None:
    """A number that is new and not remembered counts again; one remembered and not new would be lost."""
    horizon = horizon // PANE_MS * PANE_MS
    split = Duplicates(job().storage, BY_NUMBER, SeenBefore((), horizon, PANE_MS), SeenCache())
    fates = split.judge(batch_of(rows, pa.int64()), times_of(rows))
    new = sorted(
        (row["origin"], row["n"], row["ts"] // PANE_MS * PANE_MS) for row, fate in zip(rows, fates) if not fate
    )
    held = split.rows()
    listed: list[Any] = []
    if held is not None:
        for key, pane, (ranges, latest) in zip(
            held.keys[0].to_pylist(), held.panes.tolist(), seen_monoid().unpack(held.columns), strict=True
        ):
            origin = encoding.decode(key)
            listed += [(origin, n, pane) for first, last in ranges for n in range(first, last + 1)]
            assert pane <= latest < pane + PANE_MS
    assert sorted(listed) == new
    span = split.span()
    assert len(span.hashes) == len({origin for origin, _, _ in new})


def test_numbers_of_other_widths_and_dictionaries_name_the_same_record() -> None:
    """A sender that writes 32 bits in one file and 64 in the next sends the same numbers."""
    split = Duplicates(job().storage, BY_NUMBER, SeenBefore((), 0, PANE_MS), SeenCache())
    rows = [{"origin": "a", "lane": 0, "epoch": 1, "n": n, "ts": 5} for n in (1, 2)]
    assert split.judge(batch_of(rows, pa.uint32()), times_of(rows)).tolist() == [Fate.NEW, Fate.NEW]
    assert split.judge(batch_of(rows, pa.int8()), times_of(rows)).tolist() == [Fate.COPY, Fate.COPY]
    twice = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), pa.array(["a", "a", None]))
    batch = pa.RecordBatch.from_arrays([twice, pa.array([2, 3, 3], pa.uint64())], ["origin", "n"])
    assert split.judge(batch, np.array([5, 5, 5])).tolist() == [Fate.COPY, Fate.NEW, Fate.NAMELESS]
    views = pa.RecordBatch.from_arrays([pa.array(["a", "a"], pa.string_view()), pa.array([3, 4])], ["origin", "n"])
    assert split.judge(views, np.array([5, 5])).tolist() == [Fate.COPY, Fate.NEW]


def test_text_and_numbers_are_different_origins() -> None:
    """The sender "1" and the sender 1 count on their own."""
    split = Duplicates(job().storage, BY_NUMBER, SeenBefore((), 0, PANE_MS), SeenCache())
    for origin in (pa.array(["1"]), pa.array([1]), pa.array([b"1"])):
        batch = pa.RecordBatch.from_arrays([origin, pa.array([7])], ["origin", "n"])
        assert split.judge(batch, np.array([5])).tolist() == [Fate.NEW]


def test_keys_of_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a billion senders two may have one hash; the messages of the second are no copies."""
    monkeypatch.setattr("monoids.hashing._finish", lambda state: np.full_like(state, 7))
    split = Duplicates(job().storage, BY_NUMBER, SeenBefore((), 0, PANE_MS), SeenCache())
    for number, origin in enumerate("abcab"):
        rows = [{"origin": origin, "lane": 0, "epoch": 1, "n": 1, "ts": 5}]
        expected = Fate.NEW if number < 3 else Fate.COPY
        assert split.judge(batch_of(rows, pa.int64()), times_of(rows)).tolist() == [expected]


@pytest.mark.parametrize("collide", [False, True])
def test_ids_are_compared_whole(collide: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ids with one hash, the second record is another one: dropped, it would be lost. Before and after its run."""
    if collide:
        monkeypatch.setattr("monoids.hashing._finish", lambda state: state & np.uint64(1))
    storage, runs = MemoryStorage("ids"), []
    made = seen_node(job(storage, BY_ID), "memory", PANE_MS)
    ids = pa.array([str(uuid.UUID(int=number)) for number in (*range(20, 11, -1), 17, *range(15, 8, -1), 9)])
    expected = [Fate.NEW] * 9 + [Fate.COPY] * 5 + [Fate.NEW] * 3 + [Fate.COPY]
    for id, again in ((1, False), (2, True)):
        split = Duplicates(made.storage, BY_ID, SeenBefore(tuple(runs), 0, PANE_MS), SeenCache())
        fates = split.judge(pa.RecordBatch.from_arrays([ids], ["n"]), np.arange(len(ids)))
        assert fates.tolist() == ([Fate.COPY] * len(ids) if again else expected)
        assert split.oldest_copy == (0 if again else 3)
        seen = split.rows()
        assert (seen is None) == again and len(split.span().hashes) == (0 if again else 2 if collide else 12)
        if seen is not None:
            placed = list(zip(seen.hashes.tolist(), seen.keys[0].to_pylist()))
            assert placed == sorted(placed), "else a fold takes one id for two"
            runs.append(write_run(made, Attempt(1, id), seen, id, id)[0])
    storage.clear()


def test_an_id_is_of_any_type_that_says_who_sent_it() -> None:
    """Brokers give text, files bytes and UUIDs; dictionaries and views are the same ids as plain columns."""
    values = [uuid.UUID(int=number) for number in (1, 2, 1)]
    ids = {
        "uuid": pa.array([value.bytes for value in values], pa.binary(16)).cast(pa.uuid()),
        "fixed": pa.array([value.bytes for value in values], pa.binary(16)),
        "text": pa.array(map(str, values)),
        "words": pa.array(map(str, values)).dictionary_encode(),
        "view": pa.array(map(str, values), pa.string_view()),
        "number": pa.array([value.int for value in values]),
    }
    for type_, column in ids.items():
        split = Duplicates(job().storage, BY_ID, SeenBefore((), 0, PANE_MS), SeenCache())
        batch = pa.RecordBatch.from_arrays([column], ["n"])
        assert split.judge(batch, np.array([5, 5, 5])).tolist() == [Fate.NEW, Fate.NEW, Fate.COPY], type_
    split = Duplicates(job().storage, BY_ID, SeenBefore((), 0, PANE_MS), SeenCache())
    for type_, expected in (("uuid", Fate.NEW), ("fixed", Fate.COPY), ("text", Fate.NEW), ("words", Fate.COPY)):
        batch = pa.RecordBatch.from_arrays([ids[type_]], ["n"])
        assert split.judge(batch, np.array([5, 5, 5])).tolist()[0] == expected, type_
    with pytest.raises(InvalidPipeline, match=r"dedupe: the column 'n' holds double, but must hold integers, text"):
        split.judge(pa.RecordBatch.from_arrays([pa.array([1.0])], ["n"]), np.array([5]))


def test_an_id_given_twice_is_told_from_a_copy_by_its_time() -> None:
    """Where copies have the timestamp of their original, an id in a younger record is another record's."""
    split = Duplicates(job().storage, BY_TWO, SeenBefore((), 0, PANE_MS), SeenCache())
    batch = pa.RecordBatch.from_arrays([pa.array(["a"] * 3 + [None]), pa.array([7] * 4)], ["origin", "n"])
    fates = split.judge(batch, np.array([5, 5, 6, 5]))
    assert fates.tolist() == [Fate.NEW, Fate.COPY, Fate.USED_AGAIN, Fate.NAMELESS]
    assert split.reasons(batch, np.array([2, 3]), fates[2:]) == [
        "origin 'a', n 7 was seen before, in an older record: not a copy, unless copies have times of their own "
        "(restamped=True)",
        "no origin: dedupe needs them to recognise a copy",
    ]


def test_what_earlier_splits_have_seen_is_a_copy_here() -> None:
    """Two lanes of a source carry the same message: the driver tells the later one."""
    first = Duplicates(job().storage, BY_NUMBER, SeenBefore((), 0, PANE_MS), SeenCache())
    rows = [{"origin": "a", "lane": 0, "epoch": 1, "n": n, "ts": 5} for n in (1, 2, 3)]
    first.judge(batch_of(rows, pa.int64()), times_of(rows))
    seen = first.rows()
    assert seen is not None
    later = Duplicates(job().storage, BY_NUMBER, SeenBefore((), 0, PANE_MS, (seen,)), SeenCache())
    rows = [{"origin": "a", "lane": 0, "epoch": 1, "n": n, "ts": 5} for n in (3, 4)]
    assert later.judge(batch_of(rows, pa.int64()), times_of(rows)).tolist() == [Fate.COPY, Fate.NEW]


def test_the_reasons_name_the_record() -> None:
    """A dead letter that does not say why is looked for by hand."""
    split = Duplicates(job().storage, BY_NUMBER, SeenBefore((), 0, PANE_MS), SeenCache())
    rows = [
        {"origin": "a", "lane": 0, "epoch": 1, "n": 1, "ts": 5},
        {"origin": None, "lane": 0, "epoch": 1, "n": None, "ts": 5},
        {"origin": "a", "lane": 0, "epoch": 1, "n": 1, "ts": 6},
    ]
    batch = batch_of(rows, pa.int64())
    fates = split.judge(batch, times_of(rows))
    assert split.reasons(batch, np.array([1, 2]), fates[[1, 2]]) == [
        "no origin and no n: dedupe needs them to recognise a copy",
        "origin 'a', n 1 was seen before, and this record is younger than all of its origin: not a copy; if the sender "
        "was restarted, give dedupe its epoch=",
    ]
    beyond = pa.RecordBatch.from_arrays([pa.array(["a"]), pa.array([2**63], pa.uint64())], ["origin", "n"])
    assert split.judge(beyond, np.array([5])).tolist() == [Fate.NAMELESS]
    assert split.reasons(beyond, np.array([0]), np.array([Fate.NAMELESS])) == [
        "n 9223372036854775808 is beyond 64 bits"
    ]


def test_a_column_of_another_type_stops_the_run() -> None:
    """A number read as 1.0 in one file and as 1 in the next would be two."""
    split = Duplicates(job().storage, BY_NUMBER, SeenBefore((), 0, PANE_MS), SeenCache())
    batch = pa.RecordBatch.from_arrays([pa.array(["a"]), pa.array([1.0])], ["origin", "n"])
    with pytest.raises(InvalidPipeline, match=r"dedupe: the column 'n' holds double, but must hold integers"):
        split.judge(batch, np.array([5]))
    missing = pa.RecordBatch.from_arrays([pa.array([1])], ["n"])
    assert split.judge(missing, np.array([5])).tolist() == [Fate.NAMELESS]


def test_many_batches_are_folded_and_forget_nothing() -> None:
    """A long split keeps few parts; what they hold must outlive the folds."""
    storage = MemoryStorage("many")
    made = seen_node(job(storage, BY_NUMBER), "memory", PANE_MS)
    split = Duplicates(made.storage, BY_NUMBER, SeenBefore((), 0, PANE_MS), SeenCache())
    for start in range(0, 300, 10):
        rows = [{"origin": "ab"[n % 2], "lane": 0, "epoch": 1, "n": n, "ts": start} for n in range(start, start + 20)]
        fates = split.judge(batch_of(rows, pa.int64()), times_of(rows)).tolist()
        assert fates[10:] == [Fate.NEW] * 10
        assert Fate.NEW not in fates[:10] or start == 0
    seen = split.rows()
    assert seen is not None
    run, *_ = write_run(made, Attempt(1, 1), seen, 1, 1)
    again = read_rows(made, run, 0, KEY_GROUPS)
    assert seen_monoid().unpack(again.columns) == seen_monoid().unpack(seen.columns)
    storage.clear()
