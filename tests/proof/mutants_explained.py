"""The survivors that nobody can tell from the original: (module, line as it was, change) and why."""

from __future__ import annotations

_GARBAGE = "persistent.checkpoint.garbage"
_RUNNING = "persistent.checkpoint.running"

EXPLAINED: dict[tuple[str, str, str], str] = {
    (_GARBAGE, "return False", "return None"): "callers ask whether it holds, and None holds as little as False",
    (_RUNNING, "return False", "return None"): "callers ask whether it lives, and None holds as little as False",
}
