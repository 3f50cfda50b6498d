"""A document is read exactly as it was written, whatever writes it; and of another format it is refused by that."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_type_hints

import pytest
from msgspec import Meta

from persistent.codec import documents
from persistent.codec.documents import FIRST_FORMAT, FORMAT, Misfit, format_of, no_laws, read, terms, write
from persistent.codec.fields import FreeFacts, Natural, Part, Since
from persistent.errors import CorruptCheckpoint, LawBroken, NewerFormat, Refused
from tests.checkpoint.page import DOCUMENTS


class Inner(Part, frozen=True):
    value: Natural
    limit: Annotated[Natural, Since(5)] = 0


class Sample(Part, frozen=True):
    """A document with a field and a word of later formats."""

    id: Natural
    kind: Annotated[Literal["old", "new"], Since(6, ("new",))] = "old"
    names: Annotated[tuple[str, ...], Meta(max_length=2)] = ()
    inner: dict[str, Inner] = {}
    facts: FreeFacts = {}
    later: Annotated[FreeFacts, Since(7)] = {}
    words: Annotated[tuple[Literal["old", "new"], ...], Since(6, ("new",))] = ()
    named: Annotated[dict[str, Literal["old", "new"]], Since(6, ("new",))] = {}


def ascending(sample: Sample) -> None:
    if list(sample.names) != sorted(sample.names):
        raise Misfit("names: they do not ascend")


def sealed(body: bytes | str) -> bytes:
    """Any body with the trailer that fits it: what a program other than ours might write."""
    body = body.encode() if isinstance(body, str) else body
    return body + b"\n" + hashlib.sha256(body).hexdigest().encode() + b"\n"


def sample(data: bytes) -> Sample:
    return read(Sample, data, "place", "a sample", ascending)


FULL = Sample(7, names=("a", "é\n"), inner={"b": Inner(1), "a": Inner(2)}, facts={"z": [1, None], "a": {"b": True}})
SPELLED = (
    '{"format":4,"facts":{"a":{"b":true},"z":[1,null]},"id":7,"inner":{"a":{"value":2},"b":{"value":1}},'
    '"names":["a","é\\n"]}'
)


def test_a_document_has_one_spelling() -> None:
    """Equal contents must give equal bytes, or two drivers cannot recognise the same plan."""
    data = write(FULL, "the sample", ascending)
    assert data == sealed(SPELLED) and sample(data) == FULL
    equal_kind: Any = "".join(["o", "ld"])
    assert write(Sample(7, equal_kind), "", no_laws) == write(Sample(7), "", no_laws) == sealed('{"format":4,"id":7}')


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ('{"id":7,"format":4}', "its format is not in front"),
        ('{"format":4,"id":7,"id":7}', "the one spelling"),
        ('{"format":4,"names":["a"],"id":7}', "the one spelling"),
        ('{"format":4, "id":7}', "the one spelling"),
        ('{"format":4,"id":7} ', "the one spelling"),
        ('{"format":4,"id":7,"kind":"old"}', "the one spelling"),
        ('{"format":4,"id":7,"names":[]}', "the one spelling"),
        ('{"format":4,"id":7,"names":["\\u0061"]}', "the one spelling"),
        ('{"format":4,"id":7,"kind":"new"}', "the one spelling"),
        ('{"format":4}', "missing required field `id`"),
        ('{"format":4,}', "is not a document of a checkpoint"),
        ('{"format":4,"id":7,"more":1}', "unknown field `more`"),
        ('{"format":4,"names":["a"]}', "missing required field `id`"),
        ('{"format":4,"id":7,"facts":{"a":1.5}}', "1.5 is a float"),
        ('{"format":4,"id":7,"facts":{"a":NaN}}', "is not a document of a checkpoint"),
        ('{"format":4,"id":7,"names":["b","a"]}', "names: they do not ascend"),
        ('{"format":4,"id":7,"names":["a","b","c"]}', "length <= 2"),
        (b'{"format":4,"id":7,"names":["\xff"]}', "[Uu][Tt][Ff]-8"),
        ('{"format":4,"id":7,"facts":{"a":"\\ud800"}}', "is not a document of a checkpoint"),
        ('{"format":4,"id":7,"facts":{"a":' + "[" * 101 + "]" * 101 + "}}", "nested deeper than 100"),
        ("[" * 100_000, "nested deeper"),
    ],
)
def test_what_json_allows_and_we_do_not_is_refused(body: str | bytes, says: str) -> None:
    """A key that stands twice is read differently by different readers; a float loses digits of a position."""
    with pytest.raises(CorruptCheckpoint, match=f"^place: .*{says}") as caught:
        sample(sealed(body))
    assert not isinstance(caught.value, NewerFormat)


@pytest.mark.parametrize("body", ["null", "[]", '"x"', "{}", '{"format":true,"id":7}', '{"format":"4","id":7}'])
def test_what_is_no_document_is_no_newer_one(body: str) -> None:
    """A newer release would be looked for in vain."""
    with pytest.raises(CorruptCheckpoint, match="place: is not a document of a checkpoint: check the url") as caught:
        sample(sealed(body))
    assert not isinstance(caught.value, NewerFormat)


@pytest.mark.parametrize("body", ['{"format":%d,"id":"seven","more":[1.5]}', '{"more":{},"format":%d}'])
def test_a_newer_document_is_refused_by_its_format_alone(body: str) -> None:
    """Nothing is wrong with it: called damaged, it would be rolled back by hand, and its work be lost."""
    with pytest.raises(NewerFormat, match=rf"^place: format {FORMAT + 1}, but this release reads {FORMAT}: use a"):
        sample(sealed(body % (FORMAT + 1)))


@pytest.mark.parametrize("number", [-1, 0, 3])
def test_a_document_of_before_the_first_release_is_not_read(number: int) -> None:
    """One sentence says what to do; what it held would be guessed."""
    says = f"place: format {number} is that of a tree before the first release, which nothing reads: start anew"
    with pytest.raises(Refused, match=says):
        sample(sealed(f'{{"features":[],"format":{number},"id":7}}'))


def test_a_document_has_the_newest_format_that_it_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    """So an older release reads all that does not need more, and refuses the rest by its format."""
    for part, number in (
        (FULL, FIRST_FORMAT),
        (Sample(7, inner={"a": Inner(1, 3)}), 5),
        (Sample(7, "new", inner={"a": Inner(1, 3)}), 6),
        (Sample(7, "new", later={"a": 1}), 7),
        (Sample(7, words=("old",), named={"new": "old"}), FIRST_FORMAT),
        (Sample(7, words=("old", "new")), 6),
        (Sample(7, named={"a": "new"}), 6),
    ):
        assert format_of(part) == number
        monkeypatch.setattr(documents, "FORMAT", 7)
        data = write(part, "", no_laws)
        assert data.startswith(b'{"format":%d,' % number) and sample(data) == part
        if number > FIRST_FORMAT:
            with pytest.raises(CorruptCheckpoint, match="the one spelling"):
                sample(sealed(data.partition(b"\n")[0].replace(b'"format":%d' % number, b'"format":4')))
            monkeypatch.setattr(documents, "FORMAT", number - 1)
            with pytest.raises(NewerFormat):
                sample(data)


def test_the_newest_format_is_one_that_something_needs() -> None:
    """Raised without a field that needs it, it would keep older releases from nothing, and be forgotten."""
    marks = {mark.format for row in DOCUMENTS.values() for mark in _marks(row)}
    assert max(marks, default=FIRST_FORMAT) == FORMAT


def _marks(kind: type[Part]) -> Iterator[Since]:
    """The formats that brought a field of a part, or of those within it, or some of its words."""
    for hint in get_type_hints(kind, include_extras=True).values():
        for term in terms(hint):
            if isinstance(term, Since):
                yield term
            elif isinstance(term, type) and issubclass(term, Part):
                yield from _marks(term)


def test_what_this_release_could_not_read_it_does_not_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """A field of a format that nobody has raised would make the newest manifest unreadable for good."""
    monkeypatch.setattr(documents, "FORMAT", 5)
    assert write(Sample(7, inner={"a": Inner(1, 3)}), "the sample", no_laws)
    with pytest.raises(LawBroken, match="the sample needs format 6, but FORMAT is 5; it was not committed"):
        write(Sample(7, "new"), "the sample", no_laws)


@pytest.mark.parametrize(
    ("part", "says"),
    [
        (Sample(-1), r"the sample could not be read back \(.*`int` >= 0.*\); it was not committed"),
        (Sample(7, names=("b", "a")), "names: they do not ascend"),
        (Sample(7, inner={"a": Inner(-1)}), "`int` >= 0"),
    ],
)
def test_what_could_not_be_read_again_is_never_written(part: Sample, says: str) -> None:
    """Put once, it would be the newest manifest for good, and the job would stand."""
    with pytest.raises(LawBroken, match=says):
        write(part, "the sample", ascending)


@pytest.mark.parametrize("facts", [{"a": float("nan")}, {"a": [1.5]}, {"a": {1: 2}}, {"a": b"b"}, {"a": "\ud800"}])
def test_facts_that_could_not_be_read_back_are_not_written(facts: Any) -> None:
    """NaN would come back as null."""
    with pytest.raises(ValueError):
        write(Sample(7, facts=facts), "the sample", ascending)


def test_a_document_of_defaults_is_its_format_alone() -> None:
    """A reader that has read nothing yet."""

    class Empty(Part, frozen=True):
        value: Natural = 0

    data = write(Empty(), "", no_laws)
    assert data == sealed('{"format":4}') and read(Empty, data, "place", "a thing", no_laws) == Empty()


def test_large_whole_numbers_of_facts_are_kept() -> None:
    """The modulus of a hash, in a fingerprint."""
    part = Sample(7, facts={"modulus": 10**40})
    assert sample(write(part, "the sample", ascending)) == part
