"""The catalogue of laws: whole, and with formulas that can be read."""

from __future__ import annotations

import pytest

from monoids import Count, Max, Monoid, Sum
from monoids.laws import LAWS, columnar, law_named, laws_of, lifting, scalar
from monoids.laws.examples import draws
from monoids.laws.strategies import inputs_for


def test_catalogue_names_every_law_once() -> None:
    """A law left out of the catalogue is never tried."""
    functions = [law.function for law in LAWS]
    public = [
        function
        for module in (scalar, lifting, columnar)
        for name, function in vars(module).items()
        if getattr(function, "__annotations__", {}).get("return") == "Sides" and not name.startswith("_")
    ]
    assert set(functions) == set(public)
    assert len({law.name for law in LAWS}) == len(LAWS) == len(set(functions))


def test_formulas_have_two_sides() -> None:
    """A violation shows each side under its half of the formula."""
    assert [law.name for law in LAWS if law.formula.count(" == ") != 1] == []
    assert all(len(law.formula) < 80 and "\n" not in law.formula for law in LAWS)


def test_arguments_of_laws_can_be_drawn() -> None:
    """A law with an argument of another name could never be tried."""
    drawn = set(draws(inputs_for(Sum())))
    assert {name for law in LAWS for name in law.arguments} == drawn


def test_traits_choose_the_laws() -> None:
    """A law that is tried on a monoid that does not claim it finds faults that are none."""

    class Plain(Monoid[str]):
        identity = ""

    names = {law.name for law in LAWS}
    assert names - {law.name for law in laws_of(Plain())} == {
        "commutativity",
        "idempotence",
        "inverse",
        "reached associativity",
        "columnar combine",
        "Arrow round trip",
        "Arrow slice",
        "no mutation of inputs",
        "no mutation of columns",
    }
    assert names - {law.name for law in laws_of(Count())} == {"idempotence"}
    assert names - {law.name for law in laws_of(Max())} == {"inverse", "reached associativity"}
    assert "canonical bytes" not in {law.name for law in laws_of(Sum(float))}


def test_unknown_name_is_told_the_names() -> None:
    """Nobody knows the names of all laws by heart."""
    assert law_named("fold").name == "fold"
    with pytest.raises(ValueError, match="no law 'folding'; the laws are: no mutation, totality, left identity, "):
        law_named("folding")
