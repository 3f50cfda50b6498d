"""Streams of RabbitMQ: a job that reads one, and a sink that appends to one, against plain rstream.

A broker of this machine (``tests/servers/rabbit.py``) holds JSON of about 60 bytes. The plain reader is rstream's
consumer, which decodes each message and adds up its bytes; ours counts them by key and minute on the embedded engine,
and commits checkpoints to a folder. The plain writer is rstream's producer, by batches, which waits until all are
confirmed; ours is ``deliver`` of the sink, with its marks. The sides take turns, and what each has read, or left there,
is compared every time.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks import measure
from benchmarks.kafka import Counts
from benchmarks.sinks import deliver, tables
from persistent import Pipeline, RabbitStreamSink, RabbitStreamSource
from persistent.connect.formats.json_rows import json_rows
from tests.servers.rabbit import PASSWORD, USER, RabbitServer, rabbit_server
from tests.servers.streams import LOGIN, Streams

_AT_ONCE = 1_000
_BATCHES = 5


def messages(rows: int, seed: int) -> list[bytes]:
    """``rows`` records, a second of event time for every thousand."""
    keys = np.random.default_rng(seed).zipf(1.3, rows) % 10_000
    return [
        json.dumps({"ts": number, "key": key, "page": f"/page/{key}", "n": number % 7}).encode()
        for number, key in enumerate(keys.tolist())
    ]


def plain_read(server: RabbitServer, stream: str, rows: int) -> int:
    """How many records a consumer reads until it has so many."""
    from rstream import Consumer, ConsumerOffsetSpecification, OffsetType, amqp_decoder

    count = size = 0

    async def read() -> None:
        nonlocal count, size
        consumer = Consumer("127.0.0.1", server.stream_port, username=USER, password=PASSWORD)

        async def hear(message: Any, context: Any) -> None:
            nonlocal count, size
            count += 1
            size += len(message.body)
            if count == rows:
                consumer.stop()

        await consumer.start()
        first = ConsumerOffsetSpecification(OffsetType.FIRST, None)
        await consumer.subscribe(stream, hear, decoder=amqp_decoder, offset_specification=first)
        await consumer.run()
        await consumer.close()

    asyncio.run(read())
    return count


def our_read(server: RabbitServer, stream: str, folder: Path) -> int:
    """How many records a job reads."""
    address = f"127.0.0.1:{server.stream_port}"
    source = RabbitStreamSource(address, stream, timestamp="ts", timestamp_unit="ms", client=LOGIN)
    pipeline = Pipeline(source=source, task=Counts(), checkpoint=str(folder / "checkpoint"), discard_closed=True)
    return pipeline.run(engine="embedded").rows


def plain_write(server: RabbitServer, stream: str, outputs: list[Any]) -> None:
    """Send each batch, and wait until it is confirmed."""
    from rstream import AMQPMessage, Producer

    async def write() -> None:
        confirmed = asyncio.Semaphore(0)

        async def hear(status: Any) -> None:
            confirmed.release()

        async with Producer("127.0.0.1", server.stream_port, username=USER, password=PASSWORD) as producer:
            for table in outputs:
                for bodies in json_rows(table):
                    for start in range(0, len(bodies), _AT_ONCE):
                        batch = [AMQPMessage(body=body) for body in bodies[start : start + _AT_ONCE]]
                        await producer.send_batch(stream, batch, on_publish_confirm=hear)
                for _ in range(table.num_rows):
                    await confirmed.acquire()

    asyncio.run(write())


def our_write(server: RabbitServer, stream: str, outputs: list[Any]) -> None:
    """Deliver each batch."""
    deliver(RabbitStreamSink(f"127.0.0.1:{server.stream_port}", stream, client=LOGIN), outputs)


def reading(server: RabbitServer, rows: int, runs: int, seed: int, place: Path) -> dict[str, float]:
    """Records a second of both sides."""
    streams = Streams(server)
    stream = streams.create()
    streams.append(stream, messages(rows, seed), at_once=_AT_ONCE)
    seconds: dict[str, list[float]] = {"plain": [], "ours": []}
    for turn in range(runs + 1):
        with measure.empty_folder(place) as folder:
            found: dict[str, int] = {}

            def side(name: str, folder: Path = folder, found: dict[str, int] = found) -> None:
                plain = name == "plain"
                found[name] = plain_read(server, stream, rows) if plain else our_read(server, stream, folder)

            _take_turns("read", seconds, side, turn, rows)
            if set(found.values()) != {rows}:
                raise measure.RowsDiffer(f"{rows:,} records are in the stream, the sides have read {found}")
    return {name: rows / measure.median(taken) for name, taken in seconds.items()}


def writing(server: RabbitServer, rows: int, runs: int, seed: int) -> dict[str, float]:
    """Rows a second of both sides."""
    streams, outputs = Streams(server), tables(_BATCHES, rows // _BATCHES, seed)
    rows = sum(table.num_rows for table in outputs)
    seconds: dict[str, list[float]] = {"plain": [], "ours": []}
    for turn in range(runs + 1):
        made = {name: streams.create() for name in seconds}

        def side(name: str, made: dict[str, str] = made) -> None:
            (plain_write if name == "plain" else our_write)(server, made[name], outputs)

        _take_turns("write", seconds, side, turn, rows)
        left = {name: len(streams.records(stream)) for name, stream in made.items()}
        if set(left.values()) != {rows}:
            raise measure.RowsDiffer(f"{rows:,} rows were published, the sides have left {left}")
        for stream in made.values():
            streams.delete(stream)
    return {name: rows / measure.median(taken) for name, taken in seconds.items()}


def _take_turns(what: str, seconds: dict[str, list[float]], side: Any, turn: int, rows: int) -> None:
    for name in seconds:
        taken = measure.wall_seconds(partial(side, name))
        click.echo(f"{what}, {f'run {turn}' if turn else 'warm-up'}: {name} {rows / taken:,.0f} records/s")
        if turn:
            seconds[name].append(taken)


@click.command(help="A job and a sink on streams of RabbitMQ, against plain rstream, in records a second.")
@click.option("--rows", default=500_000, show_default=True)
@click.option("--runs", default=5, show_default=True)
@measure.common
def main(rows: int, runs: int, cache: Path, work: Path | None, seed: int) -> None:
    with rabbit_server() as server:
        read = reading(server, rows, runs, seed, work or cache)
        written = writing(server, rows // 5, runs, seed)
    figures = [
        measure.Figure("read: ours / plain consumer", read["ours"] / read["plain"], "times", target=0.5),
        measure.Figure("read: ours", read["ours"], "records/s"),
        measure.Figure("written: ours / plain producer", written["ours"] / written["plain"], "times", target=0.5),
        measure.Figure("written: ours", written["ours"], "rows/s"),
    ]
    measure.publish("streams", {"rows": rows, "runs": runs}, figures)


if __name__ == "__main__":
    main()
