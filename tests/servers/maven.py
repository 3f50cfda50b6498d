"""Jars of Maven Central are fetched once, and kept in ``~/.cache/persistent-tests``.

``XDG_CACHE_HOME`` says otherwise.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.servers.processes import missing

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>none</groupId><artifactId>none</artifactId><version>1</version>
<dependencies>{}</dependencies></project>
"""
_DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"


def jars(name: str, *dependencies: str) -> Path:
    """The folder of that name, with the jars of ``group:artifact:version`` and all that they need, fetched if this is
    the first time."""
    cache = cache_folder()
    found = cache / name
    if not found.is_dir():
        maven = shutil.which("mvn")
        if not maven:
            missing(f"no Maven found, which fetches {name}", "apt-get install maven")
        with tempfile.TemporaryDirectory(dir=cache) as made:
            listed = "\n".join(_DEPENDENCY.format(*one.split(":")) for one in dependencies)
            (Path(made) / "pom.xml").write_text(_POM.format(listed))
            command = [maven, "-B", "-q", "dependency:copy-dependencies", "-DoutputDirectory=jars"]
            done = subprocess.run(command, cwd=made, capture_output=True, text=True, timeout=600)
            assert done.returncode == 0, f"the jars of {name} cannot be had: {done.stdout[-2000:]}"
            keep(Path(made) / "jars", found)
    return found


def cache_folder() -> Path:
    """Where fetched tools are kept between runs."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "persistent-tests"
    cache.mkdir(parents=True, exist_ok=True)
    return cache


def keep(made: Path, found: Path) -> None:
    """Move what was fetched to its place, unless another test run was faster."""
    try:
        made.rename(found)
    except OSError:
        assert found.is_dir()
