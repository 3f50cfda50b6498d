"""A strategy of inputs is found by the type of the monoid, or derived from the type of its values.

``inputs_for(monoid)`` tries, in this order: a strategy registered for the class; the instances of this package; the
monoids it is composed of; the type of its values; the annotation of ``lift``, or of ``combine`` if ``lift`` is not
overridden.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import singledispatch
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument, ResolutionFailed

from monoids.combinators import Dual
from monoids.containers.intervals import Sessions
from monoids.containers.mappings import MappingMonoid
from monoids.fixed import FixedWidth
from monoids.laws.instances import INSTANCES
from monoids.monoid import Monoid
from monoids.optional import OptionMonoid
from monoids.records import RecordMonoid
from monoids.values import ValueType

InputStrategy = st.SearchStrategy[Any]


@singledispatch
def inputs_for(monoid: Any) -> InputStrategy:
    """A strategy of inputs of ``monoid.lift``. TypeError, saying what to write, if none can be derived.

    Register one for a class of your own and its subclasses:

    >>> class Longest(Monoid):
    ...     identity = ""
    ...     def combine(self, a, b):
    ...         return b if len(b) > len(a) else a
    >>> inputs_for(Longest())  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    TypeError: no inputs are known for Longest(): combine(self, a, b) (<doctest ... line 3) does not give the type of \
its inputs: annotate it, as in combine(self, a: str, b: str); or give a strategy, as in \
assert_monoid_laws(Longest(), strategies.text()), or register one: \
inputs_for.register(Longest, lambda monoid: strategies.text())
    >>> _ = inputs_for.register(Longest, lambda monoid: st.text())
    >>> inputs_for(Longest())
    text()
    """
    if not isinstance(monoid, Monoid):
        raise TypeError(f"inputs_for(monoid) takes a monoid, such as Sum(), not {monoid!r}")
    for derive in (_of_instance, _of_parts, _of_value_type, _of_kin):
        strategy = derive(monoid)
        if strategy is not None:
            return strategy
    annotated = _of_annotation(monoid)
    if not isinstance(annotated, str):
        return annotated
    raise TypeError(
        f"no inputs are known for {monoid!r}: {annotated}; or give a strategy, as in assert_monoid_laws({monoid!r}, "
        f"strategies.text()), or register one: inputs_for.register({type(monoid).__name__}, lambda monoid: "
        "strategies.text())"
    )


def values_of(type: pa.DataType) -> InputStrategy:
    """A strategy of the Python values that an Arrow array of this type holds, with frequent edge cases.

    Integers: of their width, with both limits. Floats: NaN, infinities, -0.0, subnormals. Text: empty, beyond the
    basic plane. Also bool, binary, date, time of day, timestamp, duration, decimal, null, dictionary, list, struct
    and map. TypeError for any other type.

    >>> values_of(pa.bool_())
    booleans()
    >>> pa.array([values_of(pa.decimal128(4, 2)).example()], pa.decimal128(4, 2)).type  # doctest: +SKIP
    Decimal128Type(decimal128(4, 2))
    """
    for matches, strategy in _VALUES:
        if matches(type):
            return strategy(type)
    raise TypeError(f"no strategy is known for the Arrow type {type}: give a strategy of the inputs")


# Where the inputs of a monoid are found.


def _of_instance(monoid: Monoid[Any]) -> InputStrategy | None:
    """The inputs that a built-in monoid with these parameters is tested with."""
    if not _is_built_in(monoid):
        return None
    known = monoid.fingerprint()
    return next((inputs for instance, inputs in INSTANCES if instance.fingerprint() == known), None)


def _of_kin(monoid: Monoid[Any]) -> InputStrategy | None:
    """The inputs that the same class is tested with, with other parameters and elements of the same Arrow type."""
    if not _is_built_in(monoid):
        return None
    kin = (pair for pair in INSTANCES if type(pair[0]) is type(monoid) and pair[0].schema.equals(monoid.schema))
    return next((inputs for _, inputs in kin), None)


def _of_parts(monoid: Monoid[Any]) -> InputStrategy | None:
    """For a monoid composed of others, the inputs of its parts, put together."""
    if isinstance(monoid, RecordMonoid):
        fields = {name: inputs_for(part) for name, part in monoid.fields.items()}
        return st.none() | st.fixed_dictionaries({}, optional=fields)
    if isinstance(monoid, MappingMonoid):
        keys = st.text(max_size=3) if monoid.key is None else values_of(monoid.key.arrow)
        return st.none() | st.dictionaries(keys, inputs_for(monoid.inner), max_size=3)
    if isinstance(monoid, Sessions):
        # So near that sessions touch, overlap and are joined by a third.
        times = st.none() | st.integers(0, 8 * monoid.gap)
        return st.none() | st.tuples(times, inputs_for(monoid.inner))
    if isinstance(monoid, Dual | OptionMonoid):
        return st.none() | inputs_for(monoid.inner)
    return None


def _is_built_in(monoid: Monoid[Any]) -> bool:
    return type(monoid).__module__.startswith("monoids.")


def _of_value_type(monoid: Monoid[Any]) -> InputStrategy | None:
    """The values of the Arrow type that a columnar monoid declares for its inputs, or a built-in one for its values;
    small numbers, so that their sums fit."""
    if isinstance(monoid, FixedWidth) and monoid.input_type is not None:
        return st.none() | values_of(monoid.input_type)
    type_ = getattr(monoid, "type", None)
    if not isinstance(type_, ValueType):
        return None
    if type_.kind == "int":
        return st.none() | st.integers(-(10**6), 10**6)
    if type_.kind == "decimal":
        return st.none() | st.integers(-999, 999).map(lambda number: Decimal(number).scaleb(-type_.arrow.scale))
    return st.none() | values_of(type_.arrow)


def _of_annotation(monoid: Monoid[Any]) -> InputStrategy | str:
    """The inputs of the type that a method's annotation names; or why there are none, where, and what to write."""
    method = type(monoid).combine if _lifts_plainly(monoid) else type(monoid).lift
    name, place = method.__name__, f"{Path(method.__code__.co_filename).name} line {method.__code__.co_firstlineno}"
    try:
        hints = typing.get_type_hints(method)
    except (NameError, TypeError) as error:
        return f"the annotations of {name} ({place}) cannot be read: {error}: define or import the names in them"
    argument = next((hint for name, hint in hints.items() if name != "return"), Any)
    if argument in (Any, object) or isinstance(argument, typing.TypeVar):
        parameters = list(inspect.signature(method).parameters.values())
        bare = ", ".join(str(parameter) for parameter in parameters)
        typed = ", ".join([parameters[0].name, *(f"{parameter.name}: str" for parameter in parameters[1:])])
        return f"{name}({bare}) ({place}) does not give the type of its inputs: annotate it, as in {name}({typed})"
    try:
        strategy = st.from_type(argument)
        strategy.validate()
    except (InvalidArgument, ResolutionFailed):
        type_ = argument.__name__ if isinstance(argument, type) else str(argument)
        return (
            f"{name} ({place}) takes {type_}, which Hypothesis cannot construct: say how, as in "
            f"strategies.register_type_strategy({type_}, strategies.builds({type_}, strategies.integers()))"
        )
    return strategy


def _lifts_plainly(monoid: Monoid[Any]) -> bool:
    """Whether an input is itself the element."""
    return type(monoid).lift is Monoid.lift


# The values of Arrow types.


def _integers(type: pa.DataType) -> InputStrategy:
    signed = pa.types.is_signed_integer(type)
    low = -(2 ** (type.bit_width - 1)) if signed else 0
    high = 2 ** (type.bit_width - signed) - 1
    return st.integers(low, high) | st.sampled_from([low, low + 1, 0, 1, high - 1, high])


def _floats(type: pa.DataType) -> InputStrategy:
    odd = [0.0, -0.0, float("nan"), float("inf"), float("-inf")]
    least = {16: 2.0**-24, 32: 2.0**-149, 64: 2.0**-1074}[type.bit_width]
    return st.floats(width=type.bit_width) | st.sampled_from([*odd, least, -least])


def _text(type: pa.DataType) -> InputStrategy:
    return st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
        ["", "\0", "\uffff", "\U0001f600", "é", "e\u0301"]
    )


def _binary(type: pa.DataType) -> InputStrategy:
    if pa.types.is_fixed_size_binary(type):
        return st.binary(min_size=type.byte_width, max_size=type.byte_width)
    return st.binary(max_size=8) | st.sampled_from([b"", b"\0", b"\xff"])


def _timestamps(type: pa.DataType) -> InputStrategy:
    zones = st.just(UTC) if type.tz else st.none()
    # 64-bit nanoseconds begin in 1677 and end in 2262.
    low, high = (datetime(1678, 1, 1), datetime(2262, 1, 1)) if type.unit == "ns" else (datetime.min, datetime.max)
    coarse = {"s": 1_000_000, "ms": 1_000}.get(type.unit, 1)
    ends = st.sampled_from([low, high]).map(lambda end: end.replace(tzinfo=UTC if type.tz else None))
    return (st.datetimes(low, high, timezones=zones) | ends).map(
        lambda moment: moment.replace(microsecond=moment.microsecond // coarse * coarse, fold=0)
    )


def _durations(type: pa.DataType) -> InputStrategy:
    limit = timedelta(days=100_000)
    return st.timedeltas(-limit, limit).map(lambda span: timedelta(days=span.days, seconds=span.seconds))


def _times(type: pa.DataType) -> InputStrategy:
    coarse = {"s": 1_000_000, "ms": 1_000}.get(type.unit, 1)
    return st.times().map(lambda moment: moment.replace(microsecond=moment.microsecond // coarse * coarse, fold=0))


def _decimals(type: pa.DataType) -> InputStrategy:
    # Arrow accepts no digits to the left of the precision, whatever the scale.
    largest = 10 ** (type.precision + min(type.scale, 0)) - 1
    whole = st.integers(-largest, largest) | st.sampled_from([-largest, 0, largest])
    return whole.map(lambda number: Decimal((number < 0, tuple(map(int, str(abs(number)))), -type.scale)))


def _lists(type: pa.DataType) -> InputStrategy:
    size = type.list_size if pa.types.is_fixed_size_list(type) else None
    return st.lists(_nullable(type.value_type), min_size=size or 0, max_size=4 if size is None else size)


def _structs(type: pa.DataType) -> InputStrategy:
    return st.fixed_dictionaries({field.name: _nullable(field.type) for field in type})


def _maps(type: pa.DataType) -> InputStrategy:
    return st.lists(st.tuples(values_of(type.key_type), _nullable(type.item_type)), max_size=3)


def _nullable(type: pa.DataType) -> InputStrategy:
    return st.none() | values_of(type)


def _is_text(type: pa.DataType) -> bool:
    return bool(pa.types.is_string(type) or pa.types.is_large_string(type) or pa.types.is_string_view(type))


def _is_binary(type: pa.DataType) -> bool:
    of_any_size = pa.types.is_binary(type) or pa.types.is_large_binary(type) or pa.types.is_binary_view(type)
    return bool(of_any_size or pa.types.is_fixed_size_binary(type))


def _is_list(type: pa.DataType) -> bool:
    return bool(pa.types.is_list(type) or pa.types.is_large_list(type) or pa.types.is_fixed_size_list(type))


_VALUES: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], InputStrategy]], ...] = (
    (pa.types.is_null, lambda type: st.none()),
    (pa.types.is_boolean, lambda type: st.booleans()),
    (pa.types.is_integer, _integers),
    (pa.types.is_floating, _floats),
    (_is_text, _text),
    (_is_binary, _binary),
    (pa.types.is_date, lambda type: st.dates(date.min, date.max)),
    (pa.types.is_time, _times),
    (pa.types.is_timestamp, _timestamps),
    (pa.types.is_duration, _durations),
    (pa.types.is_decimal, _decimals),
    (pa.types.is_dictionary, lambda type: values_of(type.value_type)),
    (_is_list, _lists),
    (pa.types.is_map, _maps),
    (pa.types.is_struct, _structs),
)
