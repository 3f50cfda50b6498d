"""An order book: what is offered and asked at each price, as orders come and are cancelled, and the largest trades.

python examples/order_book.py
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from monoids import Sum, TopK, mapping, record
from persistent import MemorySource, NonWindowState, PersistentTask, Pipeline

BEST = 3


class Books(PersistentTask):
    """Per share: the quantity at each price of both sides, and the three largest trades.

    An order adds its quantity, and what is traded or cancelled subtracts it: the sum is what is left. So the book needs
    no order of messages, and no state is read while it is made."""

    key = "share"

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(record(bids=mapping(Sum(), key=int), asks=mapping(Sum(), key=int), largest=TopK(BEST)))

    def process_message(self, state: Any, message: Any) -> None:
        event = message.value
        sign = 1 if event["what"] == "order" else -1
        added: dict[str, Any] = {event["side"]: {event["cents"]: sign * event["quantity"]}}
        if event["what"] == "trade":
            added["largest"] = event["quantity"]
        state.update(message.timestamp, added)


def events() -> list[dict[str, Any]]:
    """Orders of two shares; of each order a part is traded or cancelled later."""
    rng = random.Random(5)
    found: list[dict[str, Any]] = []
    for number in range(3_000):
        side = rng.choice(["bids", "asks"])
        share, middle = rng.choice([("ACME", 1_000), ("GLOBEX", 4_000)])
        cents = middle + (-1 if side == "bids" else 1) * rng.randrange(1, 12)
        order = {"ts": 1_000 * number, "what": "order", "share": share, "side": side, "cents": cents}
        quantity = rng.randrange(1, 500)
        found.append({**order, "quantity": quantity})
        left = quantity
        while left and rng.random() < 0.75:
            part = left if rng.random() < 0.5 else rng.randrange(1, left + 1)
            what = rng.choice(["trade", "cancel"])
            found.append({**order, "ts": 1_000 * number + 60_000, "what": what, "quantity": part})
            left -= part
    return sorted(found, key=lambda event: event["ts"])


def expected(found: list[dict[str, Any]]) -> dict[str, tuple[dict[int, int], dict[int, int], list[int]]]:
    """The book of each share, as a program keeps it that reads one event after the other."""
    books: dict[str, tuple[Counter[int], Counter[int], list[int]]] = {}
    for event in found:
        bids, asks, trades = books.setdefault(event["share"], (Counter(), Counter(), []))
        side = bids if event["side"] == "bids" else asks
        side[event["cents"]] += event["quantity"] if event["what"] == "order" else -event["quantity"]
        if event["what"] == "trade":
            trades.append(event["quantity"])
    return {
        share: (left(bids), left(asks), sorted(trades, reverse=True)[:BEST])
        for share, (bids, asks, trades) in books.items()
    }


def left(side: Any) -> dict[int, int]:
    """The prices at which something is left."""
    pairs = side.items() if isinstance(side, dict) else side
    return {int(cents): int(quantity) for cents, quantity in pairs if quantity}


def main() -> None:
    found = events()
    with tempfile.TemporaryDirectory() as folder:
        pipeline = Pipeline(
            source=MemorySource(found, timestamp="ts"),
            task=Books(),
            checkpoint=str(Path(folder) / "checkpoint"),
            step_rows=250,
        )
        pipeline.run(engine="embedded")
        books = {row["share"]: row for row in pipeline.state().to_pylist()}
    for share, book in sorted(books.items()):
        bids, asks = left(book["bids"]), left(book["asks"])
        best = ", ".join(f"{bids[cents]} at {cents}" for cents in sorted(bids, reverse=True)[:BEST])
        print(f"{share}: bid {best}")
        best = ", ".join(f"{asks[cents]} at {cents}" for cents in sorted(asks)[:BEST])
        print(f"{share}: ask {best}; largest trades {', '.join(map(str, book['largest']))}")
    kept = {share: (left(book["bids"]), left(book["asks"]), book["largest"]) for share, book in books.items()}
    if kept != expected(found):
        raise SystemExit("DIFFERENT from a plain computation")
    print(f"{len(found)} events, and both books are what a plain computation gives")


if __name__ == "__main__":
    main()
