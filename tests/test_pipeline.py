"""A pipeline refuses options that cannot be meant, before anything is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from persistent import (
    InvalidPipeline,
    MemorySource,
    Message,
    Pipeline,
    State,
    StorageError,
    UserCodeError,
)
from persistent.storage import MemoryStorage
from tests.visits import GOOD, Visits, pipeline_of, run, says


def test_get_in_a_pipeline(storage: MemoryStorage) -> None:
    """It would return the part of the state that happens to be at hand."""

    class Reading(Visits):
        def process_message(self, state: State, message: Message) -> None:
            if state.get():
                state.update(message.timestamp, {"visits": 1})

    with pytest.raises(UserCodeError) as error:
        run(pipeline_of(GOOD, storage, Reading()))
    says(error, "Reading", "state.get()", "position (0, 0)", "pipeline.state()")


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"step_rows": 0}, "step_rows"),
        ({"on_error": "ignore"}, "dead-letter"),
        ({"require": "exactly"}, "exactly-once"),
        ({"task": Visits}, "Visits()"),
        ({"source": "events"}, "FileSource"),
        ({"sink": "visits/"}, "FileSink"),
    ],
)
def test_wrong_options_are_refused_at_once(options: dict[str, Any], part: str) -> None:
    """A run would end hours later for a word misspelt."""
    given: dict[str, Any] = {"source": MemorySource(GOOD), "task": Visits(), "checkpoint": "memory://never"}
    with pytest.raises(InvalidPipeline, match=part.replace("(", r"\(").replace(")", r"\)")):
        Pipeline(**{**given, **options})


def test_a_checkpoint_that_cannot_be_written(tmp_path: Path) -> None:
    """The error would be a traceback out of the operating system."""
    (tmp_path / "file").write_text("in the way")
    place = tmp_path / "file" / "checkpoint"
    with pytest.raises(StorageError) as error:
        run(pipeline_of(GOOD, str(place)))
    says(error, str(tmp_path / "file"))
    assert (tmp_path / "file").read_text() == "in the way"
