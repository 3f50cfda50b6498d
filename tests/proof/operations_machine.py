"""The machine draws runs and operations, deaths in the middle among them, and holds every world to its model."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any, Final

import pyarrow.parquet as pq
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from persistent import MemorySource
from persistent.checkpoint.log import Log
from persistent.driver import step as driver_step
from persistent.engines.embedded import Embedded
from persistent.errors import InvalidPipeline, Refused, UnknownCheckpoint
from persistent.names import manifest_name, plan_name
from persistent.operations import collect_garbage, compact, merge, pin, restart, rollback, savepoint
from persistent.reading import diff, export, place
from persistent.storage import MemoryStorage
from persistent.storage.subfolder import savepoint_folder
from persistent.verify import verify
from tests.faults import DEATHS, FaultyStorage, Killed, Operations
from tests.proof.borders import Gap, Life
from tests.proof.emission import DAYS, SHIFTS, Emission, start_of
from tests.proof.operations_model import GRID, Held, Model, Plan, Snapshot
from tests.proof.operations_world import World, values
from tests.proof.simulation_small import small
from tests.proof.worlds import drawn_names
from tests.single import only

Change = Callable[[int], None]
"""What the model does when a manifest of this id is seen."""

ROWS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(-12, 15), st.sampled_from(["a", "b", "c", None, "é"]), st.integers(-1, 5)),
    min_size=1,
    max_size=8,
)
"""Of which partition, how much later than the latest before, page and number."""

PAGES = st.lists(st.tuples(st.sampled_from(["a", "b", "c", None, "é"]), st.integers(0, 5)), min_size=1, max_size=3)
"""Page and number of records that are put in after the fact."""

WINDOWS: Final = (10, 10, 0)
EMISSIONS = st.one_of(
    st.sampled_from((Emission(WINDOWS), Emission())),
    st.sampled_from(
        (
            *(Emission(WINDOWS, 15, late) for late in ("accumulate", "retract")),
            Emission(WINDOWS, 15, emit="final"),
            Emission(DAYS),
            Emission(DAYS, 15, "retract"),
            *(Emission(WINDOWS, 15, emit="change", changes=changes) for changes in ("update", "retract")),
            *(Emission(emit="change", changes=changes) for changes in ("update", "retract")),
            Emission(Gap(4, 20)),
            Emission(Gap(8, 40)),
            Emission(Gap(12, 80), 80, "retract"),
            Emission(Gap(12, 80), 80, emit="change", changes="retract"),
            Emission(Gap(8, 40), 30, "retract", early=7),
            *(Emission(Life(10), emit=emit) for emit in ("close", "change")),
            Emission(Life(25), emit="change", changes="retract"),
            Emission(Life(10), changes="retract", early=7),
            Emission(SHIFTS),
            Emission(SHIFTS, 15, "retract"),
            Emission(WINDOWS, early=7),
            Emission(WINDOWS, 15, "retract", early=7),
        )
    ),
)
NUMBER = st.integers(0, 30)
OUTPUTS = st.sampled_from(["retract", "again"])
CRASH = st.one_of(st.none(), st.tuples(st.integers(0, 25), st.sampled_from(DEATHS)))
PARTITIONS_MAX = 3


class Machine(RuleBasedStateMachine):
    """``stories``: what each machine did, the last one last. ``happened``: how often each thing came to its end."""

    stories: list[list[str]] = []
    happened: dict[str, int] = {}

    def __init__(self) -> None:
        super().__init__()
        self._stack = ExitStack()
        self._stack.enter_context(small(0))
        self._stack.enter_context(drawn_names("operations"))
        self._many_shards = driver_step.SHARD_ROWS
        driver_step.SHARD_ROWS = 1  # type: ignore[misc]
        self._ids = self._names = 0
        self._worlds: list[World] = []
        self._story: list[str] = []
        self.stories.append(self._story)
        del self.stories[:-2]

    def teardown(self) -> None:
        driver_step.SHARD_ROWS = self._many_shards  # type: ignore[misc]
        self._stack.close()
        for world in self._worlds:
            world.checkpoint.clear()
            world.sink.clear()
            world.twin.clear()
            world.late.clear()

    # -- rules ---------------------------------------------------------------------------------------------------

    @initialize(
        emission=EMISSIONS,
        partitions=st.integers(1, 2),
        rows=ROWS,
        step_rows=st.integers(1, 4),
        drift=st.sampled_from((None, None, 3, 10)),
        twins=st.sampled_from((False, False, True)),
        apart=st.booleans(),
    )
    def begin(
        self,
        emission: Emission,
        partitions: int,
        rows: Any,
        step_rows: int,
        drift: int | None,
        twins: bool,
        apart: bool = True,
    ) -> None:
        self.emission, self.twins = emission, twins
        # Where nothing is ever late, a sink for it is refused.
        self.apart = apart and (emission.has_lives or emission.has_windows)
        self.drift = None if drift is None else drift * emission.tick_ms
        self._tell(f"begin {emission} drift={drift} twins={twins} apart={self.apart}")
        self.world = self._world([{f"p{number}": [] for number in range(partitions)}])
        self.append(rows)
        self.run(2, step_rows, False, 1, None)

    @rule(rows=ROWS)
    def append(self, rows: Any) -> None:
        """Only rows of the source that the job now reads."""
        lists = self.world.sources[self.world.source]
        for partition, later, page, n in rows:
            name = list(lists)[partition % len(lists)]
            latest = max((row["ts"] for row in lists[name]), default=self.emission.at(8))
            time = latest + later * self.emission.tick_ms
            if self.emission.grows:
                # Far apart and of few keys, so that many records meet sessions that are published.
                time, page = max(time + later, 0), "b" if page == "b" else "a"
            lists[name].append({"id": self._ids, "ts": time, "page": page, "n": n})
            self._ids += 1
        self._tell(f"append {rows}")

    @rule(
        steps=st.integers(1, 3),
        step_rows=st.integers(1, 4),
        ends=st.booleans(),
        threads=st.sampled_from([1, 1, 3]),
        crash=CRASH,
    )
    def run(self, steps: int, step_rows: int, ends: bool, threads: int, crash: Any) -> None:
        """With one thread or with several, so also from one number of shards to another."""
        self._tell(f"run steps={steps} step_rows={step_rows} ends={ends} threads={threads} crash={crash}")
        model = self.world.model
        # With several threads the order of operations is not ours, so no death is drawn there.
        crash = crash if threads == 1 else None
        had_retract = bool(model.held) and model.retract is not None
        begun = bool(model.held)

        def plan() -> Plan | None:
            known = model.plans.get(model.base)
            return known or model.now.plan(self.world.sources[model.now.source], step_rows, ends, self.drift)

        def step(id: int) -> None:
            if id == 0:
                lists = self.world.sources[self.world.source]
                model.begun(0, Snapshot.empty(self.emission, self.world.source, list(lists)))
                return
            planned = plan() or self._idle(model)
            assert planned is not None, f"checkpoint {id} was made though there was nothing to do"
            model.checkpoint(id, *model.now.after(planned, self.world.sources[model.now.source]))

        def action(operations: Operations) -> None:
            self.world.run(operations, steps=steps, step_rows=step_rows, ends=ends, threads=threads)

        def fence(id: int) -> None:
            model.fence(id)
            model.settling()

        is_calm, kinds, _ = self._do("run", action, crash, checkpoint=step, fence=fence)
        if is_calm:
            made = kinds.count("checkpoint") - (not begun)
            expected = ["fence"] if made or had_retract or not begun else []
            assert kinds == [*(["checkpoint"] if not begun else []), *expected, *["checkpoint"] * made], kinds
            assert made == steps or plan() is None, f"{made} of {steps} steps, and there is {plan()} to do"
            model.settle()
        elif f"{plan_name(model.base, 0)}" in self.world.checkpoint._files and model.base not in model.plans:
            planned = plan() or self._idle(model)
            assert planned is not None
            model.plans[model.base] = planned

    @precondition(lambda self: self.emission.early is None and not self.emission.has_lives)
    @rule(tick=st.integers(-25, 10), pages=PAGES, crash=CRASH)
    def correct(self, tick: int, pages: Any, crash: Any) -> None:
        """Records of one time are put in, and asked for again: once they count, whoever died."""
        world, model, name = self.world, self.world.model, self._name()
        time = model.now.watermark + tick * self.emission.tick_ms
        self._tell(f"correct {name} at {time} with {pages} crash={crash}")
        rows = [{"ts": time, "page": page, "n": n} for page, n in pages]

        def ask(operations: Operations) -> Any:
            return world.pipeline(operations).correct(
                name=name, add=MemorySource(rows, timestamp="ts"), engine=Embedded(threads=1), take_over=True
            )

        # A job that starts from a savepoint, or is a sum, says with its first step what its sink lacks.
        has_begun = bool(Log(world.checkpoint).newest().manifest.sinks)  # type: ignore[union-attr]
        if not has_begun:
            return
        if not model.now.takes(time):
            self._refused(Refused, lambda: ask(Operations()))
            return

        def fence(id: int) -> None:
            model.fence(id)
            model.settling()

        def went(id: int) -> None:
            model.checkpoint(id, *model.now.corrected([Held(page, time, n) for page, n in pages]))

        is_calm, kinds, made = self._do("correct", ask, crash, fence=fence, correction=went)
        if not is_calm:
            known = Log(world.checkpoint).newest().manifest.corrections  # type: ignore[union-attr]
            is_calm, again, made = self._do("correct again", ask, None, fence=fence, correction=went)
            kinds = kinds if name in known else again
            assert (again == []) == (name in known), (kinds, again)
        assert kinds[-2:] == ["fence", "correction"] and made.added == len(rows), (kinds, made)
        if model.retract is None:
            model.settle()

    @rule(which=NUMBER, outputs=OUTPUTS, by_clock=st.booleans(), crash=CRASH)
    def rollback(self, which: int, outputs: str, by_clock: bool, crash: Any) -> None:
        model = self.world.model
        # By the clock, only those that one can go back to are looked at.
        kept = [id for id in sorted(model.bases) if not model.is_taken_back(id)] if by_clock else model.kept()
        target = kept[which % len(kept)]
        where: dict[str, Any] = {"to": target}
        if by_clock:
            where = {"clock": model.held[target].watermark}
            target = max(id for id in kept if model.held[id].watermark <= where["clock"])
        if model.is_doubtful(target):
            return
        self._tell(f"rollback {where} (to {target}) outputs={outputs} crash={crash}")

        def back(operations: Operations) -> Any:
            storage = FaultyStorage(self.world.checkpoint, operations)
            return rollback(storage, outputs=outputs, take_over=True, **where)

        if model.is_taken_back(target):
            self._refused(Refused, lambda: back(Operations()))
            return

        def went(id: int) -> None:
            snapshot = model.held[target].gone_back(model.now, again=outputs == "again")
            model.rollback(id, target, snapshot, take_back=outputs == "retract")

        is_calm, kinds, _ = self._do("rollback", back, crash, rollback=went)
        assert not is_calm or kinds == ["fence", "rollback"], kinds

    @rule(which=NUMBER, outputs=OUTPUTS, in_order=st.booleans(), crash=CRASH)
    def restart(self, which: int, outputs: str, in_order: bool, crash: Any) -> None:
        """Over a source with what the state has not counted, and some of what it has, at other positions."""
        model, world = self.world.model, self.world
        if self.emission.has_sessions and self.emission.of_changes:
            pipeline = world.pipeline(Operations())
            self._refused(Refused, lambda: restart(pipeline, 0, outputs=outputs, take_over=True))
            return
        grid = GRID * self.emission.tick_ms
        known = range(self.emission.at(0), model.now.watermark + 1, grid)
        clocks = [clock for clock in known if model.as_of(clock, unpublished=True) is not None]
        if not clocks:
            return
        clock = clocks[which % len(clocks)]
        target = model.as_of(clock, unpublished=True)
        assert target is not None
        self._tell(f"restart as of {clock} (from {target}) outputs={outputs} in_order={in_order} crash={crash}")
        before = model.held[target]
        log = Log(world.checkpoint)
        newest = log.newest().manifest.corrections  # type: ignore[union-attr]
        known_then = log.read(target).manifest.corrections
        if any(one.panes[0] < clock and known_then.get(name) != one for name, one in newest.items()):
            pipeline = world.pipeline(Operations())
            self._refused(Refused, lambda: restart(pipeline, clock, outputs=outputs, take_over=True))
            return
        read = {
            row["id"] for name, stop in before.positions.items() for row in world.sources[before.source][name][:stop]
        }
        moved = {
            name: [row for row in rows if row["ts"] >= clock or row["id"] in read]
            for name, rows in world.sources[world.source].items()
        }
        for rows in moved.values() if in_order else ():
            rows.sort(key=lambda row: (row["ts"], row["id"]))
        world.sources.append(moved)
        version = len(world.sources) - 1

        def action(operations: Operations) -> Any:
            return restart(world.pipeline(operations, source=version), clock, outputs=outputs, take_over=True)

        def went(id: int) -> None:
            model.rollback(id, target, before.restarted(clock, version, model.now), take_back=outputs == "retract")

        is_calm, kinds, _ = self._do("restart", action, crash, rollback=went)
        assert not is_calm or kinds == ["fence", "rollback"], kinds

    @rule(which=NUMBER, remove=st.booleans(), crash=CRASH)
    def pin(self, which: int, remove: bool, crash: Any) -> None:
        model = self.world.model
        among = sorted(model.pins if remove else model.bases)
        if not among:
            return
        id = among[which % len(among)]
        self._tell(f"{'un' if remove else ''}pin {id} crash={crash}")
        is_new = remove or id not in model.pins

        def fence(number: int) -> None:
            model.fence(number)
            model.pins = model.pins - {id} if remove else model.pins | {id}

        def action(operations: Operations) -> Any:
            return pin(FaultyStorage(self.world.checkpoint, operations), id, remove=remove, take_over=True)

        is_calm, kinds, _ = self._do("unpin" if remove else "pin", action, crash, fence=fence)
        assert not is_calm or kinds == ["fence"] * is_new, kinds

    @rule(crash=CRASH)
    def compact(self, crash: Any) -> None:
        self._tell(f"compact crash={crash}")
        model = self.world.model

        def action(operations: Operations) -> Any:
            return compact(self.world.pipeline(operations), take_over=True)

        is_calm, kinds, _ = self._do("compact", action, crash, compaction=model.compaction)
        assert not is_calm or kinds in ([], ["fence", "compaction"]), kinds
        if is_calm:
            assert self._do("compact again", action, None)[1] == [], "compacted, and still there is something to fold"

    @rule(dry=st.booleans(), crash=CRASH)
    def collect(self, dry: bool, crash: Any) -> None:
        """What a dry run names is what goes; and afterwards nothing lies there that is no part of the checkpoint."""
        self._tell(f"gc dry={dry} crash={crash}")
        storage = self.world.checkpoint
        before = self.world.files()
        named = collect_garbage(storage, dry_run=True, take_over=True)
        assert self.world.files() == before, "a dry run has changed something"
        if dry:
            return
        is_calm, kinds, gone = self._do(
            "gc", lambda operations: collect_garbage(FaultyStorage(storage, operations), take_over=True), crash
        )
        if is_calm:
            assert kinds == ["fence"] and gone == named, (kinds, gone, named)
            # Late rows and dead letters published again are there twice, and are told.
            findings = [one for one in verify(storage).findings if one.place not in ("late", "dead")]
            assert not findings, findings
            model = self.world.model
            # The fence of another collection may be the first of a block.
            let_go = tuple(manifest_name(id) for id in model.kept() if not model.keeps(id, model.newest + 1))
            assert collect_garbage(storage, dry_run=True, take_over=True) == let_go

    @rule(which=NUMBER, rows=ROWS, goes_on=st.booleans(), crash=CRASH, crash_start=CRASH)
    def branch(self, which: int, rows: Any, goes_on: bool, crash: Any, crash_start: Any) -> None:
        """A savepoint, and a new job that begins with it."""
        model, world, name = self.world.model, self.world, self._name()
        at = model.kept()[which % len(model.kept())]
        self._tell(f"savepoint {name} of {at}, start from it; goes_on={goes_on} crash={crash} {crash_start}")

        def action(operations: Operations) -> Any:
            return savepoint(FaultyStorage(world.checkpoint, operations), name, at=at)

        is_calm, kinds, url = self._do("savepoint", action, crash)
        if not is_calm:
            try:
                url = savepoint(world.checkpoint, name, at=at)
            except Refused:
                url = savepoint_folder(world.checkpoint, name).url
        assert kinds == []
        expected = model.held[at]
        source = expected.source
        found = values(
            world.pipeline(checkpoint=savepoint_folder(world.checkpoint, name), source=source)
            .state(name=world.read)
            .to_pylist(),
            self.emission,
        )
        assert found == expected.state(), f"savepoint of {at}: {found}, not {expected.state()}"
        assert verify(savepoint_folder(world.checkpoint, name)).ok
        if not goes_on:
            return
        other = self._world([world.sources[source]], url)
        snapshot = expected.begun()
        self.world = other
        other.model = Model(model.last)
        for death in (crash_start, None):
            operations = Operations(*death) if death else Operations()
            with suppress(Killed):
                other.run(operations, steps=1, step_rows=2, ends=False, threads=1)
            self._follow_begin(other, snapshot)
            if not operations.dead:
                break
        other.model.settle()

    @precondition(lambda self: len(self.world.model.now.positions) < PARTITIONS_MAX and not self.emission.has_lives)
    @rule(rows=ROWS, crash=CRASH)
    def merge(self, rows: Any, crash: Any) -> None:
        """With a second job, both at the end of what is there; the sum goes on."""
        first = self.world
        self._drain()
        second = self.world = self._world([{f"m{self._names}": []}])
        self.append(rows)
        self._drain()
        into = self._world([{**first.sources[first.source], **second.sources[0]}])
        self.world = first
        self._tell(f"merge crash={crash}")

        def action(operations: Operations) -> Any:
            return merge(first.checkpoint, second.checkpoint, FaultyStorage(into.checkpoint, operations))

        if first.model.now.since is not None or first.model.retract is not None:
            # Of a rollback that left nothing to do: whether all is taken back, only the next checkpoint tells.
            self._refused(Refused, lambda: action(Operations()))
            return
        for death in (crash, None):
            try:
                action(Operations(*death) if death else Operations())
                break
            except Killed:
                continue
            except Refused:
                # Killed once all was done.
                assert death is None and crash is not None, "refused, and nobody was there"
        self.happened["merge"] = self.happened.get("merge", 0) + 1
        self.world = into
        merged = first.model.now.merged(second.model.now, 0)
        empty = replace(Snapshot.empty(self.emission, 0, list(into.sources[0])), passed=merged.passed)
        self._absorb(
            into,
            checkpoint=lambda id: into.model.begun(id, empty),
            fence=into.model.fence,
            merge=lambda id: into.model.begun(id, merged),
        )
        assert into.model.base > 0

    @rule(clock=st.integers(-1, 60), on_grid=st.booleans())
    def as_of(self, clock: int, on_grid: bool) -> None:
        model = self.world.model
        clock = self.emission.at(clock * GRID if on_grid else clock)
        id = model.as_of(clock)
        if id is None:
            self._refused(UnknownCheckpoint, lambda: self.world.pipeline().state(name=self.world.read, as_of=clock))
            return
        found = values(self.world.pipeline().state(name=self.world.read, as_of=clock).to_pylist(), self.emission)
        assert found == model.held[id].state(clock), f"as of {clock}, from {id}: {found}"
        self._count("as of")

    @rule(one=NUMBER, other=NUMBER)
    def look(self, one: int, other: int) -> None:
        """An export holds the state, and a difference what differs; neither changes anything."""
        model, world = self.world.model, self.world
        kept = model.kept()
        a, b = kept[one % len(kept)], kept[other % len(kept)]
        pipeline, before = world.pipeline(), world.files()
        folder = MemoryStorage(self._name())
        files = export(pipeline, folder, a, name=world.read).files
        rows = [row for file in files for row in pq.read_table(folder.read(file.name)).to_pylist()]
        folder.clear()
        assert values(rows, self.emission) == model.held[a].state(), f"export of {a}"
        found = diff(place(world.checkpoint, a), place(world.checkpoint, b), pipeline=pipeline, name=world.read)
        assert found.rows is not None
        changes = {(row["page"], start_of(row)): row["change"] for row in found.rows.to_pylist()}
        assert changes == _changes(model.held[a], model.held[b]), f"diff of {a} and {b}: {changes}"
        assert world.files() == before

    @rule(beyond=st.integers(1, 5), below=st.booleans())
    def unknown(self, beyond: int, below: bool) -> None:
        """An id that is not kept is refused, and nothing is changed."""
        model, storage = self.world.model, self.world.checkpoint
        gone = [id for id in range(model.newest) if not model.keeps(id)]
        id = gone[beyond % len(gone)] if below and gone else model.newest + beyond
        for ask in (
            lambda: rollback(storage, id, outputs="retract", take_over=True),
            lambda: pin(storage, id, take_over=True),
            lambda: savepoint(storage, self._name(), at=id),
            lambda: place(storage, id),
        ):
            self._refused(UnknownCheckpoint, ask)
        if id > model.newest:
            self._refused(InvalidPipeline, lambda: self.world.pipeline().state(name=self.world.read, at=id))
        if id not in model.pins:
            self._refused(UnknownCheckpoint, lambda: pin(storage, id, remove=True, take_over=True))

    # -- what holds after each -----------------------------------------------------------------------------------

    @invariant()
    def holds(self) -> None:
        """Every checkpoint that is to be kept is there, and holds what it must."""
        model, world = self.world.model, self.world
        log = Log(world.checkpoint)
        there = log.ids()
        for id in model.kept():
            assert id in there, f"checkpoint {id} is to be kept and is not there; there are {there}"
            expected = model.held[id]
            rows = world.pipeline(source=expected.source).state(name=world.read, at=id).to_pylist()
            state = values(rows, self.emission)
            assert state == expected.state(), f"state at {id}: {state}, not {expected.state()}"
            _check_manifest(log.read(id).manifest, expected)
        manifest = log.read(model.newest).manifest
        found = {"pins": set(manifest.pins), "bases": set(manifest.bases), "oldest": manifest.oldest}
        assert found == {"pins": model.pins, "bases": model.bases, "oldest": model.oldest}, found
        seen = verify(world.checkpoint)
        assert seen.ok, seen.findings
        assert (seen.newest, seen.newest_good) == (model.newest, model.base), (seen.newest, seen.newest_good)

    @invariant()
    def is_shown(self) -> None:
        """Nothing that was published is missing, nothing is there twice, and nothing that was taken back."""
        model, shown = self.world.model, self.world.shown()
        for id in sorted({*shown, *model.shown}):
            found, expected = shown.get(id), model.shown.get(id)
            if self.apart and expected is not None:
                expected = replace(expected, apart=expected.late)
            assert expected is not None, f"published under {id}: {found}, and nothing should be"
            if id in model.partly:
                assert found is None or found <= expected, f"published under {id}: {found}, not of {expected}"
            else:
                assert found == expected, f"published under {id}: {found}, not {expected}"

    # -- how -----------------------------------------------------------------------------------------------------

    def _do(
        self, name: str, action: Callable[[Operations], Any], crash: Any, **changes: Change
    ) -> tuple[bool, list[str], Any]:
        """Whether it came to its end, the kinds of the manifests it put, and its answer."""
        operations, answer = Operations(*crash) if crash else Operations(), None
        try:
            answer = action(operations)
        except Killed:
            assert crash is not None
        is_calm = not operations.dead
        kinds = self._absorb(self.world, **{"fence": self.world.model.fence, **changes})
        self._count(name if is_calm else f"{name} killed")
        return is_calm, kinds, answer

    def _absorb(self, world: World, **changes: Change) -> list[str]:
        log, kinds = Log(world.checkpoint), []
        for id in [id for id in log.ids() if id > world.model.newest]:
            kind = log.read(id).manifest.kind
            assert kind in changes, f"a {kind} was put, which nobody asked for"
            changes[kind](id)
            kinds.append(kind)
        return kinds

    def _idle(self, model: Model) -> Plan | None:
        """A step that is made though nothing happens in it, if the job makes such ones: by what it has on disk a life
        may have ended, or a session be left that a sink lacks."""
        may = self.emission.has_lives or (self.emission.has_sessions and self.emission.of_changes)
        return model.now.idle() if may else None

    def _follow_begin(self, world: World, snapshot: Snapshot) -> None:
        """What a job that starts from a savepoint has put so far."""
        model = world.model

        def step(id: int) -> None:
            if id == 0:
                model.begun(0, Snapshot.empty(self.emission, 0, list(snapshot.positions)))
                return
            planned = model.plans.get(model.base) or model.now.plan(world.sources[0], 2, False, self.drift)
            planned = planned or self._idle(model)
            assert planned is not None
            model.checkpoint(id, *model.now.after(planned, world.sources[0]))

        def fence(id: int) -> None:
            model.fence(id)

        self._absorb(world, checkpoint=step, fence=fence, savepoint=lambda id: model.begun(id, snapshot))

    def _drain(self) -> None:
        """To the end of the input, folded, and with nothing left of processes that were killed."""
        kinds, model = [""], self.world.model
        while kinds:
            before = model.newest
            self.run(3, 4, True, 1, None)
            model = self.world.model
            kinds = [] if model.newest - before < 4 else kinds
        self.compact(None)
        self.collect(False, None)

    def _refused(self, error: type[BaseException], ask: Callable[[], Any]) -> None:
        before = self.world.files()
        try:
            ask()
        except error:
            self._count("refused")
        else:
            raise AssertionError(f"not refused with {error.__name__}")
        assert self.world.files() == before, "refused, and something was changed"

    def _world(self, sources: Any, start_from: str | None = None) -> World:
        name = f"operations-{uuid.uuid4().hex}-{self._name()}"
        self._worlds.append(World(name, self.emission, sources, start_from, self.drift, self.twins, self.apart))
        return self._worlds[-1]

    def _name(self) -> str:
        self._names += 1
        return f"n{self._names}"

    def _tell(self, line: str) -> None:
        self._story.append(line)

    def _count(self, what: str) -> None:
        self.happened[what] = self.happened.get(what, 0) + 1


def _check_manifest(manifest: Any, expected: Snapshot) -> None:
    clock, source = manifest.clock, only(manifest.sources)
    found = (clock.watermark, clock.closed, clock.end_of_input, source.since)
    ended = expected.ended
    if expected.emission.has_sessions and expected.emission.of_changes and not expected.rows:
        # What is final may be on disk still; then the input ends again, and nothing is published.
        ended = clock.end_of_input
    wanted = (expected.watermark, expected.closed, ended, expected.since)
    assert found == wanted, f"clock of {manifest.id}: {found}, not {wanted}"
    positions = {name: position[1] for name, position in source.positions.items()}
    assert positions == dict(expected.positions), f"positions of {manifest.id}: {positions}, not {expected.positions}"
    for name, account in expected.accounts.items():
        there = {
            fate: getattr(manifest.accounts[name], fate) for fate in ("read", "processed", "late", "dead", "duplicate")
        }
        assert +account == {fate: count for fate, count in there.items() if count}, f"account of {manifest.id}: {there}"


def _by_start(snapshot: Snapshot) -> dict[Any, tuple[int, Any]]:
    """The end and the sums of each window, by key and start."""
    emission, state = snapshot.emission, snapshot.state().items()
    if not emission.has_sessions:
        return {place: (emission.end(place[1]), sums) for place, sums in state}
    return {(page, start): (end, sums) for (page, (start, end)), sums in state}


def _changes(before: Snapshot, after: Snapshot) -> dict[Any, str]:
    emission = before.emission
    one, other = _by_start(before), _by_start(after)
    found = {}
    for key in {*one, *other}:
        if key not in one:
            found[key] = "added"
        elif key not in other:
            (page, start), (end, _) = key, one[key]
            # A session can have become a part of another one.
            is_part = emission.has_sessions and any(page == p and s <= start < e for (p, s), (e, _) in other.items())
            found[key] = "closed" if end <= after.closed and not is_part else "removed"
        elif one[key] != other[key]:
            found[key] = "changed"
    return found
