"""Names on demand: a package names what others import from it, and loads a module when one of its names is first used.

So a command, a worker or a completion pays for what it uses. The package lists the same imports under ``TYPE_CHECKING``
for editors and type checkers; a test compares them with the table.
"""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False
"""As in ``typing``, which takes longer to import than a package that uses this module."""

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def on_demand(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package, from its modules and the names that each provides.

    >>> get, names = on_demand("monoids.numbers", {"monoids.html": "text_html"})
    >>> get("text_html").__module__, "text_html" in names()
    ('monoids.html', True)
    """
    homes = {name: module for module, names in modules.items() for name in names.split()}

    def get(name: str) -> Any:
        whole = f"{package}.{name}"
        if name in homes:
            value = getattr(import_module(homes[name]), name)
        elif not name.startswith("_") and _exists(whole):
            # Also a room of the package, as if something had imported it before.
            value = import_module(whole)
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package])
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted({*vars(sys.modules[package]), *homes})


def _exists(module: str) -> bool:
    from importlib.util import find_spec

    return find_spec(module) is not None
