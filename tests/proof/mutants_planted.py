"""A planted mutant breaks one rule by name: a text of a module, which must be there once, and what stands instead.

It must be found by the tests named with it. A rule that is written otherwise one day is planted anew: a text that is
not there, or twice, is told.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.proof.mutants_bench import Bench, Mirror

_COMMIT_CHANGE = "tests/checkpoint/test_commit_change.py"
_UNDOING = "tests/driver/test_undoing.py"
_STATES = "tests/test_several_states.py"
_LIVES = "tests/state/test_time_to_live.py"
_EXPIRING = "tests/test_several_states_that_expire.py"
_JOINING = "tests/time/test_session_window_lateness.py"
_GROWING = "tests/time/test_session_window_changes.py"
_LATENESS, _OVER_RUNS = "tests/time/test_lateness.py", "tests/time/test_lateness_over_runs.py"


@dataclass(frozen=True)
class Planted:
    """``old`` and ``new``: the text of ``module`` with and without the rule. ``tests``: one of them must fail."""

    rule: str
    module: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def mirror(self) -> Mirror:
        """The module and the tests."""
        return Mirror(self.module, self.tests)

    def planted(self, source: str) -> str:
        """The module without the rule. ValueError unless the text is there once."""
        if (count := source.count(self.old)) != 1:
            raise ValueError(f"{self.module} has {count} times, not once: {self.old!r}; plant {self.rule!r} anew")
        return source.replace(self.old, self.new)

    def is_found(self, seconds_max: float = 900.0) -> bool:
        """Whether one of the tests notices. RuntimeError if they fail without it."""
        mutant = self.planted(self.mirror.path.read_text())
        end, _ = Bench(self.mirror, seconds_max).ended(mutant)
        return end != "survived"


PLANTED = (
    Planted(
        "what the abandoned checkpoints owed is published before it is taken back by rows",
        "persistent.driver.output_batches",
        "staged = (*retreat.staged, *(_batch(job, manifest, sink, batch, read) for batch in since))",
        "staged = retreat.staged",
        (f"{_UNDOING}::test_what_is_owed_is_published_and_taken_back",),
    ),
    Planted(
        "what a rollback has taken back by rows counts no more for the next one",
        "persistent.driver.undoing",
        "if batches or checkpoint.target is None:",
        "if not batches:\n            last = _last(read(last - 1), sink)\n        elif checkpoint.target is None:",
        (f"{_UNDOING}::test_one_rollback_after_another_takes_back_once",),
    ),
    Planted(
        "another rollback waits until the last one is done by rows",
        "persistent.driver.undoing",
        "if newest.retract is not None:",
        "if False:",
        (f"{_UNDOING}::test_one_rollback_after_another_takes_back_once",),
    ),
    Planted(
        "over a rollback that has left outputs nothing is taken back by rows",
        "persistent.driver.undoing",
        'manifest.kind == "rollback" and manifest.retract is None for',
        "False for",
        (f"{_UNDOING}::test_over_rows_that_were_left_it_is_refused",),
    ),
    Planted(
        "the rows of kept checkpoints stay, so that they can be taken back by rows",
        "persistent.driver.publish",
        "waited = last.unpublished() - manifest.unpublished() - undoable(last.sinks)",
        "waited = last.unpublished() - manifest.unpublished()",
        (f"{_UNDOING}::test_the_rows_of_kept_checkpoints_are_kept_and_no_others",),
    ),
    Planted(
        "the rows of a checkpoint leave with it",
        "persistent.driver.publish",
        "sorted(old.files() | undoable(old.sinks))",
        "sorted(old.files())",
        (f"{_UNDOING}::test_the_rows_of_kept_checkpoints_are_kept_and_no_others",),
    ),
    Planted(
        "a sink whose readers replace is given again what was taken back by rows",
        "persistent.operations.rolling_back",
        "if name in turned or (name",
        "if (name",
        (f"{_UNDOING}::test_readers_are_brought_back_wherever_the_next_run_dies",),
    ),
    Planted(
        "publishing is fused with mapping",
        "persistent.driver.publish_after",
        "return after or (step.task.final_at is not None and corrects)",
        "return after",
        (f"{_LATENESS}::test_publishing_fused_with_mapping_loses_the_last_late_record",),
    ),
    Planted(
        "an operation keeps what it decided before its fence",
        "persistent.checkpoint.commit_change",
        "        log.check(fence.manifest.id)\n        decision = decide(seen)\n",
        "        log.check(fence.manifest.id)\n",
        (f"{_COMMIT_CHANGE}::test_it_decides_again_once_nobody_else_commits",),
    ),
    Planted(
        "a rollback names runs that the driver of a lost manifest may delete",
        "persistent.operations.rolling_back",
        "if not manifests.may_lose(target):",
        "if True:",
        (f"{_COMMIT_CHANGE}::test_a_rollback_copies_nothing_unless_a_later_manifest_is_lost",),
    ),
    Planted(
        "a rollback copies runs that are kept",
        "persistent.operations.rolling_back",
        "if not manifests.may_lose(target):",
        "if False:",
        (f"{_COMMIT_CHANGE}::test_a_rollback_copies_nothing_unless_a_later_manifest_is_lost",),
    ),
    Planted(
        "a rollback goes back to what no checkpoint keeps",
        "persistent.checkpoint.commit_change",
        "return target.files() <= {name for manifest in kept for name in manifest.files()}",
        "return True",
        (f"{_COMMIT_CHANGE}::test_only_what_a_kept_checkpoint_names_is_safe",),
    ),
    Planted(
        "a revision restarts after a savepoint",
        "persistent.driver.start_from",
        '"revision_base": copy.revision,',
        '"revision_base": 0,',
        (f"{_OVER_RUNS}::test_a_revision_that_restarts_after_a_savepoint",),
    ),
    Planted(
        "a row is judged by the clock committed with it",
        "persistent.worker.map_split",
        "kept = judge(item, clocks,",
        "own = int(records.timestamps.max(initial=0)) - [*job.states.values()][0].lateness.allowed_ms\n"
        "        kept = judge(item, {name: (judge, max(end, own)) for name, (judge, end) in clocks.items()},",
        (f"{_LATENESS}::test_what_is_final_is_said_by_the_clock_before_the_step",),
    ),
    Planted(
        "a closed window is dropped before it is final",
        "persistent.driver.commit",
        "runs = _next_runs(node, before.runs, results, final)",
        "runs = _next_runs(node, before.runs, results, clock.closed)",
        (f"{_LATENESS}::test_late_data_dropped_silently",),
    ),
    Planted(
        "a correction counts late rows twice",
        "persistent.worker.publish_shard",
        "before = parts_of(node, item.runs, *groups,",
        "before = parts_of(node, (*item.runs, *item.delta), *groups,",
        (f"{_LATENESS}::test_late_data_dropped_silently",),
    ),
    Planted(
        "a retraction repeats the new value",
        "persistent.state.difference",
        "replaced.append(Placed(piece.take(there), here))",
        "replaced.append(Placed(changed.take(here), here))",
        (f"{_OVER_RUNS}::test_a_rollback_takes_corrections_back_and_makes_them_again",),
    ),
    Planted(
        "a fold drops a fragment of a session that is open",
        "persistent.worker.merge_runs",
        "rows = sessions_after(gaps, rows, item.over)",
        "rows = sessions_after(gaps, rows, item.final)",
        ("tests/worker/test_merge_runs_of_sessions.py::test_a_fold_of_some_runs_drops_no_fragment",),
    ),
    Planted(
        "a late record that bridges two published sessions is not looked at",
        "persistent.driver.run_cache",
        "        if earliest >= closed:",
        "        if True:",
        (f"{_JOINING}::test_a_late_record_joins_two_published_sessions",),
    ),
    Planted(
        "sessions that a late record joins stay published",
        "persistent.state.difference",
        "            is_ended = np.ones(len(piece), bool)",
        "            is_ended = np.zeros(len(piece), bool)",
        (f"{_JOINING}::test_a_late_record_joins_two_published_sessions",),
    ),
    Planted(
        "what is open again stays published",
        "persistent.state.difference",
        "            ended.append(piece.filter(is_ended))",
        "            ended.append(piece.filter(is_ended if len(rows) else ~is_ended))",
        (f"{_JOINING}::test_a_late_record_opens_a_published_session_again",),
    ),
    Planted(
        "what was published early stays if it has ended when it is joined",
        "persistent.worker.publish_shard",
        "    since = None if item.changes else settled",
        "    since = settled",
        (f"{_GROWING}::test_what_was_published_early_and_has_ended_is_taken_back_once_it_is_joined",),
    ),
    Planted(
        "an open session that is published is not taken back",
        "persistent.worker.publish_shard",
        "    closed = FOR_EVER if item.changes else item.closed",
        "    closed = item.closed",
        (f"{_GROWING}::test_an_open_session_that_grows_is_taken_back_with_the_borders_that_it_had",),
    ),
    Planted(
        "a session closes, and what it held back early is not published",
        "persistent.driver.publish_after",
        "    return any(result.unpublished for result in shard_results if isinstance(result, Closed))",
        "    return False",
        (f"{_GROWING}::test_early_sessions_wait_for_a_multiple_and_those_that_close_do_not",),
    ),
    Planted(
        "a new sink of an heir is taken for one that goes on",
        "persistent.checkpoint.output_parts",
        "return self.here == self.number > 0 and not self.empty",
        "return True",
        (f"{_GROWING}::test_a_new_sink_of_an_heir_gets_all_that_is_not_final",),
    ),
    Planted(
        "a sink that joins lacks what has closed and can be corrected",
        "persistent.driver.publish_after",
        "return joining_sinks(bench.node, step.last.manifest) if lacks else ()",
        "return ()",
        ("tests/time/test_lateness_over_runs.py::test_a_sink_that_joins_gets_what_has_closed_and_is_not_final",),
    ),
    Planted(
        "a row whose new value cannot be had stays",
        "persistent.worker.publish_shard",
        "if not (failures.keys and any(views.folds_no_old for views in comparisons)):",
        "if True:",
        ("tests/test_results_taken_back.py::test_a_row_whose_new_value_cannot_be_had_is_taken_back",),
    ),
    Planted(
        "a fold drops a closed session before it is final",
        "persistent.driver.step",
        "FoldRuns(self.attempt, merge, before.final, node=",
        "FoldRuns(self.attempt, merge, before.clock.closed, node=",
        (f"{_JOINING}::test_a_reader_holds_the_plain_sessions_at_every_step",),
    ),
    Planted(
        "the revisions of an heir begin anew",
        "persistent.driver.start_from",
        '"revision_base": copy.revision,',
        '"revision_base": 0,',
        (f"{_JOINING}::test_a_new_sink_of_an_heir_gets_all_that_is_not_final",),
    ),
    Planted(
        "a session takes what its own end has not passed",
        "persistent.time.session_window",
        "return timestamps < watermark, np.zeros",
        "return self.ends(timestamps) <= watermark, np.zeros",
        ("tests/time/test_session_window.py::test_a_record_at_the_clock_counts_and_one_before_it_is_late",),
    ),
    Planted(
        "a backlog after a restart counts as quiet",
        "persistent.driver.workbench",
        "self._watched_s = manifest.quiet_ms, 0.0",
        "self._watched_s = manifest.quiet_ms, monotonic_s()",
        ("tests/driver/test_workbench_quiet.py::test_a_backlog_after_a_restart_is_not_quiet",),
    ),
    Planted(
        "a window closes, and what it held back early is not published",
        "persistent.driver.publish_after",
        "return bool(touched(window, old, step.before.final, closed) or touched(window, new, final, closed))",
        "return False",
        ("tests/time/test_lateness_of_early_results.py::test_the_table_is_that_of_the_last_publication",),
    ),
    Planted(
        "a window that changes is published again when it closes",
        "persistent.driver.step",
        "return replace(closing, runs=published, delta=before.fresh(), close_at=closing.closed)",
        "return replace(closing, runs=published, delta=before.fresh())",
        ("tests/time/test_lateness_of_changes.py::test_a_window_is_published_when_it_changes_and_not_when_it_closes",),
    ),
    Planted(
        "what one state refuses is dropped for all",
        "persistent.worker.judge_records",
        "is_late = refused == len(clocks)",
        "is_late = refused > 0",
        (f"{_STATES}::test_a_record_that_one_state_refuses_reaches_the_others",),
    ),
    Planted(
        "a sink gets the rows of another state",
        "persistent.worker.job",
        "for sink, instance in self.sinks.items() if self.takes.get(sink, STATE) == name}",
        "for sink, instance in self.sinks.items()}",
        (f"{_STATES}::test_several_sinks_of_a_state_get_its_rows_and_no_others",),
    ),
    Planted(
        "a message that fails in one state counts in another",
        "persistent.task.processing",
        "            delta.check()\n        for delta in self._deltas.values():\n            delta.end()",
        "            delta.end()",
        (f"{_STATES}::test_a_message_that_fails_in_one_state_counts_in_none",),
    ),
    Planted(
        "a state that was added answers for before",
        "persistent.driver.evolution",
        "replace(node, clock=clock, added=added)",
        "replace(node, clock=clock)",
        ("tests/test_several_states_that_change.py::test_of_a_state_that_was_added_nothing_is_known_before",),
    ),
    Planted(
        "an heir does not know which state a sink takes",
        "persistent.driver.start_from",
        "node = before.node if part is None else part.node",
        "node = None",
        ("tests/test_several_states_that_change.py::test_the_sinks_of_an_heir_take_the_states_that_they_had",),
    ),
    Planted(
        "what a time to live refuses is not counted for its state",
        "persistent.worker.judge_records",
        "and (len(clocks) > 1 or not isinstance(judge, TimeToLive))",
        "and not isinstance(judge, TimeToLive)",
        (f"{_EXPIRING}::test_what_a_time_to_live_refuses_is_late_for_it_alone",),
    ),
    Planted(
        "a time to live is the largest time of a key, and what is older leaves in any fold",
        "persistent.worker.merge_runs",
        "rows = sessions_after(gaps, rows, item.over)",
        "rows = sessions_after(gaps, rows, item.final)",
        (f"{_LIVES}::test_a_record_that_counts_brings_back_a_life_that_has_ended",),
    ),
    Planted(
        "a life leaves the disk as soon as it has ended",
        "persistent.state.time_to_live",
        "over = max(final - self.ttl_ms, 0)",
        "over = final",
        (f"{_LIVES}::test_a_record_that_counts_brings_back_a_life_that_has_ended",),
    ),
    Planted(
        "a key that expires between two ends of the input leaves before sinks know",
        "persistent.state.time_to_live",
        "return over if shown_at is None else min(over, shown_at)",
        "return over",
        (f"{_LIVES}::test_what_is_published_stays_until_it_is_taken_back",),
    ),
    Planted(
        "a fold drops a life of which another run has the beginning",
        "persistent.driver.run_cache",
        "over=min([over, *begun])",
        "over=over",
        (f"{_LIVES}::test_a_fold_keeps_a_life_of_which_another_run_has_the_beginning",),
    ),
)
