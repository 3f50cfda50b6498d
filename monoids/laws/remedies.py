"""A remedy says in one sentence how to repair a broken law, given the law and the sides that differ."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from monoids.laws.catalogue import Law
from monoids.monoid import Monoid

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
