"""An oracle says whether a disk holds what it must: at every commit, and at the end of every run.

It reads the disk by itself, from the manifest down to the rows, and compares with the twin. Files of equal bytes are
decoded once.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Protocol

import pyarrow as pa

from persistent.checkpoint.manifest import Manifest
from persistent.codec.sealed import decode_table
from tests.proof.emission import Emission, Place, Sums
from tests.proof.operations_model import FENCES_A_BLOCK
from tests.proof.twin import Expected, Step
from tests.single import only

CHECKPOINT, SINK, LATE = "/checkpoint", "/sink", "/late"
_DIGITS = 20
_GROUP_SHIFT = 54

Acknowledged = tuple[tuple[str, bytes], ...]
"""The manifests whose put was answered with WON, oldest first: name and bytes."""


class Readable(Protocol):
    """What an oracle looks at: a simulated disk, or a bucket."""

    def data(self, path: str) -> bytes:
        """What a reader of the file sees. FileNotFoundError."""

    def files_in(self, path: str) -> list[str]:
        """The names of the files directly in a folder, sorted; none where there is no folder."""

    def files_below(self, path: str) -> list[str]:
        """The paths of all files below a folder, sorted."""


class Lost(AssertionError):
    """The disk is not as it must be."""


class Oracle:
    """What a job's disk is measured against. ``emission`` as in the twin. ``late_sink``: late rows have a folder."""

    def __init__(self, steps: Mapping[Step, Expected], emission: Emission, *, late_sink: bool = False) -> None:
        self.steps = steps
        self.emission = emission
        self.late_sink = late_sink
        self.mixes: dict[int, int] = {}

    def at_start(self, disk: Readable, acknowledged: Acknowledged) -> None:
        """After a crash: no acknowledged manifest is lost, but those that need not be kept may be deleted."""
        if not acknowledged:
            return
        newest = manifest_of(acknowledged[-1][1])
        for name, data in acknowledged:
            if _is_to_be_kept(manifest_of(data), newest):
                there = _data(disk, f"{CHECKPOINT}/m/{name}")
                _require(there is not None, f"acknowledged, and lost: m/{name}")
                _require(there == data, f"acknowledged, and changed: m/{name}")

    def at_commit(
        self, disk: Readable, name: str, data: bytes, acknowledged: Acknowledged, *, alone: bool
    ) -> Acknowledged:
        """A manifest was put, and its driver has just been told; those acknowledged by now. ``alone``: no other driver
        was at work."""
        oldest = manifest_of(acknowledged[-1][1]).oldest if acknowledged else 0
        # What is deleted may be put again, by a driver that slept; its next look at the log tells it.
        kept = tuple((known, bytes_) for known, bytes_ in acknowledged if int(known[:_DIGITS]) >= oldest)
        for known, bytes_ in kept:
            _require(_data(disk, f"{CHECKPOINT}/m/{known}") in (None, bytes_), f"overwritten: m/{known}")
            _require(known != name, f"acknowledged twice: m/{name}")
        if not acknowledged or name > acknowledged[-1][0]:
            self._check_commit(disk, data, acknowledged, alone)
        else:
            # The answer came late: others have gone on since, and may have collected what it names.
            _require(not alone, f"m/{name} after m/{acknowledged[-1][0]}")
        return tuple(sorted((*kept, (name, data))))

    def _check_commit(self, disk: Readable, data: bytes, acknowledged: Acknowledged, alone: bool) -> None:
        manifest = manifest_of(data)
        expected = self._expected(manifest)
        self._check_account(manifest, expected)
        self._check_state(disk, manifest, expected)
        if acknowledged:
            before = manifest_of(acknowledged[-1][1])
            _require(manifest.epoch >= before.epoch, f"epoch {manifest.epoch} after {before.epoch}")
            _require(manifest.oldest >= before.oldest, f"oldest {manifest.oldest} after {before.oldest}")
        shown = self.shown(disk)
        self._check_late(disk, manifest, expected, alone)
        if manifest.kind == "checkpoint":
            published = self.steps[expected.before].outputs if expected.before else Counter()
            # Another driver may have published what this manifest names before its own driver had the answer.
            as_far = shown == published if alone else published <= shown <= expected.outputs
            _require(as_far, f"before m/{manifest.id}: shown {_diff(shown, published)}")
            batches = [batch for sink in manifest.result_sinks().values() for batch in sink.unpublished]
            staged = sum(one.rows for batch in batches for one in batch.staged)
            _require(staged == expected.staged, f"m/{manifest.id} stages {staged} outputs, not {expected.staged}")
        else:
            _require(shown <= expected.outputs, f"shown, and not named: {_diff(shown, expected.outputs)}")

    def _check_late(self, disk: Readable, manifest: Manifest, expected: Expected, alone: bool) -> None:
        """Late rows are shown to the step before, each once."""
        before = self.steps[expected.before].late if expected.before else ()
        shown, published, all_ = self.late(disk), Counter(before), Counter(expected.late)
        if not self.late_sink or manifest.kind != "checkpoint":
            _require(shown <= (all_ if self.late_sink else Counter()), f"late, and not named: {shown}")
            return
        as_far = shown == published if alone else published <= shown <= all_
        _require(as_far, f"before m/{manifest.id}: late rows {_diff(shown, published)}")

    def at_edge(self, disk: Readable, *, ended: bool) -> Expected:
        """A run has come to a step's edge (``ended``: to its end): everything is published, exactly once."""
        names = manifest_names(disk)
        _require(bool(names), "no manifest")
        manifest = manifest_of(disk.data(f"{CHECKPOINT}/m/{names[-1]}"))
        expected = self._expected(manifest)
        self._check_account(manifest, expected)
        self._check_state(disk, manifest, expected)
        shown = self.shown(disk)
        _require(shown == expected.outputs, f"published {_diff(shown, expected.outputs)}")
        late, known = self.late(disk), Counter(expected.late if self.late_sink else ())
        _require(late == known, f"late rows in their sink {_diff(late, known)}")
        for folder, numbers in (("late", expected.late), ("dead", expected.dead)):
            found = _aside(disk, folder)
            _require(found == sorted(numbers), f"{folder}: rows {found}, not {sorted(numbers)}")
        if ended:
            last = list(self.steps.values())[-1]
            _require(expected == last, f"ended at {expected.step}, the twin at {last.step}")
            if manifest.clock.end_of_input:
                table = self.emission.table(self._batches(disk))
                _require(table == expected.table, f"a reader holds {table}, not {expected.table}")
        return expected

    def clean(self, disk: Readable) -> None:
        """Nothing is left over once a step has been made."""
        newest = manifest_of(disk.data(f"{CHECKPOINT}/m/{manifest_names(disk)[-1]}"))
        _require(not (left := _leftovers(disk, newest)), f"left over: {left}")

    def shown(self, disk: Readable) -> Counter[tuple[Any, ...]]:
        """The published rows that a reader of the sink sees."""
        return Counter(row for rows in self._batches(disk) for row in rows)

    def late(self, disk: Readable) -> Counter[int]:
        """The numbers of the rows that a reader of the late sink sees."""
        files = [f"{LATE}/{name}" for name in disk.files_in(LATE)]
        return Counter(json.loads(row["value"])["id"] for path in files for row in _output_rows(disk.data(path)))

    def _batches(self, disk: Readable) -> Iterator[list[tuple[Any, ...]]]:
        """What is published, in the order of the checkpoints."""
        names = disk.files_in(SINK)
        for id in sorted({int(name[:_DIGITS]) for name in names}):
            files = [f"{SINK}/{name}" for name in names if int(name[:_DIGITS]) == id]
            rows = [row for path in files for row in _output_rows(disk.data(path))]
            _require({row.get("revision", id) for row in rows} <= {id}, f"{files}: not of revision {id}")
            yield [self.emission.row(row) for row in rows]

    def _expected(self, manifest: Manifest) -> Expected:
        read = sum(account.read for account in manifest.accounts.values())
        step = read, manifest.clock.closed, manifest.clock.end_of_input
        _require(step in self.steps, f"m/{manifest.id}: at no border of a step: {step}")
        return self.steps[step]

    def _check_account(self, manifest: Manifest, expected: Expected) -> None:
        ledger = manifest.accounts.values()
        _require(all(account.balances for account in ledger), f"m/{manifest.id}: the account does not balance")
        late, dead = sum(one.late for one in ledger), sum(one.dead for one in ledger)
        counts = len(expected.late), len(expected.dead)
        _require((late, dead) == counts, f"m/{manifest.id}: {late} late and {dead} dead, not {counts}")
        _require(manifest.clock.watermark == expected.watermark, f"m/{manifest.id}: clock {manifest.clock}")
        mix = sum(account.mix for account in ledger) % (1 << 64)
        known = self.mixes.setdefault(expected.step[0], mix)
        _require(mix == known, f"m/{manifest.id}: its account is of other records")

    def _held(self, data: bytes, sha256: str) -> Iterator[tuple[int, Place, Sums]]:
        """The key group, the place and the sums of each row, or of each session of each row."""
        emission = self.emission
        for row in _run_rows(data, sha256):
            group, key = row["hash"] >> _GROUP_SHIFT, row["key:page"]
            for one in row.get("element:element", ()):
                # The gap begins with the last message.
                (start, _), (_, end) = (next(emission.starts(one[name])) for name in (".start", ".last"))
                yield group, (key, (start, end)), (one["visits"], one["total"])
            if "element:visits" in row:
                start = next(emission.starts(row["pane"]))
                yield group, (key, start), (row["element:visits"], row["element:total"])

    def _add(self, found: dict[Place, Sums], place: Place, sums: Sums) -> None:
        """Add what a run holds; a session, or a life, joins those that it meets."""
        page, borders = place
        met = [place] if place in found else []
        if self.emission.joins:
            met = [one for one in found if one[0] == page and one[1][0] < borders[1] and borders[0] < one[1][1]]
            all_ = [borders, *(one[1] for one in met)]
            place = page, (min(start for start, _ in all_), max(end for _, end in all_))
        for one in met:
            sums = self.emission.joined(sums, found.pop(one))
        found[place] = sums

    def _check_state(self, disk: Readable, manifest: Manifest, expected: Expected) -> None:
        """The runs, folded in plain Python, are the fold of the input."""
        found: dict[Place, Sums] = {}
        for run in manifest.state_runs():
            data = _data(disk, f"{CHECKPOINT}/{run.name}")
            _require(data is not None, f"m/{manifest.id} names {run.name}, which is not there")
            for group, place, sums in self._held(data or b"", run.sha256):
                if run.low <= group < run.high:
                    self._add(found, place, sums)
        found = {
            place: one for place, one in found.items() if self.emission.left(place[1]) > only(manifest.nodes).final
        }
        _require(found == expected.state, f"m/{manifest.id}: state {found}, not {dict(expected.state)}")


def manifest_names(disk: Readable) -> list[str]:
    """The names of the manifests there are, ascending."""
    return [name for name in disk.files_in(f"{CHECKPOINT}/m") if name[:_DIGITS].isdigit()]


@lru_cache(maxsize=4096)
def manifest_of(data: bytes) -> Manifest:
    """A manifest, verified."""
    return Manifest.decode(data, "manifest")


@lru_cache(maxsize=4096)
def _run_rows(data: bytes, sha256: str) -> list[dict[str, Any]]:
    """The rows of a run."""
    return decode_table(pa.py_buffer(data), sha256, "run").to_pylist()


@lru_cache(maxsize=4096)
def _output_rows(data: bytes) -> list[dict[str, Any]]:
    """The rows of a file of outputs."""
    return [json.loads(line) for line in data.decode().splitlines()]


@lru_cache(maxsize=4096)
def _aside_rows(data: bytes) -> list[int]:
    """The "id" of each row put aside."""
    return [row["value"]["id"] for row in decode_table(pa.py_buffer(data), None, "aside").to_pylist()]


def _aside(disk: Readable, folder: str) -> list[int]:
    names = disk.files_in(f"{CHECKPOINT}/{folder}")
    return sorted(number for name in names for number in _aside_rows(disk.data(f"{CHECKPOINT}/{folder}/{name}")))


def _leftovers(disk: Readable, newest: Manifest) -> list[str]:
    """Files that nothing names, temporary ones apart."""
    kept = [name for name in manifest_names(disk) if int(name[:_DIGITS]) >= newest.oldest]
    manifests = [manifest_of(disk.data(f"{CHECKPOINT}/m/{name}")) for name in kept]
    named = {name for manifest in manifests for name in manifest.files()}
    found = [path.removeprefix(f"{CHECKPOINT}/") for path in disk.files_below(f"{CHECKPOINT}/d")]
    left = [name for name in found if name not in named]
    left += [f"_staged/{name}" for sink in (SINK, LATE) for name in disk.files_in(f"{sink}/_staged")]
    return [name for name in left if not name.rpartition("/")[2].startswith(".tmp-")]


def _is_to_be_kept(one: Manifest, newest: Manifest) -> bool:
    """Every checkpoint from ``oldest`` on; of the fences those below a checkpoint, and the recent ones."""
    is_recent = one.id // FENCES_A_BLOCK == newest.id // FENCES_A_BLOCK or one.id == newest.id - 1
    return one.id >= newest.oldest and (one.base == one.id or is_recent or one.id + 1 in newest.bases)


def _data(disk: Readable, path: str) -> bytes | None:
    try:
        return disk.data(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _diff(found: Counter[Any], expected: Counter[Any]) -> str:
    return f"{dict(found - expected)} too many, {dict(expected - found)} missing"


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise Lost(message)
