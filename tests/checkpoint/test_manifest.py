"""A manifest is read exactly as it was written, or not at all."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest

from persistent.checkpoint.manifest import (
    _FENCES_KEPT,
    FORMAT,
    HASH_VERSION,
    Account,
    Manifest,
    OperatorState,
    Outputs,
    check_name,
    manifest_sha256,
)
from persistent.codec import DOCUMENT_BYTES_MAX, canonical_json, decode_document, encode_document
from persistent.errors import CorruptCheckpoint
from persistent.sinks.protocol import Staged
from tests.checkpoint.samples import full_manifest, manifest, run


def proven(body: bytes) -> bytes:
    """Any body with the trailer that fits it: what a program other than ours might write."""
    return body + b"\n" + hashlib.sha256(body).hexdigest().encode() + b"\n"


@pytest.mark.parametrize("one", [manifest(), full_manifest()], ids=["empty", "full"])
def test_a_manifest_is_read_as_it_was_written(one: Manifest) -> None:
    """A field forgotten on the way is state, position or output lost at the next restart."""
    data = one.encode()
    assert Manifest.decode(data, "m") == one
    assert Manifest.decode(data, "m").encode() == data


def test_every_flipped_bit_is_refused() -> None:
    """I4: one bit wrong in a position or a name would lose or repeat records without a word."""
    data = manifest().encode()
    for bit in range(len(data) * 8):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptCheckpoint, match="place"):
            Manifest.decode(bytes(changed), "place")


def test_every_truncation_is_refused() -> None:
    """A torn file, or one to which something was appended, is no checkpoint."""
    data = full_manifest().encode()
    for length in range(len(data)):
        with pytest.raises(CorruptCheckpoint):
            Manifest.decode(data[:length], "place")
    for more in (b"\n", b" ", b"x"):
        with pytest.raises(CorruptCheckpoint):
            Manifest.decode(data + more, "place")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'{"a":1,"a":2}', "stands twice"),
        (b'{"a":{"b":1,"b":1}}', "stands twice"),
        (b'{"a":1.5}', "1.5 is not an integer"),
        (b'{"a":1e3}', "1e3 is not an integer"),
        (b'{"a":NaN}', "NaN is not an integer"),
        (b'{"a":-Infinity}', "-Infinity is not an integer"),
        (b'{"a":', "Expecting value"),
        (b"[" * 100_000, "."),
    ],
)
def test_what_json_allows_and_we_do_not_is_refused(body: bytes, says: str) -> None:
    """A key that stands twice is read differently by different readers; a float loses digits of a position."""
    with pytest.raises(CorruptCheckpoint, match=says):
        decode_document(proven(body), "place")


def test_a_document_is_bounded_before_it_is_parsed() -> None:
    """A huge file put in the place of a manifest would take the memory of the driver."""
    with pytest.raises(CorruptCheckpoint, match="at most"):
        decode_document(b" " * (DOCUMENT_BYTES_MAX + 1), "place")


def test_floats_are_not_written() -> None:
    """What cannot be read again must not be committed."""
    with pytest.raises(ValueError, match="float"):
        canonical_json({"a": float("nan")})
    with pytest.raises(ValueError, match="float"):
        canonical_json({"a": [1.5]})


def changed(**changes: Any) -> bytes:
    body = decode_document(full_manifest().encode(), "m")
    return encode_document({**body, **changes})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"format": 3}, "format 3, this release reads 1, 2: use a newer release"),
        ({"format": None}, "format None"),
        ({"features": ["sessions"]}, "needs sessions, unknown here: use a newer release"),
    ],
)
def test_a_newer_format_or_feature_is_refused_by_name(changes: dict[str, Any], says: str) -> None:
    """An old release that goes on with half of a new checkpoint destroys it."""
    with pytest.raises(CorruptCheckpoint, match=says):
        Manifest.decode(changed(**changes), "m")


@pytest.mark.parametrize(
    "field",
    ["id", "clock", "source", "operators", "ledger", "outputs", "oldest", "pins", "epoch", "bases", "burnt", "retract"],
)
def test_a_field_that_is_missing_is_refused(field: str) -> None:
    """A default in its place would be an invention."""
    body = decode_document(full_manifest().encode(), "m")
    del body[field]
    with pytest.raises(CorruptCheckpoint, match="not a manifest"):
        Manifest.decode(encode_document(body), "m")


@pytest.mark.parametrize(
    "bad",
    [run("../../etc/passwd"), run("a b"), run(".tmp-1/x"), run(low=5, high=5), run(low=0, start=3), run(high=1025)],
    ids=lambda run: f"{run.name}-{run.low}-{run.high}",
)
def test_a_run_that_cannot_be_is_refused(bad: Any) -> None:
    """A name that leaves the folder, or key groups that are none, come from no driver of ours."""
    body = decode_document(full_manifest().encode(), "m")
    body["operators"]["Visits"]["runs"] = [bad.to_json()]
    with pytest.raises((CorruptCheckpoint, ValueError)):
        Manifest.decode(encode_document(body), "m")


def test_accounts_add_up() -> None:
    """I9: the ledger is a sum like any other, its mix modulo 2**64."""
    a, b = Account(5, 2, 1, 1, 1, (1 << 64) - 1), Account(10, 4, 1, 2, 3, 3)
    assert a + b == Account(15, 6, 2, 3, 4, 2)
    assert a.balances and (a + b).balances
    assert not Account(1).balances


def test_a_manifest_of_format_1_is_read() -> None:
    """The first release did not know of what came later: nothing of it may be invented, and nothing else be lost."""
    body = decode_document(full_manifest().encode(), "m")
    for name in ("bases", "burnt", "committed_ms", "target", "retract", "left", "origin"):
        del body[name]
    del body["source"]["since"]
    found = Manifest.decode(encode_document({**body, "format": 1}), "m")
    later = manifest()
    expected = replace(
        full_manifest(),
        format=1,
        **{name: getattr(later, name) for name in ("bases", "burnt", "committed_ms", "target", "retract", "origin")},
        left=(),
    )
    assert found == expected and found.source.since is None
    with pytest.raises(CorruptCheckpoint, match="not a manifest"):
        Manifest.decode(encode_document({**body, "format": 2}), "m")


def test_when_a_source_was_read_before_is_kept() -> None:
    """Records of an earlier time would be counted twice."""
    one = replace(full_manifest(), source=replace(full_manifest().source, since=1_000))
    assert Manifest.decode(one.encode(), "m").source.since == 1_000


def test_the_newest_format_is_written() -> None:
    """And the hash of keys is a part of it: another one, and every key is in another group."""
    assert decode_document(manifest(format=1).encode(), "m")["format"] == FORMAT == 2
    assert HASH_VERSION == 1


def test_what_is_not_said_is_nothing() -> None:
    """A first manifest that began with one fence, or an account with one record, would never balance."""
    assert Account() == Account(0, 0, 0, 0, 0, 0)
    one = manifest()
    assert (one.fences, one.replan, one.committed_ms, one.format) == (0, 0, 0, 2)
    assert OperatorState({}, (), ()).published == 0


@pytest.mark.parametrize("kind", ["sink", "late", "dead"])
def test_outputs_of_one_kind_are_outputs(kind: str) -> None:
    """Dead letters without windows would not be published."""
    staged = Staged("d/V/x", 1, 1, "")
    outputs = Outputs(1, **{kind: (staged,)})
    assert outputs and outputs.names() == {"d/V/x"}
    assert not Outputs(1)


def test_a_manifest_keeps_what_it_may_still_name() -> None:
    """Files of a kept checkpoint that are deleted are lost for good."""
    one = manifest(9, oldest=7, bases={3: 0, 8: 0, 9: 0}, burnt=(3, 8))
    assert [id for id in range(11) if one.keeps(id)] == [7, 9, 10]
    assert [id for id in range(9) if manifest(9, oldest=7, bases={3: 0}).keeps(id)] == [3, 7, 8]


def test_fences_are_kept_in_blocks() -> None:
    """A driver that is started again and again would delete a fence at each start, or leave them all."""
    one = manifest(2 * _FENCES_KEPT + 3, bases={1: 0})
    assert [id for id in range(one.id + 1) if one.keeps(id)] == [0, 1, *range(2 * _FENCES_KEPT, one.id + 1)]
    first = manifest(2 * _FENCES_KEPT, bases={1: 0})
    assert [id for id in range(first.id + 1) if first.keeps(id)] == [0, 1, first.id - 1, first.id]


def test_its_files_are_the_runs_of_state_and_index() -> None:
    """What it forgot to name would be collected."""
    assert full_manifest().files() == {f"d/Visits/{name}.arrow" for name in ("e1-c1-0", "b", "i")}
    assert manifest().is_base and not manifest(4, base=3).is_base


def test_a_checkpoint_is_named_by_its_parent_in_full() -> None:
    """A chain that names other bytes does not verify."""
    assert manifest_sha256(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@pytest.mark.parametrize("name", ["", "..", "a/b", "a b", ".a", "-a", "é", "a" * 201, "a\n"])
def test_only_names_of_our_alphabet_stand_in_a_checkpoint(name: str) -> None:
    """A task named 'a/b' would write its runs into the folder of another."""
    with pytest.raises(ValueError, match="use letters"):
        check_name(name, "the task's name")
    assert check_name("Visits-2.a=b@c+d_e", "x") == "Visits-2.a=b@c+d_e"
