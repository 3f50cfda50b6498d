"""CSV with another delimiter, or in another encoding: the same records, whatever cuts the file."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from monoids import Count
from persistent import FileSource, MemorySink, NonWindowState, PersistentTask, Pipeline
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.plan import StepPlan
from persistent.connect.formats.csv_dialect import _MULTIBYTE, _TRAILING, CsvDialect, checked_dialect
from persistent.connect.formats.csv_lines import CsvLines
from persistent.connect.formats.text import Text
from persistent.connect.source import Budget, SourceState
from persistent.errors import InvalidPipeline, SourceError

ROWS = [["1", "Zoë"], ["2", 'a "b"'], ["3", "x;y,z|\tw"], ["4", "§±°"], ["5", "Çélà"], ["6", ""]]
SCHEMA = {"ts": "int64", "who": "string"}


def written(rows: list[list[str]], delimiter: str, encoding: str) -> bytes:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="\r\n").writerows([["ts", "who"], *rows])
    return text.getvalue().encode(encoding)


def read(source: FileSource, rows: int = 1, splits: int = 3) -> tuple[list[dict[str, Any]], list[Any]]:
    """The records and the dead ones, in steps of some rows."""
    state, found, dead = SourceState({}), [], []
    while (plan := source.plan(state, Budget(rows, splits=splits, exact=rows == 1))).splits:
        for split in plan.splits:
            for records in source.read(split, plan.recorded):
                found += records.batch.to_pylist()
                dead += records.dead
        index = plan.appended if state.index is None else state.index
        state = replace(state, positions=plan.end, recorded=plan.recorded, index=index)
    return found, dead


@pytest.mark.parametrize("multiline", [False, True])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("delimiter", "encoding"),
    [(";", "utf-8"), ("\t", "latin-1"), ("|", "cp1252"), (",", "mac_roman"), (";", "gb18030"), ("^", "utf-8")],
)
def test_the_records_are_those_that_were_written(
    tmp_path: Path, delimiter: str, encoding: str, packed: bool, multiline: bool
) -> None:
    """A delimiter in a quoted field, or a character of two bytes, would begin a record, or another field."""
    rows = [*ROWS, ["7", "of\r\ntwo;lines\n"]] if multiline else ROWS
    data = written(rows, delimiter, encoding)
    path = tmp_path / ("a.csv.gz" if packed else "a.csv")
    path.write_bytes(gzip.compress(data) if packed else data)
    expected = [{"ts": int(time), "who": who or None} for time, who in rows]
    for rows_a_step in (1, 2, 1_000):
        for block_bytes in (12, 1 << 20):
            given: dict[str, Any] = {"delimiter": delimiter, "encoding": encoding, "multiline": multiline}
            source = FileSource(path, timestamp="ts", timestamp_unit="s", schema=SCHEMA, **given)
            source._formats["csv"] = Text(CsvLines(multiline, dialect=source._given.dialect), block_bytes)
            assert read(source, rows_a_step) == (expected, [])


def test_columns_are_inferred_in_the_dialect(tmp_path: Path) -> None:
    """Without it a file would be one column of text."""
    (tmp_path / "a.csv").write_bytes(written(ROWS, ";", "cp1252"))
    (found, *_), dead = read(FileSource(tmp_path, timestamp="ts", timestamp_unit="s", delimiter=";", encoding="cp1252"))
    assert (found, dead) == ({"ts": 1, "who": "Zoë"}, [])


def test_a_line_of_another_encoding_costs_itself_alone(tmp_path: Path) -> None:
    """I9: the lines before and after it would be lost, or read as other characters."""
    (tmp_path / "a.csv").write_bytes(b"ts,who\n1,\xa3\n2,\x81\n3,a\n")
    found, dead = read(FileSource(tmp_path, timestamp="ts", timestamp_unit="s", schema=SCHEMA, encoding="cp1252"))
    assert [row["who"] for row in found] == ["£", "a"]
    assert [(one.offset, one.reason, one.data) for one in dead] == [
        (11, "invalid cp1252 data: bytes 81 are no character", b"2,\x81")
    ]


@pytest.mark.parametrize("encoding", sorted(_MULTIBYTE))
def test_no_character_of_several_bytes_has_a_byte_by_which_files_are_cut(encoding: str) -> None:
    """A newline in the middle of a character would cut its record in two; a character of two bytes that means a newline
    would be a record too many."""
    cutting = {*b'\n\r"', *(byte for byte in range(128) if byte not in _TRAILING and not chr(byte).isalnum())}
    for number in range(128, 0x10000):
        with suppress(UnicodeError):
            data = chr(number).encode(encoding)
            is_another = data.decode(encoding) != chr(number)  # As the yen, which is written as a backslash.
            assert is_another or (not cutting & {*data[1:]} and data[0] >= 128), chr(number)
    assert bytes(range(128)).decode(encoding) == "".join(map(chr, range(128)))
    decode = codecs.getdecoder(encoding)
    for first in range(128, 256):
        for second in cutting:
            # The byte that cuts is a character of its own, or the line is none of this encoding.
            with suppress(UnicodeDecodeError):
                assert decode(bytes([first, second]))[0].endswith(chr(second))


WRONG = {
    "delimiter": ["", ";;", "é", '"', "\n", "\r", "\0", "a", "1", None, 7],
    "encoding": ["utf-16", "utf-16-le", "utf-32", "utf-7", "cp037", "iso2022_jp", "hz", "unicode_escape", "klingon", 7],
}
WRONG["encoding"] += ["raw_unicode_escape", "base64", "punycode", "idna", "johab"]


@pytest.mark.parametrize(("option", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_what_cuts_no_file_is_refused_at_once(option: str, value: Any) -> None:
    """The user would see dead letters, or wrong fields, in the place of an answer."""
    with pytest.raises(InvalidPipeline, match=rf"{option}=.*(give|write)"):
        FileSource("a.csv", timestamp="ts", **{option: value})


def test_a_delimiter_that_is_part_of_characters_is_refused() -> None:
    """Half of a character would be the end of a field."""
    assert checked_dialect(";", "gbk") == CsvDialect(";", "gbk")
    with pytest.raises(InvalidPipeline, match=r"its byte is part of other characters in encoding='gbk'.*UTF-8"):
        checked_dialect("|", "gbk")


def test_a_mark_of_another_encoding_is_told(tmp_path: Path) -> None:
    """The columns would have names that nobody sees are wrong, or the file would be one of dead letters."""
    for data, given, told in (
        ("ts,who\n1,a\n".encode("utf-16"), {}, "seems to be UTF-16: write it as UTF-8"),
        ("ts,who\n1,a\n".encode("utf-16-le"), {}, "seems to be UTF-16: write it as UTF-8"),
        ("ts,who\n1,a\n".encode("utf-8-sig"), {"encoding": "cp1252"}, "begins with the mark of UTF-8: omit encoding"),
        ("zeit,größe\n1,2\n".encode("cp1252"), {}, "give another encoding=, as in encoding='cp1252'"),
        (b"zeit,gr\x81\n1,2\n", {"encoding": "cp1252"}, "invalid cp1252 data: bytes 81"),
    ):
        (tmp_path / "a.csv").write_bytes(data)
        source = FileSource(tmp_path / "a.csv", timestamp="ts", **given)
        with pytest.raises(SourceError, match=told):
            source.plan(SourceState({}), Budget(10))


def test_an_option_of_csv_is_refused_for_other_files(tmp_path: Path) -> None:
    """It would be silently without effect."""
    (tmp_path / "a.jsonl").write_text('{"ts": 1}\n')
    for given in ({"delimiter": ";"}, {"encoding": "cp1252"}):
        source = FileSource(tmp_path, timestamp="ts", timestamp_unit="s", **given)
        with pytest.raises(InvalidPipeline, match=r"is an option of CSV, but the files are json: omit it"):
            source.plan(SourceState({}), Budget(10))


class Seen(PersistentTask):
    key = "who"

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(Count())

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


def job(folder: Path, **given: Any) -> Pipeline:
    source = FileSource(folder / "in", timestamp="ts", timestamp_unit="s", **given)
    return Pipeline(source=source, task=Seen(), sink=MemorySink(), checkpoint=folder / "checkpoint")


def test_another_dialect_is_refused_later(tmp_path: Path) -> None:
    """What was counted under one would be counted again under other keys, or not at all."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_bytes(written(ROWS, ";", "cp1252"))
    job(tmp_path, delimiter=";", encoding="cp1252").run(engine="embedded")
    for given, told in (
        ({"encoding": "cp1252"}, r"delimiter=',': the checkpoint was made with delimiter=';'"),
        ({"delimiter": ";"}, r"encoding='utf-8': the checkpoint was made with encoding='cp1252'"),
    ):
        with pytest.raises(InvalidPipeline, match=told):
            job(tmp_path, **given).run(engine="embedded")
    (tmp_path / "in" / "b.csv").write_bytes(written([["9", "Zoë"]], ";", "cp1252"))
    again = job(tmp_path, delimiter=";", encoding="windows-1252")
    assert again.run(engine="embedded").rows == 1
    assert {row["who"]: row["value"] for row in again.state().to_pylist()}["Zoë"] == 2


def test_a_checkpoint_without_one_is_of_commas_in_utf8(tmp_path: Path) -> None:
    """A checkpoint of an earlier release says nothing of it, and its records were cut at commas."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_bytes(written(ROWS, ",", "utf-8"))
    job(tmp_path).run(engine="embedded")
    manifest = Log(job(tmp_path).storage).newest().manifest
    assert "delimiter" not in manifest.sources["file"].recorded
    with pytest.raises(InvalidPipeline, match=r"delimiter=';': the checkpoint was made with delimiter=','"):
        job(tmp_path, delimiter=";").run(engine="embedded")


def test_documents_keep_it(tmp_path: Path) -> None:
    """It would read the rest of the files at commas, into dead letters."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_bytes(written(ROWS, ";", "utf-8"))
    job(tmp_path, delimiter=";").run(engine="embedded")
    for folder, kind in (("m", Manifest), ("p", StepPlan)):
        data = max((tmp_path / "checkpoint" / folder).iterdir()).read_bytes()
        assert kind.decode(data, "here").encode() == data


def test_a_correction_is_read_as_the_source_is(tmp_path: Path) -> None:
    """The records of a correction would be one field each."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_bytes(written(ROWS, ";", "cp1252"))
    pipeline = job(tmp_path, delimiter=";", encoding="cp1252")
    pipeline.run(engine="embedded")
    (tmp_path / "more.csv").write_bytes(written([["9", "Zoë"]], ";", "cp1252"))
    (tmp_path / "more.jsonl").write_text('{"ts": 9, "who": "Zoë"}\n')
    for number, name in enumerate(("more.csv", "more.jsonl")):
        pipeline.correct(name=name, add=tmp_path / name, engine="embedded")
        assert {row["who"]: row["value"] for row in pipeline.state().to_pylist()}["Zoë"] == 2 + number
