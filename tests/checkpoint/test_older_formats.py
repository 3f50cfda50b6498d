"""What an older release wrote is read as what it meant, in the words of today, and nothing of it is invented."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from persistent.checkpoint import features, shapes
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import FORMAT, Manifest
from persistent.checkpoint.names import Staged, new_nonce
from persistent.checkpoint.older_formats import MANIFEST, SINK, UNNAMED, manifest_of_today, plan_of_today
from persistent.checkpoint.output_parts import Aside, SinkBatch, SinkPart
from persistent.checkpoint.plan import SourceStep, StepPlan, TaskStep
from persistent.codec import decode_document, encode_document
from persistent.codec.shapes import Misfit
from persistent.errors import CorruptCheckpoint, NewerFormat
from persistent.sources.protocol import Span, Split
from persistent.storage import MemoryStorage
from tests.checkpoint.samples import full_manifest, manifest, plan, run

STAGED = {"name": "_staged/e2-c7-ab.jsonl", "rows": 3, "bytes": 40, "sha256": "1" * 64}
ASIDE = {"name": "d/Visits/e2-c7-cd.arrow", "rows": 3, "bytes": 40, "sha256": "1" * 64}
SINCE_2 = ("bases", "burnt", "committed_ms", "target", "retract", "left", "origin")
BODY: dict[str, Any] = {
    "format": 2,
    "features": ["recorded options"],
    "job": "job",
    "id": 7,
    "kind": "checkpoint",
    "base": 7,
    "oldest": 3,
    "epoch": 2,
    "nonce": "n" * 32,
    "parent": {"id": 6, "sha256": "2" * 64},
    "clock": {"watermark": 90, "closed": 60, "largest": {"files": 95}, "end_of_input": True},
    "source": {
        "kind": "FileSource",
        "partitions": ["files"],
        "positions": {"files": [4, 17]},
        "recorded": {"schema": [["ts", "int64"]]},
        "index": [run("i", wide=True).to_json()],
        "since": 50,
    },
    "operators": {
        "Visits": {
            "fingerprint": {"state": "WindowState", "monoid": {"name": "Sum"}},
            "key_names": ["page", "é"],
            "key_types": ["string", "int64"],
            "lowest": 60,
            "published": 5,
            "runs": [run().to_json(), run("b").to_json()],
            "known_from": 55,
        }
    },
    "outputs": [
        {"id": 5, "sink": [STAGED], "late": [], "dead": []},
        {"id": 6, "sink": [], "late": [], "dead": []},
        {"id": 7, "sink": [STAGED], "late": [ASIDE], "dead": [ASIDE]},
    ],
    "ledger": {"files": {"read": 10, "processed": 6, "late": 2, "dead": 1, "duplicate": 1, "mix": 1 << 63}},
    "fences": 2,
    "replan": 1,
    "pins": [3],
    "bases": [[3, 1_000], [7, 2_000]],
    "burnt": [5],
    "committed_ms": 2_000,
    "target": 3,
    "retract": [4, 7],
    "left": [[4, 7, True]],
    "origin": ["a job", 9],
    "publishes": True,
}
"""A manifest of format 2 in which no field is empty."""
STAGED_NOW, ASIDE_NOW = (Staged(**one) for one in (STAGED, ASIDE))  # type: ignore[arg-type]
PLANNED: dict[str, Any] = {
    "format": 2,
    "features": ["recorded options"],
    "job": "job",
    "base": 7,
    "number": 1,
    "nonce": "n" * 32,
    "wall_ms": 5,
    "close_at": 60,
    "end_of_input": True,
    "start": {"files": [4, 17]},
    "end": {"files": [5, 0]},
    "splits": [["files", [[4, 17, 20, {"path": "a"}]]]],
    "cap": {"files": -1},
    "recorded": {"schema": []},
    "appended": [run("i").to_json()],
    "limits": {"max_future_ms": 3, "max_out_of_orderness_ms": 1},
}


def read(body: dict[str, Any]) -> Manifest:
    return Manifest.decode(encode_document(body), "m")


def of_format_1(**changes: Any) -> dict[str, Any]:
    body = {name: value for name, value in BODY.items() if name not in (*SINCE_2, "publishes")}
    source = {name: value for name, value in BODY["source"].items() if name != "since"}
    operator = {name: value for name, value in BODY["operators"]["Visits"].items() if name != "known_from"}
    return {**body, "format": 1, "features": [], "source": source, "operators": {"Visits": operator}, **changes}


def test_a_manifest_of_format_2_says_what_it_said() -> None:
    """Lost on the way, a position, an account or an output is lost at the upgrade."""
    sinks = {SINK: SinkPart((), None, (SinkBatch(5, None, (STAGED_NOW,)), SinkBatch(7, None, (STAGED_NOW,))))}
    source = replace(full_manifest().source, idle=())
    one = replace(full_manifest(), sources={"file": source}, sinks=sinks, revision_base=0, inherits={}, format=2)
    assert one.aside == (Aside(7, (ASIDE_NOW,), (ASIDE_NOW,)),)
    assert read(BODY) == one


def test_what_a_manifest_of_format_2_may_leave_out_is_not_recorded() -> None:
    """The first release of that format did not know whether a driver had a sink, nor what a history knows."""
    body = copy.deepcopy(BODY)
    del body["publishes"], body["operators"]["Visits"]["known_from"]
    found = read(body)
    assert found.publishes is None and found.operator.state.known_from is None
    assert read({**BODY, "publishes": False}).publishes is False


def test_a_manifest_of_format_1_is_read() -> None:
    """The first release did not know of what came later: nothing of it may be invented, and nothing else be lost."""
    found, later = read(of_format_1()), manifest()
    told = {name: getattr(later, name) for name in SINCE_2}
    source = replace(read(BODY).source, since=None)
    expected = replace(
        read(BODY),
        format=1,
        sources={"file": source},
        operators={"Visits": read(BODY).operator.with_state(known_from=None)},
        publishes=None,
        **told,
    )
    assert found == expected
    with pytest.raises(CorruptCheckpoint, match="not a manifest"):
        read(of_format_1(format=2))
    with pytest.raises(CorruptCheckpoint, match="not a manifest"):
        read(of_format_1(kind="rollback"))


@pytest.mark.parametrize("field", sorted({*BODY} - {"format", "features", "publishes"}))
def test_a_field_that_is_missing_is_refused(field: str) -> None:
    """A default in its place would be an invention."""
    with pytest.raises(CorruptCheckpoint, match=f"not a manifest \\({field} is missing"):
        read({name: value for name, value in BODY.items() if name != field})


@pytest.mark.parametrize("field", ["sources", "clocks", "sinks", "aside", "revision_base", "more"])
def test_what_the_format_does_not_have_is_refused(field: str) -> None:
    """Half a document of each is of no release."""
    with pytest.raises(CorruptCheckpoint, match=f"'{field}' is unknown here"):
        read({**BODY, field: full_manifest().revision})


def test_the_words_of_an_older_format_are_no_words_of_the_newest() -> None:
    """Nor the other way round."""
    newest = decode_document(full_manifest().encode(), "m")
    for number, body in ((3, BODY), (2, newest), (1, newest)):
        with pytest.raises(CorruptCheckpoint, match="not a manifest"):
            read({**body, "format": number, "features": []})
    with pytest.raises(Misfit):
        MANIFEST[1](BODY)


@pytest.mark.parametrize("kind", ["late", "dead"])
def test_what_is_set_aside_of_one_kind_is_set_aside(kind: str) -> None:
    """Dead letters without late rows would not be published."""
    outputs = {"id": 7, "sink": [], "late": [], "dead": [], kind: [ASIDE]}
    assert read({**BODY, "outputs": [outputs]}).aside == (Aside(7, **{kind: (ASIDE_NOW,)}),)


def test_the_bounds_are_those_of_then() -> None:
    """Narrower, and what was committed is not read again."""
    operator = BODY["operators"]["Visits"]
    for at, beyond in (
        ({"source": {**BODY["source"], "kind": "k" * 200}}, {"source": {**BODY["source"], "kind": "k" * 201}}),
        ({"operators": {"V": {**operator, "known_from": 0}}}, {"operators": {"V": {**operator, "known_from": -1}}}),
        (
            {"operators": dict.fromkeys(map(str, range(1_000)), operator)},
            {"operators": dict.fromkeys(map(str, range(1_001)), operator)},
        ),
    ):
        MANIFEST[2]({**BODY, **at})
        with pytest.raises(Misfit):
            MANIFEST[2]({**BODY, **beyond})


def test_the_words_of_today_stay_as_they_are() -> None:
    """Nothing is said a second time."""
    newest, planned = (decode_document(one.encode(), "m") for one in (full_manifest(), plan()))
    assert manifest_of_today(newest) is newest and plan_of_today(planned) is planned


def test_without_outputs_nothing_is_owed_to_a_sink() -> None:
    """Nor is anything set aside."""
    found = read({**BODY, "outputs": [{"id": 7, "sink": [], "late": [], "dead": []}]})
    assert found.sinks == {} and found.aside == ()


def test_a_manifest_without_a_task_is_refused() -> None:
    """Its state would be nobody's."""
    with pytest.raises(CorruptCheckpoint, match="m: has no tasks"):
        read({**BODY, "operators": {}})


def test_an_operator_more_is_of_a_newer_release() -> None:
    """None has written it; half of it would be lost."""
    body = {**BODY, "operators": {**BODY["operators"], "Other": BODY["operators"]["Visits"]}}
    with pytest.raises(NewerFormat, match=r"has 2 tasks \(Other, Visits\), but this release knows jobs with one"):
        read(body)


def test_what_is_read_is_written_in_the_newest_format() -> None:
    """And then is what it was, for all that goes on from it."""
    for body in (BODY, of_format_1()):
        found = read(body)
        assert Manifest.decode(found.encode(), "m") == replace(found, format=FORMAT)


def test_a_plan_of_an_older_format_is_read() -> None:
    """A step that was planned before an upgrade is run as it was planned."""
    for number in (1, 2):
        found = StepPlan.decode(encode_document({**PLANNED, "format": number}), "p")
        source = SourceStep(
            {"files": (4, 17)},
            {"files": (5, 0)},
            (Split("files", (Span(4, 17, 20, {"path": "a"}),)),),
            {"files": -1},
            {"schema": []},
            (run("i"),),
            max_out_of_orderness_ms=1,
        )
        assert found == StepPlan("job", 7, 1, "n" * 32, 5, {UNNAMED: source}, {UNNAMED: TaskStep(60, True)}, 3)
        named = found.named("file", "Visits")
        assert (named.sources, named.tasks) == ({"file": source}, {"Visits": TaskStep(60, True)})
        assert replace(named, sources=found.sources, tasks=found.tasks) == found
    body = {name: value for name, value in PLANNED.items() if name != "limits"}
    without = StepPlan.decode(encode_document(body), "p")
    assert (without.max_future_ms, without.source.max_out_of_orderness_ms) == (None, None)
    with pytest.raises(CorruptCheckpoint, match=r"not a plan \(close_at is missing"):
        StepPlan.decode(encode_document({name: PLANNED[name] for name in PLANNED if name != "close_at"}), "p")
    with pytest.raises(CorruptCheckpoint, match=r"not a plan \(.* is missing"):
        StepPlan.decode(encode_document({**PLANNED, "format": 3}), "p")


def test_a_plan_that_an_older_driver_put_first_is_run() -> None:
    """Fenced while it slept, it puts its plan into a log that was upgraded meanwhile: whoever plans then runs that."""
    log = Log(MemoryStorage(new_nonce()))
    there = {"start": {"memory": [0, 0]}, "end": {"memory": [0, 4]}, "splits": [["memory", [[0, 0, 4, {}]]]]}
    theirs = {**PLANNED, **there, "base": 0, "number": 0, "appended": []}
    log.storage.write("p/00000000000000000000.json", encode_document(theirs))
    found = log.put_plan(plan())
    assert found.nonce == theirs["nonce"] and found.starts == plan().starts and [*found.tasks] == ["Visits"]
    with pytest.raises(CorruptCheckpoint, match="does not start at checkpoint 0"):
        log.put_plan(plan(start={"memory": (0, 1)}, splits=()))


def test_a_feature_that_is_not_known_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A release that knows no recorded options called such a checkpoint corrupt, and named a rollback that takes back
    good results."""
    wide = {**BODY, "features": ["wide totals", "recorded options"]}
    read(wide)
    for feature, others in ((features.WIDE, {features.RECORDED}), (features.RECORDED, {features.WIDE})):
        with monkeypatch.context() as older:
            older.setattr(shapes, "FEATURES", frozenset(others))
            with pytest.raises(NewerFormat, match=f"m: needs {feature}, unknown here: use a newer release"):
                read(wide)
    monkeypatch.setattr(shapes, "FEATURES", frozenset({features.WIDE}))
    with pytest.raises(NewerFormat, match="p: needs recorded options, unknown here: use a newer release"):
        StepPlan.decode(encode_document(PLANNED), "p")
