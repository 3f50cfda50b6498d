"""The Spark engine is one Spark job a ``map``: the only module that imports pyspark.

A job is ``range(n).mapInArrow(work).toArrow()``: no shuffle, and rows only as pickled results. So it is of
the DataFrame API, over Spark Connect too. Its cost before any work is done decides how small steps can be:

- On classic Spark the plan of a function is built once; the items travel in a local property, unless large.
- A task works first and reads its (one-row) input last: reading it first waits 40 ms on a TCP socket.
- PySpark's workers collect garbage after every task; frozen modules are not traversed.
"""

from __future__ import annotations

import base64
import functools
import gc
import io
import os
import pickle
import shutil
import site
import sys
import sysconfig
import traceback
import types
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, TypeVar

import cloudpickle
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from persistent.errors import EngineError, InvalidPipeline, PersistentError
from persistent.storage import Storage, open_storage

T = TypeVar("T")
R = TypeVar("R")

_RESULTS = StructType([StructField("item", LongType(), False), StructField("result", BinaryType(), False)])
_ITEMS_PROPERTY = "persistent.items"
_FUNCTIONS_KEPT = 4
_ATTEMPTS = 4
_JOBS_AT_ONCE = 4
_PROPERTY_BYTES_MAX = 1 << 18
_CANCEL_SECONDS = 10


class Spark:
    """Works on the executors of ``session``, classic or Connect. The session stays the user's: ``stop``
    leaves it.

    On classic Spark the session's workers run the driver's Python (``sys.executable``); on a cluster an
    interpreter that the user has named (``PYSPARK_PYTHON``, ``spark.pyspark.python``) is kept.

    ``map`` pickles a function once: pass the same object each time, and do not change it in between.
    """

    name = "spark"
    in_process = False

    def __init__(self, session: Any) -> None:
        self.session = session
        self._context = _classic_context(session)
        self._shipped: OrderedDict[int, _Shipped] = OrderedDict()
        self._tag = f"persistent-{uuid.uuid4().hex}"
        self._threads: ThreadPoolExecutor | None = None
        if self._context is not None and (self.is_local or not _python_named(session)):
            self._context.pythonExec = sys.executable

    def __repr__(self) -> str:
        return f"Spark({self._master or 'Spark Connect'})"

    @functools.cached_property
    def parallelism(self) -> int:
        """How many tasks run at once, as far as Spark tells."""
        if self._context is not None:
            return int(self._context.defaultParallelism)
        numbered = self.session.range(0, 1 << 16).selectExpr("spark_partition_id() as partition")
        return int(numbered.selectExpr("max(partition) + 1 as count").toArrow()["count"][0].as_py())

    @property
    def is_local(self) -> bool:
        """Whether the workers run on this machine."""
        if self._context is None and not _is_this_machine(self.session):
            return False
        return self._master.startswith("local")

    def check(self, storages: Sequence[str | Storage]) -> None:
        """Raise InvalidPipeline if workers cannot reach one of the storages, or do not have this package."""
        for url in storages:
            storage = open_storage(url)
            if not storage.shared:
                raise InvalidPipeline(
                    f"{storage.url} lives in this process, out of reach of Spark's workers. Use a path or s3:// or "
                    "hdfs://, or run with engine=Embedded()."
                )
            if storage.local and not self.is_local:
                raise InvalidPipeline(
                    f"{storage.url} is a path of this machine, but the workers of {self!r} run on others. Use a store "
                    "that all of them reach: s3://bucket/folder or hdfs://namenode/folder."
                )
        if not self.is_local:
            self._check_package()

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """``[function(item) for item in items]``, in as many tasks as run at once; see ``Engine.map``.

        Starting a task costs more than a small item, so a task has several where there are more items than
        tasks. An interrupt cancels the job; its Python workers may go on for some seconds.
        """
        if not items:
            return []
        tasks = min(len(items), self.parallelism)
        shipped = self._ship(function)
        sent = [_dumps(items[task::tasks]) for task in range(tasks)]
        table = self._interruptible(shipped, sent)
        numbers, answers = table["item"].to_pylist(), table["result"]
        if sorted(numbers) != list(range(tasks)):
            raise EngineError(f"{self!r} returned results of tasks {numbers} of {tasks}: report this as a bug")
        ordered: list[Any] = [None] * len(items)
        for task, answer in sorted(zip(numbers, answers), key=lambda pair: pair[0]):
            succeeded, results = pickle.loads(answer.as_buffer())
            if not succeeded:
                raise results
            ordered[task::tasks] = results
        return ordered

    def stop(self) -> None:
        """Forget the plans and end our threads; the session stays. A later ``map`` starts anew."""
        self._shipped.clear()
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None

    @property
    def _master(self) -> str:
        if self._context is not None:
            return str(self._context.master)
        return str(self.session.conf.get("spark.master", ""))

    def _ship(self, function: Callable[..., Any]) -> _Shipped:
        """The function as bytes, and what has been built on them."""
        key = id(function)
        if key not in self._shipped:
            # It holds the function too, so that its id is not given to another.
            self._shipped[key] = _Shipped(function, _dumps(function))
            if len(self._shipped) > _FUNCTIONS_KEPT:
                self._shipped.popitem(last=False)
        self._shipped.move_to_end(key)
        return self._shipped[key]

    def _interruptible(self, shipped: _Shipped, items: list[bytes]) -> pa.Table:
        """Run the job on a thread of ours. In the caller's an interrupt would end only when the job has:
        PySpark's clean-up waits for it. And on ours tags and properties of the job do not meet those of the
        user's jobs."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_JOBS_AT_ONCE, "persistent-spark", self._tag_thread)
        job = self._threads.submit(self._run, shipped, items)
        try:
            return job.result()
        except PersistentError:
            raise
        except Exception as error:
            raise EngineError(f"a task failed on {self!r}: {_cause(error)}") from error
        except BaseException:
            self._cancel()
            wait([job], timeout=_CANCEL_SECONDS)
            raise

    def _run(self, shipped: _Shipped, items: list[bytes]) -> pa.Table:
        if self._context is None or sum(map(len, items)) > _PROPERTY_BYTES_MAX:
            return self._frame(_Work(shipped.payload, items), len(items)).toArrow()
        if len(items) not in shipped.frames:
            shipped.frames[len(items)] = self._frame(_Work(shipped.payload, None), len(items))
        self._context.setLocalProperty(_ITEMS_PROPERTY, base64.b64encode(pickle.dumps(items)).decode())
        return shipped.frames[len(items)].toArrow()

    def _tag_thread(self) -> None:
        if self._context is not None:
            self._context.addJobTag(self._tag)
        else:
            self.session.addTag(self._tag)

    def _cancel(self) -> None:
        if self._context is not None:
            self._context.cancelJobsWithTag(self._tag)
        else:
            self.session.interruptTag(self._tag)

    def _frame(self, work: _Work, count: int) -> Any:
        return self.session.range(0, count, 1, count).mapInArrow(work, _RESULTS)

    def _check_package(self) -> None:
        # A function defined in a function is pickled by value: it needs nothing of this package to arrive.
        def has_package(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import importlib.util
            import sys

            import pyarrow

            missing = [name for name in ("monoids", "persistent") if importlib.util.find_spec(name) is None]
            answer = f"{sys.executable} has no package {missing[0]}" if missing else ""
            for _ in batches:
                yield pyarrow.RecordBatch.from_pydict({"answer": [answer]})

        try:
            answer = (
                self.session.range(0, 1, 1, 1).mapInArrow(has_package, "answer string").toArrow()["answer"][0].as_py()
            )
        except Exception as error:
            answer = _cause(error)
        if answer:
            raise InvalidPipeline(
                f"an executor of {self!r} cannot run this package: {answer}. Install persistent-monoids on the "
                "executors, in the Python that PYSPARK_PYTHON names."
            )


class _Shipped:
    """A function, its pickle, and on classic Spark the plans that run it: number of items to DataFrame."""

    def __init__(self, function: Callable[..., Any], payload: bytes) -> None:
        self.function = function
        self.payload = payload
        self.frames: dict[int, Any] = {}


# -- on the workers
# --------------------------------------------------------------------------------------------------


class _Work:
    """What a task does: its item is the one of its partition's number. Without ``items`` they are in a
    local property."""

    def __init__(self, payload: bytes, items: list[bytes] | None) -> None:
        self.payload = payload
        self.items = items

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _freeze_modules(len(sys.modules))
        task = TaskContext.get()
        assert task is not None, "mapInArrow runs inside a task"
        number = task.partitionId()
        result = _attempt(self.payload, (self.items or _items_of(task))[number])
        rows = [row for batch in batches for row in batch.column(0).to_pylist()]
        if rows != [number]:
            raise AssertionError(f"partition {number} of the range holds {rows}")
        yield pa.RecordBatch.from_arrays(
            [pa.array([number], pa.int64()), pa.array([result], pa.binary())], schema=_SCHEMA
        )


_SCHEMA = pa.schema([pa.field("item", pa.int64(), False), pa.field("result", pa.binary(), False)])


def _attempt(payload: bytes, items: bytes) -> bytes:
    """The pickled (True, results), or (False, error) of a PersistentError: raised, it would be tried again."""
    try:
        function = _loaded(payload)
        return _dumps((True, [function(item) for item in pickle.loads(items)]))
    except PersistentError as error:
        trace = traceback.format_exc()
        if error.__cause__ is not None:
            # Causes do not travel.
            error.add_note(f"On the worker:\n{trace}")
        try:
            answer = _dumps((False, error))
            pickle.loads(answer)
        except Exception as unpicklable:
            answer = _dumps((False, EngineError(f"{trace}({type(error).__name__} cannot be pickled: {unpicklable})")))
        return answer


def _items_of(task: Any) -> list[bytes]:
    return list(pickle.loads(base64.b64decode(task.getLocalProperty(_ITEMS_PROPERTY))))


@functools.lru_cache(maxsize=_FUNCTIONS_KEPT)
def _loaded(payload: bytes) -> Callable[[Any], Any]:
    """The function; workers live longer than tasks, and equal bytes are the same function."""
    return pickle.loads(payload)  # type: ignore[no-any-return]


@functools.lru_cache(maxsize=1)
def _freeze_modules(modules: int) -> None:
    """Take what is imported out of the garbage collections to come; again when the number of modules has
    changed."""
    gc.collect()
    gc.freeze()


# -- pickling
# --------------------------------------------------------------------------------------------------------


def ship_by_value(module: types.ModuleType) -> None:
    """Have the classes and functions of ``module`` pickled as code, so that workers need not be able to
    import it.

    So too the modules that it uses in turn, as far as they are no installed packages. Nothing is done for
    an installed one: workers have it, and its classes stay the same objects.
    """
    pending, seen = [module], set()
    while pending:
        module = pending.pop()
        if module.__name__ in seen or _is_installed(module):
            continue
        seen.add(module.__name__)
        if sys.modules.get(module.__name__) is module and module.__name__ != "__main__":
            cloudpickle.register_pickle_by_value(module)
        for value in list(vars(module).values()):
            used = value if isinstance(value, types.ModuleType) else sys.modules.get(_module_of(value))
            if used is not None:
                pending.append(used)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Cloudpickle, shipping by value every class and function it meets that workers may not be able to
    import."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type | types.FunctionType):
            module = sys.modules.get(_module_of(obj))
            if module is not None and not _is_known(module.__name__):
                ship_by_value(module)
        return super().reducer_override(obj)


def _dumps(value: Any) -> bytes:
    out = io.BytesIO()
    try:
        _Pickler(out, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    except PersistentError:
        raise
    except Exception as error:
        raise InvalidPipeline(
            f"{type(value).__name__} cannot be sent to Spark's workers: {error}. What cannot be pickled (an open file, "
            "a connection, a lock) should be made where it is used."
        ) from error
    return out.getvalue()


def _module_of(value: Any) -> str:
    name = getattr(value, "__module__", None)
    return name if isinstance(name, str) else ""


@functools.lru_cache(maxsize=4096)
def _is_known(name: str) -> bool:
    """Whether a module was found installed, or has been seen to by ``ship_by_value`` before."""
    module = sys.modules[name]
    return _is_installed(module) or name in cloudpickle.list_registry_pickle_by_value()


def _is_installed(module: types.ModuleType) -> bool:
    name = module.__name__.partition(".")[0]
    if name in ("monoids", "persistent") or name in sys.builtin_module_names or name in sys.stdlib_module_names:
        return True
    if name == "__main__" or getattr(module, "__spec__", None) is None:
        return False
    # A folder without __init__.py is a module that has only paths.
    places = [module.__file__] if getattr(module, "__file__", None) else list(getattr(module, "__path__", ()))
    return all(os.path.realpath(place).startswith(_installed_folders()) for place in places if place)


@functools.lru_cache(maxsize=1)
def _installed_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    folders = [paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    folders += [*site.getsitepackages(), site.getusersitepackages()]
    return tuple(os.path.realpath(folder) + os.sep for folder in folders)


# -- sessions
# --------------------------------------------------------------------------------------------------------


def java_found() -> bool:
    """Whether this machine has a Java for Spark to start: in ``JAVA_HOME``, or on the path."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=os.path.join(home, "bin") if home else None) is not None


def local_session(cores: int | None = None, app_name: str = "persistent") -> SparkSession:
    """A Spark in this process tree, quiet and with short steps. InvalidPipeline without Java.

    ``cores``: tasks at once (default: all processors). A task is tried four times.
    """
    if not java_found():
        raise InvalidPipeline(
            "Spark needs Java, and neither JAVA_HOME nor the path has one. Install Java 17 or 21 (Debian: "
            "apt-get install openjdk-17-jre-headless), or run with --engine embedded, in Python: engine=Embedded()."
        )
    builder = SparkSession.builder.master(f"local[{cores or os.cpu_count() or 1},{_ATTEMPTS}]").appName(app_name)
    return builder.config(map=_LOCAL).getOrCreate()


_LOCAL: dict[str, bool | float | int | str | None] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.adaptive.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def _classic_context(session: Any) -> Any:
    """The SparkContext of a classic session; None over Connect, which has none."""
    return getattr(session, "sparkContext", None)


def _is_this_machine(session: Any) -> bool:
    """Whether a Connect server runs here."""
    return str(session.client.host) in ("localhost", "127.0.0.1", "::1")


def _python_named(session: Any) -> bool:
    return "PYSPARK_PYTHON" in os.environ or session.conf.get("spark.pyspark.python", None) is not None


def _cause(error: Exception) -> str:
    """The line of a Spark error that says what went wrong."""
    text = str(error).partition("\n\nJVM stacktrace")[0]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(("at ", "SQLSTATE:"))]
    return told[-1] if told else type(error).__name__
