"""A session is had or made, and a missing Java is told."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from persistent.errors import EngineError, InvalidPipeline

ROOT = Path(__file__).parents[2]

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
    from persistent.engines.spark_session import local_session, missing

    assert not missing()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert missing() == "no Java found (in JAVA_HOME or on the path)"
    with pytest.raises(InvalidPipeline, match="install Java 17 or 21"):
        local_session()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert missing()


def test_a_missing_pyspark_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ModuleNotFoundError does not say that another engine needs none."""
    from persistent.engines.spark import Spark
    from persistent.engines.spark_session import local_session, missing, session_at

    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert missing() == "no PySpark found"
    told = r"no PySpark found: pip install 'persistent-monoids\[spark\]'; or run with --engine embedded"
    for begin in (local_session, session_at, lambda: session_at("sc://host:15002"), lambda: Spark(object())):
        with pytest.raises(InvalidPipeline, match=told):
            begin()


def test_a_pyspark_that_is_too_old_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its data frames it would be the first step that has no method toArrow."""
    from persistent.engines.spark import Spark
    from persistent.engines.spark_session import missing

    monkeypatch.setattr("pyspark.__version__", "3.5.9")
    assert missing() == "PySpark is 3.5.9 here, and has to be 4.0 or later"
    with pytest.raises(InvalidPipeline, match=r"PySpark is 3\.5\.9 here.*; or run with --engine embedded"):
        Spark(object())


def test_a_missing_pandas_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark said so in the first step, without a word of how to get it."""
    from persistent.engines.spark_session import local_session, missing

    monkeypatch.setitem(sys.modules, "pandas", None)
    assert missing() == "no pandas found, which PySpark needs"
    with pytest.raises(InvalidPipeline, match=r"pip install 'pandas>=2\.2,<3'"):
        local_session()


def test_what_is_left_of_a_pyspark_is_none(tmp_path: Path) -> None:
    """An uninstalled package leaves a folder of its name, and one may be broken: both were a traceback."""
    found = {}
    for name, text in (("left", None), ("broken", "import nothere")):
        (tmp_path / name / "pyspark").mkdir(parents=True)
        if text:
            (tmp_path / name / "pyspark" / "__init__.py").write_text(text)
        code = f"import sys; sys.path[:] = [{str(tmp_path / name)!r}, "
        code += "*(path for path in sys.path if 'site-packages' not in path)]\n"
        code += "from persistent.engines.spark_session import missing; print(missing())"
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
        found[name] = done.stdout.strip() or done.stderr
    broken = "PySpark cannot be imported (ModuleNotFoundError: No module named 'nothere')"
    assert found == {"left": "no PySpark found", "broken": broken}


def test_a_client_of_spark_connect_has_no_spark_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """It failed for want of a SparkContext."""
    from persistent.engines.spark_session import local_session, missing

    monkeypatch.setattr("pyspark.util.is_remote_only", lambda: True)
    assert missing() == "the installed PySpark is a client of Spark Connect, without a Spark of its own"
    with pytest.raises(InvalidPipeline, match=r"of its own: name a server with --master sc://host:15002; or pip"):
        local_session()


def test_a_server_that_does_not_answer_leaves_the_retries_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session of the user's would try every later request four times only; and stopping it took ten minutes."""
    from persistent.engines.spark_session import _answers

    kept = ["the user's"]

    def refused(*_: str) -> None:
        raise ConnectionError("no answer")

    client = types.SimpleNamespace(
        get_retry_policies=lambda: [*kept], set_retry_policies=lambda new: kept.__setitem__(slice(None), new)
    )
    stopped: list[Any] = []
    session = types.SimpleNamespace(
        client=client, conf=types.SimpleNamespace(get=refused), stop=lambda: stopped.extend(kept)
    )
    with pytest.raises(ConnectionError):
        _answers(session)
    assert kept == ["the user's"] and len(stopped) == 1 and stopped != kept
