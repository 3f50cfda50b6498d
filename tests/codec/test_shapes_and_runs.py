"""What stands in a document is of the type, the range and the alphabet that its reader relies on."""

from __future__ import annotations

from typing import Any

import pytest

from persistent.codec import RUN, Run
from persistent.codec.shapes import (
    INT64_MAX,
    INT64_MIN,
    NAME,
    SHA256,
    Misfit,
    Shape,
    anything,
    both,
    check_shape,
    fields,
    flag,
    items,
    mapping,
    one_of,
    optional,
    path,
    sequence,
    text,
    whole,
)
from persistent.errors import CorruptCheckpoint

MANIFEST = fields(
    {
        "id": whole(0),
        "kind": one_of("checkpoint", "fence"),
        "runs": sequence(fields({"name": path("d"), "rows": whole(0, 9)}), 2),
        "positions": mapping(text(5), items(whole(0), whole(0)), 2),
    },
    {"parent": optional(SHA256), "end": flag, "recorded": anything},
)
GOOD: dict[str, Any] = {
    "id": 3,
    "kind": "fence",
    "runs": [{"name": "d/Visits/e1-c1-0f.arrow", "rows": 9}, {"name": "d/i/x", "rows": 0}],
    "positions": {"a": [1, 2]},
}


@pytest.mark.parametrize("more", [{}, {"parent": None, "end": True}, {"parent": "0f" * 32, "recorded": [{"a": 1}]}])
def test_what_fits_passes(more: dict[str, Any]) -> None:
    """A good checkpoint must not be refused."""
    check_shape(MANIFEST, {**GOOD, **more}, "m/1", "a manifest")


def run_of(name: Any) -> dict[str, Any]:
    return {"runs": [{"name": "d/a/b", "rows": 1}, {"name": name, "rows": 1}]}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"id": True}, "id: True is not a whole number from 0 to"),
        ({"id": -1}, "id: -1 is not a whole number"),
        ({"id": 1 << 63}, "id: 9223372036854775808 is not"),
        ({"id": "1"}, "id: '1' is not"),
        ({"id": None}, "id: None is not"),
        ({"kind": "rollback"}, "kind: 'rollback' is not one of checkpoint, fence"),
        ({"kind": ["fence"]}, "kind: a list is not one of"),
        ({"runs": {}}, "runs: a mapping is not a list"),
        ({"runs": [1]}, r"runs\[0\]: 1 is not a mapping"),
        ({"runs": [{}] * 3}, "runs: has 3 values, but at most 2"),
        ({"runs": [{"rows": 1}]}, r"runs\[0\]: name is missing"),
        ({"runs": [{"name": "d/a", "rows": 10}]}, r"runs\[0\]\.rows: 10 is not a whole number from 0 to 9"),
        ({"runs": [{"name": "d/a", "rows": 1, "x": 1}]}, r"runs\[0\]: 'x' is unknown here"),
        *(
            (run_of(name), r"runs\[1\]\.name: ")
            for name in (
                "d/../../etc/passwd",
                "d/x/../y",
                "/d/x",
                "d//x",
                "d/",
                "d",
                "x/d/a",
                "../d/x",
                "d/.hidden",
                "d/a b",
                "d/a\0",
                "d/a\n",
                "d/é",
                "d/a\\b",
                "d/" + "a" * 201,
                "d" + "/a" * 500,
                "",
                7,
            )
        ),
        ({"positions": []}, "positions: a list is not a mapping"),
        ({"positions": {"a": [1]}}, r"positions\.a: has 1 values instead of 2"),
        ({"positions": {"a": [1, -2]}}, r"positions\.a\[1\]: -2 is not"),
        ({"positions": {"a": "12"}}, r"positions\.a: '12' is not a list"),
        (
            {"positions": {"toolong": [1, 2]}},
            "positions.the key 'toolong': 'toolong'... has 7 characters, but the limit",
        ),
        ({"positions": {key: [1, 2] for key in "abc"}}, "positions: has 3 values, but at most 2"),
        ({"parent": "0" * 63}, "parent: '0+' is not a SHA-256"),
        ({"parent": 0}, "parent: 0 is not a SHA-256"),
        ({"end": 1}, "end: 1 is neither true nor false"),
        ({"more": 1}, "'more' is unknown here"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_place(changes: dict[str, Any], says: str) -> None:
    """Taken as it is, it fails far from here, or writes to a file of someone else's."""
    with pytest.raises(CorruptCheckpoint, match=says) as caught:
        check_shape(MANIFEST, {**GOOD, **changes}, "m/1", "a manifest")
    assert str(caught.value).startswith("m/1: not a manifest (") and len(str(caught.value)) < 400


@pytest.mark.parametrize("value", [[], None, "x", 1, True])
def test_a_document_is_a_mapping(value: Any) -> None:
    """It would fail with the error of a programmer."""
    with pytest.raises(CorruptCheckpoint, match=r"not a manifest \(.* is not a mapping\)"):
        check_shape(MANIFEST, value, "m/1", "a manifest")


def test_a_missing_field_is_refused() -> None:
    """A default in its place would be an invention."""
    for name in GOOD:
        with pytest.raises(CorruptCheckpoint, match=f"{name} is missing"):
            check_shape(MANIFEST, {key: value for key, value in GOOD.items() if key != name}, "m/1", "a manifest")


@pytest.mark.parametrize("name", ["", "..", "a/b", "a b", ".a", "-a", "é", "a" * 201, "a\n"])
def test_names_are_of_our_alphabet(name: str) -> None:
    """The same alphabet wherever a name stands alone."""
    NAME("a" * 200)
    with pytest.raises(Misfit):
        NAME(name)


RUN_JSON = Run("d/V/x", 5, 9, "0" * 64, 0, 3, 1024, -1, 60, 1, 2).to_json()


def test_a_run_is_read_from_its_shape() -> None:
    """``rows_left`` divides by the width of its key groups."""
    assert Run.from_json(RUN_JSON).to_json() == RUN_JSON
    assert Run.from_json(RUN_JSON).rows_left == 4
    assert Run.from_json({**RUN_JSON, "rows": 10, "start": 512, "low": 768}).rows_left == 5


def test_only_a_wide_run_says_so() -> None:
    """A release that does not know wide totals refuses every run that has the field."""
    assert "wide" not in RUN_JSON and Run.from_json(RUN_JSON).wide is False
    wide = {**RUN_JSON, "wide": True}
    assert Run.from_json(wide).wide and Run.from_json(wide).to_json() == wide


@pytest.mark.parametrize(
    "changes",
    [
        {"low": 1024},
        {"start": 4},
        {"high": 3},
        {"high": 1025},
        {"start": -1},
        {"rows": -1},
        {"bytes": True},
        {"pane_max": -2},
        {"pane_min": 1 << 64},
        {"first": 3},
        {"sha256": "Z" * 64},
        {"name": "late/x"},
        {"extra": 1},
    ],
)
def test_a_run_that_cannot_be_is_refused(changes: dict[str, Any]) -> None:
    """A run in no key group counts for none, silently."""
    with pytest.raises(Misfit):
        Run.from_json({**RUN_JSON, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"start": 0, "low": 0, "high": 1},
        {"start": 1024 - 1, "low": 1024 - 1},
        {"pane_min": 60, "pane_max": 60},
        {"pane_min": INT64_MIN, "pane_max": INT64_MAX},
        {"first": 0, "last": 0},
        {"rows": 0, "bytes": 0},
        *({name: 1 << 62} for name in ("rows", "bytes", "last")),
        {"first": 1 << 62, "last": 1 << 62},
    ],
    ids=str,
)
def test_a_run_at_its_bounds_is_read(changes: dict[str, Any]) -> None:
    """It has been committed: a bound that is too narrow makes its checkpoint unreadable."""
    assert Run.from_json({**RUN_JSON, **changes}).to_json() == {**RUN_JSON, **changes}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        *(
            ({name: (1 << 62) + 1}, f"{name}: 4611686018427387905 is not")
            for name in ("rows", "bytes", "first", "last")
        ),
        ({"start": 0, "low": 0, "high": 0}, "key groups 0 to 0"),
        ({"pane_min": INT64_MIN - 1}, "pane_min: -9223372036854775809 is not"),
        ({"pane_max": INT64_MAX + 1}, "pane_max: 9223372036854775808 is not"),
        ({"pane_max": -2}, "end before they begin"),
    ],
)
def test_a_run_just_beyond_its_bounds_is_refused(changes: dict[str, Any], says: str) -> None:
    """Larger counts overflow where they are added up."""
    with pytest.raises(Misfit, match=says):
        Run.from_json({**RUN_JSON, **changes})


@pytest.mark.parametrize(
    ("shape", "longest"),
    [(NAME, "a" * 200), (SHA256, "0" * 64), (text(5), "a" * 5), (path("d"), "d/aa" + "/a" * 498)],
    ids=["name", "hash", "text", "path"],
)
def test_texts_have_a_longest_one(shape: Shape, longest: str) -> None:
    """Looked at before the pattern: a pattern over a text of any length may take as long."""
    shape(longest)
    with pytest.raises(Misfit, match=f"has {len(longest) + 1} characters"):
        shape(longest + longest[-1])


def test_lists_have_a_longest_one() -> None:
    """The bound itself may be reached."""
    for shape, value in ((sequence(flag, 2), [True, False]), (mapping(anything, flag, 2), {"a": True, "b": True})):
        shape(value)
    with pytest.raises(Misfit, match="has 3 values, but at most 2"):
        sequence(flag, 2)([True, True, True])


@pytest.mark.parametrize("value", ["x" * 80, 10**80], ids=["text", "number"])
def test_no_more_of_a_value_is_shown_than_tells_it(value: Any) -> None:
    """A document of 64 MB in a log."""
    with pytest.raises(Misfit) as caught:
        flag(value)
    shown = repr(value[:60]) if isinstance(value, str) else repr(value)[:60]
    assert str(caught.value) == f"{shown} is neither true nor false"


def test_the_whole_numbers_are_those_of_64_bits() -> None:
    """A pane or a time beyond them fails far from here, in a column."""
    for edge in (-(2**63), 2**63 - 1):
        whole()(edge)
    for beyond in (-(2**63) - 1, 2**63):
        with pytest.raises(Misfit, match="is not a whole number from -9223372036854775808 to 9223372036854775807"):
            whole()(beyond)


def test_both_asks_the_second_only_after_the_first() -> None:
    """The second may rely on the first."""
    asked: list[Any] = []
    shape = both(whole(0, 1), asked.append)
    with pytest.raises(Misfit):
        shape(2)
    shape(1)
    RUN(RUN_JSON)
    assert asked == [1]
