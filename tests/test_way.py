"""The way of a record, and the cost of a small step, kept: neither grows without anybody deciding so."""

from __future__ import annotations

from pathlib import Path

from tests.test_contributing import walked
from tests.way import first_run, small_step

MODULES_MAX, FUNCTIONS_MAX = 96, 925
CALLS_MAX, SYNCS_MAX = 3_000, 9


def test_a_run_passes_few_modules(tmp_path: Path) -> None:
    """Who follows a record reads these; and the walk of CONTRIBUTING.md is along them."""
    way = first_run(tmp_path)
    assert len(way.modules) <= MODULES_MAX and len(way.functions) <= FUNCTIONS_MAX
    forms = [module for _, module in walked()]
    assert set(forms) <= set(way.modules), "a form that no record has"


def test_a_small_step_is_cheap(tmp_path: Path) -> None:
    """The calls differ a little between machines, for what waits looks more than once."""
    step = small_step(tmp_path)
    assert step.calls <= CALLS_MAX and step.syncs <= SYNCS_MAX
