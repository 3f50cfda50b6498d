"""An error in user code as text: what was raised, in which of the user's lines, and for which message."""

from __future__ import annotations

import linecache
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import CodeType
from typing import Any

import monoids

_OF_STATE = re.compile(r"Delta\.(update|update_batch)\(\) (?=missing|got|takes)")
_DELTA, _THE_STATE = "'Delta' object", "the state"
_USAGE = {
    "update": "use state.update(timestamp, value), with key= where the update names its key",
    "update_batch": "use state.update_batch(timestamps, values), with keys= where the updates name theirs",
}
_SHIPPED = "<dynamic-code>"
_TEXT_MAX = 1_000
_VALUE_MAX = 100
_FIELDS_MAX = 20
_MESSAGE_MAX = 600


@dataclass(frozen=True)
class Line:
    """A line of a file, as in a traceback; ``text`` is empty if the file is not available."""

    path: str
    number: int
    text: str

    def __str__(self) -> str:
        return f"{_from_here(self.path)}, line {self.number}{f' (`{self.text}`)' if self.text else ''}"

    @property
    def short(self) -> str:
        """The line without folder and text: equal on every machine."""
        return f"{os.path.basename(self.path)}, line {self.number}"


def users_line(error: BaseException) -> Line | None:
    """The last line of user code in the traceback, outside this package and libraries; None if there is none."""
    place = None
    for path, number in _frames(error):
        if not _is_library(path):
            place = path, number
    return _line(*place) if place else None


def line_of(function: Callable[..., Any]) -> Line | None:
    """The first line of a function; None if it is not written in Python."""
    code = getattr(function, "__code__", None)
    return _line(_path(code, function.__globals__), code.co_firstlineno) if code is not None else None


def error_text(error: BaseException) -> str:
    """An error with its type, as text that UTF-8 can hold. A sentence in a KeyError loses the quotes that Python adds.

    >>> error_text(KeyError("no field 'user'")), error_text(KeyError("user")), error_text(ValueError())
    ("KeyError: no field 'user'", "KeyError: 'user'", 'ValueError')
    >>> error_text(TypeError("Delta.update() missing 1 required positional argument: 'value'"))[11:52]
    'state.update() missing 1 required positio'
    """
    name = type(error).__name__
    try:
        sentence = isinstance(error, KeyError) and len(error.args) == 1 and " " in str(error.args[0])
        text = str(error.args[0] if sentence else error)
    except Exception as second:
        text = f"(no text: its __str__ raised {type(second).__name__})"
    ours = _OF_STATE.match(text)
    if ours:
        text = f"state.{ours[1]}() {text[ours.end() :]}: {_USAGE[ours[1]]}"
    elif isinstance(error, AttributeError) and type(error.obj).__module__ == "persistent.task.processing":
        states: Any = error.obj
        names = list(states)
        which = error.name if error.name in names else names[0]
        text = f"the task has the states {', '.join(names)}: use state[{which!r}].update(timestamp, value)"
    elif _is_of_state(error, text):
        text = f"{text.replace(_DELTA, _THE_STATE)}: a state is only added to: {_USAGE['update']}"
    whole = f"{name}: {text}" if text else name
    return _cut(whole.encode("utf-8", "backslashreplace").decode(), _TEXT_MAX)


def _is_of_state(error: Exception | BaseException, text: str) -> bool:
    """Whether the error is a misuse of the state that a task was given, and not of a value or class of the user."""
    if isinstance(error, AttributeError) and error.obj is not None:
        return _is_state(error.obj)
    if not isinstance(error, AttributeError | TypeError) or "'Delta'" not in text:
        return False
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is None or any(_is_state(value) for value in trace.tb_frame.f_locals.values())


def _is_state(value: Any) -> bool:
    kind = type(value)
    return kind.__module__ in ("persistent.task.delta", "persistent.task.processing")


def message_text(value: Mapping[str, Any]) -> str:
    """A message as its fields, cut where they are long.

    >>> message_text({"page": "/home", "ms": 120})
    "{'page': '/home', 'ms': 120}"
    """
    parts = [f"{name!r}: {_cut(repr(value[name]), _VALUE_MAX)}" for name in list(value)[:_FIELDS_MAX]]
    more = f", ... {len(value) - _FIELDS_MAX} more fields" if len(value) > _FIELDS_MAX else ""
    return _cut(f"{{{', '.join(parts)}{more}}}", _MESSAGE_MAX)


def _from_here(path: str) -> str:
    """A path below the current folder, relative to that folder; any other path unchanged."""
    try:
        here = os.getcwd() + os.sep
    except OSError:
        return path
    return path.removeprefix(here)


def _line(path: str, number: int) -> Line:
    return Line(path, number, _cut(linecache.getline(path, number).strip(), _VALUE_MAX))


def _path(code: CodeType, names: Mapping[str, Any]) -> str:
    """The file of ``code``. Cloudpickle removes it from code that it ships by value; the globals still name it."""
    return str(names.get("__file__", _SHIPPED)) if code.co_filename == _SHIPPED else code.co_filename


def _frames(error: BaseException) -> Iterator[tuple[str, int]]:
    trace = error.__traceback__
    while trace is not None:
        yield _path(trace.tb_frame.f_code, trace.tb_frame.f_globals), trace.tb_lineno
        trace = trace.tb_next


def _is_library(path: str) -> bool:
    if path.startswith("<"):
        return path.startswith(("<frozen", "<string>"))
    # Compiled code names its source by a relative path that does not exist.
    is_compiled = path.endswith((".pyx", ".pxi", ".pxd"))
    return is_compiled or "site-packages" in path or path.startswith(_library_folders())


@cache
def _library_folders() -> tuple[str, ...]:
    folders = (
        os.path.dirname(os.path.dirname(__file__)),
        os.path.dirname(str(monoids.__file__)),
        sysconfig.get_path("stdlib"),
    )
    return tuple(folder + os.sep for folder in folders) + (os.path.join(sys.prefix, "lib") + os.sep,)


def _cut(text: str, length_max: int) -> str:
    return text if len(text) <= length_max else f"{text[:length_max]}... ({len(text):,} characters)"
