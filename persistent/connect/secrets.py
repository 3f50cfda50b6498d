"""Secrets are removed from texts: long ones anywhere, short ones only where they stand alone.

Not every ``a`` of a sentence is the password ``a``: otherwise the sentence could not be read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

ESCAPED: Final = "special characters escaped: / as %2F, ? as %3F, # as %23, @ as %40"
"""How a URL has a user and a password."""
_LONG_MIN: Final = 4


def is_cut(host: str, path: str) -> bool:
    """Whether a special character of a password that is not escaped has cut a URL in two. A part of the password would
    be the host or the path, which are shown.

    >>> is_cut("host:1", "/shop"), is_cut("ter2@host", "/shop"), is_cut("app:hun", "/ter2@host/shop")
    (False, True, True)
    """
    return "@" in host + path or any(path.split("/")[2:])


def without(secrets: Iterable[str], text: str, sign: str) -> str:
    """``text`` with ``sign`` in place of each secret. An empty secret is ignored.

    >>> without(["hunter2", "a"], "a table has no key hunter2-a", "***")
    '*** table has no key ***-***'
    """
    for secret in sorted({*secrets} - {""}, key=len, reverse=True):
        if len(secret) >= _LONG_MIN:
            text = text.replace(secret, sign)
        else:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", lambda _: sign, text)
    return text
