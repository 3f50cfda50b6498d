"""A session connects to Spark: a local one, or the one that the user names.

Any PySpark from 4.0 on will do, also a vendor's, or the client of Spark Connect alone. It is imported at first use.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from persistent.errors import InvalidPipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ATTEMPTS = 4
_FIRST_TRIES = 4
_OLDEST = 4
"""The first version of PySpark whose ``DataFrame`` has ``toArrow``."""
_INSTALL = "pip install 'persistent-monoids[spark]'"
_DETAILS = re.compile(r'^\s*details = "(.+)"$', re.MULTILINE)
"""The cause in an error of gRPC."""
_EMBEDDED = "run with --engine embedded, in Python: engine=Embedded()"

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


def missing() -> str:
    """What a local Spark lacks here: PySpark, pandas, a Spark of its own, or Java; "" if it lacks nothing."""
    return _lack()[0] or _local_lack()[0]


def require_pyspark() -> None:
    """InvalidPipeline unless this Python has a PySpark that the engine can use."""
    _require(*_lack())


def local_session(cores: int | None = None, app_name: str = "persistent") -> SparkSession:
    """A local Spark, quiet and tuned for short jobs. InvalidPipeline without PySpark, or without Java.

    ``cores``: tasks at once (default: all processors). A task is tried four times.
    """
    _require_local()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{cores or os.cpu_count() or 1},{_ATTEMPTS}]").appName(app_name)
    return builder.config(map=_LOCAL).getOrCreate()


def session_at(master: str | None = None, app_name: str = "persistent") -> tuple[SparkSession, str]:
    """A session on the Spark that ``master`` names, and its description. InvalidPipeline if it does not answer.

    ``master``: ``local[2]``, ``spark://host:7077``, ``yarn``, ``k8s://...`` or, for Spark Connect, ``sc://host:15002``.
    None: the one in Spark's configuration (``spark.master`` in spark-defaults.conf or PYSPARK_SUBMIT_ARGS, or
    SPARK_REMOTE), otherwise ``local_session``.
    """
    require_pyspark()
    from pyspark.sql import SparkSession

    remote = master if master is not None else os.environ.get("SPARK_REMOTE", "")
    if remote.startswith("sc://") or (master is None and remote):
        origin = "as --master says" if master is not None else "as SPARK_REMOTE says"
        return _begun(SparkSession.builder.remote(remote), remote, _answers), f"Spark Connect at {remote}, {origin}"
    _require_local()
    origin = "as --master says"
    if master is None:
        master, origin = _configured("spark.master"), "as spark.master of Spark's configuration says"
        if master in ("", "local[*]"):
            session = local_session(app_name=app_name)
            return (
                session,
                f"a local Spark, {session.sparkContext.master}: choose another with --master or spark.master",
            )
    chosen = _LOCAL if master.startswith("local") else _QUIET
    free = {key: value for key, value in chosen.items() if not _configured(key)}
    builder = SparkSession.builder.master(master).appName(app_name).config(map=free)
    return _begun(builder, master), f"Spark at {master}, {origin}"


def _begun(builder: Any, master: str, check: Callable[[Any], None] = lambda _: None) -> SparkSession:
    try:
        session: SparkSession = builder.getOrCreate()
        check(session)
    except Exception as error:
        reason = cause(error).rstrip(".")
        remedy = "Correct --master or spark.master, or start it"
        if "PACKAGE_NOT_INSTALLED" in reason or isinstance(error, ImportError):
            remedy = "pip install 'persistent-monoids[connect]'"
        raise InvalidPipeline(f"no Spark answers at {master}: {reason}. {remedy}") from error
    return session


def _answers(session: Any) -> None:
    """Send the Connect server a request, with few retries: by default its client would try a wrong address for ten
    minutes. A session without an answer is stopped now: with its own retries, stopping it takes as long."""
    from pyspark.sql.connect.client.retries import DefaultPolicy

    patient = session.client.get_retry_policies()
    session.client.set_retry_policies([DefaultPolicy(max_retries=_FIRST_TRIES)])
    try:
        session.conf.get("spark.master", "")
    except Exception:
        session.stop()
        raise
    finally:
        session.client.set_retry_policies(patient)


def _configured(key: str) -> str:
    """A value of Spark's configuration, which is read when its Java starts."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return str(SparkConf().get(key, ""))


def _lack() -> tuple[str, str]:
    """What the engine lacks in this Python, and the remedy; both "" if nothing."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        return "no PySpark found", _INSTALL
    try:
        from pyspark import __version__ as version
    except Exception as error:
        return f"PySpark cannot be imported ({type(error).__name__}: {error})", f"repair it, or {_INSTALL}"
    if int(version.partition(".")[0]) < _OLDEST:
        return f"PySpark is {version} here, and has to be {_OLDEST}.0 or later", f"in another environment, {_INSTALL}"
    if find_spec("pandas") is None:
        return "no pandas found, which PySpark needs", "pip install 'pandas>=2.2,<3'"
    return "", ""


def _local_lack() -> tuple[str, str]:
    """Likewise what a local Spark lacks where there is a PySpark."""
    from pyspark.util import is_remote_only

    if is_remote_only():
        what = "the installed PySpark is a client of Spark Connect, without a Spark of its own"
        return what, f"name a server with --master sc://host:15002; or {_INSTALL}"
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=os.path.join(home, "bin") if home else None) is None:
        what = "no Java found (in JAVA_HOME or on the path)"
        return what, "install Java 17 or 21 (Debian: apt-get install openjdk-17-jre-headless)"
    return "", ""


def _require_local() -> None:
    require_pyspark()
    _require(*_local_lack())


def _require(what: str, remedy: str) -> None:
    if what:
        raise InvalidPipeline(f"{what}: {remedy}; or {_EMBEDDED}")


def cause(error: Exception) -> str:
    """The line of a Spark error that states its cause."""
    text = str(error).partition("\n\nJVM stacktrace")[0]
    if details := _DETAILS.search(text):
        return details[1]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if not line.startswith(("at ", "SQLSTATE:"))]
    return causes[-1] if causes else type(error).__name__
