"""An actor is a process that works on the checkpoint, one operation of the store after the other.

``moves`` are all the possible next actions of an actor. They mirror ``persistent.driver.step_effects``,
``persistent.driver.publish``, ``persistent.checkpoint.log`` and ``persistent.operations``. ``without``: rules that are
removed; see ``model_mutants``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.proof.model_commands import compact, done, roll_back
from tests.proof.model_entering import fence, fence_lost, fence_won, look, look_for_plan, put, read_back
from tests.proof.model_garbage import collect, delete, delete_dropped, pending
from tests.proof.model_moves import Move, Without
from tests.proof.model_state import Actor, Bounds, Store
from tests.proof.model_steps import (
    check,
    commit_step,
    drop,
    make_plan,
    map_step,
    mark,
    next_step,
    publish,
    publish_early,
    put_copy,
    put_list,
    show,
    sweep,
    take_back,
)


def moves(store: Store, actor: Actor, bounds: Bounds, without: Without) -> Iterator[Move]:
    """The possible next moves of the actor. Broken if one violates a law."""
    yield from _MOVES[actor.at](store, actor, bounds, without)


_PUBLISHING: dict[str, Callable[[Store, Actor, Bounds, Without], Iterator[Move]]] = {
    "": publish,
    ": show": show,
    ": get": show,
    ": put": put_copy,
    ": drop": drop,
    ": list": put_list,
}

_MOVES: dict[str, Callable[[Store, Actor, Bounds, Without], Iterator[Move]]] = {
    "look": look,
    "look for plan": look_for_plan,
    "fence": fence,
    "put fence": put,
    "read back fence": read_back,
    "fence won": fence_won,
    "fence lost": fence_lost,
    "mark": mark,
    "sweep": sweep,
    "take back": take_back,
    **{f"{way}{part}": move for way in ("publish", "publish only") for part, move in _PUBLISHING.items()},
    "pending": pending,
    "collect": collect,
    "delete": delete,
    "delete dropped": delete_dropped,
    "next": next_step,
    "plan": make_plan,
    "put plan": put,
    "read back plan": read_back,
    "map": map_step,
    "publish early": publish_early,
    "commit": commit_step,
    "put commit": put,
    "read back commit": read_back,
    "check": check,
    "compact": compact,
    "roll back": roll_back,
    "done": done,
}
