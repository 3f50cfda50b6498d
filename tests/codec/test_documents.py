"""A document is read as it was written, or refused before it costs anything."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from persistent.codec import documents
from persistent.codec.documents import canonical_json, check_value, decode_document, encode_document
from persistent.errors import CorruptCheckpoint, StorageError
from tests.few import examples

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


def proven(body: bytes) -> bytes:
    """With the trailer that belongs to it: whoever can write a file can write that too."""
    return body + b"\n" + hashlib.sha256(body).hexdigest().encode() + b"\n"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"1" * (documents.INTEGER_DIGITS_MAX + 1), "an integer of more than 1000 digits"),
        (b"-" + b"1" * (documents.INTEGER_DIGITS_MAX + 1), "an integer of more than 1000 digits"),
        (b'"\\ud800"', "surrogates not allowed"),
        (b'"\\uDFFF"', "surrogates not allowed"),
        (b'{"\\udc00":1}', "surrogates not allowed"),
        ('{"é":1}'.encode(), "ascii"),
        ('{"a":1}'.encode("utf-16"), "ascii"),
        (b'{"a":1}x', "Extra data"),
        (b'{"a":1}{"a":1}', "Extra data"),
        (b"[" * 101 + b"]" * 101, "nested deeper than 100"),
        (b'{"a":' * 101 + b"1" + b"}" * 101, "nested deeper than 100"),
        (b'["\\\\"' + b",[" * 101, "nested deeper than 100"),
        (b"[" + b"[]," * 200 + b"[" * 100 + b"]" * 101, "nested deeper than 100"),
        (b'{"a":1,"\\u0061":2}', "a key occurs twice"),
        (b"1.5", "1.5 is not an integer"),
        (b"1" * 500 + b".5", "1111 is not an integer"),
        (b"Infinity", "not an integer"),
        (b"", "Expecting value"),
    ],
)
def test_what_no_document_of_ours_holds_is_refused(body: bytes, says: str) -> None:
    """Each of these takes down, or misleads, a reader that trusts the JSON of its language."""
    with pytest.raises(CorruptCheckpoint, match=says):
        decode_document(proven(body), "place")


@pytest.mark.parametrize(
    "value",
    [
        10**documents.INTEGER_DIGITS_MAX - 1,
        1 - 10**documents.INTEGER_DIGITS_MAX,
        "[" * 1000,
        '"[' * 1000,
        ["\\", "[" * 200, '\\"', "[" * 200],
        "\U0001f600é",
        {"\U0001f600": '{"[\\'},
    ],
)
def test_what_is_just_within_the_bounds_is_read(value: Any) -> None:
    """A bracket in the name of a file is none of the document."""
    assert decode_document(encode_document(value), "place") == value


def nested(depth: int, around: Callable[[Any], Any]) -> Any:
    value = around(1)
    for _ in range(depth - 1):
        value = around(value)
    return value


@pytest.mark.parametrize("around", [lambda inner: [inner], lambda inner: {"a": inner}], ids=["list", "mapping"])
def test_depth_is_the_same_both_ways(around: Callable[[Any], Any]) -> None:
    """What is put must be read again."""
    value = nested(documents.DOCUMENT_DEPTH_MAX, around)
    assert decode_document(encode_document(value), "place") == value
    with pytest.raises(ValueError, match="nested deeper than 100"):
        encode_document(nested(documents.DOCUMENT_DEPTH_MAX + 1, around))


def test_the_bounds_are_part_of_the_format() -> None:
    """A driver with wider ones puts what the driver beside it, of another release, cannot read."""
    assert documents.DOCUMENT_BYTES_MAX == 64 * 1024 * 1024
    assert documents.DOCUMENT_MARKS_MAX == 4 * 1024 * 1024
    assert documents.DOCUMENT_DEPTH_MAX == 100
    assert documents.INTEGER_DIGITS_MAX == 1_000


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [float("-inf")]])
def test_no_number_without_a_spelling_is_spelled(value: Any) -> None:
    """NaN is no JSON: the index of a run would be bytes that nothing parses."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        documents.spelled(value)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (10**documents.INTEGER_DIGITS_MAX, "more than 1000 digits"),
        (-(10**documents.INTEGER_DIGITS_MAX), "more than 1000 digits"),
        ("\ud800", "surrogates"),
        ({"\ud800": 1}, "surrogates"),
        ({1: 1}, "the name 1 is not text"),
        ((1.5,), "is a float"),
    ],
)
def test_what_could_not_be_read_is_not_written(value: Any, says: str) -> None:
    """Put, it would be the newest checkpoint, and corrupt."""
    with pytest.raises(ValueError, match=says):
        encode_document(value)


def test_json_has_one_spelling() -> None:
    """Equal contents must give equal bytes, or two drivers cannot recognise the same plan."""
    assert canonical_json({"b": [1, None, True], "a": "é"}) == r'{"a":"\u00e9","b":[1,null,true]}'
    assert canonical_json({"a": {"d": 1, "c": 2}}) == canonical_json({"a": {"c": 2, "d": 1}})


def test_a_document_too_large_to_be_read_is_not_put(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put and never read again, it would end the job for good."""
    value = {"spans": ["x" * 100] * 10}
    size = len(encode_document(value))
    monkeypatch.setattr(documents, "DOCUMENT_BYTES_MAX", size)
    data = encode_document(value)
    assert decode_document(data, "place") == value
    monkeypatch.setattr(documents, "DOCUMENT_BYTES_MAX", size - 1)
    with pytest.raises(StorageError, match=f"of {size} bytes was not written: above {size - 1} "):
        encode_document(value)
    with pytest.raises(CorruptCheckpoint, match=f"{size} bytes; a manifest has at most"):
        decode_document(data, "place")


def test_a_document_of_too_many_values_is_not_put(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two bytes of JSON become a hundred of memory."""
    value = [[], "a,", {"b": 1}]
    data = encode_document(value)
    monkeypatch.setattr(documents, "DOCUMENT_MARKS_MAX", 10)
    assert decode_document(encode_document(value), "place") == value
    monkeypatch.setattr(documents, "DOCUMENT_MARKS_MAX", 9)
    with pytest.raises(StorageError, match="10 marks was not written: above 9 "):
        encode_document(value)
    with pytest.raises(CorruptCheckpoint, match="10 marks, the limit is 9"):
        decode_document(data, "place")


def test_nothing_is_parsed_before_its_hash_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parser is the largest thing to attack in a reader."""
    parsed: list[Any] = []
    monkeypatch.setattr(json, "loads", lambda *given, **more: parsed.append(given))
    data = encode_document({"a": 1})
    for wrong in (data[:-1], data + b"\n", data.replace(b"1", b"2", 1), b"1\n", b"1", b""):
        with pytest.raises(CorruptCheckpoint, match="SHA-256 differs"):
            decode_document(wrong, "place")
    assert not parsed


@settings(deadline=None, max_examples=examples(300))
@given(JSON)
def test_what_is_written_is_read(value: Any) -> None:
    """A manifest that cannot be read again ends the job for good."""
    data = encode_document(value)
    assert decode_document(data, "place") == value
    assert decode_document(pa.py_buffer(data), "place") == value


@settings(deadline=None, max_examples=examples(300))
@given(JSON, st.data())
def test_changed_bytes_are_refused_or_read(value: Any, drawn: st.DataObject) -> None:
    """Behind a trailer that matches: never anything but a value or CorruptCheckpoint."""
    body = bytearray(canonical_json([value, {"a": "é\\"}]).encode())
    for _ in range(drawn.draw(st.integers(1, 3))):
        body[drawn.draw(st.integers(0, len(body) - 1))] = drawn.draw(st.sampled_from(b'[]{}",:\\u019-.eNd\xff\x00'))
    assert_read_or_refused(bytes(body))


@settings(deadline=None, max_examples=examples(200))
@given(st.binary(max_size=80))
def test_any_bytes_are_refused_or_read(body: bytes) -> None:
    """The same of bytes that nothing like us has written."""
    assert_read_or_refused(body)
    with pytest.raises(CorruptCheckpoint, match="place"):
        decode_document(body, "place")


def assert_read_or_refused(body: bytes) -> None:
    try:
        value = decode_document(proven(body), "place")
    except CorruptCheckpoint as error:
        assert str(error).startswith("place: ")
    else:
        assert decode_document(encode_document(value), "place") == value


def nested_facts(depth: int) -> Any:
    value: Any = 1
    for number in range(depth):
        value = [value] if number % 2 else {"a": value}
    return value


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -5,
        "é",
        [1, ("a", None)],
        {"a": {"b": [False]}},
        10**documents.INTEGER_DIGITS_MAX - 1,
        nested_facts(documents.FACTS_DEPTH_MAX),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_facts_are_flags_numbers_text_lists_and_mappings(value: Any) -> None:
    """A source that records its schema must not be refused."""
    check_value(value, documents.FACTS_DEPTH_MAX)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (1.5, "1.5 is a float, which a checkpoint cannot hold: write it as an integer or as text"),
        ({"a": [float("nan")]}, "nan is a float"),
        ({1: "a"}, "the name 1 is not text"),
        ({"a": {"b": b"c"}}, "is a bytes, which a checkpoint cannot hold"),
        ([10**documents.INTEGER_DIGITS_MAX], "more than 1000 digits, which a checkpoint cannot hold: write it as text"),
        (-(10**documents.INTEGER_DIGITS_MAX), "more than 1000 digits"),
        ("\ud800", "surrogates not allowed"),
        ({"\ud800": 1}, "surrogates not allowed"),
        (nested_facts(documents.FACTS_DEPTH_MAX + 1), f"nested deeper than {documents.FACTS_DEPTH_MAX}"),
        ({1, 2}, "is a set"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_facts_that_could_not_be_read_back_are_refused(value: Any, says: str) -> None:
    """JSON would write NaN as null, and a float as fewer digits: another schema than that which was read."""
    with pytest.raises(ValueError, match=says):
        check_value(value, documents.FACTS_DEPTH_MAX)
