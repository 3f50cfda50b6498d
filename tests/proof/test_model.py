"""The model check can fail: it visits what there is to visit, and finds what is broken."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from persistent.driver import recover, step
from persistent.driver.step import EFFECTS, TAKING_OVER
from tests.proof import model, model_actors, model_moves
from tests.proof.model_mutants import GUARDED, HOMES, LARGE, RULES, SOUND, WORLDS
from tests.proof.model_search import Space, explore, replay
from tests.proof.model_state import FIRST, Actor, Bounds

SMALL = ("two drivers", "lost answers", "rollback", "copies", "readers", "collection")
QUICK = (
    "fence",
    "epoch",
    "nonce",
    "check",
    "own plan",
    "plan put",
    "staging id",
    "pending plan",
    "oldest",
    "names",
    "unpublished",
    "mark",
    "readers",
    "list again",
    "drop last",
)


@pytest.mark.parametrize("name", SMALL)
def test_every_law_holds_in_every_state(name: str) -> None:
    """I5, I6: an order of operations in which two drivers lose or double something would go unseen by any sweep."""
    found = explore(Space(WORLDS[name]), 200_000)
    assert found.fault is None, found.trace
    assert found.complete and found.states > 5_000


@pytest.mark.parametrize("rule", QUICK)
def test_a_rule_that_is_removed_is_missed(rule: str) -> None:
    """Laws that hold without the rule would prove nothing of it."""
    kill = model.hunt(frozenset({rule}))
    assert kill is not None
    again = replay(Space(WORLDS[kill.world], frozenset({rule})), kill.found.trace)
    assert again.fault == kill.found.fault


@pytest.mark.parametrize("rule", sorted(GUARDED))
def test_two_rules_that_guard_each_other_are_missed_together(rule: str) -> None:
    """One of them alone may be taken for superfluous, and dropped with the other."""
    for other in GUARDED[rule]:
        assert model.hunt(frozenset({rule, other})) is not None


def test_the_effects_happen_in_the_order_of_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of another order proves nothing of ours: each is played through, and then with two of them swapped."""

    def told(*kinds: str) -> list[str]:
        """What one driver does after another has fenced it, as the model has it."""
        entry = FIRST._replace(id=3, kind="fence", author=1, retracts=0, parent=(2, 0))
        actor = Actor("run", 1, "check", entry=entry)
        found = []
        for effect in kinds:
            actor = model_moves.first_move_after(actor, effect, frozenset())
            found.append("collect" if actor.at == "pending" else actor.at)
        return found

    order = [effect.value for effect in TAKING_OVER]
    assert told(*order[1:-1]) == order[2:]
    assert (
        (model_moves.TAKING_OVER, model_moves.EFFECTS) == (recover.TAKING_OVER, step.EFFECTS) == (TAKING_OVER, EFFECTS)
    )
    swapped = (*TAKING_OVER[:2], *reversed(TAKING_OVER[2:]))
    monkeypatch.setattr(model_moves, "TAKING_OVER", swapped)
    assert told("check") == ["collect"]
    assert {effect.value for effect in TAKING_OVER[2:]} | {"pending"} <= set(model_actors._MOVES) | {"fence"}


def test_every_rule_is_named_in_the_actors() -> None:
    """A rule that nothing removes would be counted as found by chance, or never."""
    source = "".join(path.read_text() for path in Path(model.__file__).parent.glob("model_*.py"))
    ways = ('"{}" in without', '"{}" not in without')
    assert [rule for rule in RULES if not any(way.format(rule) in source for way in ways)] == []
    assert set(HOMES) | set(GUARDED) | set(itertools.chain(*SOUND)) <= set(RULES)
    assert set(HOMES.values()) <= set(WORLDS) and not set(WORLDS) & set(LARGE)


def test_a_share_of_the_pairs_is_drawn_by_the_seed() -> None:
    """A slice that were the same every day would leave the others unseen."""
    first, second = (set(model.pairs(seed, 0.1)) for seed in (0, 1))
    both = {pair for pair in model.pairs(0, 1.0) if len(pair) == 2}
    assert {len(one) for one in first} == {1, 2}
    assert not {pair for pair in first & second if len(pair) == 2}
    assert {pair for seed in range(10) for pair in model.pairs(seed, 0.1) if len(pair) == 2} == both


def test_the_page_has_the_lists() -> None:
    """A page that says something else than its command is worse than none."""
    page = model.PAGE.read_text()
    for number, says in enumerate(RULES.values(), 1):
        assert f"\n{number}. {says}: " in page, says
    assert "NOT FOUND" not in page
    for name in (*WORLDS, *LARGE):
        assert f"\n- {name} (" in page


def test_a_search_that_is_cut_short_says_so() -> None:
    """A search that ran out of time must not count as one that came to its end."""
    assert not explore(Space(WORLDS["two drivers"]), 100).complete
    assert not explore(Space(WORLDS["two drivers"]), 10**6, until_s=0.0).complete
    assert explore(Space(Bounds(1, 3, 1, (("run", 1),))), 10**6).complete
