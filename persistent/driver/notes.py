"""Notes collect what a run reports: sums over its steps, cautions, and the report at the end."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator

from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.output_parts import SinkPart
from persistent.checkpoint.parts import NodePart
from persistent.checkpoint.successor import Entry
from persistent.connect.source import Reached
from persistent.driver import cautions
from persistent.driver.cautions import Ended, why
from persistent.driver.report import Idle, RunReport, Series, SeriesPoint, StepReport
from persistent.driver.results import Results
from persistent.driver.same_job import dedupe_notes
from persistent.driver.workbench import NodeBench, Workbench
from persistent.names import STATE, is_of_several, state_name
from persistent.text.figures import utc_text
from persistent.time.clock import later_of, monotonic_s
from persistent.time.lateness import CHANGE
from persistent.time.session_window import SessionWindow
from persistent.worker.job import LateWindows
from persistent.worker.judge_records import added

logger = logging.getLogger("persistent.driver")

_SUMMED = (
    "rows",
    "late",
    "dead",
    "outputs",
    "discarded",
    "checkpoint_bytes",
    "set_aside",
    "duplicates",
    "corrected",
    "expired",
)


_LOGGED: set[tuple[str, str]] = set()
"""The likely mistakes in pipelines that this process has logged, each with its task. They are logged once, because they
stay the same from run to run; what happens to records is logged in each run. The report of a run has all of them."""


class Notes:
    """``steps``: the number of completed steps."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self.steps = 0
        self._totals: Counter[str] = Counter()
        self._silence_ms: dict[str, int] = {}
        self._behind_ms: dict[str, int] = {}
        self._notes: dict[str, str] = {}
        self._logged: list[str] = []
        self._first_dead = ""
        self._ignored: dict[str, str] = {}
        self._valued: dict[str, frozenset[str]] = {}
        self._late_windows: dict[str, LateWindows] = {}
        self._expired_in: Counter[str] = Counter()
        self._idle: Idle | None = None
        self._is_new = False
        self._skipped_before: Counter[tuple[str, str]] = Counter()
        self._series, self._began_s = Series(), monotonic_s()

    def begin(self, manifest: Manifest) -> None:
        """Log likely mistakes before anything is read."""
        self.note_sink(manifest)
        self._is_new = manifest.base == 0
        self._skipped_before = _skipped(manifest)
        for what, text in dedupe_notes(manifest, self._bench.job.dedupe):
            self.note(what, text)
        self._note_zone(manifest)
        if manifest.not_after is not None:
            self.note(
                "not after",
                f"timestamps after {utc_text(manifest.not_after)} are dead letters, since the clock was set back. Once "
                "the record that had set it ahead is read again, lift the limit: 'persistent clock "
                f"{self._bench.job.storage.url} --not-after none'",
            )
        for text in cautions.of_job(self._bench.job, self._bench.options.bare) if manifest.base == 0 else ():
            self.note(text, text, once=True)
        for text in cautions.of_follow(self._bench.job) if self._bench.options.follow else ():
            self.note(text, text)

    def remember(self, report: StepReport, results: Results, committed: Manifest) -> None:
        """Add a completed step."""
        self.steps += 1
        self._idle = None
        self._first_dead = self._first_dead or results.first_dead
        self._ignored = {**results.ignored, **self._ignored}
        for source, columns in results.valued.items():
            self._valued[source] = self._valued.get(source, frozenset()) | columns
        self._totals.update({name: getattr(report, name) for name in _SUMMED})
        self._silence_ms = later_of(self._silence_ms, report.silence_ms)
        self._behind_ms = later_of(self._behind_ms, report.behind_ms)
        for name, missed in report.late_windows.items():
            self._late_windows[name] = added([self._late_windows.get(name, {}), missed])
        self._expired_in.update(report.expired_in)
        self._series.add(_point(report, committed, monotonic_s() - self._began_s))
        logger.debug("step %s", report)
        self._note_fates(ended=False)
        for what, text in cautions.of_skipped(_skipped(committed) - self._skipped_before):
            self.note(what, text)
        if self._is_new:
            self._note_first(committed)
        for observer in self._bench.options.observers:
            observer.step(report, committed)
        if self._bench.options.on_step is not None:
            self._bench.options.on_step(report)

    def note(self, what: str, text: str, *, once: bool = False) -> None:
        """Log a note once, when it first arises; the report has its last text. ``once``: not in a later run of this
        task in this process either."""
        task = type(self._bench.job.task)
        known = (f"{task.__module__}.{task.__qualname__}", text)
        if what not in self._notes and not (once and known in _LOGGED):
            logger.warning("%s: %s", self._bench.job.storage.url, text.removeprefix("WARNING: "))
            self._logged.append(text)
        if once:
            _LOGGED.add(known)
        self._notes[what] = text

    def _note_fates(self, *, ended: bool) -> None:
        totals = self._totals
        fates = cautions.of_records(totals["rows"], totals["late"], totals["dead"], self._first_dead, ended=ended)
        counts = {name: sum(missed.values()) for name, missed in self._late_windows.items()}
        refused = {state_name(name): count for name, count in counts.items()} if len(self._bench.nodes) > 1 else {}
        partly = cautions.of_refused(totals["rows"], totals["late"], refused, ended=ended)
        dedupe, times = self._bench.job.dedupe, (self._silence_ms, self._behind_ms)
        seen = cautions.of_copies(dedupe, totals["rows"], totals["duplicates"], *times, ended=ended)
        for what, text in (*fates, *partly, *seen, *cautions.of_ignored(self._ignored)):
            self.note(what, text)

    def _note_first(self, committed: Manifest) -> None:
        """Note the sources whose times probably have another unit than declared, and keys that are probably text."""
        job = self._bench.job
        for name, source in committed.sources.items():
            for what, text in cautions.of_keys(job.task, job.sources[name], source.recorded):
                self.note(what, text)
        largest = {name: max(source.largest.values(), default=0) for name, source in committed.sources.items()}
        for what, text in cautions.of_times(largest):
            self.note(what, text)

    def note_sink(self, manifest: Manifest) -> None:
        """Note what a new or missing sink means for windows that close."""
        had, has = manifest.publishes, bool(self._bench.job.sinks)
        if self._has_windows and had is not None and had != has:
            closed = utc_text(manifest.clock.closed)
            self.note(
                "sink",
                f"the sink is new: windows that closed up to {closed} were discarded, later ones are published"
                if has
                else f"the sink is gone: windows that closed up to {closed} were published there, later ones are "
                "discarded",
            )
        self._note_names(manifest)
        if not has and any(part.owed for part in manifest.result_sinks().values()):
            text = f"the outputs that checkpoint {manifest.base} staged for it are discarded, unless it published them"
            self.note("staged", text)

    def note_states(self, manifest: Manifest) -> None:
        """Note the states that a task with several states has dropped, and its new states. ``manifest``: the checkpoint
        with the states before."""
        names = {*manifest.nodes, *self._bench.nodes}
        if not manifest.base or not is_of_several(names) or len({name.partition("/")[0] for name in names}) > 1:
            return
        for name, node in manifest.nodes.items():
            if name not in self._bench.nodes:
                closed = utc_text(node.clock.closed)
                windows = f", with its windows that were not closed, which end after {closed}"
                self.note(
                    f"state {name}",
                    f"the state {state_name(name)!r} is dropped{windows if node.has_windows else ''}",
                )
        for name in self._bench.nodes:
            if name not in manifest.nodes:
                clock = utc_text(manifest.clock.watermark)
                self.note(
                    f"state {name}",
                    f"the state {state_name(name)!r} is new: it begins at clock {clock}, and has nothing of what was "
                    "read before",
                )

    @property
    def _has_windows(self) -> bool:
        return any(bench.node.state.window is not None for bench in self._bench.nodes.values())

    def _note_zone(self, manifest: Manifest) -> None:
        """Note that the zone data of this machine have other rules than the windows of the checkpoint."""
        for id, bench in self._bench.nodes.items():
            kept, ours, name = manifest.nodes[id].zone, bench.own_zone, bench.node.name
            since = None if kept is None or ours is None or not manifest.base else kept.differs_from(ours)
            if since is not None and ours is not None:
                self.note(
                    "zone" if name == STATE else f"zone of {name}",
                    f"the zone data of this machine have other rules for {ours.name} from {utc_text(1_000 * since)} on "
                    "than the checkpoint: its windows that have begun keep their start, and end no earlier than they "
                    "would have; later ones follow this machine",
                )

    def _note_names(self, manifest: Manifest) -> None:
        """Note the sinks and sources that are new in a job that has begun."""
        job = self._bench.job
        for name in job.sinks if manifest.base and manifest.result_sinks() else ():
            if name not in manifest.sinks:
                self.note(f"sink {name}", f"the sink {name!r} is new: it receives {self._gets(manifest, name)}")
        self._note_late_sink(manifest)
        for name, part in manifest.result_sinks().items() if job.sinks else ():
            if name not in job.sinks:
                had = self._had(manifest, part)
                self.note(
                    f"sink {name}", f"the sink {name!r} is left out: {had}, receives no more, and cannot come back"
                )
        for name in job.sources if manifest.base else ():
            if name not in manifest.sources:
                of_old = self._of_old_records(name, utc_text(manifest.clock.watermark))
                self.note(f"source {name}", f"the source {name!r} is new: {of_old}")

    def _note_late_sink(self, manifest: Manifest) -> None:
        """Note that the sink of late records is new, or left out, in a job that has begun."""
        has, had = self._bench.job.late_sink is not None, any(part.late for part in manifest.sinks.values())
        if has and not had and manifest.base:
            self.note("late_sink", "the sink of late records is new: it receives what is late from now on")
        if had and not has:
            text = "the sink of late records is left out: it receives no more, and cannot come back"
            self.note("late_sink", text)

    def _gets(self, manifest: Manifest, sink: str) -> str:
        """What a new sink receives."""
        node = self._bench.job.node_of(sink)
        if node.state.lateness.of_changes:
            return "every key in the next step"
        if node.state.window is None:
            return "every key at the next end of the input"
        return f"the windows that end after {utc_text(manifest.nodes[node.id].final)}"

    def _had(self, manifest: Manifest, part: SinkPart) -> str:
        """What a sink that is left out has received. Its state may be dropped too."""
        for id, bench in self._bench.nodes.items():
            if id == part.node and bench.node.state.window is not None:
                return f"it has the windows that closed up to {utc_text(manifest.nodes[id].clock.closed)}"
        return "it has what was published"

    def _of_old_records(self, source: str, clock: str) -> str:
        """What becomes of the records of a new source that are behind the clock."""
        dedupe, states = self._bench.job.dedupe, self._bench.nodes.values()
        refused = {text: None for bench in states if (text := _refused(bench, clock))}
        taking = [bench.node.name for bench in states if not _refused(bench, clock)]
        late = [] if taking else [*refused]
        if source in dedupe:
            late.append(f"more than within={dedupe[source].within!r} of dedupe before {clock}")
        fates = [f"records {', and records '.join(late)}, are late"] if late else []
        if taking and refused:
            fates.append(f"records {', and records '.join(refused)}, count only in {', '.join(taking)}")
        return "; ".join(fates) or "it is read from its beginning, and its records count however old they are"

    def tell_idle(self, manifest: Manifest) -> None:
        """Report that there is nothing to do, with the same report until that changes."""
        if self._bench.options.on_idle is None:
            return
        if self._idle is None:
            windows = self._open_windows(manifest), self._first_end(manifest)
            self._idle = Idle(self._bench.reached(manifest), manifest.clock.watermark, *windows)
        self._bench.options.on_idle(self._idle)

    def _open_windows(self, manifest: Manifest) -> int:
        """The number of non-empty windows of all states that are not closed."""
        return sum(
            bench.run_cache.open_windows(manifest.nodes[id].runs, manifest.nodes[id].clock.closed)
            for id, bench in self._bench.nodes.items()
        )

    def _first_end(self, manifest: Manifest) -> int | None:
        """The clock at which the first of the windows that are not closed is published."""
        ends = (_first_end(bench, manifest.nodes[id]) for id, bench in self._bench.nodes.items())
        return min((end for end in ends if end is not None), default=None)

    def report(
        self, last: Entry, began: float, recovery_seconds: float, *, recovered: bool, stopped: bool
    ) -> RunReport:
        """The report at the end of the run."""
        manifest, totals = last.manifest, self._totals
        self._note_fates(ended=True)
        is_much = self._is_new or totals["rows"] >= cautions.ROWS_MIN
        for what, text in cautions.of_columns(self._bench.job, manifest, self._valued) if is_much else ():
            self.note(what, text)
        open_windows, reached = self._open_windows(manifest), self._bench.reached(manifest)
        return RunReport(
            engine=self._bench.engine.name,
            steps=self.steps,
            rows=totals["rows"],
            seconds=monotonic_s() - began,
            recovery_seconds=recovery_seconds,
            late=totals["late"],
            dead=totals["dead"],
            duplicates=totals["duplicates"],
            outputs=totals["outputs"],
            checkpoint=manifest.base,
            clock_ms=manifest.clock.watermark,
            checkpoint_bytes=totals["checkpoint_bytes"],
            open_windows=open_windows,
            recovered=recovered,
            ledger=dict(manifest.accounts),
            stopped=stopped,
            discarded=totals["discarded"],
            notes=(*self._notes.values(), *self._of_accounts(manifest)),
            unfolded=len(self._bench.unfolded.keys() & {run.name for run in manifest.state_runs()}),
            set_aside=totals["set_aside"],
            reached=reached,
            corrected=totals["corrected"],
            expired=totals["expired"],
            expired_in={id: count for id, count in self._expired_in.items() if count and len(self._bench.nodes) > 1},
            late_windows={name: missed for name, missed in self._late_windows.items() if missed},
            unpublished="" if totals["outputs"] else self._unpublished(manifest, reached),
            series=self._series.points(),
            logged=tuple(self._logged),
        )

    def _of_accounts(self, manifest: Manifest) -> Iterator[str]:
        """What the sources say about their accounts."""
        accounts = manifest.inputs
        for name, source in self._bench.job.sources.items():
            text = (
                source.account_text(manifest.sources[name].recorded, accounts[name])
                if name in manifest.sources and manifest.base
                else ""
            )
            if text:
                yield text

    def _unpublished(self, manifest: Manifest, reached: Reached | None) -> str:
        """Why nothing was published, of each state."""
        nodes = self._bench.nodes.items()
        reasons = {bench.node.name: self._why(bench, manifest.nodes[id], reached) for id, bench in nodes}
        first, *others = set(reasons.values())
        return "; ".join(f"of {name!r}, {reason}" for name, reason in reasons.items()) if others else first

    def _why(self, bench: NodeBench, part: NodePart, reached: Reached | None) -> str:
        totals, state, clock = self._totals, bench.node.state, part.clock
        return why(
            Ended(
                rows=totals["rows"],
                late=totals["late"],
                dead=totals["dead"],
                has_sink=bool(bench.node.sinks),
                has_windows=state.window is not None,
                open_windows=bench.run_cache.open_windows(part.runs, clock.closed),
                first_end=_first_end(bench, part),
                clock_ms=clock.watermark,
                ended=clock.ended,
                reached=reached,
                of_changes=state.lateness.emit == CHANGE,
                of_sessions=isinstance(state.window, SessionWindow),
                early=state.lateness.early_ms is not None,
            )
        )


def _point(step: StepReport, committed: Manifest, at_seconds: float) -> SeriesPoint:
    runs = committed.state_runs()
    return SeriesPoint(
        at_seconds,
        steps=1,
        step_seconds=step.seconds,
        rows=step.rows,
        late=step.late,
        dead=step.dead,
        outputs=step.outputs,
        lag_ms=step.lag_ms,
        clock_ms=step.clock_ms,
        state_rows=sum([run.rows_left for run in runs]),
        state_bytes=sum([run.bytes for run in runs]),
    )


def _first_end(bench: NodeBench, part: NodePart) -> int | None:
    """The clock at which the first of the windows of one node that are not closed is published."""
    end = bench.run_cache.first_end(part.runs, part.clock.closed)
    return None if end is None else bench.node.state.lateness.published_at(end)


def _refused(bench: NodeBench, clock: str) -> str:
    """Which records that are behind the clock a state refuses; empty if it takes all."""
    state = bench.node.state
    if state.time_to_live is not None:
        return f"that are older than {state.time_to_live} at {clock}"
    return "" if state.window is None else f"of windows before {clock}"


def _skipped(manifest: Manifest) -> Counter[tuple[str, str]]:
    """The positions skipped so far, by source and partition."""
    inputs = manifest.inputs.items()
    return Counter(
        {(name, partition): account.skipped for name, parts in inputs for partition, account in parts.items()}
    )
