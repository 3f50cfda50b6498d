"""The errors of this package: each names the fault, the place, and the remedy."""

from __future__ import annotations


class PersistentError(Exception):
    """What every error of this package is."""


class InvalidPipeline(PersistentError):
    """The pipeline as written cannot run: a wrong option, name or combination of parts."""


class CorruptCheckpoint(PersistentError):
    """Bytes of a checkpoint are missing or are not those that were committed. They never mean "empty"."""


class LawBroken(PersistentError):
    """A law that must hold between checkpoints does not: a defect of this package. Nothing was committed."""


class Fenced(PersistentError):
    """Another driver has taken over this checkpoint; this one has stopped and changes nothing more."""


class OtherJob(PersistentError):
    """The checkpoint belongs to another job: its operators, source kind or partitions differ."""


class FingerprintChanged(PersistentError):
    """A monoid, key or window under the same operator is not the one the checkpoint was made with."""


class SourceError(PersistentError):
    """The source cannot be read as described; nothing was lost, the last checkpoint stays good."""


class SourceChanged(SourceError):
    """An input that has been listed is no longer the same bytes."""


class RetentionGap(SourceError):
    """The source no longer has the positions that the checkpoint would continue from."""


class UserCodeError(PersistentError):
    """The user's task raised; names the partition, position and key of the message."""


class StorageError(PersistentError):
    """A store refused or failed an operation; names the operation and the place."""


class StagedMissing(StorageError):
    """A staged output is neither staged nor published: another driver swept it, or someone deleted it."""


class UnsupportedStore(StorageError):
    """The file system behind a URL offers no atomic create, so no checkpoint can be committed to it."""


class EngineError(PersistentError):
    """The engine gave up on a piece of work: every attempt failed, or its workers cannot run it."""
