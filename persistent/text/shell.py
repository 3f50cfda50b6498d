"""A word of a shell is how a command in a message names a place, so that it works as it stands there."""

from __future__ import annotations

import shlex


def shell_word(text: str) -> str:
    """``text`` as one word of a shell: bare if it can be, otherwise in double quotes, which stand out in a command that
    a message has in single ones.

    >>> shell_word("s3://bucket/job"), shell_word("my job/checkpoint"), shell_word("a $5 job")
    ('s3://bucket/job', '"my job/checkpoint"', "'a $5 job'")
    """
    quoted = shlex.quote(text)
    return f'"{text}"' if quoted != text and not set(text) & set('"$`\\!') else quoted
