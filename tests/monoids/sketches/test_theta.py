"""Theta estimates sets and what is made of them, and speaks with DataSketches."""

from __future__ import annotations

import math
import statistics
from itertools import product
from typing import Any

import datasketches
import numpy as np
import pyarrow as pa
import pytest

from monoids import Theta
from monoids.column import Columns
from monoids.monoid import check
from monoids.sketches.theta import THETA_MAX, ThetaSample
from tests.monoids.sketches.thetas import sketch_of, theirs

TRIALS = 1_000
QUANTILE = statistics.NormalDist().inv_cdf(1 - 1e-6 / 2)


def of_hashes(k: int, hashes: set[int], theta: int = THETA_MAX) -> ThetaSample:
    """The element by its definition."""
    below = sorted(hash for hash in hashes if hash < theta)
    return ThetaSample(theta if len(below) <= k else below[k], tuple(below[:k]))


# The element.


def test_union_is_associative_for_any_thetas() -> None:
    """Without it a sketch that another system has cut would make the sum depend on the order of merging. All
    elements over hashes 1 to 4, for k of 2, in all triples."""
    theta = Theta(2)
    samples = {
        of_hashes(2, {h for h, taken in enumerate(bits, 1) if taken}, top)
        for bits in product([0, 1], repeat=4)
        for top in (1, 2, 3, 4, 5, THETA_MAX)
    }
    combine = theta.combine
    for a, b in product(samples, repeat=2):
        assert combine(a, b) == combine(b, a)
        assert combine(a, b) == of_hashes(2, {*a.hashes, *b.hashes}, min(a.theta, b.theta))
        theta_both = min(a.theta, b.theta)
        assert theta.intersection(a, b) == of_hashes(2, {*a.hashes} & {*b.hashes}, theta_both)
        assert theta.difference(a, b) == of_hashes(2, {*a.hashes} - {*b.hashes}, theta_both)
        for c in samples:
            assert combine(combine(a, b), c) == combine(a, combine(b, c))
    some = sorted(samples, key=lambda sample: (sample.theta, sample.hashes))
    columns = theta.pack([*some, *some[::-1], *some[7:], *some[:7]])
    starts = np.arange(0, 3 * len(some), 2)
    rows = theta.unpack(columns)
    expected = [theta.fold(rows[i : i + 2]) for i in starts]
    assert theta.unpack(theta.reduce_sorted(columns, starts)) == expected
    cells = np.arange(len(rows)) // 2 + 1
    counts = np.bincount(cells)
    assert theta.unpack(theta.reduce_cells(columns, cells, counts, np.flatnonzero(counts)) or ()) == expected


def test_up_to_k_values_are_counted_exactly() -> None:
    """Without it small sets, which most keys have, would be estimated for no reason."""
    theta = Theta(100)
    assert [theta.present(sketch_of(theta, list(range(n)) * 2)) for n in (0, 1, 99, 100)] == [0, 1, 99, 100]
    assert theta.present(sketch_of(theta, [None, "", "", b""])) == 1, "an empty text is a value"
    cut = sketch_of(theta, list(range(101)))
    assert len(cut.hashes) == 100 and cut.theta < THETA_MAX


# The error.


def random_sets(theta: Theta, sizes: list[int], seed: int) -> tuple[list[Columns], np.ndarray[Any, Any]]:
    """TRIALS triples of sets: of each size a part, A the first two parts, B the last two."""
    random = np.random.default_rng(seed)
    parts = [random.integers(-(2**62), 2**62, (TRIALS, size)) for size in sizes]
    sides = [np.concatenate(parts[:2], axis=1), np.concatenate(parts[1:], axis=1)]
    starts = [np.arange(TRIALS) * side.shape[1] for side in sides]
    return [theta.reduce_sorted(theta.lift_columns(s.ravel()), at) for s, at in zip(sides, starts)], random.random(1)


@pytest.mark.parametrize(("k", "distinct"), [(16, 17), (16, 500), (128, 1_000), (512, 1_500)])
def test_the_error_of_a_union_is_the_stated_one(k: int, distinct: int) -> None:
    """Without it "1 / sqrt(k - 1)" would be a claim. 1,000 sketches; each bound is passed with p of 1e-6 at most."""
    theta = Theta(k)
    values = np.random.default_rng(k).integers(-(2**62), 2**62, TRIALS * distinct)
    columns = theta.reduce_sorted(theta.lift_columns(values), np.arange(0, len(values), distinct))
    shares = theta.present_columns(columns).to_numpy() / distinct - 1
    deviation = math.sqrt((distinct - k) / distinct / (k - 1))
    assert deviation <= 1 / math.sqrt(k - 1)
    assert abs(shares.mean()) < 0.5 / distinct + QUANTILE * deviation / math.sqrt(TRIALS)
    ratio = (shares**2).mean() / deviation**2
    spread = QUANTILE * math.sqrt((2 + 6 / k * 4) / TRIALS)
    assert 1 - spread < ratio < 1 + 2 * spread + 0.5 / distinct / deviation


def test_the_error_of_set_operations_is_the_stated_one() -> None:
    """Without it an intersection could be read as certain where it is a handful of hashes. 1,000 pairs of sets."""
    theta = Theta(128)
    (a, b), _ = random_sets(theta, [600, 300, 300], seed=9)
    pairs = list(zip(theta.unpack(a), theta.unpack(b)))
    for name, size, union in (("intersection", 300, 1_200), ("difference", 600, 1_200), ("union", 1_200, 1_200)):
        operation = getattr(theta, name)
        shares = np.array([theta.estimate(operation(x, y)) for x, y in pairs]) / size - 1
        deviation = math.sqrt(union / size / 128)
        assert abs(shares.mean()) < QUANTILE * deviation / math.sqrt(TRIALS), name
        assert (shares**2).mean() < deviation**2 * (1 + QUANTILE * math.sqrt(2 / TRIALS)), name
    shares = np.array([theta.jaccard(x, y) for x, y in pairs]) - 0.25
    deviation = math.sqrt(0.25 * 0.75 / 128)
    assert abs(shares.mean()) < QUANTILE * deviation / math.sqrt(TRIALS)
    assert (shares**2).mean() < deviation**2 * (1 + QUANTILE * math.sqrt(2 / TRIALS))


def test_similarity_of_an_intersection_is_as_uncertain_as_its_hashes_are_few() -> None:
    """Without it the error of a nested comparison would be read off k, and be four times as large."""
    theta, random = Theta(64), np.random.default_rng(9)
    errors, kept = [], []
    for _ in range(400):
        values = random.integers(-(2**62), 2**62, 8_000)
        starts = [0, 3_500, 7_000]  # of two sets that share 500, then of half of these and as many others
        columns = theta.lift_columns(
            np.concatenate((values[:3_500], values[:500], values[3_500:6_500], values[250:750]))
        )
        x, y, z = theta.unpack(theta.reduce_sorted(columns, np.array(starts)))
        inside = theta.intersection(x, y)
        lowest = min(inside.theta, z.theta)
        kept.append(len({hash for hash in (*inside.hashes, *z.hashes) if hash < lowest}))
        errors.append(theta.jaccard(inside, z) - 1 / 3)
    deviation = math.sqrt(1 / 3 * 2 / 3 / np.mean(kept))
    assert np.mean(kept) < 64 / 4
    assert 0.8 * deviation < np.std(errors) < 1.5 * deviation


def test_set_operations_of_small_sets_are_exact() -> None:
    """Without it an operation could take the wrong side, within its error."""
    theta = Theta(64)
    a, b = set(range(40)), set(range(30, 60))
    x, y = sketch_of(theta, sorted(a)), sketch_of(theta, sorted(b))
    assert theta.intersection(x, y) == sketch_of(theta, sorted(a & b))
    assert theta.difference(x, y) == sketch_of(theta, sorted(a - b))
    assert theta.union(x, y) == sketch_of(theta, sorted(a | b))
    assert theta.jaccard(x, y) == len(a & b) / len(a | b)
    assert theta.jaccard(theta.identity, theta.identity) == 1.0 and theta.jaccard(x, theta.identity) == 0.0


# DataSketches.


def test_estimates_agree_with_datasketches() -> None:
    """Without it the same bytes could mean another number here than there."""
    theta = Theta(1_024)
    a, b = (list(range(start, start + 20_000)) for start in (0, 5_000))
    x, y = (theta.from_datasketches(theirs(values, 10).compact().serialize()) for values in (a, b))
    x_there, y_there = (datasketches.compact_theta_sketch.deserialize(theta.encode(s)) for s in (x, y))
    for name, there in (
        ("intersection", datasketches.theta_intersection()),
        ("difference", datasketches.theta_a_not_b()),
        ("union", datasketches.theta_union(10)),
    ):
        if name == "difference":
            result = there.compute(x_there, y_there)
        else:
            there.update(x_there)
            there.update(y_there)
            result = there.get_result()
        ours = getattr(theta, name)(x, y)
        assert theta.from_datasketches(result.serialize()) == ours, name
        assert result.get_estimate() == pytest.approx(theta.estimate(ours), rel=1e-12)
    assert theta.jaccard(x, y) == pytest.approx(datasketches.theta_jaccard_similarity.jaccard(x_there, y_there)[1])


def test_an_element_of_another_k_or_form_is_refused() -> None:
    """Without it equal elements could have two encodings, or a sketch more hashes than its k."""
    large = sketch_of(Theta(64), list(range(40)))
    with pytest.raises(ValueError, match=r"Theta\(32\) cannot read a sketch of 40 hashes: read it with the k"):
        Theta(32).decode(Theta(64).encode(large))
    with pytest.raises(ValueError, match="from_datasketches"):
        Theta(64).decode(theirs(list(range(9))).compact(False).serialize())
    assert Theta(32).fingerprint() != Theta(64).fingerprint()
    columns = Theta(64).to_arrow(Theta(64).pack([large]))
    with pytest.raises(ValueError, match="more than 32"):
        Theta(32).from_arrow(columns)
    for wrong in (1, 2**26 + 1):
        with pytest.raises(ValueError, match="from 2 to"):
            Theta(wrong)
    for other in (16.0, True, "16"):
        with pytest.raises(TypeError, match="takes an integer"):
            Theta(other)  # type: ignore[arg-type]
    check(Theta())


@pytest.mark.parametrize(
    ("theta", "hashes"), [(0, []), (2**63, []), (5, [5]), (5, [0]), (5, [3, 2]), (5, [2, 2]), (None, []), (5, None)]
)
def test_damaged_columns_are_refused(theta: int | None, hashes: list[int] | None) -> None:
    """Without it a damaged file would become a wrong count."""
    monoid = Theta(16)
    types = monoid.schema.types
    with pytest.raises(ValueError, match=r"Theta\(16\)"):
        monoid.from_arrow([pa.array([9, theta], types[0]), pa.array([[1], hashes], types[1])])
