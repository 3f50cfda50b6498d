"""The engine keeps its contract over Spark Connect: the tests of the classic one, through a server of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engines.test_shipping import (  # noqa: F401
    test_a_class_of_a_script_is_shipped,
    test_values_of_every_kind_travel,
    test_what_cannot_be_shipped_is_named,
)
from tests.engines.test_spark import (  # noqa: F401
    attempts,
    test_a_task_that_always_fails_is_an_engine_error,
    test_a_task_that_fails_once_is_tried_again,
    test_a_worker_killed_is_replaced,
    test_an_error_that_cannot_travel_is_told_in_words,
    test_errors_of_ours_keep_their_type_and_are_not_repeated,
    test_every_worker_is_asked_on_first_use,
    test_one_function_serves_step_after_step,
    test_places_that_workers_cannot_reach_are_refused,
    test_results_come_in_the_order_of_the_items,
    test_storage_travels,
    test_user_errors_of_the_package_are_not_wrapped,
    test_work_is_done_by_other_processes_of_the_same_python,
)
from tests.servers.connect import ConnectServer, connect_server
from tests.servers.drivers import spark_home
from tests.servers.processes import free_port

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    folder = tmp_path_factory.mktemp("connect")
    with connect_server(folder, spark_home(folder), "local[2,4]", sys.executable) as server:
        yield server


@pytest.fixture(scope="module")
def engine(server: ConnectServer) -> Iterator[Any]:
    from pyspark.sql.connect.session import SparkSession

    from persistent.engines.spark import Spark

    # Not getOrCreate: a classic session of other tests may be there.
    session = SparkSession.builder.remote(server.url).create()
    yield Spark(session)
    session.stop()


def test_an_interrupt_frees_the_workers(engine: Any, tmp_path: Path) -> None:
    """Ctrl-C would leave tasks on the server that the next run has to wait for."""

    def work(item: int) -> None:
        attempts(tmp_path, item)
        time.sleep(600)

    def interrupt() -> None:
        while not all((tmp_path / f"attempts-{item}").exists() for item in range(2)):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Thread(target=interrupt, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            engine.map(work, range(2))
    finally:
        signal.signal(signal.SIGINT, before)
    assert engine.map(lambda item: item + 1, range(2)) == [1, 2]


JOB = """
from persistent import *
from monoids import Count

class Visits(PersistentTask):
    key = "page"
    def persistent_state(self):
        return NonWindowState(Count())
    def process_message(self, state, message):
        state.update(message.timestamp, 1)

job = Pipeline(source=FileSource("events.jsonl", timestamp="ts", timestamp_unit="ms"), task=Visits(), checkpoint="to")
"""


def test_the_client_of_spark_connect_alone_is_enough(server: ConnectServer, tmp_path: Path) -> None:
    """Importing the engine failed, as that PySpark has no SparkContext."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path / "client")]
    subprocess.run([*pip, "pyspark-client==4.2.0"], check=True, timeout=300)
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "events.jsonl").write_text("".join(f'{{"ts": {n}, "page": "p{n % 2}"}}\n' for n in range(5)))
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "client")}

    def persistent(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "persistent", *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    assert f"running on Spark Connect at {server.url}" in persistent("run", "job.py:job", "--master", server.url)
    assert [
        line.split()[:2]
        for line in persistent("state", "job.py:job").splitlines()
        if line[:1] == "p" and line[1:2].isdigit()
    ] == [
        ["p0", "3"],
        ["p1", "2"],
    ]
    found = persistent("run", "job.py:job")
    assert "a client of Spark Connect, without a Spark of its own: running on the embedded engine" in found


def test_a_server_that_is_not_there_is_told_soon(tmp_path: Path) -> None:
    """A wrong port: PySpark asks it for ten minutes, and the command says nothing."""
    (tmp_path / "job.py").write_text(
        "from persistent import *\nfrom monoids import Count\n"
        "class Visits(PersistentTask):\n    key = None\n    def persistent_state(self):\n"
        "        return NonWindowState(Count())\n    def process_message(self, state, message):\n        pass\n"
        "job = Pipeline(source=FileSource('events', timestamp='ts'), task=Visits(), checkpoint='checkpoint')\n"
    )
    words = [sys.executable, "-m", "persistent", "run", "job.py:job", "--master", f"sc://127.0.0.1:{free_port()}"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1 and "no Spark answers at sc://127.0.0.1" in done.stderr, done.stderr
    assert "failed to connect to all addresses" in done.stderr, done.stderr


def test_a_client_without_its_packages_is_told_which(tmp_path: Path) -> None:
    """PySpark names one of four packages, and not how to get all."""
    script = tmp_path / "client.py"
    script.write_text(
        "import sys\nsys.modules['grpc'] = None\n"
        "from persistent.engines.spark_session import session_at\nsession_at('sc://127.0.0.1:1')\n"
    )
    words = [sys.executable, str(script)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert "pip install 'persistent-monoids[connect]'" in done.stderr, done.stderr


def test_the_session_stays_the_users(engine: Any) -> None:
    """The user's own jobs would be cancelled with ours."""
    engine.map(lambda item: item, range(2))
    assert not [tag for tag in engine.session.getTags() if tag.startswith("persistent")]
    assert engine.session.range(3).count() == 3
