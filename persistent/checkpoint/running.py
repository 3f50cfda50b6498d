"""A mark shows that a driver runs. It is for people and commands; no guarantee relies on it.

``r/e<epoch>-<nonce>.json`` holds the process, its host, and the start of the driver. A driver puts it after its fence
and deletes it when it ends; its process may live on. A killed driver leaves it behind, and the next driver deletes it.
Two drivers are kept apart by the fence alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from persistent.codec import documents
from persistent.codec.fields import Natural, Part, ShortText, Whole
from persistent.errors import CorruptCheckpoint, StillRunning
from persistent.names import DRIVERS, driver_epoch, driver_name
from persistent.storage.process import Process, this_process
from persistent.storage.protocol import Storage
from persistent.text.figures import utc_text
from persistent.time.clock import wall_ms


class Mark(Part, frozen=True):
    """A driver that runs, or was killed while running."""

    epoch: Natural
    nonce: ShortText
    process: Process
    started_ms: Whole

    @property
    def name(self) -> str:
        """Its file."""
        return driver_name(self.epoch, self.nonce)

    def __str__(self) -> str:
        return f"process {self.process.pid} on {self.process.host}, since {utc_text(self.started_ms)}"

    @property
    def may_run(self) -> bool:
        """False if it is known to have ended: its process on this machine is gone."""
        return self.process.lives is not False

    @property
    def runs(self) -> bool:
        """True if it is known to run: its process is alive, and the mark still exists."""
        return self.process.lives is True


def put_mark(storage: Storage, epoch: int, nonce: str) -> str:
    """Put the mark of this process; returns its name."""
    mark = Mark(epoch, nonce, this_process(), wall_ms())
    storage.put_if_absent(mark.name, documents.write(mark, "the mark of this driver", documents.no_laws))
    return mark.name


def marks(storage: Storage, names: Sequence[str] | None = None) -> Iterator[Mark]:
    """All marks, or those of these names. An unreadable mark is skipped: its driver was killed while putting it."""
    for name in [f"{DRIVERS}/{listed}" for listed in storage.list(DRIVERS)] if names is None else names:
        try:
            mark = documents.read(Mark, storage.read(name), f"{storage.url}/{name}", "a mark", documents.no_laws)
        except (FileNotFoundError, CorruptCheckpoint):
            continue
        if mark.name == name:
            yield mark


def running(storage: Storage, epoch: int) -> list[Mark]:
    """The drivers that may run: those with an unfenced mark."""
    return [mark for mark in marks(storage) if mark.epoch >= epoch and mark.may_run]


def check_none_runs(storage: Storage, epoch: int) -> None:
    """StillRunning if a driver of this epoch or a later one certainly runs; a driver that may have died is ignored."""
    for mark in marks(storage):
        if mark.runs and mark.epoch >= epoch:
            raise StillRunning(
                f"{storage.url}: a driver runs: {mark}. Stop it (SIGTERM ends it at a step's edge); or take over: "
                "with --take-over that driver is fenced and commits nothing more"
            )


def check_not_running(storage: Storage, epoch: int, *, take_over: bool) -> None:
    """StillRunning if a driver of this epoch or a later one may run, unless ``take_over``."""
    for mark in () if take_over else running(storage, epoch):
        raise StillRunning(
            f"{storage.url}: a driver runs: {mark}. Stop it (SIGTERM ends it at a step's edge); or, if it is gone "
            "or is to stop here, take over: with --take-over (take_over=True) that driver is fenced and "
            "commits nothing more"
        )


def sweep_dead_marks(storage: Storage) -> None:
    """Delete the marks of drivers that are known to have ended."""
    for mark in marks(storage):
        if not mark.may_run:
            storage.delete(mark.name)


def fenced_marks(storage: Storage, epoch: int) -> list[str]:
    """The names of the marks of lower epochs, whose drivers are fenced. A driver of a higher epoch has fenced us."""
    epochs = {listed: driver_epoch(listed) for listed in storage.list(DRIVERS)}
    return [f"{DRIVERS}/{listed}" for listed, of in epochs.items() if of is not None and of < epoch]


def sweep_marks(storage: Storage, epoch: int) -> list[Mark]:
    """Delete the marks of fenced drivers; returns those that may still run."""
    names = fenced_marks(storage, epoch)
    fenced = [mark for mark in marks(storage, names) if mark.may_run]
    for name in names:
        storage.delete(name)
    return fenced
