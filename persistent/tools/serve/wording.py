"""What the page says: errors in words, places without secrets, values as exact text."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from monoids.encoding import to_json
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.output_parts import Correction, SinkPart
from persistent.checkpoint.parts import NodePart
from persistent.errors import (
    CorruptCheckpoint,
    FingerprintChanged,
    InvalidPipeline,
    NewerFormat,
    NoCheckpoint,
    OtherJob,
    PersistentError,
    Refused,
    StorageError,
    UnknownCheckpoint,
    UserCodeError,
)
from persistent.storage.failures import without_secrets
from persistent.text.figures import count_text, utc_text
from persistent.text.fingerprints import part_text, shown_text
from persistent.text.readable import readable_list
from persistent.time.lateness import ACCUMULATE, CHANGE, EARLY, RETRACT

_HEX = re.compile(r"-?0x[0-9a-f]+\.[0-9a-f]+p[+-]\d+")
_TEXT_MAX, _ERROR_MAX = 20_000, 2_000


class NeedsPipeline(InvalidPipeline):
    """A state is to be read, and no task is given to read it with."""


class NotFound(InvalidPipeline):
    """Nothing has that address."""


_SAID: tuple[tuple[type[PersistentError], int, str, str], ...] = (
    (NeedsPipeline, 409, "pipeline", "A state needs its task"),
    (NotFound, 404, "unknown", "Nothing is here"),
    (NewerFormat, 409, "newer", "A newer release wrote this"),
    (NoCheckpoint, 404, "none", "No checkpoint yet"),
    (UnknownCheckpoint, 404, "unknown", "Not kept"),
    (CorruptCheckpoint, 409, "corrupt", "This checkpoint is damaged"),
    (StorageError, 503, "away", "The store does not answer"),
    (OtherJob, 409, "other", "The pipeline is of another job"),
    (FingerprintChanged, 409, "other", "The pipeline has changed since this checkpoint"),
    (UserCodeError, 422, "task", "The task's own code failed"),
    (Refused, 409, "refused", "Not possible now"),
    (InvalidPipeline, 400, "asked", "This cannot be shown as asked"),
    (PersistentError, 500, "error", "This cannot be shown"),
)


def said_of(error: PersistentError) -> tuple[int, dict[str, str]]:
    """The status and the words for an error: a title, and the text with fault, place and remedy."""
    text = cut(without_secrets(str(error)), _ERROR_MAX)
    _, status, short, title = next(row for row in _SAID if isinstance(error, row[0]))
    return status, {"kind": short, "title": title, "text": text}


def place_text(url: str) -> str:
    """A URL or target as it may be shown."""
    return without_secrets(url)


def cells(table: pa.Table) -> list[list[str | None]]:
    """The rows of a table as exact text. A browser would round integers beyond 53 bits; text it leaves alone."""
    return [[cell(value) for value in row.values()] for row in readable_list(table)]


def cell(value: Any) -> str | None:
    """A value as text; None for null."""
    if value is None:
        return None
    if isinstance(value, str):
        text = value
    elif isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, bytes):
        text = value.decode("utf-8", "backslashreplace")
    elif isinstance(value, datetime.datetime):
        text = _time(value)
    elif isinstance(value, dict | list | tuple):
        text = to_json(value)
    else:
        text = str(value)
    return cut(text, _TEXT_MAX)


def monoid_words(fingerprint: Any) -> str:
    """The monoid of a fingerprint, with floats as people write them.

    >>> from monoids import Histogram
    >>> monoid_words(Histogram([0, 50]).fingerprint())
    'Histogram(boundaries=(0, 50))'
    """
    return _HEX.sub(lambda match: f"{float.fromhex(match[0]):g}", shown_text(fingerprint))


def time_to_live(fingerprint: Mapping[str, Any]) -> str | None:
    """How long a key of a state lives after its last message; None if for ever.

    >>> time_to_live({"ttl_ms": 604_800_000}), time_to_live({})
    ('1 w', None)
    """
    return part_text("ttl_ms", fingerprint["ttl_ms"]).strip('"') if fingerprint.get("ttl_ms") else None


def sink_words(part: SinkPart) -> str:
    """What a sink is given.

    >>> sink_words(SinkPart(node="Visits")), sink_words(SinkPart(node="Visits/hourly")), sink_words(SinkPart())
    ('results', 'results of the state hourly', 'late records')
    """
    if part.node is None:
        return "late records"
    name = part.node.partition("/")[2]
    return f"results of the state {name}" if name else "results"


def published_words(part: SinkPart, newest: Manifest) -> str:
    """Which of its batches a sink has. A checkpoint names the batches that may not be published yet. Its own batch is
    always one of them, as it is published after the checkpoint.
    """
    if not part.owed:
        return "all" if part.last is not None else "nothing yet"
    before = [batch.id for batch in part.owed if batch.id != newest.base]
    if not before:
        return "all, the last batch perhaps not yet"
    if len(part.owed) == 1:
        return f"1 batch perhaps not, that of checkpoint {before[0]:,}"
    return f"{len(part.owed):,} batches perhaps not, from that of checkpoint {before[0]:,} on"


_CORRECTED_BY = {ACCUMULATE: "a new row", RETRACT: "a retraction and a new row"}


def when_words(state: NodePart) -> str:
    """When the results of a state are published, and how a published result is corrected.

    >>> when_words(NodePart({"window": {"size_ms": 1}})), when_words(NodePart({}, emit="early", late="retract"))
    ('when a window closes', 'early, and at the end of the input; corrected by a retraction and a new row')
    """
    end = "when a window closes" if state.has_windows else "at the end of the input"
    when = {None: end, CHANGE: "as it changes", EARLY: f"early, and {end}"}[state.emit]
    return when if state.late is None else f"{when}; corrected by {_CORRECTED_BY.get(state.late, state.late)}"


def corrections_words(manifest: Manifest) -> list[dict[str, Any]]:
    """The corrections that the state holds, by name, and which records each put in and took out."""
    return [{"name": name, **_correction(correction)} for name, correction in manifest.corrections.items()]


def _correction(correction: Correction) -> dict[str, Any]:
    first, last = correction.panes
    panes = "" if first < 0 else f", in the panes from {utc_text(first)} to {utc_text(last)}"
    panes = f", in the pane {utc_text(first)}" if first == last >= 0 else panes
    text = f"{count_text(correction.added, 'record')} added, {correction.removed:,} removed{panes}"
    text += f", partly refused by {', '.join(correction.refused)}" if correction.refused else ""
    return {"checkpoint": correction.checkpoint, "added": correction.added, "removed": correction.removed, "text": text}


def cut(text: str, length_max: int) -> str:
    """The text; if it is longer than ``length_max``, that much of it, and an ellipsis."""
    return text if len(text) <= length_max else f"{text[:length_max]}\N{HORIZONTAL ELLIPSIS}"


def _time(value: datetime.datetime) -> str:
    whole, point, part = str(value).removesuffix("+00:00").partition(".")
    part = part.removesuffix("000") if len(part) == 6 else part
    return whole + point + part + ("Z" if value.tzinfo else "")


def kind_of(type_: pa.DataType) -> str:
    """How a column is set and drawn: number, time, text, flag, list, struct."""
    if pa.types.is_boolean(type_):
        return "flag"
    if pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_):
        return "number"
    if pa.types.is_temporal(type_):
        return "time"
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return "list"
    if pa.types.is_struct(type_) or pa.types.is_map(type_):
        return "struct"
    return "text"


def columns_of(schema: pa.Schema) -> list[dict[str, str]]:
    """The columns of a table, for its head."""
    return [{"name": field.name, "type": str(field.type), "kind": kind_of(field.type)} for field in schema]
