"""``make test`` stays a matter of minutes: a test that takes long fails, and what is costly to begin is begun once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests import conftest


def _item(marker: str = "") -> Any:
    return SimpleNamespace(nodeid="tests/test_x.py::test_y", get_closest_marker=lambda name: name == marker)


def _run(item: Any, seconds: float) -> None:
    """Let a test of so many seconds run."""
    with pytest.MonkeyPatch.context() as patch:
        times = iter([(1.0, 0.0, 0.0, 0.0, 0.0), (1.0, 0.0, seconds, 0.0, 0.0)])
        patch.setattr(conftest.os, "times", lambda: next(times))
        running = conftest.pytest_runtest_call(item)
        next(running)
        with pytest.raises(StopIteration):
            running.send(None)


def test_a_test_that_takes_long_fails_by_its_name() -> None:
    """Without it each of a hundred tests would take a little longer, and all of them a quarter of an hour."""
    _run(_item(), 0.9 * conftest.SECONDS_MAX)
    _run(_item("check"), 9 * conftest.SECONDS_MAX)
    with pytest.raises(pytest.fail.Exception, match=r"tests/test_x\.py::test_y took 22 s of processor time"):
        _run(_item(), 1.1 * conftest.SECONDS_MAX)


@pytest.mark.parametrize(
    ("name", "together"),
    [
        ("tests/x.py::test_a[spark-1]", "tests/x.py::test_a"),
        ("tests/x.py::test_a@spark", "spark"),
        ("tests/storage/x.py::test_a[s3@b]@servers", "servers"),
        ("monoids::Sum(int)::any tree", "monoids::Sum(int)"),
        ("monoids::mapping(Top(3), key=str)::left identity", "monoids::mapping(Top(3), key=str)"),
    ],
)
def test_what_is_costly_to_begin_is_begun_once(name: str, together: str) -> None:
    """Without it each process would start a Spark, and draw the examples of every monoid."""
    assert conftest.scope_of(name) == together


def test_a_test_is_renamed(request: pytest.FixtureRequest) -> None:
    """Without it what belongs together is not known by its name, whatever the version of pytest."""
    before = request.node.nodeid
    conftest.rename(request.node, f"{before}@spark")
    assert conftest.scope_of(request.node.nodeid) == "spark"
    conftest.rename(request.node, before)
    assert request.node.nodeid == before
