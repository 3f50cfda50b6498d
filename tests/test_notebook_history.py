"""The history of a job, from its manifests: running or stopped, rolled back, hardly kept, or not there at all."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from persistent import CorruptCheckpoint, NoCheckpoint, Retention, UnknownCheckpoint, notebook
from persistent.checkpoint.log import Log
from persistent.names import manifest_name
from persistent.notebook import line
from persistent.operations import rollback
from persistent.storage import LocalStorage
from tests.driver.shop import Shop


def shop(**options: Any) -> Shop:
    return Shop(**{"rows": 40, "retention": Retention(last=50), **options})


def values(chart: Any) -> list[dict[str, Any]]:
    return list(chart.to_dict()["data"]["values"])


def test_a_stopped_job_is_plotted_from_its_checkpoints() -> None:
    """Who comes back in the morning would see only what the last report tells."""
    job = shop()
    job.run()
    job.run(end_of_input=True)
    chart = job.pipeline().plot()
    shown = values(chart)
    read = {one.id: one.accounts["memory"].read for one in line(job.storage)}
    added = [later - before for before, later in pairwise(read.values())]
    assert [one["rows"] for one in shown] == added and sum(added) == 40
    last = line(job.storage)[-1]
    assert shown[-1]["state rows"] == sum(run.rows_left for run in last.state_runs())
    assert f"to {last.id} of memory://" in chart.to_dict()["title"]


def test_the_rate_of_a_step_lasts_until_the_next_plan() -> None:
    """A rate from the plan before would be that of another step; the newest has none yet."""
    job = shop()
    job.run()
    found = line(job.storage)
    points = list(notebook._points(found))
    assert points[-1]["rows_per_second"] is None
    for point, one, after in zip(points, found[1:], found[2:]):
        span = after.committed_ms - one.committed_ms
        assert point["rows_per_second"] == (pytest.approx(4_000 / span) if span else None)


def test_what_a_rollback_left_is_not_history() -> None:
    """A line through checkpoints that no longer count would show records twice."""
    job = shop()
    job.run()
    target = line(job.storage)[4].id
    abandoned = {one.id for one in line(job.storage)[5:]}
    rollback(job.storage, target, outputs="retract")
    job.run()
    ids = [one.id for one in line(job.storage)]
    assert not abandoned & set(ids) and {target} < set(ids)
    read = [one.accounts["memory"].read for one in line(job.storage)]
    assert read == sorted(read) and read[-1] == 40
    assert all(one["rows"] >= 0 for one in values(job.pipeline().plot()))


def test_too_little_is_said() -> None:
    """An empty plot would look like a job that did nothing."""
    job = shop(retention=Retention(last=1))
    with pytest.raises(NoCheckpoint, match="run the pipeline first"):
        job.pipeline().plot()
    job.run()
    with pytest.raises(UnknownCheckpoint, match=r"fewer than two checkpoints .*\(retention=Retention\(last=100\)"):
        job.pipeline().plot()


def test_a_checkpoint_that_is_collected_meanwhile_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plot of a running job would fail now and then; but a damaged manifest must not be left out silently."""
    job = shop()
    job.run()
    kept = [one.id for one in line(job.storage)]
    gone = kept[2]
    job.storage.delete(manifest_name(gone))
    with pytest.raises(CorruptCheckpoint):
        line(job.storage)
    before = Log.kept_ids
    asked: list[int] = []

    def collected(log: Log, newest: Any) -> list[int]:
        asked.append(newest.id)
        return [id for id in before(log, newest) if len(asked) == 1 or id != gone]

    monkeypatch.setattr(Log, "kept_ids", collected)
    assert [one.id for one in line(job.storage)] == [id for id in kept if id != gone]


def test_a_long_history_is_read_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand manifests on a far store would be minutes."""
    job = shop()
    job.run()
    whole = [one.id for one in line(job.storage)]
    monkeypatch.setattr(notebook, "CHECKPOINTS_MAX", 3)
    assert [one.id for one in line(job.storage)] == whole[-3:]


def test_an_heir_begins_with_its_own_records() -> None:
    """The first checkpoint of a job that started from another holds all that was read before it: a step of millions."""
    parent = shop()
    parent.run()
    heir = shop(rows=0, start_from=parent.storage)
    heir.rows = [*parent.rows, *(parent.row(number) for number in range(40, 48))]
    heir.run()
    assert line(heir.storage)[0].kind == "savepoint"
    assert [one["rows"] for one in values(heir.pipeline().plot())] == [4, 4, 0]


def test_an_account_that_goes_back_adds_nothing() -> None:
    """After a restart at an earlier clock fewer records may count; a bar below zero would be no number of records."""
    job = shop()
    job.run()
    older, newer = line(job.storage)[2], line(job.storage)[5]
    assert notebook._added(older, newer, "read") == 12 and notebook._added(newer, older, "read") == 0


def test_a_golden_checkpoint_is_plotted() -> None:
    """A job that has run for a year would have no history."""
    storage = LocalStorage(str(Path(__file__).parent / "golden" / "format-4" / "visits"))
    assert len(line(storage)) > 5
    assert sum(one["rows"] for one in values(notebook.plotted_history(storage))) == 25
