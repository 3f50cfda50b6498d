"""What was read is known again under another pattern, and in a folder that has moved."""

from __future__ import annotations

import json
import shutil

import pytest

from persistent.connect.files.listing import Files
from persistent.connect.files.roots import Root, moved_folder, place_of
from persistent.errors import InputGone, InvalidPipeline
from persistent.sources import Budget, SourceState
from tests.connect.draining import after, drain, read, thawed
from tests.connect.test_recorded import source


def write(path, first, count=2):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"ts": n, "n": n}) + "\n" for n in range(first, first + count)))
    return path


def numbers(drained):
    return [row["n"] for row in drained.values]


def test_a_pattern_that_begins_a_folder_earlier_goes_on(tmp_path):
    """Every file would be read, and counted, a second time; again with each folder more."""
    write(tmp_path / "data" / "events" / "a.jsonl", 0)
    first = drain(source(tmp_path / "data" / "events" / "*.jsonl"))
    write(tmp_path / "data" / "other" / "b.jsonl", 2)
    write(tmp_path / "data" / "events" / "c.jsonl", 4)
    second = drain(source(tmp_path / "data" / "*" / "*.jsonl"), 1, True, state=first.state)
    assert numbers(second) == [4, 5, 2, 3] and second.steps == [1] * 4
    write(tmp_path / "more" / "x" / "d.jsonl", 6)
    third = drain(source(tmp_path / "*" / "*" / "*.jsonl"), state=second.state)
    assert numbers(third) == [6, 7]
    # The index keeps what it has; the record says what comes before.
    assert third.state.index.column("path").to_pylist() == [
        "a.jsonl",
        "events/c.jsonl",
        "other/b.jsonl",
        "more/x/d.jsonl",
    ]
    root = Root.from_json(third.state.recorded)
    assert root == Root(f"{tmp_path}/", ((1, "data/events/"), (3, "data/")))
    assert drain(source(tmp_path / "*" / "*" / "*.jsonl"), state=third.state).plans == []


def test_files_that_were_listed_and_not_read_are_found_under_the_new_pattern(tmp_path):
    """A job stopped between two steps would look for them in the wrong folder."""
    write(tmp_path / "events" / "a.jsonl", 0, 5)
    write(tmp_path / "events" / "b.jsonl", 5, 5)
    narrow, wide = source(tmp_path / "events" / "*.jsonl"), source(tmp_path / "*" / "*.jsonl")
    plan = narrow.plan(SourceState({}), Budget(3, exact=True))
    state = after(SourceState({}), plan)
    assert numbers(drain(wide, 4, True, 2, state)) == [*range(3, 10)]
    # A plan that was put before the change is read where it says.
    assert [row[3]["n"] for row in read(wide, thawed(plan.splits[0]), plan.recorded)[0]] == [0, 1, 2]


def test_a_pattern_that_begins_a_folder_later_goes_on_where_it_stands_for_all(tmp_path):
    """Going back to the narrower pattern would read everything again."""
    write(tmp_path / "events" / "a.jsonl", 0)
    state = drain(source(tmp_path / "*" / "*.jsonl")).state
    write(tmp_path / "events" / "b.jsonl", 2)
    narrow = drain(source(tmp_path / "events" / "*.jsonl"), state=state)
    assert numbers(narrow) == [2, 3]
    write(tmp_path / "other" / "c.jsonl", 4)
    state = drain(source(tmp_path / "*" / "*.jsonl"), state=narrow.state).state
    with pytest.raises(InvalidPipeline, match=r"'other/c\.jsonl' below .*moved_from=.*/events/'"):
        drain(source(tmp_path / "events" / "*.jsonl"), state=state)
    meant = source(tmp_path / "events" / "*.jsonl", moved_from=tmp_path / "events")
    write(tmp_path / "events" / "d.jsonl", 6)
    assert numbers(drain(meant, state=state)) == [6, 7]


@pytest.mark.parametrize("new", ["new", "old/deeper", ""])
def test_files_that_have_moved_need_moved_from(tmp_path, new):
    """A folder given by mistake, or a backup restored elsewhere, would be read as if its files were new."""
    write(tmp_path / "old" / "a.jsonl", 0, 4)
    write(tmp_path / "old" / "b.jsonl", 4, 4)
    plan = source(tmp_path / "old" / "*.jsonl").plan(SourceState({}), Budget(2, exact=True))
    state = after(SourceState({}), plan)
    (tmp_path / new).mkdir(exist_ok=True)
    for name in ("a.jsonl", "b.jsonl"):
        shutil.move(tmp_path / "old" / name, tmp_path / new / name)
    write(tmp_path / new / "c.jsonl", 8)
    path = tmp_path / new / "*.jsonl"
    with pytest.raises(InvalidPipeline, match="moved_from="):
        drain(source(path), state=state)
    moved = source(path, moved_from=f"{tmp_path}/old")
    done = drain(moved, 3, True, state=state)
    assert numbers(done) == [*range(2, 10)]
    # A plan that was put before they moved; and the option may stay where it is.
    assert [row[3]["n"] for row in read(moved, thawed(plan.splits[0]), plan.recorded)[0]] == [0, 1]
    assert drain(moved, state=done.state).plans == []
    assert drain(source(path), state=done.state).plans == []


@pytest.mark.parametrize(
    ("first", "move", "then", "moved_from"),
    [
        ("x/*/*.jsonl", ("x/a", "x/b"), "x/*/*.jsonl", "x/a"),
        ("x", ("x/a", "x/b"), "x", "x/a"),
        ("x", ("x/a", "x/b"), "x", "y"),
        ("x/a", ("x", "y"), "y", "x/a"),
        ("x/a", ("x/a", "y/a"), "y/*/*.jsonl", "x/a"),
        ("x/a", ("x/a", "x/b"), "x/**", "x/a"),
    ],
)
def test_moved_from_that_does_not_lead_to_what_was_read_is_refused(tmp_path, first, move, then, moved_from):
    """Every record of those files would count a second time, without a word."""
    write(tmp_path / "x" / "a" / "f.jsonl", 0)
    state = drain(source(tmp_path / first)).state
    (tmp_path / move[1]).parent.mkdir(exist_ok=True)
    (tmp_path / move[0]).rename(tmp_path / move[1])
    with pytest.raises(InvalidPipeline, match=r"has read '(a/)?f\.jsonl'"):
        drain(source(tmp_path / then, moved_from=tmp_path / moved_from), state=state)


@pytest.mark.parametrize("path", ["new/ev", "new/ev/*.jsonl", "new", "new/*/*.jsonl", "new/**"])
def test_a_folder_above_that_has_moved_is_followed(tmp_path, path):
    """The files would be looked for in new/ev/ev, and those in new/ev read again."""
    write(tmp_path / "old" / "ev" / "f.jsonl", 0)
    state = drain(source(tmp_path / "old" / "ev")).state
    (tmp_path / "old").rename(tmp_path / "new")
    write(tmp_path / "new" / "ev" / "g.jsonl", 2)
    moved = source(tmp_path / path, moved_from=tmp_path / "old")
    done = drain(moved, state=state)
    assert numbers(done) == [2, 3]
    # The option may stay, also while files that were read are deleted and others of the same name come.
    (tmp_path / "new" / "ev" / "f.jsonl").unlink()
    write(tmp_path / "new" / "ev" / "h" / "f.jsonl", 4)
    again = drain(source(tmp_path / path, moved_from=tmp_path / "old"), state=done.state)
    assert numbers(again) == ([] if path.endswith("*.jsonl") else [4, 5])


def test_a_folder_that_is_away_is_still_a_folder(tmp_path):
    """A network drive that is not mounted would be refused as another root."""
    write(tmp_path / "events" / "a.jsonl", 0)
    state = drain(source(tmp_path / "events")).state
    shutil.move(tmp_path / "events", tmp_path / "away")
    assert drain(source(tmp_path / "events"), state=state, follow=True).plans == []
    with pytest.raises(InputGone, match="is it mounted"):
        drain(source(tmp_path / "events"), state=state)


def test_no_user_or_password_is_recorded():
    """A secret in the URL of a source would be written down in every checkpoint."""
    given = Files("memory://user:secret@host/events/*.jsonl")
    assert place_of(None, given, None).root == Root("memory://host/events/")
    assert moved_folder("s3://user:secret@bucket/x") == "s3://bucket/x/"
    # Where they are read the URL is whole.
    up = place_of(Root("memory://host/events/2024/"), given, None)
    assert up.files.where("a") == "memory://user:secret@host/events/2024/a"
    down = place_of(Root("memory://host/"), given, None)
    assert (down.files.where("a"), down.inside) == ("memory://user:secret@host/a", "events/")
