"""The graph of a job is what its checkpoint says, and names what that does not say."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from persistent import FileSource, LogSource, MemorySink, MemorySource, Pipeline, Retention, SegmentedLog, then
from persistent.checkpoint.output_parts import SinkBatch, SinkPart
from persistent.names import Staged
from persistent.storage import LocalStorage, MemoryStorage
from persistent.tools.serve import graph as module
from persistent.tools.serve import shown as shown_module
from persistent.tools.serve.graph import graph
from persistent.tools.serve.now import now
from persistent.tools.serve.shown import Shown
from persistent.tools.serve.wording import published_words
from tests.golden.make import GOLDEN
from tests.tools.serve.jobs import Visits, pipeline, ran, rows, several

PLACES = sorted(one.parent for one in GOLDEN.glob("*/*/FORMAT"))


def nodes(shown: Shown) -> dict[str, dict[str, Any]]:
    return {one["id"]: one for one in graph(shown)["nodes"]}


def facts(node: dict[str, Any]) -> dict[str, Any]:
    """What a node says; of an unknown, why."""
    return {one["name"]: one.get("why", one["value"]) for one in node["facts"]}


def rows_given(node: dict[str, Any]) -> int:
    (given,) = (value for name, value in facts(node).items() if name.startswith("rows of the last"))
    return int(given)


def tags(node: dict[str, Any]) -> list[str]:
    return [one["text"] for one in node["tags"]]


def test_a_job_with_one_state() -> None:
    """A part of the job would be missing in its picture, or lead to another."""
    found = graph(ran("one"))
    assert [one["id"] for one in found["nodes"]] == [
        "source/memory", "task", "state/state", "late", "dead", "sink/memory",
    ]  # fmt: skip
    assert found["edges"] == [
        ("source/memory", "task"), ("task", "state/state"), ("task", "late"), ("task", "dead"),
        ("state/state", "sink/memory"),
    ]  # fmt: skip
    assert found["nodes"][0]["says"] == "MemorySource" and found["nodes"][-1]["says"] == "MemorySink"


def test_each_of_several_states_and_its_sink() -> None:
    """A sink would be shown behind a state that it does not take, or late records behind none."""
    shown = several("graph-several", "minutes", "total", "living")
    edges = graph(shown)["edges"]
    assert {("state/minutes", "sink/minutes"), ("state/living", "sink/living"), ("late", "sink/late")} <= set(edges)
    found = nodes(shown)
    assert found["state/living"]["says"] == "a key lives 2500 ms"
    assert found["state/minutes"]["says"] == 'tumbling("1 min")'
    assert tags(found["state/minutes"]) == ["1 partly late"] and tags(found["state/total"]) == []
    assert found["state/minutes"]["query"] == {"name": "minutes"}


def test_what_it_counts_is_the_account() -> None:
    """The graph would count differently from the other views."""
    shown = ran("graph-account")
    found, current = nodes(shown), now(shown)
    source = facts(found["source/memory"])
    assert (source["read"], source["late"], source["dead letters"]) == (100, 1, 1)
    assert facts(found["task"])["processed"] == 98
    assert (facts(found["late"])["late"], facts(found["dead"])["dead"]) == (1, 1)
    assert source["rows a second"] == current["speed"]["rows_per_s"] > 0
    assert facts(found["task"])["step, plan to plan"] == current["speed"]["step_ms"]
    (part,) = found["source/memory"]["parts"]
    assert (part["position"], part["largest"], part["rate"]) == ("0, offset 100", 99_000, source["rows a second"])
    assert shown.pipeline is not None and isinstance(shown.pipeline.sink, MemorySink)
    assert rows_given(found["sink/memory"]) == len(shown.pipeline.sink.rows()) > 0


def test_what_a_checkpoint_does_not_say_is_unknown() -> None:
    """A figure would be made up, or be shown as zero."""
    shown = ran("unsaid", count=5)
    source = facts(nodes(shown)["source/memory"])
    assert source["not read yet"] == "only the source knows what it holds beyond"
    assert source["place"] == "the checkpoint names none for this kind of source"
    without = Shown("unsaid", "memory://serve-unsaid", shown.storage)
    assert nodes(without)["sink/memory"]["says"] == "sink of a kind that only the pipeline knows"


def test_what_is_known_later_is_left_out_with_one_sentence() -> None:
    """A job of one step would say five times that something is unknown, and nothing of what is known."""
    found = graph(ran("graph-first", count=5))
    shown = [fact for one in found["nodes"] for fact in one["facts"]]
    assert [one["name"] for one in shown if one["form"] == "unknown"] == ["place", "not read yet"]
    assert not {"rows a second", "step, plan to plan"} & {one["name"] for one in shown}
    assert found["steps"].startswith("Rows a second, and how long a step takes, are known after three checkpoints")
    later = graph(ran("graph-later"))
    assert later["steps"].startswith("Rows a second are those between the plans of checkpoints ")
    rated = [one["id"] for one in later["nodes"] if "rows a second" in facts(one)]
    assert rated == ["source/memory", "task", "late", "dead"]


def test_a_rate_of_checkpoints_that_are_kept() -> None:
    """A page that has seen many checkpoints would ask for those that were collected, and fail."""
    storage = ran("collected", 30).storage
    made = pipeline("collected", 100, retention=Retention(last=3))
    shown = Shown("collected", "", storage, made)
    graph(shown)
    made.run(engine="embedded")
    shown = replace(shown, _looked=None, _entries=OrderedDict())
    found = graph(shown)
    assert shown.look().newest.manifest.bases.keys() >= {found["id"]}
    assert facts({one["id"]: one for one in found["nodes"]}["source/memory"])["rows a second"] > 0


def joined(folder: Path, stop: Callable[[Any], None] | None = None) -> Shown:
    """A run over the files of a history and the log that goes on, perhaps stopped."""
    if not (folder / "in").exists():
        made = [{**one, "ts": number * 1_000} for number, one in enumerate(rows(90))]
        (folder / "in").mkdir()
        for number in range(3):
            part = made[20 * number : 20 * number + 20]
            (folder / "in" / f"{number}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in part))
        with SegmentedLog(str(folder / "log")).writer() as writer:
            for one in made[50:]:
                writer.append(json.dumps(one).encode(), time=one["ts"])
    history = FileSource(str(folder / "in" / "*.jsonl"), timestamp="ts", timestamp_unit="ms", ordered=True)
    live = LogSource(str(folder / "log"), timestamp="ts", timestamp_unit="ms")
    source = {"clicks": then(history, live, at=60_000, max_skew="1 s")}
    place = str(folder / "cp")
    job = Pipeline(source=source, task=Visits(), sink=MemorySink(), checkpoint=place, step_rows=25)
    with suppress(KeyboardInterrupt):
        job.run(engine="embedded", on_step=stop)
    return Shown("then", "", job.storage, job)


def test_a_history_and_what_follows_it(tmp_path: Path) -> None:
    """Nobody would see which half is read, and a half that waits would look like one that is dead."""

    def stop(_: Any) -> None:
        raise KeyboardInterrupt

    found = nodes(joined(tmp_path, stop))
    history, live = found["source/clicks, history"], found["source/clicks, live"]
    assert (history["says"], tags(history)) == ("FileSource", ["is read now"])
    assert (live["says"], tags(live), live["parts"]) == ("LogSource", ["waits for the history"], [])
    assert facts(history)["listed files"] == "1 of 3 are read, and a part of the next"
    assert facts(history)["below"].endswith("/in/")
    assert (facts(history)["read"], facts(live)["read"]) == (25, 0)
    found = nodes(joined(tmp_path))
    history, live = found["source/clicks, history"], found["source/clicks, live"]
    assert (tags(history), tags(live)) == (["has been read"], ["is read now"])
    assert facts(history)["not read yet"] == "nothing"
    assert [one["name"] for one in live["parts"]] == ["live/log"]
    assert live["parts"][0]["position"] == "0, offset 40"
    # Those that the history has given are duplicates in the log.
    assert facts(live)["read"] == facts(live)["duplicates"] + 30


def test_many_partitions_show_those_that_hold_the_clock_back() -> None:
    """A source of a thousand partitions would fill the page, and the one that matters would be anywhere."""
    sources = {
        name: MemorySource([{**one, "ts": at} for one in rows(3)], timestamp="ts", ordered=True)
        for name, at in (("ahead", 9), ("behind", 5))
    }
    shown = ran("held", sources=sources)
    found = nodes(shown)
    assert tags(found["source/behind"]["parts"][0]) == ["holds the clock back"]
    assert tags(found["source/ahead"]["parts"][0]) == []
    parts = [{"name": name, "reached": at} for name, at in (("a", None), ("b", 7), ("c", 5))]
    assert [one["name"] for one in sorted(parts, key=module._slowest_first)] == ["c", "b", "a"]


def batch(id: int) -> SinkBatch:
    return SinkBatch(id, None, (Staged("a", 1, "s", 1),))


def test_a_batch_is_given_once() -> None:
    """A batch that the next checkpoint names too, as it may still be unpublished, would count twice."""
    newest = ran("twice").look().newest.manifest
    known = module._Known(ran("given"), newest, 0)
    first = structs.replace(newest, id=5, sinks={"memory": SinkPart(last=5, unpublished=(batch(5),))})
    second = structs.replace(newest, id=6, sinks={"memory": SinkPart(last=6, unpublished=(batch(5), batch(6)))})
    known.__dict__["recent"] = [first, second]
    assert module._given(known, "memory")["value"] == 2


def test_what_a_sink_lacks_is_no_guess() -> None:
    """The last batch of a job that has ended would look unpublished for ever, or one that waits would not be seen."""
    newest = ran("owed").look().newest.manifest
    words = {
        (): "all",
        (newest.base,): "all, the last batch perhaps not yet",
        (3,): "1 batch perhaps not, that of checkpoint 3",
        (3, newest.base): "2 batches perhaps not, from that of checkpoint 3 on",
    }
    for ids, said in words.items():
        assert published_words(SinkPart(last=1, unpublished=tuple(map(batch, ids))), newest) == said
    assert published_words(SinkPart(), newest) == "nothing yet"


@pytest.mark.parametrize("place", PLACES, ids=lambda one: f"{one.parent.name} {one.name}")
def test_checkpoints_of_earlier_releases_have_a_graph(place: Path) -> None:
    """A job that was not upgraded could not be looked at."""
    shown = Shown("golden", "", LocalStorage(str(place)))
    found = nodes(shown)
    assert facts(found["task"])["processed"] > 0 and found["source/file"]["says"] == "FileSource"
    lies = shown.furthest()
    assert lies is not None and "counted" in str(lies)


def test_a_cold_server_says_how_much_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page would not ask again, and show the rates of two steps where twenty are kept."""
    made, at = ran("grows"), [0.0]

    class Slow(MemoryStorage):
        def read(self, name: str) -> Any:
            at[0] += 0.03
            return super().read(name)

    shown = Shown("grows", "", Slow("serve-grows"))
    monkeypatch.setattr(shown_module, "monotonic_s", lambda: at[0])
    known = [graph(shown)["known"] for _ in range(10)]
    assert known[0] < known[-1] == len(made.look().newest.manifest.bases)
