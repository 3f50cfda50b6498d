"""The errors of this package: each names the fault, the place, and the remedy."""

from __future__ import annotations


class PersistentError(Exception):
    """What every error of this package is."""


class InvalidPipeline(PersistentError):
    """The pipeline as written cannot run: a wrong option, name or combination of parts."""


class NoCheckpoint(InvalidPipeline):
    """There is no checkpoint at this place."""


class UnknownCheckpoint(InvalidPipeline):
    """The checkpoint does not keep what was asked for: no such id, or no such clock."""


class CorruptCheckpoint(PersistentError):
    """Bytes of a checkpoint are missing or are not those that were committed. They never mean "empty"."""


class LawBroken(PersistentError):
    """A law that must hold between checkpoints does not: a defect of this package. Nothing was committed."""


class Fenced(PersistentError):
    """Another driver has taken over this checkpoint; this one has stopped and changes nothing more."""


class StillRunning(PersistentError):
    """A driver seems to run on this checkpoint: it is to be stopped, or fenced off, before another may write."""


class Refused(PersistentError):
    """An operation on a checkpoint cannot be done as asked. The state of the job is what it was."""


class OtherJob(PersistentError):
    """The checkpoint belongs to another job: its operators, source kind or partitions differ."""


class FingerprintChanged(PersistentError):
    """A monoid, key or window under the same operator is not the one the checkpoint was made with."""


class NewerFormat(CorruptCheckpoint):
    """The checkpoint, or a file of it, is of a format or has features that only a newer release knows. Nothing is wrong
    with it."""


class OldFormat(PersistentError):
    """The checkpoint is of an older format, which this release reads and does not write: it must be upgraded first."""


class SourceError(PersistentError):
    """The source cannot be read as described; nothing was lost, the last checkpoint stays good."""


class SourceChanged(SourceError):
    """An input that has been listed is no longer the same bytes."""


class InputGone(SourceError):
    """An input that has been listed is gone where it is to be read."""


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
