"""A download is the whole state, or breaks off."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from monoids import Count
from persistent import MemorySource, NonWindowState
from persistent.errors import CorruptCheckpoint, InvalidPipeline
from persistent.tools.serve import state_reading
from persistent.tools.serve.page import download
from persistent.tools.serve.state_page import state_page
from persistent.tools.serve.state_reading import Wanted
from tests.tools.serve.jobs import SCRIPT, WIDE, Visits, ran, several


@pytest.fixture(params=[1, 20_000], autouse=True)
def slices(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_reading, "_SLICE_ROWS", request.param)


def table_of(form: str, data: bytes) -> pa.Table:
    if form == "parquet":
        return pq.read_table(io.BytesIO(data))
    if form == "jsonl":
        return pa.Table.from_pylist([json.loads(line) for line in data.splitlines()])
    options = pyarrow.csv.ParseOptions(newlines_in_values=True)
    return pyarrow.csv.read_csv(io.BytesIO(data), parse_options=options)


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_a_download_holds_every_row(form: str) -> None:
    """Rows of a later slice would be missing, or its head would be among them."""
    shown = ran("download")
    assert shown.pipeline is not None
    found = download(shown, Wanted(), form)
    table = table_of(form, b"".join(found.pieces))
    expected = shown.pipeline.state()
    assert sorted(table["largest"].to_pylist()) == sorted(expected["largest"].to_pylist())
    assert max(table["largest"].to_pylist()) == WIDE + 99 and SCRIPT in table["page"].to_pylist()
    assert found.name == f"download-{shown.look().newest.manifest.id}.{form}"


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_an_empty_state_is_a_whole_file(form: str) -> None:
    """A file without rows could not be read."""
    data = b"".join(download(ran("nothing"), Wanted(find="nowhere"), form).pieces)
    assert (data == b"") == (form == "jsonl")
    if form == "parquet":
        assert pq.read_table(io.BytesIO(data)).column_names[:2] == ["page", "shop"]


def test_a_download_that_fails_breaks_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a state would be taken for a whole one."""
    shown = ran("broken")

    def slices(found: state_reading.StateReading) -> Iterator[tuple[int, int, pa.Table]]:
        yield 0, 0, found.empty
        raise CorruptCheckpoint("a run is damaged")

    monkeypatch.setattr(state_reading.StateReading, "slices", slices)
    data = b""
    with pytest.raises(CorruptCheckpoint):
        for piece in download(shown, Wanted(), "parquet").pieces:
            data += piece
    with pytest.raises(pa.ArrowInvalid):
        pq.read_table(io.BytesIO(data))


def test_an_unknown_form_is_refused() -> None:
    """It would be some other one."""
    with pytest.raises(InvalidPipeline, match="csv, jsonl, parquet"):
        download(ran("form"), Wanted(), "xml")


def test_a_download_is_of_one_state() -> None:
    """Two states would be downloaded under one name, or the first under both."""
    shown = several("of-states")
    assert shown.pipeline is not None
    for name in ("minutes", "living"):
        found = download(shown, Wanted(name=name), "jsonl")
        assert found.name == f"of-states-{name}-{shown.entry().manifest.id}.jsonl"
        rows = [json.loads(line) for line in b"".join(found.pieces).splitlines()]
        assert len(rows) == shown.pipeline.state(name=name).num_rows
        assert ("window_start" in rows[0]) == (name == "minutes")


class ByTime(Visits):
    key = "at"

    def persistent_state(self) -> Any:
        return NonWindowState(Count())

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_a_time_of_any_year_has_digits(form: str) -> None:
    """The file had the words "<value out of range>" in its place, and the page did not show the state at all."""
    table = pa.table({"ts": [1, 2], "at": pa.array([2**63 - 1, 0], pa.timestamp("us"))})
    shown = ran(f"far-{form}", sources=MemorySource(table, timestamp="ts"), task=ByTime(), sink=None)
    text = b"".join(download(shown, Wanted(), form).pieces).decode()
    assert "294247-01-10T04:00:54.775807" in text and "1970-01-01" in text
    assert "294247-01-10T04:00:54.775807" in json.dumps(state_page(shown, Wanted()))
