"""The records of a correction are recognised by what they hold, and read as a source reads them."""

from __future__ import annotations

from typing import Any

import pytest

from persistent import FileSource, MemorySource
from persistent.errors import InvalidPipeline, Refused
from persistent.worker.correct_records import Form, Kinds, digest, given_records

ROWS = [{"ts": 5, "page": "a"}, {"ts": 6, "page": "b"}]
TIMES = Form("ts", "ms")
KINDS = Kinds(MemorySource, FileSource)


def test_records_have_a_hash_of_their_own() -> None:
    """The same ones, given again, must be told from others: of another time, value, order of adding and removing."""
    one = given_records("add", ROWS, TIMES, KINDS)
    assert digest(one) == digest(given_records("add", list(ROWS), TIMES, KINDS))
    others = ([*ROWS, ROWS[0]], [{**ROWS[0], "page": "c"}, ROWS[1]], [{**ROWS[0], "ts": 4}, ROWS[1]], ROWS[:1])
    assert (
        len(
            {digest(one), digest(given_records("remove", ROWS, TIMES, KINDS))}
            | {digest(given_records("add", rows, TIMES, KINDS)) for rows in others}
        )
        == 6
    )


def test_a_source_of_several_files_is_read_whole(tmp_path: Any) -> None:
    """A plan that ends early would leave records out, silently."""
    for number in range(5):
        (tmp_path / f"{number}.jsonl").write_text("".join(f'{{"ts": {row}, "page": "a"}}\n' for row in range(100)))
    source = FileSource(str(tmp_path / "*.jsonl"), timestamp="ts", timestamp_unit="ms")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("persistent.worker.correct_records._ROWS", 60)
        given = given_records("add", source, None, KINDS)
    assert given.rows == 500 and given.schema.names == ["ts", "page"]


def test_nothing_is_nothing() -> None:
    assert given_records("add", None, TIMES, KINDS).rows == given_records("add", [], None, KINDS).rows == 0


def test_what_cannot_be_read_is_refused(tmp_path: Any) -> None:
    """A dead letter of a correction would be half a correction."""
    (tmp_path / "a.jsonl").write_text('{"ts": 1, "page": "a"}\nno json\n')
    with pytest.raises(Refused, match=r"the record at offset 23 of 'a.jsonl' cannot be read"):
        given_records("add", FileSource(str(tmp_path / "a.jsonl"), timestamp="ts", timestamp_unit="ms"), None, KINDS)
    with pytest.raises(InvalidPipeline, match="not int"):
        given_records("add", 5, TIMES, KINDS)
