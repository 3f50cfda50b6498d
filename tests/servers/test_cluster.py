"""On a cluster: what its workers cannot do is refused by name; what they do is exact, whichever of them is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.servers.cluster import Cluster
from tests.servers.s3 import S3Server

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
ROWS = 3000


def prepare(folder: Path, master: str) -> Path:
    """Write the events, Spark's configuration, a Python for the executors, and a package that cannot be imported.
    The Python leaves a file when it is used."""
    events = folder / "events"
    events.mkdir()
    for part in range(3):
        rows = [json.dumps({"ts": n, "page": f"p{n % 7}"}) for n in range(part * 1000, part * 1000 + 1000)]
        (events / f"{part}#x.jsonl").write_text("\n".join(rows) + "\n")
    python = folder / "named-python"
    python.write_text(f'#!/bin/sh\ntouch {folder}/used\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (folder / "without" / "hdfs_native").mkdir(parents=True)
    missing = "raise ModuleNotFoundError(\"No module named 'hdfs_native'\", name='hdfs_native')\n"
    (folder / "without" / "hdfs_native" / "__init__.py").write_text(missing)
    settings = {"spark.master": master, "spark.pyspark.python": str(python), "spark.executor.memory": "512m"}
    settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false"}
    (folder / "conf").mkdir()
    (folder / "conf" / "spark-defaults.conf").write_text("".join(f"{k} {v}\n" for k, v in settings.items()))
    return folder


def drive(standalone: Cluster, folder: Path, bucket: str) -> dict[str, str]:
    """What the driver answers; it is told which executors there are."""
    root = str(Path(__file__).parents[2])
    environment = {k: v for k, v in os.environ.items() if k not in ("PYSPARK_PYTHON", "SPARK_REMOTE")}
    environment |= {**standalone.environment, "SPARK_CONF_DIR": str(folder / "conf"), "PYTHONPATH": root}
    command = [sys.executable, "-m", "tests.servers.on_cluster", str(folder), bucket]
    with (folder / "driver.log").open("wb") as log:
        driver = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment, text=True
        )
    assert driver.stdin is not None and driver.stdout is not None
    last = ""
    for line in driver.stdout:
        if line.startswith("executors?"):
            driver.stdin.write(json.dumps(standalone.executors()) + "\n")
            driver.stdin.flush()
        last = line
    assert driver.wait() == 0, (folder / "driver.log").read_text()[-4000:]
    answer: dict[str, str] = json.loads(last)
    return answer


def test_a_cluster_is_exact_and_says_what_its_workers_lack(
    standalone: Cluster, tmp_path: Path, s3_server: S3Server
) -> None:
    """A run went to the driver's own machine whatever was configured; a worker without its files, its client or its
    credentials ended it with an error that told of something else."""
    folder = prepare(tmp_path, standalone.url)
    answer = drive(standalone, folder, s3_server.bucket("cluster"))
    assert answer["said"] == f"Spark at {standalone.url}, as spark.master of Spark's configuration says"
    assert "InvalidPipeline" in answer["local source"] and "shared_mount=True" in answer["local source"]
    assert "InvalidPipeline" in answer["local checkpoint"] and "path of this machine" in answer["local checkpoint"]
    assert (answer["rows"], answer["killed"]) == (str(ROWS), "1")
    assert json.loads(answer["state"]) == Counter(f"p{n % 7}" for n in range(ROWS))
    assert answer["python"] == str(folder / "named-python") and (folder / "used").exists()
    for name, where in (("credentials", "(Met on executor "), ("driver", "(Met on the driver, ")):
        assert "StorageError" in answer[name] and "credentials" in answer[name] and where in answer[name], answer[name]
    missing = answer["no client"]
    assert "InvalidPipeline" in missing and "pip install hdfs-native" in missing and sys.executable in missing, missing
