"""The manifest log is one sequence of ids, each put once, by whichever driver came first.

- An id is WON when the bytes under it are ours: a driver settles a lost or unknown answer by reading back the nonce.
- The manifest of the highest id is the state of the job. If it does not verify, nothing falls back by itself.
- Every driver fences before it writes: it puts a manifest of a higher epoch, and a driver of the old epoch finds its
  next id taken.
- A checkpoint's outputs, and the plan of the step after it, appear only after its manifest. So such a file numbered
  above the newest manifest proves that one is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from monoids.hashing import VERSION as HASH_VERSION
from persistent.checkpoint.manifest import Manifest, manifest_sha256
from persistent.checkpoint.plan import StepPlan
from persistent.checkpoint.successor import Entry, succeed
from persistent.codec import documents
from persistent.codec.fields import KEY_GROUPS, Part, Positive, ShortText
from persistent.errors import CorruptCheckpoint, Fenced, NewerFormat, StorageError
from persistent.names import (
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
from persistent.storage.protocol import Storage, put_or_read
from persistent.text.figures import shell_word

_PUT_TRIES_MAX = 5


@dataclass(frozen=True, order=True)
class Trace:
    """A file of checkpoint ``id`` other than its manifest, and its place."""

    id: int = -1
    place: str = ""


class FormatFile(Part, frozen=True):
    """What FORMAT holds: the job of the folder, the number of its key groups, and the version of the hash of keys."""

    job: ShortText
    key_groups: Positive
    hash: Positive

    @staticmethod
    def decode(data: bytes, place: str) -> FormatFile:
        """CorruptCheckpoint, NewerFormat."""
        return documents.read(FormatFile, data, place, "a FORMAT", documents.no_laws)


class Log:
    """The manifests and plans of one checkpoint."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._tried_id = -1

    def ids(self) -> list[int]:
        """The ids in the log, ascending."""
        return [published_id(name) for name in self.storage.list(MANIFESTS) if is_manifest(name)]

    def read(self, id: int) -> Entry:
        """One manifest, verified. It is read twice before it counts as corrupt."""
        place = f"{self.storage.url}/{manifest_name(id)}"
        try:
            return self._read_once(id, place)
        except CorruptCheckpoint:
            return self._read_once(id, place)

    def newest(self) -> Entry | None:
        """The manifest of the highest id; None if there is no checkpoint yet."""
        ids = self._check_format()
        while ids:
            try:
                return self.read(ids[-1])
            except NewerFormat:
                raise
            except CorruptCheckpoint as error:
                if (now := self.ids())[-1:] > ids[-1:]:
                    # Not corrupt: other drivers have moved on so far that it was deleted.
                    ids = now
                    continue
                raise CorruptCheckpoint(f"{error}. {self._way_back(ids[:-1])}") from error
        return None

    def create(self, first: Manifest) -> Entry:
        """Put manifest 0 and FORMAT, or find those of another driver."""
        if not self.ids():
            self._put(manifest_name(0), first.encode(), lambda document: _nonce(document) == first.nonce)
        # Not manifest 0, which may be collected by now.
        known = self._at_least(0)
        self._put(FORMAT_NAME, _format_of(known.manifest.job), lambda document: True)
        return self._at_least(0)

    def _at_least(self, id: int) -> Entry:
        """The newest manifest; one with this id exists. StorageError if the store does not list it."""
        newest = self.newest()
        if newest is None or newest.manifest.id < id:
            raise StorageError(
                f"{self.storage.url}: {manifest_name(id)} exists, but the store does not list it. Lists that lag "
                "behind hide other drivers. Run again; if it stays so, the store cannot hold a checkpoint: "
                f"'persistent doctor {shell_word(self.storage.url)}' tests it"
            )
        return newest

    def begin(self, job: str) -> str:
        """Put FORMAT, for a copy whose only manifest comes last; returns the job that it names, ours or an earlier
        one."""
        self._put(FORMAT_NAME, _format_of(job), lambda document: True)
        place = f"{self.storage.url}/{FORMAT_NAME}"
        return FormatFile.decode(self.storage.read(FORMAT_NAME).to_pybytes(), place).job

    def kept(self, newest: Manifest, known: Mapping[int, Manifest] = MappingProxyType({})) -> dict[int, Manifest]:
        """By id: the kept manifests that name files of their own, and ``newest``. Other fences are left out, because a
        fence names only the files of its base. ``known``: manifests that are not read again."""
        known = {**known, newest.id: newest}
        return {id: known[id] if id in known else self.read(id).manifest for id in self.kept_ids(newest)}

    def kept_ids(self, newest: Manifest) -> list[int]:
        """The ids of the ``kept`` manifests, ascending."""
        return sorted({*newest.bases, newest.id})

    def put(self, manifest: Manifest) -> Entry:
        """Commit a manifest. Fenced if another driver has put its id."""
        self._tried_id = manifest.id
        data = manifest.encode()
        if not self._put(manifest_name(manifest.id), data, lambda document: _nonce(document) == manifest.nonce):
            raise Fenced(
                f"{self.storage.url}: checkpoint {manifest.id} was committed by another driver; this one stops"
            )
        return Entry(manifest, manifest_sha256(data), len(data))

    def fence(
        self,
        newest: Entry,
        nonce: str,
        replan: int | None = None,
        *,
        changes: Callable[[Entry], Mapping[str, Any]] | None = None,
        above: int = -1,
    ) -> Entry:
        """Take over: put the newest state again, under a higher epoch, on top of whatever a working driver still
        commits. ``changes``: the lasting facts that differ from now on. ``above``: an id never to use again: the first
        fence burns it, and every later manifest is above it."""
        while True:
            old = newest.manifest
            if old.id == 0:
                # The driver that put manifest 0 can have died before FORMAT, which precedes every higher id.
                self._put(FORMAT_NAME, _format_of(old.job), lambda document: True)
            replan = old.replan if replan is None else replan
            id = max((old.id, *old.burnt)) + 1
            fence = succeed(
                newest,
                "fence",
                id=id,
                nonce=nonce,
                epoch=old.epoch + 1,
                fences=old.fences + 1 if replan == old.replan else 1,
                replan=replan,
                burnt=(*old.burnt, above) if above > id else old.burnt,
                **({} if changes is None else changes(newest)),
            )
            try:
                newest = self.put(fence)
            except Fenced:
                entry = self._at_least(id)
                if entry.manifest.epoch > old.epoch:
                    raise
                newest = entry
            else:
                if id > above:
                    return newest

    def plan(self, base: int, number: int) -> StepPlan | None:
        """The plan of the step after checkpoint ``base``, if one was put."""
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
                f"{error}. Nothing of its step has been committed: delete the file and run again"
            ) from error

    def put_plan(self, plan: StepPlan) -> StepPlan:
        """Put the plan, and return the plan to run: another driver's if it was first, which must start at the same
        positions."""
        name = plan_name(plan.base, plan.number)
        if self._put(name, plan.encode(), lambda document: StepPlan.decode(document, name).nonce == plan.nonce):
            return plan
        rival = self.plan(plan.base, plan.number)
        if rival is None or (rival.job, rival.base, rival.starts) != (plan.job, plan.base, plan.starts):
            raise CorruptCheckpoint(
                f"{self.storage.url}/{name}: this plan does not start at checkpoint {plan.base}: delete the "
                "file, then run again"
            )
        return rival

    def lost(self, above: int, newest: int, trace: Trace = Trace()) -> Trace | None:
        """The trace of the highest id above ``above``, whose manifest is lost. None if there is none, or if ``newest``
        is no longer the id of the newest manifest. ``trace``: a trace in the sink."""
        traces = [
            Trace(published_id(name), f"{self.storage.url}/{folder}/{name}")
            for folder in (PLANS, LATE, DEAD)
            for name in self.storage.list(folder)
        ]
        highest = max([*traces, trace])
        # Listed last: a manifest precedes its traces.
        return highest if highest.id > above and self.ids()[-1:] == [newest] else None

    def check_whole(self, newest: Manifest, trace: Trace = Trace(), *, goes_back: bool = False) -> int:
        """The id above which to continue from the newest manifest. CorruptCheckpoint if a manifest above it is lost,
        unless a rollback has decided the fate of its outputs, or is about to (``goes_back``)."""
        # Above its base: fences copy the base, so they hide no trace.
        lost = self.lost(newest.base, newest.id, trace)
        if lost is not None:
            with suppress(FileNotFoundError):
                self.storage.read(manifest_name(lost.id))
                self._at_least(lost.id)
        if lost is not None and newest.target is None and not goes_back:
            raise CorruptCheckpoint(
                f"{lost.place}: left by checkpoint {lost.id}, whose manifest {manifest_name(lost.id)} is lost: to "
                f"continue from {newest.base} would publish later outputs again. Restore the manifests from a copy "
                f"of {self.storage.url}. Or: {self._way_back(self.ids())}"
            )
        return -1 if lost is None else lost.id

    @contextmanager
    def unless_fenced(self, id: int) -> Iterator[None]:
        """Raise Fenced rather than CorruptCheckpoint or StorageError if a manifest above ``id`` exists: another driver
        may have swept a file that is missing or cannot be written."""
        try:
            yield
        except (CorruptCheckpoint, StorageError):
            self.check(max(id, self._tried_id))
            raise

    def check(self, id: int) -> None:
        """Raise Fenced if a manifest above ``id`` exists. Every effect needs this check first."""
        newest = max(self.ids(), default=-1)
        if newest > id:
            raise Fenced(f"{self.storage.url}: another driver committed {newest} after our {id}; this one stops")

    def _put(self, name: str, data: bytes, is_ours: Callable[[bytes], bool]) -> bool:
        document = put_or_read(self.storage, name, data, _PUT_TRIES_MAX)
        return document is None or is_ours(document.to_pybytes())

    def _read_once(self, id: int, place: str) -> Entry:
        try:
            data = self.storage.read(manifest_name(id)).to_pybytes()
        except FileNotFoundError as error:
            raise CorruptCheckpoint(f"{place}: missing") from error
        manifest = Manifest.decode(data, place)
        if manifest.id != id:
            raise CorruptCheckpoint(f"{place}: holds manifest {manifest.id}, not {id}")
        return Entry(manifest, manifest_sha256(data), len(data))

    def _check_format(self) -> list[int]:
        """The ids in the log, if FORMAT is what this release knows."""
        place = f"{self.storage.url}/{FORMAT_NAME}"
        # Listed first: FORMAT precedes every id above 0, so such an id proves that it must exist.
        ids = self.ids()
        try:
            data = self.storage.read(FORMAT_NAME).to_pybytes()
        except FileNotFoundError:
            if any(id > 0 for id in ids):
                raise CorruptCheckpoint(
                    f"{place}: missing, although manifests exist{self._format_remedy(ids)}"
                ) from None
            return ids
        try:
            format_file = FormatFile.decode(data, place)
        except NewerFormat:
            raise
        except CorruptCheckpoint as error:
            raise CorruptCheckpoint(f"{error}{self._format_remedy(ids)}") from error
        if format_file.key_groups != KEY_GROUPS or format_file.hash != HASH_VERSION:
            raise CorruptCheckpoint(
                f"{place}: key groups {format_file.key_groups} and hash {format_file.hash} are unknown here: restore "
                "the file from a copy, or use the release that wrote it"
            )
        # Manifest 0 precedes FORMAT: without any before it, there is one now.
        ids = ids or self.ids()
        if not ids:
            raise CorruptCheckpoint(
                f"{place}: exists, but every manifest is missing: restore {self.storage.url}/m from a copy"
            )
        return ids

    def _format_remedy(self, ids: list[int]) -> str:
        """How to restore FORMAT: any manifest holds all its facts."""
        for id in reversed(ids):
            try:
                body, sha256 = _format_of(self.read(id).manifest.job).decode().splitlines()
            except NewerFormat:
                raise
            except CorruptCheckpoint:
                continue
            url = self.storage.url
            place = shell_word(f"{url}/{FORMAT_NAME}") if url.startswith("/") else f"{FORMAT_NAME}, and put it there"
            lines = f"printf '%s\\n' '{body}' '{sha256}'"
            return f". Restore it from a copy; or write it again from manifest {id}: {lines} > {place}"
        return ": restore it from a copy"

    def names_what_is_there(self, manifest: Manifest) -> bool:
        """Whether every run that the manifest names exists."""
        files = manifest.files()
        folders = {name.rpartition("/")[0] for name in files}
        return files <= {f"{folder}/{name}" for folder in folders for name in self.storage.list(folder)}

    def _way_back(self, ids: list[int]) -> str:
        for id in reversed(ids):
            try:
                manifest = self.read(id).manifest
            except NewerFormat:
                raise
            except CorruptCheckpoint:
                continue
            if not self.names_what_is_there(manifest):
                # A fence that is no longer kept, but not yet deleted.
                continue
            back = f"'persistent rollback {shell_word(self.storage.url)} {id} --outputs=retract' goes back to it"
            return f"Checkpoint {id} is the newest whose manifest verifies: {back} and takes back later outputs"
        return "No other checkpoint verifies: restore the folder from a copy"


def _nonce(data: bytes) -> str:
    return Manifest.decode(data, "manifest").nonce


def _format_of(job: str) -> bytes:
    return documents.write(FormatFile(job, KEY_GROUPS, HASH_VERSION), FORMAT_NAME, documents.no_laws)
