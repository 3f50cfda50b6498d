"""A manifest is read exactly as it was written, or not at all."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest

from monoids.hashing import VERSION as HASH_VERSION
from persistent.checkpoint.manifest import FORMAT, Manifest, check_name, manifest_sha256
from persistent.checkpoint.names import Staged
from persistent.checkpoint.output_parts import Aside, SinkBatch, SinkPart
from persistent.checkpoint.parts import ReadBefore, TaskClock
from persistent.clock import Clock
from persistent.codec import DOCUMENT_BYTES_MAX, canonical_json, decode_document, encode_document
from persistent.errors import CorruptCheckpoint, LawBroken, NewerFormat
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
        (b'{"a":1,"a":2}', "occurs twice"),
        (b'{"a":{"b":1,"b":1}}', "occurs twice"),
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
        ({"format": 4}, "format 4, but this release reads 1, 2, 3: use a newer release"),
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
    sorted({*decode_document(full_manifest().encode(), "m")} - {"format", "features", "inherits"}),
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
    body["operators"]["Visits"]["states"]["state"]["runs"] = [bad.to_json()]
    with pytest.raises((CorruptCheckpoint, ValueError)):
        Manifest.decode(encode_document(body), "m")


def test_what_could_not_be_read_again_is_never_committed() -> None:
    """Put once, it would be the newest manifest for good, and the job would stand."""
    one = manifest(3)
    with pytest.raises(LawBroken, match=r"manifest 3 could not be read back \(ledger\.Visits\.memory: of none"):
        replace(one, ledger={"Visits": {"memory": {}}}).encode()
    with pytest.raises(LawBroken, match=r"manifest 3 could not be read back \(pins\[0\]: -1 is not"):
        replace(one, pins=(-1,)).encode()


def test_a_manifest_that_contradicts_itself_is_refused() -> None:
    """Without an account its records would count as never read."""
    body = decode_document(manifest(3).encode(), "m")
    body["ledger"]["Visits"]["memory"] = {}
    with pytest.raises(CorruptCheckpoint, match=r"^m: not a manifest .*ledger\.Visits\.memory: of none"):
        Manifest.decode(encode_document(body), "m")


SECOND = {
    "sources": (
        "sources",
        r"other is not among the inputs of Visits, but this release knows tasks that read all sources",
    ),
    "states": (
        "operators.Visits.states",
        r"has 2 states of Visits \(other, state\), but this release knows jobs with one",
    ),
}


@pytest.mark.parametrize("part", SECOND)
def test_a_job_with_two_of_a_kind_is_refused_by_name(part: str) -> None:
    """A release that reads one of two, and goes on with it, has lost the other."""
    path, says = SECOND[part]
    body = decode_document(full_manifest().encode(), "m")
    named = body
    for name in path.split("."):
        named = named[name]
    (one,) = named.values()
    named["other"] = one
    with pytest.raises(NewerFormat, match=f"^m: {says}"):
        Manifest.decode(encode_document(body), "m")


def test_a_job_with_two_tasks_is_refused_by_name() -> None:
    """Of tasks too."""
    body = decode_document(full_manifest().encode(), "m")
    for name in ("operators", "clocks", "ledger"):
        body[name]["Other"] = body[name]["Visits"]
    with pytest.raises(NewerFormat, match=r"has 2 tasks \(Other, Visits\), but this release knows jobs with one"):
        Manifest.decode(encode_document(body), "m")


def test_positions_of_an_unknown_codec_are_refused_by_name() -> None:
    """They are not damaged: another release knows what they mean."""
    body = decode_document(full_manifest().encode(), "m")
    body["sources"]["file"] |= {"codec": "segment-entry/2", "positions": {"files": ["a", [1, 2]]}}
    says = "m: positions of file use the codec segment-entry/2, but this release knows ordinal-offset/1, "
    with pytest.raises(NewerFormat, match=says):
        Manifest.decode(encode_document(body), "m")


def test_a_job_that_inherits_nothing_says_nothing_of_it() -> None:
    """A release that does not know of heirs refuses every manifest with a field that it does not know."""
    assert "inherits" not in decode_document(manifest().encode(), "m")
    assert "inherits" in decode_document(full_manifest().encode(), "m")


def test_when_a_source_was_read_before_is_kept() -> None:
    """Records of an earlier time would be counted twice."""
    one = full_manifest()
    one = replace(one, sources={"file": replace(one.source, since=1_000)})
    assert Manifest.decode(one.encode(), "m").source.since == 1_000


def test_the_newest_format_is_written() -> None:
    """And the hash of keys is a part of it: another one, and every key is in another group."""
    assert decode_document(manifest(format=1).encode(), "m")["format"] == FORMAT == 3
    assert HASH_VERSION == 1


def test_what_is_not_said_is_nothing() -> None:
    """A first manifest that began with one fence would plan smaller steps at once."""
    one = manifest()
    assert (one.fences, one.replan, one.committed_ms, one.revision_base, one.format) == (0, 0, 0, 0, 3)
    assert one.publishes is None and one.sink == SinkPart()


def test_what_is_staged_of_every_kind_may_not_be_published_yet() -> None:
    """Dead letters without windows would be swept before anybody has seen them."""
    a, b, c = (Staged(f"d/V/{name}", 1, 1) for name in "abc")
    one = manifest(
        sinks={"memory": SinkPart((), 1, (SinkBatch(1, None, (a,)),))}, aside=(Aside(1, (b,)), Aside(2, (), (c,)))
    )
    assert one.unpublished() == {"d/V/a", "d/V/b", "d/V/c"}
    assert manifest().unpublished() == set()


def test_the_one_of_each_is_found_by_its_name() -> None:
    """The driver works with one task; what it sets must stand under the names that were there."""
    one = full_manifest()
    assert one.task_name == "Visits"
    assert one.clock == Clock(90, 60, {"files": 95}, True)
    assert one.accounts == one.ledger["Visits"]["file"] and one.sink == one.sinks["file"]
    assert one.operator == one.operators["Visits"] and one.source == one.sources["file"]


def test_where_there_are_several_nobody_takes_the_first() -> None:
    """What is said of one of two is lost on the other."""
    one = manifest()
    two = replace(
        one,
        sources={"a": one.source, "b": one.source},
        clocks={"a": TaskClock(), "b": TaskClock()},
        operators={"a": one.operator, "b": one.operator},
        ledger={"a": one.ledger["Visits"], "b": one.ledger["Visits"]},
        sinks={"a": SinkPart(), "b": SinkPart()},
    )
    for name in ("source", "task_name", "operator", "clock", "accounts", "sink"):
        with pytest.raises(ValueError, match="too many values to unpack"):
            getattr(two, name)


def test_a_document_names_what_earlier_releases_do_not_know() -> None:
    """They would run one of two sources, or publish to one of two sinks, and never miss the other."""
    one = full_manifest()
    several = {"a": one.source, "b": one.source}, {"a": SinkPart(), "b": SinkPart()}
    for sources, sinks, features in (
        (one.sources, one.sinks, []),
        (several[0], one.sinks, ["several sources"]),
        (one.sources, several[1], ["several sinks"]),
        ({"a": replace(one.source, readings=(ReadBefore({}, {}),))}, one.sinks, ["readings"]),
    ):
        assert replace(one, sources=sources, sinks=sinks)._features() == features


def test_revisions_go_on_from_the_jobs_before() -> None:
    """The largest revision of a key wins: begun anew at 1, a job would be shadowed by the one it goes on from."""
    assert full_manifest().revision == 47 and manifest(3).revision == 3


def test_a_manifest_keeps_what_it_may_still_name() -> None:
    """Files of a kept checkpoint that are deleted are lost for good."""
    one = manifest(9, oldest=7, bases={3: 0, 8: 0, 9: 0}, burnt=(3, 8))
    assert [id for id in range(11) if one.keeps(id)] == [7, 9, 10]
    assert [id for id in range(9) if manifest(9, oldest=7, bases={3: 0}).keeps(id)] == [3, 7, 8]


def test_fences_are_kept_in_blocks() -> None:
    """A driver that is started again and again would delete a fence at each start, or leave them all."""
    assert [id for id in range(36) if manifest(35, bases={1: 0}).keeps(id)] == [0, 1, 32, 33, 34, 35]
    assert [id for id in range(33) if manifest(32, bases={1: 0}).keeps(id)] == [0, 1, 31, 32]
    assert [id for id in range(32) if manifest(31, bases={1: 0}).keeps(id)] == [0, 1, *range(16, 32)]


def test_its_files_are_the_runs_of_state_and_index() -> None:
    """What it forgot to name would be collected."""
    assert full_manifest().files() == {f"d/Visits/{name}.arrow" for name in ("e1-c1-0", "b", "i")}
    assert [one.name for one in full_manifest().state_runs()] == [f"d/Visits/{name}.arrow" for name in ("e1-c1-0", "b")]
    assert (full_manifest().folders(), full_manifest().index_folders()) == ({"d/Visits"}, {"d/FileSource"})
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
