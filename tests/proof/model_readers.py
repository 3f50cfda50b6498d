"""A reader in the model trusts the lists: it takes each listed file away, once."""

from __future__ import annotations

from collections.abc import Iterator

from tests.proof.model_laws import counted
from tests.proof.model_state import Bounds, Store


def read_away(store: Store, bounds: Bounds) -> Iterator[tuple[str, Store]]:
    """A reader takes a file away."""
    for output in counted(store) - store.taken if len(store.taken) < bounds.reads else ():
        after = store._replace(visible=store.visible - {output}, taken=store.taken | {output})
        yield f"a reader takes {output.id}", after
