"""What tests of operations share: a fast folder, and silence."""

from __future__ import annotations

from tests.crash.conftest import _quiet, folder

__all__ = ["_quiet", "folder"]
