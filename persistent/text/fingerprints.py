"""A fingerprint as text reads like the user's code: ``Max(float)``, ``record(n=Count())``, ``tumbling("1 min")``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from monoids.html import facts_html
from persistent.codec.documents import canonical_json
from persistent.text.figures import duration_text

_TYPES = {"int64": "int", "double": "float", "string": "str", "binary": "bytes", "bool": "bool"}
_NESTED = ("fields", "monoid")
_TRACKED_LEAST = 1_000
_HITTERS = re.compile(r"\bHeavyHitters\(\d+, ")
_SHOWN = {"ttl_ms": "ttl"}
_BEHIND = ("version", "schema", "serializer")


def monoid_text(fingerprint: Any) -> str:
    """The monoid of a fingerprint.

    >>> from monoids import Max, record
    >>> monoid_text(Max(float).fingerprint()), monoid_text(record(largest=Max()).fingerprint())
    ('Max(float)', 'record(largest=Max(int))')
    """
    if not _is_monoid(fingerprint):
        return "none" if fingerprint is None else str(fingerprint)
    parameters = fingerprint.get("parameters") or {}
    if fingerprint["name"] == "HeavyHitters" and {"k", "type", "width", "depth"} <= parameters.keys():
        return _heavy_hitters_text(parameters)
    parts = [_type_text(parameters["type"])] if "type" in parameters else []
    parts += [f"{name}={monoid_text(part)}" for name, part in _fields(fingerprint).items()]
    parts += [monoid_text(parameters["monoid"])] if "monoid" in parameters else []
    parts += [
        f"{name}={_value_text(value)}"
        for name, value in parameters.items()
        if name not in ("type", *_NESTED) and value not in (None, [])
    ]
    return f"{fingerprint['name']}({', '.join(parts)})"


def shown_text(fingerprint: Any) -> str:
    """The monoid of a fingerprint for a reader. An ellipsis stands for the number of values that HeavyHitters shows,
    which no fingerprint holds.

    >>> from monoids import HeavyHitters, record
    >>> shown_text(record(top=HeavyHitters(5, str)).fingerprint())
    'record(top=HeavyHitters(…, str, track=1000, width=2719, depth=5))'
    """
    return _HITTERS.sub("HeavyHitters(\N{HORIZONTAL ELLIPSIS}, ", monoid_text(fingerprint))


def window_text(window: Mapping[str, Any] | None) -> str:
    """The window of a fingerprint.

    >>> window_text({"size_ms": 3_600_000, "every_ms": 60_000}), window_text({"size_ms": 1_500, "every_ms": 1_500})
    ('sliding("1 h", every="1 min")', 'tumbling("1500 ms")')
    >>> window_text({"calendar": "day", "zone": "Asia/Kolkata", "offset_ms": 21_600_000})
    'calendar("day", tz="Asia/Kolkata", offset="6 h")'
    >>> window_text({"gap_ms": 1_800_000, "cut_ms": 86_400_000})
    'session("30 min", cut="1 d")'
    >>> window_text({"assigned": "Shifts", "parameters": {"hours": [6, 14, 22]}})
    'assigned(Shifts(hours=(6, 14, 22)))'
    """
    if window is None:
        return "none"
    if "gap_ms" in window:
        return f'session("{duration_text(window["gap_ms"])}", cut="{duration_text(window["cut_ms"])}")'
    if "assigned" in window:
        parameters = ", ".join(f"{name}={_value_text(value)}" for name, value in window["parameters"].items())
        return f"assigned({window['assigned']}({parameters}))"
    moved = f', offset="{duration_text(window["offset_ms"])}"' if "offset_ms" in window else ""
    if "calendar" in window:
        zone = "" if window["zone"] == "UTC" else f', tz="{window["zone"]}"'
        return f'calendar("{window["calendar"]}"{zone}{moved})'
    size, every = duration_text(window["size_ms"]), duration_text(window["every_ms"])
    return f'tumbling("{size}"{moved})' if size == every else f'sliding("{size}", every="{every}"{moved})'


def changes_text(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """The changes from one fingerprint of a state to another; empty if they are equal.

    >>> from monoids import Count, Max, record
    >>> old, new = record(n=Count(), max=Max()), record(n=Count(), max=Max(float))
    >>> changes_text({"monoid": old.fingerprint(), "key": ["page"]}, {"monoid": new.fingerprint(), "key": ["user"]})
    'key: page -> user; max: Max(int) -> Max(float)'
    >>> changes_text({}, {"ttl_ms": 604_800_000})
    'ttl: none -> "1 w"'
    """
    parts = []
    for name in sorted({*old, *new}):
        before, after = old.get(name), new.get(name)
        if canonical_json(before) == canonical_json(after):
            continue
        if name == "monoid":
            parts += _monoid_changes(before, after)
        else:
            parts.append(f"{_SHOWN.get(name, name)}: {part_text(name, before)} -> {part_text(name, after)}")
    return "; ".join(parts)


def change_text(before: Any, after: Any) -> str:
    """The change from one monoid to another, even if both read alike."""
    texts = monoid_text(before), monoid_text(after)
    if texts[0] != texts[1] or not _is_monoid(before) or not _is_monoid(after):
        return " -> ".join(texts)
    differ = [name for name in _BEHIND if canonical_json(before.get(name)) != canonical_json(after.get(name))]
    return f"{texts[0]}, with another {' and '.join(differ or ['definition'])}"


def _monoid_changes(before: Any, after: Any) -> list[str]:
    """The changed fields, if both are records; otherwise the whole change."""
    old, new = _fields(before), _fields(after)
    if not old or not new:
        return [f"monoid: {change_text(before, after)}"]
    changed = [
        f"{name}: {change_text(old.get(name), new.get(name))}"
        for name in dict.fromkeys((*old, *new))
        if canonical_json(old.get(name)) != canonical_json(new.get(name))
    ]
    return changed or [f"fields: {', '.join(old)} -> {', '.join(new)}"]


def _heavy_hitters_text(parameters: Mapping[str, Any]) -> str:
    """The code of a HeavyHitters that continues such a state. ``k`` of the fingerprint is the number of tracked values.
    The number of shown values is not in the fingerprint: the code has the one that tracks ``k`` by default."""
    track = parameters["k"]
    count = track if track < _TRACKED_LEAST else track // 100
    sizes = f"track={track}, width={parameters['width']}, depth={parameters['depth']}"
    return f"HeavyHitters({count}, {_type_text(parameters['type'])}, {sizes})"


def part_text(name: str, value: Any) -> str:
    """A part of the fingerprint of a state, by its name."""
    if name == "window":
        return window_text(value)
    if name == "ttl_ms":
        return "none" if value is None else f'"{duration_text(value)}"'
    if name == "key":
        return ", ".join(map(str, value or ())) or "none"
    return "none" if value is None else str(value)


def _is_monoid(fingerprint: Any) -> bool:
    return isinstance(fingerprint, Mapping) and "name" in fingerprint


def _fields(fingerprint: Any) -> dict[str, Any]:
    """The fields of a record's fingerprint; empty for any other fingerprint."""
    parameters = fingerprint.get("parameters") if isinstance(fingerprint, Mapping) else None
    fields = parameters.get("fields") if isinstance(parameters, Mapping) else None
    return {str(name): part for name, part in fields} if isinstance(fields, list | tuple) else {}


def _type_text(type_: Any) -> str:
    return _TYPES.get(type_, type_) if isinstance(type_, str) else _value_text(type_)


def _value_text(value: Any) -> str:
    if _is_monoid(value):
        return monoid_text(value)
    if isinstance(value, list | tuple):
        return f"({', '.join(map(_value_text, value))})"
    if isinstance(value, Mapping):
        return f"({', '.join(f'{name}={_value_text(part)}' for name, part in value.items())})"
    return str(value)


class Described:
    """What a checkpoint records, to notice a changed definition: a window, a state, a task. A notebook shows it in the
    words of the user's code."""

    def fingerprint(self) -> dict[str, Any]:
        """Its description, as JSON values."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        parts = {name: value for name, value in self.fingerprint().items() if name != "state" and value is not None}
        texts = {
            name: shown_text(value) if name == "monoid" else part_text(name, value) for name, value in parts.items()
        }
        return facts_html(type(self).__name__, [(_SHOWN.get(name, name), text) for name, text in texts.items()])
