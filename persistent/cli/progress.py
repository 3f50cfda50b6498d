"""Progress of a long command: a line that changes in place on a terminal, and nothing elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from persistent.clock import monotonic_s


@contextmanager
def one_line(stream: TextIO) -> Iterator[Callable[[str], None]]:
    """Show a line that replaces the last one; show nothing if ``stream`` is not a terminal."""
    if not stream.isatty():
        yield lambda text: None
        return
    from rich.console import Console
    from rich.status import Status

    with Status("", console=Console(file=stream, markup=False), spinner="line") as status:
        yield status.update


@contextmanager
def working(stream: TextIO, what: str, amount: Callable[[int], str]) -> Iterator[Callable[[int, int], None]]:
    """Show the progress of a long operation on a terminal; yields a callback for the done and total amounts."""
    began_s = monotonic_s()
    with one_line(stream) as show:
        show(what)

        def on_progress(done: int, total: int) -> None:
            rate = int(done / max(monotonic_s() - began_s, 1e-3))
            share = f" {100 * done // total} %" if total else ""
            show(f"{what}: {amount(done)} of {amount(total)}{share}, {amount(rate)}/s")

        yield on_progress
