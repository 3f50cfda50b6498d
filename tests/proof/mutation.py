"""A mutation is one small change to a module's syntax tree that its tests should notice.

Never changed, because no behaviour hangs on them: text, annotations, decorators, ``__all__``, what is shown
(``__repr__``, ``__str__``, logging) and what goes into an error. Changes whose outcome equals that of another one
are made once.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_CALCULATED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
_SIGNS = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Div: "/",
    ast.BitOr: "|",
    ast.BitAnd: "&",
    ast.And: "and",
    ast.Or: "or",
}
_ITS_OWN_NEGATION = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
_TOLD = frozenset({"__repr__", "__str__"})
_SPEAKERS = frozenset({"_LOG", "LOG", "LOGGER", "_LOGGER", "logging", "warnings"})
# Read, not imported: a process that has imported the package cannot import a mutant of it.
_ERRORS = frozenset(
    [name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, BaseException)]
    + [
        statement.name
        for statement in ast.parse((ROOT / "persistent/errors.py").read_text()).body
        if isinstance(statement, ast.ClassDef)
    ]
)


@dataclass(frozen=True)
class Mutation:
    """The ``number``-th change to a module: ``text`` is its line as it was, ``change`` what becomes of it."""

    module: str
    number: int
    line: int
    text: str
    change: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line} {self.change}: {self.text}"


@dataclass(frozen=True)
class _Edit:
    node: ast.AST
    change: str
    apply: Callable[[], None]


def mutations(module: str, source: str) -> list[Mutation]:
    """All changes to a module, in the order of the source.

    >>> [found.change for found in mutations("m", "def f(a, b=1):\\n    return a < b")]
    ['1 to 2', 'return None', '< to <=']
    """
    lines = source.splitlines()
    return [
        Mutation(module, number, line, lines[line - 1].strip(), edit.change)
        for number, edit in enumerate(_edits(ast.parse(source)))
        if (line := getattr(edit.node, "lineno", 1))
    ]


def mutated(source: str, number: int) -> ast.Module:
    """The tree of ``source`` after one change.

    >>> ast.unparse(mutated("def f(a, b=1):\\n    return a < b", 2))
    'def f(a, b=1):\\n    return a <= b'
    """
    tree = ast.parse(source)
    edit = list(_edits(tree))[number]
    edit.apply()
    return ast.fix_missing_locations(tree)


def _edits(node: ast.AST) -> Iterator[_Edit]:
    """The changes to this node, then those to the nodes below; the tree is to stay as it is meanwhile."""
    yield from _of_node(node)
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "bases", "keywords", "type_params") and not isinstance(
            node, ast.Call
        ):
            continue
        for index, child in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(child, ast.AST) or _is_told(child):
                continue
            if isinstance(value, list) and isinstance(child, ast.stmt):
                yield from _removals(value, index, child)
            elif isinstance(child, ast.expr):
                yield from _replacements(node, name, index if isinstance(value, list) else None, child)
            yield from _edits(child)


def _is_told(node: ast.AST) -> bool:
    """Whether all that hangs on this is text, or a type."""
    match node:
        case ast.JoinedStr() | ast.Assert():
            return True
        case ast.FunctionDef(name=name):
            return name in _TOLD
        case ast.Call(func=ast.Name(id=name)):
            return name in _ERRORS or name in ("cast", "TypeVar", "NewType")
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name))):
            return name in _SPEAKERS
        case ast.Expr(value=ast.Call() as call):
            return _is_told(call)
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.BinOp(op=ast.Mod(), left=ast.Constant(value=str())):
            return True
    return False


def _of_node(node: ast.AST) -> Iterator[_Edit]:
    """Changes to what this node does with the nodes below it."""
    match node:
        case ast.Compare():
            for index, sign in enumerate(node.ops):
                other = _COMPARED[type(sign)]
                change = f"{_SIGNS[type(sign)]} to {_SIGNS[other]}"
                yield _Edit(node, change, _item(node.ops, index, other()))
        case ast.BoolOp():
            swapped = ast.Or if isinstance(node.op, ast.And) else ast.And
            yield _Edit(node, f"{_SIGNS[type(node.op)]} to {_SIGNS[swapped]}", _field(node, "op", swapped()))
        case ast.BinOp(op=sign) | ast.AugAssign(op=sign) if type(sign) in _CALCULATED and not _is_union(node):
            calculated = _CALCULATED[type(sign)]
            yield _Edit(node, f"{_SIGNS[type(sign)]} to {_SIGNS[calculated]}", _field(node, "op", calculated()))
        case ast.Constant(value=bool() as value):
            yield _Edit(node, f"{value} to {not value}", _field(node, "value", not value))
        case ast.Constant(value=int() | float() as value):
            yield _Edit(node, f"{value} to {value + 1}", _field(node, "value", value + 1))
        case ast.Name(id="min" | "max" as name):
            other_name = "max" if name == "min" else "min"
            yield _Edit(node, f"{name} to {other_name}", _field(node, "id", other_name))
        case ast.Return(value=ast.expr() as value) if not _is_none(value):
            yield _Edit(node, "return None", _field(node, "value", ast.Constant(None)))
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) if _is_negated_apart(test):
            yield _Edit(test, "negated", _field(node, "test", ast.UnaryOp(ast.Not(), test)))
        case ast.comprehension(ifs=tests):
            for index, test in enumerate(tests):
                if _is_negated_apart(test):
                    yield _Edit(test, "negated", _item(tests, index, ast.UnaryOp(ast.Not(), test)))


def _removals(block: list[ast.stmt], index: int, statement: ast.stmt) -> Iterator[_Edit]:
    match statement:
        case ast.Expr(value=ast.Call()) | ast.Raise() | ast.Delete():
            yield _Edit(statement, "removed", _item(block, index, ast.Pass()))
        case ast.Continue():
            yield _Edit(statement, "continue to break", _item(block, index, ast.Break()))
        case ast.Break():
            yield _Edit(statement, "break to continue", _item(block, index, ast.Continue()))


def _replacements(node: ast.AST, name: str, index: int | None, child: ast.expr) -> Iterator[_Edit]:
    if isinstance(child, ast.UnaryOp) and isinstance(child.op, ast.Not):
        without = child.operand
        put = _field(node, name, without) if index is None else _item(getattr(node, name), index, without)
        yield _Edit(child, "not dropped", put)


def _is_negated_apart(test: ast.expr) -> bool:
    """Whether the negation is not made already by another change."""
    match test:
        case ast.Constant() | ast.UnaryOp(op=ast.Not()):
            return False
        case ast.Compare(ops=[sign]):
            return not isinstance(sign, _ITS_OWN_NEGATION)
    return True


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _is_union(node: ast.AST) -> bool:
    """Whether this is ``int | None`` outside of an annotation: a type."""
    return isinstance(node, ast.BinOp) and any(
        _is_none(side) or (isinstance(side, ast.Name) and (hasattr(builtins, side.id) or side.id[:1].isupper()))
        for side in (node.left, node.right)
    )


def _field(node: ast.AST, name: str, value: object) -> Callable[[], None]:
    return lambda: setattr(node, name, value)


def _item(values: list, index: int, value: ast.AST) -> Callable[[], None]:
    return lambda: values.__setitem__(index, value)
