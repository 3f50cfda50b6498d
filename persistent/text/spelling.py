"""Misspelled options are refused, with the closest existing option as a suggestion."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def spelled(function: Callable[P, R]) -> Callable[P, R]:
    """The function, with a TypeError that lists its options when an unknown one is given.

    >>> @spelled
    ... def brew(tea, *, minutes=3): return f"{tea}, {minutes} min"
    >>> brew("mint", minuts=5)
    Traceback (most recent call last):
    TypeError: brew() has no option 'minuts'. Did you mean minutes=? Its options: tea, minutes
    """
    name = function.__qualname__.removesuffix(".__init__")
    known = [option for option in inspect.signature(function).parameters if option != "self"]

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for given in kwargs:
            if given not in known:
                meant = "".join(f" Did you mean {near}=?" for near in difflib.get_close_matches(given, known, 1))
                raise TypeError(f"{name}() has no option {given!r}.{meant} Its options: {', '.join(known)}")
        return function(*args, **kwargs)

    return checked
