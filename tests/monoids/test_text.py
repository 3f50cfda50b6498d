"""Texts are compared eight bytes at a time."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from monoids.text import TextWords
from tests.few import examples


@settings(deadline=None, max_examples=examples(200))
@given(
    st.lists(st.binary(max_size=20), min_size=1, max_size=8) | st.lists(st.binary(min_size=5, max_size=5), min_size=2)
)
def test_words_are_the_bytes(values: list[bytes]) -> None:
    """Bytes of the next text, or after the end of all, must not become part of a word."""
    text = TextWords(pa.array(values, pa.binary()))
    for at in (0, 8, 16):
        expected = [int.from_bytes(value[at : at + 8], "little") for value in values]
        assert text.words(0, len(values), at).tolist() == expected
        assert text.words(1, len(values), at).tolist() == expected[1:] if len(values) > 1 else True
