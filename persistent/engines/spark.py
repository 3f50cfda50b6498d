"""The Spark engine runs one Spark job per ``map``.

A job is ``range(n).mapInArrow(work).toArrow()``: no shuffle, and its rows are pickled results. It uses only the
DataFrame API, so it works over Spark Connect too. Its fixed cost decides how small steps can be:

- On classic Spark a function's plan is built once; items travel in a local property, unless they are large.
- A task works first and reads its (one-row) input last: reading it first waits 40 ms on a TCP socket.
- PySpark's workers collect garbage after every task; frozen modules are not traversed.
"""

from __future__ import annotations

import base64
import functools
import gc
import os
import pickle
import re
import sys
import traceback
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, TypeVar

import pyarrow as pa

from persistent.engines.shipping import dumps
from persistent.engines.spark_session import cause, require_pyspark
from persistent.errors import EngineError, InvalidPipeline, PersistentError
from persistent.storage.opening import open_storage
from persistent.storage.places import Reach
from persistent.storage.protocol import Storage
from persistent.worker.requirements import Needs, needs_of, process, say_where, unfit

T = TypeVar("T")
R = TypeVar("R")

_ITEMS_PROPERTY = "persistent.items"
_FUNCTIONS_KEPT = 4
_ATTEMPTS = 4
_JOBS_AT_ONCE = 4
_PROPERTY_BYTES_MAX = 1 << 18
_CANCEL_SECONDS = 10
_UNFIT = "unfit"
_EXECUTOR = re.compile(r"\(TID \d+\) \((\S+) executor (\S+)\)")
_NO_MEMORY = ("MemoryError", "failed to map segment", "Cannot allocate memory", "exited unexpectedly (crashed)")
_NO_PYTHON = ("No module named", "PYTHON_VERSION_MISMATCH", "Cannot run program", "PACKAGE_NOT_INSTALLED")
_NO_SERVER = ("NO_ACTIVE_SESSION", "SESSION_NOT_FOUND", "SESSION_CHANGED", "SESSION_CLOSED", "UNAVAILABLE")


class Spark:
    """Runs on the executors of ``session``, classic or Connect. ``stop`` leaves the session to the user.

    On classic local Spark, workers run the driver's Python (``sys.executable``); on a cluster the one named by
    ``spark.pyspark.python``, otherwise by ``PYSPARK_PYTHON``. Each worker first checks that it has what the job needs.

    ``map`` pickles a function once: pass the same object each time, and do not change it in between.
    """

    name = "spark"
    in_process = False

    def __init__(self, session: Any) -> None:
        require_pyspark()
        self.session = session
        self._context = _classic_context(session)
        # Looked up once: over Connect this is a request, which fails once the server is lost.
        self._master = str(self._context.master if self._context is not None else session.conf.get("spark.master", ""))
        self._shipped: OrderedDict[int, _Shipped] = OrderedDict()
        self._tag = f"persistent-{uuid.uuid4().hex}"
        self._threads: ThreadPoolExecutor | None = None
        self._needs = self._needs_of(())
        if self._context is not None:
            self._context.pythonExec = self._python()

    def __repr__(self) -> str:
        return f"Spark({self._master or 'Spark Connect'})"

    @functools.cached_property
    def parallelism(self) -> int:
        """The number of tasks that run at once, as Spark reports it."""
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

    def check(self, storages: Sequence[str | Storage], *sources: Any) -> None:
        """InvalidPipeline if workers cannot reach a storage or a source, or lack their requirements."""
        opened = [open_storage(url) for url in storages]
        for storage in opened:
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
        for source in sources:
            self._check_source(source)
        urls = [storage.url for storage in opened]
        places = [place for source in sources if (place := source.url)]
        self._needs = self._needs_of([*urls, *places], places if not self.is_local else [])
        self._shipped.clear()
        if not self.is_local:
            self.map(_nothing, range(self.parallelism))
            # More executors may have joined.
            del self.parallelism

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """``[function(item) for item in items]``, in as many tasks as run at once; see ``Engine.map``.

        Starting a task costs more than a small item, so a task takes several items if there are more items than tasks.
        An interrupt cancels the job; its Python workers may continue for some seconds.
        """
        if not items:
            return []
        tasks = min(len(items), self.parallelism)
        shipped = self._ship(function)
        sent = [dumps(items[task::tasks]) for task in range(tasks)]
        table = self._interruptible(shipped, sent)
        numbers, answers = table["item"].to_pylist(), table["result"]
        if sorted(numbers) != list(range(tasks)):
            raise EngineError(f"{self!r} returned results of tasks {numbers} of {tasks}: report this as a bug")
        ordered: list[Any] = [None] * len(items)
        for task, answer in sorted(zip(numbers, answers), key=lambda pair: pair[0]):
            succeeded, results = pickle.loads(answer.as_buffer())
            if succeeded == _UNFIT:
                raise InvalidPipeline(f"a worker of {self!r} cannot do this work: {results}. {self._whose_python()}")
            if not succeeded:
                raise results
            ordered[task::tasks] = results
        return ordered

    def stop(self) -> None:
        """Drop the plans and end our threads; the session stays. A later ``map`` starts new ones."""
        self._shipped.clear()
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None

    def _ship(self, function: Callable[..., Any]) -> _Shipped:
        """The pickled function, with its plans."""
        key = id(function)
        if key not in self._shipped:
            # The entry keeps the function alive, so that no other function gets its id.
            self._shipped[key] = _Shipped(function, dumps(function))
            if len(self._shipped) > _FUNCTIONS_KEPT:
                self._shipped.popitem(last=False)
        self._shipped.move_to_end(key)
        return self._shipped[key]

    def _interruptible(self, shipped: _Shipped, items: list[bytes]) -> pa.Table:
        """Run the job on a thread of this engine. On the caller's thread, PySpark's clean-up would delay an interrupt
        until the job ends, and the user's jobs would get the tags and properties of this job."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_JOBS_AT_ONCE, "persistent-spark", self._tag_thread)
        job = self._threads.submit(self._run, shipped, items)
        try:
            return job.result()
        except PersistentError:
            raise
        except Exception as error:
            raise self._engine_error(error) from error
        except BaseException:
            self._cancel()
            wait([job], timeout=_CANCEL_SECONDS)
            raise

    def _run(self, shipped: _Shipped, items: list[bytes]) -> pa.Table:
        if self._context is None or sum(map(len, items)) > _PROPERTY_BYTES_MAX:
            return self._frame(shipped.payload, items, len(items)).toArrow()
        if len(items) not in shipped.frames:
            shipped.frames[len(items)] = self._frame(shipped.payload, None, len(items))
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

    def _frame(self, payload: bytes, items: list[bytes] | None, count: int) -> Any:
        work = _work(payload, items, self._needs, not self.is_local)
        return self.session.range(0, count, 1, count).mapInArrow(work, _results())

    def _needs_of(self, urls: Sequence[str], paths: Sequence[str] = ()) -> Needs:
        # A Connect client and its server may have different versions.
        return needs_of(urls, paths, leave_out=() if self._context is not None else ("pyspark",))

    def _check_source(self, source: Any) -> None:
        reach = source.reach
        if reach is Reach.PROCESS:
            raise InvalidPipeline(
                f"{source!r} is in the memory of this process, out of reach of Spark's workers. Use a path or a URL of "
                "a store, or run with engine=Embedded()."
            )
        if reach is Reach.MACHINE and not self.is_local:
            raise InvalidPipeline(
                f"{source!r} is a path of this machine, but the workers of {self!r} run on others. Use a store that "
                "all of them reach (s3://bucket/folder, hdfs://namenode/folder); or, if every machine has mounted the "
                "same files there, say so: a FileSource with shared_mount=True, another source with its reach."
            )

    def _python(self) -> str:
        """The interpreter of classic workers."""
        if self.is_local:
            return sys.executable
        named = self.session.conf.get("spark.pyspark.python", None) or os.environ.get("PYSPARK_PYTHON")
        return str(named or sys.executable)

    def _whose_python(self) -> str:
        if self._context is None:
            return "The workers' Python is the one that PYSPARK_PYTHON names where the Connect server runs."
        return (
            f"The workers' Python is {self._context.pythonExec}: choose another with PYSPARK_PYTHON or "
            "spark.pyspark.python."
        )

    def _engine_error(self, error: Exception) -> PersistentError:
        """Spark's error with the executor it occurred on and, where known, the remedy."""
        text = str(error)
        met = None if self.is_local else _EXECUTOR.search(text)
        where = f" (executor {met[2]} on {met[1]})" if met else ""
        failed = f"a task failed on {self!r}{where}: {cause(error).rstrip('.')}"
        if any(word in text for word in _NO_MEMORY):
            return EngineError(
                f"{failed}. It seems to lack memory: give executors more with spark.executor.memoryOverhead and, "
                "if it is set, spark.executor.pyspark.memory, or run fewer tasks on each"
            )
        if self._context is None and any(word in text for word in _NO_SERVER):
            return EngineError(
                f"{failed}. The Spark Connect server was lost, and this session with it. Nothing of this step is "
                "committed: run again, in a new session"
            )
        if not self.is_local and any(word in text for word in _NO_PYTHON):
            return InvalidPipeline(
                f"{failed}. Give the workers the Python and the packages of the driver. {self._whose_python()}"
            )
        return EngineError(failed)


class _Shipped:
    """A function, its pickle, and on classic Spark the plans that run it: number of items to DataFrame."""

    def __init__(self, function: Callable[..., Any], payload: bytes) -> None:
        self.function = function
        self.payload = payload
        self.frames: dict[int, Any] = {}


@functools.cache
def _results() -> Any:
    """The columns of ``_SCHEMA``, as Spark has them."""
    from pyspark.sql.types import BinaryType, LongType, StructField, StructType

    return StructType([StructField("item", LongType(), False), StructField("result", BinaryType(), False)])


# -- on the workers
# --------------------------------------------------------------------------------------------------


def _work(payload: bytes, items: list[bytes] | None, needs: Needs, remote: bool) -> Callable[..., Any]:
    """The function of a Spark task, pickled by value: it runs, and reports, even if this package is missing or has
    another version. Task n maps ``items[n]``; if ``items`` is None, the items are in a local property of the job."""
    packed, wanted = (needs.versions, needs.modules, needs.paths), dict(needs.versions)["persistent-monoids"]

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import importlib

        try:
            version = importlib.import_module("persistent").__version__
            fault = "" if version == wanted else f"persistent-monoids is {version} there, but {wanted} on the driver"
            if not fault:
                from persistent.engines.spark import run_items
        except (ImportError, MemoryError) as error:
            short = isinstance(error, MemoryError) or "failed to map segment" in str(error)
            fault = f"it cannot import persistent{', for lack of memory' if short else ''}: {error}"
        if not fault:
            yield from run_items(payload, items, packed, remote, batches)
            return
        import pickle
        import socket
        import sys

        import pyarrow
        from pyspark import TaskContext

        number = TaskContext.get().partitionId()  # type: ignore[union-attr]
        failed = f"{socket.gethostname()}, {sys.executable}: {fault}. Install persistent-monoids=={wanted} there"
        for _ in batches:
            pass
        yield pyarrow.RecordBatch.from_pydict({"item": [number], "result": [pickle.dumps(("unfit", failed))]})

    return work


def run_items(
    payload: bytes,
    items: list[bytes] | None,
    needs: tuple[Any, Any, Any],
    remote: bool,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """The result of a Spark task, on a worker that has this package."""
    _freeze_modules(len(sys.modules))
    from pyspark import TaskContext

    task = TaskContext.get()
    assert task is not None, "mapInArrow runs inside a task"
    number = task.partitionId()
    fault = unfit(Needs(*needs))
    if fault:
        result = pickle.dumps((_UNFIT, f"{process()}: {fault}"))
    else:
        result = _attempt(payload, (items or _items_of(task))[number], f"executor {process()}" if remote else "")
    rows = [row for batch in batches for row in batch.column(0).to_pylist()]
    if rows != [number]:
        raise AssertionError(f"partition {number} of the range holds {rows}")
    yield pa.RecordBatch.from_arrays([pa.array([number], pa.int64()), pa.array([result], pa.binary())], schema=_SCHEMA)


_SCHEMA = pa.schema([pa.field("item", pa.int64(), False), pa.field("result", pa.binary(), False)])


def _attempt(payload: bytes, items: bytes, where: str) -> bytes:
    """The pickled (True, results), or (False, PersistentError): a raised error would be retried."""
    try:
        function = _loaded(payload)
        return dumps((True, [function(item) for item in pickle.loads(items)]))
    except PersistentError as error:
        trace = traceback.format_exc()
        if where:
            say_where(error, where)
        if error.__cause__ is not None:
            # A pickled error loses its cause.
            error.add_note(f"On the worker:\n{trace}")
        try:
            answer = dumps((False, error))
            pickle.loads(answer)
        except Exception as unpicklable:
            answer = dumps((False, EngineError(f"{trace}({type(error).__name__} cannot be pickled: {unpicklable})")))
        return answer


def _nothing(item: Any) -> None:
    """The item of a check: the worker only proves that it is fit."""


def _items_of(task: Any) -> list[bytes]:
    return list(pickle.loads(base64.b64decode(task.getLocalProperty(_ITEMS_PROPERTY))))


@functools.lru_cache(maxsize=_FUNCTIONS_KEPT)
def _loaded(payload: bytes) -> Callable[[Any], Any]:
    """The function, cached: workers outlive tasks, and equal bytes are the same function."""
    return pickle.loads(payload)  # type: ignore[no-any-return]


@functools.lru_cache(maxsize=1)
def _freeze_modules(modules: int) -> None:
    """Exclude imported modules from later garbage collections; again after more were imported."""
    gc.collect()
    gc.freeze()


def _classic_context(session: Any) -> Any:
    """The SparkContext of a classic session; None over Connect, which has none."""
    return getattr(session, "sparkContext", None)


def _is_this_machine(session: Any) -> bool:
    """Whether the Connect server runs on this machine."""
    return str(session.client.host) in ("localhost", "127.0.0.1", "::1")
