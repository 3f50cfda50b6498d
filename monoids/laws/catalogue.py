"""The catalogue is the table of all laws: name, function, the monoids each applies to, and how to repair each."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from monoids.laws import columnar, lifting, scalar
from monoids.laws.scalar import Sides
from monoids.monoid import Group, Monoid


@dataclass(frozen=True)
class Law:
    """An equation that holds for every monoid it applies to.

    ``function`` returns the two sides, from a monoid and its named arguments; its docstring is the ``formula``, the two
    sides in words, joined by " == ". ``applies``: whether it applies to a monoid. ``depth``: how many lists are around
    the elements in the sides, -1 if they hold none. ``exactly``: the sides are the same to the bit even if the monoid
    rounds. ``by_row``: it holds for rows together iff it holds for each alone, so many can be tested at once; ``long``:
    it is tested on thousands of rows. ``wide``: it is also tested on a hundred distinct inputs.

    >>> LAWS[0].name, LAWS[0].arguments
    ('no mutation', ('a', 'b'))
    """

    name: str
    function: Callable[..., Sides]
    applies: Callable[[Monoid[Any]], bool] = lambda monoid: True
    depth: int = 0
    exactly: bool = False
    by_row: bool = False
    long: bool = False
    wide: bool = False
    arguments: tuple[str, ...] = field(init=False)
    formula: str = field(init=False)
    rows: str | None = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "arguments", tuple(inspect.signature(self.function).parameters)[1:])
        object.__setattr__(self, "formula", inspect.getdoc(self.function) or f"{self.name}: left == right")
        rows = next((name for name in self.arguments if name in ("elements", "xs", "column")), None)
        object.__setattr__(self, "rows", rows if self.by_row else None)


def laws_of(monoid: Monoid[Any]) -> tuple[Law, ...]:
    """The laws that apply to a monoid, by the traits it declares.

    >>> from monoids import Max
    >>> [law.name for law in laws_of(Max()) if law.name in ("commutativity", "idempotence", "inverse")]
    ['commutativity', 'idempotence']
    """
    return tuple(law for law in LAWS if law.applies(monoid))


def law_named(name: str) -> Law:
    """The law with that name; ValueError, listing all, if there is none."""
    for law in LAWS:
        if law.name == name:
            return law
    raise ValueError(f"there is no law {name!r}; the laws are: {', '.join(law.name for law in LAWS)}")


def _commutes(monoid: Monoid[Any]) -> bool:
    return monoid.commutative


def _has_own_encoding(monoid: Monoid[Any]) -> bool:
    """Whether its encoding is canonical: pickles, from a user's serializer, depend on more than the value."""
    return monoid.serializer is None


def _has_canonical_bytes(monoid: Monoid[Any]) -> bool:
    return monoid.exact and _has_own_encoding(monoid)


def _is_idempotent(monoid: Monoid[Any]) -> bool:
    return monoid.idempotent


def _is_group(monoid: Monoid[Any]) -> bool:
    return isinstance(monoid, Group)


def _stores_columns(monoid: Monoid[Any]) -> bool:
    """Whether it defines Arrow columns of its own, instead of one of encoded bytes."""
    return type(monoid).to_arrow is not Monoid.to_arrow or type(monoid).from_arrow is not Monoid.from_arrow


def _lifts_columns(monoid: Monoid[Any]) -> bool:
    return type(monoid).lift_columns is not Monoid.lift_columns


def _combines_columns(monoid: Monoid[Any]) -> bool:
    """False if ``combine_columns`` is derived from ``reduce_sorted``, which has laws of its own."""
    return type(monoid).combine_columns is not Monoid.combine_columns


def _has_columns(monoid: Monoid[Any]) -> bool:
    """Whether it defines columns of its own, instead of one of Python objects."""
    return type(monoid).pack is not Monoid.pack


TOTALITY = Law("totality", scalar.totality, depth=-1, exactly=True)
"""The law that all others presuppose."""

NO_MUTATION = Law("no mutation", scalar.no_mutation, depth=1, exactly=True)
"""Tested first, on copies. A monoid that breaks it is tested on no other law, because its elements would grow."""

LAWS: tuple[Law, ...] = (
    # Elements.
    NO_MUTATION,
    TOTALITY,
    Law("left identity", scalar.left_identity),
    Law("right identity", scalar.right_identity),
    Law("associativity", scalar.associativity),
    Law("commutativity", scalar.commutativity, _commutes),
    Law("idempotence", scalar.idempotence, _is_idempotent),
    Law("inverse", scalar.inverse, _is_group, depth=1),
    Law("reached associativity", scalar.reached_associativity, _is_group),
    Law("any tree", scalar.any_tree, wide=True),
    Law("fold", scalar.fold_is_combine, wide=True),
    Law("empty fold", scalar.empty_fold),
    Law("pure lift", scalar.pure_lift, depth=-1, exactly=True),
    Law("pure present", scalar.pure_present, depth=-1, exactly=True),
    # Bytes.
    Law("serializer round trip", scalar.serializer_round_trip, depth=1, exactly=True),
    Law("serializer homomorphism", scalar.serializer_homomorphism),
    Law("serializer presents", scalar.serializer_presents, depth=-1),
    Law("canonical bytes", scalar.canonical_bytes, _has_canonical_bytes, depth=-1),
    Law("damaged bytes", scalar.damaged_bytes, depth=-1, exactly=True),
    Law("fingerprint", scalar.fingerprint, depth=-1, exactly=True),
    Law("representation", scalar.representation, depth=-1, exactly=True),
    # Columns from inputs.
    Law("columnar lift", lifting.lift_list, depth=1, by_row=True, long=True),
    Law("columnar lift of Arrow", lifting.lift_arrow, depth=1, by_row=True, long=True),
    Law("columnar lift of nulls", lifting.lift_nulls, depth=1, by_row=True),
    Law("columnar lift of a slice", lifting.lift_slice, depth=1, by_row=True),
    Law("columnar lift of chunks", lifting.lift_chunks, depth=2, by_row=True),
    Law("columnar lift of NumPy", lifting.lift_numpy, depth=2, by_row=True),
    Law("columnar lift of a dictionary", lifting.lift_dictionary, depth=2, by_row=True),
    Law("columnar lift of other widths", lifting.lift_widths, depth=2, by_row=True),
    Law("columnar lift of no rows", lifting.lift_empty, depth=2, by_row=True),
    Law("columnar lift of one value", lifting.lift_constant, depth=1),
    Law("no mutation of inputs", lifting.input_mutation, _lifts_columns, depth=-1, exactly=True, by_row=True),
    # Columns of elements.
    Law("pack", columnar.pack_round_trip, depth=1, exactly=True, by_row=True, long=True),
    Law("empty columns", columnar.empty_columns, depth=-1, exactly=True),
    Law("take", columnar.take_rows, depth=1, exactly=True, by_row=True),
    Law("concat", columnar.concat_parts, depth=1, exactly=True, by_row=True),
    Law("repeat", columnar.repeat_row, depth=1, exactly=True),
    Law("columnar reduce", columnar.reduce_columns, depth=1, by_row=True, long=True),
    Law("columnar reduce of identities", columnar.reduce_identities, depth=1),
    Law("columnar reduce of one value", columnar.reduce_constant, depth=1),
    Law("columnar reduce of lifted", columnar.reduce_lifted, depth=1, by_row=True, long=True),
    Law("columnar reduce in stages", columnar.reduce_in_stages, depth=1, by_row=True),
    Law("columnar reduce by cells", columnar.reduce_cells, depth=1, by_row=True, long=True),
    Law("columnar combine", columnar.combine_columns, _combines_columns, depth=1),
    Law("no mutation of columns", columnar.column_mutation, _has_columns, depth=-1, exactly=True, by_row=True),
    Law("columnar present", columnar.present_columns, depth=-1, by_row=True, long=True),
    Law("Arrow round trip", columnar.arrow_round_trip, _stores_columns, depth=-1, exactly=True, by_row=True, long=True),
    Law("Arrow slice", columnar.arrow_slice, _stores_columns, depth=1, exactly=True, by_row=True),
    Law("canonical columns", columnar.canonical_columns, _has_own_encoding, depth=-1, exactly=True, by_row=True),
    Law("canonical constants", columnar.canonical_constants, _has_own_encoding, depth=-1, exactly=True),
)
"""In the order of testing."""


_BRACKETS = "steps, workers and windows put the brackets anywhere, so the result must not depend on them"
_NOTHING = (
    "the identity must be neutral: combined with any element, it leaves the element unchanged. If some inputs are "
    "not elements, let lift convert them"
)
_BY_LAW = {
    "no mutation": "combine must return a new element, because the old ones are shared: 'return a + b', not 'a += b' "
    "or 'a.extend(b); return a'",
    "totality": "each of these must work on every element, and on the identity: a window may hold nothing else",
    "left identity": _NOTHING,
    "right identity": _NOTHING,
    "associativity": _BRACKETS,
    "any tree": _BRACKETS,
    "commutativity": "if the order matters, remove commutative = True",
    "idempotence": "if twice differs from once, remove idempotent = True",
    "inverse": "if something is left, it is not a Group: make it a Monoid",
    "pure lift": "lift must not change its input, and must lift equal inputs to equal elements",
    "pure present": "present must not change the element, and must present equal elements equally",
}
_ROUNDS = "the two differ only by the rounding of floats: declare exact = False"
_NAN = "NaN compares with nothing: define in combine what it means, or draw strategies.floats(allow_nan=False)"


def remedy(law: Law, sides: Sequence[Any], inputs: Sequence[Any], close: bool) -> str:
    """The remedy; empty if the formula says everything. ``close``: the sides are equal except for rounding."""
    if close:
        return _ROUNDS
    if any(isinstance(x, float) and math.isnan(x) for x in inputs) and law.name in _BY_LAW and sides:
        return _NAN
    return _BY_LAW.get(law.name, "")


def place(monoid: Monoid[Any], error: BaseException) -> str:
    """The call of one of the monoid's own methods that raised, with its arguments and line; empty if none did."""
    codes = {
        inspect.unwrap(function).__code__
        for kind in type(monoid).__mro__
        if kind.__module__.split(".")[0] != "monoids"
        for function in vars(kind).values()
        if inspect.isfunction(function)
    }
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        code = frame.f_code
        if code in codes and code.co_filename != __file__ and not code.co_filename.endswith("budget.py"):
            names = code.co_varnames[1 : code.co_argcount]
            arguments = ", ".join(_short(frame.f_locals.get(name)) for name in names)
            return f"in {code.co_name}({arguments}), {Path(code.co_filename).name} line {trace.tb_lineno}"
        trace = trace.tb_next
    return ""


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]} ... {text[-15:]}"
