"""The manifest log is one sequence of ids, each put once, by whichever driver came first.

- An id is WON when the bytes under it are ours: a lost or unknown answer is settled by reading back the nonce.
- The state of the job is the manifest of the highest id. If it does not verify, nothing falls back by itself.
- Every driver fences before it writes: it puts a manifest of a higher epoch, and whoever still works under
  the old one finds its next id taken.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from persistent.checkpoint.manifest import (
    FORMAT,
    HASH_VERSION,
    Manifest,
    check_format,
    manifest_sha256,
)
from persistent.checkpoint.plan import StepPlan
from persistent.codec import KEY_GROUPS, decode_document, encode_document
from persistent.errors import CorruptCheckpoint, Fenced, PersistentError
from persistent.storage import Put, Storage

_DIGITS = 20
_PUT_TRIES_MAX = 5


@contextmanager
def way_back_told(url: str) -> Iterator[None]:
    """Damage found in here says what to do about it."""
    try:
        yield
    except CorruptCheckpoint as error:
        raise CorruptCheckpoint(
            f"{error}. Restore the file from a copy; or 'persistent verify {url}' names the newest checkpoint that "
            "verifies, and how to go back to it"
        ) from error


@dataclass(frozen=True)
class Entry:
    """A manifest with the SHA-256 of its bytes."""

    manifest: Manifest
    sha256: str
    bytes: int


def new_nonce() -> str:
    """A name that nobody else has drawn."""
    return uuid.uuid4().hex


def manifest_name(id: int) -> str:
    return f"m/{id:0{_DIGITS}d}.json"


def plan_name(base: int, number: int) -> str:
    return f"p/{base:0{_DIGITS}d}{f'-{number}' if number else ''}.json"


class Log:
    """The manifests and plans of one checkpoint."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def ids(self) -> list[int]:
        """The ids there are, ascending."""
        return [int(name[:_DIGITS]) for name in self.storage.list("m") if _is_entry(name)]

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
        self._put("FORMAT", _format_of(known.manifest.job), lambda other: True)
        newest = self.newest()
        assert newest is not None
        return newest

    def put(self, manifest: Manifest) -> Entry:
        """Commit. Raises Fenced if the id is another's."""
        data = manifest.encode()
        if not self._put(manifest_name(manifest.id), data, lambda other: _nonce(other) == manifest.nonce):
            raise Fenced(
                f"{self.storage.url}: checkpoint {manifest.id} was committed by another driver; this one stops"
            )
        return Entry(manifest, manifest_sha256(data), len(data))

    def fence(self, newest: Entry, nonce: str, replan: int) -> Entry:
        """Take over: the newest state once more, under a higher epoch. Goes on top of whatever a working
        driver still commits."""
        while True:
            old = newest.manifest
            fence = replace(
                old,
                id=old.id + 1,
                kind="fence",
                epoch=old.epoch + 1,
                nonce=nonce,
                parent=(old.id, newest.sha256),
                fences=old.fences + 1 if replan == old.replan else 1,
                replan=replan,
            )
            try:
                return self.put(fence)
            except Fenced:
                entry = self.newest()
                assert entry is not None
                if entry.manifest.epoch > old.epoch:
                    raise
                newest = entry

    def plan(self, base: int, number: int) -> StepPlan | None:
        """The plan of the step after checkpoint ``base``, if it was put."""
        name = plan_name(base, number)
        try:
            data = self.storage.read(name)
        except FileNotFoundError:
            return None
        try:
            return StepPlan.decode(data.to_pybytes(), f"{self.storage.url}/{name}")
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
        if other is None or (other.job, other.base, other.start) != (plan.job, plan.base, plan.start):
            raise CorruptCheckpoint(f"{self.storage.url}/{name}: this plan does not start at checkpoint {plan.base}")
        return other

    @contextmanager
    def unless_fenced(self, id: int) -> Iterator[None]:
        """What a driver of manifest ``id`` finds missing, another may have swept: then say so, and not that
        it is corrupt."""
        try:
            yield
        except CorruptCheckpoint:
            self.check(id)
            raise

    def check(self, id: int) -> None:
        """Raise Fenced if there is a manifest above ``id``: no effect without this."""
        newest = max(self.ids(), default=-1)
        if newest > id:
            raise Fenced(f"{self.storage.url}: another driver committed {newest} after our {id}; this one stops")

    def _put(self, name: str, data: bytes, is_ours: Callable[[bytes], bool]) -> bool:
        for _ in range(_PUT_TRIES_MAX):
            if self.storage.put_if_absent(name, data) is Put.WON:
                return True
            try:
                return is_ours(self.storage.read(name).to_pybytes())
            except FileNotFoundError:
                continue
        raise PersistentError(
            f"{self.storage.url}/{name}: the store neither took nor showed it in {_PUT_TRIES_MAX} tries"
        )

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
        place = f"{self.storage.url}/FORMAT"
        # Listed first: FORMAT is put before any id above 0, so what is listed now proves that it must be there.
        ids = self.ids()
        try:
            data = self.storage.read("FORMAT").to_pybytes()
        except FileNotFoundError:
            if any(id > 0 for id in ids):
                raise CorruptCheckpoint(
                    f"{place}: missing, though there are manifests; restore it from a copy"
                ) from None
            return
        body = decode_document(data, place)
        check_format(body, place)
        if body["key_groups"] != KEY_GROUPS or body["hash"] != HASH_VERSION:
            raise CorruptCheckpoint(
                f"{place}: key groups {body['key_groups']} and hash {body['hash']} are unknown here"
            )
        if not self.ids():
            raise CorruptCheckpoint(f"{place}: there, but no manifest is: restore {self.storage.url}/m from a copy")

    def _way_back(self, ids: list[int]) -> str:
        for id in reversed(ids):
            try:
                self.read(id)
            except CorruptCheckpoint:
                continue
            return (
                f"Checkpoint {id} is the newest that verifies. To go back to it by hand, while nothing runs, move "
                f"every file whose name begins with a number above {id:0{_DIGITS}d} out of {self.storage.url} (its "
                "folders m, p, late and dead), and out of the folder of a FileSink and its _published: what was "
                "published since is published again"
            )
        return "No other checkpoint verifies: restore the folder from a copy"


def _nonce(data: bytes) -> str:
    return Manifest.decode(data, "manifest").nonce


def _format_of(job: str) -> bytes:
    return encode_document(
        {"format": FORMAT, "features": [], "job": job, "key_groups": KEY_GROUPS, "hash": HASH_VERSION}
    )


def _is_entry(name: str) -> bool:
    return name.endswith(".json") and name[:_DIGITS].isdigit() and len(name) == _DIGITS + 5
