"""Columns as PostgreSQL has them, without a server: what is wider, what cannot be, what is quoted."""

from __future__ import annotations

import pyarrow as pa
import pytest

from persistent.errors import InvalidPipeline
from persistent.sinks.postgres_columns import check_names, check_values, csv_pieces, fits, short_name, type_of
from persistent.sinks.sql import images_name


def test_only_what_holds_every_value_fits() -> None:
    """A narrower column would round, cut or refuse, in the middle of the night."""
    for found, expected in (
        ("bigint", "bigint"),
        ("numeric", "bigint"),
        ("text", "jsonb"),
        ("numeric(12,3)", "numeric(10,2)"),
    ):
        assert fits(found, expected)
    for found, expected in (
        ("smallint", "integer"),
        ("numeric(12,3)", "numeric(12,2)"),
        ("numeric(10,1)", "numeric(10,2)"),
        ("character varying(10)", "text"),
        ("timestamp without time zone", "timestamp with time zone"),
        ("real", "double precision"),
    ):
        assert not fits(found, expected)
    assert type_of(pa.string()) == type_of(pa.null()) == "text" and type_of(pa.duration("s")) == "bigint"


def test_null_and_empty_text_stay_apart() -> None:
    """COPY reads nothing as null: an empty text has to be quoted, and so has what looks like its end."""
    (piece,) = csv_pieces(pa.table({"a": ["", None, "\\."], "n": [1, None, 3]}))
    assert piece == b'"",1\n,\n"\\.",3\n'


def test_what_the_server_has_no_place_for_is_told_before() -> None:
    """What is committed can only be published: the run would never go on."""
    check_values(pa.table({"a": ["x", None], "t": pa.array([1_000, None], pa.timestamp("ns"))}), "t")
    with pytest.raises(InvalidPipeline, match="'a' has a text with a NUL"):
        check_values(pa.table({"a": ["x\0y"]}), "t")
    for kind in (pa.timestamp("ns", "UTC"), pa.time64("ns")):
        with pytest.raises(InvalidPipeline, match="'t' has a time in nanoseconds"):
            check_values(pa.table({"t": pa.array([1], kind)}), "t")


def test_what_is_replaced_in_two_tables_stays_apart_where_names_are_cut() -> None:
    """The rollback of one job would put back the rows of another."""
    names = ["visits", "t" * 45, "t" * 46, "t" * 50 + "_eu", "t" * 50 + "_us", "é" * 30, "é" * 31]
    found = [short_name(images_name(name)).encode() for name in names]
    assert len({name[:63] for name in found}) == len(names) and max(map(len, found)) <= 63
    assert found[:2] == [b"persistent_before_visits", b"persistent_before_" + b"t" * 45]


def test_a_column_that_every_table_has_is_refused_by_name() -> None:
    """The server says no only when the first batch is due, and a committed batch cannot be changed."""
    for name in ("xmin", "ctid", "tableoid"):
        with pytest.raises(InvalidPipeline, match=f"a column '{name}' of its own: rename"):
            check_names(pa.schema([("page", pa.string()), (name, pa.int64())]), "the sink")
    check_names(pa.schema([("page", pa.string()), ("XMIN", pa.int64())]), "the sink")
