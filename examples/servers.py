"""A Kafka and a PostgreSQL for an example: in a folder, on free ports of this machine, and gone at its end.

Kafka's jars come from Maven Central, once, into ``~/.cache/persistent-examples``; PostgreSQL's programs from its
package, whose own server is left alone. What is missing is named, with the command that installs it.
"""

import os
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

KAFKA = "4.4.0"
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>none</groupId><artifactId>none</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{KAFKA}</version></dependency>
</dependencies></project>"""
SECONDS_MAX = 240


@contextmanager
def kafka(folder: Path) -> Iterator[str]:
    """A broker that serves; its address."""
    port, controller = free_port(), free_port()
    folder.mkdir(parents=True)
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "log.dirs": str(folder / "data"),
        # What there is one of cannot have three copies.
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
    }
    config = folder / "server.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    java = [program("java", "openjdk-17-jre-headless"), "-Xmx512m", "-cp", f"{kafka_jars()}/*"]
    call([*java, "kafka.tools.StorageTool", "format", "-t", "4L6g3nShT-eMCtK--X86sw", "-c", str(config)])
    with serving([*java, "kafka.Kafka", str(config)], port, folder / "log"):
        yield f"127.0.0.1:{port}"


def kafka_jars() -> Path:
    """The folder of Kafka's jars, fetched if this is the first time."""
    folder = Path.home() / ".cache" / "persistent-examples" / f"kafka-{KAFKA}"
    if not (folder / "jars").is_dir():
        click.echo("fetching the jars of Kafka, once")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pom.xml").write_text(POM)
        maven = program("mvn", "maven")
        call(
            [maven, "-B", "-q", "dependency:copy-dependencies", "-DoutputDirectory=jars", "-f", str(folder / "pom.xml")]
        )
    return folder / "jars"


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """A database that serves; its URL."""
    port, data = free_port(), folder / "data"
    folder.mkdir(parents=True)
    as_user: list[str] = []
    if os.getuid() == 0:
        # The server refuses root.
        as_user = ["setpriv", "--reuid=nobody", f"--regid={pwd.getpwnam('nobody').pw_gid}", "--clear-groups"]
        shutil.chown(folder, "nobody")
    initdb = postgres_program("initdb")
    call([*as_user, initdb, "-D", str(data), "-U", "shop", "--auth=trust", "--no-sync", "--encoding=UTF8"])
    settings = ["listen_addresses=127.0.0.1", f"unix_socket_directories={folder}"]
    words = [word for setting in settings for word in ("-c", setting)]
    command = [*as_user, postgres_program("postgres"), "-D", str(data), "-p", str(port), *words]
    with serving(command, port, folder / "log"):
        yield f"postgresql://shop@127.0.0.1:{port}/postgres"


def postgres_program(name: str) -> str:
    """A program of PostgreSQL, which Debian keeps outside the PATH."""
    kept = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[4]))
    return str(kept[-1]) if kept else program(name, "postgresql")


def program(name: str, package: str) -> str:
    """Where a program is. An error, with the command that installs it, if it is not there."""
    home = os.environ.get("JAVA_HOME") if name == "java" else None
    found = f"{home}/bin/java" if home else shutil.which(name)
    if not found:
        raise click.ClickException(f"there is no {name}: apt-get install {package}")
    return found


@contextmanager
def serving(command: list[str], port: int, log: Path) -> Iterator[None]:
    """A process that takes connections at ``port``; killed at the end."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + SECONDS_MAX
        while not answers(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise click.ClickException(f"{command[0]} does not serve:\n{log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.05)
        yield
    finally:
        process.kill()
        process.wait()


def answers(port: int) -> bool:
    """Whether somebody takes connections at this port of this machine."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    """A port of this machine at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def call(command: list[str]) -> None:
    """Run a command to its end. An error with its last words if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX * 2)
    if done.returncode:
        raise click.ClickException(f"{' '.join(command)[:200]}:\n{(done.stdout + done.stderr)[-3000:]}")
