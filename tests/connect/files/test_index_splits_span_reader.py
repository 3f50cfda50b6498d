"""A span is read of the very file that was listed."""

from __future__ import annotations

import gzip
import pickle
import random

import pytest

from persistent import FileSource
from persistent.errors import InputGone, SourceError
from persistent.sources import Budget, SourceState
from tests.connect.draining import drain
from tests.connect.reading import at, job_of, requests_of, source
from tests.faults import Killed
from tests.proof.inputs import EVER, Fault, Inputs, on_disk, served
from tests.proof.inputs_job import FORMATS, encoded, small_edges


def test_a_file_written_to_while_it_is_read_stops_the_run():
    """Without it a step holds the beginning of the old bytes and the end of the new ones."""
    old, new = encoded("parquet", range(40), "x"), encoded("parquet", range(40), "y")
    files = {"in/a.parquet": old}
    places = [place for place, (verb, _) in enumerate(requests_of(files)) if verb == "read"]
    for place in places[len(places) // 2 :]:
        inputs = Inputs(dict(files), moves={place: lambda inputs: inputs.put("in/a.parquet", new)})
        with small_edges(), served(inputs) as clock, pytest.raises(SourceError, match=r"a\.parquet"):
            drain(source("store://in", clock), 7, True)


def die():
    raise Killed("before the commit")


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize("is_on_disk", [True, False])
def test_a_file_deleted_before_it_was_read_is_one_dead_letter(ending, is_on_disk, tmp_path):
    """Without it one deleted file blocks a job for ever, though it is told to count such files."""
    firsts = {"a": range(19), "b": range(30, 60), "c": range(60, 90)}
    files = {f"in/{name}.{ending}": encoded(ending, rows) for name, rows in firsts.items()}
    inputs = on_disk(str(tmp_path), files) if is_on_disk else Inputs(dict(files))
    with small_edges(), served(inputs) as clock:
        job = job_of(inputs, clock)
        job.run(at("m/", 3, lambda: inputs.delete(f"in/b.{ending}")))
        found = job.outcome()
    assert sorted(found.counted) == [*range(19), *range(60, 90)] and set(found.counted.values()) == {1}
    assert [(file, offset) for file, offset, _ in found.dead] == [(f"b.{ending}", 0)]
    assert "gone before it was read" in found.dead[0][2]
    assert found.account["files"].dead == 1 and found.account["files"].read == 50


@pytest.mark.parametrize("ending", FORMATS)
def test_a_plan_that_was_put_can_be_run_without_the_file(ending):
    """Without it a file deleted between plan and read blocks the job whatever the options say.

    And a replay that counted it otherwise would make another step of it.
    """
    files = {f"in/{name}.{ending}": encoded(ending, range(first, first + 9)) for name, first in (("a", 0), ("b", 9))}
    inputs, outcomes = Inputs({}), []
    for dies in (False, True):
        inputs.files.update(files)
        with small_edges(), served(inputs) as clock:
            job = job_of(inputs, clock, lenient=False)
            with pytest.raises(InputGone):
                job.run(at("p/", 1, lambda: inputs.delete(f"in/b.{ending}")))
            with pytest.raises(InputGone, match=rf"b\.{ending}: .*gone before it was read.*Put it back.*on_bad_file"):
                job.run()
            job.lenient = True
            if dies:
                with pytest.raises(Killed):
                    job.run(at("m/", 2, die))
            job.run()
            outcomes.append(job.outcome())
    assert outcomes[0] == outcomes[1]
    assert sorted(outcomes[0].counted) == list(range(9)) and len(outcomes[0].dead) == 1


@pytest.mark.parametrize(
    ("root", "mount", "names"),
    [
        ("in", "in", ("a.jsonl", "b.jsonl")),
        ("in/", "in", ("a.jsonl", "b.jsonl")),
        ("in/*.jsonl", "in", ("a.jsonl", "b.jsonl")),
        ("in/", "in", ("x/a.jsonl", "x/b.jsonl")),
        ("in/", "in/x", ("a.jsonl", "x/y/b.jsonl")),
        ("in", "in", ("a", "in")),
    ],
)
def test_files_are_not_lost_with_a_root_that_is_away(tmp_path, root, mount, names):
    """Without it a disk that is not mounted makes dead letters of all that was not read yet, also where the empty
    folder on which it is mounted stays."""
    for name in names:
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(encoded("jsonl", range(4)))
    options = {"timestamp": "ts", "timestamp_unit": "ms", "format": "json"}
    made = FileSource(f"{tmp_path}/{root}", on_bad_file="dead-letter", **options)
    first = made.plan(SourceState({}), Budget(4, exact=True))
    state = SourceState(first.end, first.recorded, first.appended)
    plan = made.plan(state, Budget(4))
    (tmp_path / mount).rename(tmp_path / "away")
    # A folder that is not there, below a root that is, was deleted.
    for is_there in (False, True) if mount == "in" else (True,):
        if is_there:
            (tmp_path / mount).mkdir()
        for again in (made, pickle.loads(pickle.dumps(made)), FileSource(f"{tmp_path}/{root}", **options)):
            again._bad_file_raises = False
            with pytest.raises(SourceError, match=f"{mount}/?: gone or empty, but listed files .*mounted"):
                again.plan(state, Budget(4))
            with pytest.raises(SourceError, match="mounted"):
                again.without_lost(plan.splits, plan.recorded)
    (tmp_path / mount / "_gone").touch()
    assert [record.ordinal for record in drain(made, state=state).dead] == [1]


def test_a_file_that_the_store_lists_and_does_not_find_is_not_lost():
    """Without it a store that contradicts itself would cost a file."""
    inputs = Inputs({f"in/{name}.jsonl": encoded("jsonl", range(4)) for name in "ab"})
    with served(inputs) as clock:
        made = source("store://in", clock)
        first = made.plan(SourceState({}), Budget(4, exact=True))
        inputs.faults = (Fault("not there", 0, EVER, "look"), Fault("not there", 0, EVER, "range"))
        plan = made.plan(SourceState(first.end, first.recorded, first.appended), Budget(4))
        assert "lost" not in plan.splits[0].spans[0].at and made.without_lost(plan.splits, plan.recorded) is None
        with pytest.raises(InputGone):
            list(made.read(plan.splits[0], plan.recorded))


LINES = b"ts,v\n" + b"".join(b"%d,%s\n" % (n, random.Random(n).randbytes(16).hex().encode()) for n in range(9_000))


@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
def test_a_dead_letter_for_a_file_says_how_its_records_count(ending, tmp_path):
    """A listed file stays as it is, and its dead letter had the fault alone."""
    packed = gzip.compress(LINES, mtime=0)
    bad = packed[:-9] if ending == "csv.gz" else LINES.replace(b"v", b"w", 1)
    (tmp_path / "a.csv").write_bytes(b"ts,v\n1,text\n")
    (tmp_path / f"b.{ending}").write_bytes(bad)
    files = FileSource(tmp_path, timestamp="ts", timestamp_unit="ms", on_bad_file="dead-letter")
    drained = drain(files)
    (dead,) = drained.dead
    assert dead.reason.endswith("To count the missing records, put them, corrected, into a file with a new name")
    assert (len(drained.rows) > 1) == (ending == "csv.gz")
    rest = LINES.splitlines(keepends=True)[len(drained.rows) :]
    (tmp_path / "c.csv").write_bytes(b"ts,v\n" + b"".join(rest))
    assert len(drain(files).rows) == 9_001
