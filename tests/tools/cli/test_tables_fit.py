"""Tables: what a person reads fits the terminal it is read on, and what a program reads is all there is."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence

import pyarrow as pa
import pytest
from rich.cells import cell_len

from persistent.tools.cli.tables import print_rows, print_summaries

MARK = "\N{HORIZONTAL ELLIPSIS}"
TIME = 1_714_983_607_167

STATE = pa.table(
    {
        "page": ["/cart", "/a/very/long/path?" + "x" * 500, "/日本語のページ" * 9],
        "window_start": pa.array([TIME] * 3, pa.timestamp("ms", "UTC")),
        "visits": [1, 22, 333_333],
        "users": [["ann"], ["user"] * 300, []],
    }
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> Terminal:
    terminal = Terminal()
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys, "stdout", terminal)
    return terminal


def widest(lines: Sequence[str]) -> int:
    return max(map(cell_len, lines))


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_a_table_fits_its_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """Without it every row of a wide state would be a dozen broken lines."""
    terminal = on_terminal(monkeypatch, columns)
    print_rows(STATE, None, as_json=False)
    lines = terminal.getvalue().splitlines()
    assert widest(lines[:-1]) <= columns
    assert lines[-1] == f"{MARK} marks cut values; --json has all of them"
    if columns >= 80:
        assert len(lines) == 1 + 3 + 1
    text = terminal.getvalue()
    assert text.count("2024-05-06 08:20:07.167") == 3
    assert "333333" in text


def test_where_columns_do_not_fit_each_value_has_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it a narrow terminal would show times and numbers in pieces."""
    terminal = on_terminal(monkeypatch, 40)
    print_rows(STATE.slice(0, 1), None, as_json=False)
    assert terminal.getvalue().splitlines() == [
        "page          /cart",
        "window_start  2024-05-06 08:20:07.167Z",
        "visits        1",
        "users         ['ann']",
    ]


def test_of_a_file_the_end_of_its_name_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it a hundred files of one folder would all look the same."""
    terminal = on_terminal(monkeypatch, 30)
    print_rows(pa.table({"file": ["day=2024-05-06/hour=10/part-17.json"], "offset": [5]}), None, as_json=False)
    assert "part-17.json" in terminal.getvalue()


def test_values_do_not_move_the_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it a record could break its table, or write anywhere on the screen."""
    terminal = on_terminal(monkeypatch, 80)
    print_rows(pa.table({"page": ["a\nb\x1b[2J"]}), None, as_json=False)
    assert terminal.getvalue().splitlines()[1:] == ["a\\nb\\x1b[2J"]


def test_elsewhere_nothing_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    """Without it a pipe would get what a terminal has room for."""
    print_rows(STATE, None, as_json=False)
    shown = capsys.readouterr().out
    assert MARK not in shown
    assert "x" * 500 in shown
    print_rows(STATE, None, as_json=True)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["page"] for line in lines] == STATE["page"].to_pylist()


@pytest.mark.parametrize(("columns", "left_out"), [(30, {"runs"}), (60, set())])
def test_a_summary_leaves_out_what_is_least_asked_for(
    monkeypatch: pytest.MonkeyPatch, columns: int, left_out: set[str]
) -> None:
    """Without it the list of checkpoints would show no clock as a whole on 80 columns."""
    terminal = on_terminal(monkeypatch, columns)
    names = ["id", "clock", "runs"]
    print_summaries(names, [["1", "2024-05-06 10:33:15.616Z", "12"]], ("id", "runs"), ("clock",), ("runs",))
    lines = terminal.getvalue().splitlines()
    assert set(names) - set(lines[0].split()) == left_out
    assert "2024-05-06 10:33:15.616Z" in lines[1]
    assert widest(lines[:2]) <= columns
