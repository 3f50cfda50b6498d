"""The deltas of a task, by the names of its states: what its process_message and process_batch are given.

The updates of a batch apply to all states together, or to none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from persistent.delta import Delta
from persistent.message import Batch
from persistent.task import STATE


class Deltas(Mapping[str, Delta]):
    """The states as a task sees them in a pipeline: ``state["hourly"].update(...)``."""

    def __init__(self, deltas: Mapping[str, Delta], *, named: bool = True) -> None:
        self._deltas = dict(deltas)
        self._named = named

    # -- what a task calls -----------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Delta:
        try:
            return self._deltas[name]
        except KeyError:
            raise KeyError(f"the task has no state {name!r}: its states are {', '.join(self._deltas)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._deltas)

    def __len__(self) -> int:
        return len(self._deltas)

    def __contains__(self, name: object) -> bool:
        return name in self._deltas

    def update(self, *given: Any, **options: Any) -> None:
        raise TypeError(self._several("update"))

    def update_batch(self, *given: Any, **options: Any) -> None:
        raise TypeError(self._several("update_batch"))

    def _several(self, method: str) -> str:
        first, *_ = self._deltas
        return (
            f"state.{method}(...): the task has the states {', '.join(self._deltas)}. Name one: "
            f"state[{first!r}].{method}(...)"
        )

    # -- what the step calls ---------------------------------------------------------------------------------

    @property
    def given(self) -> Any:
        """What the task is given: these; or its only delta, if its state has no name."""
        return self if self._named else self._deltas[STATE]

    @property
    def row(self) -> int | None:
        """The row of the batch that updates belong to; None: they must give their key."""
        first, *_ = self._deltas.values()
        return first.row

    @row.setter
    def row(self, row: int | None) -> None:
        for one in self._deltas.values():
            one.row = row

    def begin(self, batch: Batch) -> None:
        """The following updates belong to this batch."""
        for one in self._deltas.values():
            one.begin(batch)

    def at_once(self) -> Deltas:
        """Empty deltas that check each update at once."""
        return Deltas({name: one.at_once() for name, one in self._deltas.items()}, named=self._named)

    def of(self, batch: Batch) -> None:
        """The following rows belong to this batch: the one begun, or one filtered from it."""
        for one in self._deltas.values():
            one.of(batch)

    def end(self) -> None:
        """Lift and check the updates of all states since ``begin``, then keep them."""
        for one in self._deltas.values():
            one.check()
        for one in self._deltas.values():
            one.end()

    def noted(self) -> dict[str, Any]:
        """Of each state that has missed some of its windows: the messages that have, by their offsets."""
        found = {name: one.noted() for name, one in self._deltas.items()}
        return {name: offsets for name, offsets in found.items() if len(offsets)}

    def settle(self) -> None:
        """Fold the kept sums of each state once they are many."""
        for one in self._deltas.values():
            one.settle()

    def abandon(self) -> None:
        """Drop the updates since ``begin``."""
        for one in self._deltas.values():
            one.abandon()
