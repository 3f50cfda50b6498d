"""A shell word is a place as a command in a message names it, quoted so that the command can be copied and run."""

from __future__ import annotations

import shlex


def shell_word(text: str) -> str:
    """``text`` as one word of a shell: bare if possible, otherwise in double quotes, since a message has the command
    itself in single quotes.

    >>> shell_word("s3://bucket/job"), shell_word("my job/checkpoint"), shell_word("a $5 job")
    ('s3://bucket/job', '"my job/checkpoint"', "'a $5 job'")
    """
    quoted = shlex.quote(text)
    return f'"{text}"' if quoted != text and not set(text) & set('"$`\\!') else quoted
