"""A pipeline is a value: sources, a task, sinks and a checkpoint. An engine runs it, any number of times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from persistent.checkpoint.as_of import checkpoint_as_of
from persistent.checkpoint.copies import checkpoint_at, read_while_running
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Retention, check_name
from persistent.checkpoint.output_parts import Correction
from persistent.checkpoint.set_aside import read_aside
from persistent.checkpoint.successor import Entry
from persistent.codec.documents import canonical_json
from persistent.connect.files.source import FileSource
from persistent.connect.memory import MemorySource
from persistent.connect.promises import Guarantee
from persistent.connect.sink import Sink
from persistent.connect.source import Source
from persistent.driver.commit import first_manifest
from persistent.driver.correction import Asked, correct
from persistent.driver.evolution import Evolution, Evolutions, checked_evolutions, checked_names
from persistent.driver.naming import (
    check_every_destination,
    check_not_read_back,
    check_reach,
    checked_job_name,
    checked_late_sink,
    guarantee_of_job,
    named_sinks,
    named_sources,
    sinks_by_state,
)
from persistent.driver.open_job import Driver
from persistent.driver.options import Options, check_choices, checked_ms, positive_ms
from persistent.driver.report import Idle, RunReport, StepReport
from persistent.driver.same_job import check_same_node, chosen_node
from persistent.driver.start_from import start
from persistent.engines.embedded import chosen_engine
from persistent.engines.protocol import Engine
from persistent.errors import InvalidPipeline, PersistentError, explanation
from persistent.explain import Explanation
from persistent.explain.of_job import explained
from persistent.names import new_nonce
from persistent.notebook import frame_of, pipeline_html, plotted_history
from persistent.progress import AnyMetrics, Listeners, shown
from persistent.state.state import PersistentState
from persistent.storage.opening import is_proved, open_storage
from persistent.storage.protocol import Storage
from persistent.storage.subfolder import open_checkpoint
from persistent.task import dedupe as copies
from persistent.task.dedupe import Dedupe
from persistent.task.task import PersistentTask, check_task, named_states, node_name, task_name
from persistent.text.spelling import spelled
from persistent.time.clock import Duration, Instant, bare, instant_ms
from persistent.worker.job import Job, Node
from persistent.worker.requirements import process, say_where
from persistent.worker.state_tables import WHOLE, StatePart, empty_table, folded_tables


class Pipeline:
    """A source, a task, sinks and a checkpoint, to be run.

    ``source``: one, or a mapping of names to sources, all of which feed the task. ``checkpoint``: the URL of a
    folder for this pipeline alone. ``sink``: where windows go when they close: one, or a mapping of names to
    sinks, each of which receives all of them. Of a task with several states: by state, ``{"hourly": FileSink(...)}``,
    where a sink has the name of its state, or ``{"hourly": {"files": FileSink(...), "table": ...}}``. Without one the
    state is the only result, and a state with windows needs ``discard_closed=True``, which drops closed windows.
    ``late_sink``: where late records go, each once, besides ``late()``.
    ``step_rows``: exactly this many records of each source per step, so that steps depend on the input alone; by
    default a step takes about a second. ``on_error``: "stop" at a message for which the task raises, or write it as a
    "dead-letter". ``max_future``: a timestamp farther ahead of both the time of day and the clock is a dead letter.
    ``quiet_after``: if a run that follows finds no record in any source for this long, the clock moves on by the time
    that passes, so that the last windows close; None: it stands until a record comes. ``max_drift``: a partition that
    is farther ahead, in event time, of the slowest that has something to read waits, so that the state holds no more
    than that of it; None: each is read as far as it goes.
    ``require``: "exactly-once" refuses anything weaker. ``retention``: which checkpoints to keep, by default the newest
    ten.
    ``start_from``: the URL of a savepoint or checkpoint of the same pipeline. An empty checkpoint begins as a copy of
    it, and is a job of its own from then on. ``unsafe_single_driver``: accept a store that is not proved to create
    files atomically; you must never run two drivers. ``evolve``: how to migrate the existing state to a changed monoid;
    the next run does it, once; of a task with several states, by state. ``allow_dropped``: former names of the task,
    or "task/state" of a state that it no longer has, whose state is deleted. ``dedupe``: how to
    recognise copies of a record that its sender has sent again, in every source or by the name of the source; each
    counts once. ``name``: what the page, metrics, logs and reports call the job, by default an end of the URL.

    >>> from monoids import Count
    >>> from persistent import MemorySource, NonWindowState
    >>> class Visits(PersistentTask):
    ...     key = "page"
    ...     def persistent_state(self): return NonWindowState(Count())
    ...     def process_message(self, state, message): state.update(message.timestamp, 1)
    >>> rows = [{"ts": 1, "page": "a"}, {"ts": 2, "page": "b"}, {"ts": 3, "page": "a"}]
    >>> source = MemorySource(rows, timestamp="ts")
    >>> pipeline = Pipeline(source=source, task=Visits(), checkpoint="memory://doctest-visits")
    >>> pipeline.run(engine="embedded").rows
    3
    >>> sorted(pipeline.state().to_pylist(), key=str)
    [{'page': 'a', 'value': 2}, {'page': 'b', 'value': 1}]
    """

    @spelled
    def __init__(
        self,
        *,
        source: Source | Mapping[str, Source],
        task: PersistentTask,
        checkpoint: str | Storage,
        sink: Sink | Mapping[str, Sink] | None = None,
        late_sink: Sink | None = None,
        discard_closed: bool = False,
        step_rows: int | None = None,
        on_error: str = "stop",
        max_future: Duration = "1 day",
        quiet_after: Duration | None = None,
        max_drift: Duration | None = None,
        require: str | None = None,
        retention: Retention | None = None,
        unsafe_single_driver: bool = False,
        start_from: str | Storage | None = None,
        evolve: Evolution | Evolutions | None = None,
        allow_dropped: Sequence[str] = (),
        dedupe: Dedupe | Mapping[str, Dedupe] | None = None,
        name: str | None = None,
    ) -> None:
        self.name = checked_job_name(name)
        self.sources = named_sources(source)
        check_choices(step_rows, on_error, require)
        self.dedupe = copies.checked(dedupe, self.sources)
        self.task = task
        declared = check_task(task)
        self._states, self._named = named_states(declared), isinstance(declared, Mapping)
        _check_recordable(task, self._states)
        self.sinks, self._takes = sinks_by_state(sink, self._states) if self._named else (named_sinks(sink), {})
        self.late_sink = checked_late_sink(late_sink, self.sinks)
        self.discard_closed = discard_closed
        self.storage = open_storage(checkpoint, unsafe_single_driver=unsafe_single_driver, option="checkpoint")
        self.on_error = on_error
        check_every_destination(self.job())
        self.unsafe_single_driver = unsafe_single_driver and not is_proved(self.storage)
        self.step_rows = step_rows
        self.max_future_ms = checked_ms(max_future, "max_future")
        self.quiet_after_ms = positive_ms(quiet_after, "quiet_after")
        self.max_drift_ms = positive_ms(max_drift, "max_drift")
        self._bare = bare(max_future=max_future, quiet_after=quiet_after, max_drift=max_drift)
        self.require = require
        if retention is not None and not isinstance(retention, Retention):
            raise InvalidPipeline(f"retention={retention!r}: give Retention(last=10, hourly=24, daily=7), or None")
        self.retention = retention or Retention()
        self.start_from = None if start_from is None else open_checkpoint(start_from, option="start_from")
        self.evolve = checked_evolutions(evolve, declared)
        self.allow_dropped = checked_names(allow_dropped, "allow_dropped")
        ours = [node_name(task, name) for name in self._states]
        if {*ours} & {*self.allow_dropped}:
            what = "the task" if ours == [task_name(task)] else "a state"
            raise InvalidPipeline(f"allow_dropped={allow_dropped!r} names {what} of this pipeline: omit it")
        guarantee = self.guarantee()
        if require == "exactly-once" and not guarantee.startswith(require):
            raise InvalidPipeline(f"require={require!r}, but this pipeline is {guarantee}")

    def __repr__(self) -> str:
        source, sink = _one_or_all(self.sources), _one_or_all(self.sinks)
        return f"Pipeline({source!r} -> {type(self.task).__name__} -> {sink!r}, checkpoint={self.storage.url!r})"

    def _repr_html_(self) -> str:
        """What a notebook shows: the parts, and the newest checkpoint."""
        return pipeline_html(self.job(), self.guarantee())

    def plot(self) -> Any:
        """The kept checkpoints as an Altair chart: rows a second, the lag of the clock, records set aside, the size of
        the state. The job can run, or not. NoCheckpoint, or UnknownCheckpoint if fewer than two are kept."""
        return plotted_history(self.storage)

    @property
    def source(self) -> Source:
        """The only source. InvalidPipeline if the pipeline has several: ``sources`` has them by name."""
        if len(self.sources) != 1:
            raise InvalidPipeline(f"this pipeline has the sources {', '.join(self.sources)}: use pipeline.sources")
        (source,) = self.sources.values()
        return source

    @property
    def sink(self) -> Sink | None:
        """The only sink, or None. InvalidPipeline if the pipeline has several: ``sinks`` has them by name."""
        if len(self.sinks) > 1:
            raise InvalidPipeline(f"this pipeline has the sinks {', '.join(self.sinks)}: use pipeline.sinks")
        return [*self.sinks.values(), None][0]

    @property
    def all_sinks(self) -> dict[str, Sink]:
        """The sinks of results by name, and that of late records."""
        return self.job().all_sinks

    def guarantee(self) -> Guarantee:
        """The guarantee of this pipeline, and why: the weakest of sources, checkpoint and sinks. ``parts`` has the
        promise of each: "source", "checkpoint", "sink", "late_sink"; with several, "source clicks", "source orders"."""
        return guarantee_of_job(self.job(), proved=not self.unsafe_single_driver)

    def explain(self, *, parallelism: int | None = None) -> Explanation:
        """What a run will do, in words: print it. ``parallelism``: how many items its engine runs at once; by default
        one for each processor. Reads nothing but the newest manifest of the checkpoint."""
        options = Options(
            self.step_rows,
            max_future_ms=self.max_future_ms,
            quiet_after_ms=self.quiet_after_ms,
            max_drift_ms=self.max_drift_ms,
            evolve=self.evolve,
            dropped=self.allow_dropped,
        )
        return explained(self.job(), options, self.guarantee(), parallelism, start_from=self.start_from, name=self.name)

    def warnings(self) -> tuple[str, ...]:
        """Likely mistakes that the sources found in their files or queues."""
        return tuple(warning for source in self.sources.values() for warning in source.warnings())

    @spelled
    def run(
        self,
        spark: Any = None,
        *,
        engine: str | Engine | None = None,
        follow: bool = False,
        end_of_input: bool = False,
        on_step: Callable[[StepReport], None] | None = None,
        on_idle: Callable[[Idle], None] | None = None,
        progress: bool | None = None,
        metrics: AnyMetrics = None,
    ) -> RunReport:
        """Process the available input exactly once, from where the last run ended.

        ``spark``: a SparkSession; without session and ``engine``, the active session, otherwise this process.
        ``follow``: wait for more input until SIGINT or SIGTERM. ``end_of_input``: the input is complete, so close every
        window. ``on_step`` is called with the report of each step; ``on_idle`` is called repeatedly while a followed
        source has nothing new. ``progress``: True shows figures while it runs, in the cell of a notebook or on the
        standard error; None in a notebook only. ``metrics``: an endpoint for Prometheus at "HOST:PORT",
        ``PrometheusMetrics``, ``OtelMetrics``, or several. SIGINT, the interrupt of a notebook, ends the run after the
        current step, a second one at once. Raises the errors of ``persistent.errors``.
        """
        if follow and end_of_input:
            raise InvalidPipeline(
                "follow=True waits for more input, end_of_input=True declares the input complete: choose one"
            )
        listeners = Listeners(progress, follow, on_step, on_idle)
        # First, because it accesses no store: an unreachable one can take minutes to fail.
        chosen = self._engine(spark, engine)
        check_not_read_back(self.sources, self.all_sinks, self.storage)
        options = Options(
            self.step_rows,
            follow,
            end_of_input,
            self.max_future_ms,
            self.retention,
            listeners.step,
            listeners.idle,
            self.evolve,
            self.allow_dropped,
            self._bare,
            self.quiet_after_ms,
            self.max_drift_ms,
        )
        try:
            with shown(metrics, self.storage.url, chosen.name, self.name) as boards, listeners:
                if self.start_from is not None:
                    first = first_manifest(self.job(), new_nonce())
                    start(self.storage, first, self.start_from, self.evolve, self.allow_dropped)
                report = Driver(self.job(), chosen, replace(options, observers=boards)).run()
            return replace(report, notes=(*report.notes, *self.warnings()), name=self.name or "")
        except PersistentError as error:
            if not getattr(chosen, "is_local", True):
                say_where(error, f"the driver, {process()}")
            error.add_note(explanation(error))
            raise
        finally:
            if chosen is not engine:
                chosen.stop()
            self._close()

    @spelled
    def correct(
        self,
        *,
        name: str,
        add: Any = None,
        remove: Any = None,
        spark: Any = None,
        engine: str | Engine | None = None,
        take_over: bool = False,
    ) -> Correction:
        """Put records into the state, or take some out of it, after the fact, in a checkpoint of its own; returns its
        account. The same ``name`` again changes nothing, and with other records is Refused. Of several states, each
        record goes into those that take it; the account names the others.

        ``add``, ``remove``: the path of a file, mappings or messages, an Arrow table, or a source that is read whole.
        The task processes each record, or nothing is changed: Refused for a window that is final, or a key that has
        expired, if no other state takes it, and ``remove`` for a monoid that is no Group. What was published is
        published anew, as for late records and changes. ``take_over``: even if a driver may run. Raises StillRunning.
        """
        check_not_read_back(self.sources, self.all_sinks, self.storage)
        chosen = self._engine(spark, engine)
        options = Options(max_future_ms=self.max_future_ms, retention=self.retention)
        try:
            return correct(self.job(), chosen, options, Asked(name, add, remove, take_over, MemorySource, FileSource))
        finally:
            if chosen is not engine:
                chosen.stop()
            self._close()

    def state(
        self, spark: Any = None, *, name: str | None = None, at: int | None = None, as_of: Instant | None = None
    ) -> Any:
        """The folded state as an Arrow table in output columns; with a SparkSession, as a DataFrame.

        A state with windows shows every non-empty open window. ``name``: of a task with several states, which one.
        ``at``: the state of that kept checkpoint. ``as_of``: the state before that clock (ms since the epoch, a
        datetime or ISO 8601, UTC without a zone), which must lie on the state's grid and within its ``history`` and the
        kept checkpoints. The job can run meanwhile.
        """
        if at is not None and as_of is not None:
            raise InvalidPipeline("at= names a checkpoint, as_of= a clock: give one of them")
        node = chosen_node(self.job(), name)
        table = self._state_table(node, at) if as_of is None else self._table_as_of(node, instant_ms(as_of, "as_of"))
        return table if spark is None else spark.createDataFrame(table)

    def state_frame(self, library: str = "pandas", **which: Any) -> Any:
        """The state as a DataFrame of "pandas" or "polars", with exactly its values; ``which``: the options of
        ``state``."""
        return frame_of(self.state(**which), library)

    def late(self) -> pa.Table:
        """The late records: where each was read (partition, file, ordinal, offset), its ``timestamp`` (ms), ``reason``
        and ``value``, and the ``checkpoint`` whose step found it late."""
        return read_aside(self.storage, "late")

    def dead_letters(self) -> pa.Table:
        """The records that could not be processed: as ``late``, with ``data``, the bytes that could not be decoded."""
        return read_aside(self.storage, "dead")

    def job(self) -> Job:
        """The job, as drivers and operations use it."""
        letters = self.on_error == "dead-letter"
        parts = self.task, self._states, *self._parts()
        return Job(
            *parts, letters, self.discard_closed, self.dedupe, self.late_sink, takes=self._takes, named=self._named
        )

    def _close(self) -> None:
        for source in self.sources.values():
            source.close()
        for sink in self.all_sinks.values():
            sink.close()

    def _parts(self) -> tuple[Mapping[str, Source], Mapping[str, Sink], Storage]:
        return self.sources, self.sinks, self.storage

    def _state_table(self, node: Node, at: int | None) -> pa.Table:
        log = Log(self.storage)
        newest = log.newest() if at is None else None
        if at is None and (newest is None or newest.manifest.base == 0):
            return empty_table(node, None)
        return read_while_running(log, lambda: checkpoint_at(log, at), lambda entry: self._table(node, entry, WHOLE))

    def _table_as_of(self, node: Node, clock: int) -> pa.Table:
        log, part = Log(self.storage), StatePart(as_of=clock)

        def find() -> Entry:
            return checkpoint_as_of(log, node.task, {node.name: node.state}, clock)

        return read_while_running(log, find, lambda entry: self._table(node, entry, part))

    def _table(self, node: Node, entry: Entry, part: StatePart) -> pa.Table:
        manifest = entry.manifest
        check_same_node(manifest, first_manifest(self.job(), ""), node.id, self.storage.url)
        return pa.concat_tables([empty_table(node, manifest), *folded_tables(node, manifest, part)])

    def _engine(self, spark: Any, engine: str | Engine | None) -> Engine:
        chosen = chosen_engine(spark, engine)
        if not chosen.in_process:
            check_reach(chosen, self.sources, self.all_sinks, self.storage)
        return chosen


def _one_or_all(parts: Mapping[str, Any]) -> Any:
    return parts if len(parts) > 1 else [*parts.values(), None][0]


def _check_recordable(task: PersistentTask, states: Mapping[str, PersistentState]) -> None:
    """InvalidPipeline if a manifest cannot hold the name or a fingerprint."""
    try:
        check_name(task_name(task), "the name of the task")
        for state in states.values():
            canonical_json(state.fingerprint())
    except (TypeError, ValueError) as error:
        raise InvalidPipeline(
            f"{type(task).__name__}: {error}. Give the task a plain name, and the monoid parameters() of text and "
            "integers"
        ) from error
