"""The record that has moved the clock of a job is found in a topic, and in a stream, of a real broker."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from monoids import Count
from persistent import KafkaSource, NonWindowState, PersistentTask, Pipeline, RabbitStreamSource, Retention
from persistent.checkpoint.copies import newest_of
from persistent.checkpoint.log import Log
from persistent.reading import find_record, furthest
from persistent.storage import MemoryStorage
from tests.reading.test_clocks_furthest import run_with_pin
from tests.servers.kafka import KafkaServer
from tests.servers.rabbit import RabbitServer
from tests.servers.streams import LOGIN, Streams
from tests.tools.cli.visits import command

pytestmark = [pytest.mark.check, pytest.mark.timeout(600)]
AT, POISONED = 500_000, 13


class Pages(PersistentTask):
    key = "page"

    def persistent_state(self) -> Any:
        return NonWindowState(Count())

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


def values(count: int) -> list[bytes]:
    rows = [{"ts": AT if number == POISONED else number, "page": f"p{number}"} for number in range(count)]
    return [json.dumps(one).encode() for one in rows]


@dataclass
class Broker:
    """A topic of two partitions, or two streams, of which the second has every value; how it loses the first ones."""

    source: Callable[..., Any]
    name: str
    lose: Callable[[int], None]
    shown: str
    can_cut: bool = False
    """Whether it loses just those that are asked for."""


@pytest.fixture(params=["kafka", "rabbit"])
def broker(request: pytest.FixtureRequest) -> Broker:
    times: dict[str, Any] = {"timestamp": "ts", "timestamp_unit": "ms"}
    if request.param == "kafka":
        kafka: KafkaServer = request.getfixturevalue("kafka")
        topic = kafka.create(partitions=2)
        kafka.produce(topic, [(0, values(1)[0]), *((1, one) for one in values(40))])
        return Broker(
            lambda **more: KafkaSource(kafka.bootstrap, topic, **times, **more),
            "1",
            lambda before: kafka.truncate(topic, 1, before),
            f"partition 1, offset {POISONED}",
            can_cut=True,
        )
    rabbit: RabbitServer = request.getfixturevalue("rabbit")
    streams = Streams(rabbit)
    small: dict[str, Any] = {"max_length_bytes": 20_000, "stream_max_segment_size_bytes": 10_000}
    quiet, name = streams.create(), streams.create(**small)
    streams.append(quiet, values(1))
    streams.append(name, values(40), at_once=4)
    return Broker(
        lambda **more: RabbitStreamSource(streams.address, [quiet, name], client=LOGIN, **times, **more),
        name,
        lambda _: streams.append(name, [b"x" * 900] * 100, at_once=4),
        f"partition {name}, offset {POISONED}",
    )


def job(broker: Broker, **options: Any) -> Pipeline:
    given = {"checkpoint": MemoryStorage(uuid.uuid4().hex), "step_rows": 4, "retention": Retention(last=50), **options}
    return Pipeline(source=broker.source(), task=Pages(), **given)


def found_by(pipeline: Pipeline) -> Any:
    found = furthest(pipeline.storage, newest_of(Log(pipeline.storage)).manifest)
    assert found is not None and found.timestamp == AT
    return found


def test_it_is_found_in_the_step_that_counted_it(broker: Broker) -> None:
    """An operator would read the topic from its beginning, by hand."""
    pipeline = job(broker)
    pipeline.run(engine="embedded")
    found = found_by(pipeline)
    assert found.partition == broker.name and found.step is not None
    assert str(found).startswith("at offsets ")
    record = find_record(pipeline, found)
    assert record is not None and (record.offset, record.value["page"]) == (POISONED, f"p{POISONED}")
    assert str(record) == broker.shown


def test_without_the_plan_it_is_found_between_the_positions(broker: Broker) -> None:
    """It would not be found once the plan of its step was collected."""
    pipeline = job(broker, retention=Retention(last=2))
    run_with_pin(pipeline, 3)
    found = found_by(pipeline)
    assert found.step is None
    record = find_record(pipeline, found)
    assert record is not None and record.value["page"] == f"p{POISONED}"


@pytest.mark.parametrize("last", [2, 50])
def test_what_the_broker_has_deleted_before_it_is_passed_over(broker: Broker, last: int) -> None:
    """The command would fail on records that nobody asks for; or name another one, once it is gone."""
    pipeline = job(broker, retention=Retention(last=last))
    pipeline.run(engine="embedded")
    found = found_by(pipeline)
    assert (found.step is None) is (last == 2)
    for before in (POISONED - 1, POISONED):
        if broker.can_cut:
            broker.lose(before)
            record = find_record(pipeline, found)
            assert record is not None and record.offset == POISONED
    broker.lose(30)
    assert find_record(pipeline, found) is None


PROJECT = """
from tests.servers.test_furthest import MADE, Pages
from persistent import Pipeline

pipeline = Pipeline(source=MADE[-1](), task=Pages(), checkpoint="cp", step_rows=4)
"""
MADE: list[Callable[[], Any]] = []


def test_by_the_command(broker: Broker, here: Path) -> None:
    """An operator would have to write Python while the job is down."""
    MADE.append(broker.source)
    (here / "pages.py").write_text(PROJECT)
    assert command("run", "pages.py:pipeline", "--engine", "embedded").exit_code == 0
    said = command("clock", "pages.py:pipeline", "--find")
    assert said.exit_code == 0 and f"{broker.shown}, counted by checkpoint" in said.stdout, said.output
    assert f'"page":"p{POISONED}"' in said.stdout
    broker.lose(30)
    gone = command("clock", "pages.py:pipeline", "--find")
    assert gone.exit_code == 3 and "the source no longer holds it there" in gone.stderr, gone.output
