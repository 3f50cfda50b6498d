"""A file is read with the options that its first records show, and with those that are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from persistent import InvalidPipeline, SourceError
from persistent.connect.files.listing import Files
from persistent.connect.formats.protocol import InputFile
from persistent.tools.project.proposal import NAMED_DELIMITERS, csv_text, format_name, options_of


def file(path: Path, data: bytes) -> InputFile:
    path.write_bytes(data)
    files = Files(str(path))
    (listed,) = files.list()
    return InputFile(files, listed.path, listed.size)


def test_a_character_that_the_sample_cuts_is_no_fault(tmp_path: Path) -> None:
    """The encoding of a large file would hang on where its 65,536th byte falls."""
    data = b"t,a\n" + b"x" * (65_535 - 4) + "é\n".encode()
    assert options_of(file(tmp_path / "a.csv", data), {}) == {}


def test_bytes_that_windows_does_not_have_are_latin(tmp_path: Path) -> None:
    """A line with one of them would be a dead letter."""
    assert options_of(file(tmp_path / "a.csv", b"t;a\n1;\x81\xe9\n"), {}) == {"delimiter": ";", "encoding": "iso8859-1"}


@pytest.mark.parametrize("name", NAMED_DELIMITERS)
def test_a_delimiter_has_a_name(name: str, tmp_path: Path) -> None:
    """A tab cannot be typed on most command lines."""
    found = options_of(file(tmp_path / "a.csv", b"t;a\n"), {"delimiter": name})
    assert found.get("delimiter", ",") == NAMED_DELIMITERS[name]
    with pytest.raises(InvalidPipeline, match="delimiter='semi'"):
        options_of(file(tmp_path / "a.csv", b"t;a\n"), {"delimiter": "semi"})


def test_the_options_are_those_of_the_text(tmp_path: Path) -> None:
    """A proposal would look at other fields than the source."""
    one = file(tmp_path / "a.txt", 't\tn\n1\t"é\n"\n'.encode("cp1252"))
    found = options_of(one, {})
    assert found == {"format": "csv", "delimiter": "\t", "encoding": "cp1252"}
    schema = csv_text({**found, "multiline": True}).infer(one)
    assert schema is not None and schema.names == ["t", "n"]


def test_the_name_of_a_file_shows_its_format(tmp_path: Path) -> None:
    """A user of init cannot give the option that FileSource asks for."""
    names = {"a.TXT": "csv", "a.tsv.gz": "csv", "a.jsonl": "json", "a.parquet": "parquet"}
    for name, format in names.items():
        one = file(tmp_path / name, b"x")
        assert format_name(one.files, one.files.list()[0]) == format
    one = file(tmp_path / "a.xlsx", b"x")
    with pytest.raises(SourceError, match=r"a\.xlsx: its name does not show its format: let it end in \.csv"):
        format_name(one.files, one.files.list()[0])
