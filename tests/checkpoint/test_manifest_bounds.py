"""What may stand in a manifest, a plan and FORMAT: at each bound it is read, beyond it refused."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest

from persistent.checkpoint.log import FormatFile
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.plan import StepPlan
from persistent.errors import CorruptCheckpoint, NewerFormat
from persistent.names import is_of_several
from tests.checkpoint.samples import body_of, document, full_manifest, plan

BODY = body_of(full_manifest().encode())
PLANNED = body_of(plan().encode())
FORMAT = {"format": 4, "job": "job", "key_groups": 1024, "hash": 1}
NODE = BODY["nodes"]["Visits"]
SINK = BODY["sinks"]["file"]
DOCUMENTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "manifest": (Manifest, BODY),
    "plan": (StepPlan, PLANNED),
    "FORMAT": (FormatFile, FORMAT),
}


def changed(document: str, path: str, value: Any) -> dict[str, Any]:
    """This document with another value at ``path``."""
    body = copy.deepcopy(DOCUMENTS[document][1])
    *above, last = [int(name) if name.isdigit() else name for name in path.split(".")]
    inner: Any = body
    for name in above:
        inner = inner[name]
    inner[last] = value
    return body


def read(kind: str, body: dict[str, Any]) -> Any:
    return DOCUMENTS[kind][0].decode(document(body), "place")


def check(kind: str, path: str, value: Any) -> None:
    """Its fields alone, with another value at ``path``."""
    fields = {name: field for name, field in changed(kind, path, value).items() if name != "format"}
    msgspec.json.decode(msgspec.json.encode(fields), type=DOCUMENTS[kind][0])


@pytest.mark.parametrize(
    ("document", "path", "at", "beyond"),
    [
        *((document, "job", "j" * 200, "j" * 201) for document in DOCUMENTS),
        ("manifest", "id", 2**63 - 1, 2**63),
        ("manifest", "oldest", 0, -1),
        ("manifest", "fences", 0, -1),
        ("manifest", "kind", "merge", "other"),
        ("manifest", "nonce", "n" * 200, "n" * 201),
        ("manifest", "parent", [6, "0" * 64], [6, "0" * 63]),
        ("manifest", "parent", [0, "0" * 64], [-1, "0" * 64]),
        ("manifest", "commits", [[0, -1]], [[-1, 0]]),
        ("manifest", "left", [[0, 1, True]], [[0, 1, 1]]),
        ("manifest", "sources.file.kind", "k" * 200, "k" * 201),
        ("manifest", "sources.file.partitions", ["p" * 1000], ["p" * 1001]),
        ("manifest", "tasks.Visits.inputs.file.files.mix", 0, -1),
        ("manifest", "tasks.Visits.inputs.file.files.read", 2**63 - 1, 2**63),
        ("manifest", "sinks.file.unpublished.0.staged.0.name", "a" * 1000, "a" * 1001),
        ("manifest", "sinks.file.unpublished.0.staged.0.name", "_staged/a", "../a"),
        ("manifest", "sinks.file.unpublished.0.staged.0.name", "_staged/a", "_staged/../a"),
        ("manifest", "sinks.file.unpublished.0.staged.0.sha256", "", "0" * 65),
        ("manifest", "aside.0.late.0.sha256", "0" * 64, "0" * 63),
        ("manifest", "sinks", dict.fromkeys(map(str, range(1000)), SINK), dict.fromkeys(map(str, range(1001)), SINK)),
        ("manifest", "nodes.Visits.key_names", ["k" * 10_000, "l"], ["k" * 10_001, "l"]),
        ("manifest", "nodes.Visits.key_names", ["k", "l"], ["k"] * 1001),
        ("manifest", "nodes.Visits.key_types", ["int64"] * 2, ["int64", 5]),
        ("manifest", "nodes.Visits.key_types", ["null"] * 2, ["n" * 61] * 2),
        ("manifest", "nodes.Visits.key_types", ["null"] * 2, ["int64"] * 1001),
        ("manifest", "tasks.Visits.inputs", {"file": {}}, {"a/b": {}}),
        ("manifest", "nodes.Visits.known_from", -(2**63), "0"),
        ("manifest", "nodes.Visits.late", "retract", "other"),
        ("manifest", "nodes.Visits.emit", "early", "final"),
        ("manifest", "nodes", {"a" * 200 + "/" + "b" * 200: NODE}, {"a" * 200 + "/" + "b" * 201: NODE}),
        ("manifest", "nodes", {"a/b": NODE}, {"a/b/c": NODE}),
        ("manifest", "origin", ["j" * 200, 1], ["j" * 201, 1]),
        ("manifest", "sources.file.codec", "ordinal-offset/1", "ordinal-offset/2"),
        ("manifest", "sources.file.positions", {"a": [0, 2**63 - 1]}, {"a": [0, -1]}),
        ("manifest", "sources.file.positions", {"a": [1, 2]}, {"a": [1]}),
        ("manifest", "sources.file.idle", ["p" * 1000], ["p" * 1001]),
        ("manifest", "sources.file.largest", {"a": -(2**63)}, {"a": None}),
        ("manifest", "nodes.Visits.clock.ended", False, 0),
        ("manifest", "nodes.Visits.clock.quiet_ms", 1, -1),
        ("manifest", "sources", BODY["sources"], {"a/b": BODY["sources"]["file"]}),
        ("manifest", "sinks.file.does", ["a"] * 100, ["a b"]),
        ("manifest", "sinks.file.does", ["a"] * 100, ["a"] * 101),
        ("manifest", "sinks.file.unpublished.0.before", 6, 7),
        ("manifest", "sinks.file.unpublished.0.before", None, -1),
        ("manifest", "sinks.file.last", None, "7"),
        ("manifest", "publishes", None, 1),
        ("manifest", "revision_base", 0, -1),
        ("manifest", "pins", [0], [0] * 1_000_001),
        ("manifest", "inherits.file.jobs", ["j" * 200] * 1000, ["j" * 201]),
        ("manifest", "inherits.file.jobs", ["j"], ["j"] * 1001),
        ("manifest", "inherits.file.number", 0, -1),
        ("plan", "sources.memory.start", {"a": [0, 0]}, {"a": [0, -1]}),
        ("plan", "sources.memory.end", {"a": [0, 0]}, {"a": "b"}),
        ("plan", "sources.memory.cap", {"a": None, "b": -1}, {"a": "b"}),
        ("plan", "sources.memory.idle", ["a"], [1]),
        ("plan", "sources.memory.joins", ["a"], [1]),
        ("plan", "sources.memory.skipped", {"a": 0}, {"a": -1}),
        ("plan", "tasks.Visits.close_at", -1, None),
        ("plan", "max_future_ms", None, -1),
        ("plan", "max_future_ms", 0, "0"),
        ("plan", "sources.memory.max_out_of_orderness_ms", None, -1),
        ("plan", "sources.memory.max_out_of_orderness_ms", 0, "0"),
        ("FORMAT", "key_groups", 1, 0),
        ("FORMAT", "hash", 1, 0),
    ],
)
def test_a_bound_may_be_reached_and_not_passed(document: str, path: str, at: Any, beyond: Any) -> None:
    """Too narrow, and what was committed is not read again; too wide, and what no driver wrote is believed."""
    check(document, path, at)
    with pytest.raises(msgspec.ValidationError):
        check(document, path, beyond)


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("base", 8, "base 8 is above its id 7"),
        ("oldest", 8, "oldest 8 is above its id 7"),
        ("epoch", 8, "epoch 8 is above its id 7"),
        ("parent", [7, "0" * 64], "its parent 7 is not below its id 7"),
        ("commits", [[3, 0], [3, 1]], "commits: the ids do not ascend"),
        ("commits", [[7, 0], [3, 1]], "commits: the ids do not ascend"),
        ("nodes", {}, "has no nodes, which no release writes"),
        ("tasks", {}, "has no tasks, which no release writes"),
        ("tasks", {"Other": {"inputs": {}}}, "the nodes are of the tasks Visits, the tasks are Other"),
        ("tasks.Visits.inputs", {"a": {}}, "tasks.Visits.inputs: a, the sources are file"),
        ("aside.0.dead.0.name", "_staged/a", "aside: '_staged/a' is not a file in d/"),
        ("tasks.Visits.inputs.file.files.mix", 2**64, "tasks.Visits.inputs.file: a mix is no sum modulo 2..64"),
        ("nodes.Visits.key_types", ["int64"], "nodes.Visits.key_types: needs as many key types as key names"),
        ("nodes.Visits.key_types", ["null", "int6"], "nodes.Visits.key_types: 'int6' is not a key type"),
        ("sources.file.positions", {"files": 1}, "sources.file.positions: 1 of files is no position of the codec"),
        (
            "sources.file.codec",
            "offset/1",
            r"sources.file.positions: \(4, 17\) of files is no position of the codec off",
        ),
        (
            "sources.file.readings",
            [{"until": {"files": [1, 2]}, "recorded": {}}, {"until": {"files": 5}, "recorded": {}}],
            r"sources.file.readings\[1\].until: 5 of files is no position of the codec ordinal-offset/1",
        ),
        ("sources", {}, "has no sources, which no release writes"),
        ("tasks.Visits.inputs", {}, "has no inputs of Visits, which no release writes"),
    ],
)
def test_ids_and_names_of_a_manifest_refer_to_what_is_there(path: str, value: Any, says: str) -> None:
    """A manifest that names a later one, or an account of nobody, is of no driver of ours."""
    with pytest.raises(CorruptCheckpoint, match=f"^place: not a manifest .{says}") as caught:
        read("manifest", changed("manifest", path, value))
    assert not isinstance(caught.value, NewerFormat)


def test_a_mix_may_have_64_bits() -> None:
    """Half of all would be refused."""
    read("manifest", changed("manifest", "tasks.Visits.inputs.file.files.mix", 2**64 - 1))


def test_positions_of_a_plan_are_those_of_its_codec() -> None:
    """A place in a file is compared with none of a log."""
    for path, value in (("sources.memory.codec", "offset/1"), ("sources.memory.end", {"memory": 5})):
        with pytest.raises(CorruptCheckpoint, match="of memory is no position of the codec"):
            read("plan", changed("plan", path, value))


def test_as_many_keys_as_a_task_may_have_are_read() -> None:
    """A smaller bound would refuse what was committed."""
    node = {**NODE, "key_names": [str(number) for number in range(1000)], "key_types": ["int64"] * 1000}
    check("manifest", "nodes", {"Visits": node})


@pytest.mark.parametrize("named", ["", "a", "a/b..c/...", "x=1/é"])
def test_a_path_within_the_source_is_read(named: str) -> None:
    """Two dots are harmless in a name."""
    check("plan", "sources.memory.splits.0.spans.0.at", {"path": named})
    check("plan", "sources.memory.splits.0.spans.0.at", {})


@pytest.mark.parametrize(
    ("at", "says"),
    [
        ([], "Expected `object`"),
        ({"path": 5}, "path 5 leaves the source"),
        ({"path": None}, "path None leaves the source"),
        ({"path": "/etc/passwd"}, "leaves the source"),
        ({"path": "a\0b"}, "leaves the source"),
        ({"path": ".."}, "leaves the source"),
        ({"path": "a/../../b"}, "leaves the source"),
    ],
)
def test_a_path_that_leaves_the_source_is_refused(at: Any, says: str) -> None:
    """A plan would choose which file of the machine is read."""
    with pytest.raises(msgspec.ValidationError, match=says):
        check("plan", "sources.memory.splits.0.spans.0.at", at)


def test_a_first_manifest_has_no_parent() -> None:
    """It is the only one without."""
    body = {**BODY, "id": 0, "base": 0, "oldest": 0, "epoch": 0}
    del body["parent"]
    read("manifest", body)
    with pytest.raises(CorruptCheckpoint, match="its parent 0 is not below its id 0"):
        read("manifest", {**body, "parent": [0, "0" * 64]})


def test_states_have_names_if_there_are_several_or_the_only_one_has_one() -> None:
    """One state of a mapping has a name too."""
    assert not is_of_several(["Visits"]) and is_of_several(["Visits/hourly"]) and is_of_several(["Visits", "Sales"])


def test_sources_may_be_several_and_not_none() -> None:
    """Refused, a job could not have two; without any it would read nothing, for ever. Sinks may be none."""
    body = copy.deepcopy(BODY)
    body["sources"]["a"] = BODY["sources"]["file"]
    body["tasks"]["Visits"]["inputs"]["a"] = body["tasks"]["Visits"]["inputs"]["file"]
    read("manifest", body | {"sinks": {"a": SINK, "b": SINK}})
    del body["sinks"]
    read("manifest", body)


def seen(columns: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """The longest that a manifest may say of what was seen."""
    text = "c" * 10_000
    named = {"origin": [text] * 1_000, "sequence": text, "epoch": text, **(columns or {})}
    return {"columns": named, "pane_ms": 1, "expired": 0, "runs": [], "kinds": {text: "k" * 200}, **changes}


@pytest.mark.parametrize(
    "beyond",
    [
        seen({"origin": ["c"] * 1_001}),
        seen({"origin": ["c" * 10_001]}),
        seen({"sequence": "c" * 10_001}),
        seen({"epoch": "c" * 10_001}),
        seen(pane_ms=0),
        seen(expired="0"),
        seen(runs=[{}]),
        seen(kinds={"c" * 10_001: "k"}),
        seen(kinds={"c": "k" * 201}),
    ],
    ids=range(9),
)
def test_bounds_of_what_was_seen(beyond: Any) -> None:
    """What was committed is not read again; or what no driver wrote is believed."""
    check("manifest", "sources.file.seen", seen())
    check("manifest", "sources.file.seen", seen({"epoch": None}))
    with pytest.raises(msgspec.ValidationError):
        check("manifest", "sources.file.seen", beyond)


def reading(until: Any = None, **recorded: Any) -> dict[str, Any]:
    return {"until": {"p" * 1_000: [0, 0]} if until is None else until, "recorded": recorded or {"r" * 1_000: [1]}}


@pytest.mark.parametrize(
    ("beyond", "says"),
    [
        ([reading()] * 1_001, "length <= 1000"),
        ([reading({"p" * 1_001: [0, 0]})], "length <= 1000"),
        ([reading(**{str(one): 1 for one in range(1_001)})], "length <= 1000"),
        ([reading() | {"more": 1}], "unknown field `more`"),
    ],
)
def test_bounds_of_how_records_were_read(beyond: Any, says: str) -> None:
    """Sealed, but of no driver of ours: found when it is read, not when records are verified by it."""
    check("manifest", "sources.file.readings", [reading()] * 1_000)
    with pytest.raises(msgspec.ValidationError, match=says):
        check("manifest", "sources.file.readings", beyond)


def test_ten_parts_are_named() -> None:
    """They tell what is there; a list without an end tells nothing."""
    names = [f"s{number:02d}" for number in range(11)]
    body = copy.deepcopy(BODY)
    body["tasks"] = dict.fromkeys(names, body["tasks"]["Visits"])
    says = rf"^place: not a manifest .the nodes are of the tasks Visits, the tasks are {', '.join(names[:10])}\)"
    with pytest.raises(CorruptCheckpoint, match=says):
        read("manifest", body)
