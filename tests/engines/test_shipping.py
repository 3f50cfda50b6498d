"""What a function needs is shipped to workers."""

from __future__ import annotations

import importlib
import importlib.util
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from persistent.engines import shipping
from persistent.errors import InvalidPipeline

pytestmark = pytest.mark.spark


def load(path: Path, name: str) -> types.ModuleType:
    """Run a file as a module that nobody else can import, as a command line does."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_values_of_every_kind_travel(engine: Any) -> None:
    """Plans go there and descriptors come back; large ones through other channels than small ones."""
    table = pa.table({"a": [1, None], "b": ["x", "ä"]})
    items = [table, np.arange(3), {"x": (1, b"\x00\xff", None)}, "ä" * 1000, b"z" * 3_000_000]
    results = engine.map(lambda item: (item, pickle.dumps(item)), items)
    assert results[0][0].equals(table)
    assert results[1][0].tolist() == [0, 1, 2]
    assert [result[0] for result in results[2:]] == items[2:]


def test_a_class_of_a_script_is_shipped(engine: Any, tmp_path: Path) -> None:
    """Tasks live in scripts, which executors cannot import; neither can they what the script imports beside
    it."""
    (tmp_path / "beside_it.py").write_text("class Factor:\n    value = 7\n")
    (tmp_path / "a_script.py").write_text(
        textwrap.dedent(
            """
            import collections
            from beside_it import Factor
            import beside_it

            class Task:
                def __init__(self):
                    self.seen = collections.Counter()

                def __call__(self, item):
                    self.seen[item] += 1
                    return item * Factor.value + beside_it.Factor.value, self
            """
        )
    )
    sys.path.insert(0, str(tmp_path))
    try:
        task = load(tmp_path / "a_script.py", "a_script").Task()
        results = engine.map(task, [1, 2])
        assert [result for result, _ in results] == [14, 21]
        assert all(type(back) is type(task) for _, back in results)
    finally:
        sys.path.remove(str(tmp_path))
        for name in ("a_script", "beside_it"):
            sys.modules.pop(name, None)


@pytest.mark.check
def test_a_class_of_main_is_shipped(tmp_path: Path) -> None:
    """The classes of a notebook, and of ``python script.py``, live in ``__main__``; the session is the user's."""
    script = tmp_path / "main.py"
    script.write_text(
        textwrap.dedent(
            """
            from pyspark.sql import SparkSession
            from persistent.engines.spark import Spark

            class Task:
                def __call__(self, item):
                    return item + 1

            session = SparkSession.builder.master("local[1]").getOrCreate()
            print(Spark(session).map(Task(), [1, 2]))
            """
        )
    )
    environment = {key: value for key, value in os.environ.items() if key != "PYSPARK_PYTHON"}
    environment["PYTHONPATH"] = os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip().endswith("[2, 3]"), done.stderr[-2000:]


def test_what_cannot_be_shipped_is_named(engine: Any) -> None:
    """A lock in the task: the error of the pickler alone does not say what to do."""
    lock = threading.Lock()
    with pytest.raises(InvalidPipeline, match="where they are used"):
        engine.map(lambda item: lock.locked(), [1])


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    shipping._installed_folders.cache_clear()
    shipping._is_known.cache_clear()
    yield folder
    monkeypatch.undo()
    shipping._installed_folders.cache_clear()
    shipping._is_known.cache_clear()


def test_what_is_installed_as_a_link_is_installed(packages: Path, tmp_path: Path) -> None:
    """Some installers link packages to a cache. They travelled as code, until one was too deep to pickle: a task that
    returned an array ended with "excessively deep recursion"."""
    stored = tmp_path / "cache" / "a_linked_package"
    stored.mkdir(parents=True)
    (stored / "__init__.py").write_text("class Thing:\n    pass\n")
    (packages / "a_linked_package").symlink_to(stored)
    (tmp_path / "a_users_module.py").write_text("class Thing:\n    pass\n")
    sys.path.insert(0, str(tmp_path))
    try:
        linked = importlib.import_module("a_linked_package")
        own = importlib.import_module("a_users_module")
        assert len(shipping.dumps(linked.Thing)) < 100
        assert len(shipping.dumps(own.Thing)) > 100
    finally:
        for name in ("a_linked_package", "a_users_module"):
            del sys.modules[name]
