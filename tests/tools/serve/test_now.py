"""Now says whether a job is alive, how far behind it is, and whether anything is lost."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from persistent import MemorySource, Retention, operations
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.plan import SourceStep, StepPlan, TaskStep
from persistent.checkpoint.running import Mark, put_mark
from persistent.storage import MemoryStorage
from persistent.storage.process import Process, this_process
from persistent.storage.subfolder import open_checkpoint
from persistent.testing import ManualClock
from persistent.tools.serve import now as module
from persistent.tools.serve.now import brief, driver_of, now
from persistent.tools.serve.partly_late import Partly
from persistent.tools.serve.shown import FATES, Shown
from tests.single import only
from tests.tools.serve.jobs import pipeline, ran, several


def verdicts(shown: Shown) -> dict[str, tuple[str, str]]:
    return {one["of"]: (one["level"], one["title"]) for one in now(shown)["verdicts"]}


def test_a_stopped_job() -> None:
    """Nobody would see that records were set aside, or that no driver works."""
    found = verdicts(ran("now"))
    assert found["alive"] == ("still", "Stopped")
    assert found["lost"] == ("warn", "1 late and 1 dead")


def test_a_savepoint_is_no_stopped_job() -> None:
    """Somebody would look for the driver of a copy."""
    shown = ran("saved")
    url = operations.savepoint(shown.storage, "monday")
    assert verdicts(Shown("monday", url, open_checkpoint(url)))["alive"] == ("still", "A savepoint")


def test_figures_are_those_of_the_newest_checkpoint() -> None:
    """The page would count differently from the checkpoint."""
    shown = ran("figures")
    found = now(shown)
    at = found["checkpoint"]
    assert (at["read"], at["processed"], at["late"], at["dead"]) == (100, 98, 1, 1)
    assert found["clock"]["watermark"] == at["clock_ms"] == 99_000
    assert sum(one["read"] for one in found["series"]) + now_first(shown) == 100


def now_first(shown: Shown) -> int:
    """What the first checkpoint of the series had read already."""
    return int(shown.recent(120)[0]["read"])


def test_a_driver_at_work_on_this_machine() -> None:
    """A job at work would look stopped."""
    shown = ran("working")
    put_mark(shown.storage, 99, "ab")
    assert now(shown)["driver"]["state"] == "at work"
    assert verdicts(shown)["alive"] == ("good", "At work")


def mark(process: Process) -> Mark:
    return Mark("r/e1-ab.json", 1, process, 0)


def test_drivers_by_what_can_be_seen_of_them() -> None:
    """A killed driver would look like one at work, or one on another machine like a killed one."""
    here = this_process()
    assert driver_of([mark(here)])["state"] == "at work"
    assert driver_of([mark(replace(here, host="elsewhere"))])["state"] == "perhaps"
    assert driver_of([mark(replace(here, pid=2**22 + 7))])["state"] == "died"
    assert driver_of([]) == {"state": "stopped"}


def test_how_far_behind_follows_the_time_of_day_only_while_at_work() -> None:
    """A job that was stopped for a year would be a year behind, although it had read everything."""
    with ManualClock(130_000) as time:
        shown = ran("behind")
        before = verdicts(shown)["behind"]
        assert before == ("good", "31.0 s behind")
        time.advance("1 h")
        assert verdicts(shown)["behind"] == before
        put_mark(shown.storage, 99, "ab")
        time.advance("1 h")
        assert verdicts(shown)["behind"] == ("warn", "2.0 h behind")


FACTS: dict[str, Any] = {
    "read": 10, "late": 0, "dead": 0, "skipped": 0, "balances": True, "committed_ms": 0, "end_of_input": False,
}  # fmt: skip


@pytest.mark.parametrize(
    "changed, level",
    [({}, "good"), ({"late": 2}, "warn"), ({"dead": 2}, "warn"), ({"skipped": 1}, "bad"), ({"balances": False}, "bad")],
)
def test_what_counts_as_lost(changed: dict[str, Any], level: str) -> None:
    """Positions that the source skipped, or an account that does not add up, would look like a good job."""
    assert module._lost({**FACTS, **changed})["level"] == level


def test_what_one_state_misses_is_not_nothing() -> None:
    """A state would miss records beside totals that take all, and the page would say that nothing is lost."""
    shown = several("missing", "minutes", "total")
    assert shown.facts(shown.look().newest.manifest.id)["late"] == 0
    found = {one["of"]: one for one in now(shown)["verdicts"]}["lost"]
    assert (found["level"], found["title"]) == ("warn", "1 dead and 1 partly late")
    assert "; 1 missing in the state minutes, for which they came too late" in found["text"]
    assert {one["of"]: one for one in brief(shown)["verdicts"]}["lost"]["title"] == found["title"]
    assert now(shown)["partly_late"] == 1


def test_most_of_the_last_records_missing_in_a_state_is_bad() -> None:
    """A clock that is wrong for one state alone would look like a few late records."""
    before, after = {**FACTS, "read": 900, "id": 3}, {**FACTS, "read": 1_000, "id": 4}
    for count, level in ((60, "bad"), (40, "warn")):
        partly = Partly(((3, {"minutes": 70}), (4, {"minutes, hours": count})))
        found = module._lost(after, [before, after], partly)
        assert found["level"] == level
        assert ("Most of the last 100 records were late in minutes" in found["text"]) is (level == "bad")


def test_what_is_not_known_is_not_called_nothing() -> None:
    """A page that has not read all files yet, or cannot, would say that nothing is lost."""
    assert module._lost(FACTS, (), Partly(unread=2))["title"] == "Nothing lost so far"
    assert "cannot be read" in module._lost(FACTS, (), Partly(damaged=1))["text"]


def test_what_a_driver_does_is_said() -> None:
    """A driver that hangs in a step would look like one that waits for records."""
    with ManualClock(130_000) as time:
        shown = ran("doing")
        put_mark(shown.storage, 99, "ab")
        assert ", waits for records" in now(shown)["verdicts"][0]["text"]
        newest = shown.look().newest.manifest
        before = shown.log.read(newest.base - 1).manifest
        plan = StepPlan(newest.job, newest.base, newest.replan, "ab", 130_000, {}, {})
        assert before.id and shown.pending() is None
        plan = replace(plan, sources=_nothing_read(newest), tasks=dict.fromkeys(newest.nodes, TaskStep(99_000)))
        shown.log.put_plan(plan)
        time.advance("30 s")
        assert f"in the step after checkpoint {newest.id} for 30.0 s (0 splits)" in now(shown)["verdicts"][0]["text"]
        assert verdicts(shown)["alive"] == ("good", "At work")
        time.advance("31 s")
        assert verdicts(shown)["alive"] == ("warn", "In a long step")


def _nothing_read(manifest: Manifest) -> dict[str, SourceStep]:
    positions = only(manifest.sources).positions
    return {name: SourceStep(positions, positions, (), dict.fromkeys(positions)) for name in manifest.sources}


def test_a_job_that_starts_again_and_again_is_bad() -> None:
    """It would look at work whenever somebody looks."""
    works = {"state": "at work", "host": "here", "pid": 7, "since_ms": 0}
    assert module._alive(works, FACTS, 0, 2)["title"] == "At work"
    found = module._alive(works, FACTS, 0, 3)
    assert (found["level"], found["title"]) == ("bad", "Starts again and again")
    assert module._alive({"state": "stopped"}, {**FACTS, "kind": "fence"}, 0, 3)["title"] == "Stopped"


@pytest.mark.parametrize("late, dead, said", [(60, 0, "were late"), (0, 60, "were dead"), (40, 40, ""), (0, 0, "")])
def test_most_of_the_last_records_set_aside_is_bad(late: int, dead: int, said: str) -> None:
    """A clock that is wrong would look like a few late records."""
    before = {**FACTS, "read": 900, "late": 20, "dead": 20}
    after = {**FACTS, "read": 1_000, "late": 20 + late, "dead": 20 + dead}
    found = module._lost(after, [before, after])
    assert (found["level"] == "bad") is bool(said)
    assert said in found["text"]


def test_a_clock_that_a_record_has_moved_names_it() -> None:
    """Nobody would find the record, or the way back."""
    with ManualClock(130_000):
        shown = ran("moved")
    with ManualClock(20_000):
        put_mark(shown.storage, 99, "ab")
        found = {one["of"]: one for one in now(shown)["verdicts"]}["behind"]
    assert (found["level"], found["title"]) == ("warn", "1.3 min ahead")
    assert "has a record of 1970-01-01 00:01:39Z" in found["text"] and "--set-back" in found["text"]


def test_sinks_say_when_they_are_given_results() -> None:
    """Early results would look like final ones."""
    assert [one["when"] for one in now(ran("when"))["sinks"]] == ["when a window closes"]
    whens = {one["name"]: one["when"] for one in now(several("whens"))["sinks"]}
    assert whens == {"late": "with their step", "living": "at the end of the input", "minutes": "when a window closes"}


def test_speed_is_rows_between_plans() -> None:
    """Rows of a step that is not known to be over would count as read in no time."""
    steps = [{"committed_ms": 1_000 * n, "read": 100 * n} for n in range(1, 5)]
    assert module._speed(steps) == {"rows_per_s": 100.0, "step_ms": 1_000, "steps": 2}
    assert module._speed(steps[:2])["rows_per_s"] is None


def test_the_picture_of_rows_holds_those_of_the_steps_that_are_over() -> None:
    """It would show another job than the figures above it."""
    with ManualClock(1_000_000) as time:
        job = pipeline("drawn", 100)
        job.run(engine="embedded", on_step=lambda _: time.advance(1_000))
        found = now(Shown("drawn", "none", job.storage))
    for one in found["rates"]:
        assert sum(one[fate] for fate in FATES if fate in one.keys() - {"read"}) == pytest.approx(
            found["speed"]["rows_per_s"]
        )
    assert found["speed"]["rows_per_s"] == 10 and len(found["rates"]) == 4


def test_what_several_checkpoints_read_is_no_bar_of_one() -> None:
    """Where checkpoints were collected, the next would seem to have read all that they had read, and to have taken as
    long. A take-over between two is no checkpoint that is missing."""
    shown = ran("collected", count=30, retention=Retention(last=3))
    pinned = shown.look().newest.manifest.base
    operations.pin(shown.storage, pinned)
    pipeline("collected", 100, retention=Retention(last=3)).run(engine="embedded")
    found = now(Shown("collected", "none", shown.storage))
    series = {one["id"]: (one["after"], one["several"], one["read"]) for one in found["series"]}
    (first, *others) = series.items()
    assert first[1][:2] == (pinned, True) and first[1][2] > 10 and len(others) == 2
    assert all(one == (id - 1, False, 10) for id, one in others)
    whole = ran("whole", count=30)
    pipeline("whole", 100, retention=Retention(last=50)).run(engine="embedded")
    series = now(Shown("whole", "none", whole.storage))["series"]
    assert any(one["id"] > one["after"] + 1 for one in series) and not any(one["several"] for one in series)


def test_a_step_over_several_checkpoints_is_no_usual_step() -> None:
    """The time of many steps would count as that of one, and a step that hangs would not look long."""
    times = [(1, 1_000, 0), (2, 2_000, 1), (9, 9_000, 8), (10, 10_000, 9), (30, 30_000, 29)]
    steps = [{"id": id, "committed_ms": ms, "read": ms, "before": before} for id, ms, before in times]
    assert module._speed(steps)["step_ms"] == 1_000


def test_a_job_that_cannot_be_read_is_one_line() -> None:
    """One empty folder would hide all other jobs."""
    line = brief(Shown("none", "none", MemoryStorage("serve-empty")))
    assert line["error"]["kind"] == "none" and "run the pipeline first" in line["error"]["text"]


def test_several_states_have_clocks_of_their_own() -> None:
    """A task with several states would look like one with the first of them."""
    shown = several("clocks")
    manifest = shown.entry().manifest
    states = {one["name"]: one for one in now(shown)["states"]}
    assert states.keys() == {"minutes", "living"}
    for name, one in states.items():
        view = manifest.nodes[f"Each/{name}"]
        assert one["clock_ms"] == view.clock.watermark
        assert one["rows"] == sum(run.rows_left for run in view.runs) > 0
    assert sum(one["bytes"] for one in states.values()) == now(shown)["checkpoint"]["state_bytes"]
    assert (states["minutes"]["closed_ms"], states["living"]["closed_ms"]) == (99_000, None)
    assert (states["minutes"]["time_to_live"], states["living"]["time_to_live"]) == (None, "2500 ms")
    assert now(ran("one"))["states"] == []


def test_sinks_say_what_they_take() -> None:
    """The sink of late records would look like one of results, and that of a state like that of another."""
    sinks = {one["name"]: (one["takes"], one["late"]) for one in now(several("sinks"))["sinks"]}
    assert sinks == {
        "late": ("late records", True),
        "living": ("results of the state living", False),
        "minutes": ("results of the state minutes", False),
    }
    assert [one["takes"] for one in now(ran("sink"))["sinks"]] == ["results"]


def test_a_record_ahead_of_the_time_of_day_is_placed() -> None:
    """A bad record would be named by its time alone, and searched in the whole source."""
    with ManualClock(130_000):
        records = [{"ts": 300_000 if n == 7 else n, "page": "/", "shop": 7, "size": n} for n in range(30)]
        shown = ran("ahead", sources=MemorySource(records, timestamp="ts", ordered=True))
        text = next(one["text"] for one in now(shown)["verdicts"] if one["of"] == "behind")
    by = shown.furthest()
    assert by is not None
    assert (
        f", at offsets 0 to 9, counted by checkpoint {by.by.id}: 'persistent clock visits.py:pipeline --find'" in text
    )


def test_a_driver_that_hangs_is_seen_in_the_list_of_jobs() -> None:
    """Of ten jobs nobody would open the one that hangs: its line would be green, and no event would tell."""
    with ManualClock(130_000) as time:
        shown = ran("hangs")
        put_mark(shown.storage, 99, "ab")
        newest = shown.look().newest.manifest
        parts = _nothing_read(newest), dict.fromkeys(newest.nodes, TaskStep(99_000))
        shown.log.put_plan(StepPlan(newest.job, newest.base, newest.replan, "ab", 130_000, *parts))
        before = brief(shown)
        time.advance("1 h")
        after = brief(shown)
    assert before["verdicts"][0]["title"] == "At work"
    assert (after["verdicts"][0]["level"], after["verdicts"][0]["title"]) == ("warn", "In a long step")
    assert after["version"] != before["version"]
