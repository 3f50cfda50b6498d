"""The oracle of a simulation sees every effect on the stores as it happens, and says which law it breaks.

- one manifest per id, each on top of the one before (I5); what it holds is what the twin says of its plan (I3, I9);
- nothing is deleted that a kept manifest, the pending plan or an unpublished output names;
- an output is shown only if a manifest of the log names it (I6), and is shown before the next checkpoint is put.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from persistent import Pipeline
from persistent.checkpoint.manifest import Manifest, manifest_sha256
from persistent.checkpoint.output_parts import LATE_SINK, SinkBatch
from persistent.checkpoint.parts import Account
from persistent.checkpoint.plan import SourceStep, StepPlan, TaskStep
from persistent.checkpoint.set_aside import aside_names
from persistent.checkpoint.successor import check_follows
from persistent.codec.sealed import decode_table
from persistent.connect.files.sink import FileSink
from persistent.names import aside_name, plan_name
from persistent.storage import MemoryStorage
from tests.proof.emission import Emission
from tests.proof.simulation_twin import Copies, Snapshot, Step
from tests.single import only

_DIGITS = 20


class Oracle:
    """``rows_of``: the rows that a plan reads, by partition. ``reader``: a pipeline that reads the checkpoint.
    ``watched``: for how long, so far, some driver that follows has been there. ``states``: the names of its states,
    each of which is the same; None: of one without a name."""

    def __init__(
        self,
        checkpoint: MemoryStorage,
        sinks: Mapping[str, MemoryStorage],
        emission: Emission,
        lag_ms: int,
        rows_of: Callable[[SourceStep], Mapping[str, Sequence[Any]]],
        reader: Callable[[], Pipeline],
        copies: Copies | None = None,
        watched: Callable[[], int] = lambda: 0,
        states: Sequence[str | None] = (None,),
    ) -> None:
        self.checkpoint, self.sinks = checkpoint, sinks
        self.emission, self.lag_ms, self.copies, self.states = emission, lag_ms, copies, states
        self.rows_of, self.reader, self.watched = rows_of, reader, watched
        self.read_at: dict[int, int] = {}
        self.chain: dict[int, tuple[Manifest, str]] = {}
        self.snapshots: dict[int, Snapshot] = {}
        self.plans: dict[str, StepPlan] = {}
        self.ran: dict[int, StepPlan] = {}
        self.faults: list[str] = []
        self.happened: set[str] = set()
        self.commits = 0

    def watch(self, where: str, verb: str, name: str, data: Any) -> None:
        """An effect has happened."""
        try:
            self._watch(where, verb, name, data)
        except Exception as error:
            self.faults.append(f"{where} {verb} {name}: {type(error).__name__}: {error}")

    @property
    def newest(self) -> Manifest:
        return self.chain[max(self.chain)][0]

    def _watch(self, where: str, verb: str, name: str, data: Any) -> None:
        if verb == "put" and where == "checkpoint" and name.startswith("m/"):
            self._committed(Manifest.decode(data, name), data)
        elif verb == "put" and where == "checkpoint" and name.startswith("p/"):
            self.plans.setdefault(name, StepPlan.decode(data, name))
        elif verb == "delete" and self.chain:
            self._deleted(where, name)
        elif verb == "rename":
            _require(name in self._named(where, self.chain), f"shown, and no manifest names it: {name}")

    @cached_property
    def _reader(self) -> Pipeline:
        return self.reader()

    # -- commits ---------------------------------------------------------------------------------------------------

    def _committed(self, new: Manifest, data: bytes) -> None:
        if not self.chain:
            self.chain[new.id] = new, manifest_sha256(data)
            self.snapshots[new.id], self.read_at[new.id] = Snapshot(), self.watched()
            return
        old, sha256 = self.chain[max(self.chain)]
        if new.id <= old.id:
            # Its id had become free. Nothing may rely on it: that shows in what is done next.
            _require(not old.keeps(new.id), f"manifest {new.id} was deleted, though it is kept")
            return
        self.commits += 1
        _require(new.parent == (old.id, sha256), f"manifest {new.id} is not on top of {old.id}")
        check_follows(new, old)
        raised = new.epoch == old.epoch + 1 if new.kind == "fence" else new.epoch == old.epoch
        _require(raised, f"{new.kind} {new.id} has epoch {new.epoch} after {old.epoch}")
        if new.kind == "checkpoint":
            self._check_published(old)
        self.chain[new.id] = new, manifest_sha256(data)
        self.snapshots[new.id] = snapshot = self._expected(new, old)
        gone = [name for name in new.files() if name not in self.checkpoint._files]
        _require(not gone, f"manifest {new.id} names what is not there: {gone}")
        self._check_account(new, snapshot)
        if new.nodes != old.nodes or new.sources != old.sources:
            self._check_state(new, snapshot)
        if new.kind == "checkpoint":
            self._check_staged(new, snapshot)

    def _expected(self, new: Manifest, old: Manifest) -> Snapshot:
        if new.kind == "rollback":
            assert new.target is not None
            self.read_at[new.id] = self.read_at[new.target]
            return self.snapshots[new.target].gone_back(self.snapshots[old.id])
        if new.kind != "checkpoint":
            self.read_at[new.id] = self.read_at[old.id]
            return self.snapshots[old.id]
        plan = self.plans.get(plan_name(old.base, old.replan))
        _require(plan is not None, f"checkpoint {new.id} was put before a plan of {old.base}-{old.replan}")
        assert plan is not None
        read = only(plan.sources)
        _require(read.end == only(new.sources).positions, f"checkpoint {new.id} did not run the plan of {old.base}")
        self.ran[new.id] = plan
        task, before, rows = self._task(plan), self.snapshots[old.id], self.rows_of(read)
        self.happened |= {"quiet"} if plan.quiet_ms else set()
        self.happened |= {"live"} if any(name.startswith("live/") for name in read.end) else set()
        self.happened |= {"states"} if len(plan.tasks) > 1 else set()
        self._check_quiet(new.id, old, plan, any(rows.values()))
        if self.emission.early is not None:
            publishes = self.emission.early_clock(before.passed, before.watermark)[1]
            wanted = "change" if publishes else "early"
            _require(task.emit == wanted, f"the plan of {old.base} says {task.emit}, not {wanted}")
        step = Step(rows, task.close_at, task.ends, read.cap, plan.quiet_ms)
        return before.after(step, self.emission, self.lag_ms, self.copies)

    def _task(self, plan: StepPlan) -> TaskStep:
        """What each of the states does in the step, which are the same."""
        task, *others = plan.tasks.values()
        _require(len(plan.tasks) == len(self.states), f"the plan of {plan.base} is of {list(plan.tasks)}")
        _require(all(one == task for one in others), f"the plan of {plan.base} differs by state: {plan.tasks}")
        return task

    def _check_quiet(self, id: int, old: Manifest, plan: StepPlan, reads: bool) -> None:
        """The clock moves on by no more than the time in which some driver watched since the last record."""
        since = self.read_at[old.id]
        watched = self.watched() - since
        _require(plan.quiet_ms <= watched, f"checkpoint {id}: quiet for {plan.quiet_ms} ms, watched for {watched}")
        _require(not (reads and plan.quiet_ms), f"checkpoint {id}: quiet, and read {only(plan.sources).end}")
        self.read_at[id] = self.watched() if reads else since

    def _check_account(self, new: Manifest, expected: Snapshot) -> None:
        account = sum(new.accounts.values(), start=Account())
        found = account.read, account.late, account.dead, account.duplicate, new.clock.watermark, new.clock.end_of_input
        counts = expected.read, expected.late_count, expected.dead_count, expected.duplicates
        wanted = *counts, expected.watermark, expected.ended
        _require(account.balances, f"{account} does not balance")
        _require(found == wanted, f"manifest {new.id}: read, late, dead, duplicate, clock, end: {found}, not {wanted}")

    def _check_state(self, new: Manifest, expected: Snapshot) -> None:
        held = self.emission.shown(expected.sums, expected.closed, expected.watermark)
        wanted = [(*place, *sums) for place, sums in held.items()]
        for name in self.states:
            table = self._reader.state(name=name, at=new.id)
            found = sorted((self.emission.row(row) for row in table.to_pylist()), key=repr)
            _require(found == sorted(wanted, key=repr), f"manifest {new.id}: state {name} {found}, not {wanted}")

    def _check_staged(self, new: Manifest, expected: Snapshot) -> None:
        late, dead = [], []
        for where in self.sinks.keys() - {LATE_SINK}:
            found = self._staged(new, where)
            _require(found == expected.outputs, f"checkpoint {new.id}: {where} {found}, not {expected.outputs}")
        for staged in new.aside:
            late += [number for one in staged.late for number in self._aside(one.name)]
            dead += [number for one in staged.dead for number in self._aside(one.name)]
        aside = tuple(sorted(late)), tuple(sorted(dead))
        wanted = expected.late, expected.dead
        _require(aside == wanted, f"checkpoint {new.id}: late, dead: {aside}, not {wanted}")
        if LATE_SINK in self.sinks:
            self.happened |= {"late rows"} if late else set()
            given = self._late_staged(new)
            _require(given == expected.late, f"checkpoint {new.id}: its sink gets late {given}, not {expected.late}")

    def _staged(self, new: Manifest, where: str) -> tuple[Any, ...]:
        """The outputs that a checkpoint has staged in a sink."""
        outputs = []
        for batch, rows in self._rows_staged(new, where):
            revisions = {row.get("revision", batch.id) for row in rows}
            _require(revisions == {batch.id}, f"checkpoint {new.id}: revisions {revisions}")
            outputs += [self.emission.row(row) for row in rows]
        return tuple(sorted(outputs, key=repr))

    def _late_staged(self, new: Manifest) -> tuple[int, ...]:
        """The numbers of the late rows that a checkpoint has staged for their sink."""
        found = []
        for batch, rows in self._rows_staged(new, LATE_SINK):
            ids = {row["checkpoint"] for row in rows}
            _require(ids == {batch.id}, f"checkpoint {new.id}: late in the steps {ids}")
            found += [json.loads(row["value"])["id"] for row in rows]
        return tuple(sorted(found))

    def _rows_staged(self, new: Manifest, where: str) -> Iterator[tuple[SinkBatch, list[dict[str, Any]]]]:
        for batch in _batches(new, where):
            for one in batch.staged:
                lines = self.sinks[where].read(one.name).to_pybytes().decode().splitlines()
                yield batch, [json.loads(line) for line in lines]

    def _aside(self, name: str) -> Iterable[int]:
        table = decode_table(self.checkpoint.read(name), None, name)
        return [row["value"]["id"] for row in table.to_pylist()]

    # -- what is seen ----------------------------------------------------------------------------------------------

    def _named(self, where: str, ids: Iterable[int]) -> set[str]:
        """The names under which the outputs of these checkpoints are shown."""
        names = set()
        for id in ids:
            manifest = self.chain[id][0]
            if manifest.kind != "checkpoint":
                continue
            if where in self.sinks:
                names |= {_final(batch.id, one.name) for batch in _batches(manifest, where) for one in batch.staged}
                continue
            for staged in manifest.aside:
                names |= {aside_name("late", staged.id, one) for one in staged.late}
                names |= {aside_name("dead", staged.id, one) for one in staged.dead}
        return names

    def shown(self, where: str) -> set[str]:
        """What a reader sees."""
        if where in self.sinks:
            return set(FileSink(self.sinks[where], format="jsonl").published())
        folders = ("late", "dead")
        return {f"{folder}/{name}" for folder in folders for name in aside_names(self.checkpoint, folder)}

    def lineage(self) -> list[int]:
        """The ids that the newest manifest goes back to; what was rolled back is left out."""
        found, id = [], max(self.chain)
        while id >= 0 and id in self.chain:
            found.append(id)
            manifest = self.chain[id][0]
            id = manifest.target if manifest.kind == "rollback" and manifest.target is not None else id - 1
        return found

    def _check_published(self, last: Manifest) -> None:
        """All outputs of the lineage are shown, and no others."""
        for where in (*self.sinks, "checkpoint"):
            named, shown = self._named(where, self.lineage()), self.shown(where)
            _require(named <= shown, f"not shown after {last.id}: {sorted(named - shown)}")
            _require(shown <= named, f"shown after {last.id}, and of no checkpoint: {sorted(shown - named)}")

    def at_end(self, rows: int) -> None:
        """All ``rows`` were read, nothing is left to be shown, nothing is shown twice, and a reader holds the sums of
        all that has counted."""
        self._check_published(self.newest)
        snapshot = self.snapshots[self.newest.id]
        _require(snapshot.read == rows, f"read {snapshot.read} of {rows} rows")
        line = [id for id in self.lineage()[::-1] if self.chain[id][0].kind == "checkpoint"]
        table = self.emission.table(self.snapshots[id].outputs for id in line)
        wanted = self.emission.table_of(snapshot.counted, snapshot.closed)
        _require(table == wanted, f"a reader holds {table}, not {wanted}")

    # -- garbage ---------------------------------------------------------------------------------------------------

    def _deleted(self, where: str, name: str) -> None:
        newest = self.newest
        if where in self.sinks:
            if name.startswith("_staged/"):
                for batch in _batches(newest, where):
                    for one in batch.staged:
                        there = _final(batch.id, one.name) in self.sinks[where].list("")
                        _require(one.name != name or there, f"deleted, and not yet published: {name}")
            return
        folder, _, rest = name.partition("/")
        if folder == "m":
            id = int(rest[:_DIGITS])
            known = self.chain.get(id)
            _require(known is None or not newest.keeps(id), f"deleted, though {newest.id} keeps it: {name}")
        elif folder == "p":
            _require(name != plan_name(newest.base, newest.replan), f"deleted, though pending: {name}")
        elif folder == "d":
            _require(name not in self._needed(newest), f"deleted, though {newest.id} needs it: {name}")

    def _needed(self, newest: Manifest) -> set[str]:
        kept = [one for id, (one, _) in self.chain.items() if newest.keeps(id)]
        needed = {name for one in kept for name in one.files()}
        plan = self.plans.get(plan_name(newest.base, newest.replan))
        if plan is not None:
            needed |= plan.files()
        shown = self.shown("checkpoint")
        for staged in newest.aside:
            for folder, ones in (("late", staged.late), ("dead", staged.dead)):
                needed |= {one.name for one in ones if aside_name(folder, staged.id, one) not in shown}
        return needed


def _batches(manifest: Manifest, where: str) -> tuple[SinkBatch, ...]:
    return manifest.sinks[where].unpublished if where in manifest.sinks else ()


def _final(id: int, name: str) -> str:
    attempt, _, extension = name.rpartition("/")[2].partition(".")
    return f"{id:0{_DIGITS}d}-{attempt.rpartition('-')[2]}.{extension}"


def _require(holds: bool, fault: str) -> None:
    if not holds:
        raise AssertionError(fault)
