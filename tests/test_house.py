"""The house: what may import what, and what every module owes its reader."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

import pytest

from tests.figures import FILES, ROOT, cycles, tree
from tests.mirrors import UNMIRRORED, mirrors, modules

LINES_MAX = 60
MODULE_LINES_MAX = 400
PARAMETERS_MAX = 9
PARAMETERS_BEYOND = {
    "persistent.testing.verifying.verify_task": 11,  # The options of a test, each with a default.
}
"""Of functions, keyword-only parameters counted; constructors and commands have as many as they have options."""

MANIFEST_MODULES_MAX = 30

FLOORS: tuple[tuple[str, ...], ...] = (
    (
        "monoids.decoding",
        "monoids.encoding",
        "monoids.column",
        "monoids.arrays",
        "monoids.groupby.sorting",
        "monoids.text",
        "monoids.html",
        "monoids.on_demand",
    ),
    ("monoids.scalars",),
    (
        "monoids.monoid",
        "monoids.values",
        "monoids.hashing",
        "monoids.groupby.cells",
        "monoids.encoded",
    ),
    (
        "monoids.pairs",
        "monoids.records",
        "monoids.fixed",
        "monoids.ordered",
        "monoids.groupby.grouping",
    ),
    ("monoids.numbers", "monoids.table", "monoids.groupby.sliding"),
    ("monoids.comparing", "monoids.containers", "monoids.groupby.summing", "monoids.groupby.merging"),
    ("monoids.sketches", "monoids.optional", "monoids.combinators"),
    ("monoids",),
    ("monoids.laws",),
    ("persistent.errors",),
    ("persistent.codec", "persistent.serializers"),
    ("persistent.names", "persistent.text"),
    ("persistent.time",),
    ("persistent.storage", "persistent.state"),
    ("persistent.messaging", "persistent.task"),
    ("persistent.log", "persistent.topic", "persistent.offsets", "persistent.connect"),
    ("persistent.sources", "persistent.sinks", "persistent.requests", "persistent.checkpoint"),
    ("persistent.worker",),
    ("persistent.engines",),
    ("persistent.driver",),
    ("persistent.progress", "persistent.metrics", "persistent.explain"),
    ("persistent.notebook",),
    ("persistent.pipeline",),
    ("persistent.verify", "persistent.reading", "persistent.operations", "persistent.testing", "persistent"),
    ("persistent.tools",),
    ("persistent.__main__",),
)
"""From the ground up. Imports point to a lower floor, or to another room of the same floor as long as there is
no circle."""

ROOMS = {
    "codec": "errors",
    "names": "codec",
    "text": "errors codec",
    "time": "errors codec text",
    "storage": "errors codec names time",
    "state": "errors codec text time",
    "messaging": "errors codec storage time",
    "task": "errors names text time storage state",
    "connect": "errors codec names text time storage messaging",
    "requests": "errors storage time connect",
    "checkpoint": "errors codec names text time storage state task connect",
    "worker": "errors codec names text time storage state task connect checkpoint",
    "engines": "errors storage worker.requirements",
    "driver": "errors codec names text time storage state task connect checkpoint worker engines",
    "progress": "errors names text time connect driver metrics",
    "metrics": "errors names text time storage connect checkpoint driver",
    "explain": "errors text time storage state task connect checkpoint worker engines driver",
    "notebook": "errors text time storage task checkpoint worker",
    "verify": "errors codec names text storage connect checkpoint driver pipeline",
    "reading": "errors codec text time storage task connect checkpoint worker driver pipeline",
    "operations": "errors codec names text time storage connect checkpoint worker driver pipeline",
    "tools.serve": "errors codec names text time storage task connect checkpoint worker driver pipeline reading verify",
    "tools.project": "errors text time connect driver pipeline",
}
"""What each room may import of the others."""
NOT_REACHED = {
    "worker": {"checkpoint.log", "checkpoint.copies", "checkpoint.as_of"},
    "engines": {"checkpoint.log", "checkpoint.manifest", "checkpoint.plan"},
    "connect": {"checkpoint.log", "checkpoint.manifest"},
}
"""What a room may not import on any way. A worker works on what its item names, wherever and however often it runs; it
never looks up what the newest checkpoint is."""

ASKING = {"getattr", "hasattr"}
TIME_CALLS = {
    "time",
    "time_ns",
    "monotonic",
    "monotonic_ns",
    "perf_counter",
    "perf_counter_ns",
    "now",
    "utcnow",
    "today",
}
READ_TIME = {"persistent.time.clock", "monoids.laws.budget"}
"""And how long a monoid has been tried, of which no state knows."""
FILE_CALLS = {
    "open",
    "link",
    "unlink",
    "rename",
    "replace",
    "fsync",
    "scandir",
    "listdir",
    "mkdir",
    "makedirs",
    "remove",
}
KNOW_FILES = {"persistent.storage.local", "persistent.connect.files.listing", "persistent.connect.files.walk"}
KNOW_STORES = {
    "persistent.storage.clients",
    "persistent.storage.fsspec_storage",
    "persistent.storage.failures",
    "persistent.storage.s3",
    "persistent.connect.kafka.client",
    "persistent.connect.files.listing",
}
STORE_CLIENTS = {"fsspec", "s3fs", "aiobotocore", "botocore", "hdfs_native", "tenacity"}


@cache
def imports(module: str) -> tuple[tuple[str, bool], ...]:
    """The modules that a module imports, and whether only when a function is called."""
    return tuple(_imports(module))


def _imports(module: str) -> Iterator[tuple[str, bool]]:
    nested = {
        id(inner)
        for node in ast.walk(tree(module))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree(module)):
        late = id(node) in nested
        if isinstance(node, ast.Import):
            yield from ((alias.name, late) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import: write the whole name"
            for alias in node.names:
                inner_name = f"{node.module}.{alias.name}"
                yield (inner_name if inner_name in FILES else str(node.module)), late


def floor(module: str) -> int:
    """The floor of the longest name in the table that the module is, or is below."""
    found = [
        (len(name), number)
        for number, names in enumerate(FLOORS)
        for name in names
        if module == name or (module.startswith(f"{name}.") and name != "persistent")
    ]
    assert found, f"{module} has no floor: give it one in FLOORS"
    return max(found)[1]


@cache
def ours(module: str) -> list[str]:
    return sorted({name for name, _ in imports(module) if name in FILES})


def test_imports_point_down() -> None:
    """A low room that knows a high one cannot be read, tested or replaced without it."""
    for module in FILES:
        above = [name for name in ours(module) if floor(name) > floor(module)]
        assert not above, f"{module} (floor {floor(module)}) imports {above}"


def test_there_is_no_circle() -> None:
    """Also within a floor: modules in a circle are one module in several files."""
    assert cycles() == []


def of_room(room: str) -> list[str]:
    return [name for name in FILES if f"{name}.".startswith(f"persistent.{room}.")]


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_knows_few_others(room: str) -> None:
    """A change in one room would be felt in rooms that have nothing to do with it."""
    allowed = (room, *ROOMS[room].split())
    for module in of_room(room):
        others = [name.removeprefix("persistent.") for name in ours(module) if name.startswith("persistent.")]
        unknown = [name for name in others if not any(f"{name}.".startswith(f"{one}.") for one in allowed)]
        assert not unknown, f"{module} imports {unknown}, which {room} may not know"


def reached(modules: list[str]) -> set[str]:
    """The modules that these import, and those that they import, and so on."""
    found: set[str] = set()
    waiting = list(modules)
    while waiting:
        new = set(ours(waiting.pop())) - found
        found |= new
        waiting += new
    return found


@pytest.mark.parametrize("room", NOT_REACHED)
def test_what_a_room_never_reaches(room: str) -> None:
    """A worker that reads the log acts on what is true now, and not on what its step has planned."""
    hidden = {f"persistent.{name}" for name in NOT_REACHED[room]}
    assert hidden <= FILES.keys()
    assert not hidden & reached(of_room(room))


CONNECTORS = "files kafka rabbitmq postgres sqlite log topic memory function"
"""Rooms and modules of ``persistent.connect`` that know one system each."""
SPEAK_THE_CONTRACT = "checkpoint driver engines explain metrics notebook operations progress reading verify worker"


def is_connector(module: str) -> bool:
    return any(f"{module}.".startswith(f"persistent.connect.{connector}.") for connector in CONNECTORS.split())


def kinds_of_parts() -> dict[str, type]:
    """The public sources and sinks by name; not the classes that they subclass."""
    import persistent.sinks
    import persistent.sources
    from persistent.connect.sink import BatchSink, Sink, StagingSink
    from persistent.connect.source import Source

    public = [getattr(room, name) for room in (persistent.sources, persistent.sinks) for name in room.__all__]
    kinds = [thing for thing in public if inspect.isclass(thing) and issubclass(thing, Source | Sink)]
    return {kind.__name__: kind for kind in kinds if kind not in (Source, Sink, StagingSink, BatchSink)}


def test_whoever_speaks_the_contract_knows_no_connector() -> None:
    """What a driver asks of a FileSink alone, it never asks of a sink of a user's."""
    contract = [name for name in of_room("connect") if name.count(".") == 2 and not is_connector(name)]
    modules = [module for room in SPEAK_THE_CONTRACT.split() for module in of_room(room)]
    assert len(contract) > 10 and len(modules) > 50
    for module in (*contract, *modules):
        assert not [name for name, _ in imports(module) if is_connector(name)], module
        named = {node.id for node in ast.walk(tree(module)) if isinstance(node, ast.Name)}
        assert not named & kinds_of_parts().keys(), module


def test_every_connector_declares_what_it_writes() -> None:
    """A driver would not call a method that is written, or call one that is not."""
    assert len(kinds_of_parts()) > 14
    for name, kind in kinds_of_parts().items():
        declared = kind.declared(object.__new__(kind))  # type: ignore[attr-defined]
        assert {ability: said for ability, said in declared.items() if said[0] != said[1]} == {}, name
        assert len(declared) >= 3, name


def test_the_algebra_stands_alone() -> None:
    """Monoids are of use without Spark, checkpoints, or us."""
    for module in FILES:
        if module.startswith("monoids"):
            assert not [name for name, _ in imports(module) if name.split(".")[0] == "persistent"], module


def test_import_persistent_loads_nothing_heavy() -> None:
    """A driver of the embedded engine starts in a moment, and on a machine without Java or a test framework."""
    heavy = (
        "pyspark",
        "hypothesis",
        "duckdb",
        "polars",
        "pandas",
        "fsspec",
        "s3fs",
        "rich",
        "click",
        "pytest",
        "altair",
        "IPython",
    )
    code = f"import sys, persistent, monoids; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_reading_a_manifest_loads_few_modules() -> None:
    """Who asks what a checkpoint holds needs neither the task, the catalogue of monoids, a source nor an engine."""
    code = (
        "import sys; from pathlib import Path; from persistent.checkpoint.manifest import Manifest; "
        "path = sorted(Path('tests/golden/format-4/visits/m').iterdir())[-1]; "
        "Manifest.decode(path.read_bytes(), str(path)); "
        "print(*[name for name in sys.modules if name.split('.')[0] in ('monoids', 'persistent')])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert len(loaded) <= MANIFEST_MODULES_MAX, loaded


def test_only_spark_knows_pyspark() -> None:
    """Another engine can stand beside it only as long as nobody else leans on it."""
    assert {module for module in FILES for name, _ in imports(module) if name.split(".")[0] == "pyspark"} == {
        "persistent.engines.spark",
        "persistent.engines.spark_session",
    }


@cache
def calls(module: str) -> tuple[tuple[str, str, int], ...]:
    """Every ``a.b(...)`` and ``open(...)``: what stands before the dot, the name, the line."""
    return tuple(_calls(module))


def _calls(module: str) -> Iterator[tuple[str, str, int]]:
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute):
                yield ast.unparse(node.func.value), node.func.attr, node.lineno
            elif isinstance(node.func, ast.Name):
                yield "", node.func.id, node.lineno


def test_only_storage_and_the_files_of_a_source_know_the_disk() -> None:
    """What is written past the storage is neither synced, nor counted by the crash tests, nor to be found on S3."""
    for module in FILES:
        if module not in KNOW_STORES:
            assert not STORE_CLIENTS & {name.split(".")[0] for name, _ in imports(module)}, module
        if module in KNOW_FILES:
            continue
        for before, name, line in calls(module):
            is_os = before in ("os", "os.path", "shutil", "pathlib") and name in FILE_CALLS | {"rmtree", "copy", "move"}
            is_open = not before and name == "open"
            assert not (is_os or is_open), f"{module}:{line}: {before}.{name}(): that is the work of a storage"


def test_only_the_clock_reads_the_time() -> None:
    """Time read anywhere else makes a step repeated after a crash another step."""
    for module in FILES:
        if module in READ_TIME:
            continue
        for before, name, line in calls(module):
            is_time = (
                before in ("time", "datetime", "date", "datetime.datetime", "datetime.date") and name in TIME_CALLS
            )
            assert not is_time, f"{module}:{line}: {before}.{name}() reads the time; use persistent.time.clock"
        assert "time" not in {name for name, _ in imports(module)}, f"{module} imports time"


def test_the_first_of_several_is_not_taken_for_the_only_one() -> None:
    """A job has nodes, sources and sinks by name. ``(only,) = ...`` says that there is one, and fails if not."""
    taken = [
        f"{module}:{node.lineno}"
        for module in FILES
        for node in ast.walk(tree(module))
        if isinstance(node, ast.Call) and ast.unparse(node).startswith("next(iter(")
    ]
    assert not taken


def test_no_function_takes_more_than_nine_values() -> None:
    """Keyword-only ones count too: nobody holds more of them in mind."""
    found = {}
    for module in FILES:
        for node in ast.walk(tree(module)):
            if not isinstance(node, ast.FunctionDef) or node.name == "__init__" or _is_command(node):
                continue
            given = node.args
            every = (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg)
            names = [one.arg for one in every if one]
            count = len([name for name in names if name not in ("self", "cls")])
            if count > PARAMETERS_MAX:
                found[f"{module}.{node.name}"] = count
    assert found == PARAMETERS_BEYOND


def _is_command(node: ast.FunctionDef) -> bool:
    return any("click." in ast.unparse(decorator) for decorator in node.decorator_list)


def test_variables_are_named_by_what_they_hold() -> None:
    """A sink, a run and a record were all called ``one``. What is left is of a protocol, or has no room in a line."""
    pronouns = {"one", "other", "found", "held", "given", "told", "shown", "some", "mine", "own", "most"}
    bound = [
        name
        for module in FILES
        for node in ast.walk(tree(module))
        for name in ([node.id] if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else [])
        + ([node.arg] if isinstance(node, ast.arg) else [])
        if name in pronouns
    ]
    assert len(bound) <= 85, Counter(bound)


def test_abilities_are_declared_and_not_looked_for() -> None:
    """What a part can do was found by its attributes: a misspelt ``retract`` was a sink that cannot take back."""
    asked = [
        f"{module}:{line}" for module in FILES for before, name, line in calls(module) if not before and name in ASKING
    ]
    assert len(asked) <= 60, asked


def test_nobody_draws_at_random() -> None:
    """A number drawn in a step differs when the step is repeated; names come from ``uuid``."""
    for module in FILES:
        assert not {name.split(".")[0] for name, _ in imports(module)} & {"random", "secrets"}, module
        assert not [line for before, _, line in calls(module) if before in ("np.random", "numpy.random")], module


def test_a_module_opens_with_a_sentence() -> None:
    """It says what the thing is; a reader who has to guess reads it all."""
    for module in FILES:
        text = ast.get_docstring(tree(module))
        assert text, f"{module} has no docstring"
        first = text.split("\n\n")[0].rstrip()
        assert first.endswith((".", ":")), f"{module}: {first.splitlines()[0]!r} is not a sentence"
        assert isinstance(tree(module).body[0], ast.Expr), module


@pytest.mark.parametrize(
    "room", ["time", "task", "state", "connect.files", "connect.formats", "checkpoint", "driver", "worker"]
)
def test_a_map_names_every_module_of_its_room(room: str) -> None:
    """A module that the map leaves out is written a second time."""
    text = ast.get_docstring(tree(f"persistent.{room}"))
    named = set(re.findall(r"[a-z_]+", text or ""))
    missing = {module.rpartition(".")[2] for module in of_room(room)} - named - {room}
    assert not missing, f"persistent/{room}/__init__.py does not name {sorted(missing)}: add a line for each"


def test_no_function_is_long() -> None:
    """Long functions have several jobs. Their docstrings do not count."""
    for module in FILES:
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node, clean=False) or ""
                lines = (node.end_lineno or 0) - node.lineno + 1 - len(text.splitlines())
                assert lines <= LINES_MAX, f"{module}: {node.name} has {lines} lines"


def test_no_module_is_long() -> None:
    """A long module is several rooms in one."""
    lines = {module: len(path.read_text().splitlines()) for module, path in FILES.items()}
    assert not {module: count for module, count in lines.items() if count > MODULE_LINES_MAX}


def defined_types(module: str) -> Iterator[str]:
    """The public classes and type aliases of a module. Constants, in capitals, are neither."""
    for node in tree(module).body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            yield from (name for name in names if name[0].isupper() and not name.isupper())


def test_no_two_types_have_one_name() -> None:
    """A reader who knows one reads the other as that, and a search finds both."""
    modules: dict[str, list[str]] = {}
    for module in FILES:
        for name in {name for name in defined_types(module) if not name.startswith("_")}:
            modules.setdefault(name, []).append(module)
    twice = {name: found for name, found in modules.items() if len(found) > 1}
    assert not twice, twice


def exported() -> Iterator[tuple[str, Any]]:
    for name in ("monoids", "persistent", "persistent.sources", "persistent.sinks"):
        module: ModuleType = importlib.import_module(name)
        assert len(set(module.__all__)) == len(module.__all__)
        for public in module.__all__:
            yield f"{name}.{public}", getattr(module, public)


def test_every_public_name_says_what_it_is() -> None:
    """What a user types has a sentence under help()."""
    for name, thing in exported():
        _check_explained(name, thing)


def _check_explained(name: str, thing: Any) -> None:
    if not (inspect.isclass(thing) or callable(thing)):
        return
    assert thing.__doc__ and not thing.__doc__.startswith(f"{thing.__name__}("), f"{name} has no docstring of its own"
    if not inspect.isclass(thing):
        return
    for attribute, value in vars(thing).items():
        silent = attribute.startswith("_") or attribute in ("to_json", "from_json", "fingerprint")
        if not silent and inspect.isfunction(value) and value.__qualname__ == f"{thing.__name__}.{attribute}":
            inherited = any(getattr(above, attribute, None) is not None for above in thing.__mro__[1:])
            assert value.__doc__ or inherited or _is_protocol(thing, attribute), f"{name}.{attribute} has no docstring"


def _is_protocol(thing: type, attribute: str) -> bool:
    """Whether the method is one of a source or sink, which the protocol explains."""
    from persistent.connect.sink import BatchSink, Sink, StagingSink
    from persistent.connect.source import Source
    from persistent.offsets import OffsetStore
    from persistent.storage import Storage

    return any(
        hasattr(protocol, attribute) for protocol in (Source, Sink, StagingSink, BatchSink, Storage, OffsetStore)
    )


def test_nothing_unfinished_and_no_forbidden_word() -> None:
    """A name that means everything means nothing."""
    words = ("Manager", "Handler", "Util", "Helper", "Impl")
    for module, path in FILES.items():
        text = path.read_text(encoding="utf-8")
        assert "TODO" not in text and "FIXME" not in text and "XXX" not in text, module
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                assert not any(word.lower() in node.name.lower() for word in words), f"{module}: {node.name}"


def test_a_module_has_tests_beside_it() -> None:
    """Without it nobody finds the test of a module, and no mutant of it is ever tried."""
    for module in modules():
        told = f"{module}: a test of its name, or a reason in UNMIRRORED"
        assert (module in mirrors()) != (module in UNMIRRORED), told


def test_what_needs_no_tests_is_there() -> None:
    """Without it a reason would outlive its module, and excuse the next of that name."""
    assert set(UNMIRRORED) <= set(modules())


def test_every_folder_of_tests_is_a_package() -> None:
    """Two test modules of one name outside a package are one module: pytest collects neither, or fails on both."""
    folders = {path.parent for path in (ROOT / "tests").rglob("test_*.py")}
    assert [folder for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []
