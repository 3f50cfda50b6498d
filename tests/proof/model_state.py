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
    """``bases``: the ids that hold a state of their own, and are kept. ``retracts``: publishing it also takes back what
    was published under ids above this one and below its own; -1: nothing. ``target``: what a rollback went back to.
    ``plan``: what the step ran; the real one does not say."""

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
        """The files that it needs."""
        return {*self.runs, *self.index}

    def keeps(self, id: int) -> bool:
        """Whether a manifest is to be kept, as ``persistent.checkpoint.manifest`` has it."""
        return id in self.bases or id + 1 in self.bases or id == self.parent[0] or id >= self.id


Key = tuple[str, int, int]
"""("m", id, 0) or ("p", base, number): what is put if absent."""


class Store(NamedTuple):
    """``chain``: every manifest that was the first under its id, also those deleted since; ``here``: the ids of those
    still there. ``strays``: manifests put under an id that had become free. ``planned``: every plan that was the first
    of its name. ``flight``: requests whose effect is still to come.

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
        """Whether what is published under an id was taken back."""
        return any(first <= id < stop for first, stop in self.marks)


class Actor(NamedTuple):
    """A process: what it does next (``at``) and all that it remembers.

    ``kind``: "run", "compact", "rollback", "pin" or "collect". ``entry``: the newest manifest it knows of. ``put``:
    whether its plan is in the log. ``kept``: the manifests it holds for kept; ``dropped``: those it has just given up.
    ``made``: files of the step under way. ``showing``: which of the outputs it is about to publish.
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
    """What may still happen. ``starts``: of each kind of actor, in the order of ``Bounds.starts``."""

    starts: tuple[tuple[str, int], ...]
    crashes: int
    unknowns: int
    born: int = 0


class State(NamedTuple):
    """``actors`` are sorted: which of two drivers is called the first makes no difference."""

    store: Store
    actors: tuple[Actor, ...]
    budget: Budget


class Bounds(NamedTuple):
    """How far the search goes. ``ids``: the highest manifest id. ``alive``: actors at once. ``unknowns``: answers lost
    or requests delayed. ``kept``: how many checkpoints are kept (the real number is ten). ``replan``: after so many
    fences over one plan another is made; 0: never. ``widths``: how many messages a plan may take. ``sweeps``: whether
    a driver may look for garbage in every step, and not only when it takes over. ``copies``: a rename in the sink is
    three operations. ``reads``: how many published files a reader takes away."""

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
    """An empty checkpoint, and nobody at work."""
    return State(Store((FIRST,), frozenset({0})), (), Budget(bounds.starts, bounds.crashes, bounds.unknowns))


def manifest_at(store: Store, id: int) -> Manifest | None:
    """What lies under an id."""
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
    """What lies under the name that ``want`` is to have."""
    if isinstance(want, Manifest):
        return manifest_at(store, want.id)
    return plan_at(store, want.base, want.number)
