"""A correction goes into every state that takes it, once, and its account names those that do not take all."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from monoids import Count, Max, Sum, record
from persistent import MemorySink, NonWindowState, PersistentTask, Refused, WindowState, sliding, tumbling
from persistent.state.rows import OPEN_PANE
from persistent.verify import verify
from tests.lives import Run
from tests.worker.test_correct_states_correct_lives import correct, newest, row


class Several(PersistentTask):
    """Windows, keys that expire, and totals."""

    key = "key"
    names: tuple[str, ...] = ("short", "lives", "total")

    def persistent_state(self) -> Any:
        monoid = record(rows=Count(), total=Sum(), most=Sum())
        states = {
            "short": WindowState(monoid, tumbling(20)),
            "lives": NonWindowState(monoid, ttl="10 ms", emit="change"),
            "total": NonWindowState(monoid, emit="change", changes="retract"),
            "slides": WindowState(monoid, sliding(40, every=20)),
            "most": NonWindowState(Max()),
        }
        return {name: states[name] for name in self.names}

    def process_message(self, state: Any, message: Any) -> None:
        value = message.value["value"]
        for name in self.names:
            state[name].update(
                message.timestamp, value if name == "most" else {"rows": 1, "total": value, "most": value}
            )


class Without(Several):
    names = ("short", "lives")


class Sliding(Several):
    names = ("slides", "total")


class Most(Several):
    names = ("total", "most")


ROWS = [row(4 * number, "ab"[number % 2], number) for number in range(12)]


def several(task: Several) -> Run:
    run = Run(ROWS, task=task, step_rows=5)  # type: ignore[arg-type]
    run.sink = {name: MemorySink() for name in task.names}
    run.run(ROWS)
    return run


def state(run: Run, name: str) -> dict[Any, tuple[int, int]]:
    rows = run.pipeline().state(name=name).to_pylist()
    return {(one["key"], one.get("window_start")): (one["rows"], one["total"]) for one in rows}


def test_a_record_goes_into_every_state_that_takes_it() -> None:
    """In each it counts once, what is published is corrected at once, and there is one account."""
    run = several(Several())
    before = {name: state(run, name) for name in Several.names}
    shown = len(run.sink["total"].rows())
    made = correct(run, ROWS, "ticket", add=[row(44, "b", 100)], remove=[ROWS[10]])
    assert made == newest(run).corrections["ticket"] and made.refused == () and made.panes == (OPEN_PANE, 40)
    for name in Several.names:
        after = {place: values for place, values in state(run, name).items() if values != before[name][place]}
        changed = {
            key: (rows - before[name][key, start][0], total - before[name][key, start][1])
            for (key, start), (rows, total) in after.items()
        }
        assert changed == {"a": (-1, -10), "b": (1, 100)}, name
    rows = run.sink["total"].rows()[shown:]
    assert {one["revision"] for one in rows} == {made.checkpoint} and len(rows) == 4
    assert sum(one["revision"] == made.checkpoint for one in run.sink["lives"].rows()) == 2
    assert verify(run.storage).ok and correct(run, ROWS, "ticket", add=[row(44, "b", 100)], remove=[ROWS[10]]) == made
    totals = state(run, "total")
    run.rows = [*ROWS, row(60, "a", 1)]
    run.run()
    assert state(run, "total") == {**totals, ("a", None): (totals["a", None][0] + 1, totals["a", None][1] + 1)}
    closed = {(one["key"], one["window_start"].microsecond // 1000): one["total"] for one in run.sink["short"].rows()}
    assert closed["b", 40] == 111 and closed["a", 40] == 0
    run.storage.clear()


def test_what_some_states_refuse_is_in_the_account() -> None:
    """A step would call it partly late: nothing is dropped silently."""
    run = several(Several())
    before = {name: state(run, name) for name in Several.names}
    made = correct(run, ROWS, "ticket", add=[row(3, "c", 100)])
    assert made.refused == ("lives", "short") and str(made) == "1 added, 0 removed, partly refused by lives, short"
    assert state(run, "short") == before["short"] and state(run, "lives") == before["lives"]
    assert state(run, "total") == {**before["total"], ("c", None): (1, 100)}
    assert replace(made, refused=()) != newest(run).corrections["ticket"] == made
    assert verify(run.storage).ok
    parts = several(Sliding())
    assert correct(parts, ROWS, "ticket", remove=[ROWS[5]]).refused == ("slides",)
    for one in (run, parts):
        one.storage.clear()


@pytest.mark.parametrize("option", ["add", "remove"])
def test_what_no_state_takes_refuses_the_correction(option: str) -> None:
    """It would have a name, and have changed nothing."""
    run = several(Without())
    before = newest(run)
    for rows in ([row(1, "b", 1)], [ROWS[11], row(1, "b", 1)], [row(19, "nobody", 1)]):
        with pytest.raises(Refused, match=f"{option}=: .*with ttl=\"10 ms\" of the state 'lives' it"):
            correct(run, ROWS, "ticket", **{option: rows})
    assert newest(run) == before
    assert correct(run, ROWS, "ticket", **{option: [ROWS[11]]}).refused == ()
    run.storage.clear()


@pytest.mark.parametrize("option", ["add", "remove"])
def test_a_record_is_judged_though_it_updates_no_state_with_lives(option: str) -> None:
    """Beside one that counts it was counted, and had changed nothing; a step sets it aside."""

    class ByKind(Without):
        def process_message(self, state: Any, message: Any) -> None:
            state[message.value["kind"]].update(message.timestamp, {"rows": 1, "total": 1, "most": 1})

    rows = [{**one, "kind": "short" if place % 3 else "lives"} for place, one in enumerate(ROWS)]
    run = Run(rows, task=ByKind(), step_rows=5)  # type: ignore[arg-type]
    run.sink = {name: MemorySink() for name in ByKind.names}
    run.run(rows)
    late, good = {**row(1, "b", 1), "kind": "short"}, {**ROWS[11], "kind": "lives"}
    with pytest.raises(Refused, match=f"{option}=: the record .*'kind': 'short'}}, at 1970.*is late in every state"):
        correct(run, rows, "ticket", **{option: [good, late]})
    assert correct(run, rows, "ticket", add=[good]).refused == ()
    run.storage.clear()


def test_windows_alone_refuse_what_is_final_in_all() -> None:
    class Windows(Several):
        names = ("short", "slides")

    run = several(Windows())
    with pytest.raises(Refused, match="is in windows of every state that are final: those that end up to"):
        correct(run, ROWS, "ticket", add=[ROWS[0]])
    assert correct(run, ROWS, "ticket", add=[row(25, "a", 1)]).refused == ("short", "slides")
    run.storage.clear()


def test_a_state_that_is_no_group_refuses_what_is_removed() -> None:
    """Of its neighbours it would be gone, and of it not."""
    run = several(Most())
    with pytest.raises(Refused, match=r"Max\(.*\) of the state 'most' is no Group"):
        correct(run, ROWS, "ticket", remove=[ROWS[11]])
    assert correct(run, ROWS, "ticket", add=[ROWS[11]]).added == 1
    run.storage.clear()
