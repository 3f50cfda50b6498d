"""An evolution is what becomes of a state whose task has changed: its runs written once more, and committed as such.

    fields of a record   columns are renamed, left out, or filled with the identity; nothing is decoded
    all else             a function of one element, applied to the sum of every key and pane
    another task         its state is dropped, where that is allowed; the new one begins empty, where the source stands

The manifest is of kind ``migration``: clock, positions, ledger and outputs are those of the fence below it, and a step
that was planned before is still the next one. Killed anywhere, the next run begins it anew or finds it done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from monoids import Monoid, record
from monoids.column import Columns
from monoids.monoid import check, check_schema
from monoids.record import RecordMonoid
from persistent.checkpoint.compaction import shards
from persistent.checkpoint.garbage import garbage
from persistent.checkpoint.log import Entry, Log, new_nonce, way_back_told
from persistent.checkpoint.manifest import Manifest, OperatorState
from persistent.codec import Run, canonical_json, is_wide
from persistent.codec.sealed import open_sealed, read_index, seal
from persistent.commit import check_follows, check_same_job
from persistent.contents import Contents
from persistent.errors import CorruptCheckpoint, FingerprintChanged, InvalidPipeline, UserCodeError
from persistent.fingerprints import change_text, changes_text
from persistent.job import Attempt, Job
from persistent.rows import Rows
from persistent.state import PersistentState
from persistent.sums import fold_runs, write_run

logger = logging.getLogger("persistent.evolution")


@dataclass(frozen=True)
class Evolution:
    """How the state that a checkpoint holds becomes that of the task as it is now.

    Of a record: ``renamed``: old field name to new. ``removed``: old fields to be dropped. A field kept has the monoid
    it had; a new one holds its identity for all that was before; in ``removed`` and in the new record with another
    monoid, it begins anew. Of anything else: ``before``: the monoid as it was. ``change``: a function of one of its
    elements, the sum of a key and pane (the identity too), to an element of the new monoid; called once for each row.

    >>> Evolution(renamed={"visits": "views"}, removed=("visitors",))
    Evolution(renamed={'visits': 'views'}, removed=('visitors',))
    >>> from monoids import Sum
    >>> Evolution(before=Sum(), change=lambda cents: cents // 100)
    Evolution(before=Sum(), change=<lambda>)
    """

    renamed: Mapping[str, str] = field(default_factory=dict)
    removed: Sequence[str] = ()
    before: Monoid[Any] | None = None
    change: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.renamed, Mapping) or not _are_names([*self.renamed, *self.renamed.values()]):
            raise InvalidPipeline(f'Evolution(renamed={self.renamed!r}): give {{"old field": "new field"}}')
        object.__setattr__(self, "removed", checked_names(self.removed, "Evolution: removed"))
        twice = [new for new in self.renamed.values() if list(self.renamed.values()).count(new) > 1]
        both = [old for old in self.renamed if old in self.removed]
        if twice or both:
            fault = f"two fields become {twice[0]!r}" if twice else f"{both[0]!r} is renamed and removed"
            raise InvalidPipeline(f"Evolution: {fault}: say one thing of each field")
        if (self.before is None) != (self.change is None) or (
            self.before is not None and (self.renamed or self.removed)
        ):
            raise InvalidPipeline(
                "Evolution: give before= and change= together, and nothing else; or renamed= and removed="
            )
        if self.change is not None and not callable(self.change):
            raise InvalidPipeline(f"Evolution(change={self.change!r}): give a function of an element")
        if self.before is not None:
            try:
                check(self.before)
            except TypeError as error:
                raise InvalidPipeline(f"Evolution(before=...): {error}") from error

    def __repr__(self) -> str:
        if self.change is not None:
            name = getattr(self.change, "__name__", repr(self.change))
            return f"Evolution(before={self.before!r}, change={name})"
        return f"Evolution(renamed={dict(self.renamed)}, removed={self.removed})"

    def check_for(self, monoid: Monoid[Any]) -> None:
        """InvalidPipeline if it speaks of fields that the state as it is now cannot have, or if a state that has been
        through it cannot be told from one that has not."""
        if self.before is not None and _equal(self.before.fingerprint(), monoid.fingerprint()):
            raise InvalidPipeline(
                f"{self!r} leads from a monoid to the same: nobody can tell a state that has been through it from one "
                f"that has not. Make them differ, for example by a name: record(value={monoid!r})"
            )
        if not self.renamed and not self.removed:
            return
        if not isinstance(monoid, RecordMonoid):
            raise InvalidPipeline(
                f"{self!r} speaks of fields, and the state is no record but {monoid!r}: use before= and change="
            )
        unknown = [new for new in self.renamed.values() if new not in monoid.fields]
        if unknown:
            raise InvalidPipeline(
                f"{self!r}: the record has no field {unknown[0]!r}; its fields are {', '.join(monoid.fields)}"
            )
        moved = _moved_unseen(monoid, self)
        if moved:
            raise InvalidPipeline(
                f"{self!r}: fields of one monoid change places ({', '.join(moved)}), so that nobody can tell a state "
                "that has been through it from one that has not. If it is done, leave it out. If not, take two runs, "
                f"by way of a new name: first renamed={{{moved[0]!r}: {moved[0] + '_before'!r}, ...}}, then from there"
            )


def checked_names(names: Any, what: str) -> tuple[str, ...]:
    """A sequence of names; InvalidPipeline for anything else, one name by itself too."""
    if isinstance(names, str) or not isinstance(names, Collection) or not _are_names(names):
        raise InvalidPipeline(f'{what}={names!r}: give the names in a list: ["old"]')
    return tuple(names)


def adopted(found: Manifest, expected: Manifest) -> Manifest:
    """A checkpoint in which nothing has been committed as that of the task as it is now; itself where it is that, or
    holds something. A plan that was put for the task as it was is left behind: the next one has another number."""
    if found.base != 0 or not changes(found, expected):
        return found
    return replace(found, operators=expected.operators, replan=found.replan + 1)


def changes(found: Manifest, expected: Manifest) -> str:
    """What has become of the task, in words; empty where it is the same."""
    old, new = found.operators, expected.operators
    if old.keys() != new.keys():
        return f"{', '.join(old)} -> {', '.join(new)}"
    return "; ".join(text for name in new if (text := changes_text(old[name].described(), new[name].described())))


def adapted(
    found: Manifest, expected: Manifest, evolve: Evolution | None, dropped: Sequence[str], url: str
) -> Manifest:
    """The manifest as it will be once its state has evolved; itself where there is nothing to do.

    ``expected``: the empty checkpoint of the job. ``dropped``: the operators whose state may go. Writes nothing.
    OtherJob or FingerprintChanged, with what helps, if the state cannot become that of the job.
    """
    if any(name not in dropped for name in found.operators.keys() - expected.operators.keys()):
        check_same_job(found, expected, url)
    operators = {}
    for name, new in expected.operators.items():
        old = found.operators.get(name)
        if old is None:
            operators[name] = new
        elif evolve is None or _is_same(old, new):
            operators[name] = old
        else:
            _check_evolves(old, new, evolve, f"{url}: the state of {name}")
            operators[name] = replace(old, fingerprint=new.fingerprint)
    view = found if operators == found.operators else replace(found, operators=operators)
    check_same_job(view, expected, url)
    return view


def migrate(
    job: Job, log: Log, fence: Entry, view: Manifest, evolve: Evolution | None, kept: Sequence[Manifest]
) -> Entry:
    """Write the state of ``fence``, which is ours, as ``view`` says that it will be; commit that.

    One run at a time, each verified while it is read; by a function, one shard of the keys at a time. ``kept``: the
    manifests whose files are kept.
    """
    old = fence.manifest
    attempt = Attempt(old.epoch, old.id + 1)
    operators = {}
    for name, new in view.operators.items():
        before = old.operators.get(name)
        if before is None or evolve is None or _is_same(before, new):
            operators[name] = new
        else:
            runs = tuple(_evolved_runs(job, attempt, before, evolve, old.clock.closed))
            operators[name] = replace(new, runs=runs, lowest=before.lowest if runs else None)
    _sweep_dropped(job, old, [name for name in old.operators if name not in operators], kept)
    manifest = replace(
        old,
        id=old.id + 1,
        kind="migration",
        nonce=new_nonce(),
        parent=(old.id, fence.sha256),
        bases={**old.bases, old.id + 1: old.committed_ms},
        operators=operators,
        fences=old.fences if view.replan == old.replan else 1,
        replan=view.replan,
    )
    check_follows(manifest, old)
    entry = log.put(manifest)
    logger.info("%s: manifest %d holds the state as its task is now", job.storage.url, manifest.id)
    return entry


# What may become what


def _is_same(old: OperatorState, new: OperatorState) -> bool:
    return _equal(old.fingerprint, new.fingerprint) and old.key_names == new.key_names


def _check_evolves(old: OperatorState, new: OperatorState, evolve: Evolution, what: str) -> None:
    """FingerprintChanged, naming what stands in the way, unless this evolution leads from one to the other."""
    parts = sorted({*old.fingerprint, *new.fingerprint} - {"monoid"})
    changed = [part for part in parts if not _equal(old.fingerprint.get(part), new.fingerprint.get(part))]
    changed += ["key"] if old.key_names != new.key_names else []
    if changed:
        raise FingerprintChanged(
            f"{what}: its {' and '.join(changed)} changed, and only its monoid can evolve: its rows are sums by key "
            "and pane, and a sum cannot be taken apart again. Read the source again into a new checkpoint; or give the "
            "task another name, and allow_dropped=[the old one], to begin empty where the source stands"
        )
    stored = old.fingerprint.get("monoid")
    if evolve.before is not None:
        given = evolve.before.fingerprint()
        if not _equal(given, stored):
            raise FingerprintChanged(
                f"{what} was not made by Evolution(before={evolve.before!r}): "
                f"{changes_text({'monoid': given}, {'monoid': stored})}. Give the monoid as it was"
            )
        return
    before, after = _fields(stored), _fields(new.fingerprint["monoid"])
    if before is None or after is None:
        raise FingerprintChanged(
            f"{what} {'was' if before is None else 'is'} no record, so that there are no fields to keep. Say how an "
            "element of it becomes one of the new: Evolution(before=<the monoid as it was>, change=<a function>)"
        )
    _check_fields(before, after, evolve, what)


def _check_fields(before: dict[str, Any], after: dict[str, Any], evolve: Evolution, what: str) -> None:
    """Every old field is kept, renamed or removed, and what is kept is what it was."""
    sources = _sources(before, after, evolve)
    for name, source in sources.items():
        if source is not None and not _equal(before[source], after[name]):
            raise FingerprintChanged(
                f"{what}: field {source!r}{'' if name == source else f', now {name!r}'}: "
                f"{change_text(before[source], after[name])}. To begin it anew, put {source!r} in "
                "Evolution(removed=...); to keep what it holds, say how: Evolution(before=<the record as it was>, "
                "change=<a function>)"
            )
    for name in before:
        if name in evolve.removed and name in after and sources[name] is None and _equal(before[name], after[name]):
            raise FingerprintChanged(
                f"{what}: field {name!r} is in Evolution(removed=...), and the task still has it as it was. Take it "
                "out of there to keep what it holds"
            )
        if name not in sources.values() and name not in evolve.removed:
            raise FingerprintChanged(
                f"{what} has a field {name!r}, which the task has no more. If it has another name now, say so: "
                f"Evolution(renamed={{{name!r}: <the new name>}}); to drop what it holds: Evolution(removed=[{name!r}])"
            )


def _sources(before: Collection[str], after: Collection[str], evolve: Evolution) -> dict[str, str | None]:
    """New field name to the old field that it holds, None where it begins anew."""
    moved = {new: old for old, new in evolve.renamed.items() if old in before}
    stays = {name for name in before if name not in moved.values() and name not in evolve.removed}
    return {name: moved.get(name, name if name in stays else None) for name in after}


def _moved_unseen(monoid: RecordMonoid, evolve: Evolution) -> list[str]:
    """The old fields that would be moved in a state that is of this very record already; none where that is refused."""
    fields = _fields(monoid.fingerprint()) or {}
    moved = [old for new, old in _sources(fields, fields, evolve).items() if old not in (None, new)]
    try:
        _check_fields(fields, fields, evolve, "")
    except FingerprintChanged:
        return []
    return [old for old in moved if old is not None]


def _fields(fingerprint: Any) -> dict[str, Any] | None:
    """The fields of the record that this is the fingerprint of, name to fingerprint; None of any other monoid."""
    try:
        if (fingerprint["name"], fingerprint["version"]) != (RecordMonoid.name, RecordMonoid.version):
            return None
        return {str(name): part for name, part in fingerprint["parameters"]["fields"]}
    except (LookupError, TypeError, ValueError):
        return None


def _equal(a: Any, b: Any) -> bool:
    return canonical_json(a) == canonical_json(b)


def _are_names(names: Any) -> bool:
    return all(isinstance(name, str) and name for name in names)


# Runs


def _evolved_runs(job: Job, attempt: Attempt, before: OperatorState, evolve: Evolution, closed: int) -> Iterator[Run]:
    if evolve.change is not None:
        yield from _changed_runs(job, attempt, before, evolve, closed)
        return
    stored = before.fingerprint["monoid"]
    monoid = job.state.monoid
    assert isinstance(monoid, RecordMonoid)
    columns = _columns(monoid, _sources(_fields(stored) or (), monoid.fields, evolve))
    held = [f"element:{name}" for name, _ in stored["schema"]]
    contents = Contents(job.storage, None)
    for run in before.runs:
        yield _with_columns(job, attempt, run, contents.read(run), held, columns)


def _columns(monoid: RecordMonoid, sources: Mapping[str, str | None]) -> list[str | pa.Array]:
    """For each element column: the name of the old one, or its value in the identity, as an array of one row."""
    columns: list[str | pa.Array] = []
    for name, part in monoid.fields.items():
        source = sources[name]
        if source is None:
            columns += part.to_arrow(part.pack([part.identity]))
        else:
            columns += [f"element:{column}" for column in record(**{source: part}).schema.names]
    return columns


def _with_columns(
    job: Job, attempt: Attempt, run: Run, data: pa.Buffer, held: list[str], columns: list[str | pa.Array]
) -> Run:
    """The same rows with other element columns, as a run of its own."""
    place = f"{job.storage.url}/{run.name}"
    with way_back_told(job.storage.url):
        index = read_index(data, run.sha256, place)
        schema, batches = open_sealed(data, index, place)
        start = schema.names.index("pane") + 1 if "pane" in schema.names else 0
        if schema.names[start:] != held or index.rows != run.rows:
            raise CorruptCheckpoint(
                f"{place}: holds {index.rows} rows of {schema.names}, and not what its manifest says"
            )
    monoid = job.state.monoid
    names = [*schema.names[:start], *(f"element:{name}" for name in monoid.schema.names)]
    written = [_batch(monoid, batch, names, start, columns, place) for batch in batches]
    hashes = np.concatenate([np.asarray(batch.column(0)) for batch in batches])
    sealed, sha256 = seal(written, hashes, index.panes)
    name = f"{job.folder()}/{attempt.name()}.arrow"
    job.storage.write(name, sealed)
    return replace(run, name=name, bytes=len(sealed), sha256=sha256, wide=is_wide(monoid, sealed))


def _batch(
    monoid: Monoid[Any], batch: pa.RecordBatch, names: list[str], start: int, columns: list[str | pa.Array], place: str
) -> pa.RecordBatch:
    first = pa.array(np.zeros(len(batch), np.int64))
    elements = [batch.column(one) if isinstance(one, str) else one.take(first) for one in columns]
    try:
        check_schema(monoid, elements)
    except ValueError as error:
        raise CorruptCheckpoint(f"{place}: {error}") from error
    return pa.RecordBatch.from_arrays([*batch.columns[:start], *elements], names)


def _changed_runs(job: Job, attempt: Attempt, before: OperatorState, evolve: Evolution, closed: int) -> Iterator[Run]:
    """Each key and pane summed up by the old monoid, and changed. What was published, and what was not, stay apart."""
    assert evolve.before is not None
    was = replace(job, state=_with_monoid(job.state, evolve.before))
    published = tuple(run for run in before.runs if run.last <= before.published)
    rest = tuple(run for run in before.runs if run.last > before.published)
    for part in (published, rest):
        for low, high in shards(part) if part else ():
            inputs = [run for run in part if run.low < high and low < run.high]
            rows = fold_runs(was, inputs, low, high)
            if rows is not None and job.state.window is not None:
                rows = rows.take(np.flatnonzero(job.state.window.last_end(rows.panes) > closed))
            if rows is not None and len(rows):
                first, last = min(run.first for run in inputs), max(run.last for run in inputs)
                yield write_run(job, attempt, _changed(job, rows, evolve), first, last, low, high)[0]


def _with_monoid(state: PersistentState, monoid: Monoid[Any]) -> PersistentState:
    was = copy(state)
    was.monoid = monoid
    return was


def _changed(job: Job, rows: Rows, evolve: Evolution) -> Rows:
    """The rows with every element changed by the user's function."""
    assert evolve.before is not None and evolve.change is not None
    monoid, elements = job.state.monoid, evolve.before.unpack(rows.columns)
    try:
        return replace(rows, columns=_packed(monoid, [evolve.change(element) for element in elements]))
    except Exception:
        for row, element in enumerate(elements):
            try:
                _packed(monoid, [evolve.change(element)])
            except Exception as error:
                key = ", ".join(repr(column[row].as_py()) for column in rows.keys)
                raise UserCodeError(
                    f"{evolve!r} fails for the state of key ({key}), pane {rows.panes[row]}: {type(error).__name__}: "
                    f"{error}. The state is as it was; mend the function, which takes an element of {evolve.before!r} "
                    f"and gives one of {monoid!r}"
                ) from error
        raise


def _packed(monoid: Monoid[Any], elements: list[Any]) -> Columns:
    """Elements as columns; an error if one of them is none of this monoid."""
    if isinstance(monoid, RecordMonoid):
        for element in elements:
            if len(element) != len(monoid.fields):
                raise ValueError(f"{len(element)} parts, where the fields are {', '.join(monoid.fields)}")
    columns = monoid.pack(elements)
    check_schema(monoid, monoid.to_arrow(columns))
    return columns


def _sweep_dropped(job: Job, fence: Manifest, names: Sequence[str], kept: Sequence[Manifest]) -> None:
    """Delete what lies in the folders of operators that nobody will look into again, if no kept manifest names it."""
    live = {name for manifest in (*kept, fence) for name in manifest.files()}
    live |= {name for outputs in fence.outputs for name in outputs.names()}
    for operator in names:
        there = [f"d/{operator}/{name}" for name in job.storage.list(f"d/{operator}")]
        for name in garbage(there, live, fence.epoch, fence.id):
            job.storage.delete(name)
