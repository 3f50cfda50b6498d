"""A command in a message works as it stands there, whatever the folder is called."""

from __future__ import annotations

import shlex

import pytest

from persistent.text.figures import shell_word


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket/job",
        "/jobs/my job",
        "/jobs/ann's",
        "/jobs/ü",
        'a "b"',
        "a $HOME",
        "a`b`",
        "a\\b c",
        "a!b",
        "~/x",
        "",
    ],
)
def test_a_word_is_one_word(text: str) -> None:
    """Otherwise the command names another folder, which may exist."""
    assert shlex.split(f"persistent verify {shell_word(text)} --json") == ["persistent", "verify", text, "--json"]


def test_a_plain_word_is_bare() -> None:
    """Quotes around every path would only be in the way."""
    assert shell_word("/jobs/visits-checkpoint") == "/jobs/visits-checkpoint"
