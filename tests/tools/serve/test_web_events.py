"""A page hears of changes, and of the progress of a verification."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pytest

from persistent import FileSink
from persistent.storage import MemoryStorage
from persistent.tools.serve import shown as shown_module
from persistent.tools.serve import web as module
from persistent.tools.serve.shown import Shown
from persistent.tools.serve.web import Verifying, all_lines, changes
from tests.tools.serve.jobs import pipeline, ran


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_POLL_S", 0.01)
    monkeypatch.setattr(module, "_PROGRESS_S", 0.01)
    monkeypatch.setattr(shown_module, "_LOOK_S", 0.0)


def parsed(text: str) -> tuple[str, Any]:
    name, data = text.rstrip("\n").split("\n")
    return name.removeprefix("event: "), json.loads(data.removeprefix("data: "))


def test_a_change_is_heard_once() -> None:
    """The page would not move, or would be drawn anew every second."""
    shown = ran("changes", count=40)

    async def heard() -> list[Any]:
        stream = changes({"changes": shown, "none": Shown("none", "none", MemoryStorage("serve-nobody"))})
        first = sorted([await anext(stream), await anext(stream)], key=lambda text: parsed(text)[1]["name"])
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0.1)
        early = waiting.done() and not (await waiting).startswith(":")
        await asyncio.to_thread(lambda: pipeline("changes", count=100).run(engine="embedded"))
        while True:
            text = await waiting
            if not text.startswith(":") and parsed(text)[1]["checkpoint"]["read"] == 100:
                return [*map(parsed, first), early, parsed(text)]
            waiting = asyncio.ensure_future(anext(stream))

    first, none, early, after = asyncio.run(heard())
    assert first[0] == "job" and first[1]["checkpoint"]["read"] == 40 and not early
    assert none[1]["error"]["kind"] == "none"
    assert after[1]["checkpoint"]["read"] == 100


class Silent(Shown):
    """A job whose store does not answer until the test says so."""

    answers = Event()

    def look(self) -> Any:
        self.answers.wait(30)
        return super().look()


def test_a_store_that_does_not_answer_holds_no_other_job_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """One store that is away, and every job would stand still, and the page not begin."""
    monkeypatch.setattr(module, "_LINES_S", 0.2)
    works, away = ran("works"), ran("away")
    silent = Silent("silent", "silent", away.storage)

    async def heard() -> tuple[list[dict[str, Any]], Any, Any]:
        jobs = {"silent": silent, "works": works}
        lines = await all_lines(jobs)
        stream = changes(jobs)
        first = parsed(await anext(stream))
        silent.answers.set()
        second = parsed(await anext(stream))
        await stream.aclose()  # type: ignore[attr-defined]
        return lines, first[1], second[1]

    lines, first, second = asyncio.run(heard())
    assert [one["name"] for one in lines] == ["silent", "works"]
    assert lines[0]["error"]["kind"] == "waiting" and "error" not in lines[1]
    assert (first["name"], second["name"]) == ("works", "silent") and "error" not in second


def test_a_defect_ends_no_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """One job that cannot be listed, and no other would be followed."""

    def fails(shown: Shown) -> Any:
        raise RuntimeError("inner detail")

    monkeypatch.setattr(module, "brief", fails)
    line = module.line_of(ran("defect"))
    assert line["error"]["kind"] == "defect" and "inner detail" not in str(line)


def verified(shown: Shown) -> Any:
    async def whole() -> list[str]:
        return [text async for text in Verifying(shown).events()]

    name, data = parsed(asyncio.run(whole())[-1])
    assert name == "verified"
    return data


def test_a_verification() -> None:
    """A damaged checkpoint would be shown as a good one."""
    shown = ran("verified")
    found = verified(shown)
    assert found["ok"] and found["newest_good"] == shown.entry().manifest.base and found["verdict"] is None
    assert {one["name"] for one in found["parts"]} >= {"state runs", "dead letters"}
    storage = MemoryStorage("serve-verified")
    run = shown.entry().manifest.state_runs()[-1].name
    data = bytearray(storage._files[run].to_pybytes())
    data[len(data) // 2] ^= 1
    storage._files[run] = pa.py_buffer(bytes(data))
    found = verified(shown)
    assert not found["ok"] and found["findings"][0]["severity"] == "fault" and found["findings"][0]["place"] == run
    assert "--outputs=retract' goes back to it" in found["verdict"]


def test_a_verification_of_a_pipeline_looks_at_its_sinks(tmp_path: Path) -> None:
    """The command would find a damaged result, and the page call the same job whole."""
    shown = ran("sinks", sink=FileSink(tmp_path, format="jsonl"))
    found = verified(shown)
    assert found["ok"] and found["findings"] == []
    assert [one["checked"] > 0 for one in found["parts"] if one["name"] == "sink file"] == [True]
    path = sorted(tmp_path.glob("*.jsonl"))[0]
    path.write_bytes(b"x" + path.read_bytes())
    path.with_name("0" * 20 + "-0.jsonl").write_bytes(b"")
    found = verified(shown)
    assert not found["ok"]
    assert [one["severity"] for one in found["findings"]] == ["fault", "warning"]
    assert found["findings"][0]["place"] == str(path)
    without = verified(Shown("sinks", "checkpoint", shown.storage))
    assert without["ok"] and "sink file" not in {one["name"] for one in without["parts"]}


def test_leaving_the_page_ends_the_verification(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each visit would leave a thread that reads every byte."""
    seen = []

    def endless(storage: Any, *, on_progress: Any) -> Any:
        while True:
            seen.append(1)
            on_progress(1, 10)

    monkeypatch.setattr(module, "verify", endless)
    verifying = Verifying(ran("left"))

    async def leave() -> str:
        stream = verifying.events()
        first = await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]
        return first

    assert parsed(asyncio.run(leave()))[0] == "progress"
    verifying._thread.join(10)
    assert not verifying.is_at_work


def test_an_error_of_the_verification_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page would wait forever."""

    def fails(storage: Any, *, on_progress: Any) -> Any:
        raise OSError("no answer from http://me:pass@host/")

    monkeypatch.setattr(module, "verify", fails)
    said = verified(ran("fails"))["error"]
    assert "ended early" in said["text"] and "pass" not in said["text"]
