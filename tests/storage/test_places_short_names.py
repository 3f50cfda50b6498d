"""A short name tells pipelines apart, and no secret."""

from __future__ import annotations

import pytest

from persistent.storage.places import lasting_name, short_name


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("/jobs/visits/", "visits"),
        ("visits", "visits"),
        ("s3://key:secret@bucket/jobs/visits?signature=secret", "visits"),
        ("memory://visits", "visits"),
        ("hdfs://host/a b", "a-b"),
        ("/", "checkpoint"),
    ],
)
def test_a_short_name(url: str, name: str) -> None:
    """A page or a label would show where a job lies, with its password."""
    assert short_name(url) == name


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("/jobs/visits/", "jobs-visits"),
        ("./visits", "visits"),
        ("../visits", "visits"),
        ("s3://key:secret@visits?signature=secret", "visits"),
        ("s3://key:secret@bucket/visits", "bucket-visits"),
        ("/", "checkpoint"),
    ],
)
def test_a_lasting_name(url: str, name: str) -> None:
    """The series of a job would have its password, or another name after a restart."""
    assert lasting_name(url) == name


def test_two_of_one_name_are_numbered() -> None:
    """One would hide the other."""
    assert short_name("b/visits", ["visits", "visits-2"]) == "visits-3"
