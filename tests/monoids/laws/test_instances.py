"""Every public monoid obeys every law, and is the same in every process."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import strategies as st

import monoids
from monoids import Group, Monoid
from monoids.laws import assert_monoid_laws, inputs_for
from monoids.laws.instances import INSTANCES
from monoids.laws.plugin import public_monoids
from tests.few import only

TO_SUBCLASS = {"Monoid", "Group", "FixedWidth"}
IDS = [repr(monoid)[:60] for monoid, _ in INSTANCES]


FIRST = {type(monoid): number for number, (monoid, _) in reversed([*enumerate(INSTANCES)])}
"""The first instance of each class."""
FEW = {*FIRST.values(), *range(0, len(INSTANCES), 3)}


@pytest.mark.parametrize("number", only(FEW.__contains__, range(len(INSTANCES))), ids=IDS)
@pytest.mark.filterwarnings("ignore::monoids.laws.LawsWarning")
def test_lawful(number: int) -> None:
    """Without the laws no recovery, compaction, window or rescaling gives the right sum.

    ``make check`` tries 200 examples, ``make laws`` 5,000.
    """
    assert_monoid_laws(*INSTANCES[number], examples=12)


def test_every_public_monoid_is_tested() -> None:
    """A monoid added without its laws would be believed lawful."""
    made = {repr(monoid).partition("(")[0] for monoid, _ in INSTANCES}
    classes = {cls.__name__ for monoid, _ in INSTANCES for cls in type(monoid).__mro__}
    missing = {
        name
        for name in set(monoids.__all__) - TO_SUBCLASS
        if name not in made | classes and _is_public_monoid(getattr(monoids, name))
    }
    assert not missing, f"give these an instance in monoids/laws/instances.py: {sorted(missing)}"


def _is_public_monoid(thing: Any) -> bool:
    """Whether a public name is a class of monoids, or a function that makes one."""
    if isinstance(thing, type):
        return issubclass(thing, Monoid)
    made = getattr(thing, "__annotations__", {}).get("return", "")
    return any(word in str(made) for word in ("Monoid", "Group", *_class_names()))


def _class_names() -> set[str]:
    return {type(monoid).__name__ for monoid, _ in INSTANCES}


def test_every_class_of_the_package_is_tested() -> None:
    """A class that no instance has would be missing from --monoid-laws too."""
    faults = [found.fault for found in public_monoids("monoids") if found.fault]
    assert not faults


@pytest.mark.parametrize("monoid", [monoid for monoid, _ in INSTANCES], ids=IDS)
def test_pickled_and_written_it_is_the_same_monoid(monoid: Monoid[Any]) -> None:
    """A worker gets it pickled, a reader of an error retypes what is printed."""
    again = pickle.loads(pickle.dumps(monoid))
    assert again.fingerprint() == monoid.fingerprint()
    assert repr(again) == repr(monoid)
    assert isinstance(again, Group) == isinstance(monoid, Group)


@pytest.mark.parametrize("monoid", [monoid for monoid, _ in INSTANCES], ids=IDS)
def test_null_contributes_nothing(monoid: Monoid[Any]) -> None:
    """An aggregate in which null counts for something differs between monoids for no reason."""
    assert monoid.encode(monoid.lift(None)) == monoid.encode(monoid.identity)


@pytest.mark.parametrize("monoid", [monoid for monoid, _ in INSTANCES], ids=IDS)
def test_inputs_of_an_instance_are_known(monoid: Monoid[Any]) -> None:
    """``assert_monoid_laws(Sum())`` needs no strategy."""
    assert isinstance(inputs_for(monoid), st.SearchStrategy)


_DIGESTS = """
import hashlib
import pyarrow as pa
from monoids.laws.examples import examples_of, value_of
from monoids.laws.scalar import presentable
from monoids.laws.instances import INSTANCES

for monoid, inputs in INSTANCES:
    digest = hashlib.sha256(repr((monoid, monoid.fingerprint())).encode())
    for example in examples_of(inputs, 6):
        elements = value_of(monoid, example["elements"])
        digest.update(monoid.encode(monoid.fold(elements)))
        columns = monoid.pack(elements)
        batch = pa.record_batch(monoid.to_arrow(columns), names=monoid.schema.names)
        digest.update(bytes(batch.serialize()))
        presented = monoid.present_fields(monoid.pack([one for one in elements if presentable(monoid, one)]))
        digest.update(repr([column.to_pylist() for column in presented.values()]).encode())
    print(digest.hexdigest(), repr(monoid))
"""


@pytest.mark.check
def test_another_hash_seed_gives_the_same_bytes() -> None:
    """State written by one process is compared, merged and verified by others."""
    outputs = [_digests(seed) for seed in ("1", "77")]
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) == len(INSTANCES)


def _digests(seed: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", _DIGESTS],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
