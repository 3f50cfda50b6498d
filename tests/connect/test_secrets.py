"""A text shows no secret, and can still be read."""

from __future__ import annotations

import pytest

from persistent.connect.secrets import without


@pytest.mark.parametrize(
    ("secrets", "shown"),
    [
        (["hunter2"], "login as app with ... failed: x.y/z, at a"),
        (["a"], "login as app with hunter2 failed: x.y/z, at ..."),
        (["app", "x.y"], "login as ... with hunter2 failed: .../z, at a"),
        (["hunt", "hunter2"], "login as app with ... failed: x.y/z, at a"),
        (["hunt"], "login as app with ...er2 failed: x.y/z, at a"),
        (["", "fai"], "login as app with hunter2 failed: x.y/z, at a"),
        (["("], "login as app with hunter2 failed: x.y/z, at a"),
    ],
)
def test_a_short_secret_is_hidden_where_it_stands_alone(secrets: list[str], shown: str) -> None:
    """Whose password is one letter would read a sentence without that letter, and one of four letters must not show."""
    assert without(secrets, "login as app with hunter2 failed: x.y/z, at a", "...") == shown


def test_the_sign_is_taken_as_it_is() -> None:
    """A sign with a group of a pattern would be an error, or show what it hides."""
    assert without(["ab"], "ab", r"\g<0>") == r"\g<0>"
