"""A theta sketch is written as datasketches writes it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import datasketches
import pytest

from monoids import Theta
from monoids.sketches.theta import SEED_HASH, THETA_MAX
from tests.monoids.sketches.thetas import sketch_of, theirs

KINDS: dict[str, Callable[[int], Any]] = {
    "integers": lambda i: i - 500,
    "strings": lambda i: f"visitor \u00e9 {i}" * (1 + i % 3),
    "floats": lambda i: i / 7,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("distinct", [0, 1, 2, 1_000, 4_096, 30_000])
def test_datasketches_reads_what_we_write_and_we_what_it_writes(kind: str, distinct: int) -> None:
    """Without it sketches of a warehouse and of a stream could not be united."""
    theta = Theta(4_096)
    values = [KINDS[kind](i) for i in range(distinct)]
    ours, their = sketch_of(theta, values), theirs(values)
    read = datasketches.compact_theta_sketch.deserialize(theta.to_datasketches(ours))
    assert (read.theta64, read.num_retained, list(read)) == (ours.theta, len(ours.hashes), list(ours.hashes))
    assert read.get_estimate() == pytest.approx(theta.estimate(ours), rel=1e-12)
    assert read.is_empty() == (distinct == 0) and read.is_ordered()
    union = datasketches.theta_union(12)
    union.update(their)
    for ordered in (True, False):
        back = theta.from_datasketches(their.compact(ordered).serialize())
        assert back == theta.from_datasketches(union.get_result().serialize())
        assert theta.combine(back, ours) == back
        assert theta.decode(theta.encode(back)) == back
        if distinct <= 4_096:
            assert back == ours and theta.encode(ours) == their.compact().serialize()


def test_the_seed_is_that_of_datasketches() -> None:
    """Without it a sketch of another seed would be united as if its hashes were ours."""
    assert datasketches.update_theta_sketch().compact().get_seed_hash() == SEED_HASH
    other = datasketches.update_theta_sketch(12, 1.0, 1)
    other.update(1)
    with pytest.raises(ValueError, match=f"another seed.*{SEED_HASH}"):
        Theta().from_datasketches(other.compact().serialize())


def damaged() -> dict[str, bytes]:
    whole = theirs(list(range(30)), 5).compact().serialize()
    head, hashes = whole[:24], whole[24:]
    assert whole[0] == 3 or len(whole) == 8 * (whole[0] + 30)
    huge = struct.pack("<BBBHBHII", 2, 3, 3, 0, 26, SEED_HASH, 2**32 - 1, 0)
    exact = huge[:8] + struct.pack("<II", 2, 0)
    return {
        "nothing": b"",
        "short": whole[:7],
        "torn": whole[:-1],
        "longer": whole + b"\0",
        "version": bytes((whole[0], 4)) + whole[2:],
        "family": whole[:2] + b"\2" + whole[3:],
        "a count that is a lie": huge,
        "zero hash": exact + struct.pack("<QQ", 0, 1),
        "above theta": exact + struct.pack("<QQ", 1, THETA_MAX),
        "order": exact + struct.pack("<QQ", 2, 1),
        "twice": exact + struct.pack("<QQ", 2, 2),
        "head": b"\x09" + head[1:] + hashes,
        "no theta": b"\3" + huge[1:],
        "theta 0": b"\3" + huge[1:8] + struct.pack("<IIQ", 0, 0, 0),
    }


@pytest.mark.parametrize("name", damaged())
def test_bytes_that_are_no_sketch_are_refused(name: str) -> None:
    """Without it damage would become a wrong count, or a count of hashes an allocation of 32 GB."""
    theta, data = Theta(), damaged()[name]
    with pytest.raises(ValueError, match="theta sketch"):
        theta.from_datasketches(data)
    with pytest.raises(ValueError, match=r"Theta\(4096\)"):
        theta.decode(data)
