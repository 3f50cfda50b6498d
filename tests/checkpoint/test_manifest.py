"""A manifest is read exactly as it was written, or not at all."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from msgspec import structs
from msgspec.structs import replace

from monoids.hashing import VERSION as HASH_VERSION
from persistent.checkpoint.manifest import Manifest, check_name, manifest_sha256
from persistent.checkpoint.output_parts import Aside, SinkBatch, SinkPart
from persistent.checkpoint.parts import NodeClock, TaskPart
from persistent.codec.documents import DOCUMENT_BYTES_MAX, FORMAT, canonical_json, decode_document
from persistent.errors import CorruptCheckpoint, LawBroken, NewerFormat
from persistent.names import Staged
from persistent.time.clock import Clock
from tests.checkpoint.samples import body_of, document, full_manifest, json_of, manifest, run
from tests.single import only


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


def test_a_newer_format_is_refused_by_name() -> None:
    """An old release that goes on with half of a new checkpoint destroys it."""
    body = body_of(full_manifest().encode(), "m")
    with pytest.raises(NewerFormat, match=r"^m: format 5, but this release reads 4: use a newer release"):
        Manifest.decode(document({**body, "id": "seven", "format": 5}), "m")


@pytest.mark.parametrize("field", [field.name for field in structs.fields(Manifest) if field.required])
def test_a_field_that_is_missing_is_refused(field: str) -> None:
    """A default in its place would be an invention."""
    body = body_of(full_manifest().encode(), "m")
    del body[field]
    with pytest.raises(CorruptCheckpoint, match="not a manifest"):
        Manifest.decode(document(body), "m")


@pytest.mark.parametrize("name", ["../../etc/passwd", "a b", ".tmp-1/x"])
def test_a_run_that_cannot_be_is_refused(name: str) -> None:
    """A name that leaves the folder comes from no driver of ours."""
    body = body_of(full_manifest().encode(), "m")
    body["nodes"]["Visits"]["runs"] = [json_of(run(name))]
    with pytest.raises(CorruptCheckpoint, match="not a manifest"):
        Manifest.decode(document(body), "m")
    with pytest.raises(LawBroken):
        full = full_manifest()
        replace(full, nodes={"Visits": replace(only(full.nodes), runs=(run(name),))}).encode()


def test_a_fact_that_json_has_no_form_for_is_refused_by_name() -> None:
    """A source may state what NumPy gave it: the error was a TypeError that spoke of no checkpoint."""
    one = full_manifest()
    (name, source), *_ = one.sources.items()
    with pytest.raises(LawBroken, match=r"could not be read back .*numpy\.str_.*; it was not committed"):
        replace(one, sources={name: replace(source, recorded={"x": np.str_("q")})}).encode()


def test_what_could_not_be_read_again_is_never_committed() -> None:
    """Put once, it would be the newest manifest for good, and the job would stand."""
    one = manifest(3)
    with pytest.raises(LawBroken, match=r"manifest 3 could not be read back \(tasks\.Visits\.inputs\.memory: of none"):
        replace(one, tasks={"Visits": TaskPart({"memory": {}})}).encode()
    with pytest.raises(
        LawBroken, match=r"manifest 3 could not be read back \(Expected `int` >= 0 - at `\$\.pins\[0\]`"
    ):
        replace(one, pins=(-1,)).encode()


def test_a_manifest_that_contradicts_itself_is_refused() -> None:
    """Without an account its records would count as never read."""
    body = body_of(manifest(3).encode(), "m")
    body["tasks"]["Visits"]["inputs"]["memory"] = {}
    with pytest.raises(CorruptCheckpoint, match=r"^m: not a manifest .*tasks\.Visits\.inputs\.memory: of none"):
        Manifest.decode(document(body), "m")


def test_a_job_that_inherits_nothing_says_nothing_of_it() -> None:
    """As of every field with its default: a document has one spelling."""
    assert "inherits" not in body_of(manifest().encode(), "m")
    assert "inherits" in body_of(full_manifest().encode(), "m")


def test_when_a_source_was_read_before_is_kept() -> None:
    """Records of an earlier time would be counted twice."""
    one = full_manifest()
    one = replace(one, sources={"file": replace(only(one.sources), since=1_000)})
    assert only(Manifest.decode(one.encode(), "m").sources).since == 1_000


def test_the_newest_format_is_written() -> None:
    """And the hash of keys is a part of it: another one, and every key is in another group."""
    assert body_of(manifest().encode(), "m")["format"] == FORMAT == 4
    assert HASH_VERSION == 1


def test_what_is_not_said_is_nothing() -> None:
    """A first manifest that began with one fence would plan smaller steps at once."""
    one = manifest()
    assert (one.fences, one.replan, one.committed_ms, one.revision_base) == (0, 0, 0, 0)
    assert one.publishes is None and not one.sinks


def test_what_is_staged_of_every_kind_may_not_be_published_yet() -> None:
    """Dead letters without windows would be swept before anybody has seen them."""
    a, b, c = (Staged(f"d/V/{name}", 1, 1) for name in "abc")
    one = manifest(
        sinks={"memory": SinkPart((), 1, (SinkBatch(1, None, (a,)),))}, aside=(Aside(1, (b,)), Aside(2, (), (c,)))
    )
    assert one.unpublished() == {"d/V/a", "d/V/b", "d/V/c"}
    assert manifest().unpublished() == set()


def test_what_it_says_of_a_node_stands_under_its_name() -> None:
    """A step works with each node; what it sets must stand under the names that were there."""
    one = full_manifest()
    assert one.clock == Clock(90, 60, {"files": 95}, True)
    assert one.nodes["Visits"].final == 60 and replace(one.nodes["Visits"], final_at=0).final == 0
    assert one.accounts == one.inputs["file"] == one.tasks["Visits"].inputs["file"]
    assert one.sinks_of("Visits") == one.sinks and one.sinks_of("Visits/other") == {}


def two_tasks() -> Manifest:
    """Visits reads both sources, and Orders one."""
    one = full_manifest()
    (name,) = one.sources
    source, visits, accounts = one.sources[name], one.nodes["Visits"], one.tasks["Visits"].inputs[name]
    return replace(
        one,
        sources={name: source, "more": source},
        tasks={"Visits": TaskPart({name: accounts, "more": accounts}), "Orders": TaskPart({name: accounts})},
        nodes={"Visits": visits, "Orders": replace(visits, clock=NodeClock(70, 60))},
    )


def test_two_tasks_are_two_tasks() -> None:
    """A graph has several, each with what it has read: what is said of one must not be said of the other."""
    two = two_tasks()
    (name, more), (account,) = two.sources, two.tasks["Orders"].inputs["file"].values()
    assert Manifest.decode(two.encode(), "m") == two
    assert two.tasks["Orders"].inputs.keys() == {name} and two.tasks["Visits"].inputs.keys() == {name, more}
    assert two.inputs[name]["files"] == account + account and two.inputs[more]["files"] == account
    assert (two.clock.watermark, two.clock.end_of_input, two.furthest) == (70, False, 90)
    assert [one.clock.watermark for one in two.nodes.values()] == [90, 70]


def test_a_source_that_no_task_reads_is_refused() -> None:
    """Its records would count nowhere, and no account say so."""
    two = two_tasks()
    unread = replace(two, tasks={id: TaskPart({"file": task.inputs["file"]}) for id, task in two.tasks.items()})
    with pytest.raises(LawBroken, match=r"sources\.more: no task reads it"):
        unread.encode()


def test_revisions_go_on_from_the_jobs_before() -> None:
    """The largest revision of a key wins: begun anew at 1, a job would be shadowed by the one it goes on from."""
    assert full_manifest().revision == 47 and manifest(3).revision == 3


def test_a_manifest_keeps_what_it_may_still_name() -> None:
    """Files of a kept checkpoint that are deleted are lost for good."""
    one = manifest(9, oldest=7, commits=((3, 0), (8, 0), (9, 0)), burnt=(3, 8))
    assert [id for id in range(11) if one.keeps(id)] == [7, 9, 10]
    assert [id for id in range(9) if manifest(9, oldest=7, commits=((3, 0),)).keeps(id)] == [3, 7, 8]


def test_fences_are_kept_in_blocks() -> None:
    """A driver that is started again and again would delete a fence at each start, or leave them all."""
    assert [id for id in range(36) if manifest(35, commits=((1, 0),)).keeps(id)] == [0, 1, 32, 33, 34, 35]
    assert [id for id in range(33) if manifest(32, commits=((1, 0),)).keeps(id)] == [0, 1, 31, 32]
    assert [id for id in range(32) if manifest(31, commits=((1, 0),)).keeps(id)] == [0, 1, *range(16, 32)]


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
