"""Keys as users give them are columns of one type, or refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from persistent.state.updates import key_array, listed_key


def test_bytes_that_are_no_text_are_no_key() -> None:
    """A key is shown, written and compared as text."""
    texts = pa.array([b"a", b"\xff"], pa.binary()).view(pa.string())
    for given in (texts, texts.cast(pa.binary()).cast(pa.large_binary()).view(pa.large_string())):
        with pytest.raises(ValueError, match="key column 'page' has a text that is not UTF-8"):
            key_array(given, 2, "page")
    assert key_array(texts.slice(0, 1), 1, "page").to_pylist() == ["a"]


def test_keys_of_python_are_of_one_type() -> None:
    """Two types in one column would be two states."""
    assert listed_key([1, None, 2], "k").to_pylist() == [1, None, 2] and listed_key(["a"], "k").to_pylist() == ["a"]
    with pytest.raises(TypeError, match="'k' is given values of different types: int, str"):
        listed_key([1, "a"], "k")
