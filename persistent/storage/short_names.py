"""A short name of a checkpoint is the end of its URL, without anything that is secret."""

from __future__ import annotations

from collections.abc import Collection

from persistent.storage.failures import without_secrets


def short_name(url: str, taken: Collection[str] = ()) -> str:
    """The short name of the checkpoint at ``url``, numbered if it is ``taken``.

    >>> short_name("s3://key:secret@bucket/jobs/visits?x=1"), short_name("/jobs/visits/", {"visits"})
    ('visits', 'visits-2')
    """
    return numbered(_joined(_parts(url)[-1:]), taken)


def numbered(base: str, taken: Collection[str]) -> str:
    """The name, with a number behind it if it is ``taken``."""
    name, number = base, 1
    while name in taken:
        number += 1
        name = f"{base}-{number}"
    return name


def lasting_name(url: str) -> str:
    """The last two parts of the URL: the same in every process, whichever other jobs run there.

    >>> lasting_name("s3://key:secret@bucket/visits?x=1"), lasting_name("/jobs/visits/checkpoint")
    ('bucket-visits', 'visits-checkpoint')
    """
    return _joined(_parts(url)[-2:])


def _parts(url: str) -> list[str]:
    path = without_secrets(url).removesuffix("?...").rpartition("://")[2].rpartition("@")[2]
    return [part for part in path.split("/") if part not in ("", ".", "..")]


def _joined(parts: list[str]) -> str:
    return "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in "-".join(parts)) or "checkpoint"
