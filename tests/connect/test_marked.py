"""Every move of a mark: from the batch before, once, by its own job, and never back."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from persistent.connect.marked import SinkMark, claimed, has_retreated, is_published, is_settled
from persistent.connect.sink import Claim, OutputBatch, Retreat
from persistent.errors import Fenced, SinkMismatch


def batch(number: int, before: int, job: str = "mine") -> OutputBatch:
    return OutputBatch(job, number, before, 0, number, "file:///c", (), (), lambda staged: pa.table({}))


def test_a_batch_follows_the_one_before() -> None:
    """A batch that is lost, or of another branch, would be followed as if nothing were."""
    assert not is_published(None, batch(3, 0), "t") and not is_published(SinkMark("mine", 2), batch(5, 2), "t")
    assert is_published(SinkMark("mine", 5), batch(5, 2), "t")
    for found in (3, 4, 6):
        with pytest.raises(Fenced, match=f"t is at batch {found}, beyond our 5"):
            is_published(SinkMark("mine", found), batch(5, 2), "t")
    for found, text in ((None, "has nothing of the outputs"), (SinkMark("mine", 1), "those between are missing")):
        with pytest.raises(SinkMismatch, match=text) as error:
            is_published(found, batch(5, 2), "t")
        assert not isinstance(error.value, Fenced)
    with pytest.raises(SinkMismatch, match="holds the results of job other"):
        is_published(SinkMark("other", 2), batch(5, 2), "t")


def test_what_a_rollback_owes_was_published_before_what_follows_it() -> None:
    """A batch of the branch that is left would be published a second time; or one that is owed, never."""
    assert [is_settled(SinkMark("mine", found), batch(5, 2), "t") for found in (2, 5, 7)] == [False, True, True]
    with pytest.raises(SinkMismatch, match="missing"):
        is_settled(SinkMark("mine", 1), batch(5, 2), "t")
    with pytest.raises(SinkMismatch, match="of job other"):
        is_settled(SinkMark("other", 7), batch(5, 2), "t")


def test_a_mark_that_was_there_is_missed_from_the_first_batch_on() -> None:
    """A table, or a topic of marks, that is dropped after one batch would get that batch again."""
    began = Claim("mine", began=True, url="u")
    assert claimed(SinkMark("mine", 0), began, "t") == SinkMark("mine", 0)
    with pytest.raises(SinkMismatch, match=r"has nothing of this job, which began there.*start_from='u'"):
        claimed(None, began, "t")
    heir = Claim("mine", began=True, heir_of=("first",), inherited=7)
    with pytest.raises(SinkMismatch, match="at batch 7, and the next comes after batch 8"):
        claimed(SinkMark("first", 7), heir, "t")


def test_a_rollback_sets_the_mark_once_and_never_back() -> None:
    """A mark that goes back lets a driver that slept publish what was taken back."""
    retreat = Retreat("mine", 9, 4, (), (), 9, "file:///c")
    assert [has_retreated(SinkMark("mine", found), retreat, "t") for found in (3, 8, 9)] == [False, False, True]
    with pytest.raises(Fenced, match="beyond our 9"):
        has_retreated(SinkMark("mine", 10), retreat, "t")


def test_a_place_is_of_one_job_or_its_heir() -> None:
    """Another job would write among its rows; an heir of what has moved on, windows that are there."""
    assert claimed(None, Claim("mine"), "t") == SinkMark("mine", 0)
    assert claimed(SinkMark("mine", 7), Claim("mine", 7), "t") == SinkMark("mine", 7)
    heir = Claim("mine", heir_of=("first", "second"), inherited=7)
    assert claimed(None, heir, "t") == SinkMark("mine", 0), "a new place has nothing"
    for job in ("first", "second"):
        assert claimed(SinkMark(job, 7), heir, "t") == SinkMark("mine", 7)
        for number, text in ((6, "has not published all its committed batches"), (8, "has continued")):
            with pytest.raises(SinkMismatch, match=text):
                claimed(SinkMark(job, number), heir, "t")
    for claim in (heir, Claim("mine")):
        with pytest.raises(SinkMismatch, match="Two jobs write here"):
            claimed(SinkMark("third", 7), claim, "t")
    with pytest.raises(SinkMismatch, match=re.escape("start_from='u'")):
        claimed(None, Claim("mine", 7, url="u"), "t")
    with pytest.raises(SinkMismatch, match="rollback u ID"):
        claimed(SinkMark("mine", 5), Claim("mine", 7, url="u"), "t")
