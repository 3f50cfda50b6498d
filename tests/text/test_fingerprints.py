"""What has changed is told in the words that its user wrote, whatever the monoid."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from monoids import Bag, Count, HeavyHitters, Max, Mean, Monoid, Sum, TopK, exact_until, mapping, option, record
from monoids import HyperLogLog as Distinct
from persistent import WindowState, sliding, tumbling
from persistent.text.fingerprints import change_text, changes_text, monoid_text


class Mine(Monoid[int]):
    """A monoid of one's own, whose version says that it counts otherwise now."""

    identity = 0

    def __init__(self, version: int = 1) -> None:
        self.version = version

    def combine(self, a: int, b: int) -> int:
        return a + b


@pytest.mark.parametrize(
    ("monoid", "text"),
    [
        (Max(float), "Max(float)"),
        (Max(pa.decimal128(38, 10)), "Max(decimal128(38, 10))"),
        (record(n=Count(), of=record(top=TopK(3))), "record(n=Count(), of=record(top=TopK(int, k=3)))"),
        (option(Max(str)), "option(Max(str))"),
        (Mine(), "Mine()"),
    ],
)
def test_a_fingerprint_is_told_about_as_it_was_written(monoid: Monoid[Any], text: str) -> None:
    """In JSON of three hundred characters nobody finds the one word that differs."""
    assert monoid_text(monoid.fingerprint()) == text


@pytest.mark.parametrize("monoid", [Bag(str), Mean(), mapping(Sum()), exact_until(5, Distinct())], ids=repr)
def test_no_fingerprint_is_told_in_json(monoid: Monoid[Any]) -> None:
    """What a monoid records besides its type must not fall back to braces and quotes either."""
    text = monoid_text(monoid.fingerprint())
    assert text.startswith(monoid.fingerprint()["name"]) and not set('{}"') & set(text)


def test_only_what_differs_is_told() -> None:
    """A record of twenty fields, of which one changed, must not be printed twice."""
    old = WindowState(record(n=Count(), max=Max(), gone=Sum()), tumbling("1 min")).fingerprint()
    new = WindowState(record(n=Count(), max=Max(float), new=Sum()), sliding("1 h", "1 min")).fingerprint()
    assert changes_text(old, new) == (
        "max: Max(int) -> Max(float); gone: Sum(int) -> none; new: none -> Sum(int); "
        'window: tumbling("1 min") -> sliding("1 h", every="1 min")'
    )
    assert changes_text(old, old) == ""


def test_what_is_written_alike_is_told_apart() -> None:
    """``Mine() -> Mine()`` would drive anyone mad."""
    old, new = ({"monoid": Mine(version).fingerprint()} for version in (1, 2))
    assert changes_text(old, new) == "monoid: Mine(), with another version"
    swapped = [
        {"monoid": record(**fields).fingerprint()} for fields in ({"a": Sum(), "b": Sum()}, {"b": Sum(), "a": Sum()})
    ]
    assert changes_text(*swapped) == "fields: a, b -> b, a"


def test_the_line_that_goes_on_with_heavy_hitters_is_written_out() -> None:
    """Lost: how to go on with a state of HeavyHitters(10, str) made when one number said both."""
    earlier = HeavyHitters(10, str, track=10).fingerprint()
    line = change_text(earlier, HeavyHitters(10, str).fingerprint()).partition(" -> ")[0]
    assert line == "HeavyHitters(10, str, track=10, width=2719, depth=5)"
    assert eval(line).fingerprint() == earlier
    assert eval(monoid_text(HeavyHitters(50).fingerprint())).fingerprint() == HeavyHitters(50).fingerprint()
