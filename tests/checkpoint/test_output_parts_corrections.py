"""A manifest knows every correction by its name, and the laws keep it so."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.output_parts import Correction, all_corrections, correction_laws, corrections_before
from persistent.checkpoint.successor import TABLE, broken
from persistent.errors import CorruptCheckpoint, Refused
from persistent.tools.serve.wording import corrections_words
from tests.checkpoint.samples import body_of, document, manifest, read_back

ONE, OTHER = Correction(7, 2, 1, (0, 20), "0" * 64), Correction(8, 1, 0, (40, 40), "1" * 64)


def test_it_comes_back_as_it_was_written() -> None:
    """A name that is lost can be applied twice; and a release that knows none must not continue."""
    written = replace(manifest(9), corrections={"ticket": ONE})
    read = Manifest.decode(written.encode(), "m")
    assert read.corrections == {"ticket": ONE}
    assert b"corrections" not in manifest(9).encode()
    body = body_of(written.encode(), "m")
    body["corrections"]["ticket"]["sha256"] = "short"
    with pytest.raises(CorruptCheckpoint, match=r"corrections.*sha256"):
        Manifest.decode(document(body), "m")


@pytest.mark.parametrize(
    "after, holds",
    [
        ({"a": ONE, "b": OTHER}, True),
        ({"a": ONE}, False),
        ({"b": OTHER}, False),
        ({"a": replace(ONE, added=9), "b": OTHER}, False),
        ({"a": ONE, "b": OTHER, "c": OTHER}, False),
        ({"a": ONE, "b": replace(OTHER, checkpoint=9)}, False),
    ],
)
def test_a_correction_adds_its_own_account_alone(after: dict[str, Correction], holds: bool) -> None:
    """One that changes another would hide what was done to the state."""
    assert [held for _, held in correction_laws(8, "correction", {"a": ONE}, after)] == [holds]
    assert list(correction_laws(8, "checkpoint", {"a": ONE}, after)) == []


def test_the_states_that_refuse_are_named() -> None:
    """Whoever reads the account must see that not every state has all of it; older accounts name none."""
    partly = replace(ONE, refused=("daily", "hourly"))
    read = Manifest.decode(replace(manifest(9), corrections={"ticket": partly}).encode(), "m")
    assert read.corrections == {"ticket": partly}
    assert read_back(ONE) == ONE
    assert str(partly) == f"{ONE}, partly refused by daily, hourly"
    (words,) = corrections_words(read)
    assert words["text"].endswith(", partly refused by daily, hourly")


def test_no_other_kind_changes_the_corrections_of_a_state_that_goes_on() -> None:
    """A checkpoint that forgets a name lets it be applied again."""
    old = replace(manifest(7), corrections={"a": ONE})
    for kind in ("fence", "checkpoint", "compaction", "migration"):
        assert TABLE[kind]["corrections"].value == "copied"
        after = replace(old, id=8, kind=kind, corrections={})
        assert f"a {kind} copies corrections" in list(broken(after, old))


@pytest.mark.parametrize(
    "clock, names",
    [(0, set()), (40, {"one"}), (41, {"one", "other"}), (100, {"one", "other"})],
)
def test_a_state_as_of_a_clock_has_the_corrections_before_it(clock: int, names: set[str]) -> None:
    """The others are gone with what they changed, and one of which a half is left is refused."""
    both = {"one": ONE, "other": OTHER}
    assert corrections_before(both, clock, "url").keys() == names
    with pytest.raises(Refused, match=r"the correction 'one' .* Choose a clock up to .*00Z, or after .*00.020Z"):
        corrections_before(both, 10, "url")


def test_two_jobs_keep_the_corrections_of_both() -> None:
    """A name that both have is two corrections."""
    assert all_corrections({"a": ONE}, {"a": OTHER, "a-2": ONE}) == {"a": ONE, "a-2": ONE, "a-3": OTHER}
