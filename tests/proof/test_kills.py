"""A slice of the real kills; ``make proof`` runs all of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from persistent.checkpoint.log import Log
from persistent.errors import CorruptCheckpoint
from persistent.storage import LocalStorage
from tests.proof import kills

SLICE = (
    ("embedded", "disk", "driver"),
    ("embedded", "disk", "takeover"),
    ("embedded", "hdfs", "driver"),
    ("embedded", "hdfs", "data-node"),
    ("embedded", "s3", "driver"),
    ("embedded", "s3", "takeover"),
    ("embedded", "s3", "ailing"),
    ("spark", "disk", "workers"),
)


@pytest.mark.crash
@pytest.mark.slow
def test_what_is_killed_leaves_what_a_calm_run_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated deaths know only the operations that we thought of; here the processes, disks and servers are real."""
    monkeypatch.setattr(kills, "PLAN", tuple((*kind, 1) for kind in SLICE))
    result = kills.prove(240.0, seed=1)
    assert result.failures == ()
    assert result.cases == len(SLICE)


def test_there_are_sixty_cases_of_every_kind() -> None:
    """The figure that is published would be of other runs than those that are run."""
    wanted = kills.cases(0, 1.0)
    assert len(wanted) == 60
    assert len({case.number for case in wanted}) == 60
    assert {case.store for case in wanted} == {"disk", "hdfs", "s3"}
    assert {case.engine for case in wanted} == {"embedded", "spark", "cluster"}
    assert {case.kind for case in kills.cases(0, 0.01)} >= {"driver", "takeover", "name-node", "data-node", "ailing"}


@pytest.mark.crash
@pytest.mark.parametrize("damage", ["publish twice", "forget", "litter", "corrupt"])
def test_damage_is_found(damage: str, tmp_path: Path) -> None:
    """A check that nothing can fail would pass sixty runs that lose rows."""
    case = kills.Case(0, 0, "embedded", "disk", "none")
    with kills.places([case]) as place, kills.ExitStack() as sessions:
        trial = kills.Trial(case, place, sessions, {})
        trial.finish()
        trial.check()
        damaged(Path(trial.order.checkpoint), Path(trial.order.sink), damage)
        with pytest.raises((AssertionError, CorruptCheckpoint)):
            trial.check()


def damaged(checkpoint: Path, sink: Path, damage: str) -> None:
    """Do to a finished run what a broken driver might."""
    published = next(path for path in sorted(sink.iterdir()) if path.is_file())
    if damage == "publish twice":
        (sink / f"00000000000000000099-again{published.suffix}").write_bytes(published.read_bytes())
    elif damage == "forget":
        published.unlink()
    elif damage == "litter":
        (checkpoint / "d" / "FileSource" / "e1-c1-00.arrow").write_bytes(b"")
    else:
        newest = Log(LocalStorage(checkpoint)).newest()
        assert newest is not None
        path = max((checkpoint / "m").iterdir())
        body = json.loads(path.read_text().splitlines()[0])
        name = next(run["name"] for run in _runs(body))
        data = bytearray((checkpoint / name).read_bytes())
        data[len(data) // 2] ^= 1
        (checkpoint / name).write_bytes(data)


def _runs(node: object) -> list[dict[str, str]]:
    """Every description of a run in a manifest."""
    if isinstance(node, dict):
        own = [node] if str(node.get("name", "")).startswith("d/") else []
        return own + [run for value in node.values() for run in _runs(value)]
    return [run for value in node for run in _runs(value)] if isinstance(node, list) else []
