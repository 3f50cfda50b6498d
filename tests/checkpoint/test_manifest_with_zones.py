"""The rules of a time zone in a manifest and in a plan."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.parts import NodePart
from persistent.checkpoint.plan import StepPlan, TaskStep
from persistent.errors import CorruptCheckpoint
from persistent.time.zone import Zone
from tests.checkpoint.samples import body_of, document, manifest, plan

ZONE = Zone("Europe/Berlin", ((-97_459_200, 3_600), (1_711_846_800, 7_200)))


def with_zone(zone: Zone | None) -> tuple[Manifest, StepPlan]:
    """A manifest and a plan with these rules."""
    one, step = manifest(), plan(4)
    nodes = {name: replace(node, zone=zone) for name, node in one.nodes.items()}
    return replace(one, nodes=nodes), replace(step, tasks={"Visits": TaskStep(5, True, zone)})


def test_documents_keep_the_rules_of_a_zone() -> None:
    """A step that is repeated, or a state that is read again, would have other windows."""
    for one in with_zone(ZONE):
        assert type(one).decode(one.encode(), "there") == one


def test_documents_without_a_zone_are_as_they_were() -> None:
    """Each job of before would be refused by the release before, though it uses nothing new."""
    for one in with_zone(None):
        assert b'"zone"' not in one.encode()
        assert type(one).decode(one.encode(), "there") == one


BEGIN = [-97_459_200, 0]


@pytest.mark.parametrize(
    ("zone", "says"),
    [
        ({"name": "z" * 201, "offsets": [BEGIN]}, "length <= 200"),
        ({"name": 1, "offsets": [BEGIN]}, "Expected `str`"),
        ({"name": "z", "offsets": []}, "length >= 1"),
        ({"name": "z", "offsets": [BEGIN, BEGIN]}, "not the rules of a zone"),
        ({"name": "z", "offsets": [BEGIN, [5, 0]]}, "not the rules of a zone"),
        ({"name": "z", "offsets": [BEGIN, [5, 60], [5, 0]]}, "not the rules of a zone"),
        ({"name": "z", "offsets": [BEGIN, [5, 60], [4, 0]]}, "not the rules of a zone"),
        ({"name": "z", "offsets": [[0, 86_401]]}, "86400"),
        ({"name": "z", "offsets": [[0, -86_401]]}, "86400"),
        ({"name": "z", "offsets": [[0]]}, "offsets"),
        ({"name": "z", "offsets": [[number, number % 2] for number in range(10_001)]}, "length <= 10000"),
        ({"name": "z"}, "offsets"),
        ({"name": "z", "offsets": [BEGIN], "more": 1}, "unknown field `more`"),
        (None, "Expected `object`|the one spelling"),
    ],
)
def test_rules_that_are_none_are_damage(zone: Any, says: str) -> None:
    """Sealed, but of no driver of ours: every border would follow from it."""
    for one in with_zone(ZONE):
        body = body_of(one.encode(), "there")
        place = body["nodes"]["Visits"] if "nodes" in body else body["tasks"]["Visits"]
        place["zone"] = {"name": "z" * 200, "offsets": [[number, number % 2] for number in range(10_000)]}
        type(one).decode(document(body), "there")
        place["zone"] = {"name": "z", "offsets": [[0, 86_400], [1, -86_400]]}
        type(one).decode(document(body), "there")
        place["zone"] = zone
        with pytest.raises(CorruptCheckpoint, match=says):
            type(one).decode(document(body), "there")


@pytest.mark.parametrize(("window", "closes"), [(None, False), ({"size_ms": 1, "every_ms": 1}, True)])
def test_whether_the_clock_closes_windows_of_a_state(window: Any, closes: bool) -> None:
    """A rollback would not publish totals again, and a merge refuse two of them."""
    assert NodePart({"window": window}).has_windows == closes and not NodePart({}).has_windows
