"""What was proven once is recognised, and nothing else is: a file that is damaged afterwards is found before its rows
are used."""

from __future__ import annotations

import hashlib
import zlib

import pyarrow as pa
import pytest

from monoids import Sum
from persistent.codec import sealed
from persistent.codec import sealed as recognised
from persistent.codec.runs import decode_run
from persistent.codec.sealed import has_sha256, is_recognised
from persistent.errors import CorruptCheckpoint
from tests.codec.test_runs_looked_up import found, rows_of, run_of


@pytest.fixture
def proofs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hashes that were asked for, one for each time that bytes were hashed. Nothing is known."""
    asked: list[str] = []

    def counted(data: object, sha256: str) -> bool:
        asked.append(sha256)
        return has_sha256(data, sha256)

    monkeypatch.setattr(recognised, "has_sha256", counted)
    recognised._known.cache_clear()
    return asked


def test_bytes_are_proven_once(proofs: list[str]) -> None:
    """Hashing the whole state anew was most of what a step took that publishes keys drawn from all."""
    data, sha256 = b"some rows", hashlib.sha256(b"some rows").hexdigest()
    assert is_recognised(data, sha256) and is_recognised(bytearray(data), sha256) and proofs == [sha256]


def test_a_bit_that_changes_after_the_proof_is_found(proofs: list[str]) -> None:
    """The file is read again in each step, and a disk can fail between two of them."""
    data, run = run_of(rows_of([4, 5, 6]))
    assert found(data, run, 5) == [1]
    for place in range(0, len(data), 5):
        damaged = bytearray(data)
        damaged[place] ^= 1 << place % 8
        with pytest.raises(CorruptCheckpoint):
            found(bytes(damaged), run, 5)
    assert len(proofs) > 20, "those in the batch were hashed again, to say so"
    assert found(data, run, 5) == [1]


def test_bytes_that_were_never_proven_are_not_recognised(proofs: list[str]) -> None:
    """Damaged bytes that come back a second time have been seen before, which proves nothing."""
    good, bad = b"some rows", b"some r0ws"
    sha256 = hashlib.sha256(good).hexdigest()
    assert [is_recognised(one, sha256) for one in (bad, bad, good, bad, good)] == [False, False, True, False, True]


def test_bytes_that_change_while_they_are_proven_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mapped file can change between the proof and the checksum, which would then vouch for the damage for ever."""
    good, bad = b"some rows, again", b"some r0ws, again"
    sha256, shown, of = hashlib.sha256(good).hexdigest(), bytearray(good), zlib.crc32

    def checksum(data: bytes) -> int:
        value = of(data)
        shown[:] = bad
        return value

    monkeypatch.setattr(zlib, "crc32", checksum)
    assert not is_recognised(shown, sha256)
    monkeypatch.undo()
    assert not is_recognised(bad, sha256) and is_recognised(good, sha256)

    def proof(data: bytes, sha256: str) -> bool:
        is_good = has_sha256(data, sha256)
        shown[:] = bad
        return is_good

    recognised._known.cache_clear()
    shown[:] = good
    monkeypatch.setattr(recognised, "has_sha256", proof)
    assert is_recognised(shown, sha256)
    monkeypatch.undo()
    assert not is_recognised(shown, sha256)


def test_a_state_that_is_read_as_a_whole_is_proven_each_time(
    proofs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A savepoint, a rollback and ``verify`` stand on the proof itself."""
    data, run = run_of(rows_of([4, 5, 6]))
    assert found(data, run, 5) == [1] and len(proofs) == 1
    hashed = sealed._sha256

    def proven(data: object) -> str:
        proofs.append(hashed(data))
        return proofs[-1]

    monkeypatch.setattr(sealed, "_sha256", proven)
    assert len(decode_run(Sum(), pa.py_buffer(data), run, "place")) == 3
    assert proofs.count(proofs[0]) == 2
