"""In another process the task is another object, with another seed of hash."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from persistent import InvalidPipeline
from persistent.testing import TaskDiffers, verify_task
from tests.testing.planted import (
    ROWS,
    OrderOfASet,
    Visits,
)

pytestmark = pytest.mark.usefixtures("quiet")


def test_a_set_is_in_another_order_elsewhere() -> None:
    """What one process computes would change at each restart."""
    with pytest.raises(TaskDiffers, match="in another process"):
        verify_task(OrderOfASet, [{"ts": n, "page": f"page {n}"} for n in range(8)], shuffles=0)


def test_a_module_that_nobody_else_can_import_travels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Test modules are often not on the path of another process."""
    (tmp_path / "nowhere_else.py").write_text(
        "from tests.testing.planted import Visits\nclass Mine(Visits):\n    def __init__(self): self.x = 1\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import nowhere_else  # type: ignore[import-not-found]

    monkeypatch.setattr(sys, "path", [place for place in sys.path if place != str(tmp_path)])
    verify_task(nowhere_else.Mine, ROWS[:3], shuffles=0)


def test_a_task_that_cannot_travel_is_told() -> None:
    """It would fail on Spark, far from here."""

    class Held(Visits):
        def __init__(self) -> None:
            self.lock = threading.Lock()

        def __deepcopy__(self, memo: Any) -> Held:
            return Held()

    with pytest.raises(InvalidPipeline, match="cannot be sent to another process"):
        verify_task(Held, ROWS[:2], shuffles=0)
    verify_task(Held, ROWS[:2], shuffles=0, elsewhere=False)
