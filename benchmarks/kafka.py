"""Kafka: a job that reads a topic, with state and checkpoints, against a plain client that reads the same records.

A broker of this machine (``tests/servers/kafka.py``) holds JSON of about 60 bytes in some partitions. The plain side is
a consumer that reads them all and adds up their bytes; ours counts them by key and minute on the embedded engine, and
commits checkpoints to a folder. The sides take turns, and what each has read is compared every time.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks import measure
from monoids import Count
from persistent import KafkaSource, PersistentTask, Pipeline, WindowState, tumbling
from tests.servers.kafka import KafkaServer, kafka_server

_AT_ONCE = 2_000


class Counts(PersistentTask):
    """Records per key and minute."""

    key = "key"

    def persistent_state(self) -> WindowState:
        return WindowState(Count(), tumbling("1 min"))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)

    def process_batch(self, state: Any, batch: Any) -> None:
        state.update_batch(batch.timestamps, 1)


def fill(server: KafkaServer, topic: str, partitions: int, rows: int, seed: int) -> None:
    """``rows`` records, a second of event time for every thousand."""
    from confluent_kafka import Producer

    keys = np.random.default_rng(seed).zipf(1.3, rows) % 10_000
    producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 10**6})
    for number, key in enumerate(keys.tolist()):
        value = json.dumps({"ts": number, "key": key, "page": f"/page/{key}", "n": number % 7})
        producer.produce(topic, value, partition=number % partitions)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(300) == 0


def plain(server: KafkaServer, topic: str, partitions: int) -> int:
    """How many records a consumer reads until it is at the end of every partition."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": server.bootstrap, "group.id": "plain", "enable.auto.commit": False}
    settings |= {"enable.partition.eof": True, "fetch.queue.backoff.ms": 10}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, one, 0) for one in range(partitions)])
    count = size = ended = 0
    while ended < partitions:
        for message in consumer.consume(_AT_ONCE, 0.1):
            if message.error() is not None:
                ended += 1
                continue
            count += 1
            size += len(message.value())
    consumer.close()
    return count


def ours(server: KafkaServer, topic: str, folder: Path) -> int:
    """How many records a job reads."""
    source = KafkaSource(server.bootstrap, topic, timestamp="ts", timestamp_unit="ms")
    pipeline = Pipeline(source=source, task=Counts(), checkpoint=str(folder / "checkpoint"), discard_closed=True)
    return pipeline.run(engine="embedded").rows


def read(name: str, server: KafkaServer, topic: str, partitions: int, folder: Path, found: dict[str, int]) -> None:
    found[name] = plain(server, topic, partitions) if name == "plain" else ours(server, topic, folder)


@click.command(help="A job that reads a topic, against a plain consumer, in records a second.")
@click.option("--rows", default=1_000_000, show_default=True)
@click.option("--partitions", default=3, show_default=True)
@click.option("--runs", default=5, show_default=True)
@measure.common
def main(rows: int, partitions: int, runs: int, cache: Path, work: Path | None, seed: int) -> None:
    seconds: dict[str, list[float]] = {"plain": [], "ours": []}
    with kafka_server() as server:
        topic = server.create(partitions)
        fill(server, topic, partitions, rows, seed)
        for turn in range(runs + 1):
            with measure.empty_folder(work or cache) as folder:
                found = {}
                for name in seconds:
                    taken = measure.wall_seconds(partial(read, name, server, topic, partitions, folder, found))
                    when = f"run {turn} of {runs}" if turn else "warm-up"
                    click.echo(f"{when}: {name} {rows / taken:,.0f} records/s")
                    if turn:
                        seconds[name].append(taken)
                if set(found.values()) != {rows}:
                    raise measure.RowsDiffer(f"{rows:,} records are in the topic, the sides have read {found}")
    rate = {name: rows / measure.median(taken) for name, taken in seconds.items()}
    figures = [
        measure.Figure("ours", rate["ours"], "records/s"),
        measure.Figure("plain consumer", rate["plain"], "records/s"),
        measure.Figure("ours / plain", rate["ours"] / rate["plain"], "times", target=0.5),
    ]
    measure.publish("kafka", {"rows": rows, "partitions": partitions, "runs": runs}, figures)


if __name__ == "__main__":
    main()
