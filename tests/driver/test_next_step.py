"""A step that kills its driver is tried smaller."""

from __future__ import annotations

import logging
import uuid
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from persistent import MemorySource, Pipeline
from persistent.checkpoint.log import Log
from persistent.connect.source import SourcePlan
from persistent.driver import open_job
from persistent.errors import CorruptCheckpoint
from persistent.names import plan_name
from persistent.storage import MemoryStorage
from tests.driver.shop import Shop, Visits
from tests.faults import Killed
from tests.single import only


class Hungry(Visits):
    """Dies of more than four rows at once."""

    def process_batch(self, state: Any, batch: Any) -> None:
        if len(batch) > 4:
            raise Killed("out of memory")
        state.update_batch(batch.timestamps, 1)


def test_a_step_that_kills_its_driver_is_tried_smaller(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One plan too large for the machine would be repeated for ever."""
    monkeypatch.setattr(open_job, "ROWS_FIRST", 8)
    monkeypatch.setattr(open_job, "_ROWS_MIN", 1)
    shop, deaths = Shop(rows=8, task=Hungry, step_rows=None), 0
    while True:
        try:
            shop.run(end_of_input=True)
            break
        except Killed:
            deaths += 1
            # Four for each row until few enough are left: slowly, but on.
            assert deaths <= 4 * 4, "not smaller"
    assert deaths >= 3 and "trying smaller steps" in caplog.text
    assert shop.counted() == shop.expected()
    assert max(manifest.replan for manifest in shop.manifests()) >= 1
    assert shop.manifests()[-1].replan == 0


def test_with_step_rows_the_plan_stays_and_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever fixed the borders of the steps relies on them."""
    shop = Shop(task=Hungry, step_rows=8)
    for _ in range(5):
        with caplog.at_level(logging.WARNING), pytest.raises(Killed):
            shop.run()
    assert "p/00000000000000000000.json was begun 3 times and never committed" in caplog.text
    assert {manifest.replan for manifest in shop.manifests()} == {0}


def test_a_plan_of_another_source_is_named_by_it() -> None:
    """It starts where the checkpoint is, so that two equal positions were shown as what differs."""
    shop = Shop(task=Hungry, step_rows=8)
    with pytest.raises(Killed):
        shop.run()
    put = Log(shop.storage).plan(0, 0)
    assert put is not None
    shop.storage.delete(plan_name(0, 0))
    shop.storage.write(plan_name(0, 0), structs.replace(put, sources={"clicks": only(put.sources)}).encode())
    with pytest.raises(CorruptCheckpoint, match="reads clicks, but the sources of the checkpoint and of this"):
        shop.run()


@pytest.mark.parametrize(("said", "stands"), [(None, 9), (0, 0), (4, 4)])
def test_the_disorder_of_what_is_read_stands_in_the_plan(said: int | None, stands: int) -> None:
    """A source made of several has one for each, and a step found again must not take that of another."""

    class Several(MemorySource):
        def plan(self, *args: Any, **options: Any) -> SourcePlan:
            return replace(super().plan(*args, **options), max_out_of_orderness=said)

    source = Several([{"ts": n, "page": "a"} for n in range(9)], max_out_of_orderness=9)
    storage = MemoryStorage(uuid.uuid4().hex)
    with pytest.raises(Killed):
        Pipeline(source=source, task=Hungry(), discard_closed=True, checkpoint=storage).run(engine="embedded")
    put = Log(storage).plan(0, 0)
    assert put is not None and only(put.sources).max_out_of_orderness_ms == stands
