"""Text files and what is read of them."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from persistent.sources import FileSource
from tests.connect.draining import Drained
from tests.few import examples

GOOD_JSON = [b'{"ts":%d,"v":"a%d"}' % (i, i) for i in range(12)]


def source_of(path, **options):
    return FileSource(path, timestamp="ts", timestamp_unit="ms", schema={"ts": "int64", "v": "string"}, **options)


def found(drained: Drained):
    alive = [(offset, fields) for _, offset, _, fields in drained.rows]
    return alive, [(dead.offset, dead.data) for dead in drained.dead]


BLANKS = [b"", b"\r"]


def expected_of(lines, good, header=0):
    """Offsets and contents by the slow definition: one line after another."""
    offset, alive, dead = header, [], []
    for line, end in lines:
        if line in good:
            alive.append((offset, good[line]))
        elif line not in BLANKS:
            dead.append((offset, line))
        offset += len(line) + len(end)
    return alive, dead


def of_lines(good, bad):
    line = st.tuples(st.sampled_from(good * 3 + bad + BLANKS[:1]), st.sampled_from([b"\n", b"\n", b"\r\n"]))
    return st.lists(line, min_size=1, max_size=30)


STEPS = st.tuples(st.integers(1, 40), st.booleans(), st.integers(1, 4), st.sampled_from([1, 30, 100, 1 << 24]))


PROPERTY = settings(
    max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
