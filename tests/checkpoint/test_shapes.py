"""What may stand in a manifest, a plan and FORMAT: at each bound it is read, beyond it refused by its place."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from persistent.checkpoint.older_formats import MANIFEST, PLAN
from persistent.checkpoint.shapes import _OPERATOR_NAME, FORMAT_FILE, FORMATS, check_format, check_known, is_of_several
from persistent.codec import decode_document
from persistent.codec.shapes import Misfit
from persistent.errors import CorruptCheckpoint, NewerFormat
from tests.checkpoint.samples import full_manifest, plan

BODY = decode_document(full_manifest().encode(), "m")
PLANNED = decode_document(plan().encode(), "p")
FORMAT = {"format": 3, "features": [], "job": "job", "key_groups": 1024, "hash": 1}
OPERATOR = BODY["operators"]["Visits"]
SINK = BODY["sinks"]["file"]
DOCUMENTS = {"manifest": (MANIFEST[3], BODY), "plan": (PLAN[3], PLANNED), "FORMAT": (FORMAT_FILE, FORMAT)}


def check(document: str, path: str, value: Any) -> None:
    """Of this document, with another value at ``path``."""
    shape, body = DOCUMENTS[document]
    body = copy.deepcopy(body)
    *above, last = [int(name) if name.isdigit() else name for name in path.split(".")]
    inner: Any = body
    for name in above:
        inner = inner[name]
    inner[last] = value
    shape(body)


HEADS = [
    (document, path, at, beyond, says)
    for document in DOCUMENTS
    for path, at, beyond, says in (
        ("format", 1, 0, "0 is not a whole number from 1"),
        ("features", ["f" * 100] * 100, ["f" * 101], "has 101 characters"),
        ("features", [], ["f"] * 101, "has 101 values"),
        ("job", "j" * 200, "j" * 201, "has 201 characters"),
    )
]


@pytest.mark.parametrize(
    ("document", "path", "at", "beyond", "says"),
    [
        *HEADS,
        ("manifest", "id", 10**20 - 1, 10**20, "is not a whole number from 0 to 99999999999999999999"),
        ("manifest", "oldest", 0, -1, "is not a whole number from 0"),
        ("manifest", "fences", 0, -1, "is not a whole number from 0"),
        ("manifest", "nonce", "n" * 200, "n" * 201, "has 201 characters"),
        ("manifest", "sources.file.kind", "k" * 200, "k" * 201, "has 201 characters"),
        ("manifest", "sources.file.partitions", ["p" * 1000], ["p" * 1001], "has 1001 characters"),
        (
            "manifest",
            "ledger.Visits.file.files.mix",
            2**64 - 1,
            2**64,
            "is not a whole number from 0 to 18446744073709551615",
        ),
        ("manifest", "ledger.Visits.file.files.mix", 0, -1, "is not a whole number from 0"),
        ("manifest", "sinks.file.unpublished.0.staged.0.name", "a" * 1000, "a" * 1001, "has 1001 characters"),
        ("manifest", "sinks.file.unpublished.0.staged.0.sha256", "", "0" * 65, "has 65 characters"),
        ("manifest", "aside.0.late.0.sha256", "0" * 64, "0" * 63, "is not a SHA-256 or nothing"),
        ("manifest", "sinks", dict.fromkeys(map(str, range(1000)), SINK), {}, ""),
        ("manifest", "operators.Visits.key_names", ["k" * 10_000, "l"], ["k" * 10_001, "l"], "has 10001 characters"),
        ("manifest", "operators.Visits.key_types", [], ["int64"], "as many key types as key names"),
        ("manifest", "operators.Visits.key_types", ["int64"] * 2, ["int64", 5], "5 is not text"),
        ("manifest", "operators.Visits.key_types", ["null"] * 2, ["null", "int6"], "'int6' is not a key type"),
        ("manifest", "operators.Visits.key_types", ["null"] * 2, ["n" * 61] * 2, "has 61 characters"),
        ("manifest", "origin", ["j" * 200, 1], ["j" * 201, 1], "has 201 characters"),
        ("manifest", "sources.file.codec", "a-b/12", "A/1", "is not the name and version of a codec"),
        ("manifest", "sources.file.codec", "a-b/12", "a-b", "is not the name and version of a codec"),
        (
            "manifest",
            "sources.file.positions",
            {"a": [0, 2**63 - 1]},
            {"a": [0, -1]},
            r"positions.a\[1\]: -1 is not a whole",
        ),
        ("manifest", "sources.file.positions", {"a": [1, 2]}, {"a": [1]}, "positions.a: has 1 values instead of 2"),
        ("manifest", "sources.file.idle", ["p" * 1000], ["p" * 1001], "has 1001 characters"),
        ("manifest", "sources.file.largest", {"a": -(2**63)}, {"a": None}, "None is not a whole number"),
        ("manifest", "clocks.Visits.ended", False, 0, "0 is neither true nor false"),
        ("manifest", "clocks", BODY["clocks"], {}, "clocks are of none, the tasks are Visits"),
        ("manifest", "ledger", BODY["ledger"], {"Other": {}}, "ledger are of Other, the tasks are Visits"),
        ("manifest", "ledger.Visits", {"file": {}}, {"a": {}}, "Visits reads file, its account is of other inputs"),
        ("manifest", "operators.Visits.inputs", ["file"], ["file", "b"], "its account is of other inputs"),
        ("manifest", "sources", BODY["sources"], {"a/b": BODY["sources"]["file"]}, "is not a name of letters"),
        ("manifest", "sinks.file.does", ["a"] * 100, ["a b"], "is not a name of letters"),
        ("manifest", "sinks.file.unpublished.0.before", 6, 7, "the preceding batch 7 is not below its id 7"),
        ("manifest", "sinks.file.unpublished.0.before", None, -1, "is not a whole number from 0"),
        ("manifest", "sinks.file.last", None, "7", "'7' is not a whole number"),
        ("manifest", "publishes", None, 1, "1 is neither true nor false"),
        ("manifest", "revision_base", 0, -1, "is not a whole number from 0"),
        ("manifest", "inherits.file.jobs", ["j" * 200] * 1000, ["j" * 201], "has 201 characters"),
        ("manifest", "inherits.file.number", 0, -1, "is not a whole number from 0"),
        ("plan", "sources.memory.start", {"a": [0, 0]}, {"a": [0, -1]}, r"start.a\[1\]: -1 is not a whole number"),
        ("plan", "sources.memory.end", {"a": [0, 0]}, {"a": "b"}, "end.a: 'b' is not a list"),
        ("plan", "sources.memory.cap", {"a": None, "b": -1}, {"a": "b"}, "'b' is not a whole number"),
        ("plan", "sources.memory.idle", ["a"], [1], "1 is not text"),
        ("plan", "sources.memory.joins", ["a"], [1], "1 is not text"),
        ("plan", "tasks.Visits.close_at", -1, None, "None is not a whole number"),
        ("plan", "max_future_ms", None, -1, "is not a whole number from 0"),
        ("plan", "max_future_ms", 0, "0", "'0' is not a whole number"),
        ("plan", "sources.memory.max_out_of_orderness_ms", None, -1, "is not a whole number from 0"),
        ("plan", "sources.memory.max_out_of_orderness_ms", 0, "0", "'0' is not a whole number"),
        ("manifest", "base", 7, 8, "base 8 is above its id 7"),
        ("manifest", "oldest", 7, 8, "oldest 8 is above its id 7"),
        ("manifest", "epoch", 7, 8, "epoch 8 is above its id 7"),
        ("manifest", "parent.id", 6, 7, "its parent 7 is not below its id 7"),
        ("manifest", "parent", None, 1, "1 is not a mapping"),
        ("FORMAT", "key_groups", 1, 0, "is not a whole number from 1"),
        ("FORMAT", "hash", 1, 0, "is not a whole number from 1"),
    ],
)
def test_a_bound_may_be_reached_and_not_passed(document: str, path: str, at: Any, beyond: Any, says: str) -> None:
    """Too narrow, and what was committed is not read again; too wide, and what no driver wrote is believed."""
    check(document, path, at)
    if says:
        with pytest.raises(Misfit, match=says):
            check(document, path, beyond)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("sinks", dict.fromkeys(map(str, range(1001)), SINK)),
        ("operators.Visits.key_names", ["k"] * 1001),
        ("operators.Visits.key_types", ["int64"] * 1001),
        ("pins", [0] * 1_000_001),
        ("inherits.file.jobs", ["j"] * 1001),
    ],
)
def test_lists_of_a_manifest_have_a_longest_one(path: str, value: Any) -> None:
    """Held against it before any value is looked at."""
    with pytest.raises(Misfit, match=rf"has {len(value)} values, but at most {len(value) - 1} are"):
        check("manifest", path, value)


def test_as_many_keys_as_a_task_may_have_are_read() -> None:
    """The test above would pass for a smaller bound."""
    operator = {**OPERATOR, "key_names": [str(number) for number in range(1000)], "key_types": ["int64"] * 1000}
    check("manifest", "operators", {"Visits": operator})


@pytest.mark.parametrize("named", ["", "a", "a/b..c/...", "x=1/é"])
def test_a_path_within_the_source_is_read(named: str) -> None:
    """Two dots are harmless in a name."""
    check("plan", "sources.memory.splits.0.1.0.3", {"path": named})
    check("plan", "sources.memory.splits.0.1.0.3", {})


@pytest.mark.parametrize(
    ("at", "says"),
    [
        ([], "is not a mapping"),
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
    with pytest.raises(Misfit, match=says):
        check("plan", "sources.memory.splits.0.1.0.3", at)


def test_a_first_manifest_has_no_parent() -> None:
    """It is the only one without."""
    body = {**BODY, "id": 0, "base": 0, "oldest": 0, "epoch": 0, "parent": None}
    MANIFEST[3](body)
    with pytest.raises(Misfit, match="its parent 0 is not below its id 0"):
        MANIFEST[3]({**body, "parent": {"id": 0, "sha256": "0" * 64}})


@pytest.mark.parametrize("body", [None, [], "x", {}, {"format": 2}, {"format": 2, "features": "none"}])
def test_what_is_no_document_of_a_checkpoint_is_no_newer_one(body: Any) -> None:
    """A newer release would be looked for in vain."""
    with pytest.raises(CorruptCheckpoint, match="place: is not a document of a checkpoint") as caught:
        check_format(body, "place")
    assert not isinstance(caught.value, NewerFormat)


@pytest.mark.parametrize("features", [[[]], [{}], [["x"]], [None], ["x", 1]])
def test_a_feature_is_text(features: list[Any]) -> None:
    """Any other value ended every command with a TypeError, or sent its user to look for a newer release."""
    with pytest.raises(CorruptCheckpoint, match=r"^place: a feature is not text$") as caught:
        check_format({"format": 2, "features": features}, "place")
    assert not isinstance(caught.value, NewerFormat)


@pytest.mark.parametrize("number", [True, None, "2", 0, 4, 2.0])
def test_other_formats_are_refused_by_their_number(number: Any) -> None:
    """True is 1 to Python, and no format."""
    with pytest.raises(NewerFormat, match=f"format {number!r}, but this release reads 1, 2, 3: use a newer release"):
        check_format({"format": number, "features": []}, "place")


def test_each_format_is_known() -> None:
    """Checkpoints of the first release are read by all later ones."""
    assert FORMATS == (1, 2, 3)
    for number in FORMATS:
        check_format({"format": number, "features": []}, "place")
        assert number in MANIFEST and number in PLAN


def test_ten_features_are_named() -> None:
    """They tell which release is wanted; a list without an end tells nothing."""
    named = [f"f{number}" for number in range(11)]
    with pytest.raises(NewerFormat, match=f"^place: needs {', '.join(named[:10])}, unknown here: use a newer release$"):
        check_format({"format": 2, "features": named}, "place")


@pytest.mark.parametrize(
    ("document", "path", "at", "beyond", "says"),
    [
        ("manifest", "sources.file.codec", "a/" + "1" * 198, "a/" + "1" * 199, "has 201 characters"),
        ("manifest", "operators.Visits.states.state.known_from", 0, -1, "is not a whole number from 0"),
        ("manifest", "sinks.file.does", ["a"] * 100, ["a"] * 101, "has 101 values"),
    ],
)
def test_bounds_of_named_parts(document: str, path: str, at: Any, beyond: Any, says: str) -> None:
    """As above."""
    check(document, path, at)
    with pytest.raises(Misfit, match=says):
        check(document, path, beyond)


def test_the_name_of_a_state_has_a_longest_one() -> None:
    """Of a task, and of a state of it."""
    _OPERATOR_NAME("a" * 200 + "/" + "b" * 200)
    with pytest.raises(Misfit, match="has 402 characters"):
        _OPERATOR_NAME("a" * 200 + "/" + "b" * 201)


def test_states_have_names_if_there_are_several_or_the_only_one_has_one() -> None:
    """One state of a mapping has a name too."""
    assert not is_of_several(["Visits"]) and is_of_several(["Visits/hourly"]) and is_of_several(["Visits", "Sales"])


PARTS = {
    "manifest": {
        "tasks": ["operators"],
        "states of Visits": ["operators", "Visits", "states"],
    },
    "plan": {"tasks": ["tasks"]},
}


@pytest.mark.parametrize(("document", "what"), [(name, what) for name, parts in PARTS.items() for what in parts])
def test_of_each_part_a_release_knows_one(document: str, what: str) -> None:
    """With two it would go on with one, and lose the other; without any it would begin anew."""
    body = copy.deepcopy(DOCUMENTS[document][1])
    check_known(body, "place")
    named: Any = body
    for name in PARTS[document][what]:
        named = named[name]
    ((name, one),) = named.items()
    named["a"] = one
    says = rf"^place: has 2 {what} \({name}, a\), but this release knows jobs with one: use a newer release$"
    with pytest.raises(NewerFormat, match=says):
        check_known(body, "place")
    named.clear()
    with pytest.raises(CorruptCheckpoint, match=f"^place: has no {what}, which no release writes") as caught:
        check_known(body, "place")
    assert not isinstance(caught.value, NewerFormat)


@pytest.mark.parametrize("document", ["manifest", "plan"])
def test_a_codec_that_is_not_known_is_named(document: str) -> None:
    """A newer release knows what these positions mean."""
    body = copy.deepcopy(DOCUMENTS[document][1])
    ((name, source),) = body["sources"].items()
    source["codec"] = "segment-entry/2"
    says = f"^place: positions of {name} use the codec segment-entry/2, but this release knows ordinal-offset/1, "
    with pytest.raises(NewerFormat, match=says):
        check_known(body, "place")


@pytest.mark.parametrize("document", ["manifest", "plan"])
def test_sources_may_be_several_and_not_none(document: str) -> None:
    """Refused, a job could not have two; without any it would read nothing, for ever. Sinks may be none."""
    body = copy.deepcopy(DOCUMENTS[document][1])
    ((_, one),) = body["sources"].items()
    body["sources"]["a"] = one
    if document == "manifest":
        body["operators"]["Visits"]["inputs"].append("a")
        body["sinks"] |= {"a": SINK}
        check_known({**body, "sinks": {}}, "place")
    check_known(body, "place")
    with pytest.raises(CorruptCheckpoint, match=r"^place: has no sources, which no release writes"):
        check_known({**body, "sources": {}}, "place")


def seen(columns: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """The longest that a manifest may say of what was seen."""
    text = "c" * 10_000
    named = {"origin": [text] * 1_000, "sequence": text, "epoch": text, **(columns or {})}
    kinds = {text: "k" * 200}
    return {"columns": named, "pane_ms": 1, "expired": 0, "runs": [], "kinds": kinds, **changes}


@pytest.mark.parametrize(
    ("beyond", "says"),
    [
        (seen({"origin": ["c"] * 1_001}), "has 1001 values"),
        (seen({"origin": ["c" * 10_001]}), "has 10001 characters"),
        (seen({"sequence": "c" * 10_001}), "has 10001 characters"),
        (seen({"epoch": "c" * 10_001}), "has 10001 characters"),
        (seen(pane_ms=0), "is not a whole number from 1"),
        (seen(expired="0"), "is not a whole number"),
        (seen(runs=[{}]), "runs"),
        (seen(kinds={"c" * 10_001: "k"}), "has 10001 characters"),
        (seen(kinds={"c": "k" * 201}), "has 201 characters"),
    ],
)
def test_bounds_of_what_was_seen(beyond: Any, says: str) -> None:
    """What was committed is not read again; or what no driver wrote is believed."""
    check("manifest", "sources.file.seen", seen())
    check("manifest", "sources.file.seen", seen({"epoch": None}))
    with pytest.raises(Misfit, match=says):
        check("manifest", "sources.file.seen", beyond)


def reading(until: Any = None, **recorded: Any) -> dict[str, Any]:
    return {"until": {"p" * 1_000: [0, 0]} if until is None else until, "recorded": recorded or {"r" * 1_000: [1]}}


@pytest.mark.parametrize(
    ("beyond", "says"),
    [
        ([reading()] * 1_001, "readings: has 1001 values"),
        ([reading({"p" * 1_001: [0, 0]})], "has 1001 characters"),
        ([reading(**{"r" * 1_001: 1})], "has 1001 characters"),
        ([reading(**{str(one): 1 for one in range(1_001)})], "has 1001 values"),
        ([reading() | {"more": 1}], "'more' is unknown here"),
        ([reading(), reading({"0": 5})], r"readings\[1\]\.until\.0: 5 is not a list"),
    ],
)
def test_bounds_of_how_records_were_read(beyond: Any, says: str) -> None:
    """Sealed, but of no driver of ours: found when it is read, not when records are verified by it."""
    check("manifest", "sources.file.readings", [reading()] * 1_000)
    with pytest.raises(Misfit, match=says):
        check("manifest", "sources.file.readings", beyond)


def test_a_task_that_leaves_a_source_unread_is_of_a_newer_release() -> None:
    """Run by this one, it would read that source too."""
    body = copy.deepcopy(BODY)
    ((_, one),) = body["sources"].items()
    body["sources"]["a"] = one
    with pytest.raises(
        NewerFormat, match=r"^place: a is not among the inputs of Visits, but this release knows tasks that"
    ):
        check_known(body, "place")


def test_ten_parts_are_named() -> None:
    """They tell what is there; a list without an end tells nothing."""
    operators = dict.fromkeys([f"s{number:02d}" for number in range(11)], BODY["operators"]["Visits"])
    named = ", ".join([*operators][:10])
    with pytest.raises(NewerFormat, match=rf"has 11 tasks \({named}\), but this"):
        check_known({**BODY, "operators": operators}, "place")
