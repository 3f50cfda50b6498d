"""The figures of the house: how large its parts are, and how they hang together.

    python -m tests.figures

``tests/test_figures.py`` keeps them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("monoids", "persistent")
PARAMETERS_MAX = 6


@dataclass(frozen=True, order=True)
class Figure:
    """A number, and the thing that it is of."""

    number: int
    name: str


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))}


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(FILES[module].read_text(encoding="utf-8"))


@cache
def imported(module: str) -> frozenset[str]:
    """The modules of the house that a module imports, inside functions too."""
    names: set[str] = set()
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {name if name in FILES else str(node.module) for name in inner}
    return frozenset(name for name in names if name in FILES and name != module)


def module_lines() -> list[Figure]:
    return [Figure(len(path.read_text(encoding="utf-8").splitlines()), module) for module, path in FILES.items()]


def function_lines() -> list[Figure]:
    """The lines of each function, its docstring left out."""
    found = []
    for module in FILES:
        for name, node in _functions(module):
            text = ast.get_docstring(node, clean=False) or ""
            lines = (node.end_lineno or 0) - node.lineno + 1 - len(text.splitlines())
            found.append(Figure(lines, f"{module}.{name}"))
    return found


def class_widths() -> list[Figure]:
    """The public methods, properties and fields of each class."""
    return [
        Figure(len(_public(node)), f"{module}.{node.name}")
        for module in FILES
        for node in ast.walk(tree(module))
        if isinstance(node, ast.ClassDef)
    ]


def parameters() -> list[Figure]:
    """The parameters of each function but ``self``. Keyword-only ones of public functions, which are options of the
    user's, do not count."""
    found = []
    for module in FILES:
        for name, node in _functions(module):
            plain = [one.arg for one in (*node.args.posonlyargs, *node.args.args) if one.arg not in ("self", "cls")]
            own = [one.arg for one in node.args.kwonlyargs] if name.rpartition(".")[2].startswith("_") else []
            own = [] if name.endswith("__init__") else own
            found.append(Figure(len(plain) + len(own), f"{module}.{name}"))
    return found


def fan_out() -> list[Figure]:
    return [Figure(len(imported(module)), module) for module in FILES]


def fan_in() -> list[Figure]:
    users = dict.fromkeys(FILES, 0)
    for module in FILES:
        for name in imported(module):
            users[name] += 1
    return [Figure(number, module) for module, number in users.items()]


def room_of(module: str) -> str:
    """The room of a module: its folder in the package, or itself where it stands beside them."""
    return ".".join(module.split(".")[:2])


def cycles() -> list[str]:
    """The modules that import each other in a circle: none."""
    return _circle({module: set(imported(module)) for module in FILES})


def room_cycles() -> list[str]:
    """The rooms that import each other in a circle: none. The faces of the packages have all rooms behind them."""
    rooms: dict[str, set[str]] = {room_of(module): set() for module in FILES}
    for module in FILES:
        rooms[room_of(module)] |= {room_of(name) for name in imported(module)} - {room_of(module), *PACKAGES}
    return _circle(rooms)


def _circle(waiting: dict[str, set[str]]) -> list[str]:
    """What is left when everything that needs none of the others is taken away, again and again."""
    while free := [module for module, needs in waiting.items() if not needs & waiting.keys()]:
        for module in free:
            del waiting[module]
    return sorted(waiting)


def _functions(module: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Each function with its name in the module."""
    waiting: list[tuple[str, ast.AST]] = [("", tree(module))]
    while waiting:
        before, parent = waiting.pop()
        for node in ast.iter_child_nodes(parent):
            named = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            name = f"{before}{getattr(node, 'name', '')}" if named else before
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield name, node
            waiting.append((f"{name}." if named else before, node))


def _public(node: ast.ClassDef) -> set[str]:
    names = set()
    for part in node.body:
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(part.name)
        elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
            names.add(part.target.id)
        elif isinstance(part, ast.Assign):
            names |= {target.id for target in part.targets if isinstance(target, ast.Name)}
    return {name for name in names if not name.startswith("_")}


def rows() -> list[tuple[str, str]]:
    """The figures as the page of measurements shows them."""
    lines, many = module_lines(), [one for one in parameters() if one.number > PARAMETERS_MAX]
    largest, longest, widest, out, most = (
        max(some) for some in (lines, function_lines(), class_widths(), fan_out(), fan_in())
    )
    counts = [sum(name.split(".")[0] == package for name in FILES) for package in PACKAGES]
    return [
        ("modules", f"{counts[0]} in `monoids`, {counts[1]} in `persistent`"),
        ("largest module", f"{largest.number} lines, `{largest.name}`"),
        ("longest function", f"{longest.number} lines, `{longest.name}`"),
        ("widest class", f"{widest.number} public methods and fields, `{widest.name}`"),
        (f"functions of more than {PARAMETERS_MAX} parameters", str(len(many))),
        ("import cycles, of modules and of rooms", f"{len(cycles())}, {len(room_cycles())}"),
        ("most imports of others", f"{out.number}, `{out.name}`"),
        ("imported by most others", f"{most.number}, `{most.name}`"),
    ]


if __name__ == "__main__":
    for name, text in rows():
        print(f"{name:<40} {text}")
    for title, figures, count in (
        ("largest modules", module_lines(), 5),
        ("longest functions", function_lines(), 8),
        ("widest classes", class_widths(), 8),
        ("most parameters", parameters(), 12),
        ("most imports", fan_out(), 12),
        ("most importers", fan_in(), 16),
    ):
        print(f"\n{title}")
        for figure in sorted(figures, reverse=True)[:count]:
            print(f"  {figure.number:>4}  {figure.name}")
