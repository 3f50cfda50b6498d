"""A shown job is read once, cheaply, and anew when another has taken its place."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from threading import Event, Thread
from typing import Any

import pytest
from msgspec import structs

from persistent.errors import NoCheckpoint, StorageError, UnknownCheckpoint
from persistent.names import manifest_name
from persistent.storage import MemoryStorage
from persistent.tools.serve import Shown, named
from persistent.tools.serve import shown as module
from persistent.tools.serve.shown import facts_of
from tests.tools.serve.jobs import corrected, pipeline, ran, several


class Counting(MemoryStorage):
    """Counts what is asked of it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.asked: Counter[str] = Counter()
        self.fails = False

    def read(self, name: str) -> Any:
        self.asked[name] += 1
        return super().read(name)

    def list(self, folder: str) -> list[str]:
        self.asked[f"{folder}/"] += 1
        if self.fails:
            raise StorageError("cannot list s3://me:pass@host/jobs: away. Try again")
        return super().list(folder)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    at = [100.0]
    monkeypatch.setattr(module, "monotonic_s", lambda: at[0])
    return at


def counting(name: str) -> tuple[Shown, Counting]:
    ran(name)
    storage = Counting(f"serve-{name}")
    return Shown(name, name, storage), storage


def test_a_look_is_one_listing(clock: list[float]) -> None:
    """Each open page would list ten thousand manifests every second, and read them."""
    shown, storage = counting("listing")
    shown.look()
    storage.asked.clear()
    for _ in range(5):
        shown.look()
    assert not storage.asked
    clock[0] += 1.5
    shown.look()
    assert storage.asked == {"m/": 1}


def test_a_manifest_is_read_once(clock: list[float]) -> None:
    """They never change: ten thousand of them, each time, would take seconds."""
    shown, storage = counting("once")
    for _ in range(3):
        assert shown.facts(5)["id"] == 5 and shown.entry(5).manifest.id == 5
    assert storage.asked[manifest_name(5)] == 1


def test_a_new_checkpoint_is_seen(clock: list[float]) -> None:
    """The page would show what was."""
    shown = ran("newer", count=40)
    before = shown.look()
    pipeline("newer", count=100).run(engine="embedded")
    assert shown.look() is before
    clock[0] += 1.5
    after = shown.look()
    assert after.newest.manifest.id > before.newest.manifest.id and after.version != before.version
    assert shown.facts(after.newest.manifest.id)["read"] == 100


def test_another_job_in_the_folder_is_not_mixed_with_the_first(clock: list[float]) -> None:
    """Checkpoints of a deleted job would be shown as those of its successor."""
    shown = ran("replaced", count=100)
    first = shown.facts(5)["committed_ms"], shown.entry(5).manifest.nonce
    ran("replaced", count=100)
    clock[0] += 5
    shown.look()
    assert shown.entry(5).manifest.nonce != first[1]


def test_a_store_that_is_away_is_said_and_comes_back(clock: list[float]) -> None:
    """One failed listing would end the page."""
    shown, storage = counting("away")
    shown.look()
    storage.fails = True
    clock[0] += 1.5
    for _ in range(2):
        with pytest.raises(StorageError):
            shown.look()
    storage.fails = False
    clock[0] += 1.5
    assert shown.look().newest.manifest.id > 3


def test_what_is_not_there_is_an_error() -> None:
    """An empty page would look like a job that has counted nothing."""
    with pytest.raises(NoCheckpoint):
        Shown("none", "none", MemoryStorage("serve-none")).look()
    with pytest.raises(UnknownCheckpoint):
        ran("unknown").entry(999)


def test_recent_checkpoints_stay_known_after_they_are_collected(clock: list[float]) -> None:
    """The pictures of a job that keeps two checkpoints would have one bar."""
    from persistent import Retention

    shown = ran("recent", count=50, retention=Retention(last=2))
    known = {facts["id"] for facts in shown.recent(100)}
    pipeline("recent", count=100, retention=Retention(last=2)).run(engine="embedded")
    clock[0] += 1.5
    assert known < {facts["id"] for facts in shown.recent(100)}


def test_recent_takes_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Now would wait until a hundred large manifests are read; and must go on with the next look."""
    monkeypatch.setattr(module, "_RECENT_S", -1.0)
    shown = ran("moment")
    shown.look()
    assert len(shown.recent(100)) == 1
    monkeypatch.setattr(module, "_RECENT_S", 10.0)
    assert len(shown.recent(100)) > 5


def test_a_name_holds_no_secret() -> None:
    """The password of a URL would be the name of its job, in each address."""
    storage = MemoryStorage("x")
    storage.url = "s3://me:pass@bucket"
    (name,) = named([("x", storage, None)])
    assert "pass" not in name and "bucket" in name


def test_names_are_short_and_unique() -> None:
    """Two jobs under one name would be one on the page."""
    storages = [MemoryStorage(name) for name in ("a/visits", "b/visits", "b/v sits?")]
    assert list(named([(one.name, one, None) for one in storages])) == ["visits", "visits-2", "v-sits-"]


@pytest.mark.parametrize(
    ("urls", "names"),
    [
        (("/jobs/sales/checkpoint", "/jobs/visits/checkpoint/"), ["sales", "visits"]),
        (("/a/sales/checkpoint", "/b/sales/checkpoint"), ["sales", "sales-2"]),
        (
            ("s3://me:pass@bucket/checkpoint", "hdfs://checkpoint", "/checkpoint"),
            ["bucket", "checkpoint", "checkpoint-2"],
        ),
        (("checkpoint", "./checkpoint", "/jobs/checkpoint/s/monday"), ["checkpoint", "checkpoint-2", "monday"]),
    ],
)
def test_projects_have_the_names_of_their_folders(urls: tuple[str, ...], names: list[str]) -> None:
    """The projects that init writes keep their checkpoints in folders of one name: none could be told from another."""
    storages = [MemoryStorage(f"named-{number}") for number in range(len(urls))]
    for storage, url in zip(storages, urls, strict=True):
        storage.url = url
    assert list(named([(url, storage, None) for url, storage in zip(urls, storages, strict=True)])) == names


def test_a_correction_among_those_of_a_job_before() -> None:
    """A correction of the job that this one continues, under the same id, would be left out, or shown at every
    checkpoint."""
    shown = corrected("heir")
    manifest = shown.entry().manifest
    (own,) = facts_of(shown.entry())["corrections"]
    assert (own["name"], own["checkpoint"]) == ("ticket", manifest.id)
    older = structs.replace(manifest.corrections["ticket"], checkpoint=1)
    entry = replace(
        shown.entry(), manifest=structs.replace(manifest, corrections={**manifest.corrections, "older": older})
    )
    assert [one["name"] for one in facts_of(entry)["corrections"]] == ["ticket"]
    step = replace(shown.entry(), manifest=structs.replace(manifest, kind="checkpoint"))
    assert facts_of(step)["corrections"] == []


def test_windows_are_closed_by_the_states_that_have_some() -> None:
    """The clock of a state without windows would be said to close some."""
    assert facts_of(several("closed").entry())["closed_ms"] == 99_000
    assert facts_of(several("open", "total", "living").entry())["closed_ms"] is None


def test_a_store_that_hangs_takes_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page that asks for the job would take one more thread of the server, until it answers for no job at all."""
    monkeypatch.setattr(module, "_WAIT_S", 0.05)
    hangs, goes_on = Event(), Event()

    class Hanging(MemoryStorage):
        def list(self, folder: str) -> list[str]:
            hangs.set()
            assert goes_on.wait(30)
            return super().list(folder)

    ran("hanging")
    shown = Shown("hanging", "", Hanging("serve-hanging"))
    first = Thread(target=shown.look, daemon=True)
    first.start()
    assert hangs.wait(30)
    with pytest.raises(StorageError, match="memory://serve-hanging: the store has not answered for"):
        shown.look()
    goes_on.set()
    first.join(30)
    assert shown.look().newest.manifest.id > 0


def test_a_job_has_the_name_of_its_pipeline() -> None:
    """Page, metrics and reports would each call it something else."""
    jobs = [pipeline("named") for _ in range(3)]
    jobs[0].name = jobs[1].name = "shop@visits"
    assert list(named([("", one.storage, one) for one in jobs])) == ["shop@visits", "shop@visits-2", "serve-named"]
