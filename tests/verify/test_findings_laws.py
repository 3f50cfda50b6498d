"""What a manifest must be after its neighbour is looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec import structs

from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest, manifest_sha256
from persistent.checkpoint.parts import TaskPart
from persistent.errors import OtherJob
from persistent.names import manifest_name
from persistent.operations import compact
from persistent.reading.clocks import clock_reading
from persistent.storage import LocalStorage
from persistent.tools.cli import main
from persistent.verify.findings import differences
from tests.single import only
from tests.verify.checkpoints import at_one, change_account, change_key, change_newest, faults, look, pipeline


def change_run(manifest: Manifest, **values: Any) -> Manifest:
    runs = only(manifest.nodes).runs
    changed = (*runs[:-1], structs.replace(runs[-1], **values))
    return at_one(manifest, node=structs.replace(only(manifest.nodes), runs=changed))


def change_source(manifest: Manifest, **values: Any) -> Manifest:
    return at_one(manifest, source=structs.replace(only(manifest.sources), **values))


def change_clock(manifest: Manifest, **values: Any) -> Manifest:
    return at_one(manifest, clock=replace(manifest.clock, **values))


def of_partition(manifest: Manifest, name: str) -> Manifest:
    """As if its only partition were called so."""
    (account,), (position,) = manifest.accounts.values(), only(manifest.sources).positions.values()
    source = structs.replace(
        only(manifest.sources), partitions=(name,), positions={name: position}, largest={}, idle=()
    )
    return at_one(manifest, source=source, accounts={name: account})


BROKEN_LAWS: dict[str, tuple[Callable[[Manifest], Manifest], str]] = {
    "another parent": (lambda m: structs.replace(m, parent=(m.id - 1, "0" * 64)), "names a parent that differs"),
    "another job": (lambda m: structs.replace(m, job="0" * 32), "has job"),
    "clock back": (
        lambda m: change_clock(m, watermark=1, closed=1),
        ": the clock never goes back",
    ),
    "closed ahead": (lambda m: change_clock(m, closed=1 << 40), "ahead of the clock"),
    "positions back": (
        lambda m: change_source(m, positions={"memory": (0, 1)}),
        ": positions of memory never go back",
    ),
    "partition lost": (lambda m: of_partition(m, "other"), "none vanishes"),
    "epoch back": (lambda m: structs.replace(m, epoch=0), "does not follow"),
    "epoch without fence": (lambda m: structs.replace(m, epoch=m.epoch + 1), "only a fence raises the epoch"),
    "base": (lambda m: structs.replace(m, base=m.id - 1), "with base"),
    "account": (lambda m: change_account(m, read=10_000), "does not balance"),
    "account back": (lambda m: change_account(m, read=0, processed=0, late=0, dead=0), "the account goes back"),
    "rows": (lambda m: change_run(m, rows=only(m.nodes).runs[-1].rows + 1), "according to its manifest"),
    "run missing": (lambda m: change_run(m, name="d/Visits/e9-c9-0.arrow"), "missing"),
    "counted twice": (lambda m: change_run(m, first=0, last=m.id), "both count deltas"),
    "deltas ahead": (lambda m: change_run(m, first=m.id + 1, last=m.id + 1), "sums the deltas"),
    "key type": (
        lambda m: change_key(m, key_types=("int64", "string")),
        "holds string",
    ),
    "key name": (
        lambda m: change_key(m, key_names=("a", "b")),
        "has the columns",
    ),
}


@pytest.mark.parametrize("law", BROKEN_LAWS)
def test_every_broken_law_is_found(checkpoint: Path, law: str) -> None:
    """Without it a manifest with a good checksum and a wrong content, as a bug would write it, would pass."""
    change, text = BROKEN_LAWS[law]
    change_newest(checkpoint, change)
    found = look(checkpoint)
    assert text in faults(found)


def test_a_fence_that_changes_something_is_found(tmp_path: Path) -> None:
    """Without it a fence could move the clock past records never read."""
    pipeline(tmp_path, 100).run(engine="embedded")
    log = Log(LocalStorage(tmp_path))
    newest = log.newest()
    assert newest is not None
    log.fence(newest, "1" * 32, 0)
    assert look(tmp_path).ok
    change_newest(tmp_path, lambda m: change_clock(m, watermark=m.clock.watermark + 1))
    assert "a fence copies nodes" in faults(look(tmp_path))


def test_a_compaction_that_changes_more_than_runs_is_found(tmp_path: Path) -> None:
    """Without it a fold could move the clock or the account past records never read."""
    made = pipeline(tmp_path, 400)
    made.run(engine="embedded")
    compact(made)
    assert look(tmp_path).ok
    change_newest(tmp_path, lambda m: change_clock(m, watermark=m.clock.watermark + 1))
    assert "a compaction moves no clock" in faults(look(tmp_path))


def test_only_a_rollback_names_more_of_a_run_than_an_earlier_manifest(tmp_path: Path) -> None:
    """A fold in part names less of its inputs, and a rollback to before it names all of them; any other manifest would
    count rows twice."""
    pipeline(tmp_path, 100).run(engine="embedded")
    newest = Log(LocalStorage(tmp_path)).newest()
    assert newest is not None
    run = newest.manifest.all_runs()[0]
    folded = structs.replace(run, low=run.low + 1)
    assert differences(run, folded, newest.manifest) == ""
    assert differences(folded, run, newest.manifest) == "low"
    assert differences(folded, run, structs.replace(newest.manifest, kind="rollback")) == ""


def with_another_task(folder: Path) -> list[Manifest]:
    """Every manifest of a checkpoint, as if a second task had read the same records, and kept nothing."""
    storage = LocalStorage(folder)
    log, parent, made = Log(storage), None, []
    for id in log.ids():
        one = log.read(id).manifest
        ((visits, node),) = one.nodes.items()
        accounts = {
            name: {key: structs.replace(of, processed=of.read, late=0, dead=0, duplicate=0) for key, of in some.items()}
            for name, some in one.tasks[visits].inputs.items()
        }
        two = structs.replace(
            one,
            parent=parent,
            tasks={**one.tasks, "Orders": TaskPart(accounts)},
            nodes={**one.nodes, "Orders": structs.replace(node, runs=(), lowest=None)},
        )
        data = two.encode()
        (folder / manifest_name(id)).write_bytes(data)
        parent = id, manifest_sha256(data)
        made.append(two)
    return made


def test_a_checkpoint_of_two_tasks_is_verified_and_shown_and_continued_by_no_job_of_one(tmp_path: Path) -> None:
    """A graph has several tasks: whoever reads one of them alone would call the other damaged, or lose it."""
    folder = tmp_path / "visits"
    pipeline(folder, 300).run(engine="embedded")
    *_, newest = with_another_task(folder)
    assert Log(LocalStorage(folder)).read(newest.id).manifest == newest and newest.tasks.keys() == {"Visits", "Orders"}
    found = look(folder)
    assert found.ok and not found.findings, faults(found)
    assert clock_reading(LocalStorage(folder)).states.keys() == {"Visits", "Orders"}
    shown = CliRunner().invoke(main, ["show", str(folder)])
    assert shown.exit_code == 0 and "clock Orders" in shown.output and "clock Visits" in shown.output
    with pytest.raises(OtherJob, match=r"its states: \['Orders', 'Visits'\], this pipeline's: \['Visits'\]"):
        pipeline(folder, 300).run(engine="embedded")
    assert Log(LocalStorage(folder)).ids()[-1] == newest.id, "refused before anything is written"
