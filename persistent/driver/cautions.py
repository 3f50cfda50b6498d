"""A caution is a sentence about a mistake that is likely but allowed: in a task, or in the fate of its records.

Why a run has published nothing, and when it would publish something.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from persistent.checkpoint.manifest import Manifest
from persistent.connect.formats.schemas import from_json, is_inferred_double
from persistent.connect.sink import Sink
from persistent.connect.source import Reached, Source
from persistent.task.dedupe import Dedupe
from persistent.task.task import PersistentTask, key_names
from persistent.text.figures import clock_text, duration_text, utc_text
from persistent.time.session_window import SessionWindow
from persistent.time.window import Window
from persistent.worker.job import Job

FOLLOWS = (
    'Give NonWindowState emit="change", to publish in each step what it has changed, or early="1 min", now and then; '
    "or run with --end-of-input (end_of_input=True), without --follow"
)
"""What to do about a state that a run which follows never publishes."""
ROWS_MIN = 1_000
_NAMES_MAX = 10
_SECONDS = 631_152_000, 4_102_444_800
"""The years 1990 and 2100 in seconds since 1970."""
_AHEAD = (
    "If one record is far ahead of the others, 'persistent clock PIPELINE --find' names it, 'persistent clock "
    "--set-back' repairs the clock, and max_future= keeps out what is further ahead of the time of day"
)


def of_job(job: Job, bare: Mapping[str, int]) -> Iterator[str]:
    """Likely mistakes that are visible before anything is read. For the first run only: a job that has begun this way
    means it. ``bare``: durations of the run without a unit."""
    name = type(job.task).__name__
    if not _declares_key(job.task):
        yield (
            f'{name} declares no key, so there is one state for all records: name a field, key = "page"; or give '
            "key = None, if that is intended"
        )
    for sink in job.all_sinks.values():
        yield from _files_of_others(sink)
    states = [node.state for node in job.nodes.values()]
    for window in (state.window for state in states):
        if isinstance(window, SessionWindow) and window.bare:
            yield _seconds_meant(f"{window.bare} has a gap of", window.gap_ms)
        elif isinstance(window, Window) and window.bare:
            yield _seconds_meant(f"{window.bare} is windows of", window.size_ms)
        if isinstance(window, Window) and window.every_ms > window.size_ms:
            yield _gaps(window)
    of_sources, of_states = (source.bare for source in job.sources.values()), (state.bare for state in states)
    for durations in (*of_sources, *of_states, bare):
        for option, duration in durations.items():
            yield _seconds_meant(f"{option}={duration} is", duration)


def of_follow(job: Job) -> Iterator[str]:
    """The states that a run which follows its sources never publishes."""
    states = job.nodes
    for state in states.values():
        if state.sinks and state.state.window is None and not state.state.lateness.of_changes:
            of = f" {state.name!r}" if len(states) > 1 else ""
            yield (
                f"a run that follows publishes nothing of the state{of}: without windows it is published at the end of "
                f"the input. {FOLLOWS}"
            )


def _files_of_others(sink: Sink) -> Iterator[str]:
    """What is in the folder of a job that has published nothing. Results of an earlier job are refused."""
    listed = () if sink.storage is None else sink.storage.list("")
    names = sorted(name for name in listed if not name.startswith(("_", ".")))
    if names:
        count = "a file" if len(names) == 1 else f"{len(names):,} files"
        yield (
            f"the folder of {sink!r} holds {count} already, of others, such as {names[0]}: who reads the folder reads "
            "them with the results. Give the sink a folder of its own, or remove them"
        )


def of_records(rows: int, late: int, dead: int, first_dead: str, *, ended: bool) -> Iterator[tuple[str, str]]:
    """Each fate, "dead" or "late", of at least half of the records, with a sentence; during a run, only once it
    has read enough records to judge.

    >>> dict(of_records(10, 0, 10, "no time", ended=True))["dead"][:59]
    'WARNING: all 10 records read became dead letters and count '
    """
    if not rows or not (ended or rows >= ROWS_MIN):
        return
    if 2 * dead >= rows:
        yield (
            "dead",
            f"WARNING: {_share(dead, rows)} became dead letters and count nowhere, the first of them: {first_dead}. "
            "To have them count, fix that and read the source again, into a new checkpoint and sink. 'persistent "
            "dead-letters' and pipeline.dead_letters() show them",
        )
    if 2 * late >= rows:
        yield (
            "late",
            f"{_share(late, rows)} came too late, after their windows had closed, or their time to live had passed. If "
            "records come out of order, give the disorder, max_out_of_orderness=; ordered=True is for files in time "
            f"order. {_AHEAD}. 'persistent late' and pipeline.late() show them",
        )


def of_refused(rows: int, late: int, refused: Mapping[str, int], *, ended: bool) -> Iterator[tuple[str, str]]:
    """Each of several states that has refused at least half of the records, although fewer were late, because another
    state took them. ``refused``: the number of refused records, by state.

    >>> [(what, text[:48]) for what, text in of_refused(10, 1, {"hourly": 6, "total": 1}, ended=True)]
    [('late in hourly', '6 of 10 records read came too late for the state')]
    """
    if not rows or 2 * late >= rows or not (ended or rows >= ROWS_MIN):
        return
    for name, count in refused.items():
        if 2 * count >= rows:
            yield (
                f"late in {name}",
                f"{_share(count, rows)} came too late for the state {name!r} and are missing there, although another "
                "state has taken them: they are partly late. If records come out of order, give the disorder, "
                f"max_out_of_orderness=. {_AHEAD}. 'persistent late' and pipeline.late() show them",
            )


def of_ignored(ignored: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The fields that have no column, each with the first file that has it.

    >>> ((_, text),) = of_ignored({"b": "2.csv", "c": "3.csv"})
    >>> text[:81]
    "the fields 'b' (first in 2.csv), 'c' (first in 3.csv) are not read, as the column"
    """
    if ignored:
        named = [f"{name!r} (first in {file})" for name, file in [*ignored.items()][:_NAMES_MAX]]
        more = f" and {len(ignored) - len(named):,} more" if len(ignored) > len(named) else ""
        fields = "field" if len(ignored) == 1 else "fields"
        yield (
            "ignored",
            f"the {fields} {', '.join(named)}{more} {'is' if len(ignored) == 1 else 'are'} not read, as the columns "
            "were inferred from the first records, which have no such field. To read it, give all columns their types "
            "with schema=, which applies to later records, and of CSV and Parquet to files that have all of them",
        )


def of_columns(job: Job, manifest: Manifest, valued: Mapping[str, Collection[str]]) -> Iterator[tuple[str, str]]:
    """The columns that a source of JSON declares, and that none of its records has. ``valued``: by source, the columns
    in which a record has a value."""
    for source, columns in valued.items():
        recorded = manifest.sources[source].recorded
        if not columns or recorded.get("format") != "json" or job.sources[source].infers:
            continue
        if empty := [repr(name) for name in from_json(recorded["schema"]).names if name not in columns]:
            yield (
                f"empty {source}",
                f"no record of source {source!r} has a field {', '.join(empty[:_NAMES_MAX])}, so it is null in all. "
                "Correct its name in schema=, unless later records have it",
            )


def of_keys(task: PersistentTask, source: Source, recorded: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The key fields of a CSV source whose type was inferred as that of numbers with fractions. ``recorded``: the
    record of the source."""
    fields = () if isinstance(task.key, Mapping) else key_names(task)
    for column in from_json(recorded["schema"]) if source.text_columns(recorded) else ():
        if column.name in fields and is_inferred_double(column):
            yield (
                f"key {column.name}",
                f"the key {column.name!r} is a number, as each of its first values in CSV can be one: 1.10 and 1.1 are "
                "one key, and 12E4 and 120000. If it is text, give all columns their types with schema=, as in "
                f"schema={{{column.name!r}: 'string', ...}}, in a new checkpoint and sink",
            )


def of_times(largest: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Each source whose latest record, by name, has a time that a coarser unit would move to the present.

    >>> ((what, text),) = of_times({"clicks": 1_700_000_000, "old": 86_400_000, "new": 1_700_000_000_000})
    >>> what, text[:63]
    ('unit clicks', "the latest record of source 'clicks' is of 1970-01-20 16:13:20Z")
    """
    for name, latest in largest.items():
        if _SECONDS[0] <= latest <= _SECONDS[1]:
            yield (
                f"unit {name}",
                f"the latest record of source {name!r} is of {utc_text(latest)}, and would be of "
                f'{utc_text(1_000 * latest)} if its timestamps counted seconds: then give timestamp_unit="s" (or "ms" '
                'where it is "us", "us" where it is "ns"), in a new checkpoint and sink',
            )


def of_copies(
    dedupe: Mapping[str, Dedupe],
    rows: int,
    duplicates: int,
    silence_ms: Mapping[str, int],
    behind_ms: Mapping[str, int],
    *,
    ended: bool,
) -> Iterator[tuple[str, str]]:
    """Cautions that at least half of the records were copies, that an origin was silent for more than half of
    ``within``, and that a copy arrived more than half of it behind the clock. The mappings are by source.

    >>> hourly = {"orders": Dedupe(origin="a", sequence="n", within="1 h")}
    >>> [what for what, _ in of_copies(hourly, 10, 5, {"orders": 1_800_001}, {"orders": 1_800_001}, ended=True)]
    ['copies', 'silence', 'behind']
    """
    if dedupe and rows and (ended or rows >= ROWS_MIN) and 2 * duplicates >= rows:
        is_numbered = any(rule.epoch is None and not rule.by_ids for rule in dedupe.values())
        advice = ". If a sender restarts its numbers, give dedupe its epoch=" if is_numbered else ""
        yield "copies", f"{_share(duplicates, rows)} were copies, and did not count{advice}"
    for name, rule in dedupe.items():
        where = f" of {name}" if len(dedupe) > 1 else ""
        if 2 * (silent := silence_ms.get(name, 0)) > rule.within_ms:
            yield (
                f"silence{where}",
                f"an origin{where} was silent for {silent:,} ms, more than half of within={rule.within!r} of dedupe. "
                "Records that it sends again after a longer silence cannot be judged, and are late: make within= "
                "more than twice the longest silence",
            )
        if 2 * (behind := behind_ms.get(name, 0)) > rule.within_ms:
            yield (
                f"behind{where}",
                f"a copy{where} arrived {behind:,} ms behind the clock, more than half of within={rule.within!r} of "
                "dedupe. Later copies cannot be judged and are late: make within= more than twice the time that a "
                "sender needs to send again",
            )


def _gaps(window: Window) -> str:
    size, every, gap = map(duration_text, (window.size_ms, window.every_ms, window.every_ms - window.size_ms))
    return (
        f'sliding("{size}", every="{every}") leaves gaps of {gap}, and records in them count nowhere: if they shall '
        f'count, give sliding("{every}", every="{size}")'
    )


def _seconds_meant(what: str, duration: int) -> str:
    return (
        f'{what} {duration} ms, as a bare number is milliseconds: give "{duration} s" if seconds are meant, '
        f'otherwise "{duration} ms"'
    )


def _share(part: int, rows: int) -> str:
    return f"{'all' if part == rows else f'{part:,} of'} {rows:,} records read"


def _declares_key(task: PersistentTask) -> bool:
    """Whether the user declares a key, even ``key = None``."""
    classes = type(task).__mro__[: type(task).__mro__.index(PersistentTask)]
    return any("key" in vars(owner) for owner in (task, *classes))


def of_skipped(lost: Mapping[tuple[str, str], int]) -> Iterator[tuple[str, str]]:
    """The positions that each source had lost before they were read. ``lost``: how many, by source and partition.

    >>> [text[:70] for _, text in of_skipped({("clicks", "0"): 3})]
    ["WARNING: 3 positions of source 'clicks' were skipped and count nowhere"]
    """
    for name in sorted({source for source, _ in lost}):
        counts = {partition: count for (source, partition), count in sorted(lost.items()) if source == name}
        each = ", ".join(f"{count:,} of {partition}" for partition, count in counts.items())
        yield (
            f"skipped {name}",
            f"WARNING: {sum(counts.values()):,} positions of source {name!r} were skipped and count nowhere, as it no "
            f'longer has them: {each}. To have that stop the run, give on_gap="fail", and keep records for longer than '
            "the job may be stopped",
        )


_COMPLETE = "if the input is complete, run with --end-of-input (from Python end_of_input=True)"
_NO_UPDATE = (
    "the task has updated no window: process_message adds what a message contributes with state.update(timestamp, "
    "value), itself and not in a generator that nobody reads"
)
_STATE = "'persistent state' and pipeline.state() show it"


@dataclass(frozen=True)
class Ended:
    """The end of a run. ``first_end``: the end of the first open window; ``ended``: whether the input was declared
    complete; ``reached``: how far the source has been read, if known; ``of_changes``: whether each step publishes what
    it has changed; ``of_sessions``: whether its windows are sessions, which messages make longer; ``early``: whether
    it is published early."""

    rows: int
    late: int
    dead: int
    has_sink: bool
    has_windows: bool
    open_windows: int
    first_end: int | None
    clock_ms: int
    ended: bool
    reached: Reached | None
    of_changes: bool = False
    of_sessions: bool = False
    early: bool = False


def why(run: Ended) -> str:
    """Why the run has published nothing.

    >>> why(Ended(9, 5, 4, True, True, 0, None, 0, False, None))
    'all 9 records read were set aside (5 late, 4 dead letters)'
    """
    reason = _reason(run)
    return reason if run.rows else f"there was nothing new to read{_of_files(run.reached)}; {reason}"


def _reason(run: Ended) -> str:
    if not run.has_sink:
        kept = "only its open windows are kept" if run.has_windows else "the state is the result"
        return f"the pipeline has no sink, {kept}: {_STATE}"
    if run.rows and run.late + run.dead >= run.rows:
        return f"all {run.rows:,} records read were set aside ({run.late:,} late, {run.dead:,} dead letters)"
    if run.of_changes:
        return "nothing has changed since it was published"
    if not run.has_windows:
        if run.ended:
            return "no key has changed since its value was published"
        if run.early:
            return f"a state without windows is published early once the clock has passed a multiple; {_COMPLETE}"
        return f"a state without windows is published at the end of the input: {_COMPLETE}"
    if not run.open_windows:
        return "no window is open" if not run.rows else _NO_UPDATE
    return f"{_open(run)}; {_waits(run)}"


def _open(run: Ended) -> str:
    """Which windows wait for the clock."""
    end = "" if run.first_end is None else utc_text(run.first_end)
    if run.of_sessions:
        return f"sessions are open, and none closes before the clock reaches {end}"
    if run.open_windows == 1:
        return f"1 window is open, until the clock reaches {end}"
    return f"{run.open_windows:,} windows are open, the first until the clock reaches {end}"


def _waits(run: Ended) -> str:
    """The event that the clock waits for."""
    stands = f"it is at {clock_text(run.clock_ms)}" if run.clock_ms else "it has not begun"
    if run.reached is not None and not run.reached.is_all:
        return f"{stands}, and waits for listed files that are not read yet (ordered=True: for none)"
    return f"{stands} until later records arrive; {_COMPLETE}"


def _of_files(reached: Reached | None) -> str:
    if reached is None or not reached.files:
        return ""
    return f", {reached.files_done:,} of {reached.files:,} files were read before"
