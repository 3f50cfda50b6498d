"""The state of the model is what a job's store holds and where each actor stands: hashable values, names for files.

A file's name carries what a real one contains (the messages it sums, or publishes), so that laws can be read off names.
"""

from __future__ import annotations

from typing import NamedTuple

Messages = tuple[int, ...]


class File(NamedTuple):
    """``kind``: "r" a run, "i" an index run, "o" a staged output. ``author``: the incarnation that wrote it, as its
    ``number``-th file of that kind for that id."""

    kind: str
    epoch: int
    id: int
    author: int
    messages: Messages
    number: int = 0


class Output(NamedTuple):
    """A staged file with the id of the checkpoint that staged it: the name it is published under."""

    id: int
    file: File


class Plan(NamedTuple):
    base: int
    number: int
    author: int
    start: int
    end: int
    listed: File | None


class Manifest(NamedTuple):
    """``bases``: the kept ids that have a state of their own. ``retracts``: publishing the manifest also takes back
    outputs published under ids above this one and below its own; -1: none. ``target``: the target of a rollback.
    ``plan``: the plan of the step; the real manifest does not record it."""

    id: int
    kind: str
    base: int
    oldest: int
    epoch: int
    author: int
    parent: tuple[int, int]
    position: int
    bases: tuple[int, ...] = (0,)
    runs: tuple[File, ...] = ()
    index: tuple[File, ...] = ()
    outputs: tuple[Output, ...] = ()
    pins: tuple[int, ...] = ()
    fences: int = 0
    replan: int = 0
    retracts: int = -1
    target: int = -1
    plan: Plan | None = None

    def names(self) -> set[File]:
        """The files that the manifest needs."""
        return {*self.runs, *self.index}

    def keeps(self, id: int) -> bool:
        """Whether a manifest must be kept, as in ``persistent.checkpoint.manifest``."""
        return id in self.bases or id + 1 in self.bases or id == self.parent[0] or id >= self.id


Key = tuple[str, int, int]
"""("m", id, 0) or ("p", base, number): the name of a put-if-absent."""


class Store(NamedTuple):
    """``chain``: every manifest that was the first under its id, including deleted ones; ``here``: the ids of those
    that exist. ``strays``: manifests put under an id that had become free. ``planned``: every plan that was the
    first of its name. ``flight``: requests that have not taken effect yet.

    In the sink: ``visible`` files, ``lists`` of the ids that were published, ``marks`` on ids (from the first up to the
    second) that were taken back, ``taken``: files that a reader has found by a list, and taken away."""

    chain: tuple[Manifest, ...]
    here: frozenset[int]
    strays: tuple[Manifest, ...] = ()
    plans: frozenset[Plan] = frozenset()
    planned: frozenset[Plan] = frozenset()
    files: frozenset[File] = frozenset()
    visible: frozenset[Output] = frozenset()
    lists: frozenset[int] = frozenset()
    marks: frozenset[tuple[int, int]] = frozenset()
    taken: frozenset[Output] = frozenset()
    flight: frozenset[Manifest | Plan] = frozenset()

    def is_marked(self, id: int) -> bool:
        """Whether the outputs published under an id were taken back."""
        return any(first <= id < stop for first, stop in self.marks)


class Actor(NamedTuple):
    """A process: what it does next (``at``) and all that it remembers.

    ``kind``: "run", "compact", "rollback", "pin" or "collect". ``entry``: the newest manifest it knows of. ``put``:
    whether its plan is in the log. ``kept``: the manifests that it considers kept; ``dropped``: those just dropped.
    ``made``: files of the current step. ``showing``: the index of the next output to publish.
    """

    kind: str
    incarnation: int
    at: str
    entry: Manifest | None = None
    plan: Plan | None = None
    put: bool = False
    kept: tuple[Manifest, ...] = ()
    made: tuple[File, ...] = ()
    want: Manifest | Plan | None = None
    victims: frozenset[File] = frozenset()
    dropped: tuple[Manifest, ...] = ()
    target: int = -1
    showing: int = 0


class Budget(NamedTuple):
    """The events that are still allowed. ``starts``: for each kind of actor, in the order of ``Bounds.starts``."""

    starts: tuple[tuple[str, int], ...]
    crashes: int
    unknowns: int
    born: int = 0


class State(NamedTuple):
    """``actors`` are sorted: the order of two drivers makes no difference."""

    store: Store
    actors: tuple[Actor, ...]
    budget: Budget


class Bounds(NamedTuple):
    """How far the search goes. ``ids``: the highest manifest id. ``alive``: actors at once. ``unknowns``: answers lost
    or requests delayed. ``kept``: how many checkpoints are kept (the real number is ten). ``replan``: the number of
    fences over one plan after which another is made, which any driver can make before; 0: never. ``widths``: the
    possible numbers of messages in a plan. ``sweeps``: whether a driver can look for garbage in every step, and not
    only when it takes over. ``copies``: a rename in the sink is three operations. ``reads``: how many published files a
    reader takes away."""

    messages: int
    ids: int
    alive: int
    starts: tuple[tuple[str, int], ...]
    crashes: int = 0
    unknowns: int = 0
    kept: int = 1
    replan: int = 0
    widths: tuple[int, ...] = (1,)
    sweeps: bool = False
    copies: bool = False
    reads: int = 0


class Broken(Exception):
    """A law of the protocol does not hold."""


FIRST = Manifest(0, "checkpoint", 0, 0, 0, -1, (-1, -1), 0)


def first_state(bounds: Bounds) -> State:
    """An empty checkpoint, without actors."""
    return State(Store((FIRST,), frozenset({0})), (), Budget(bounds.starts, bounds.crashes, bounds.unknowns))


def manifest_at(store: Store, id: int) -> Manifest | None:
    """The manifest under an id, or None."""
    if id in store.here:
        return store.chain[id]
    return next((stray for stray in store.strays if stray.id == id), None)


def newest(store: Store) -> Manifest:
    """The manifest of the highest id."""
    found = manifest_at(store, max((*store.here, *(stray.id for stray in store.strays))))
    assert found is not None
    return found


def plan_at(store: Store, base: int, number: int) -> Plan | None:
    """The plan in the log for the step after ``base``."""
    return next((plan for plan in store.plans if plan.base == base and plan.number == number), None)


def found_at(store: Store, want: Manifest | Plan) -> Manifest | Plan | None:
    """The document under the name of ``want``, or None."""
    if isinstance(want, Manifest):
        return manifest_at(store, want.id)
    return plan_at(store, want.base, want.number)
