"""Objects of any class are state only for those who hold the key: nothing else is ever unpickled."""

from __future__ import annotations

import copy
import hashlib
import hmac
import os
import pickle
from pathlib import Path
from typing import Any

import cloudpickle as pickler
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monoids import Monoid, Sum, record
from monoids.monoid import check
from persistent import CorruptCheckpoint, FingerprintChanged, PersistentTask, Pipeline, WindowState, tumbling
from persistent.engines.embedded import Embedded
from persistent.serializers import WrongSignature, cloudpickle
from persistent.sources import MemorySource

KEY = bytes(range(64, 96))
OTHER = bytes(range(32))


def key_of_environment() -> bytes:
    return bytes.fromhex(os.environ["TESTS_STATE_KEY"])


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESTS_STATE_KEY", KEY.hex())


class Point:
    """An object that no tagged codec knows."""

    def __init__(self, x: complex) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and other.x == self.x


class Points(Monoid[Point]):
    """The sum of points."""

    identity = Point(0j)
    commutative = True
    serializer = cloudpickle(key=key_of_environment)

    def combine(self, a: Point, b: Point) -> Point:
        return Point(a.x + b.x)

    def lift(self, value: Any) -> Point:
        return Point(complex(value))

    def present(self, element: Point) -> Any:
        return [element.x.real, element.x.imag]


class Payload:
    """Unpickled, it makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def test_objects_come_back() -> None:
    """State that changes on the way through a file is not state."""
    monoid = Points()
    assert monoid.decode(monoid.encode(Point(1 + 2j))) == Point(1 + 2j)
    assert monoid.unpack(monoid.from_arrow(monoid.to_arrow(monoid.pack([Point(1j), Point(2j)])))) == [
        Point(1j),
        Point(2j),
    ]


@pytest.mark.parametrize("signed_by", [None, OTHER, "plain"])
def test_a_payload_is_not_unpickled(tmp_path: Path, signed_by: Any) -> None:
    """Whoever can write to the checkpoint would run code in every driver and worker."""
    made = tmp_path / "made"
    payload = pickle.dumps(Payload(made))
    signature = {
        None: b"\0" * 32,
        OTHER: cloudpickle(key=OTHER).dumps(Payload(made))[:32],
        "plain": hmac.digest(KEY, payload, "sha256"),
    }[signed_by]
    for data in (signature + payload, payload, payload[:31], b""):
        with pytest.raises(WrongSignature, match="Nothing was unpickled"):
            Points().decode(data)
    assert not made.exists()
    pickle.loads(payload)
    assert made.exists()


@given(st.data())
def test_every_changed_byte_is_refused(drawn: st.DataObject) -> None:
    """One bit of a pickle is another opcode."""
    serializer = cloudpickle(key=KEY)
    data = bytearray(serializer.dumps({"a": [1, 2j]}))
    data[drawn.draw(st.integers(0, len(data) - 1))] ^= 1 << drawn.draw(st.integers(0, 7))
    with pytest.raises(WrongSignature):
        serializer.loads(bytes(data))
    with pytest.raises(WrongSignature):
        cloudpickle(key=OTHER).loads(serializer.dumps(1))


@pytest.mark.parametrize("key", [b"", b"x" * 31, "x" * 32, None, 7, bytearray(32)])
def test_a_key_is_at_least_32_bytes(key: Any) -> None:
    """A short key is guessed, and then nothing is signed."""
    with pytest.raises((TypeError, ValueError), match="the key of the cloudpickle serializer"):
        cloudpickle(key=key)
    with pytest.raises((TypeError, ValueError), match="the key of the cloudpickle serializer"):
        cloudpickle(key=lambda: key).dumps(1)
    with pytest.raises(TypeError):
        cloudpickle()  # type: ignore[call-arg]


def test_the_key_is_shown_nowhere() -> None:
    """A log, a traceback or a page of configuration would give it away."""
    for serializer in (cloudpickle(key=KEY), cloudpickle(key=key_of_environment)):
        serializer.dumps(1)
        shown = (
            f"{serializer!r} {serializer} {getattr(serializer, '__dict__', '')} {Points().fingerprint()} {Points()!r}"
        )
        assert KEY.hex() not in shown and repr(KEY)[2:-1] not in shown
    assert Points().fingerprint()["serializer"] == ["cloudpickle", 1]
    assert "serializer" not in Sum().fingerprint()


def test_the_key_is_in_no_pickle() -> None:
    """What is sent to workers is written to disks and shown in pages on the way."""
    sent = pickler.dumps(cloudpickle(key=key_of_environment))
    assert KEY not in sent and pickle.loads(sent).loads(cloudpickle(key=KEY).dumps(5)) == 5
    held = KEY
    for serializer in (cloudpickle(key=KEY), cloudpickle(key=lambda: held)):
        assert copy.deepcopy(serializer) is serializer
        with pytest.raises(TypeError, match="would be part of the data sent to the workers"):
            pickler.dumps(serializer)


def test_elements_without_canonical_bytes_are_accepted() -> None:
    """Sets of objects are pickled in any order."""

    class Bags(Monoid[frozenset[Any]]):
        identity: frozenset[Any] = frozenset()
        serializer = cloudpickle(key=KEY)

        def combine(self, a: frozenset[Any], b: frozenset[Any]) -> frozenset[Any]:
            return a | b

    class Wrong(Bags):
        identity = frozenset({1j})

        def combine(self, a: frozenset[Any], b: frozenset[Any]) -> frozenset[Any]:
            return frozenset({2j})

    check(Bags())
    check(record(a=Bags(), b=Sum()))
    with pytest.raises(TypeError, match="is not the identity"):
        check(Wrong())


# -- in a run -----------------------------------------------------------------------------------------------------


class Positions(PersistentTask):
    """Points a key and minute."""

    key = "k"

    def __init__(self, key_file: Path | None = None) -> None:
        self.key_file = key_file

    def persistent_state(self) -> WindowState:
        monoid = Points()
        if self.key_file is not None:
            monoid.serializer = cloudpickle(key=self.key_file.read_bytes)
        return WindowState(monoid, tumbling("1 min"))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, message.value["n"])


def source(count: int) -> MemorySource:
    rows = [{"ts": n * 1000, "k": f"k{n % 3}", "n": n} for n in range(count)]
    return MemorySource(pa.Table.from_pylist(rows), timestamp="ts")


def pipeline(folder: Path, count: int) -> Pipeline:
    return Pipeline(source=source(count), task=Positions(), checkpoint=str(folder), discard_closed=True, step_rows=20)


def shown(folder: Path) -> Any:
    return sorted(map(str, pipeline(folder, 100).state().to_pylist()))


def test_a_run_with_objects_is_stopped_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """State of objects is state like any other, and the key in none of its files."""
    pipeline(tmp_path / "whole", 100).run(engine=Embedded(threads=1))
    folder = tmp_path / "c"
    pipeline(folder, 50).run(engine=Embedded(threads=1))
    pipeline(folder, 100).run(engine=Embedded(threads=1))
    assert shown(folder) == shown(tmp_path / "whole")
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    for path in files:
        data = path.read_bytes()
        assert KEY not in data and KEY.hex().encode() not in data, path
    monkeypatch.setattr(Points, "serializer", cloudpickle(key=OTHER))
    with pytest.raises(CorruptCheckpoint, match=r"d/Positions/.*the key is not the one it was signed with"):
        shown(folder)
    monkeypatch.setattr(Points, "serializer", None)
    with pytest.raises((FingerprintChanged, TypeError)):
        pipeline(folder, 100).run(engine=Embedded(threads=1))


@pytest.mark.spark
def test_workers_fetch_the_key(spark: Any, tmp_path: Path) -> None:
    """A closure is kept in files and pages of Spark: it holds the name of the key, not the key."""
    key_file, folder = tmp_path / "key", tmp_path / "c"
    key_file.write_bytes(KEY)
    task = Positions(key_file)
    assert KEY not in pickler.dumps(task) and KEY not in pickler.dumps(task.persistent_state())
    whole = Pipeline(source=source(100), task=task, checkpoint=str(folder), discard_closed=True, step_rows=50)
    whole.run(spark)
    pipeline(tmp_path / "whole", 100).run(engine=Embedded(threads=1))
    assert shown(folder) == shown(tmp_path / "whole")
    configuration = str(spark.sparkContext.getConf().getAll())
    assert KEY.hex() not in configuration and repr(KEY)[2:-1] not in configuration


def test_the_signature_is_what_the_docs_say() -> None:
    """Another program that checks it must find the same."""
    data = cloudpickle(key=KEY).dumps(1)
    domain = b"persistent.serializers.cloudpickle 1\0"
    assert data[:32] == hmac.new(KEY, domain + data[32:], hashlib.sha256).digest()
