"""The compact theta sketch of Apache DataSketches, as bytes: serial version 3, family 3, little-endian.

byte 0      the number of 8-byte words before the hashes: 1 (none or one hash), 2, or 3 (theta is one of them)
bytes 1, 2  serial version 3, family 3
byte 5      flags: 2 read only, 4 empty, 8 compact, 16 ordered
bytes 6, 7  the hash of the seed
bytes 8-11  the number of hashes (with 2 and 3 words)
bytes 16-   theta (with 3 words)
then        the hashes, 63 bits each, none of them 0
Source: datasketches-cpp, compact_theta_sketch.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from monoids.sketches.murmur import SEED, murmur3
from monoids.text import Words

THETA_MAX = (1 << 63) - 1
"""The theta of a sketch that holds the hash of every value it has seen."""

_VERSION, _FAMILY = 3, 3
_READ_ONLY, _EMPTY, _COMPACT, _ORDERED = 2, 4, 8, 16
_BIG_ENDIAN = 1
_HEAD = struct.Struct("<BBBHBH")
SEED_HASH = murmur3(struct.pack("<Q", SEED), 0)[0] & 0xFFFF


def to_bytes(theta: int, hashes: Sequence[int]) -> bytes:
    """The sketch of these hashes, ascending and all below ``theta``."""
    count = len(hashes)
    words = 3 if theta < THETA_MAX else 2 if count > 1 else 1
    empty = 0 if count or theta < THETA_MAX else _EMPTY
    parts = [_HEAD.pack(words, _VERSION, _FAMILY, 0, _READ_ONLY | _COMPACT | _ORDERED | empty, SEED_HASH)]
    if words > 1:
        parts.append(struct.pack("<II", count, 0))
    if words > 2:
        parts.append(struct.pack("<Q", theta))
    return b"".join([*parts, np.array(hashes, "<u8").tobytes()])


def from_bytes(data: bytes) -> tuple[int, Words]:
    """The theta of a sketch, and its hashes, ascending. ValueError for bytes that are not a sketch."""
    if len(data) < 8:
        raise ValueError(f"{len(data)} bytes are not a theta sketch of DataSketches, which has at least 8")
    words, version, family, _, flags, seed_hash = _HEAD.unpack_from(data)
    if version != _VERSION or family != _FAMILY or not flags & _COMPACT or flags & _BIG_ENDIAN:
        raise ValueError(
            f"a theta sketch of serial version {version}, family {family} is not supported: write it with"
            " 'sketch.compact().serialize()', which makes version 3, family 3"
        )
    if flags & _EMPTY:
        return THETA_MAX, np.zeros(0, np.uint64)
    if seed_hash != SEED_HASH:
        raise ValueError(f"a theta sketch with another seed (hash {seed_hash}, not {SEED_HASH}): use the seed {SEED}")
    if words not in (1, 2, 3) or len(data) < 8 * words:
        raise ValueError(f"a theta sketch of {len(data)} bytes with a head of {words} words is truncated")
    count = 1 if words == 1 else struct.unpack_from("<I", data, 8)[0]
    if len(data) != 8 * (words + count):
        raise ValueError(f"a theta sketch of {count} hashes has {8 * (words + count)} bytes, not {len(data)}")
    theta = struct.unpack_from("<Q", data, 16)[0] if words == 3 else THETA_MAX
    hashes = np.frombuffer(data, "<u8", count, 8 * words).astype(np.uint64)
    if not flags & _ORDERED:
        hashes.sort()
    if not 1 <= theta <= THETA_MAX or (count and not 0 < hashes[0] <= hashes[-1] < theta):
        raise ValueError(f"a theta sketch with a hash of 0, or one not below its theta {theta}, is damaged")
    if (hashes[1:] <= hashes[:-1]).any():
        raise ValueError("a theta sketch whose hashes do not ascend is damaged")
    return theta, hashes
