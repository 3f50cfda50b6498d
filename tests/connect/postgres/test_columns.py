"""Columns as PostgreSQL has them, without a server: what is wider, what cannot be, what is quoted."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from persistent.connect.postgres.columns import (
    check_columns,
    check_values,
    codec_of,
    csv_pieces,
    fits,
    short_name,
    sizes_refused,
    texts_refused,
    type_of,
)
from persistent.connect.sql import images_name
from persistent.errors import InvalidPipeline


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
    nested = pa.array([[("a", [{"b": "x\0y"}])]], pa.map_(pa.string(), pa.list_(pa.struct([("b", pa.string())]))))
    for column, text in (
        (nested, r"'a.value.b' has a text with a NUL character, .*: 'x\\x00y'\. Replace it"),
        (pa.array([[("x\0y", [])]], nested.type), r"'a.key' has a text with a NUL"),
        (pa.array(["x\0y"], pa.large_string()), "'a' has a text with a NUL"),
        (pa.array(["x\0y"]).dictionary_encode(), "'a' has a text with a NUL"),
        (pa.array([3 * 10**6], pa.int32()).cast(pa.date32()), "'a' has the date of 3000000 days"),
        (pa.array([3 * 10**8], pa.int32()).cast(pa.date32()), "'a' has the date of 300000000 days since 1970, which"),
        (pa.array([[2**45]], pa.list_(pa.int64())).cast(pa.list_(pa.timestamp("s"))), "'a' has the timestamp of"),
    ):
        with pytest.raises(InvalidPipeline, match=f"t: column {text}"):
            check_values(pa.table({"a": column}), "t")
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
        with pytest.raises(InvalidPipeline, match=f"a system column '{name}': rename"):
            check_columns(pa.schema([("page", pa.string()), (name, pa.int64())]), "the sink")
    for name in ("n" * 64, "é" * 32, "", "a\0b"):
        with pytest.raises(InvalidPipeline, match=r"has 1 to 63 bytes and no NUL, .* does not: rename the field"):
            check_columns(pa.schema([("page", pa.string()), (name, pa.int64())]), "the sink")
    check_columns(pa.schema([("n" * 63, pa.int64()), ("é" * 31, pa.int64())]), "the sink")
    check_columns(pa.schema([("page", pa.string()), ("XMIN", pa.int64())]), "the sink")


def test_a_column_that_cannot_be_written_is_refused_by_its_type() -> None:
    """The client has no text for it, and the first batch would end every run."""
    fine = [pa.null(), pa.large_binary(), pa.binary(3), pa.decimal256(70, -2), pa.duration("s"), pa.time32("s")]
    fine += [pa.list_(pa.struct([("a", pa.date32())])), pa.dictionary(pa.int8(), pa.string()), pa.float16()]
    check_columns(pa.schema([(f"c{place}", kind) for place, kind in enumerate(fine)]), "the sink")
    union = pa.dense_union([pa.field("a", pa.int64())])
    for kind in (
        *(pa.string_view(), pa.binary_view(), pa.month_day_nano_interval(), pa.uuid(), union),
        *(pa.run_end_encoded(pa.int32(), pa.string()), pa.dictionary(pa.int8(), pa.int64())),
        *(pa.list_(pa.month_day_nano_interval()), pa.map_(pa.string(), pa.struct([("a", union)]))),
    ):
        with pytest.raises(InvalidPipeline, match=r"column 'x' is of type .*, which PostgreSQL cannot hold"):
            check_columns(pa.schema([("page", pa.string()), ("x", kind)]), "the sink")
    with pytest.raises(InvalidPipeline, match="at most 1600 columns, but the outputs have 1601"):
        check_columns(pa.schema([(f"c{place}", pa.int8()) for place in range(1_601)]), "the sink")


def test_a_key_that_no_index_holds_is_refused() -> None:
    """The server says no when the batch is due: "index row size exceeds maximum 2704"."""
    keys = pa.table({"a": ["x" * 1_300, "y" * 2_584, None], "b": [b"z" * 1_284, b"", None], "n": [1, 2, 3]})
    assert not any(rows.any() for rows, _ in sizes_refused(keys, "t"))
    longer = pa.concat_tables([keys, pa.table({"a": ["x" * 1_300], "b": [b"z" * 1_285], "n": [4]})])
    ((rows, reason),) = sizes_refused(longer, "t")
    assert rows.tolist() == [False, False, False, True]
    assert reason.startswith("t: the texts of a key have more than 2584 bytes")
    for names in (["n"], ["a"]):
        assert not any(rows.any() for rows, _ in sizes_refused(longer.select(names), "t"))
    assert not list(sizes_refused(longer.slice(0, 0), "t"))
    text = pa.table({"a": ["x" * 2_600]})
    assert not list(sizes_refused(text, "t"))
    price = pa.array([Decimal("1.5")], pa.decimal128(38, 37))
    for name, other in (("n", pa.array([1])), ("price", price)):
        ((rows, _),) = sizes_refused(text.append_column(name, other), "t")
        assert rows.tolist() == [True]


def test_a_text_that_the_database_cannot_hold_is_no_key() -> None:
    """The server refuses it when the batch is due."""
    keys = pa.table({"n": [1, 2, 3, 4], "a": ["é", None, "a\0", "😀"]})
    ((nul, reason),) = texts_refused(keys, "t", None)
    assert nul.tolist() == [False, False, True, False]
    assert reason.startswith("t: the key column 'a' has a text with a NUL character, which text cannot hold: give the")
    _, (missing, reason) = texts_refused(keys, "t", codec_of("LATIN1"))
    assert missing.tolist() == [False, False, False, True] and "the encoding of the database, iso8859-1, does" in reason


def test_decimals_have_no_scale_below_zero() -> None:
    """Servers before 15 have none: the table could not be made."""
    found = [type_of(pa.decimal128(5, scale)) for scale in (-3, 0, 5)]
    assert found == ["numeric(8,0)", "numeric(5,0)", "numeric(5,5)"]
    assert fits("numeric(9,0)", found[0]) and not fits("numeric(7,0)", found[0])
