"""A short name of a checkpoint is the last part of its URL, without anything that is secret."""

from __future__ import annotations

from collections.abc import Collection

from persistent.storage.failures import without_secrets


def short_name(url: str, taken: Collection[str] = ()) -> str:
    """The short name of the checkpoint at ``url``, numbered if it is ``taken``.

    >>> short_name("s3://key:secret@bucket/jobs/visits?x=1"), short_name("/jobs/visits/", {"visits"})
    ('visits', 'visits-2')
    """
    path = without_secrets(url).removesuffix("?...")
    part = path.rstrip("/").rpartition("/")[2] or "checkpoint"
    name = base = "".join(one if one.isalnum() or one in "._-" else "-" for one in part)
    number = 1
    while name in taken:
        number += 1
        name = f"{base}-{number}"
    return name
