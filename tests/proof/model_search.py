"""A search visits the states that can be reached from the first, each once, nearest first.

The moves of an actor depend only on the store and the actor: they are computed once for each such pair.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.proof.model_actors import moves
from tests.proof.model_entering import land
from tests.proof.model_laws import check_store
from tests.proof.model_moves import Without
from tests.proof.model_readers import read_away
from tests.proof.model_state import Actor, Bounds, Broken, State, Store, first_state

Node = tuple[int, tuple[int, ...], tuple[tuple[int, ...], int, int, int]]
"""A state, written with the numbers of its store and actors; then the starts, crashes and unknowns left, and births."""


@dataclass(frozen=True)
class Found:
    """The result of a search. ``fault``: the broken law, or None; ``trace``: the history that broke it.
    ``complete``: every state within the bounds was visited."""

    states: int
    complete: bool
    fault: str | None = None
    trace: tuple[str, ...] = ()


@dataclass
class Space:
    """The states within some bounds, with some rules removed."""

    bounds: Bounds
    without: Without = frozenset()
    _stores: list[Store] = field(default_factory=list)
    _store_numbers: dict[Store, int] = field(default_factory=dict)
    _actors: list[Actor] = field(default_factory=list)
    _actor_numbers: dict[Actor, int] = field(default_factory=dict)
    _moves: dict[tuple[int, int], list[tuple[str, int, int, int]] | str] = field(default_factory=dict)
    _landings: dict[int, list[tuple[str, int]] | str] = field(default_factory=dict)

    def first(self) -> Node:
        """The state in which nothing has happened."""
        state: State = first_state(self.bounds)
        left = tuple(count for _, count in state.budget.starts)
        return self._store(state.store), (), (left, state.budget.crashes, state.budget.unknowns, 0)

    def after(self, node: Node) -> Iterator[tuple[str, Node]]:
        """The states that can follow, each with its event. Broken if one violates a law."""
        store, actors, (starts, crashes, unknowns, born) = node
        for place, number in enumerate(actors):
            others = actors[:place] + actors[place + 1 :]
            actor, born_after = self._actors[number], born
            if actor.incarnation < 0 and actor.at == "fence":
                number, born_after = self._actor(actor._replace(incarnation=born)), born + 1
            name = f"{actor.kind} {self._actors[number].incarnation}"
            for label, next_store, next_actor, cost in self._moves_of(store, number, name):
                if cost <= unknowns:
                    rest = others if next_actor < 0 else self._sorted((*others, next_actor))
                    yield f"{name}: {label}", (next_store, rest, (starts, crashes, unknowns - cost, born_after))
            if crashes and actor.incarnation >= 0:
                yield f"{name} is killed", (store, others, (starts, crashes - 1, unknowns, born))
        if len(actors) < self.bounds.alive:
            for place, left in enumerate(starts):
                if left:
                    kind = self.bounds.starts[place][0]
                    new = self._sorted((*actors, self._actor(Actor(kind, -1, "look"))))
                    rest_starts = (*starts[:place], left - 1, *starts[place + 1 :])
                    yield f"a {kind} starts", (store, new, (rest_starts, crashes, unknowns, born))
        for label, next_store in self._landings_of(store):
            yield label, (next_store, actors, (starts, crashes, unknowns, born))

    def _moves_of(self, store: int, number: int, name: str) -> list[tuple[str, int, int, int]]:
        known = self._moves.get((store, number))
        if known is None:
            known = self._worked_out(store, number)
            self._moves[store, number] = known
        if isinstance(known, str):
            raise Broken(f"{name}: {known}")
        return known

    def _worked_out(self, store: int, number: int) -> list[tuple[str, int, int, int]] | str:
        found = []
        try:
            for label, after, actor, cost in moves(
                self._stores[store], self._actors[number], self.bounds, self.without
            ):
                found.append((label, self._store(after), -1 if actor is None else self._actor(actor), cost))
        except Broken as broken:
            return f"{self._actors[number].at}: {broken}"
        return found

    def _landings_of(self, store: int) -> list[tuple[str, int]]:
        known = self._landings.get(store)
        if known is None:
            try:
                here = self._stores[store]
                landed = itertools.chain(land(here, self.bounds, self.without), read_away(here, self.bounds))
                known = [(label, self._store(after)) for label, after in landed]
            except Broken as broken:
                known = str(broken)
            self._landings[store] = known
        if isinstance(known, str):
            raise Broken(known)
        return known

    def _store(self, store: Store) -> int:
        number = self._store_numbers.get(store)
        if number is None:
            check_store(store, self.bounds, self.without)
            number = len(self._stores)
            self._stores.append(store)
            self._store_numbers[store] = number
        return number

    def _actor(self, actor: Actor) -> int:
        number = self._actor_numbers.get(actor)
        if number is None:
            number = len(self._actors)
            self._actors.append(actor)
            self._actor_numbers[actor] = number
        return number

    def _sorted(self, actors: tuple[int, ...]) -> tuple[int, ...]:
        """The order of two actors makes no difference."""
        return tuple(sorted(actors))


def explore(space: Space, states_max: int, until_s: float = float("inf")) -> Found:
    """Visit every state, or until a law is broken or ``states_max`` states were visited."""
    first = space.first()
    came: dict[Node, tuple[Node, str] | None] = {first: None}
    level = [first]
    while level:
        following = []
        for node in level:
            try:
                for label, after in space.after(node):
                    if after not in came:
                        came[after] = (node, label)
                        following.append(after)
            except Broken as broken:
                return Found(len(came), False, str(broken), _trace(came, node))
            if len(came) >= states_max:
                return Found(len(came), False)
        if time.monotonic() > until_s:
            return Found(len(came), False)
        level = following
    return Found(len(came), True)


def wander(space: Space, walks: int, seed: int, length: int = 120, until_s: float = float("inf")) -> Found:
    """Take random walks until a law is broken."""
    drawn, steps = random.Random(seed), 0
    for _ in range(walks):
        node, trace = space.first(), []
        for _ in range(length):
            steps += 1
            try:
                choices = list(space.after(node))
            except Broken as broken:
                return Found(steps, False, str(broken), tuple(trace))
            if not choices:
                break
            label, node = drawn.choice(choices)
            trace.append(label)
        if time.monotonic() > until_s:
            break
    return Found(steps, False)


def replay(space: Space, trace: tuple[str, ...]) -> Found:
    """Replay a history of another space, as far as it is possible in this one."""
    node = space.first()
    for number, wanted in enumerate(trace):
        try:
            node = next((after for label, after in space.after(node) if label == wanted), None)  # type: ignore[assignment]
            if node is None:
                return Found(number, False)
        except Broken as broken:
            return Found(number, False, str(broken), trace[:number])
    try:
        for _ in space.after(node):
            pass
    except Broken as broken:
        return Found(len(trace), False, str(broken), trace)
    return Found(len(trace), False)


def _trace(came: dict[Node, tuple[Node, str] | None], node: Node) -> tuple[str, ...]:
    trace = []
    while (step := came[node]) is not None:
        node, label = step
        trace.append(label)
    return tuple(reversed(trace))
