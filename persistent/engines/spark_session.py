"""A session connects to Spark: a local one, or the one that the user names."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from persistent.errors import InvalidPipeline

_ATTEMPTS = 4
_FIRST_TRIES = 4

_SparkConf = dict[str, bool | float | int | str | None]
_QUIET: _SparkConf = {
    "spark.log.level": "ERROR",
    "spark.sql.adaptive.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_LOCAL: _SparkConf = {
    **_QUIET,
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false",
}


def java_found() -> bool:
    """Whether Spark finds Java here: in ``JAVA_HOME``, or on the path."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=os.path.join(home, "bin") if home else None) is not None


def local_session(cores: int | None = None, app_name: str = "persistent") -> SparkSession:
    """A local Spark, quiet and tuned for short jobs. InvalidPipeline without Java.

    ``cores``: tasks at once (default: all processors). A task is tried four times.
    """
    _require_java()
    builder = SparkSession.builder.master(f"local[{cores or os.cpu_count() or 1},{_ATTEMPTS}]").appName(app_name)
    return builder.config(map=_LOCAL).getOrCreate()


def session_at(master: str | None = None, app_name: str = "persistent") -> tuple[SparkSession, str]:
    """A session on the Spark that ``master`` names, and its description. InvalidPipeline if it does not answer.

    ``master``: ``local[2]``, ``spark://host:7077``, ``yarn``, ``k8s://...`` or, for Spark Connect, ``sc://host:15002``.
    None: the one in Spark's configuration (``spark.master`` in spark-defaults.conf or PYSPARK_SUBMIT_ARGS, or
    SPARK_REMOTE), otherwise ``local_session``.
    """
    remote = master if master is not None else os.environ.get("SPARK_REMOTE", "")
    if remote.startswith("sc://") or (master is None and remote):
        said = "as --master says" if master is not None else "as SPARK_REMOTE says"
        return _begun(SparkSession.builder.remote(remote), remote, _answers), f"Spark Connect at {remote}, {said}"
    _require_java()
    said = "as --master says"
    if master is None:
        master, said = _configured("spark.master"), "as spark.master of Spark's configuration says"
        if master in ("", "local[*]"):
            session = local_session(app_name=app_name)
            return (
                session,
                f"a local Spark, {session.sparkContext.master}: choose another with --master or spark.master",
            )
    chosen = _LOCAL if master.startswith("local") else _QUIET
    free = {key: value for key, value in chosen.items() if not _configured(key)}
    builder = SparkSession.builder.master(master).appName(app_name).config(map=free)
    return _begun(builder, master), f"Spark at {master}, {said}"


def _begun(builder: Any, master: str, check: Callable[[Any], None] = lambda _: None) -> SparkSession:
    try:
        session: SparkSession = builder.getOrCreate()
        check(session)
    except Exception as error:
        said = cause(error).rstrip(".")
        remedy = "Correct --master or spark.master, or start it"
        if "PACKAGE_NOT_INSTALLED" in said or isinstance(error, ImportError):
            remedy = "pip install 'persistent-monoids[connect]'"
        raise InvalidPipeline(f"no Spark answers at {master}: {said}. {remedy}") from error
    return session


def _answers(session: Any) -> None:
    """Send the Connect server a request, with few retries: by default its client would try a wrong address for ten
    minutes."""
    from pyspark.sql.connect.client.retries import DefaultPolicy

    patient = session.client.get_retry_policies()
    session.client.set_retry_policies([DefaultPolicy(max_retries=_FIRST_TRIES)])
    session.conf.get("spark.master", "")
    session.client.set_retry_policies(patient)


def _configured(key: str) -> str:
    """A value of Spark's configuration, which is read when its Java starts."""
    SparkContext._ensure_initialized()
    return str(SparkConf().get(key, ""))


def _require_java() -> None:
    if not java_found():
        raise InvalidPipeline(
            "Spark needs Java, and neither JAVA_HOME nor the path has one. Install Java 17 or 21 (Debian: "
            "apt-get install openjdk-17-jre-headless), or run with --engine embedded, in Python: engine=Embedded()."
        )


def cause(error: Exception) -> str:
    """The line of a Spark error that states its cause."""
    text = str(error).partition("\n\nJVM stacktrace")[0]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if not line.startswith(("at ", "SQLSTATE:"))]
    return causes[-1] if causes else type(error).__name__
