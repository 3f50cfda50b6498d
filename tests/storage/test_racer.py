"""A racer creates at the moment it is told, and tells what the store answers."""

from __future__ import annotations

import io
import runpy
import sys
from pathlib import Path

import pytest

from persistent.errors import StorageError
from persistent.storage import LocalStorage, racer


def test_a_racer_answers_every_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The doctor would wait for ever, or take a failure for an answer; racers that begin too soon race with nobody."""
    now: list[float] = []

    def clock() -> float:
        now.append(len(now))
        return now[-1]

    put = LocalStorage.put_if_absent

    def failing(storage: LocalStorage, name: str, data: bytes) -> object:
        if name == "bad":
            raise StorageError("cannot\ncreate it")
        return put(storage, name, data)

    monkeypatch.setattr(LocalStorage, "put_if_absent", failing)
    monkeypatch.setattr(racer, "monotonic_s", clock)
    monkeypatch.setattr(sys, "stdin", io.StringIO("0.5 a 1\n0 a 2\n5 bad 1\n"))
    racer.race(str(tmp_path))
    assert capsys.readouterr().out.splitlines() == ["ready", "won", "lost", "cannot create it"]
    assert LocalStorage(tmp_path).read("a").to_pybytes() == b"1"
    assert now[-1] == 5


def test_a_racer_is_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor could not begin it."""
    monkeypatch.setattr(sys, "argv", ["racer", str(tmp_path)])
    monkeypatch.setattr(sys, "stdin", io.StringIO("0 a 1\n"))
    runpy.run_path(racer.__file__, run_name="__main__")
    assert LocalStorage(tmp_path).list("") == ["a"]
