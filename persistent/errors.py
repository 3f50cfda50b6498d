"""The errors of this package. Each names the fault, the place and the remedy."""

from __future__ import annotations


class PersistentError(Exception):
    """The base of every error of this package. ``persistent why NAME`` explains each of them."""


def explanation(error: BaseException) -> str:
    """The command that prints what an error means for the data, and what to do. It needs no network.

    >>> explanation(NoCheckpoint("nothing here"))
    'persistent why NoCheckpoint'

    Of an error that a user derives, it names the class of this package that is nearest.
    """
    known = [cls for cls in type(error).__mro__ if cls.__module__.partition(".")[0] == "persistent"]
    return f"persistent why {known[0].__name__}"


class InvalidPipeline(PersistentError):
    """The pipeline as written cannot run: a wrong option, name or combination of parts."""


class AssignerFailed(InvalidPipeline):
    """The windows of an assigner contradict each other. Nothing of the step was committed."""


class NoCheckpoint(InvalidPipeline):
    """No checkpoint exists at this place."""


class UnknownCheckpoint(InvalidPipeline):
    """The checkpoint does not keep this id, or the state at this clock."""


class CorruptCheckpoint(PersistentError):
    """Bytes of a checkpoint are missing or changed. They are never read as "empty"."""


class CorruptLog(PersistentError):
    """Acknowledged bytes of a log are missing or changed. They are never skipped silently."""


class LawBroken(PersistentError):
    """A law between checkpoints is broken: a defect of this package. Nothing was committed."""


class Fenced(PersistentError):
    """Another driver has taken over this checkpoint. This one has stopped and changes nothing more."""


class StillRunning(PersistentError):
    """A driver seems to run on this checkpoint. Stop it, or fence it, before another one writes."""


class Refused(PersistentError):
    """An operation is not possible as requested. Nothing has changed."""


class OtherJob(PersistentError):
    """The checkpoint belongs to another job: its states, source kind or partitions differ."""


class FingerprintChanged(PersistentError):
    """The monoid, key or window differs from the one the checkpoint was made with."""


class NewerFormat(CorruptCheckpoint):
    """The checkpoint, or a file in it, needs a newer release. Nothing is wrong with it."""


class Stopped(PersistentError):
    """A run was asked to stop while it waited for a server, and waited no longer. The next run continues."""


class SourceError(PersistentError):
    """The source cannot be read as described. Nothing was lost; the last checkpoint is good."""


class SourceChanged(SourceError):
    """A listed input has changed."""


class InputGone(SourceError):
    """A listed input disappeared before it was read."""


class RetentionGap(SourceError):
    """The source no longer has the positions that the checkpoint would continue from."""


class UserCodeError(PersistentError):
    """The user's code raised. The error names the partition, position and key of the message."""


class StorageError(PersistentError):
    """A store refused or failed an operation. The error names the operation and the place."""


class SinkMismatch(StorageError):
    """The place of a sink is not that of this job: it is another job's, lacks outputs of this one, or cannot take its
    rows. Unlike a store that fails for a while, it stays so until somebody acts."""


class StagedMissing(StorageError):
    """A staged output is neither staged nor published: another driver swept it, or someone deleted it."""


class UnsupportedStore(StorageError):
    """The file system behind a URL offers no atomic create, so no checkpoint can be committed to it."""


class EngineError(PersistentError):
    """The engine gave up on an item: every attempt failed, or its workers cannot run it."""
