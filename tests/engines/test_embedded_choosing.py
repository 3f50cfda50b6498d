"""The engine of a run is the one that is given; else that of the session; else this process."""

from __future__ import annotations

from typing import Any

import pytest

from persistent.engines import embedded
from persistent.engines.embedded import Embedded, chosen_engine
from persistent.errors import InvalidPipeline


def test_an_engine_that_is_given_is_used() -> None:
    """Its threads and its cache are the caller's."""
    one = Embedded(threads=3)
    assert chosen_engine(None, one) is one


@pytest.mark.parametrize("engine", [None, "embedded"])
def test_without_a_session_it_is_this_process(engine: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody needs Java for a small job."""
    monkeypatch.setattr(embedded, "_active_session", lambda: None)
    assert isinstance(chosen_engine(None, engine), Embedded)


@pytest.mark.parametrize("is_given", [True, False], ids=["given", "active"])
def test_a_session_runs_on_spark(is_given: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that is given, or active, is where the data are."""
    session: Any = object()
    monkeypatch.setattr(embedded, "_active_session", lambda: session)
    monkeypatch.setattr(embedded, "_spark_engine", lambda found: ("on", found))
    assert chosen_engine(session if is_given else None, None) == ("on", session)


@pytest.mark.parametrize(
    ("spark", "engine", "error"),
    [
        (object(), "embedded", "not both"),
        (None, "flink", "choose"),
        (None, "spark", "needs a SparkSession"),
    ],
)
def test_what_contradicts_itself_is_refused(
    spark: Any, engine: str, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run on another engine than was meant is slow, or out of reach of its files."""
    monkeypatch.setattr(embedded, "_active_session", lambda: None)
    with pytest.raises(InvalidPipeline, match=error):
        chosen_engine(spark, engine)
