"""Tables print rows in columns for people, or as JSON for programs, one object a line."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from datetime import date, datetime, time
from typing import TYPE_CHECKING, Any

import click
import pyarrow as pa
from rich.cells import cell_len, set_cell_size

from persistent.connect.formats.json_rows import encode_json_lines
from persistent.text.readable import readable_list

if TYPE_CHECKING:
    from rich.console import Console


from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from persistent.time.clock import monotonic_s

ROWS_SHOWN = 50
_WIDE = 10_000
_GAP = 2
_CUT_LEAST = 8
_MARK = "\N{HORIZONTAL ELLIPSIS}"


def print_rows(
    table: pa.Table,
    limit: int | None,
    as_json: bool,
    *,
    none: str = "no rows",
    glance: Callable[[pa.Table], pa.Table] | None = None,
) -> None:
    """Print an Arrow table. ``limit``: the maximum number of rows; ``none``: printed for an empty table; ``glance``:
    selects the columns for people."""
    if as_json:
        rows = table if limit is None else table.slice(0, limit)
        click.echo(encode_json_lines(rows).to_pybytes(), nl=False)
        return
    if not table.num_rows:
        click.echo(none)
        return
    rows = table.slice(0, ROWS_SHOWN if limit is None else limit)
    was_cut = _print_columns(rows if glance is None else glance(rows))
    if rows.num_rows < table.num_rows:
        click.echo(f"{rows.num_rows:,} of {table.num_rows:,} rows; more with --limit, all with --json")
    elif was_cut:
        click.echo(f"{_MARK} marks cut values; --json has all of them")


def _print_columns(table: pa.Table) -> bool:
    """Print in columns; returns whether a value was cut."""
    rows = [[_cell(value) for value in row.values()] for row in readable_list(table)]
    numbers = [field.name for field in table.schema if _is_number(field.type)]
    if not sys.stdout.isatty():
        print_table(table.column_names, rows, right=numbers)
        return False
    whole = {field.name for field in table.schema if pa.types.is_temporal(field.type) or field.name == "time"}
    return _print_fitted(table.column_names, rows, numbers, whole.union(numbers), _console().width)


def _is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_))


def _cell(value: Any) -> str:
    """A value in one line, without control characters."""
    if value is None:
        return ""
    if isinstance(value, bytes):
        text = value.decode("utf-8", "backslashreplace")
    elif isinstance(value, date | time):
        whole, point, part = str(value).removesuffix("+00:00").partition(".")
        part = part.removesuffix("000") if len(part) == 6 else part
        return whole + point + part + ("Z" if isinstance(value, datetime) and value.tzinfo else "")
    else:
        text = str(value)
    if text.isprintable():
        return text
    return "".join(symbol if symbol.isprintable() else symbol.encode("unicode_escape").decode() for symbol in text)


def _print_fitted(
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[str],
    whole: Container[str],
    room: int,
    spare: Sequence[str] = (),
) -> bool:
    """Print columns, the widest cut to fit; without room for columns, one value a line. Returns whether anything was
    cut or omitted."""
    columns = list(zip(*rows, strict=True))
    natural = [max(map(cell_len, (name, *column))) for name, column in zip(names, columns, strict=True)]
    least = [wide if name in whole else min(wide, _CUT_LEAST) for name, wide in zip(names, natural, strict=True)]
    widths = fitted(natural, least, room - _GAP * (len(names) - 1))
    if widths is None and spare:
        kept = [place for place, name in enumerate(names) if name != spare[0]]
        fewer = [[row[place] for place in kept] for row in rows]
        _print_fitted([names[place] for place in kept], fewer, right, whole, room, spare[1:])
        return True
    if widths is None:
        return _print_one_by_one(names, rows, room)
    lines = [list(names), *rows]
    for line in lines:
        parts = [
            _filled(_cut(text, wide, tail=name == "file"), wide, name in right)
            for name, text, wide in zip(names, line, widths, strict=True)
        ]
        click.echo((" " * _GAP).join(parts).rstrip())
    return widths != natural


def fitted(natural: Sequence[int], least: Sequence[int], room: int) -> list[int] | None:
    """Column widths that fit the room: the widest are cut first, none below its least. None if the room is too small.

    >>> fitted([5, 40, 90], [5, 12, 12], 60), fitted([5, 40], [5, 12], 60), fitted([30, 40], [30, 12], 40)
    ([5, 28, 27], [5, 40], None)
    """
    if sum(least) > room:
        return None
    widths = [min(wide, room) for wide in natural]
    while sum(widths) > room:
        _, place = max((wide, place) for place, wide in enumerate(widths) if wide > least[place])
        widths[place] -= 1
    return widths


def _print_one_by_one(names: Sequence[str], rows: Sequence[Sequence[str]], room: int) -> bool:
    wide = min(max(map(cell_len, names)), room // 2)
    left = max(room - wide - _GAP, 1)
    for number, row in enumerate(rows):
        if number:
            click.echo()
        for name, text in zip(names, row, strict=True):
            parts = _filled(_cut(name, wide), wide), _cut(text, left, tail=name == "file")
            click.echo((" " * _GAP).join(parts).rstrip())
    return any(cell_len(text) > left for row in rows for text in row)


def _cut(text: str, wide: int, *, tail: bool = False) -> str:
    """Cut text to a width, with a mark at the end, or before the tail."""
    if cell_len(text) <= wide:
        return text
    if not tail:
        return set_cell_size(text[:wide], wide - 1).rstrip() + _MARK
    kept = text[-wide:]
    while cell_len(kept) > wide - 1:
        kept = kept[1:]
    return _MARK + kept


def _filled(text: str, wide: int, right: bool = False) -> str:
    gap = " " * (wide - cell_len(text))
    return gap + text if right else text + gap


def _console() -> Console:
    from rich.console import Console

    return Console(markup=False, highlight=False, emoji=False)


def print_summaries(
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[str],
    whole: Sequence[str],
    spare: Sequence[str],
) -> None:
    """Like ``print_table``, with each row in one line; a narrow terminal drops the columns ``spare``."""
    if not sys.stdout.isatty():
        print_table(names, rows, right)
        return
    room = _console().width
    if _print_fitted(names, rows, right, {*right, *whole}, room, spare):
        click.echo(f"{_MARK} some columns did not fit: --json has all of them")


def print_table(names: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()) -> None:
    """Fit a table to the terminal, wrapping wide cells; elsewhere print it as wide as needed."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(name, justify="right" if name in right else "left", no_wrap=name in right)
    for row in rows:
        table.add_row(*row)
    if sys.stdout.isatty():
        _console().print(table)
        return
    console = Console(file=io.StringIO(), width=_WIDE, markup=False, highlight=False, emoji=False, color_system=None)
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        click.echo(line.rstrip())


def print_json(rows: Iterable[Mapping[str, Any]]) -> None:
    """One object a line."""
    for row in rows:
        click.echo(json_text(row))


def json_text(value: Any) -> str:
    """A value as JSON in one line."""
    return json.dumps(value, ensure_ascii=False)


@contextmanager
def one_line(stream: TextIO) -> Iterator[Callable[[str], None]]:
    """Show a line that replaces the last one; show nothing if ``stream`` is not a terminal."""
    if not stream.isatty():
        yield lambda text: None
        return
    from rich.console import Console
    from rich.status import Status

    with Status("", console=Console(file=stream, markup=False), spinner="line") as status:
        yield status.update


@contextmanager
def working(stream: TextIO, what: str, amount: Callable[[int], str]) -> Iterator[Callable[[int, int], None]]:
    """Show the progress of a long operation on a terminal; yields a callback for the done and total amounts."""
    began_s = monotonic_s()
    with one_line(stream) as show:
        show(what)

        def on_progress(done: int, total: int) -> None:
            rate = int(done / max(monotonic_s() - began_s, 1e-3))
            share = f" {100 * done // total} %" if total else ""
            show(f"{what}: {amount(done)} of {amount(total)}{share}, {amount(rate)}/s")

        yield on_progress
