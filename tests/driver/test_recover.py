"""What a dead driver has begun is brought to its end, as it was planned."""

from __future__ import annotations

import pytest

from persistent.engines.embedded import Embedded
from tests.driver.shop import Shop
from tests.faults import FaultyStorage, Killed, Operations


def test_a_plan_that_was_put_is_run_as_it_is() -> None:
    """I7: a step resumed under other options is still the step that was begun; what is late would change else."""
    shop = Shop()
    operations = Operations()
    shop.pipeline(FaultyStorage(shop.storage, operations)).run(engine=Embedded(threads=1))
    at = next(n for n, (verb, _, name) in enumerate(operations.log) if verb == "write" and name.startswith("d/"))
    shop = Shop()
    with pytest.raises(Killed):
        shop.pipeline(FaultyStorage(shop.storage, Operations(at))).run(engine=Embedded(threads=1))
    shop.options["step_rows"] = 100
    rows: list[int] = []
    shop.run(on_step=lambda step: rows.append(step.rows))
    assert rows[:2] == [4, 8]


def test_an_end_of_input_that_was_begun_is_ended() -> None:
    """Its plan was put: half of the windows may be on their way. Who resumes does not have to say it again."""
    operations = Operations()
    shop = Shop(rows=2)
    shop.pipeline(FaultyStorage(shop.storage, operations)).run(engine=Embedded(threads=1), end_of_input=True)
    plans = [n for n, (verb, _, name) in enumerate(operations.log) if verb == "put_if_absent" and name.startswith("p/")]
    shop = Shop(rows=2)
    dying = shop.pipeline(FaultyStorage(shop.storage, Operations(plans[-1], "after")))
    with pytest.raises(Killed):
        dying.run(engine=Embedded(threads=1), end_of_input=True)
    assert shop.counted() != shop.expected()
    shop.run()
    assert shop.counted() == shop.expected()


def test_what_was_committed_but_not_published_is_published_without_a_step() -> None:
    """The last step of a job has nobody after it: who runs it again must not find "nothing to do" and an empty sink."""
    operations = Operations()
    shop = Shop()
    shop.pipeline(FaultyStorage(shop.storage, operations)).run(engine=Embedded(threads=1), end_of_input=True)
    commits = [
        n for n, (verb, _, name) in enumerate(operations.log) if verb == "put_if_absent" and name.startswith("m/")
    ]
    shop = Shop()
    dying = shop.pipeline(FaultyStorage(shop.storage, Operations(commits[-1], "after")))
    with pytest.raises(Killed):
        dying.run(engine=Embedded(threads=1), end_of_input=True)
    ids = shop.storage.list("m")
    assert shop.run(end_of_input=True).steps == 0
    assert shop.counted() == shop.expected() and shop.storage.list("m") == ids
