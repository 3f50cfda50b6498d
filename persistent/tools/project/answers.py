"""Answers decide what a project is made of: where its records are, what they count for, and where its results go."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from persistent.errors import InvalidPipeline
from persistent.time.clock import duration_ms

SAMPLE: Final = "events.csv"
"""The file with sample records, for a project without records of its own."""
WINDOWS: Final = {"minute": "1 min", "hour": "1 h", "day": "1 day"}
SESSION: Final = "session"
NO_WINDOW: Final = "none"
_GAP: Final = "30 min"
_CUT_MS: Final = 86_400_000
_LONGEST_MS: Final = 3_650 * _CUT_MS
_OURS: Final = ("window_start", "window_end", "revision", "retracted")
_TOPIC: Final = re.compile(r"([^/]+:\d+)/([A-Za-z0-9._-]{1,249})")
_PASSWORD: Final = re.compile(r"://[^/@]*:[^/]*@|\bpassword=")

SOURCES: Final = "sample, files:PATH, kafka:HOST:PORT/TOPIC"
SINKS: Final = "files, sqlite, postgres:URL, kafka:HOST:PORT/TOPIC"


@dataclass(frozen=True)
class End:
    """The source or the sink of a pipeline. ``kind``: "files" or "kafka"; a sink also "sqlite" or "postgres". ``path``:
    the path of the files or of the database, or the topic; ``server``: where the topic is."""

    kind: str
    path: str
    server: str = ""


@dataclass(frozen=True)
class Field:
    """A field of the records. ``type``: "str", "int", "float" or "bool", as Python calls them. ``empty``: whether the
    field is empty in some records."""

    name: str
    type: str
    empty: bool = False


@dataclass(frozen=True)
class WindowChoice:
    """``kind``: "tumbling", "session", or "none" for a state without windows; ``length``: the size, or the gap."""

    kind: str
    length: str = ""

    @property
    def ms(self) -> int:
        """The length in milliseconds. Without a window, an hour, which only spaces the examples."""
        return duration_ms(self.length or WINDOWS["hour"], "window")


@dataclass(frozen=True)
class Answers:
    """All answers. ``schema``: the types of the fields that the task reads, where the format gives none. ``reading``:
    the other options with which files are read."""

    source: End
    timestamp: str
    unit: str | None
    key: Field | None
    values: tuple[Field, ...]
    window: WindowChoice
    sink: End
    schema: Mapping[str, str] = field(default_factory=dict)
    reading: Mapping[str, Any] = field(default_factory=dict)


def source_of(text: str) -> End:
    """The source that an answer names.

    >>> source_of("files:views/*.csv"), source_of("kafka:localhost:9092/views")
    (End(kind='files', path='views/*.csv', server=''), End(kind='kafka', path='views', server='localhost:9092'))
    """
    kind, _, rest = text.partition(":")
    if text == "sample":
        return End("files", "")
    if kind == "files" and rest:
        return End("files", rest)
    if kind == "kafka":
        return _topic_of(rest, "--source")
    raise InvalidPipeline(f"--source {text!r} names no source: give one of {SOURCES}, as in files:views/*.csv")


def sink_of(text: str) -> End:
    """The sink that an answer names.

    >>> sink_of("sqlite"), sink_of("postgres:postgresql://me@localhost/shop").path
    (End(kind='sqlite', path='results.db', server=''), 'postgresql://me@localhost/shop')
    """
    kind, _, rest = text.partition(":")
    if text == "files":
        return End("files", "results")
    if text == "sqlite":
        return End("sqlite", "results.db")
    if kind == "kafka":
        return _topic_of(rest, "--sink")
    if kind == "postgres" and rest:
        if _PASSWORD.search(rest):
            raise InvalidPipeline(
                "--sink postgres: the URL holds a password, and task.py would show it to all who read it: leave it "
                "out, and put it into ~/.pgpass or PGPASSWORD"
            )
        return End("postgres", rest)
    safe_text = text.partition(":")[0] + ":..." if _PASSWORD.search(text) else text
    raise InvalidPipeline(f"--sink {safe_text!r} names no sink: give one of {SINKS}")


def window_of(text: str) -> WindowChoice:
    """The window that an answer names: a word, a duration, or a session with or without its gap.

    >>> window_of("hour"), window_of("session 5 min"), window_of("none").kind
    (WindowChoice(kind='tumbling', length='1 h'), WindowChoice(kind='session', length='5 min'), 'none')
    """
    text = " ".join(text.split())
    if text == NO_WINDOW:
        return WindowChoice(NO_WINDOW)
    is_session = text == SESSION or text.startswith(f"{SESSION} ")
    length = (text.removeprefix(SESSION).strip() or _GAP) if is_session else WINDOWS.get(text, text)
    try:
        if length.isdigit():
            raise ValueError("a number without a unit")
        ms = duration_ms(length, "window")
    except ValueError as error:
        raise InvalidPipeline(
            f"--window {text!r} is no window ({error}): give minute, hour, day, a duration such as '15 min', session, "
            "session with its gap, such as 'session 10 min', or none"
        ) from error
    if not 10 <= ms <= (_CUT_MS if is_session else _LONGEST_MS):
        limits = "at least 10 ms and at most ten years, and the gap of a session at most a day"
        raise InvalidPipeline(f"--window {text!r}: give another length: a window has {limits}")
    return WindowChoice(SESSION if is_session else "tumbling", length)


def checked_name(name: str, option: str) -> str:
    """The name of a field. InvalidPipeline unless it can be one in Python, and a column of results in every sink."""
    if name in _OURS:
        raise InvalidPipeline(
            f"{option} {name!r} is the name of a column that results have of themselves: choose another one, or rename "
            "the column in the file"
        )
    if is_name(name):
        return name
    by_hand = f"message.value[{name!r}]"
    if option == "--key":
        by_hand = f'key = {{"name": lambda message: {by_hand}}}'
    raise InvalidPipeline(
        f"{option} {name!r}: a project is made for names of letters (ä as one character), digits and _, which do not "
        "begin with a digit. Rename the column in the file; or choose another one here, and then write "
        f"{by_hand} in task.py"
    )


def check_holds(sink: End, window: WindowChoice, key: Field | None) -> None:
    """InvalidPipeline if the sink keeps one row of each key, and some records have no key."""
    if key is not None and key.empty and window.kind == NO_WINDOW and sink.kind in ("sqlite", "postgres"):
        raise InvalidPipeline(
            f"--key {key.name!r} is empty in some records, and without windows the table of --sink {sink.kind} has one "
            "row of each key, which cannot be empty there: give --sink files, a --window, or another key"
        )


def is_name(name: str) -> bool:
    """Whether ``name`` can name a field in Python, which reads composed letters only, and a column in every sink.

    >>> is_name("größe"), is_name("Betrag (€)"), is_name("gro\\u0308ße")
    (True, False, False)
    """
    return name.isidentifier() and unicodedata.is_normalized("NFKC", name) and name not in _OURS


def _topic_of(text: str, option: str) -> End:
    match = _TOPIC.fullmatch(text)
    if not match:
        raise InvalidPipeline(
            f"{option} 'kafka:{text}' names no topic: give server and topic, as in kafka:localhost:9092/views"
        )
    return End("kafka", match[2], match[1])
