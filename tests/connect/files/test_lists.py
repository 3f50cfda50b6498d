"""A look at the lists of a file sink: what changed is named, and what may change is not called damage."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from persistent.connect.sink import Known, Looked
from persistent.names import Staged, published_name, retraction_name
from persistent.sinks import FileSink
from persistent.storage import MemoryStorage

JOB = "job"
OUTPUTS = pa.table({"page": ["/home", "/ä", None] * 5, "visits": pa.array(range(15), pa.int64())})


def sink_with(*ids: int, format: str = "parquet") -> tuple[FileSink, dict[int, tuple[Staged, ...]]]:
    """A sink that has published a file under each of these ids, and what was staged."""
    sink = FileSink(MemoryStorage(uuid.uuid4().hex), format=format)
    sink.claim(JOB)
    batches = {id: (sink.stage(OUTPUTS, id, f"e1-c{id}-{uuid.uuid4().hex}"),) for id in ids}
    for id, staged in batches.items():
        sink.publish(id, staged)
    return sink, batches


def put(sink: FileSink, name: str, data: bytes) -> None:
    sink.storage.delete(name)
    sink.storage.write(name, data)


def look(sink: FileSink, newest: int = 9, **known: Any) -> list[Looked]:
    """What a look has to say."""
    looked = sink.look(Known(JOB, newest, **{"batches": {}, **known}), lambda done, total: None)
    return [one for one in looked if one.fault or one.warning or one.note]


def test_no_flipped_bit_of_a_parquet_file_changes_a_value_unseen() -> None:
    """An old file has no hash that anybody knows: its values must be sealed by the checksums of its pages."""
    sink, _ = sink_with(7)
    (name,) = sink.storage.list("")
    data = bytes(sink.storage.read(name))
    found = 0
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1
        put(sink, name, bytes(changed))
        if look(sink):
            found += 1
        else:
            # The names of columns have no checksum.
            assert pq.read_table(pa.BufferReader(bytes(changed))).columns == OUTPUTS.columns, at
    assert found > len(data) // 2
    put(sink, name, data)
    assert look(sink) == []


def test_every_flipped_bit_of_what_a_kept_checkpoint_knows_is_found() -> None:
    """A hash must be compared, not only there."""
    for format in ("parquet", "jsonl"):
        sink, batches = sink_with(7, format=format)
        (name,) = sink.storage.list("")
        listed = f"_published/{7:020d}.json"
        for path in (name, listed):
            data = bytes(sink.storage.read(path))
            for at in range(0, len(data), 3):
                changed = bytearray(data)
                changed[at] ^= 1
                put(sink, path, bytes(changed))
                faults = [one for one in look(sink, batches=batches) if one.fault]
                assert [one.place for one in faults] == [f"{sink.url}/{path}"], (format, path, at)
            put(sink, path, data)
        assert look(sink, batches=batches) == []


def test_what_was_taken_back_is_not_looked_at() -> None:
    """A rollback deletes files and empties lists; between the two nothing is lost."""
    sink, batches = sink_with(5, 6, 7)
    sink.storage.delete(published_name(7, batches[7][0].name))
    put(sink, f"_published/{6:020d}.json", b"torn")
    assert len(look(sink, batches=batches)) == 2
    sink.mark(6, 9)
    assert look(sink, batches=batches) == []
    sink.retract(6, 9)
    sink.storage.delete(f"_published/{6:020d}.json")
    assert look(sink, batches=batches) == []


def test_a_rollback_during_a_look_is_no_damage() -> None:
    """What is taken back while it is read would be called lost."""
    sink, batches = sink_with(5, 6, 7)
    put(sink, f"_published/{6:020d}.json", b"torn")

    class Rolling(MemoryStorage):
        def read(self, name: str) -> Any:
            data = super().read(name)
            if name == f"_published/{6:020d}.json":
                sink.mark(6, 9)
            return data

    rolling = FileSink(Rolling(sink.url.removeprefix("memory://")))
    assert look(rolling, batches=batches) == []


def test_what_is_published_during_a_look_is_not_gone() -> None:
    """A file that was not there when the folder was listed, and is on a list a moment later, would be called gone."""
    sink, batches = sink_with(6)
    staged = sink.stage(OUTPUTS, 7, f"e1-c7-{uuid.uuid4().hex}")
    batches[7] = (staged,)

    class Publishing(MemoryStorage):
        def list(self, folder: str) -> Any:
            names = super().list(folder)
            if folder == "":
                sink.publish(7, [staged])
            return names

    publishing = FileSink(Publishing(sink.url.removeprefix("memory://")))
    assert look(publishing, batches=batches, owed={7}) == []


def test_what_is_taken_back_before_it_was_published_is_not_missing() -> None:
    """A rollback puts its mark first; the list that it empties, and the files, come later."""
    sink, batches = sink_with(6)
    batches[7] = (sink.stage(OUTPUTS, 7, f"e1-c7-{uuid.uuid4().hex}"),)
    sink.storage.delete(batches[7][0].name)
    assert look(sink, batches=batches, owed={7})
    sink.storage.put_if_absent("_retracted/" + retraction_name(7, 9), b"")
    assert look(sink, batches=batches, owed={7}) == []
    assert look(sink, batches=batches) == []


def test_what_may_still_be_published_need_not_be() -> None:
    """The newest checkpoint may not have published yet; but its files must be there, as they were staged."""
    sink, batches = sink_with(6)
    staged = sink.stage(OUTPUTS, 7, f"e1-c7-{uuid.uuid4().hex}")
    batches[7] = (staged,)
    (one,) = look(sink, batches=batches, owed={7})
    assert one.note == "not listed yet: the job that runs, or the next run, publishes checkpoint 7"
    assert [one.fault[:8] for one in look(sink, batches=batches)] == ["missing:"]
    assert look(sink, batches=batches, open={7}) == []
    sink.storage.rename(staged.name, published_name(7, staged.name))
    (one,) = look(sink, batches=batches, owed={7})
    assert one.note and one.place.endswith(published_name(7, staged.name))
    put(sink, published_name(7, staged.name), b"torn")
    (one,) = look(sink, batches=batches, owed={7})
    assert one.fault.startswith("has 4 bytes")
    sink.storage.delete(published_name(7, staged.name))
    (one,) = look(sink, batches=batches, owed={7})
    assert one.fault.startswith("neither staged nor published")
    assert look(sink, batches=batches, open={7}) == []


def test_lists_of_later_checkpoints_are_not_looked_at() -> None:
    """A job that runs puts them meanwhile; whether the checkpoint has lost its newest is asked elsewhere."""
    sink, batches = sink_with(6, 12)
    del batches[12]
    put(sink, f"_published/{12:020d}.json", b"torn")
    assert look(sink, batches=batches) == []


def test_a_file_without_a_hash_is_held_against_its_list() -> None:
    """What an earlier release has staged has none: size, rows and readability are what can be known."""
    sink, batches = sink_with(7, format="jsonl")
    (staged,) = batches[7]
    old = {7: (Staged(staged.name, staged.rows, staged.bytes),)}
    assert look(sink, batches=old) == []
    name = published_name(7, staged.name)
    data = bytes(sink.storage.read(name))
    put(sink, name, data[:-1])
    assert look(sink, batches=old)[0].fault.startswith(f"has {len(data) - 1} bytes")
    put(sink, name, data.replace(b'"', b"'", 1))
    assert look(sink, batches=old)[0].fault.startswith("cannot be read")
