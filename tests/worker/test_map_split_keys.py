"""A key that does not fit its column is a dead letter that names its record, and costs no other."""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

from persistent import (
    Message,
    PersistentError,
    Pipeline,
    State,
    UserCodeError,
)
from persistent.engines.embedded import Embedded
from persistent.storage import MemoryStorage, Storage
from tests.faults import FaultyStorage, Killed, Operations
from tests.few import one_in
from tests.visits import GOOD, Visits, pipeline_of, run, says, visits_of


def test_keys_of_different_types(storage: MemoryStorage) -> None:
    """1, 1.0 and True are different keys; in one column they would become one."""

    class Keyed(Visits):
        key = {"kind": None}

        def process_message(self, state: State, message: Message) -> None:
            n = message.value["n"]
            state.update(message.timestamp, {"visits": 1}, key=n if n < 12 else float(n))

    class ByFunction(Visits):
        key = {"kind": lambda message: message.value["n"] if message.value["n"] < 12 else float(message.value["n"])}

    for task in (Keyed(), ByFunction()):
        for step_rows in (None, 3):
            checkpoint = f"memory://{uuid.uuid4().hex}"
            pipeline = pipeline_of(GOOD, checkpoint, task, step_rows=step_rows)
            with pytest.raises(PersistentError) as error:
                run(pipeline)
            says(error, "kind", "int64", "double", "one type")


class AnyKey(Visits):
    """Counts by the key that the record names, of whatever type."""

    key = {"kind": None, "other": None}

    def __init__(self, keys: Sequence[tuple[Any, Any]]) -> None:
        self.keys = list(keys)

    def process_message(self, state: State, message: Message) -> None:
        state.update(message.timestamp, {"visits": 1, "total": 0}, key=self.keys[message.value["n"]])


class AnyKeyByFunction(AnyKey):
    """The same, where functions make the key."""

    def __init__(self, keys: Sequence[tuple[Any, Any]]) -> None:
        super().__init__(keys)
        self.key = {
            "kind": lambda message: self.keys[message.value["n"]][0],
            "other": lambda message: self.keys[message.value["n"]][1],
        }

    def process_message(self, state: State, message: Message) -> None:
        state.update(message.timestamp, {"visits": 1, "total": 0})


def rightly_typed(keys: Sequence[tuple[Any, Any]]) -> list[bool]:
    """Which keys agree with those before them: each column has the type of its first value that is not None, where its
    message counts."""
    known: list[Any] = [None, None]
    right = []
    for key in keys:
        fits = all(one is None or value is None or type(value) is one for one, value in zip(known, key))
        right.append(fits)
        if fits:
            known = [type(value) if one is None and value is not None else one for one, value in zip(known, key)]
    return right


@pytest.mark.parametrize("task", [AnyKey, AnyKeyByFunction])
@pytest.mark.parametrize("seed", one_in(3, range(6)))
def test_a_key_of_another_type_is_a_dead_letter(task: type[AnyKey], seed: int) -> None:
    """It would end every run, for ever; or steps and workers would decide which of two types is the wrong one."""
    rng = random.Random(seed)
    kinds = [None, 7, 7.0, "7", True, Decimal(7)]
    often = [rng.choice(kinds), rng.choice(kinds)]
    keys = [tuple(rng.choice([*often, *kinds]) for _ in range(2)) for _ in range(24)]
    keys = [(None, None)] * seed + keys
    rows = [{"ts": 1_700_000_000_000 + n, "n": n} for n in range(len(keys))]
    right = rightly_typed(keys)
    assert True in right and False in right
    for step_rows, threads in ((None, 1), (None, 4), (1, 1), (5, 3), (9, 5)):
        made = pipeline_of(
            rows, f"memory://{uuid.uuid4().hex}", task(keys), step_rows=step_rows, on_error="dead-letter"
        )
        report = made.run(engine=Embedded(threads))
        dead = made.dead_letters().to_pylist()
        assert sorted(row["offset"] for row in dead) == [n for n, fits in enumerate(right) if not fits]
        assert report.ledger["memory"].processed == right.count(True) == visits_of(made)
        assert all("key column" in row["reason"] for row in dead)


def test_wide_decimals_that_do_not_fit_the_column_are_dead_letters() -> None:
    """Decimals widen the type of their column, up to 38 digits: one that needs a 39th would stop the job for good."""
    keys = [(Decimal("1" * 38), 1), (Decimal("0.1"), 1), (Decimal(5), 1), (Decimal("1" * 39), 1)]
    rows = [{"ts": 1_700_000_000_000 + n, "n": n} for n in range(4)]
    for step_rows, threads in ((None, 1), (None, 4), (1, 1)):
        options = {"step_rows": step_rows, "on_error": "dead-letter"}
        made = pipeline_of(rows, f"memory://{uuid.uuid4().hex}", AnyKey(keys), **options)
        made.run(engine=Embedded(threads))
        assert sorted(row["offset"] for row in made.dead_letters().to_pylist()) == [1, 3]


@pytest.mark.parametrize("verb", ["p/", "m/"])
def test_a_key_of_another_type_is_put_aside_again_after_a_crash(verb: str, storage: MemoryStorage) -> None:
    """A step that is done again by other workers would set another message aside."""
    keys: list[tuple[Any, Any]] = [(None, None), (None, None), ("a", 1), (1, 1), ("a", 1), (1, 1), (1, 1), (1, 1)]
    rows = [{"ts": 1_700_000_000_000 + n, "n": n} for n in range(8)]

    def made(where: Storage) -> Pipeline:
        return pipeline_of(rows, where, AnyKey(keys), step_rows=8, on_error="dead-letter")

    operations = Operations()
    made(FaultyStorage(MemoryStorage(uuid.uuid4().hex), operations)).run(engine=Embedded(1))
    number = max(n for n, (_, _, name) in enumerate(operations.log) if name.startswith(verb))
    with pytest.raises(Killed):
        made(FaultyStorage(storage, Operations(number, "before" if verb == "m/" else "after"))).run(engine=Embedded(1))
    made(storage).run(engine=Embedded(4))
    assert sorted(row["offset"] for row in made(storage).dead_letters().to_pylist()) == [3, 5, 6, 7]
    assert visits_of(made(storage)) == 4


def test_a_key_of_another_type_names_its_record(storage: MemoryStorage) -> None:
    """Whoever is to mend it would look for it in all that was read, where another worker read the first key."""
    keys = [("a", 1)] * 7 + [(1, 1)]
    rows = [{"ts": 1_700_000_000_000 + n, "n": n} for n in range(8)]
    with pytest.raises(UserCodeError) as error:
        pipeline_of(rows, storage, AnyKey(keys)).run(engine=Embedded(4))
    says(error, "(0, 7)", "key column 'kind' holds string, as in its first key, but this one is int64", "one type")
