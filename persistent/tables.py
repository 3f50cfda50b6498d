"""A table is rows as a person reads them in columns, or as a program reads them: JSON, one object a line."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from persistent.sinks.json_lines import encode_json_lines

ROWS_SHOWN = 50
_WIDE = 10_000


def print_rows(table: pa.Table, limit: int | None, as_json: bool) -> None:
    """An Arrow table on the standard output; ``limit``: at most so many of its rows."""
    if as_json:
        shown = table if limit is None else table.slice(0, limit)
        click.echo(encode_json_lines(shown).to_pybytes(), nl=False)
        return
    shown = table.slice(0, ROWS_SHOWN if limit is None else limit)
    rows = [[_cell(value) for value in row.values()] for row in shown.to_pylist()]
    numeric = [field.name for field in table.schema if _is_number(field.type)]
    print_table(table.column_names, rows, right=numeric)
    if shown.num_rows < table.num_rows:
        click.echo(f"{shown.num_rows:,} of {table.num_rows:,} rows; more with --limit, all with --json")
    elif not table.num_rows:
        click.echo("no rows")


def _is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if hasattr(value, "isoformat"):
        return str(value).removesuffix("+00:00") + ("Z" if getattr(value, "tzinfo", None) else "")
    return str(value)


def print_table(names: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()) -> None:
    """On a terminal fitted to it, elsewhere as wide as it needs."""
    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(name, justify="right" if name in right else "left", no_wrap=name in right)
    for row in rows:
        table.add_row(*row)
    if sys.stdout.isatty():
        Console(markup=False, highlight=False, emoji=False).print(table)
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
