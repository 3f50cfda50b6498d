"""An evolution says how to migrate the state of a changed task: its runs are rewritten and committed.

 fields of a record   columns are renamed, dropped, or filled with the identity; nothing is decoded
 all else             a function of one element, applied to the sum of every key and pane
 another task         its state is dropped, if allowed; the new one begins empty, at the source's positions
 another state        of a task with several: a new state begins likewise; a removed state is dropped, if allowed

The manifest is of kind ``migration``: it has the clock, positions, accounts and outputs of the fence below it. A step
planned before is still the next one. After a kill at any point, the next run begins it anew or finds it done.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from monoids import Monoid
from monoids.monoid import check
from monoids.records import RecordMonoid
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.output_parts import named_after
from persistent.checkpoint.parts import NodeClock, NodePart
from persistent.codec.documents import canonical_json
from persistent.driver.same_job import changed_parts, check_same_job, check_seen
from persistent.errors import FingerprintChanged, InvalidPipeline
from persistent.names import STATE, is_of_several, state_name
from persistent.state.state import PersistentState
from persistent.task.task import Declared, named_states
from persistent.text.figures import utc_text
from persistent.text.fingerprints import change_text, changes_text
from persistent.time.lateness import CHANGES, EARLY, RETRACT


@dataclass(frozen=True)
class Evolution:
    """How to migrate the state in a checkpoint to the current task.

    For a record, ``renamed``: old field name to new; ``removed``: old fields to drop. A kept field keeps its monoid. A
    new field holds its identity for all earlier records. A field in ``removed`` that the new record has with another
    monoid begins anew. For anything else, ``before``: the old monoid; ``change``: a function from one of its elements,
    the sum of a key and pane (or the identity), to an element of the new monoid, called once for each row.

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
            raise InvalidPipeline(f"Evolution: {fault}: give each field one change")
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

    def check_for(self, state: PersistentState) -> None:
        """Raise InvalidPipeline if it names fields that the current state cannot have, if the state looks the same
        before and after it, or if it keeps sessions, or lives of keys."""
        monoid, gaps = state.monoid, state.gaps
        if gaps is not None:
            raise InvalidPipeline(
                f"{self!r}: the state of {gaps} cannot be migrated: omit evolve=, give the changed task a new "
                "checkpoint, and read the source again"
            )
        if self.before is not None and _equal(self.before.fingerprint(), monoid.fingerprint()):
            raise InvalidPipeline(
                f"{self!r} changes a monoid into the same one, so a migrated state looks like an old one. Make them "
                f"differ, for example by a name: record(value={monoid!r})"
            )
        if not self.renamed and not self.removed:
            return
        if not isinstance(monoid, RecordMonoid):
            raise InvalidPipeline(
                f"{self!r} names fields, but the state is {monoid!r}, not a record: use before= and change="
            )
        unknown = [new for new in self.renamed.values() if new not in monoid.fields]
        if unknown:
            raise InvalidPipeline(
                f"{self!r}: the record has no field {unknown[0]!r}; its fields are {', '.join(monoid.fields)}"
            )
        moved = _moved_unseen(monoid, self)
        if moved:
            raise InvalidPipeline(
                f"{self!r}: fields of one monoid change places ({', '.join(moved)}), so a migrated state looks like an "
                "old one. If it has run, omit it. If not, use two runs, through a new name: first "
                f"renamed={{{moved[0]!r}: {moved[0] + '_before'!r}, ...}}, then from there"
            )


Evolutions = Mapping[str, Evolution]
"""How to migrate several states, by their names."""


def checked_evolutions(evolve: Any, declared: Declared) -> Evolutions:
    """How to migrate the states of a task, by name. InvalidPipeline if they cannot evolve so."""
    if evolve is None:
        return {}
    states = named_states(declared)
    if isinstance(declared, PersistentState):
        if not isinstance(evolve, Evolution):
            raise InvalidPipeline(f"evolve={evolve!r}: give Evolution(...), or None")
        evolve = {STATE: evolve}
    first, *_ = states
    if not isinstance(evolve, Mapping) or not all(isinstance(value, Evolution) for value in evolve.values()):
        raise InvalidPipeline(f"evolve={evolve!r}: say of which state, evolve={{{first!r}: Evolution(...)}}")
    for name, evolution in evolve.items():
        if name not in states:
            raise InvalidPipeline(f"evolve={{{name!r}: ...}}: the task has the states {', '.join(states)}")
        evolution.check_for(states[name])
    return dict(evolve)


def checked_names(names: Any, what: str) -> tuple[str, ...]:
    """A sequence of names; InvalidPipeline for anything else, even a single name."""
    if isinstance(names, str) or not isinstance(names, Collection) or not _are_names(names):
        raise InvalidPipeline(f'{what}={names!r}: give the names in a list: ["old"]')
    return tuple(names)


def adopted(manifest: Manifest, expected: Manifest) -> Manifest:
    """The checkpoint with the current task, if the task has changed and no step was committed; otherwise
    ``manifest`` itself. A plan of the old task is ignored: the next one has another number."""
    if manifest.base != 0 or not changes(manifest, expected):
        return manifest
    return replace(with_nodes(manifest, expected.nodes), replan=manifest.replan + 1)


def changes(manifest: Manifest, expected: Manifest) -> str:
    """How the task has changed, in words; empty if it has not."""
    old, new = manifest.nodes, expected.nodes
    if old.keys() != new.keys():
        return f"{', '.join(old)} -> {', '.join(new)}"
    described = {name: (old[name].described(), new[name].described()) for name in new}
    texts = {name: changes_text(before, after) for name, (before, after) in described.items() if before != after}
    return "; ".join(text if len(new) == 1 else f"{name}: {text}" for name, text in texts.items() if text)


def adapted(manifest: Manifest, expected: Manifest, evolve: Evolutions, dropped: Sequence[str], url: str) -> Manifest:
    """The manifest as it is after its states have evolved; ``manifest`` itself if nothing changes.

    ``expected``: the empty checkpoint of the job. ``evolve``: by the name of the state.
    ``dropped``: the nodes whose state may go. A state that is new begins empty, at the clock. Writes nothing.
    OtherJob or FingerprintChanged, with the remedy, if a state cannot evolve to the job's.
    """
    gone = [name for name in manifest.nodes if name not in expected.nodes]
    if any(name not in dropped for name in gone) or len(manifest.tasks) > 1:
        check_same_job(manifest, expected, url)
    nodes = {}
    for name, new in expected.nodes.items():
        old, how = manifest.nodes.get(name), evolve.get(state_name(name))
        if old is None:
            nodes[name] = new
        elif how is None or is_same(old, new):
            nodes[name] = old
        else:
            _check_evolves(old, new, how, f"{url}: the state of {name}")
            nodes[name] = replace(old, fingerprint=new.fingerprint)
    view = manifest if nodes == manifest.nodes else with_nodes(manifest, nodes)
    check_same_job(view, expected, url)
    check_seen(manifest, expected, dropped, url)
    for name, new in expected.nodes.items():
        _check_answer(view.nodes[name], new, url)
    return view


def _check_answer(was: NodePart, now: NodePart, url: str) -> None:
    """FingerprintChanged if results would be revised in another way than the readers of published rows expect."""
    if was.late in (None, now.late) or was.final == was.clock.closed or was.emit or now.emit:
        return
    ended = f"that ended after {utc_text(was.final)}"
    if was.has_sessions:
        raise FingerprintChanged(
            f"{url}: sessions {ended} are published and can still be taken back, because they were published with "
            'allowed_lateness= as they closed; without it, or with emit="final", none would be. Run once more with '
            'allowed_lateness=0, late="retract" and no emit=: the next step makes them final; or give the pipeline a '
            "new checkpoint and sink"
        )
    raise FingerprintChanged(
        f"{url}: late={was.late!r} has become {'no allowed lateness' if now.late is None else f'late={now.late!r}'} "
        f"while windows {ended} are published and can still be corrected: their rows would mean two things. Run once "
        f"more with late={was.late!r} and allowed_lateness=0: the next step makes them final; or give the pipeline a "
        "new checkpoint and sink"
    )


def to_tell_anew(node: NodePart, closed: int) -> NodePart:
    """The node, marked to publish every key again. A node whose sessions were published keeps its marks, so that
    published sessions which have grown since are taken back."""
    if node.has_sessions and node.published > 0:
        return node
    return node.unpublished().shown_since(closed)


def check_emission(manifest: Manifest, expected: Manifest, url: str, *, is_ours: bool = False) -> None:
    """InvalidPipeline if the sinks of a checkpoint have rows of another kind of emission, which contradict the rows of
    this one: a window that was published as it changed would be published again as it closes, or a row would stay that
    only a retraction removes. Totals that replace each other can be published at either time. ``is_ours``: whether the
    checkpoint is taken over, and so tells which sinks have the rows of the job that it started from."""
    for name, state in expected.nodes.items():
        old = manifest.nodes[name]
        goes_on = is_ours and any(place.node == name and place.continues for place in manifest.inherits.values())
        if not (manifest.sinks_of(name) or goes_on):
            continue
        replaces = state.fingerprint["window"] is None and RETRACT not in (old.late, state.late)
        # Early results are changes, published less often.
        is_same = (bool(old.emit), old.late) == (bool(state.emit), state.late)
        if not is_same and (old.emit or state.emit) and not replaces:
            raise InvalidPipeline(
                f"{url}: the state of {name} was published with {_emission_text(old)}, and now has "
                f"{_emission_text(state)}: its sinks would hold rows of both. Restore the option; or give the job a "
                f"new checkpoint, start_from={url!r}, and new sinks"
            )


def _emission_text(state: NodePart) -> str:
    if state.has_sessions:
        # They have one answer, which nobody writes.
        return {None: 'neither emit="change" nor early=', EARLY: "early="}.get(state.emit, 'emit="change"')
    if state.emit == EARLY and state.has_windows:
        return f"early=, late={state.late!r}"
    changes = [word for word, answer in CHANGES.items() if answer == state.late]
    option = "early=" if state.emit == EARLY else 'emit="change"'
    return f'{option}, changes="{changes[0]}"' if state.emit else "another emit"


def with_nodes(old: Manifest, nodes: Mapping[str, NodePart]) -> Manifest:
    """The checkpoint ``old`` with these nodes, which have read what its own nodes have read. The only node of a renamed
    task keeps the clock of the old node. An added node begins at the clock of the others: windows that ended before are
    closed, and it holds no earlier record. A sink follows the state that it takes."""
    tasks = [name.partition("/")[0] for name in nodes]
    read, *_ = [old.tasks[name] for name in tasks if name in old.tasks] or old.tasks.values()
    clocks, added = {name: node.clock for name, node in old.nodes.items()}, None
    clock = NodeClock(old.clock.watermark, old.clock.watermark, old.clock.end_of_input, old.quiet_ms)
    if len(old.nodes) == 1 and not is_of_several(nodes):
        (clock,) = clocks.values()
    elif old.base:
        added = clock.watermark
    return replace(
        old,
        tasks=dict.fromkeys(tasks, read),
        nodes={
            name: replace(node, clock=clocks[name]) if name in clocks else replace(node, clock=clock, added=added)
            for name, node in nodes.items()
        },
        sinks=named_after(old.sinks, nodes),
    )


def is_same(old: NodePart, new: NodePart) -> bool:
    return _equal(old.fingerprint, new.fingerprint) and old.key_names == new.key_names


def _check_evolves(old: NodePart, new: NodePart, evolve: Evolution, what: str) -> None:
    """Raise FingerprintChanged, with the reason, unless this evolution leads from the old state to the new one."""
    changed = [part for part in changed_parts(old, new) if part != "monoid"]
    if changed:
        raise FingerprintChanged(
            f"{what}: its {' and '.join(changed)} changed, and only its monoid can evolve: its rows are sums by key "
            "and pane, which cannot be split again. Read the source again into a new checkpoint and sink; or give the "
            "task another name, and allow_dropped=[the old one], to start empty at the current positions"
        )
    stored = old.fingerprint.get("monoid")
    if evolve.before is not None:
        fingerprint = evolve.before.fingerprint()
        if not _equal(fingerprint, stored):
            raise FingerprintChanged(
                f"{what} was not made by Evolution(before={evolve.before!r}): "
                f"{changes_text({'monoid': fingerprint}, {'monoid': stored})}. Give the monoid that made it"
            )
        return
    before, after = fields_of(stored), fields_of(new.fingerprint["monoid"])
    if before is None or after is None:
        raise FingerprintChanged(
            f"{what} {'was' if before is None else 'is'} not a record, so it has no fields to keep. Convert its "
            "elements: Evolution(before=<the old monoid>, change=<a function>)"
        )
    _check_fields(before, after, evolve, what)


def _check_fields(before: dict[str, Any], after: dict[str, Any], evolve: Evolution, what: str) -> None:
    """Raise FingerprintChanged unless every old field is kept, renamed or removed, and a kept one is unchanged."""
    sources = column_sources(before, after, evolve)
    for name, source in sources.items():
        if source is not None and not _equal(before[source], after[name]):
            raise FingerprintChanged(
                f"{what}: field {source!r}{'' if name == source else f', now {name!r}'}: "
                f"{change_text(before[source], after[name])}. To start it empty, list {source!r} in "
                "Evolution(removed=...); to keep its values, convert them: Evolution(before=<the old record>, "
                "change=<a function>)"
            )
    for name in before:
        if name in evolve.removed and name in after and sources[name] is None and _equal(before[name], after[name]):
            raise FingerprintChanged(
                f"{what}: field {name!r} is in Evolution(removed=...), but the task still has it unchanged. Remove "
                "it from there to keep its values"
            )
        if name not in sources.values() and name not in evolve.removed:
            raise FingerprintChanged(
                f"{what} has a field {name!r} that the task no longer has. If it was renamed: "
                f"Evolution(renamed={{{name!r}: <the new name>}}); to drop its values: Evolution(removed=[{name!r}])"
            )


def column_sources(before: Collection[str], after: Collection[str], evolve: Evolution) -> dict[str, str | None]:
    """New field name to the old field that it holds, None if it begins anew."""
    moved = {new: old for old, new in evolve.renamed.items() if old in before}
    stays = {name for name in before if name not in moved.values() and name not in evolve.removed}
    return {name: moved.get(name, name if name in stays else None) for name in after}


def _moved_unseen(monoid: RecordMonoid, evolve: Evolution) -> list[str]:
    """The fields that this evolution would move once more in a state that already has this record, because nothing
    tells the two apart; none if it would be refused."""
    fields = fields_of(monoid.fingerprint()) or {}
    moved = [old for new, old in column_sources(fields, fields, evolve).items() if old not in (None, new)]
    try:
        _check_fields(fields, fields, evolve, "")
    except FingerprintChanged:
        return []
    return [old for old in moved if old is not None]


def fields_of(fingerprint: Any) -> dict[str, Any] | None:
    """The fields in the fingerprint of a record, name to fingerprint; None for any other monoid."""
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
