"""HyperLogLog counts distinct values within its error, by columns as one by one."""

from __future__ import annotations

import math
import statistics
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from monoids import HyperLogLog
from monoids.column import Columns, concat
from monoids.hashing import hash_keys
from monoids.monoid import check
from monoids.sketches import hyperloglog

TRIALS = 1_000
P_MIN = 1e-6


def trials(monoid: Any, distinct: int, seed: int, count: int = TRIALS) -> Columns:
    """Sketches of ``distinct`` random integers each."""
    values = np.random.default_rng(seed).integers(-(2**62), 2**62, count * distinct)
    return monoid.reduce_sorted(monoid.lift_columns(values), np.arange(0, len(values), distinct))


def registers(sketch: HyperLogLog, values: list[int]) -> dict[int, int]:
    """The registers as the definition reads: for each the largest rank, the zeros at the end of a hash and one."""
    found: dict[int, int] = {}
    for hash in hash_keys([pa.array(values, pa.int64())], len(values)).tolist():
        rest = hash & ((1 << (64 - sketch.precision)) - 1)
        rank = (rest & -rest).bit_length() if rest else 64 - sketch.precision + 1
        register = hash >> (64 - sketch.precision)
        found[register] = max(found.get(register, 0), rank)
    return found


@pytest.mark.parametrize("precision", [4, 12, 18])
def test_registers_are_those_of_the_definition(precision: int) -> None:
    """Without it the sketch could be any hash table that happens to give a plausible count."""
    sketch = HyperLogLog(precision)
    values = list(range(-500, 500))
    element = sketch.fold([sketch.lift(value) for value in values])
    assert {word >> 6: word & 63 for word in element} == registers(sketch, values)
    columns = sketch.reduce_sorted(sketch.lift_columns(np.array(values)), np.array([0]))
    assert sketch.unpack(columns) == [element]


@pytest.mark.parametrize(
    ("rows", "keys", "precision"),
    [(150_000, 3_000, 12), (150_000, 3, 12), (150_000, 90_000, 4), (150_000, 7, 18), (150_000, 2, 9), (10, 5, 12)],
)
@pytest.mark.parametrize("registers_max", [0, 1 << 14, 1 << 23], ids=["sorted", "mixed", "addressed"])
def test_sketches_of_many_keys_are_summed_up_as_a_sort_would(
    rows: int, keys: int, precision: int, registers_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it the parts that rows are split into could lose a register, or keep a smaller rank."""
    monkeypatch.setattr(hyperloglog, "_REGISTERS_MAX", registers_max)
    sketch = HyperLogLog(precision)
    random = np.random.default_rng(rows + keys)
    cells = random.integers(0, keys, rows)
    cells[: rows // 3] = 1
    (lifted,) = sketch.lift_columns(random.integers(0, rows // 2, rows))
    order = np.lexsort((lifted.columns[0], cells))
    codes = (cells[order] << precision) | (lifted.columns[0][order] >> 6)
    last = np.append(codes[1:] != codes[:-1], True)
    expected, lengths = lifted.columns[0][order][last], np.bincount(cells[order][last], minlength=keys)
    counts = np.bincount(cells, minlength=keys)
    held = np.flatnonzero(counts)
    (by_cells,) = sketch.reduce_cells((lifted,), cells, counts, held) or ()
    half = rows // 2
    (halves,) = concat([(sketch.merge(lifted[part], cells[part], keys),) for part in (slice(half), slice(half, rows))])
    both = sketch.merge(halves, np.tile(np.arange(keys), 2), keys)
    for table in (sketch.merge(lifted, cells, keys), both):
        assert (table.flat()[0] == expected).all() and (table.lengths == lengths).all()
    assert (by_cells.flat()[0] == expected).all() and (by_cells.lengths == lengths[held]).all()


def test_the_larger_rank_stands() -> None:
    """Without it the order in which Python iterates over a set could decide a register."""
    sketch = HyperLogLog(12)
    for a in range(1, 54):
        for b in range(1, 54):
            both = sketch.combine(frozenset({1_000 << 6 | a}), frozenset({1_000 << 6 | b}))
            assert both == frozenset({1_000 << 6 | max(a, b)})


def test_rows_in_any_order_are_those_rows() -> None:
    """Without it rows that were sorted by key, or taken twice, would be summed up as their neighbours."""
    sketch = HyperLogLog(9)
    (lifted,) = sketch.lift_columns(np.arange(1_000))
    orders = [
        [0, *np.random.default_rng(1).permutation(np.arange(1, 999)), 999],
        [0, 0, 2, 3],
        [0, 2, 3, 7],
        [5, 4, 7, 8],
        [3, 1, 2],
    ]
    for rows in map(np.array, orders):
        starts = np.arange(0, len(rows), 2)
        one_by_one = [sketch.lift(int(row)) for row in rows]
        expected = [sketch.fold(one_by_one[i : i + 2]) for i in starts]
        assert sketch.unpack(sketch.reduce_sorted((lifted[rows],), starts)) == expected


def test_ranks_of_rare_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it a hash of zeros alone, one in 2**52, would have a rank that no file may hold."""
    hashes = np.array([0, 1 << 52, 1, (1 << 52) - 2, 1 << 51, (7 << 52) | (1 << 50)], np.uint64)
    monkeypatch.setattr(hyperloglog, "key_hash", lambda column: hashes.copy())
    words = HyperLogLog(12)._words(pa.array(range(6)))
    assert [(word >> 6, word & 63) for word in words.tolist()] == [(0, 53), (1, 53), (0, 1), (0, 2), (0, 52), (7, 51)]


@pytest.mark.parametrize("share", [0.0, 1e-3, 0.1, 0.5, 0.9, 1 - 2**-18])
def test_the_corrections_are_ertls_sums(share: float) -> None:
    """Without it registers at either end of their range would be corrected by something else."""
    small = share + sum(share ** (2**k) * 2 ** (k - 1) for k in range(1, 40))
    large = (1 - share - sum((1 - share ** (2**-k)) ** 2 * 2**-k for k in range(1, 60))) / 3
    assert hyperloglog._sigma(share) == pytest.approx(small, rel=1e-12)
    assert hyperloglog._tau(share) == pytest.approx(large if share else 0.0, rel=1e-9)


@pytest.mark.parametrize(
    ("precision", "distinct"), [(4, 50), (7, 40), (7, 100), (7, 300), (7, 1_000), (10, 20), (10, 2_000), (12, 1_500)]
)
def test_the_error_is_the_stated_one(precision: int, distinct: int) -> None:
    """Without it "within 1.04 / sqrt(m)" would be a claim. 1,000 sketches; each assertion fails with p of 1e-6 or less
    if estimates are normal about the truth with at most that deviation (and a bias of a tenth of it, of few registers).
    """
    sketch = HyperLogLog(precision)
    estimates = sketch.present_columns(*[trials(sketch, distinct, seed=precision)]).to_numpy() / distinct - 1
    assert len(estimates) == TRIALS
    deviation = 1.04 / math.sqrt(1 << precision)
    quantile = statistics.NormalDist().inv_cdf(1 - P_MIN / 2)
    bias = 0.1 * deviation if precision < 7 else 0.5 / distinct
    assert abs(estimates.mean()) < bias + quantile * deviation / math.sqrt(TRIALS)
    chi_square_max = TRIALS * (1 + quantile * math.sqrt(2 / TRIALS))
    allowed = deviation * (1.15 if precision < 7 else 1) + 0.3 / distinct
    assert ((estimates / allowed) ** 2).sum() < chi_square_max
    if distinct >= 2 << precision:
        assert (estimates**2).sum() > (0.7 * deviation) ** 2 * TRIALS, "nothing is estimated so well"


@pytest.mark.parametrize(("precision", "bias", "error"), [(4, 0.069, 0.31), (5, 0.035, 0.21), (6, 0.018, 0.14)])
def test_of_few_registers_the_bias_is_the_stated_one(precision: int, bias: float, error: float) -> None:
    """Without it a user of a small sketch would trust an estimate that is 7 % too high on average."""
    sketch = HyperLogLog(precision)
    distinct = 50 << precision
    shown = sketch.present_columns(trials(sketch, distinct, precision)).to_numpy() / distinct - 1
    uncertainty = shown.std() / math.sqrt(TRIALS)
    assert abs(shown.mean() - bias) < 5 * uncertainty
    assert math.sqrt((shown**2).mean()) < error * 1.05
    if precision == 4:
        assert shown.mean() > 5 * uncertainty  # it is a bias indeed


def test_a_large_set_is_estimated_as_a_small_one() -> None:
    """Without it a bias that shows only where all registers are in use would go unseen."""
    sketch = HyperLogLog(6)
    estimates = sketch.present_columns(trials(sketch, 20_000, seed=1, count=100)).to_numpy() / 20_000 - 1
    quantile = statistics.NormalDist().inv_cdf(1 - P_MIN / 2)
    assert abs(estimates.mean()) < quantile * 0.13 / 10
    assert np.abs(estimates).max() < 0.13 * statistics.NormalDist().inv_cdf(1 - P_MIN / 200)


def test_many_are_presented_as_one_is() -> None:
    """Without it a published column would differ from a state's own answer."""
    for precision in (4, 12):
        sketch = HyperLogLog(precision)
        full = frozenset(register << 6 | 65 - precision for register in range(1 << precision))
        half = frozenset(register << 6 | 1 for register in range(1 << precision - 1))
        elements = [sketch.identity, full, half, *sketch.unpack(trials(sketch, 40, seed=2, count=50))]
        shown = sketch.present_columns(sketch.pack(elements))
        assert shown.to_pylist() == [sketch.present(element) for element in elements]
        assert shown[0].as_py() == 0 and shown[1].as_py() == 2**63 - 1 and shown.type == pa.int64()
        assert sketch.present_columns(sketch.pack([])).to_pylist() == []


def test_another_precision_is_refused_with_what_to_write() -> None:
    """Without it registers of another precision would be read as wrong counts."""
    twelve, ten = HyperLogLog(12), HyperLogLog(10)
    data = ten.encode(ten.lift("a"))
    with pytest.raises(ValueError, match=r"HyperLogLog\(12\) cannot read a sketch of precision 10.*HyperLogLog\(10\)"):
        twelve.decode(data)
    assert twelve.fingerprint() != ten.fingerprint()
    wide = next(lifted for lifted in map(twelve.lift, range(100)) if next(iter(lifted)) >> 16)
    with pytest.raises(ValueError, match=r"register \d+ of 1024: a sketch of another precision"):
        ten.from_arrow(twelve.to_arrow(twelve.pack([wide])))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x0c\1",
        b"\3",
        b"\x0c" + b"\0\0\0\0",
        b"\x0c" + (54).to_bytes(4, "little"),
        b"\x0c" + (1 << 18 | 1).to_bytes(4, "little"),
        b"\x0c" + (65).to_bytes(4, "little") * 2,
        b"\x0c" + (65).to_bytes(4, "little") + (66).to_bytes(4, "little"),
        b"\x0c" + (129).to_bytes(4, "little") + (65).to_bytes(4, "little"),
    ],
    ids=["none", "torn", "precision", "rank 0", "rank 54", "register", "twice", "two ranks", "order"],
)
def test_bytes_that_are_no_sketch_are_refused(data: bytes) -> None:
    """Without it a damaged file would become a wrong count."""
    sketch = HyperLogLog(12)
    with pytest.raises(ValueError, match=r"HyperLogLog\(12\)"):
        sketch.decode(data)
    words = np.frombuffer(data[1:], "<u4") if len(data) % 4 == 1 and len(data) > 1 else []
    if len(words):
        stored = pa.array([words.tolist()], sketch.schema.field(0).type)
        with pytest.raises(ValueError, match=r"HyperLogLog\(12\)"):
            sketch.from_arrow([stored])


def test_arguments_are_checked_at_once() -> None:
    """Without it a precision of 1,000 would fail in the first batch, on a worker."""
    for precision in (3, 19, 0, -1):
        with pytest.raises(ValueError, match="from 4 to 18"):
            HyperLogLog(precision)
    for wrong in (12.0, "12", True, None):
        with pytest.raises(TypeError, match="takes an integer"):
            HyperLogLog(wrong)  # type: ignore[arg-type]
    check(HyperLogLog())
    assert repr(HyperLogLog(14)) == "HyperLogLog(14)"


def test_bytes_of_an_element_stay_what_they_are() -> None:
    """Without it a release could no longer read the sketches of the one before."""
    sketch = HyperLogLog()
    element = sketch.fold([sketch.lift(value) for value in (1, "a", None, b"b", 2.5)])
    assert sketch.encode(element).hex() == "0c81000000417d000041f4000001a90300"
