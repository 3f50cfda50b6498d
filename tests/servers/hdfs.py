"""An HDFS of one machine is a NameNode and a DataNode of Apache Hadoop 2.7.3, two processes killed one by one.

Their jars are those that the source distribution of PySpark 2.4.8 carries. They are fetched once with pip,
which checks the SHA-256 below before it looks inside, and are kept in ``~/.cache/persistent-tests``
(``XDG_CACHE_HOME`` says otherwise). Java 17 runs them with a few packages opened.

    python -m tests.servers.hdfs        fetches the jars and serves until it is interrupted
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from tests.servers.processes import START_SECONDS, Server, free_port, java

_SDIST = "pyspark==2.4.8"
_SHA256 = "3a19b71b8dc8dd91ebc943604a05e1ab01bce052456d42937035632d852d78dc"
_BUILD = ("setuptools==75.8.0", "wheel==0.45.1")
_JARS = """
    commons-cli-1.2 commons-codec-1.10 commons-collections-3.2.2 commons-configuration-1.6 commons-io-2.4
    commons-lang-2.6 commons-logging-1.1.3 guava-14.0.1 hadoop-annotations-2.7.3 hadoop-auth-2.7.3
    hadoop-common-2.7.3 hadoop-hdfs-2.7.3 htrace-core-3.1.0-incubating jackson-core-asl-1.9.13
    jackson-mapper-asl-1.9.13 javax.servlet-api-3.1.0 javax.ws.rs-api-2.0.1 jetty-6.1.26 jetty-util-6.1.26
    jsp-api-2.1 leveldbjni-all-1.8 log4j-1.2.17 netty-3.9.9.Final netty-all-4.1.47.Final protobuf-java-2.5.0
    slf4j-api-1.7.16 slf4j-log4j12-1.7.16 xercesImpl-2.9.1 xmlenc-0.52
"""
_OPENED = ("java.base/java.lang", "java.base/java.nio", "java.base/sun.nio.ch", "java.security.jgss/sun.security.krb5")
_LOGGING = """log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %c: %m%n
"""
_IMPATIENT = {
    "dfs.client.failover.max.attempts": "4",
    "dfs.client.failover.sleep.base.millis": "100",
    "dfs.client.failover.sleep.max.millis": "500",
}
_NAME_NODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
_DATA_NODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"


def jars() -> Path:
    """The folder of the jars, fetched if this is the first time."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "persistent-tests"
    found = cache / f"hadoop-{_SHA256[:16]}"
    if not found.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as made:
            folder = Path(made)
            _unpack(_fetch(folder), folder / "jars")
            try:
                (folder / "jars").rename(found)
            except OSError:
                # Another test run was faster.
                assert found.is_dir()
    return found


def _fetch(folder: Path) -> Path:
    """The source distribution. pip runs its setup for the metadata: so that needs the setuptools of its time."""
    environment = os.environ | {"PYTHONPATH": str(folder / "build")}
    _pip(["install", "--target", str(folder / "build"), "--no-deps", *_BUILD], os.environ)
    (folder / "pinned.txt").write_text(f"{_SDIST} --hash=sha256:{_SHA256}\n")
    words = ["--require-hashes", "--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--dest", str(folder)]
    _pip(["download", *words, "--requirement", str(folder / "pinned.txt")], environment)
    return next(folder.glob("pyspark-*.tar.gz"))


def _pip(words: list[str], environment: Mapping[str, str]) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"the jars of Hadoop cannot be had: {done.stderr[-2000:]}"


def _unpack(sdist: Path, folder: Path) -> None:
    folder.mkdir()
    wanted = {f"{name}.jar" for name in _JARS.split()}
    with tarfile.open(sdist) as archive:
        for member in archive:
            name = member.name.rpartition("/")[2]
            if name in wanted and (data := archive.extractfile(member)) is not None:
                (folder / name).write_bytes(data.read())
                wanted.discard(name)
    assert not wanted, f"{sdist.name} lacks {sorted(wanted)}"


class HdfsServer:
    """A NameNode and a DataNode over ``folder``. Their ports stay the same when they are started again."""

    def __init__(self, folder: Path) -> None:
        ports = [free_port() for _ in range(5)]
        self.authority = f"127.0.0.1:{ports[0]}"
        self._folder = folder
        self._configure(ports)
        self.name_node = Server([*self._java(), _NAME_NODE], ports[0], folder / "namenode.log")
        self.data_node = Server([*self._java(), _DATA_NODE], ports[1], folder / "datanode.log")

    def url(self, path: str) -> str:
        """``hdfs://127.0.0.1:PORT/path``."""
        return f"hdfs://{self.authority}/{path.lstrip('/')}"

    @property
    def environment(self) -> dict[str, str]:
        """What a client needs: nothing, but that it gives a dead NameNode up after a second and not after three
        minutes."""
        return {"HADOOP_CONF_DIR": str(self._folder / "client")}

    def start(self) -> None:
        """Make the file system, and wait until it takes files."""
        command = [*self._java(), _NAME_NODE, "-format", "-nonInteractive"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=START_SECONDS)
        assert done.returncode == 0, done.stderr[-3000:]
        self.name_node.start()
        self.data_node.start()
        self.wait()

    def wait(self) -> None:
        """Return when the file system takes a file and gives it back."""
        from hdfs_native.fsspec import HdfsFileSystem

        self.name_node.wait()
        self.data_node.wait()
        host, _, port = self.authority.partition(":")
        deadline = time.monotonic() + START_SECONDS
        while True:
            files: Any = HdfsFileSystem(host=host, port=int(port), skip_instance_cache=True, **_IMPATIENT)
            try:
                files.pipe_file("/probe", b"there")
                assert files.cat_file("/probe") == b"there"
                return
            except Exception:
                # In safe mode, or the DataNode is not known yet.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def restart(self, node: Server) -> None:
        """Start a node that was killed, and wait until files are taken again."""
        node.start()
        self.wait()

    def stop(self) -> None:
        """Kill both: what they hold is of no use."""
        self.data_node.kill()
        self.name_node.kill()

    def _java(self) -> list[str]:
        small = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        opened = [word for package in _OPENED for word in ("--add-opens", f"{package}=ALL-UNNAMED")]
        return [java(), *small, *opened, "-cp", f"{self._folder / 'conf'}{os.pathsep}{jars()}/*"]

    def _configure(self, ports: list[int]) -> None:
        conf = self._folder / "conf"
        settings = {
            "fs.defaultFS": f"hdfs://{self.authority}",
            "hadoop.tmp.dir": str(self._folder / "tmp"),
            "dfs.namenode.name.dir": (self._folder / "name").as_uri(),
            "dfs.namenode.http-address": f"127.0.0.1:{ports[2]}",
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            "dfs.datanode.data.dir": (self._folder / "data").as_uri(),
            "dfs.datanode.address": f"127.0.0.1:{ports[1]}",
            "dfs.datanode.http.address": f"127.0.0.1:{ports[3]}",
            "dfs.datanode.ipc.address": f"127.0.0.1:{ports[4]}",
            "dfs.datanode.hostname": "127.0.0.1",
            "dfs.heartbeat.interval": "1",
            # A DataNode that was killed is given up after (2 * this + 10 heartbeats), here in 12 seconds.
            "dfs.namenode.heartbeat.recheck-interval": "1000",
            "dfs.replication": "1",
            "dfs.safemode.extension": "0",
            "dfs.webhdfs.enabled": "false",
        }
        for name in ("hdfs", "datanode"):
            page = conf / "webapps" / name / "WEB-INF" / "web.xml"
            page.parent.mkdir(parents=True)
            page.write_text("<web-app/>")
        client = self._folder / "client"
        client.mkdir()
        for file in (conf / "core-site.xml", conf / "hdfs-site.xml", client / "core-site.xml"):
            named = _IMPATIENT if file.parent == client else settings
            lines = [f"<property><name>{k}</name><value>{escape(v)}</value></property>" for k, v in named.items()]
            file.write_text(f"<configuration>{''.join(lines)}</configuration>")
        (conf / "log4j.properties").write_text(_LOGGING)


@contextmanager
def hdfs_server() -> Iterator[HdfsServer]:
    """An HDFS that serves, empty; nothing of it is left afterwards."""
    with tempfile.TemporaryDirectory(prefix="hdfs-", ignore_cleanup_errors=True) as folder:
        server = HdfsServer(Path(folder))
        try:
            server.start()
            yield server
        finally:
            server.stop()


if __name__ == "__main__":
    with hdfs_server() as served:
        print(served.url(""), flush=True)
        signal.pause()
