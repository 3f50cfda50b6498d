"""Every name is written and parsed in one place: what is parsed otherwise is lost, or deleted, or counted twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persistent.names import (
    Attempt,
    attempt_name,
    attempt_of,
    driver_epoch,
    driver_name,
    entry_id,
    is_manifest,
    is_retracted,
    list_name,
    manifest_name,
    new_nonce,
    plan_name,
    published_id,
    published_name,
    published_stem,
    retraction_name,
    retractions,
    run_name,
    runs_folder,
    savepoint_name,
    staged_name,
)

NONCE = "0123456789abcdef" * 2
IDS = st.integers(0, 10**19)


@given(IDS, IDS, st.integers(0, 99))
def test_what_is_written_is_parsed(epoch: int, id: int, number: int) -> None:
    """Both halves are here, so that neither changes alone."""
    attempt = attempt_name(epoch, id, NONCE)
    assert attempt_of(attempt) == attempt_of(run_name(runs_folder("Visits"), attempt)) == (epoch, id)
    assert published_id(published_name(id, f"_staged/{attempt}.jsonl")) == published_id(list_name(id)) == id
    assert published_id(manifest_name(id)) == id and is_manifest(manifest_name(id).partition("/")[2])
    assert entry_id(manifest_name(id).partition("/")[2]) == entry_id(plan_name(id, number).partition("/")[2]) == id
    assert not is_manifest(plan_name(id, number + 1).partition("/")[2])
    assert driver_epoch(driver_name(epoch, NONCE).partition("/")[2]) == epoch
    assert retractions([retraction_name(id, id + number)]) == [range(id, id + number)]


def test_no_two_files_have_one_name() -> None:
    """Two workers at one piece of work would write into one file; whose epoch and id it is can be told of each."""
    names = {Attempt(3, 41).name() for _ in range(100)}
    assert len(names) == 100 and {attempt_of(name) for name in names} == {(3, 41)}
    assert len({new_nonce() for _ in range(100)}) == 100


@given(IDS, IDS)
def test_names_sort_as_ids_do(one: int, other: int) -> None:
    """The newest manifest is the last of a listing, and results are read in the order in which they were published."""
    for name in (manifest_name, list_name, lambda id: published_stem(id, f"e1-c{id}-{NONCE}")):
        assert (name(one) < name(other)) == (one < other)


@pytest.mark.parametrize(
    "name",
    [
        "notes.txt",
        "e1.parquet",
        "e1-c1.parquet",
        "e1-c1-",
        "xe1-c1-a",
        ".DS_Store",
        "e1-c1-short",
        "e1-c1-0/x",
        "e1-c1-A",
    ],
)
def test_names_that_are_not_ours_are_of_no_attempt(name: str) -> None:
    """A user's own file in the folder would vanish."""
    assert attempt_of(name) is None and published_id(name) == -1 and entry_id(name) is None


@pytest.mark.parametrize(
    "name", ["7.json", f"{7:020d}", f"{7:020d}.jsonl", f"{7:020d}-.json", f"{7:020d}-x.json", "m.json"]
)
def test_what_is_no_entry_is_none(name: str) -> None:
    """A file that somebody has copied beside the manifests must not become the newest one."""
    assert entry_id(name) is None and not is_manifest(name)


@pytest.mark.parametrize("attempt", ["", "e1-c1", "e1-c1-", "e-c1-a", "c1-e1-a", "e1-c1-a/../x", "e1-c1-a.x"])
def test_other_attempts_are_refused(attempt: str) -> None:
    """A staged file of another name would never be swept."""
    with pytest.raises(ValueError, match="attempt"):
        published_stem(1, attempt)


@pytest.mark.parametrize("name", ["JOB", "7-a.jsonl", f"{7:020d}a.jsonl", f"{7:021d}-a.jsonl"])
def test_what_is_not_published_by_us_has_no_id(name: str) -> None:
    """A consumer's own file would be taken back with ours."""
    assert published_id(name) == -1 and not is_retracted(name, [range(100)])


def test_a_mark_covers_its_ids_and_no_other() -> None:
    """One id too few shows what was taken back, one too many hides what counts."""
    marks = retractions([retraction_name(7, 9), "note.txt", f"{1:020d}-", "1-2"])
    assert marks == [range(7, 9)]
    assert [id for id in range(12) if is_retracted(f"late/{published_stem(id, 'e1-c1-a')}.arrow", marks)] == [7, 8]


@pytest.mark.parametrize("name", ["e1.json", "e1-.json", "1-a.json", "e1-a.txt", "xe1-a.json"])
def test_what_is_no_mark_of_a_driver_has_no_epoch(name: str) -> None:
    """Somebody's note would be swept as the mark of a driver that was fenced."""
    assert driver_epoch(name) is None


def test_where_runs_and_savepoints_lie() -> None:
    """A checkpoint that an earlier release has made has them there, and nowhere else."""
    assert run_name(runs_folder("Visits"), "e1-c2-00ff") == "d/Visits/e1-c2-00ff.arrow"
    assert savepoint_name("monday") == "s/monday"


def test_outputs_wait_under_the_name_of_their_attempt() -> None:
    """Two attempts that share a file would publish what only one of them has seen."""
    assert staged_name("e3-c41-0f8fad5b") == "staged/e3-c41-0f8fad5b.arrow"
