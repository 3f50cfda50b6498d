"""What was published to servers is looked at: files on S3, the marks of a table and of a topic."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

from persistent import FileSink, KafkaSink, MemorySource, Pipeline, PostgresSink
from persistent.storage import open_storage
from persistent.verify import verify_sinks
from tests.servers.kafka import KafkaServer
from tests.servers.postgres import PostgresServer
from tests.servers.s3 import S3Server
from tests.verify.checkpoints import rows
from tests.verify.test_sinks import Often, found, only


def test_files_on_s3_are_looked_at(s3_server: S3Server) -> None:
    """There a copy may be taken for a loss, and each request costs time."""
    url = s3_server.bucket(f"test-{uuid.uuid4().hex}")
    source = MemorySource(rows(1200), timestamp="ts")
    made = Pipeline(source=source, task=Often(), sink=FileSink(f"{url}/out"), checkpoint=f"{url}/cp", step_rows=120)
    made.run(engine="embedded")
    assert found(made) == []
    assert verify_sinks(made).parts["sink file"].checked > 5
    out = open_storage(f"{url}/out")
    name = out.list("")[-1]
    data = bytearray(bytes(out.read(name)))
    data[len(data) // 2] ^= 1
    out.delete(name)
    out.write(name, bytes(data))
    assert "SHA-256 differs" in only(made, "fault", "file").text
    out.delete(name)
    assert "listed, but gone" in only(made, "warning", "file").text
    out.delete(f"_published/{out.list('_published')[-3]}")
    assert [severity for severity, _ in found(made)] == ["fault", "warning"]


def test_the_mark_of_a_table_is_looked_at(postgres: PostgresServer, tmp_path: Path) -> None:
    """A table that was restored from an older copy would be found out by the next run, perhaps days later."""
    name = f"visits_{uuid.uuid4().hex[:8]}"

    def made() -> Pipeline:
        source = MemorySource(rows(900), timestamp="ts")
        sink = PostgresSink(postgres.url(), name)
        return Pipeline(source=source, task=Often(), sink=sink, checkpoint=tmp_path / "checkpoint", step_rows=60)

    made().run(engine="embedded")
    assert found(made()) == []
    assert verify_sinks(made()).parts["sink postgres"].checked == 1
    for change, said in (
        ("number = 3", "is an older copy, or its mark has moved"),
        ("number = 700", "beyond the newest checkpoint"),
        ("job = 'another'", "has no mark of this job"),
    ):
        postgres.ask(f"CREATE TABLE copy_of_marks AS SELECT * FROM persistent_marks WHERE target LIKE '%{name}%'")
        postgres.ask(f"UPDATE persistent_marks SET {change} WHERE target LIKE '%{name}%'")
        assert said in only(made(), "fault", "postgres").text
        postgres.ask(f"DELETE FROM persistent_marks WHERE target LIKE '%{name}%'")
        postgres.ask("INSERT INTO persistent_marks SELECT * FROM copy_of_marks")
        postgres.ask("DROP TABLE copy_of_marks")
    assert found(made()) == []
    postgres.ask(f"DROP TABLE {name}")
    assert "is gone, although" in only(made(), "fault", "postgres").text


def test_the_mark_of_a_topic_is_looked_at(kafka: KafkaServer, tmp_path: Path) -> None:
    """A topic can only be told to be whole by its mark, which moves in the transaction of the rows."""
    topic = kafka.create()

    def made(count: int = 900) -> Pipeline:
        source = MemorySource(rows(count), timestamp="ts")
        sink = KafkaSink(kafka.bootstrap, topic)
        return Pipeline(source=source, task=Often(), sink=sink, checkpoint=tmp_path / "checkpoint", step_rows=60)

    made(600).run(engine="embedded")
    old = shutil.copytree(tmp_path / "checkpoint", tmp_path / "old")
    assert found(made()) == []
    made().run(engine="embedded")
    assert found(made()) == []
    shutil.rmtree(tmp_path / "checkpoint")
    old.rename(tmp_path / "checkpoint")
    assert "beyond the newest checkpoint" in only(made(), "fault", "kafka").text
