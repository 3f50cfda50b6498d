"""The engine that runs a pipeline: the caller's choice, or Spark if a session is active, or this process."""

from __future__ import annotations

import sys
from typing import Any

from persistent.engines.embedded import Embedded
from persistent.engines.protocol import Engine
from persistent.errors import InvalidPipeline


def chosen_engine(spark: Any, engine: str | Engine | None) -> Engine:
    """The engine of ``spark``, a SparkSession, or of ``engine``. Without both: Spark with the active session, if there
    is one, otherwise this process. InvalidPipeline for an unknown ``engine``, or if both are given and differ."""
    if spark is not None and engine not in (None, "spark"):
        raise InvalidPipeline("give either a SparkSession or engine=, not both")
    if engine == "embedded":
        chosen: Engine = Embedded()
    elif isinstance(engine, str) and engine != "spark":
        raise InvalidPipeline(f'engine={engine!r}: choose "spark", "embedded" or an engine')
    elif engine is not None and not isinstance(engine, str):
        chosen = engine
    else:
        session = spark if spark is not None else _active_session()
        if session is None and engine == "spark":
            raise InvalidPipeline('engine="spark" needs a SparkSession: give run(spark), or create one first')
        chosen = _spark_engine(session) if session is not None else Embedded()
    return chosen


def _active_session() -> Any:
    """The active SparkSession, if this process has loaded pyspark at all."""
    sql = sys.modules.get("pyspark.sql")
    return sql.SparkSession.getActiveSession() if sql is not None else None


def _spark_engine(session: Any) -> Engine:
    from persistent.engines.spark import Spark

    if not hasattr(session, "createDataFrame"):
        raise InvalidPipeline(
            f"spark={session!r} is not a SparkSession: give SparkSession.builder.getOrCreate(); or engine=, as in "
            'run(engine="embedded")'
        )
    return Spark(session)
