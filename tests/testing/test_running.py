"""A task is run in a pipeline of its own, whatever it is given as."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from persistent import UserCodeError
from persistent.testing import TaskDiffers, verify_task
from tests.testing.planted import (
    ROWS,
    StateOnSelf,
    Totals,
    Visits,
)

pytestmark = pytest.mark.usefixtures("quiet")


def test_a_task_that_raises_is_told_as_in_a_pipeline() -> None:
    """A difference between ways is not what is wrong with it."""

    class Raises(Visits):
        def process_message(self, state: Any, message: Any) -> None:
            state.update(message.timestamp, 1 // message.value["n"])

    with pytest.raises(
        UserCodeError, match=r"Raises\.process_message raised at .*partition 'memory', position \(0, 0\)"
    ):
        verify_task(Raises, ROWS, elsewhere=False)
    verify_task(Raises, ROWS, on_error="dead-letter", elsewhere=False, steps=4)


def test_a_table_and_an_instance_will_do() -> None:
    """Fixtures of tests are often Arrow tables."""
    verify_task(Totals(), pa.Table.from_pylist(ROWS), elsewhere=False, steps=5)
    with pytest.raises(TaskDiffers) as caught:
        verify_task(StateOnSelf(), pa.Table.from_pylist(ROWS), elsewhere=False, steps=5)
    assert caught.value.records.num_rows == 2
