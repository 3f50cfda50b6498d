"""An engine maps a function over items: ``Embedded`` in threads of this process, ``Spark`` on the user's session.

``Spark`` is imported at first use.
"""

from typing import TYPE_CHECKING, Any

from persistent.engines.embedded import Embedded
from persistent.engines.protocol import Engine

if TYPE_CHECKING:
    from persistent.engines.spark import Spark

__all__ = ["Embedded", "Engine", "Spark"]


def __getattr__(name: str) -> Any:
    if name == "Spark":
        from persistent.engines.spark import Spark

        return Spark
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
