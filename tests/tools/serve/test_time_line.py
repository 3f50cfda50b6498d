"""The time line shows every kept checkpoint, in words, and what changed between two."""

from __future__ import annotations

import pytest

from persistent import Retention, operations
from persistent.checkpoint.successor import KINDS
from persistent.errors import UnknownCheckpoint
from persistent.reading import diff
from persistent.storage import MemoryStorage
from persistent.tools.serve import time_line as module
from persistent.tools.serve.shown import Shown
from persistent.tools.serve.time_line import difference, in_words, kept, time_line
from tests.tools.serve.jobs import corrected, pipeline, ran, several


def test_pages_of_the_time_line_are_the_whole() -> None:
    """A checkpoint would be missing between two pages, or shown twice."""
    shown = ran("pages")
    whole = [line["id"] for line in time_line(shown)["checkpoints"]]
    found: list[int] = []
    before = None
    while True:
        page = time_line(shown, before, 3)
        found += [line["id"] for line in page["checkpoints"]]
        before = page["next"]
        if before is None:
            break
    assert found == whole == sorted(whole, reverse=True) and len(whole) == page["kept"] > 10


def test_a_page_takes_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of ten thousand large manifests would block the page until a hundred are read."""
    monkeypatch.setattr(module, "_BUDGET_S", -1.0)
    page = time_line(ran("moment"))
    assert [line["id"] for line in page["checkpoints"]] == [page["next"]] and page["kept"] > 10


def test_the_slider_has_every_state() -> None:
    """A checkpoint that is kept could not be gone back to; or one that a rollback abandoned could."""
    shown = ran("slider")
    newest = shown.entry().manifest
    assert [id for id, _ in kept(shown)["kept"]] == sorted(newest.bases)
    operations.rollback(shown.storage, 6, outputs="again")
    after = [id for id, _ in kept(type(shown)("slider", "slider", shown.storage))["kept"]]
    assert after[-2:] == [6, newest.id + 1] or (after[-1] > newest.id and 7 not in after)


def test_what_each_checkpoint_added() -> None:
    """The sum of the steps would not be the account."""
    lines = time_line(ran("added"))["checkpoints"]
    assert lines[-1]["id"] == 0
    assert sum(line["added"]["read"] for line in lines[:-1]) == lines[0]["read"] == 100
    assert [line["added"]["late"] for line in lines if "added" in line and line["added"]["late"]] == [1]


def test_what_was_added_since_a_checkpoint_far_before_says_so() -> None:
    """The records of many checkpoints would look like those of one, as if it were the cause of a late night."""
    shown = ran("since", 20)
    made = pipeline("since", 100, retention=Retention(last=3))
    operations.pin(shown.storage, 2)
    made.run(engine="embedded")
    lines = time_line(Shown("since", "", shown.storage))["checkpoints"]
    at = {line["id"]: line for line in lines}
    assert at[2]["pinned"]
    (gap,) = [line for line in lines if line.get("after") == 2 and line["added"]["read"]]
    assert gap["added"]["read"] == gap["read"] - at[2]["read"] > 10
    assert all("after" not in line for line in time_line(ran("whole"))["checkpoints"])


def test_pins_and_rollbacks_are_marked() -> None:
    """A checkpoint that no longer counts would look like one that does."""
    shown = ran("rolled")
    operations.pin(shown.storage, 6)
    operations.rollback(shown.storage, 6, outputs="again")
    shown = type(shown)(shown.name, shown.target, shown.storage)
    lines = {line["id"]: line for line in time_line(shown)["checkpoints"]}
    newest = max(lines)
    assert (lines[newest]["kind"], lines[newest]["target"]) == ("rollback", 6)
    assert lines[6]["pinned"] and not lines[6]["abandoned"]
    assert all(lines[id]["abandoned"] for id in lines if 6 < id < newest and lines[id]["kind"] == "checkpoint")
    assert "went back to checkpoint 6" in in_words(shown, None)["meaning"]


def test_every_kind_has_a_meaning() -> None:
    """A kind of manifest without words would fail the page."""
    assert module._MEANING.keys() == set(KINDS)


def test_words_say_what_a_manifest_holds() -> None:
    """People would have to read its JSON."""
    words = {one["name"]: one["text"] for one in in_words(ran("words"), None)["words"]}
    first = {one["name"]: one["text"] for one in in_words(ran("first", count=1), None)["words"]}
    assert first["state Visits"].startswith("1 row in 1 run, ")
    assert words["key"] == "page: string, shop: int64"
    assert words["window"] == 'tumbling("1 min")'
    assert words["clock"].startswith("1970-01-01 00:01:39Z, windows closed up to")


def test_a_checkpoint_that_is_not_kept() -> None:
    """An id mistyped would be an empty page."""
    with pytest.raises(UnknownCheckpoint):
        in_words(ran("unkept"), 999)


def test_the_difference_of_two() -> None:
    """Nobody would see what a step did."""
    shown = ran("difference")
    found = difference(shown, 4, 9, values=False)
    changes = {(one["part"], one["name"]): (one["before"], one["after"]) for one in found["changes"]}
    read = next(sides for (part, name), sides in changes.items() if part == "account" and name.startswith("read"))
    assert tuple(int(one) for one in read if one) == (30, 80)
    assert "values" not in found
    values = difference(shown, 8, 9, values=True)["values"]
    assert values["differing"] == len(values["rows"]) > 0


def test_an_unreadable_checkpoint_is_a_line() -> None:
    """One damaged manifest would hide all others."""
    shown = ran("unreadable")
    storage = MemoryStorage("serve-unreadable")
    storage._files["m/00000000000000000005.json"] = storage._files["m/00000000000000000004.json"].slice(0, 50)
    lines = {line["id"]: line for line in time_line(shown)["checkpoints"]}
    assert lines[5]["kind"] == "unreadable" and lines[6]["read"] == 50


def test_a_correction_is_in_the_line() -> None:
    """A checkpoint that read nothing would have changed the state, and nobody could see by what."""
    shown = corrected("corrected", "more")
    lines = [line for line in time_line(shown)["checkpoints"] if line["kind"] == "correction"]
    assert [[(one["name"], one["added"], one["removed"]) for one in line["corrections"]] for line in lines] == [
        [("more", 2, 0)],
        [("ticket", 1, 0)],
    ]
    found = in_words(shown, lines[0]["id"])
    assert "The correction 'more' put records into the state" in found["meaning"]
    words = {one["name"]: one["text"] for one in found["words"]}
    text = f"by checkpoint {lines[1]['id']}: 1 record added, 0 removed, in the pane 1970-01-01 00:01:00Z"
    assert words["correction ticket"] == text
    assert all(not line["corrections"] for line in time_line(shown)["checkpoints"] if line["kind"] != "correction")


def test_words_of_several_states_and_their_sinks() -> None:
    """States would share one clock, and a sink would not say what it takes."""
    shown = several("words-of-several")
    words = {one["name"]: one["text"] for one in in_words(shown, None)["words"]}
    assert "windows closed" in words["clock of Each/minutes"] and "windows" not in words["clock of Each/living"]
    assert words["sink minutes"].startswith("takes results of the state minutes; last batch ")
    assert words["sink late"].startswith("takes late records; last batch ")
    assert words["time to live"] == "a key lives 2500 ms after its last message"


def test_the_difference_of_one_of_several_states() -> None:
    """The values of another state would be compared, or none."""
    shown = several("differences")
    for name in ("minutes", "living"):
        values = difference(shown, 8, 9, values=True, name=name)["values"]
        found = diff(shown.place(8), shown.place(9), pipeline=shown.pipeline, name=name)
        assert (values["name"], values["differing"], values["equal"]) == (name, found.differing, found.equal)
    assert difference(shown, 8, 9, values=True)["values"]["name"] == "minutes"
    assert "values" not in difference(shown, 8, 9, values=False)


def test_what_was_added_since_one_that_can_be_read() -> None:
    """The checkpoint after a damaged one would show all that was ever read, as if it had read it."""
    shown = ran("gap")
    storage = MemoryStorage("serve-gap")
    storage._files["m/00000000000000000006.json"] = storage._files["m/00000000000000000006.json"].slice(0, 50)
    lines = {line["id"]: line for line in time_line(Shown("gap", "", shown.storage))["checkpoints"]}
    assert lines[6]["kind"] == "unreadable" and "added" not in lines[6]
    assert (lines[7]["after"], lines[7]["added"]["read"]) == (5, lines[7]["read"] - lines[5]["read"])
