"""A session is had or made, and a missing Java is told."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from persistent.errors import EngineError, InvalidPipeline

pytestmark = pytest.mark.spark


def test_the_python_that_spark_names_is_used(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It counted as named, so the driver's was not taken; and Spark took neither."""
    monkeypatch.setattr(engine, "_master", "spark://far:7077")
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert engine._python() == sys.executable
    monkeypatch.setenv("PYSPARK_PYTHON", "/of/the/environment")
    assert engine._python() == "/of/the/environment"
    session = types.SimpleNamespace(conf={"spark.pyspark.python": "/of/spark"})
    monkeypatch.setattr(engine, "session", session)
    assert engine._python() == "/of/spark"
    monkeypatch.setattr(engine, "_master", "local[2]")
    assert engine._python() == sys.executable


def test_a_failure_of_spark_names_the_executor_and_the_remedy(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stack trace of Java says neither which machine lacks what, nor that it was memory."""
    monkeypatch.setattr(engine, "_master", "spark://far:7077")
    lost = "Lost task 0.3 in stage 0.0 (TID 3) (10.0.0.7 executor 1): "
    for text, kind, told in (
        ("ModuleNotFoundError: No module named 'pandas'", InvalidPipeline, "No module named 'pandas'"),
        ("[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9", InvalidPipeline, "the Python and"),
        ('java.io.IOException: Cannot run program "/opt/python"', InvalidPipeline, "Cannot run program"),
        ("ImportError: x.so: failed to map segment from shared object", EngineError, "memoryOverhead"),
        ("Python worker exited unexpectedly (crashed)", EngineError, "memoryOverhead"),
        ("ZeroDivisionError: no such luck", EngineError, "no such luck"),
    ):
        error = engine._engine_error(RuntimeError(lost + text))
        assert type(error) is kind and "(executor 1 on 10.0.0.7)" in str(error) and told in str(error)


def test_a_missing_java_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """PySpark's own error is "Java gateway process exited before sending its port number"."""
    from persistent.engines.spark_session import java_found, local_session

    assert java_found()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert not java_found()
    with pytest.raises(InvalidPipeline, match="Install Java"):
        local_session()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert not java_found()
