"""The laws find what they are for: each planted defect by its law and by no other, and nothing in its honest twin."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st

import tests.monoids.laws.columnar_defects as columns
import tests.monoids.laws.defects as scalars
from monoids import Monoid
from monoids.laws import LAWS, Trial, assert_monoid_laws
from tests.few import one_in
from tests.monoids.laws.defects import FINITE, LISTS, SMALL

ODD = st.sampled_from([2**53 + 1, -(2**53) - 1])
NULLS = st.none() | SMALL
HUNDREDS = st.integers(-100, 100)
Row = tuple[Monoid[Any], st.SearchStrategy[Any], set[str], Monoid[Any]]

DEFECTS: list[Row] = [
    # monoid, inputs, the laws it breaks, its honest twin
    (scalars.Average(), FINITE, {"totality"}, scalars.AverageOfSome()),
    (scalars.UpdatingUnion(), SMALL, {"no mutation"}, scalars.Union()),
    (scalars.FirstAtAll(), SMALL, {"left identity"}, scalars.First()),
    (scalars.LastAtAll(), SMALL, {"right identity"}, scalars.Last()),
    (scalars.LargestFromZero(), SMALL, {"left identity", "right identity"}, scalars.Largest()),
    (scalars.ExactFloats(), FINITE, {"associativity", "any tree"}, scalars.Floats()),
    (scalars.Midpoint(), FINITE, {"associativity", "any tree"}, scalars.CountAndSum()),
    (scalars.Compacting(), SMALL, {"any tree"}, scalars.Sampled()),
    (scalars.CommutingList(), SMALL, {"commutativity"}, scalars.Sampled()),
    (scalars.CappedSketch(), SMALL, {"commutativity"}, scalars.Capped()),
    (scalars.AddingTwice(), SMALL, {"idempotence"}, scalars.Adding()),
    (scalars.SelfInverse(), SMALL, {"inverse"}, scalars.Adding()),
    (scalars.RunningMean(), FINITE, {"reached associativity"}, scalars.CountAndSum()),
    (scalars.ForgetfulFold(), SMALL, {"fold"}, scalars.Integers()),
    (scalars.FoldOfSome(), SMALL, {"empty fold"}, scalars.Integers()),
    (scalars.SortingLift(), LISTS, {"pure lift"}, scalars.Lists()),
    (scalars.SortingPresent(), LISTS, {"pure present"}, scalars.Lists()),
    (
        scalars.MarksNothing(),
        st.lists(SMALL, min_size=1, max_size=3),
        {"pure present", "columnar present"},
        scalars.Lists(),
    ),
    (scalars.Truncating(), SMALL, {"serializer round trip"}, scalars.Words()),
    (scalars.ModelessReadings(), SMALL, {"serializer homomorphism"}, scalars.Readings()),
    (scalars.ModelessSigns(), SMALL, {"serializer presents"}, scalars.Signs()),
    (scalars.HashOrdered(), SMALL, {"canonical bytes"}, scalars.Words()),
    (scalars.Undefended(), SMALL, {"damaged bytes"}, scalars.Words()),
    (scalars.Unchecked(), SMALL, {"damaged bytes"}, scalars.Checked()),
    (scalars.FloatingFingerprint(), SMALL, {"fingerprint"}, scalars.Weighted()),
    (scalars.TupleFingerprint(), SMALL, {"fingerprint"}, scalars.Weighted()),
    (scalars.Addressed(), SMALL, {"representation"}, scalars.Integers()),
    (columns.FloatList(), ODD, {"columnar lift"}, scalars.Integers()),
    (columns.NarrowArrow(), st.integers(2**31, 2**32), {"columnar lift of Arrow"}, scalars.Integers()),
    (columns.NullsAreOne(), NULLS, {"columnar lift of nulls"}, scalars.Integers()),
    (columns.IgnoresOffset(), SMALL, {"columnar lift of a slice"}, scalars.Integers()),
    (columns.OneChunk(), SMALL, {"columnar lift of chunks"}, scalars.Integers()),
    (columns.IgnoresStrides(), SMALL, {"columnar lift of NumPy"}, scalars.Integers()),
    (columns.CodesForValues(), SMALL, {"columnar lift of a dictionary"}, scalars.Integers()),
    (columns.ListBeyondThousand(), SMALL, {"columnar lift"}, scalars.Integers()),
    (columns.OneWidth(), SMALL, {"columnar lift of other widths"}, scalars.Integers()),
    (columns.NumPyWidth(), SMALL, {"columnar lift of other widths"}, scalars.Integers()),
    (columns.NullsOfDictionary(), NULLS, {"columnar lift of a dictionary"}, scalars.Integers()),
    (columns.ClearsInput(), SMALL, {"no mutation of inputs"}, scalars.Integers()),
    (columns.LooksAtFirst(), SMALL, {"columnar lift of no rows"}, scalars.Integers()),
    (columns.OneForAll(), SMALL, {"columnar lift of one value"}, scalars.Integers()),
    (columns.NothingIsLeast(), SMALL, {"pack"}, columns.Largest()),
    (columns.NothingToReduce(), SMALL, {"empty columns"}, scalars.Integers()),
    (columns.Numbered(), SMALL, {"take"}, scalars.Integers()),
    (columns.OneDictionary(), SMALL, {"concat"}, columns.OwnDictionaries()),
    (columns.ConstantIsOne(), SMALL, {"repeat"}, scalars.Integers()),
    (columns.EagerReduce(), SMALL, {"columnar reduce"}, scalars.Integers()),
    (columns.EmptyGroups(), SMALL, {"columnar reduce of identities"}, columns.Largest()),
    (columns.ConstantAsOne(), SMALL, {"columnar reduce of one value"}, scalars.Integers()),
    (columns.NarrowLift(), HUNDREDS, {"columnar reduce of lifted"}, scalars.Integers()),
    (columns.NarrowReduce(), st.integers(0, 20_000), {"columnar reduce in stages"}, scalars.Integers()),
    (columns.CombinesTheFirst(), SMALL, {"columnar combine"}, scalars.Integers()),
    (columns.FirstCells(), SMALL, {"columnar reduce by cells"}, scalars.Integers()),
    (columns.TruncatingCount(), st.integers(0, 1), {"columnar reduce"}, scalars.Integers()),
    (columns.FewCells(), SMALL, {"columnar reduce by cells"}, scalars.Integers()),
    (columns.CellsOfSomething(), SMALL, {"columnar reduce by cells"}, columns.LargestByCells()),
    (columns.ReducesInPlace(), SMALL, {"no mutation of columns"}, scalars.Integers()),
    (columns.PresentsAndClears(), SMALL, {"no mutation of columns"}, scalars.Integers()),
    (columns.StoresAndClears(), SMALL, {"no mutation of columns"}, scalars.Integers()),
    (columns.NothingIsNull(), SMALL, {"Arrow round trip"}, columns.Largest()),
    (columns.NothingIsZero(), SMALL, {"Arrow round trip"}, columns.Largest()),
    (columns.PresentsZero(), SMALL, {"columnar present"}, columns.Largest()),
    (columns.StoresSmall(), st.integers(-(2**40), 2**40), {"Arrow round trip"}, scalars.Integers()),
    (columns.ReadsFromStart(), SMALL, {"Arrow slice"}, scalars.Integers()),
    (columns.StoresGarbage(), NULLS, {"canonical columns"}, columns.StoresNothing()),
    (columns.SignedConstants(), SMALL, {"canonical constants"}, columns.Texts()),
]
IDS = [type(row[0]).__name__ for row in DEFECTS]


@pytest.mark.parametrize("examples", one_in(2, [50, 200]))
@pytest.mark.parametrize(("monoid", "inputs", "broken"), [row[:3] for row in DEFECTS], ids=IDS)
def test_planted_defects_are_found_by_the_law_they_break(
    monoid: Monoid[Any],
    inputs: st.SearchStrategy[Any],
    broken: set[str],
    examples: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Laws that pass a defect are decoration; a law that names another fault sends its reader astray."""
    if examples == 50:
        # A small counterexample takes twenty times as long as any one, and none is looked at here.
        monkeypatch.setattr(Trial, "_smallest", lambda self, law, example, seen: seen)
    trial = Trial(monoid, inputs, examples=examples)
    found = {law.name: trial.violation(law) for law in trial.laws}
    assert {name for name, violation in found.items() if violation} == broken
    assert all(violation.law == name for name, violation in found.items() if violation)


TWINS = list({(type(row[3]), str(row[1])): (row[1], row[3]) for row in DEFECTS}.values())


@pytest.mark.parametrize("examples", one_in(2, [25, 200]))
@pytest.mark.parametrize(("inputs", "twin"), TWINS, ids=lambda value: str(value)[:40])
def test_honest_twins_pass(inputs: st.SearchStrategy[Any], twin: Monoid[Any], examples: int) -> None:
    """A law that fails an honest monoid is noise, and is soon switched off."""
    assert_monoid_laws(twin, inputs, examples=examples)


def test_every_law_finds_a_defect() -> None:
    """A law that never failed may be unable to."""
    assert {name for row in DEFECTS for name in row[2]} == {law.name for law in LAWS}
    assert len(DEFECTS) >= 24
    assert sum(len(row[2]) == 1 for row in DEFECTS) >= len(LAWS) - 2
