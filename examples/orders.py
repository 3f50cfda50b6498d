"""From Kafka to PostgreSQL and to Kafka: the turnover of each customer and minute, exactly once, through kill -9.

    python examples/orders.py           starts a Kafka and a PostgreSQL, and ends them
    python examples/orders.py --kafka localhost:9092 --postgres postgresql://me@localhost/shop      uses yours

It needs ``pip install 'persistent-monoids[kafka,postgres]'``. Orders are written into a topic of three partitions, with
disorder, in transactions of which some are aborted. A job reads them and writes its results into a table and into a
topic. It runs in a process of its own, which is killed twice with -9 on the way and started again. In the end table and
topic are compared with what the committed orders add up to. Any difference ends the example with exit code 1.
"""

import json
import random
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import servers

from monoids import Count, Sum, record
from persistent import PersistentTask, Pipeline, WindowState, tumbling
from persistent.sinks import KafkaSink, PostgresSink
from persistent.sources import KafkaSource

MINUTE_MS = 60_000
STEP_ROWS = 2_000
SECONDS_MAX = 300
KILLS = 2


class Turnover(PersistentTask):
    """Orders and their amount, by customer and minute."""

    key = "customer"

    def persistent_state(self):
        return WindowState(record(orders=Count(), amount=Sum()), tumbling("1 min"))

    def process_message(self, state, message):
        state.update(message.timestamp, {"orders": 1, "amount": message.value["amount"]})

    def process_batch(self, state, batch):
        state.update_batch(batch.timestamps, {"orders": 1, "amount": batch["amount"]})


def pipeline(kafka, postgres, orders, turnover, checkpoint):
    """From the topic ``orders`` to the table and the topic ``turnover``."""
    source = KafkaSource(kafka, orders, timestamp="ts", timestamp_unit="ms", max_out_of_orderness="30 s")
    return Pipeline(
        source=source,
        task=Turnover(),
        sink={"table": PostgresSink(postgres, turnover), "topic": KafkaSink(kafka, turnover)},
        checkpoint=checkpoint,
        step_rows=STEP_ROWS,
    )


# -- the shop --------------------------------------------------------------------------------------------------------


def write_orders(kafka, orders, count, rng):
    """Write transactions of 500 orders, a fifth of them aborted. The turnover of those that are committed."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": kafka, "transactional.id": f"shop-{orders}"})
    producer.init_transactions()
    turnover: dict[tuple[str, int], tuple[int, int]] = {}
    aborted = 0
    for start in range(0, count, 500):
        producer.begin_transaction()
        aborts = rng.random() < 0.2
        for number in range(start, min(start + 500, count)):
            order = {"customer": f"customer-{rng.randrange(20)}", "amount": rng.randrange(1, 500)}
            order["ts"] = 1_700_000_000_000 + number * 40 + rng.randrange(20_000)
            producer.produce(orders, json.dumps(order), partition=rng.randrange(3))
            if not aborts:
                key = order["customer"], order["ts"] // MINUTE_MS * MINUTE_MS
                there = turnover.get(key, (0, 0))
                turnover[key] = there[0] + 1, there[1] + order["amount"]
        producer.flush()
        (producer.abort_transaction if aborts else producer.commit_transaction)()
        aborted += aborts
    return turnover, aborted


def create_topics(kafka, **partitions):
    """Create topics that keep records of any time."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": kafka})
    topics = [NewTopic(name, count, config={"retention.ms": "-1"}) for name, count in partitions.items()]
    for made in admin.create_topics(topics).values():
        made.result(60)


def rows_of_table(postgres, table):
    """Customer, start of the window, orders and amount of each row."""
    import psycopg

    with psycopg.connect(postgres) as connection:
        found = connection.execute(f"SELECT customer, window_start, orders, amount FROM {table}").fetchall()
    return [(name, round(start.timestamp() * 1000), orders, amount) for name, start, orders, amount in found]


def rows_of_topic(kafka, topic):
    """The same of a topic, as a reader of committed transactions sees it."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {"group.id": "reader", "isolation.level": "read_committed", "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": kafka, "auto.offset.reset": "earliest", **settings})
    left = set(consumer.list_topics(topic).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in left])
    rows = []
    while left:
        message = consumer.poll(60)
        assert message is not None, f"topic {topic} is silent"
        if message.error() is not None:
            left.discard(message.partition())
            continue
        row = json.loads(message.value())
        start = datetime.fromisoformat(row["window_start"])
        rows.append((row["customer"], round(start.timestamp() * 1000), row["orders"], row["amount"]))
    consumer.close()
    return rows


# -- a driver, and its death -----------------------------------------------------------------------------------------


@contextmanager
def driver(*words: Any) -> Iterator[subprocess.Popen[str]]:
    """A process that runs a job, and prints a line for each step; nothing of it is left afterwards."""
    command = [sys.executable, str(Path(__file__).resolve()), "drive", *map(str, words)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def run_with_kills(rng: random.Random, steps: int, *words: Any) -> None:
    """Run the job to the end of its input; its first drivers die by -9, each after some of the steps."""
    for number in range(1, KILLS + 1):
        after = rng.randint(1, max(1, steps // 4))
        with driver(*words) as running:
            assert running.stdout is not None
            for _ in zip(range(after), running.stdout):
                pass
            if running.poll() is not None:
                raise click.ClickException(f"driver {number} has ended, before it was killed")
            running.kill()
            click.echo(f"driver {number} was killed with -9, after step {after}")
    with driver(*words) as last:
        printed, _ = last.communicate(timeout=SECONDS_MAX)
        if last.returncode:
            raise click.ClickException(f"the last driver ended with {last.returncode}")
        click.echo(f"the next one has made {len(printed.splitlines())} steps, to the end")


def compared(name, rows, turnover):
    """Whether the rows are the turnover, each of them once."""
    found = {row[:2]: row[2:] for row in rows}
    orders, amount = sum(row[2] for row in rows), sum(row[3] for row in rows)
    same = len(found) == len(rows) and found == turnover
    verdict = "equal" if same else "WRONG"
    click.echo(f"{name:10} {len(rows):6,} rows {orders:9,} orders {amount:12,} turnover   {verdict}")
    return same


@click.group(invoke_without_command=True)
@click.option("--kafka", help="HOST:PORT of your broker; by default one is started")
@click.option("--postgres", help="URL of your database; by default one is started")
@click.option("--orders", "count", default=40_000, help="how many orders are written")
@click.option("--seed", default=0, help="draws the orders and the deaths")
@click.pass_context
def main(context, kafka, postgres, count, seed):
    """Write orders, add them up in a job that is killed, and compare."""
    if context.invoked_subcommand:
        return
    rng = random.Random(seed)
    run = uuid.uuid4().hex[:8]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="orders-", ignore_cleanup_errors=True)))
        folder.chmod(0o755)
        kafka = kafka or stack.enter_context(servers.kafka(folder / "kafka"))
        postgres = postgres or stack.enter_context(servers.postgres(folder / "postgres"))
        click.echo(f"Kafka at {kafka}, PostgreSQL at {postgres.rpartition('@')[2]}")
        orders, turnover = f"orders-{run}", f"turnover_{run}"
        create_topics(kafka, **{orders: 3, turnover: 2})
        began = time.monotonic()
        expected, aborted = write_orders(kafka, orders, count, rng)
        click.echo(f"{count:,} orders written in {time.monotonic() - began:.1f} s; {aborted} transactions aborted")
        run_with_kills(rng, count // STEP_ROWS, kafka, postgres, orders, turnover, folder / "checkpoint")
        rows = [(*key, *value) for key, value in sorted(expected.items())]
        compared("committed", rows, expected)
        right = compared("the table", rows_of_table(postgres, turnover), expected)
        right &= compared("the topic", rows_of_topic(kafka, turnover), expected)
    if not right:
        raise click.ClickException("the results differ")


@main.command(hidden=True)
@click.argument("words", nargs=5)
def drive(words):
    """Run the job to the end of its input."""
    pipeline(*words).run(engine="embedded", end_of_input=True, on_step=lambda step: click.echo(f"step {step.id}"))


if __name__ == "__main__":
    main()
