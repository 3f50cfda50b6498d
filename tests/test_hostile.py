"""Bytes made to hurt the reader are refused in little memory and time: each in a process of its own, so measured."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monoids import encoding
from tests.few import examples, only

ROOT = Path(__file__).parents[1]
MEGABYTE = 1 << 20

PRELUDE = """
import hashlib, resource, struct, sys
import numpy as np
import pyarrow as pa
from monoids import Sum, encoding
from monoids.encoding import decode
from persistent.codec.documents import DOCUMENT_BYTES_MAX, decode_document
from persistent.codec.fields import Run
from persistent.codec.runs import decode_run
from persistent.codec.sealed import decode_table
from persistent.codec.documents import DOCUMENT_MARKS_MAX
from tests.codec.files import finished, index_of, sealed_batch, sealed_of, sha256

def proven(body):
    return body + b"\\n" + hashlib.sha256(body).hexdigest().encode() + b"\\n"

def used():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

def measured(read, data, refused):
    # Now, and not in a child of this one: what is measured is the peak.
    limit = used() + (3 << 30)
    resource.setrlimit(resource.RLIMIT_AS, (limit + (2 << 30), limit + (2 << 30)))
    before = used()
    try:
        read(data)
    except refused as error:
        print("refused", used() - before, type(error).__name__, str(error)[:200])
    else:
        print("read", used() - before)

def table(data):
    return decode_table(pa.py_buffer(data), None, "place")

def document(data):
    return decode_document(data, "place")
"""


def outcome(code: str) -> tuple[str, int]:
    """What became of it, and by how many bytes the process grew."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PRELUDE) + textwrap.dedent(code)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{done.returncode}: {done.stderr[-2000:]}"
    what, size, *rest = done.stdout.split(" ", 2)
    return " ".join([what, *rest]).strip(), int(size)


FROM = "from persistent.errors import CorruptCheckpoint\n"

SAMPLES = {
    "a document larger than any": ("measured(document, proven(b' ' * (DOCUMENT_BYTES_MAX + 1)), CorruptCheckpoint)", 8),
    "a document of mappings": (
        "measured(document, proven(b'[' + b'{\"\":0},' * 9_000_000 + b'0]'), CorruptCheckpoint)",
        160,
    ),
    "a document of as many mappings as may be": (
        "measured(document, proven(b'[' + b'{\"\":0},' * ((DOCUMENT_MARKS_MAX - 2) // 4) + b'0]'), CorruptCheckpoint)",
        600,
    ),
    "a document without an end": ("measured(document, proven(b'[' * 4_000_000), CorruptCheckpoint)", 120),
    "a document of one number": ("measured(document, proven(b'9' * 60_000_000), CorruptCheckpoint)", 300),
    "a document of backslashes": (
        "measured(document, proven(b'\"' + b'\\\\\\\\' * 30_000_000), CorruptCheckpoint)",
        300,
    ),
    "compressed buffers": (
        """
        batch = pa.record_batch({"n": pa.array(np.zeros(1 << 16))})
        data = sealed_batch(batch, pa.ipc.IpcWriteOptions(compression="zstd"))
        assert len(data) < 2_000
        measured(table, data, CorruptCheckpoint)
        """,
        16,
    ),
    "a column of 2**60 nulls": (
        """
        batch = pa.record_batch({"n": pa.nulls(7)})
        schema, message = batch.schema.serialize().to_pybytes(), batch.serialize().to_pybytes()
        message = message.replace(struct.pack("<q", 7), struct.pack("<q", 1 << 60))
        measured(lambda data: table(data).to_pylist(), sealed_of(schema, (message, 1 << 16)), CorruptCheckpoint)
        """,
        16,
    ),
    "an index of mappings": ("measured(table, finished(b'', b'{\"\":0},' * 5_000_000), CorruptCheckpoint)", 120),
    "an index of one number": (
        """
        index = b'{"batches":[],"panes":[' + b'9' * 30_000_000 + b'],"schema":[0,"' + b'0' * 64 + b'"]}'
        measured(table, finished(b"", index), CorruptCheckpoint)
        """,
        400,
    ),
    "a run of more rows than its manifest says": (
        """
        batch = pa.record_batch({"hash": pa.array([1], pa.uint64()), "pane": pa.array([0]), "element": pa.array([1])})
        schema, message = batch.schema.serialize().to_pybytes(), batch.serialize().to_pybytes()
        data = sealed_of(schema, *[(message, 1)] * 20_000)
        run = Run("d/V/x", 1, 0, sha256(data[data.rindex(b'{"batches"') : -16]), 0, 0, 1024, 0, 0, 1, 1)
        measured(lambda data: decode_run(Sum(), pa.py_buffer(data), run, "place"), data, CorruptCheckpoint)
        """,
        64,
    ),
    "lists of lists": ("measured(decode, b'[\\x01' * 5_000_000, ValueError)", 40),
    "a list said to be long": ("measured(decode, b'[' + b'\\xff' * 7 + b'\\x7f', ValueError)", 8),
    "an integer of 50 MB": ("measured(decode, b'i\\x80\\xe1\\xeb\\x17' + b'\\x7f' * 50_000_000, ValueError)", 110),
    "bytes said to be long": ("measured(decode, b'b' + b'\\xff' * 7 + b'\\x7f', ValueError)", 8),
    "a set of integers of one hash": (
        """
        items = sorted(encoding.encode(5 + n * sys.hash_info.modulus) for n in range(40_000))
        data = b"<" + bytes([0xC0, 0xB8, 0x02]) + b"".join(items)
        measured(decode, data, ValueError)
        """,
        64,
    ),
    "a mapping of integers of one hash": (
        """
        items = sorted(encoding.encode(5 + n * sys.hash_info.modulus) for n in range(40_000))
        data = b"{" + bytes([0xC0, 0xB8, 0x02]) + b"".join(item + b"N" for item in items)
        measured(decode, data, ValueError)
        """,
        64,
    ),
}


SHORT = ("compressed buffers", "a run of more rows than its manifest says")
"""Bytes of a batch, and of a run. The others are for ``make check``."""


@pytest.mark.parametrize("sample", only(SHORT.__contains__, SAMPLES))
def test_hostile_bytes_are_refused_in_little_memory(sample: str) -> None:
    """1 kB that unpacks to 2 GB ends the driver, and the next one too: the checkpoint would be lost to all."""
    code, megabytes = SAMPLES[sample]
    began = time.monotonic()
    what, size = outcome(FROM + textwrap.dedent(code))
    assert what == "read" if "may be" in sample else what.startswith("refused"), what
    assert size < megabytes * MEGABYTE, f"{size / MEGABYTE:.0f} MB"
    assert time.monotonic() - began < 60


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.decimals()
    | st.dates()
    | st.times()
    | st.datetimes()
    | st.timedeltas(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=4)
        | st.frozensets(st.integers() | st.text(max_size=3), max_size=4)
    ),
    max_leaves=12,
)


@settings(deadline=2000, max_examples=examples(600))
@given(PLAIN, st.data())
def test_changed_encodings_are_refused_or_canonical(value: object, drawn: st.DataObject) -> None:
    """Elements come from files that others can write: a value in another spelling would be another element."""
    data = bytearray(encoding.encode(value))
    for _ in range(drawn.draw(st.integers(1, 4))):
        at = drawn.draw(st.integers(0, len(data)))
        match drawn.draw(st.sampled_from(["set", "insert", "delete", "double"])):
            case "set":
                data[at : at + 1] = bytes([drawn.draw(st.integers(0, 255))])
            case "insert":
                data[at:at] = drawn.draw(
                    st.sampled_from([b"[\x01", b"<\x02", b"{\x01", b"\xff" * 8, b"\x80\x00", b"d\x04"])
                )
            case "delete":
                del data[at : at + 3]
            case "double":
                data[at:at] = data[at : at + 9]
    try:
        found = encoding.decode(bytes(data))
    except ValueError:
        return
    assert encoding.encode(found) == data


@settings(deadline=2000, max_examples=examples(400))
@given(st.binary(max_size=60))
def test_any_bytes_are_refused_or_canonical(data: bytes) -> None:
    """The same of bytes that nothing like us has written."""
    try:
        found = encoding.decode(data)
    except ValueError:
        return
    assert encoding.encode(found) == data


def test_the_bounds_hold_both_ways() -> None:
    """What is written must be read again."""
    largest = (1 << (8 * encoding.INTEGER_BYTES_MAX - 1)) - 1
    assert encoding.decode(encoding.encode(largest)) == largest
    with pytest.raises(ValueError, match="an integer of"):
        encoding.encode(largest + 1)
    alike = [5 + number * sys.hash_info.modulus for number in range(encoding.COLLISIONS_MAX + 1)]
    within = set(alike[1:])
    assert encoding.decode(encoding.encode(within)) == within
    for value in (set(alike), dict.fromkeys(alike)):
        with pytest.raises(ValueError, match="share one hash"):
            encoding.encode(value)
