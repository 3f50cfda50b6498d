"""A place is one manifest of a checkpoint, from which a state can be read."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeVar

from persistent.checkpoint.copies import checkpoint_at, newest_of, read_while_running
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.successor import Entry
from persistent.driver.commit import first_manifest
from persistent.driver.same_job import check_same_node, chosen_node
from persistent.errors import UnknownCheckpoint
from persistent.pipeline import Pipeline
from persistent.storage.protocol import Storage
from persistent.worker.job import Node

T = TypeVar("T")


@dataclass(frozen=True)
class Place:
    """A manifest, and the storage with its files. ``at``: the requested checkpoint; None: the newest."""

    storage: Storage
    entry: Entry
    at: int | None = None

    @property
    def manifest(self) -> Manifest:
        return self.entry.manifest

    def __str__(self) -> str:
        return f"{self.storage.url}, checkpoint {self.manifest.id}"


def place(storage: Storage, at: int | None = None) -> Place:
    """Manifest ``at`` of a checkpoint, by default the newest. Raises NoCheckpoint; UnknownCheckpoint if it is not kept;
    CorruptCheckpoint if it cannot be read."""
    return Place(storage, checkpoint_at(Log(storage), at), at)


def read_place(here: Place, read: Callable[[Place], T]) -> T:
    """The result of ``read``, while the job may run. If a file of the place is collected meanwhile, the requested
    checkpoint (by default the newest) is looked up again, and read."""
    entries = [here.entry]

    def find() -> Entry:
        return entries.pop() if entries else checkpoint_at(log, here.at)

    log = Log(here.storage)
    return read_while_running(log, find, lambda entry: read(replace(here, entry=entry)))


def kept_places(storage: Storage) -> list[Place]:
    """The kept checkpoints and their fences, oldest first, without those that a driver collects meanwhile."""
    log = Log(storage)
    newest = newest_of(log)
    places = []
    for id in log.ids():
        if id < newest.manifest.id and newest.manifest.keeps(id):
            with suppress(UnknownCheckpoint):
                places.append(place(storage, id))
    return [*places, Place(storage, newest)]


def node_of(pipeline: Pipeline, name: str | None = None) -> Node:
    """A node of the pipeline: of the state of that name, or of the only one. InvalidPipeline if there are several, or
    none of that name."""
    return chosen_node(pipeline.job(), name)


def checked_node(pipeline: Pipeline, at: Place, name: str | None = None) -> Node:
    """A node of a pipeline, to read its state with. Raises OtherJob or FingerprintChanged if the state is another
    job's; UnknownCheckpoint if it was added since."""
    node = node_of(pipeline, name)
    check_same_node(at.manifest, first_manifest(pipeline.job(), ""), node.id, at.storage.url)
    return replace(node.in_zone(at.manifest.nodes[node.id].zone), storage=at.storage)
