"""An engine maps a function over items: ``Embedded`` in threads of this process, ``Spark`` on the user's session."""

from monoids.on_demand import TYPE_CHECKING, on_demand

if TYPE_CHECKING:
    from persistent.engines.embedded import Embedded
    from persistent.engines.protocol import Engine
    from persistent.engines.spark import Spark
else:
    __getattr__, __dir__ = on_demand(
        __name__,
        {
            "persistent.engines.embedded": "Embedded",
            "persistent.engines.protocol": "Engine",
            "persistent.engines.spark": "Spark",
        },
    )

__all__ = ["Embedded", "Engine", "Spark"]
