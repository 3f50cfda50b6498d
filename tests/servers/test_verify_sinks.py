"""Files that were published to S3 are looked at, where they are copied and deleted instead of renamed."""

from __future__ import annotations

import uuid

from persistent import FileSink, MemorySource, Pipeline
from persistent.storage import open_storage
from persistent.verify import verify_sinks
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
