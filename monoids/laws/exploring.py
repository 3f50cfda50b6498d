"""Exploring calls a function with examples of a strategy, the same in every process, and leaves no files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import strategies as st


def explore(
    strategy: st.SearchStrategy[Any], function: Callable[[Any], None], examples: int, *, shrink: bool = False
) -> None:
    """Call ``function`` with about ``examples`` examples.

    With ``shrink``, an exception of the function is raised again from the smallest example found to raise it.
    """

    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        verbosity=Verbosity.quiet,
        report_multiple_bugs=False,
        print_blob=False,
        phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def explored(example: Any) -> None:
        function(example)

    explored()
