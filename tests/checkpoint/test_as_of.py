"""Which of the kept checkpoints answers for a clock, told from their manifests alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from monoids import Sum
from persistent import CorruptCheckpoint, FingerprintChanged, NonWindowState, WindowState, tumbling
from persistent.checkpoint.as_of import checkpoint_as_of
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest, commits_of
from persistent.checkpoint.parts import NodeClock
from persistent.errors import UnknownCheckpoint
from persistent.names import manifest_name, new_nonce
from persistent.storage import MemoryStorage
from persistent.time.clock import Clock
from tests.checkpoint.samples import manifest, node
from tests.histories import Totals

STATE = NonWindowState(Sum(), interval_ms=10, history=50)
BEFORE = NonWindowState(Sum(float), interval_ms=10, history=50)


def kept(
    id: int,
    watermark: int,
    since: int | None = None,
    *,
    state: Any = STATE,
    name: str = "Totals",
    key: str = "page",
    closed: int = 0,
    **changes: Any,
) -> Manifest:
    """Checkpoint ``id``, which keeps all before it."""
    of = node(state.fingerprint(), (key,), known_from=since)
    bases = dict.fromkeys(range(1, id + 1), 0)
    return manifest(
        id,
        clock=Clock(watermark, closed),
        nodes={name: of},
        **{"oldest": 1, "commits": commits_of(bases), **changes},
    )


def log_of(*manifests: Manifest, storage: Any = None) -> Log:
    log = Log(storage or MemoryStorage(new_nonce()))
    log.create(manifest())
    for one in manifests:
        log.put(one)
    return log


def found(log: Log, clock: int, state: Any = STATE) -> int:
    return checkpoint_as_of(log, Totals(state), {"state": state}, clock).manifest.id


def test_the_newest_that_knows_the_clock_answers() -> None:
    """An older one may lack records that were counted since; before it knows the clock a checkpoint lacks rows, and
    after what it kept apart it holds too many."""
    log = log_of(kept(1, 100, 60), kept(2, 110, 80), kept(3, 200, 150))
    assert [found(log, clock) for clock in (60, 80, 100, 110, 150, 200)] == [1, 2, 2, 2, 3, 3]
    for clock in (50, 120, 140, 210):
        with pytest.raises(UnknownCheckpoint):
            found(log, clock)


def test_a_state_before_a_migration_does_not_answer() -> None:
    """Its bytes would be read as elements of another monoid. Whoever asks is told which checkpoint holds the answer,
    and how far back the state as it is now goes."""
    log = log_of(kept(1, 100, 50, state=BEFORE), kept(2, 110, 60, state=BEFORE), kept(3, 130, 80), kept(4, 140, 90))
    assert [found(log, clock) for clock in (80, 90)] == [3, 4]
    with pytest.raises(FingerprintChanged) as told:
        found(log, 70)
    assert "checkpoint 2 holds the state as of" in str(told.value)
    assert "migrated; the migrated state goes back to 1970-01-01 00:00:00.130Z. Read it" in str(told.value)


@pytest.mark.parametrize("other", [{"state": BEFORE}, {"key": "n"}, {"name": "Visits"}])
def test_another_state_key_or_task_does_not_answer(other: dict[str, Any]) -> None:
    """Each of the three makes it another state, and nothing here is of the task as it is."""
    for clock in (0, 10):
        with pytest.raises(
            FingerprintChanged, match=r"checkpoint 1 holds .* before the state was migrated\. Read it with"
        ):
            found(log_of(kept(1, 20, **other)), clock)


def test_a_checkpoint_that_does_not_say_since_when_it_knows_answers() -> None:
    """Older releases did not record it, and kept as much apart as the history says."""
    log = log_of(kept(1, 20))
    assert found(log, 0) == found(log, 20) == 1


def test_a_window_that_closes_at_the_clock_is_still_whole() -> None:
    """A clock at the end of a window would be known one checkpoint too late, or one that dropped rows would answer."""
    state = WindowState(Sum(), tumbling(40), interval_ms=10)
    log = log_of(kept(1, 90, state=state, closed=80), kept(2, 130, state=state, closed=120))
    assert [found(log, clock, state) for clock in (80, 90, 120, 130)] == [1, 1, 2, 2]
    for clock in (70, 100):
        with pytest.raises(UnknownCheckpoint):
            found(log, clock, state)


def test_windows_that_are_closed_and_not_final_answer() -> None:
    """Their panes are there for late records: until they go, every clock within them is known."""
    state = WindowState(Sum(), tumbling(10), allowed_lateness=20, late="retract")
    held = node(state.fingerprint(), ("page",), clock=NodeClock(60, 60), final_at=40, late="retract")
    log = log_of(replace(kept(1, 60, state=state, closed=60), nodes={"Totals": held}))
    assert [found(log, clock, state) for clock in (40, 50, 60)] == [1, 1, 1]
    with pytest.raises(UnknownCheckpoint):
        found(log, 30, state)


def test_only_what_a_rollback_left_is_off_the_line() -> None:
    """The checkpoint a rollback went back to, and the one it made, are both of this timeline; between, none is."""
    line = {"left": ((2, 4, True),)}
    log = log_of(*(kept(id, 100, 100 if id == 4 else 0, **line) for id in (1, 2, 3, 4)))
    assert [found(log, clock) for clock in (90, 100)] == [1, 4]
    log = log_of(kept(1, 50), kept(2, 100), kept(3, 100), kept(4, 100, **line), kept(5, 200, **line))
    assert found(log, 100) == 4


@pytest.mark.parametrize(
    ("manifests", "clock", "says"),
    [
        ([kept(1, 200, 150), kept(2, 300, 250)], 140, "The panes before 1970-01-01 00:00:00.150Z are summed up"),
        ([kept(1, 200, 150), kept(2, 300, 250)], 160, None),
        ([kept(1, 200, 150), kept(2, 300, 250)], 210, "Choose a clock in that range"),
        ([kept(1, 200), kept(2, 300, 250)], 140, "Choose a clock in that range"),
        ([kept(1, 200)], 0, "Choose a clock in that range"),
        ([kept(1, 200, name="Visits")], 0, "Choose a clock in that range"),
        ([kept(1, 200, name="Visits"), kept(2, 300, 250)], 140, "The panes before 1970-01-01 00:00:00.250Z are summed"),
    ],
)
def test_an_unknown_clock_says_what_to_take_instead(manifests: list[Manifest], clock: int, says: str | None) -> None:
    """A user who is told to take a clock between those given asks for the same clock again, if it was summed up."""
    log = log_of(*manifests)
    if says is None:
        assert found(log, clock) == 1
        return
    with pytest.raises(UnknownCheckpoint, match=says):
        found(log, clock)


class _Read(MemoryStorage):
    """A storage where something happens when one manifest is read."""

    def __init__(self, name: str, happens: Callable[[], None]) -> None:
        super().__init__(new_nonce())
        self.name, self.happens = name, happens

    def read(self, name: str) -> pa.Buffer:
        if name == self.name:
            self.name = ""
            self.happens()
        return super().read(name)


def test_what_is_collected_while_one_looks_is_passed_over() -> None:
    """A reader of a job that runs would be told now and then that its checkpoint is corrupt."""
    four = kept(4, 130, 120)

    def goes_on() -> None:
        Log(storage).put(replace(four, id=5, base=5, oldest=3, commits=((3, 0), (4, 0), (5, 0))))
        storage.delete(manifest_name(2))

    storage = _Read(manifest_name(2), goes_on)
    log = log_of(kept(1, 50, 0), kept(2, 110, 60), kept(3, 120, 70), four, storage=storage)
    assert found(log, 110) == 3


def test_damage_to_a_kept_checkpoint_is_told() -> None:
    """The next would answer, and nobody learn that the older one is lost."""
    log = log_of(kept(1, 50, 0), kept(2, 110, 60), kept(3, 120, 70))
    log.storage.delete(manifest_name(2))
    with pytest.raises(CorruptCheckpoint, match="missing"):
        found(log, 50)
