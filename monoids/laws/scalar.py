"""The scalar laws are functions of a monoid and some of its elements that return the two sides of an equation.

The names of their arguments say what is drawn for them: see ``examples``.
"""

from __future__ import annotations

import json
from functools import reduce
from typing import Any

from monoids.laws.equality import exact
from monoids.laws.terms import fresh
from monoids.monoid import Group, Monoid

Sides = tuple[Any, Any]
M = Monoid[Any]

_DIGITS = 100
"""Of a sum of decimals: more than any has."""

NOTHING: Sides = (None, None)
"""Both sides of a law that does not apply to the drawn values."""


def totality(monoid: M, elements: list[Any]) -> Sides:
    """raised by lift, combine, inverse, present == nothing"""
    reduce(monoid.combine, elements)
    # Of thousands of elements most are the same few objects.
    for element in {id(element): element for element in elements}.values():
        monoid.combine(fresh(monoid.identity), element)
        if presentable(monoid, element):
            monoid.present(element)
        if isinstance(monoid, Group):
            monoid.inverse(element)
    return NOTHING


def no_mutation(monoid: M, a: Any, b: Any) -> Sides:
    """a, b, identity before == after combine, fold, encode, inverse"""
    nothing, shared = fresh(monoid.identity), fresh(monoid.identity)
    before = fresh([a, b, nothing])
    monoid.combine(a, b)
    monoid.combine(nothing, a)
    monoid.fold([a, b])
    monoid.encode(a)
    if isinstance(monoid, Group):
        monoid.inverse(a)
    return before, [a, b, nothing if exact(shared, monoid.identity) else fresh(monoid.identity)]


def pure_lift(monoid: M, xs: list[Any]) -> Sides:
    """xs, lift of xs == xs before, lift of xs again"""
    before = fresh(xs)
    lifted = [monoid.lift(x) for x in xs]
    return (xs, lifted), (before, [monoid.lift(fresh(x)) for x in before])


def pure_present(monoid: M, a: Any) -> Sides:
    """a, present(a) again == a before, present(a)"""
    if not presentable(monoid, a):
        return NOTHING
    before = fresh(a)
    presented = monoid.present(a)
    return (a, monoid.present(a)), (before, presented)


def left_identity(monoid: M, a: Any) -> Sides:
    """combine(identity, a) == a"""
    return monoid.combine(monoid.identity, a), a


def right_identity(monoid: M, a: Any) -> Sides:
    """combine(a, identity) == a"""
    return monoid.combine(a, monoid.identity), a


def associativity(monoid: M, a: Any, b: Any, c: Any) -> Sides:
    """combine(combine(a, b), c) == combine(a, combine(b, c))"""
    return monoid.combine(monoid.combine(a, b), c), monoid.combine(a, monoid.combine(b, c))


def commutativity(monoid: M, a: Any, b: Any) -> Sides:
    """combine(a, b) == combine(b, a)"""
    return monoid.combine(a, b), monoid.combine(b, a)


def idempotence(monoid: M, a: Any) -> Sides:
    """combine(a, a) == a"""
    return monoid.combine(a, a), a


def inverse(monoid: Group[Any], a: Any) -> Sides:
    """combine(a, inverse(a)), combine(inverse(a), a) == identity, identity"""
    there, back = monoid.combine(a, monoid.inverse(a)), monoid.combine(monoid.inverse(a), a)
    return [there, back], [monoid.identity, monoid.identity]


def reached_associativity(monoid: M, p: Any, q: Any, r: Any) -> Sides:
    """combine(combine(p, q), r) == combine(p, combine(q, r))"""
    return associativity(monoid, p, q, r)


def any_tree(monoid: M, elements: list[Any], cuts: list[int]) -> Sides:
    """the fold as any tree == the fold from the left"""
    return _tree(monoid, elements, cuts), reduce(monoid.combine, elements)


def fold_is_combine(monoid: M, elements: list[Any]) -> Sides:
    """fold(elements) == the fold from the left"""
    return monoid.fold(elements), reduce(monoid.combine, elements)


def empty_fold(monoid: M) -> Sides:
    """fold([]) == identity"""
    return monoid.fold([]), monoid.identity


def serializer_round_trip(monoid: M, a: Any) -> Sides:
    """decode(encode(a)), of identity == a, identity"""
    return [_stored(monoid, a), _stored(monoid, monoid.identity)], [a, monoid.identity]


def serializer_homomorphism(monoid: M, a: Any, b: Any) -> Sides:
    """combine of stored a, b == stored combine(a, b)"""
    return monoid.combine(_stored(monoid, a), _stored(monoid, b)), _stored(monoid, monoid.combine(a, b))


def serializer_presents(monoid: M, a: Any) -> Sides:
    """present(stored a) == present(a)"""
    stored = _stored(monoid, a)
    if not presentable(monoid, a) or not exact(stored, a):
        return NOTHING
    return monoid.present(stored), monoid.present(a)


def canonical_bytes(monoid: M, a: Any, b: Any, c: Any) -> Sides:
    """encode(a + b + c) == encode(the same in another order)"""
    left, right = associativity(monoid, a, b, c)
    if monoid.commutative:
        right = monoid.combine(monoid.combine(b, c), a)
    return (monoid.encode(left), monoid.encode(right)) if exact(left, right) else NOTHING


def damaged_bytes(monoid: M, a: Any, cuts: list[int]) -> Sides:
    """encode(decode(damaged)), damaged if ValueError == damaged"""
    data = monoid.encode(a)
    shorter = [data[: len(data) * cut // 8] for cut in (*cuts, 0)]
    damaged = [*shorter, data + b"\x00", data + data, b"\xff" + data[1:]]
    return [_decoded(monoid, bytes_) for bytes_ in damaged], damaged


def fingerprint(monoid: M) -> Sides:
    """fingerprint() through JSON, has floats == fingerprint(), False"""
    document = monoid.fingerprint()
    return (json.loads(json.dumps(document, allow_nan=False)), _has_floats(document)), (monoid.fingerprint(), False)


def representation(monoid: M) -> Sides:
    """repr, shows an address, its lines == repr again, False, 1"""
    text = repr(monoid)
    return (text, " at 0x" in text, len(text.splitlines())), (repr(monoid), False, 1)


def presentable(monoid: M, element: Any) -> bool:
    """Whether an element can be presented. Elements out of range may raise if the monoid widens."""
    if not monoid.widens:
        return True
    try:
        monoid.present(element)
    except OverflowError:
        return False
    return True


# Internals.


def _tree(monoid: M, elements: list[Any], cuts: list[int]) -> Any:
    """The fold that combines the two neighbours at each cut, then the rest from the right."""
    level = list(elements)
    for cut in cuts:
        if len(level) > 1:
            at = cut % (len(level) - 1)
            level[at : at + 2] = [monoid.combine(level[at], level[at + 1])]
    return reduce(lambda right, left: monoid.combine(left, right), reversed(level))


def _stored(monoid: M, element: Any) -> Any:
    return monoid.decode(monoid.encode(element))


def _decoded(monoid: M, data: bytes) -> bytes:
    """What damaged bytes decode to, encoded again; the damaged bytes themselves if refused, as they should be."""
    try:
        element = monoid.decode(data)
    except ValueError:
        return data
    return monoid.encode(element)


def _has_floats(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_floats, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(_has_floats, value))
    return isinstance(value, float)
