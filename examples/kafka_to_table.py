"""From a topic of Kafka into a table: the payments of each customer and hour, in two runs that count each payment once.

    python examples/kafka_to_table.py                            starts a Kafka, and ends it
    python examples/kafka_to_table.py --kafka localhost:9092     uses yours

It needs ``pip install 'persistent-monoids[kafka]'``. Between the runs more payments come. The table is in a SQLite file
here; ``PostgresSink(dsn, "payments", mode="upsert")`` in its place is one in PostgreSQL.
"""

from __future__ import annotations

import json
import random
import sqlite3
import tempfile
import uuid
from contextlib import ExitStack, closing
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import servers

from monoids import Count, Max, Sum, record
from persistent import KafkaSource, PersistentTask, Pipeline, SqliteSink, WindowState, tumbling

HOUR = 3_600_000
FIRST = 1_714_953_600_000
"""2024-05-06, midnight."""


class Payments(PersistentTask):
    """Payments, their sum and the largest in cents, per customer and hour."""

    key = "customer"

    def persistent_state(self) -> WindowState:
        return WindowState(record(payments=Count(), cents=Sum(), largest=Max()), tumbling("1 h"))

    def process_message(self, state: Any, message: Any) -> None:
        cents = message.value["cents"]
        state.update(message.timestamp, {"payments": 1, "cents": cents, "largest": cents})


def payments(count: int) -> list[dict[str, Any]]:
    """The payments of a day, each up to a minute out of order."""
    rng = random.Random(13)
    found = []
    for number in range(count):
        time = FIRST + number * 24 * HOUR // count - rng.randrange(60_000) * (number > 100)
        found.append({"ts": time, "customer": f"customer-{rng.randrange(7)}", "cents": rng.randrange(100, 90_000)})
    return found


def expected(found: list[dict[str, Any]]) -> dict[tuple[str, int], tuple[int, int, int]]:
    """Customer and hour to payments, cents and the largest."""
    groups: dict[tuple[str, int], list[int]] = {}
    for payment in found:
        groups.setdefault((payment["customer"], payment["ts"] // HOUR * HOUR), []).append(payment["cents"])
    return {place: (len(cents), sum(cents), max(cents)) for place, cents in groups.items()}


def send(kafka: str, topic: str, found: list[dict[str, Any]]) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": kafka})
    for payment in found:
        producer.produce(topic, json.dumps(payment), key=payment["customer"])
        producer.poll(0)
    assert producer.flush(60) == 0, "the broker has not taken all payments"


def create(kafka: str, topic: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic(topic, 3, config={"retention.ms": "-1"})])[topic].result(60)


def pipeline(kafka: str, topic: str, folder: Path) -> Pipeline:
    return Pipeline(
        source=KafkaSource(kafka, topic, timestamp="ts", timestamp_unit="ms", max_out_of_orderness="1 min"),
        task=Payments(),
        sink=SqliteSink(folder / "payments.db", "payments", mode="upsert"),
        checkpoint=str(folder / "checkpoint"),
    )


def table(folder: Path) -> dict[tuple[str, int], tuple[int, int, int]]:
    with closing(sqlite3.connect(folder / "payments.db")) as database:
        rows = database.execute("SELECT customer, window_start, payments, cents, largest FROM payments").fetchall()
    return {
        (name, round(datetime.fromisoformat(start).timestamp() * 1000)): (*values,) for name, start, *values in rows
    }


@click.command()
@click.option("--kafka", help="HOST:PORT of your broker; by default one is started")
@click.option("--payments", "count", default=5_000, help="how many payments are made")
def main(kafka: str | None, count: int) -> None:
    """Send half of the payments, run, send the others, run again, and compare."""
    found, topic = payments(count), f"payments-{uuid.uuid4().hex[:8]}"
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="payments-", ignore_cleanup_errors=True)))
        broker = kafka or stack.enter_context(servers.kafka(folder / "kafka"))
        create(broker, topic)
        for half, ends in ((found[: count // 2], False), (found[count // 2 :], True)):
            send(broker, topic, half)
            report = pipeline(broker, topic, folder).run(engine="embedded", end_of_input=ends)
            click.echo(f"{report.rows} payments read, {report.late} late; {len(table(folder))} rows in the table")
        if table(folder) != expected(found):
            raise SystemExit("DIFFERENT from a plain computation")
    click.echo("each row is what a plain computation gives")


if __name__ == "__main__":
    main()
