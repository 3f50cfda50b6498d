"""An example is a few records, and what the task of a project makes of them, by a plain computation."""

from __future__ import annotations

from typing import Any, Final

from persistent.project.answers import NO_WINDOW, SESSION, Answers

_AROUND_MS: Final = 1_714_989_600_000
"""2024-05-06, 10 o'clock."""
_DAY_MS: Final = 86_400_000
_KEYS: Final[dict[str, tuple[Any, Any]]] = {
    "str": ("ann", "bob"),
    "int": (1, 2),
    "float": (0.5, 1.5),
    "bool": (False, True),
}
_VALUES: Final[dict[str, tuple[Any, ...]]] = {"int": (4, 2, 7, 1), "float": (4.0, 2.5, 7.0, 1.5)}

COUNT_NAMES: Final = ("count", "records", "messages")


def count_name(answers: Answers) -> str:
    """How the number of records is called: as no other column is."""
    taken = {answers.key.name} if answers.key else set()
    return next(name for name in COUNT_NAMES if name not in taken)


def records_of(answers: Answers) -> list[dict[str, Any]]:
    """Three records of a window, of two keys, and one of a later window."""
    size = answers.window.ms
    # Long windows begin earlier: a record of the future would be a dead letter.
    start = (_AROUND_MS - 3 * size if size > _DAY_MS else _AROUND_MS) // size * size
    times = (start, start + size // 10, start + size // 5, start + 2 * size + size // 10)
    records = []
    for place, time in enumerate(times):
        record: dict[str, Any] = {answers.timestamp: time}
        if answers.key is not None:
            record[answers.key.name] = _KEYS[answers.key.type][place == 1]
        for value in answers.values:
            record.setdefault(value.name, _VALUES[value.type][place])
        records.append(record)
    return records


def expected_of(answers: Answers) -> dict[Any, dict[str, Any]]:
    """Key to value; with windows (key, start of the window in ms) to value."""
    found: dict[Any, dict[str, Any]] = {}
    starts: dict[Any, int] = {}
    size = answers.window.ms
    for record in records_of(answers):
        time = record[answers.timestamp]
        key = None if answers.key is None else record[answers.key.name]
        if answers.window.kind == SESSION:
            # Within a fifth of the gap, or more than the gap apart.
            starts[key] = starts[key] if time - starts.get(key, -size) < size else time
            place: Any = (key, starts[key])
        else:
            place = key if answers.window.kind == NO_WINDOW else (key, time - time % size)
        value = found.setdefault(place, {count_name(answers): 0})
        value[count_name(answers)] += 1
        for field in answers.values:
            number = record[field.name]
            value[f"{field.name}_sum"] = value.get(f"{field.name}_sum", 0) + number
            value[f"{field.name}_max"] = max(value.get(f"{field.name}_max", number), number)
    return found


def sample_text() -> str:
    """Page views of three users during a morning, as CSV."""
    lines = ["time,user,page,millis"]
    for number in range(72):
        # Half an hour of views, then a break of 37 minutes.
        minute = number // 12 * 70 + number % 12 * 3
        user, page = ("ann", "bob", "cyd")[number * number % 7 % 3], ("/home", "/cart", "/home", "/help")[number % 4]
        time = f"2024-05-06T{8 + minute // 60:02}:{minute % 60:02}:{number * 17 % 60:02}Z"
        lines.append(f"{time},{user},{page},{40 + number * 37 % 211}")
    return "\n".join(lines) + "\n"
