"""A shape says which values can occur at a place of a document, and names the place of the first that cannot.

    MANIFEST = fields({"id": whole(0), "kind": one_of("checkpoint", "fence"), "runs": sequence(RUN, 100_000)})
    check_shape(MANIFEST, body, place, "a manifest")       CorruptCheckpoint: ... runs[3].rows: -5 is not ...

A shape is a function that raises ``Misfit`` or returns None; so any such function of a value is a shape.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from persistent.errors import CorruptCheckpoint

Shape = Callable[[Any], None]

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
PATH_LENGTH_MAX = 1_000
_NAME = r"[A-Za-z0-9][A-Za-z0-9._=@+-]{0,199}"


class Misfit(ValueError):
    """A value that does not have its shape: the fault, and its place in the document."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.path = ""

    def below(self, place: str) -> Misfit:
        """The same fault, as seen from one level up."""
        self.path = f"{place}{'' if self.path.startswith('[') or not self.path else '.'}{self.path}"
        return self

    def __str__(self) -> str:
        return f"{self.path}: {self.fault}" if self.path else self.fault


def check_shape(shape: Shape, value: Any, place: str, what: str) -> None:
    """CorruptCheckpoint, with ``place`` and the place in the document, unless ``value`` has the shape."""
    try:
        shape(value)
    except Misfit as misfit:
        raise CorruptCheckpoint(f"{place}: not {what} ({misfit})") from misfit


def whole(low: int = INT64_MIN, high: int = INT64_MAX) -> Shape:
    """A whole number from ``low`` to ``high``, inclusive; not a bool."""

    def check(value: Any) -> None:
        if type(value) is not int or not low <= value <= high:
            raise Misfit(f"{_printed(value)} is not a whole number from {low} to {high}")

    return check


def flag(value: Any) -> None:
    """True or False."""
    if type(value) is not bool:
        raise Misfit(f"{_printed(value)} is neither true nor false")


def text(length_max: int, pattern: str | None = None, what: str = "text") -> Shape:
    """Text of at most ``length_max`` characters that matches the whole pattern."""
    compiled = None if pattern is None else re.compile(pattern)

    def check(value: Any) -> None:
        if type(value) is not str:
            raise Misfit(f"{_printed(value)} is not {what}")
        if len(value) > length_max:
            raise Misfit(f"{_printed(value)}... has {len(value)} characters, but the limit for {what} is {length_max}")
        if compiled is not None and not compiled.fullmatch(value):
            raise Misfit(f"{_printed(value)} is not {what}")

    return check


NAME = text(200, _NAME, "a name of letters, digits and . _ = @ + -")
SHA256 = text(64, "[0-9a-f]{64}", "a SHA-256")


def path(folder: str) -> Shape:
    """A file in or below a folder of the job, with names from our alphabet, so it never leaves the folder.

    >>> path("d")("d/Visits/e1-c1-0f8f.arrow")
    """
    return text(PATH_LENGTH_MAX, f"{folder}(/{_NAME})+", f"a file in {folder}/ with a name from our alphabet")


def one_of(*values: str) -> Shape:
    """One of these texts."""

    def check(value: Any) -> None:
        if type(value) is not str or value not in values:
            raise Misfit(f"{_printed(value)} is not one of {', '.join(values)}")

    return check


def optional(shape: Shape) -> Shape:
    """Null, or a value of the shape."""

    def check(value: Any) -> None:
        if value is not None:
            shape(value)

    return check


def anything(value: Any) -> None:
    """Any value that a document can hold: for records that a source or monoid checks itself."""


def sequence(shape: Shape, length_max: int) -> Shape:
    """A list of at most ``length_max`` values of one shape."""

    def check(value: Any) -> None:
        _check_container(value, list)
        _check_length(value, length_max)
        try:
            for number, item in enumerate(value):  # noqa: B007
                shape(item)
        except Misfit as misfit:
            raise misfit.below(f"[{number}]") from misfit.__cause__

    return check


def items(*shapes: Shape) -> Shape:
    """A list of exactly these shapes."""

    def check(value: Any) -> None:
        _check_container(value, list)
        if len(value) != len(shapes):
            raise Misfit(f"has {len(value)} values instead of {len(shapes)}")
        try:
            for number, (shape, item) in enumerate(zip(shapes, value)):  # noqa: B007
                shape(item)
        except Misfit as misfit:
            raise misfit.below(f"[{number}]") from misfit.__cause__

    return check


def mapping(key: Shape, shape: Shape, length_max: int) -> Shape:
    """A mapping of at most ``length_max`` keys of one shape to values of another."""

    def check(value: Any) -> None:
        _check_container(value, dict)
        _check_length(value, length_max)
        try:
            for name, item in value.items():
                in_key = True
                key(name)
                in_key = False
                shape(item)
        except Misfit as misfit:
            place = f"the key {_printed(name)}" if in_key else f"{name:.60}"
            raise misfit.below(place) from misfit.__cause__

    return check


def fields(required: Mapping[str, Shape], more: Mapping[str, Shape] | None = None) -> Shape:
    """A mapping with all keys of ``required``, any of ``more``, and no others."""
    shapes = {**required, **(more or {})}

    def check(value: Any) -> None:
        _check_container(value, dict)
        for name in required:
            if name not in value:
                raise Misfit(f"{name} is missing")
        unknown = value.keys() - shapes.keys()
        if unknown:
            raise Misfit(f"{_printed(next(name for name in value if name in unknown))} is unknown here")
        try:
            for name, item in value.items():
                shapes[name](item)
        except Misfit as misfit:
            raise misfit.below(name) from misfit.__cause__

    return check


def both(*shapes: Shape) -> Shape:
    """A value with all of these shapes. Later shapes may rely on earlier ones."""

    def check(value: Any) -> None:
        for shape in shapes:
            shape(value)

    return check


def _check_container(value: Any, kind: type) -> None:
    if type(value) is not kind:
        raise Misfit(f"{_printed(value)} is not a {'list' if kind is list else 'mapping'}")


def _check_length(value: Any, length_max: int) -> None:
    if len(value) > length_max:
        raise Misfit(f"has {len(value)} values, but at most {length_max} are allowed here")


def _printed(value: Any) -> str:
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "a mapping"
    return repr(value[:60]) if isinstance(value, str) else repr(value)[:60]
