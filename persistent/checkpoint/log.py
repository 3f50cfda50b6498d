"""The manifest log is one sequence of ids, each put once, by whichever driver came first.

- An id is WON when the bytes under it are ours: a lost or unknown answer is settled by reading back the nonce.
- The state of the job is the manifest of the highest id. If it does not verify, nothing falls back by itself.
- Every driver fences before it writes: it puts a manifest of a higher epoch, and whoever still works under
  the old one finds its next id taken.
- What a checkpoint leaves behind (the plan of the step after it, what it has published) is there only after its
  manifest. So what is of a checkpoint above the newest tells that its manifest is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType

from persistent.checkpoint.manifest import FORMAT, HASH_VERSION, Manifest, manifest_sha256
from persistent.checkpoint.names import (
    DEAD,
    FORMAT_NAME,
    LATE,
    MANIFESTS,
    PLANS,
    is_manifest,
    manifest_name,
    plan_name,
    published_id,
)
from persistent.checkpoint.plan import StepPlan
from persistent.checkpoint.shapes import FORMAT_FILE, check_format
from persistent.checkpoint.successor import Entry, succeed
from persistent.codec import KEY_GROUPS, decode_document, encode_document
from persistent.codec.shapes import check_shape
from persistent.errors import CorruptCheckpoint, Fenced, NewerFormat, OldFormat, StorageError
from persistent.storage import Storage, put_or_read

_PUT_TRIES_MAX = 5


@dataclass(frozen=True, order=True)
class Trace:
    """What there is of checkpoint ``id`` besides its manifest, and where."""

    id: int = -1
    place: str = ""


class Log:
    """The manifests and plans of one checkpoint."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._tried_id = -1

    def ids(self) -> list[int]:
        """The ids there are, ascending."""
        return [published_id(name) for name in self.storage.list(MANIFESTS) if is_manifest(name)]

    def read(self, id: int) -> Entry:
        """One manifest, verified; read twice before it is called corrupt."""
        place = f"{self.storage.url}/{manifest_name(id)}"
        try:
            return self._read_once(id, place)
        except CorruptCheckpoint:
            return self._read_once(id, place)

    def newest(self) -> Entry | None:
        """The manifest of the highest id; None where there is no checkpoint yet."""
        self._check_format()
        while ids := self.ids():
            try:
                return self.read(ids[-1])
            except NewerFormat:
                raise
            except CorruptCheckpoint as error:
                if self.ids()[-1:] > ids[-1:]:
                    # Not corrupt: while we looked, others have gone on so far that it was deleted.
                    continue
                raise CorruptCheckpoint(f"{error}. {self._way_back(ids[:-1])}") from error
        return None

    def create(self, first: Manifest) -> Entry:
        """Put manifest 0 and FORMAT, or find those that another driver has put."""
        if not self.ids():
            self._put(manifest_name(0), first.encode(), lambda other: _nonce(other) == first.nonce)
        # Not manifest 0: it may be long gone.
        known = self.newest()
        assert known is not None
        self._put(FORMAT_NAME, _format_of(known.manifest.job), lambda other: True)
        newest = self.newest()
        assert newest is not None
        return newest

    def begin(self, job: str) -> str:
        """Put FORMAT, as for a copy whose only manifest comes last; the job that it names, ours or the one begun."""
        self._put(FORMAT_NAME, _format_of(job), lambda other: True)
        place = f"{self.storage.url}/{FORMAT_NAME}"
        return str(decode_document(self.storage.read(FORMAT_NAME).to_pybytes(), place)["job"])

    def kept(self, newest: Manifest, known: Mapping[int, Manifest] = MappingProxyType({})) -> dict[int, Manifest]:
        """The manifests whose files are kept, ``newest`` among them, by id: a fence names no others than its base.
        ``known`` are not read again."""
        known = {**known, newest.id: newest}
        return {id: known[id] if id in known else self.read(id).manifest for id in self.kept_ids(newest)}

    def kept_ids(self, newest: Manifest) -> list[int]:
        """Their ids, ascending."""
        if newest.format == 1:
            return [id for id in self.ids() if newest.keeps(id)]
        return sorted({*newest.bases, newest.id})

    def put(self, manifest: Manifest) -> Entry:
        """Commit. Raises Fenced if the id is another's, OldFormat if what it goes on from is to be upgraded first."""
        self.check_upgraded(manifest)
        self._tried_id = manifest.id
        data = manifest.encode()
        if not self._put(manifest_name(manifest.id), data, lambda other: _nonce(other) == manifest.nonce):
            raise Fenced(
                f"{self.storage.url}: checkpoint {manifest.id} was committed by another driver; this one stops"
            )
        return Entry(manifest, manifest_sha256(data), len(data))

    def check_upgraded(self, manifest: Manifest) -> None:
        """Raise OldFormat unless what goes on from this manifest may be written."""
        if manifest.format != FORMAT:
            raise OldFormat(
                f"{self.storage.url} is of format {manifest.format}, this release writes {FORMAT}. 'persistent upgrade "
                f"{self.storage.url}' takes it there; releases that know only {manifest.format} cannot read it then"
            )

    def fence(
        self,
        newest: Entry,
        nonce: str,
        replan: int | None = None,
        *,
        upgrade: bool = False,
        pins: Callable[[Manifest], tuple[int, ...]] | None = None,
        above: int = -1,
    ) -> Entry:
        """Take over: the newest state once more, under a higher epoch. Goes on top of whatever a working
        driver still commits. ``upgrade``: write it in the newest format. ``pins``: the pins from now on. ``above``: an
        id not to be used again: the first fence burns it, and whoever goes on from there does so above it."""
        while True:
            old = newest.manifest
            if old.id == 0:
                # Whoever put manifest 0 may have died before FORMAT, which must be there before any id above.
                self._put(FORMAT_NAME, _format_of(old.job), lambda other: True)
            replan = old.replan if replan is None else replan
            id = max((old.id, *old.burnt)) + 1
            fence = succeed(
                newest,
                "fence",
                id=id,
                nonce=nonce,
                format=FORMAT if upgrade else old.format,
                epoch=old.epoch + 1,
                fences=old.fences + 1 if replan == old.replan else 1,
                replan=replan,
                pins=old.pins if pins is None else pins(old),
                bases=self._bases(old) if upgrade and old.format == 1 else old.bases,
                burnt=(*old.burnt, above) if above > id else old.burnt,
            )
            try:
                newest = self.put(fence)
            except Fenced:
                entry = self.newest()
                assert entry is not None
                if entry.manifest.epoch > old.epoch:
                    raise
                newest = entry
            else:
                if id > above:
                    return newest

    def _bases(self, old: Manifest) -> dict[int, int]:
        """What a manifest of the first format does not say: which of those kept hold a state of their own."""
        return {id: kept.committed_ms for id, kept in self.kept(old).items() if kept.is_base}

    def plan(self, base: int, number: int) -> StepPlan | None:
        """The plan of the step after checkpoint ``base``, if it was put."""
        name = plan_name(base, number)
        try:
            data = self.storage.read(name)
        except FileNotFoundError:
            return None
        try:
            return StepPlan.decode(data.to_pybytes(), f"{self.storage.url}/{name}")
        except NewerFormat:
            raise
        except CorruptCheckpoint as error:
            raise CorruptCheckpoint(
                f"{error}. Nothing of the step it plans has been committed: delete the file and run again"
            ) from error

    def put_plan(self, plan: StepPlan) -> StepPlan:
        """Put the plan; if another driver was first, the plan to run is theirs, which must start where ours does."""
        name = plan_name(plan.base, plan.number)
        if self._put(name, plan.encode(), lambda other: StepPlan.decode(other, name).nonce == plan.nonce):
            return plan
        other = self.plan(plan.base, plan.number)
        (source,), (task,) = plan.sources, plan.tasks
        other = None if other is None else other.named(source, task)
        if other is None or (other.job, other.base, other.starts) != (plan.job, plan.base, plan.starts):
            raise CorruptCheckpoint(f"{self.storage.url}/{name}: this plan does not start at checkpoint {plan.base}")
        return other

    def lost(self, above: int, newest: int, shown: Trace = Trace()) -> Trace | None:
        """A trace of the newest checkpoint that there was above that id, which is lost, then, if ``newest`` is the id
        of the newest manifest; None where there is none, or where others have gone on meanwhile. ``shown``: a trace in
        the sink."""
        traces = [
            Trace(published_id(name), f"{self.storage.url}/{folder}/{name}")
            for folder in (PLANS, LATE, DEAD)
            for name in self.storage.list(folder)
        ]
        found = max([*traces, shown])
        # Listed last: the manifest was there before what it leaves behind.
        return found if found.id > above and self.ids()[-1:] == [newest] else None

    def check_whole(self, newest: Manifest, shown: Trace = Trace(), *, goes_back: bool = False) -> int:
        """The id above which to go on from the newest manifest. CorruptCheckpoint where one above it is lost, unless
        a rollback has said what becomes of what that one published, or is about to (``goes_back``)."""
        # Above its base: fences stand on a checkpoint, and hide nothing.
        lost = self.lost(newest.base, newest.id, shown)
        if lost is not None and newest.target is None and not goes_back:
            raise CorruptCheckpoint(
                f"{lost.place}: left by checkpoint {lost.id}, whose manifest {manifest_name(lost.id)} is lost: to go "
                f"on from {newest.base} would publish a second time what was published since. Restore the manifests "
                f"from a copy of {self.storage.url}. Or: {self._way_back(self.ids())}"
            )
        return -1 if lost is None else lost.id

    @contextmanager
    def unless_fenced(self, id: int) -> Iterator[None]:
        """What a driver of manifest ``id`` finds missing, or cannot write, another may have swept: then say that, and
        not that something is corrupt or the store at fault."""
        try:
            yield
        except (CorruptCheckpoint, StorageError):
            self.check(max(id, self._tried_id))
            raise

    def check(self, id: int) -> None:
        """Raise Fenced if there is a manifest above ``id``: no effect without this."""
        newest = max(self.ids(), default=-1)
        if newest > id:
            raise Fenced(f"{self.storage.url}: another driver committed {newest} after our {id}; this one stops")

    def _put(self, name: str, data: bytes, is_ours: Callable[[bytes], bool]) -> bool:
        held = put_or_read(self.storage, name, data, _PUT_TRIES_MAX)
        return held is None or is_ours(held.to_pybytes())

    def _read_once(self, id: int, place: str) -> Entry:
        try:
            data = self.storage.read(manifest_name(id)).to_pybytes()
        except FileNotFoundError as error:
            raise CorruptCheckpoint(f"{place}: missing") from error
        manifest = Manifest.decode(data, place)
        if manifest.id != id:
            raise CorruptCheckpoint(f"{place}: is manifest {manifest.id}, not {id}")
        return Entry(manifest, manifest_sha256(data), len(data))

    def _check_format(self) -> None:
        place = f"{self.storage.url}/{FORMAT_NAME}"
        # Listed first: FORMAT is put before any id above 0, so what is listed now proves that it must be there.
        ids = self.ids()
        try:
            data = self.storage.read(FORMAT_NAME).to_pybytes()
        except FileNotFoundError:
            if any(id > 0 for id in ids):
                raise CorruptCheckpoint(
                    f"{place}: missing, though there are manifests{self._format_remedy(ids)}"
                ) from None
            return
        try:
            body = decode_document(data, place)
        except CorruptCheckpoint as error:
            raise CorruptCheckpoint(f"{error}{self._format_remedy(ids)}") from error
        check_format(body, place)
        check_shape(FORMAT_FILE, body, place, "a FORMAT")
        if body["key_groups"] != KEY_GROUPS or body["hash"] != HASH_VERSION:
            raise CorruptCheckpoint(
                f"{place}: key groups {body['key_groups']} and hash {body['hash']} are unknown here"
            )
        if not self.ids():
            raise CorruptCheckpoint(f"{place}: there, but no manifest is: restore {self.storage.url}/m from a copy")

    def _format_remedy(self, ids: list[int]) -> str:
        """How to restore FORMAT, which says no more than what any manifest does."""
        for id in reversed(ids):
            try:
                body, sha256 = _format_of(self.read(id).manifest.job).decode().splitlines()
            except CorruptCheckpoint:
                continue
            lines = f"printf '%s\\n' '{body}' '{sha256}'"
            return f". Restore it from a copy; or make it anew, as manifest {id} has it: {lines} > FORMAT"
        return ": restore it from a copy"

    def names_what_is_there(self, manifest: Manifest) -> bool:
        """Whether every run that the manifest names lies there."""
        files = manifest.files()
        folders = {name.rpartition("/")[0] for name in files}
        return files <= {f"{folder}/{name}" for folder in folders for name in self.storage.list(folder)}

    def _way_back(self, ids: list[int]) -> str:
        for id in reversed(ids):
            try:
                manifest = self.read(id).manifest
            except CorruptCheckpoint:
                continue
            if not self.names_what_is_there(manifest):
                # A fence that is kept no more, and not swept yet.
                continue
            return (
                f"Checkpoint {id} is the newest whose manifest verifies: 'persistent rollback {self.storage.url} {id} "
                "--outputs=retract' goes back to it and takes back what was published since"
            )
        return "No other checkpoint verifies: restore the folder from a copy"


def _nonce(data: bytes) -> str:
    return Manifest.decode(data, "manifest").nonce


def _format_of(job: str) -> bytes:
    return encode_document(
        {"format": FORMAT, "features": [], "job": job, "key_groups": KEY_GROUPS, "hash": HASH_VERSION}
    )
