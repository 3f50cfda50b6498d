"""A plan found after a crash is the plan that was put."""

from __future__ import annotations

import pytest

from persistent.checkpoint.plan import StepPlan
from persistent.codec import decode_document, encode_document
from persistent.errors import CorruptCheckpoint
from persistent.sources.protocol import Span, Split
from tests.checkpoint.samples import plan, run

FULL = plan(
    5,
    number=2,
    start={"memory": (3, 40)},
    wall_ms=1_700_000_000_000,
    close_at=60_000,
    end_of_input=True,
    splits=(Split("a", (Span(0, 1, 9), Span(1, 0, 3, {"path": "x=1/é", "groups": [0, 1]}))), Split("b", ())),
    cap={"a": -1, "b": 7, "c": None},
    recorded={"schema": [["ts", "int64"]]},
    appended=(run("i"),),
)


def test_a_plan_is_read_as_it_was_written() -> None:
    """A step repeated from a plan that lost a split, a time of day or a cap is another step."""
    for one in (plan(), FULL):
        assert StepPlan.decode(one.encode(), "p") == one


def test_every_flipped_bit_and_every_truncation_is_refused() -> None:
    """A wrong plan commits wrong positions."""
    data = plan().encode()
    for bit in range(len(data) * 8):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptCheckpoint, match="place"):
            StepPlan.decode(bytes(changed), "place")
    for length in range(len(data)):
        with pytest.raises(CorruptCheckpoint, match="place"):
            StepPlan.decode(data[:length], "place")


def test_a_newer_plan_is_refused_by_name() -> None:
    """An older release must not run half of what a newer one planned."""
    body = decode_document(plan().encode(), "p")
    with pytest.raises(CorruptCheckpoint, match="format 9"):
        StepPlan.decode(encode_document({**body, "format": 9}), "p")
    with pytest.raises(CorruptCheckpoint, match="needs graphs"):
        StepPlan.decode(encode_document({**body, "features": ["graphs"]}), "p")
    for field in ("splits", "end", "wall_ms", "nonce"):
        with pytest.raises(CorruptCheckpoint, match="not a plan"):
            StepPlan.decode(encode_document({name: value for name, value in body.items() if name != field}), "p")
