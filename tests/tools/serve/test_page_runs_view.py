"""The storage view shows every run, and those that one key needs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from persistent.errors import InvalidPipeline
from persistent.tools.serve import Shown
from persistent.tools.serve import page as module
from persistent.tools.serve.page import runs_view
from persistent.worker.state_tables import OneKey
from tests.single import only
from tests.tools.serve.jobs import ran, several


def test_every_run_of_the_manifest() -> None:
    """Bytes would lie in a folder of which the page says nothing."""
    shown = ran("runs")
    manifest = shown.entry().manifest
    found = runs_view(shown)
    assert {one["name"] for one in found["runs"]} == manifest.files()
    assert found["bytes"] == sum(run.bytes for run in manifest.all_runs())


def test_the_runs_that_a_key_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that holds the key would be missing."""
    shown = ran("needed")
    found = runs_view(shown, key=("/", "7"))["needed"]
    assert 0 <= found["group"] < 1024 and len(found["runs"]) == len(shown.entry().manifest.state_runs())
    monkeypatch.setattr(OneKey, "group", property(lambda self: 5_000))
    assert runs_view(shown, key=("/", "7"))["needed"]["runs"] == []


def test_a_key_is_checked() -> None:
    """Another key's runs would be shown."""
    with pytest.raises(InvalidPipeline, match="give 2"):
        runs_view(ran("checked"), key=("/",))


def test_the_number_of_runs_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred thousand of them would be one answer; those that are left out must be counted."""
    monkeypatch.setattr(module, "_RUNS_MAX", 1)
    found = runs_view(ran("bounded"))
    assert len(found["runs"]) == 1 and found["runs_more"] == found["count"] - 1 > 0
    assert found["runs"][0]["bytes"] == max(run.bytes for run in ran("bounded").entry().manifest.all_runs())


def test_a_key_needs_runs_of_every_state() -> None:
    """The runs of the second state would be missing, or the page would fail."""
    shown = several("states")
    found = runs_view(shown, key=("/", "7"))
    assert {one["of"] for one in found["runs"] if one["name"] in found["needed"]["runs"]} == {
        "state Each/minutes",
        "state Each/living",
    }
    assert set(found["needed"]["runs"]) == {run.name for run in shown.entry().manifest.state_runs()}


def test_a_state_that_has_counted_nothing_has_no_key() -> None:
    """Of a state without a record the types of the key are unknown: none of the runs could be looked for."""
    shown = several("untyped", "minutes")
    manifest = shown.entry().manifest
    empty = structs.replace(only(manifest.nodes), runs=(), key_types=())
    both = structs.replace(manifest, nodes={"Each/early": empty, **manifest.nodes})
    shown.entry = lambda id=None: replace(Shown.entry(shown, id), manifest=both)  # type: ignore[method-assign]
    assert runs_view(shown, key=("/", "7"))["needed"]["runs"] == [run.name for run in manifest.state_runs()]
