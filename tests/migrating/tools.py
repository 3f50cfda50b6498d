"""What the pages about migrating run besides this package, fetched once: Kafka Streams, Flink, Bytewax."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.servers import maven
from tests.servers.kafka import VERSION as KAFKA
from tests.servers.processes import java, missing

_FLINK = "2.1.0"
_BYTEWAX = "0.21.1"
_BYTEWAX_UNTIL = (3, 12)
"""The newest Python that it has wheels for."""
_FLINK_PARTS = ("clients", "connector-files", "json", "table-api-java", "table-planner-loader", "table-runtime")
_QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A Java that lives for seconds is done before optimising its code has paid."""
_OPENED = ("java.lang", "java.util", "java.time", "java.net", "java.nio")


def kafka_streams() -> Mapping[str, str]:
    """The environment in which Java knows Kafka Streams and its TopologyTestDriver."""
    java()
    found = maven.jars(f"kafka-streams-{KAFKA}", f"org.apache.kafka:kafka-streams-test-utils:{KAFKA}")
    return {"CLASSPATH": f"{found}/*", "JDK_JAVA_OPTIONS": _QUICK_JAVA}


def flink() -> Mapping[str, str]:
    """The environment in which Java knows Flink and its SQL."""
    java()
    found = maven.jars(f"flink-{_FLINK}", *(f"org.apache.flink:flink-{part}:{_FLINK}" for part in _FLINK_PARTS))
    opened = " ".join(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED)
    return {"CLASSPATH": f"{found}/*", "JDK_JAVA_OPTIONS": f"{_QUICK_JAVA} {opened}"}


def bytewax() -> Mapping[str, str]:
    """The environment in which Python knows Bytewax, apart from the packages of the tests."""
    if sys.version_info[:2] > _BYTEWAX_UNTIL:
        missing(f"Bytewax {_BYTEWAX} has no wheel for this Python", f"use Python {'.'.join(map(str, _BYTEWAX_UNTIL))}")
    cache = maven.cache_folder()
    found = cache / f"bytewax-{_BYTEWAX}-python{sys.version_info[0]}{sys.version_info[1]}"
    if not found.is_dir():
        with tempfile.TemporaryDirectory(dir=cache) as made:
            place = Path(made) / "packages"
            command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
            done = subprocess.run(
                [*command, "--target", str(place), f"bytewax=={_BYTEWAX}"], capture_output=True, text=True, timeout=300
            )
            assert done.returncode == 0, f"Bytewax cannot be had: {done.stderr[-2000:]}"
            maven.keep(place, found)
    return {"PYTHONPATH": str(found)}


def here() -> Mapping[str, str]:
    """The environment of the tests: Spark is part of it."""
    java()
    root = str(Path(__file__).parents[2])
    return {"PYTHONPATH": root, "PYSPARK_PYTHON": sys.executable, "JDK_JAVA_OPTIONS": _QUICK_JAVA}


def run(command: str, folder: Path, environment: Mapping[str, str]) -> None:
    """Run a command of a page to its end."""
    paths = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        env=os.environ | {"PATH": paths} | environment,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
