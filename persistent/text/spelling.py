"""Options that are misspelled, missing or without a name are refused, with what to write instead."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def spelled(function: Callable[P, R]) -> Callable[P, R]:
    """The function, with a TypeError that lists its options when an unknown one is given, or one is missing.

    >>> @spelled
    ... def brew(tea, *, minutes=3): return f"{tea}, {minutes} min"
    >>> brew("mint", minuts=5)
    Traceback (most recent call last):
    TypeError: brew() has no option 'minuts'. Did you mean minutes=? Its options: tea, minutes
    >>> brew("mint", 5)
    Traceback (most recent call last):
    TypeError: brew() was given 2 values without a name, and takes 1: name the others, as in minutes=. Its options: \
tea, minutes
    """
    name = function.__qualname__.removesuffix(".__init__")
    signature = inspect.signature(function)
    known = [option for option in signature.parameters if option != "self"]
    is_method = len(known) < len(signature.parameters)

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for option in kwargs:
            if option not in known:
                meant = "".join(f" Did you mean {near}=?" for near in difflib.get_close_matches(option, known, 1))
                raise TypeError(f"{name}() has no option {option!r}.{meant} Its options: {', '.join(known)}")
        fault = _unbound(signature, len(args), kwargs, is_method)
        if fault:
            raise TypeError(f"{name}() {fault}. Its options: {', '.join(known)}")
        return function(*args, **kwargs)

    return checked


def _unbound(signature: inspect.Signature, count: int, named: Mapping[str, Any], is_method: bool) -> str:
    """What is wrong: too many values by position (``count`` were given), or a missing option. Empty if nothing is."""
    options = [*signature.parameters.values()]
    by_place = [option for option in options if option.kind is not inspect.Parameter.KEYWORD_ONLY]
    if any(option.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD) for option in options):
        return ""
    if count > len(by_place):
        others = [option.name for option in options[len(by_place) :] if option.name not in named]
        such = f": name the others, as in {others[0]}=" if others else ""
        return f"was given {count - is_method} values without a name, and takes {len(by_place) - is_method}{such}"
    needed = [option for option in options if option.default is inspect.Parameter.empty and option.name not in named]
    missing = [option for option in needed if option not in by_place[:count]]
    if not missing:
        return ""
    kind = "keyword-only" if missing[0] not in by_place else "positional"
    names = [option.name for option in missing]
    besides = f", and {', '.join(names[1:])}" if names[1:] else ""
    return f"is missing 1 required {kind} argument: {names[0]!r}{besides}: give {names[0]}="
