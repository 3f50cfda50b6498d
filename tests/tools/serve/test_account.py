"""The account adds up by partition, and every row that was set aside can be seen."""

from __future__ import annotations

import pytest

from persistent import MemorySink, MemorySource, Pipeline
from persistent.errors import InvalidPipeline
from persistent.storage import MemoryStorage
from persistent.tools.serve import Shown
from persistent.tools.serve.account import account, aside
from tests.tools.serve.jobs import Visits, corrected, ran, several


def test_the_account_is_that_of_the_checkpoint() -> None:
    """The picture would not add up."""
    found = account(ran("account"))
    total = found["total"]
    assert (total["read"], total["processed"], total["late"], total["dead"]) == (100, 98, 1, 1)
    assert found["balances"] and found["more"] is None
    assert sum(one["read"] for one in found["partitions"]) == 100


def test_an_earlier_account() -> None:
    """The account of a checkpoint would be that of another."""
    assert account(ran("earlier"), 4)["total"]["read"] == 30


def test_rows_set_aside_say_where_they_are_from() -> None:
    """A late row could not be found in its file."""
    shown = ran("aside")
    (late,) = aside(shown, "late")["rows"]
    assert (late["offset"], late["time"]) == ("90", "1970-01-01 00:00:05Z")
    assert "window" in late["reason"] or "late" in late["reason"]
    (dead,) = aside(shown, "dead")["rows"]
    assert dead["offset"] == "91" and dead["time"] is None and dead["reason"]


def shown_of_dead(count: int) -> Shown:
    name = f"serve-dead-{count}"
    MemoryStorage(name).clear()
    rows = [{"ts": None if n % 2 else n, "page": "a", "shop": n, "size": n} for n in range(count)]
    source = MemorySource(rows, timestamp="ts", ordered=True)
    made = Pipeline(source=source, task=Visits(), sink=MemorySink(), checkpoint=f"memory://{name}", step_rows=14)
    made.run(engine="embedded")
    return Shown("dead", "dead", made.storage, made)


@pytest.mark.parametrize("limit", [1, 3, 7, 50])
def test_pages_of_dead_letters_are_the_whole(limit: int) -> None:
    """A row on the border of two pages, or of two files, would be lost or shown twice."""
    shown, cursor, found = shown_of_dead(60), "", list[str]()
    while True:
        page = aside(shown, "dead", cursor, limit)
        assert len(page["rows"]) <= limit
        found += [row["offset"] for row in page["rows"]]
        if page["next"] is None:
            break
        cursor = page["next"]
    assert sorted(map(int, found)) == list(range(1, 60, 2)) and page["total"] == 30


@pytest.mark.parametrize("cursor", ["x", "../m/1:0", "00000000000000000002-ab.arrow:x"])
def test_a_place_that_is_none_is_refused(cursor: str) -> None:
    """Whatever stands in a URL would be read from the store."""
    with pytest.raises(InvalidPipeline, match="no place"):
        aside(ran("cursor"), "late", cursor)


def test_several_states_have_one_account() -> None:
    """Each record would be counted as often as there are states; or the page would fail."""
    found = account(several("accounts"))
    assert (found["total"]["read"], found["total"]["late"], found["states"]) == (100, 1, ["living", "minutes"])
    assert account(ran("alone"))["states"] == []


def test_partly_late_rows_are_listed() -> None:
    """What one state has refused, and the account does not count, would be nowhere."""
    shown = several("partly", "minutes", "total")
    assert account(shown)["total"]["late"] == 0
    (row,) = aside(shown, "late")["rows"]
    assert row["reason"].startswith("partly-late") and row["offset"] == "90"


def test_corrections_stand_beside_the_account() -> None:
    """A state would hold more than was processed, and nothing would say why."""
    found = account(corrected("beside", "more"))
    assert found["total"]["read"] == 100
    assert [(one["name"], one["added"], one["removed"]) for one in found["corrections"]] == [
        ("more", 2, 0),
        ("ticket", 1, 0),
    ]
