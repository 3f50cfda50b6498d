"""A faulty storage does what it says, at the operation it says: else no crash test proves anything."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from persistent.errors import StorageError
from persistent.storage import MemoryStorage, Put
from persistent.testing import AskingStorage, FaultyStorage, Killed, Once, Operations
from persistent.testing.faults import DEATHS


@pytest.fixture
def memory() -> Iterator[MemoryStorage]:
    storage = MemoryStorage(f"faults-{uuid.uuid4().hex}")
    storage.write("d/old", b"old!")
    yield storage
    storage.clear()


def change(storage: FaultyStorage, verb: str) -> object:
    if verb == "put_if_absent":
        return storage.put_if_absent("m/1", b"one!")
    if verb == "write":
        return storage.write("d/1", b"one!")
    return storage.rename("d/old", "d/new") if verb == "rename" else storage.delete("d/old")


NEW = {"put_if_absent": ["1"], "write": ["1", "old"], "rename": ["new"], "delete": []}


def names(memory: MemoryStorage, verb: str) -> list[str]:
    return memory.list("m" if verb == "put_if_absent" else "d")


@pytest.mark.parametrize("verb", NEW)
@pytest.mark.parametrize("how", DEATHS)
def test_a_process_dies_before_after_or_in_the_middle(how: str, verb: str, memory: MemoryStorage) -> None:
    """A kill that does nothing, or everything, is not the one that was asked for."""
    before = names(memory, verb)
    operations = Operations(0, how)
    storage = FaultyStorage(memory, operations)
    with pytest.raises(Killed, match=f"{how} {verb}"):
        change(storage, verb)
    torn = {"write": ["1", "old"], "rename": ["new", "old"]}.get(verb, before)
    assert names(memory, verb) == {"before": before, "after": NEW[verb], "half": torn}[how]
    if (how, verb) == ("half", "write"):
        assert bytes(memory.read("d/1")) == b"on"
    with pytest.raises(Killed, match="dead since operation 0"):
        storage.list("m")


@pytest.mark.parametrize("verb", NEW)
@pytest.mark.parametrize("how", ["lost", "lost-undone"])
def test_an_answer_is_lost(how: str, verb: str, memory: MemoryStorage) -> None:
    """What was done although nobody said so is the hardest case of a commit."""
    before = names(memory, verb)
    storage = FaultyStorage(memory, Operations(0, how))
    storage.list("d")
    if verb == "put_if_absent":
        assert change(storage, verb) is Put.UNKNOWN
    else:
        with pytest.raises(StorageError, match="no answer in time"):
            change(storage, verb)
    assert names(memory, verb) == (NEW[verb] if how == "lost" else before)
    assert storage.put_if_absent("m/2", b"") is Put.WON


def test_an_error_comes_once(memory: MemoryStorage) -> None:
    """A storage that never recovers tests only the first failure."""
    storage = FaultyStorage(memory, Operations(1, "error"))
    assert storage.list("d") == ["old"]
    with pytest.raises(StorageError, match=r"cannot read .*d/old: Input/output error"):
        storage.read("d/old")
    assert bytes(storage.read("d/old")) == b"old!"
    assert [verb for verb, _, _ in storage.operations.log] == ["list", "read", "read"]


def test_once_is_once(memory: MemoryStorage) -> None:
    """Another driver that begins at each operation never lets the first one go on."""
    happened: list[str] = []
    pause = Once(lambda verb, name: verb == "read", lambda: happened.append("now"))
    storage = AskingStorage(memory, pause)
    storage.list("d")
    assert happened == []
    storage.read("d/old"), storage.read("d/old")
    assert happened == ["now"] and pause.happened
