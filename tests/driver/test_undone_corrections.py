"""A correction that a rollback has undone, and whose rows it has left, is made good where they are to be seen: its keys
and windows are published as the state has them now."""

from __future__ import annotations

from typing import Any

import pytest

from monoids import Count, Sum, record
from persistent import InvalidPipeline, MemorySink, Refused, UnknownCheckpoint, WindowState, session, sliding, tumbling
from persistent.operations import compact, restart, rollback
from persistent.verify import verify
from tests.driver.test_correction import ROWS, Job, Task, placed, row, shown, sums
from tests.single import only

RECORDS = [row(5, "a", 100), row(6, "new", 1), row(62, "b", 7), row(95, "new", 2)]
STATES: tuple[tuple[str, Any, dict[str, Any]], ...] = (
    ("totals", None, {}),
    ("totals that change", None, {"emit": "change"}),
    ("totals that are taken back", None, {"emit": "change", "changes": "retract"}),
    ("early totals", None, {"early": 15}),
    ("windows", tumbling(20), {"allowed_lateness": 1_000}),
    ("windows that are taken back", tumbling(20), {"allowed_lateness": 1_000, "late": "retract"}),
    ("overlapping windows", sliding(20, every=8), {"allowed_lateness": 1_000}),
    ("windows that change", tumbling(20), {"allowed_lateness": 1_000, "emit": "change", "changes": "retract"}),
    ("early windows", tumbling(40), {"allowed_lateness": 1_000, "early": 15}),
    ("final windows", tumbling(20), {"allowed_lateness": 1_000, "emit": "final"}),
)


def held(job: Job) -> dict[Any, tuple[int, int]]:
    """What a reader holds who takes the row of the largest revision of each key and window; no row is of nothing."""
    found: dict[Any, Any] = {}
    for one in sorted(job.sink.rows(), key=lambda one: (one["revision"], not one.get("retracted", False))):
        place, values = placed(one)
        found[place] = (0, 0) if one.get("retracted") else values
    return {place: values for place, values in found.items() if values[0]}


def corrected(window: Any, options: Any, *, ended: bool, job: Job | None = None) -> tuple[Job, int, Any]:
    """A job, the checkpoint before its correction, and what a reader held when it was done."""
    job = job or Job(Task(window, **options), ROWS[:15])
    job.run(end=ended)
    target = job.newest.base
    job.rows = list(ROWS)
    return job, target, held(job)


@pytest.mark.parametrize(
    "when, ended",
    [
        ("before", True),
        ("after", False),
        pytest.param("before", False, marks=pytest.mark.check),
        pytest.param("after", True, marks=pytest.mark.check),
    ],
)
@pytest.mark.parametrize("window, options", [one[1:] for one in STATES], ids=[one[0] for one in STATES])
def test_readers_hold_what_they_would_without_it(window: Any, options: Any, when: str, ended: bool) -> None:
    """Nobody reads its records again: their keys and windows would stay wrong for ever."""
    if options.get("emit") == "final":  # Else nothing could be corrected, or made good, any more.
        when, ended = "before", False
    twin, *_ = corrected(window, options, ended=ended)
    twin.run(end=True)
    job, target, _ = corrected(window, options, ended=ended)
    job.correct(add=RECORDS[:2])
    job.run()
    job.correct("more", add=RECORDS[2:])
    job.run(end=True)
    rollback(job.storage, target, outputs="again")
    if when == "after":
        job.run(end=True)
    made = [job.correct(f"undo {name}".replace(" ", "-"), undone=name) for name in ("ticket", "more")]
    assert [(one.added, one.removed, one.is_neutral) for one in made] == [(0, 0, True)] * 2
    job.run(end=True)
    assert held(job) == held(twin) and job.state() == twin.state()
    assert verify(job.storage).ok
    compact(job.pipeline())
    assert job.state() == twin.state()


def test_a_restart_of_a_dead_process_asks_again_and_is_told() -> None:
    """As any correction, it is made once; and what it was made of may be gone by then."""
    job, target, _ = corrected(tumbling(20), {"allowed_lateness": 1_000}, ended=False)
    job.correct(add=RECORDS[:2])
    rollback(job.storage, target, outputs="again")
    made = job.correct("undo", undone="ticket")
    rows = len(job.sink.rows())
    assert job.correct("undo", undone="ticket") == made
    job.step_rows = 1
    job.run()
    assert job.correct("undo", undone="ticket") == made and len(job.sink.rows()) >= rows
    with pytest.raises(Refused, match=r"no longer kept\. Apply it again, and then another one with add and remove"):
        job.correct("once-more", undone="ticket")


def test_it_holds_back_no_earlier_clock() -> None:
    """It changes no value: an older checkpoint that lacks it says the same, and can be gone on from."""
    job = Job(Task(None, history=30, interval_ms=10), ROWS[:15])
    job.run(end=True)
    job.rows = list(ROWS)
    job.run()
    target, asked = job.newest.base, only(job.newest.nodes).known_from
    assert asked is not None
    before = shown(job.pipeline().state(as_of=asked - 10).to_pylist())
    job.correct(add=[row(5, "a", 100), row(75, "a", 1)])
    with pytest.raises(UnknownCheckpoint, match="with the correction 'ticket'"):
        job.pipeline().state(as_of=asked - 10)
    rollback(job.storage, target, outputs="again")
    job.correct("undo", undone="ticket")
    assert shown(job.pipeline().state(as_of=asked - 10).to_pylist()) == before
    restart(job.pipeline(), asked - 10, outputs="again")
    job.run(end=True)
    assert job.state() == sums(ROWS, None)


@pytest.mark.parametrize(
    "outputs, name, given, words",
    [
        ("again", "other", {}, "no kept checkpoint is a correction of this name"),
        ("retract", "ticket", {}, "no kept checkpoint is a correction of this name"),
        ("again", "kept", {}, "the state holds this correction, by checkpoint"),
        ("again", "ticket", {"add": RECORDS}, "records are not needed"),
    ],
)
def test_only_what_was_left_is_published_again(outputs: str, name: str, given: Any, words: str) -> None:
    """With its outputs taken back there is nothing to make good, and what the state holds is right."""
    job, _, _ = corrected(None, {"emit": "change"}, ended=False)
    job.correct("kept", add=[row(3, "a", 1)])
    target = job.newest.base
    job.correct(add=RECORDS[:2])
    rollback(job.storage, target, outputs=outputs)
    newest, rows = job.newest, len(job.sink.rows())
    with pytest.raises((Refused, InvalidPipeline), match=words):
        job.correct("undo", undone=name, **given)
    assert (job.newest, len(job.sink.rows())) == (newest, rows)


class Stays(Task):
    def persistent_state(self) -> Any:
        return WindowState(record(rows=Count(), total=Sum()), session(10), allowed_lateness=1_000)


@pytest.mark.parametrize(
    "task, words",
    [
        (Stays(), "sessions keep the times"),
        (Task(ttl="1 day", emit="change"), "a key with a time to live keeps the times"),
    ],
)
def test_what_cannot_be_made_good_is_refused(task: Any, words: str) -> None:
    """The rows of the state say what it has now, and nothing replaces those that readers hold."""
    job = Job(task)
    job.run()
    target = job.newest.base
    job.correct(add=[row(95, "a", 100)])
    rollback(job.storage, target, outputs="again")
    with pytest.raises(Refused, match=words):
        job.correct("undo", undone="ticket")


class Changing(Task):
    def persistent_state(self) -> Any:
        monoid = record(rows=Count(), total=Sum())
        return WindowState(monoid, session(10), allowed_lateness=1_000, emit="change")


@pytest.mark.parametrize("task", [Stays(), Changing()], ids=["closed", "changing"])
def test_the_rollback_says_what_sessions_need(task: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The remedy that it names would be refused, and the next one too."""
    job = Job(task)
    job.run()
    target, shown = job.newest.base, held(job)
    job.correct(add=[row(30, "a", 100)])
    assert held(job) != shown
    back = rollback(job.storage, target, outputs="again").manifest.id
    assert f"Sessions need the id of this rollback instead, undone={back}" in caplog.text
    if isinstance(task, Changing):
        with pytest.raises(Refused, match="go back to the same checkpoint again, with --outputs=retract"):
            job.correct("undo", undone=back)
        rollback(job.storage, target, outputs="retract")
        job.run()
    else:
        job.correct("undo", undone=back)
    assert held(job) == shown


class Both(Task):
    """Windows, and sessions beside them."""

    def persistent_state(self) -> Any:
        monoid = record(rows=Count(), total=Sum())
        return {
            "minute": WindowState(monoid, tumbling(20), allowed_lateness=1_000),
            "stay": WindowState(monoid, session(10), allowed_lateness=1_000),
        }

    def process_message(self, state: Any, message: Any) -> None:
        for one in state.values():
            one.update(message.timestamp, {"rows": 1, "total": message.value["value"]})


def test_of_several_states_each_is_made_good_that_can_be() -> None:
    """By its name only the windows of a correction; by the id of the rollback the sessions too."""
    job = Job(Both(), ROWS[:15])
    job.sink = {"minute": MemorySink(), "stay": MemorySink()}

    def shown_now() -> list[Any]:
        found = []
        for sink in job.sink.values():
            rows = sorted(sink.rows(), key=lambda one: (one["revision"], not one.get("retracted", False)))
            held = {(placed(one)[0], one["window_end"]): (0, one) if one.get("retracted") else (1, one) for one in rows}
            found.append({place: placed(one)[1] for place, (is_held, one) in held.items() if is_held and one["rows"]})
        return found

    job.run()
    target, before = job.newest.base, shown_now()
    job.correct(add=[row(5, "a", 100), row(6, "new", 1)])
    job.rows = list(ROWS)
    job.run()
    back = rollback(job.storage, target, outputs="again").manifest.id
    assert job.correct("windows", undone="ticket").refused == ("stay",)
    windows, sessions = shown_now()
    assert {place: windows[place] for place in before[0]} == before[0] and sessions != before[1]
    with pytest.raises(Refused, match="is to be that rollback"):
        job.correct("all", undone=back)


def test_by_its_id_all_that_a_rollback_has_left_is_made_good() -> None:
    """Whoever goes back need not know which corrections there were."""
    job = Job(Both(), ROWS[:15])
    job.sink = {"minute": MemorySink(), "stay": MemorySink()}
    job.run()
    target = job.newest.base
    told = [len(sink.rows()) for sink in job.sink.values()]
    job.correct(add=[row(5, "a", 100), row(6, "new", 1)])
    job.correct("more", add=[row(25, "b", 7)])
    back = rollback(job.storage, target, outputs="again").manifest.id
    made = job.correct("all", undone=back)
    assert made.refused == () and made.is_neutral
    for sink, count in zip(job.sink.values(), told):
        rows = sorted(sink.rows(), key=lambda one: (one["revision"], not one.get("retracted", False)))
        latest = {(placed(one)[0], one["window_end"]): (one.get("retracted"), placed(one)[1]) for one in rows}
        first = {(placed(one)[0], one["window_end"]): (one.get("retracted"), placed(one)[1]) for one in rows[:count]}
        assert {place: one for place, one in latest.items() if not one[0] and one[1][0]} == first
