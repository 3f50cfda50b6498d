"""The tables of fields and of succession on the page of the protocol, as the classes of the documents say them.

python -m tests.checkpoint.page      writes them into docs/protocol.md; what each field means stays as it is there
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from persistent.checkpoint.log import FormatFile
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.parts import Account, NodeClock
from persistent.checkpoint.plan import StepPlan
from persistent.checkpoint.running import Mark
from persistent.checkpoint.successor import table_text
from persistent.codec.documents import FIRST_FORMAT, terms
from persistent.codec.fields import AnyPosition, Free, Part, Run, Since
from persistent.messaging.offsets import ReaderState
from persistent.names import Staged

PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"
DOCUMENTS: dict[str, type[Part]] = {
    "manifest": Manifest,
    "plan": StepPlan,
    "FORMAT": FormatFile,
    "mark": Mark,
    "reader": ReaderState,
    "run": Run,
    "staged file": Staged,
    "account": Account,
}
_OWN = {Run: "run", Staged: "staged file", Account: "account"}
"""Parts with a table of their own."""
_PLAIN = {int: "integer", str: "text", bool: "flag"}
_LEFT_OUT = {None: "null", False: "false", "": "empty", (): "none", NodeClock(): "its defaults"}
_HEAD = "| field | type | left out at | meaning |\n|---|---|---|---|\n"

Row = tuple[str, str, str]


def kind_of(hint: Any) -> str:
    """What a value of that type is called on the page."""
    if hint == AnyPosition:
        return "position"
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return "facts" if any(isinstance(one, Free) for one in inner) else kind_of(inner[0])
    if origin in (types.UnionType, Union):
        names = [kind_of(one) for one in inner if one is not type(None)]
        return f"{' or '.join(names)}{' or null' if type(None) in inner else ''}"
    if origin is Literal:
        return "text"
    if origin is tuple:
        return f"list of {kind_of(inner[0])}" if inner[-1] is ... else f"[{', '.join(map(kind_of, inner))}]"
    if origin is not None and issubclass(origin, Mapping):
        return f"mapping to {kind_of(inner[1])}"
    return _OWN.get(hint) or _PLAIN.get(hint) or "object"


def parts_in(hint: Any, path: str) -> Iterator[tuple[type[Part], str]]:
    """The parts that a value of that type holds, each with its path."""
    if isinstance(hint, type) and issubclass(hint, Part):
        yield hint, path
        return
    origin, inner = get_origin(hint), get_args(hint)
    if hint == AnyPosition or origin is Literal or not inner:
        return
    if origin is Annotated:
        yield from parts_in(inner[0], path)
    elif origin is tuple:
        yield from parts_in(inner[0], f"{path}[]")
    elif origin in (types.UnionType, Union):
        for one in inner:
            yield from parts_in(one, path)
    elif issubclass(origin, Mapping):
        yield from parts_in(inner[1], f"{path}.*")


def rows_of(part: type[Part], path: str = "", outer: int = FIRST_FORMAT) -> Iterator[Row]:
    """Every field of a part, and of the parts within it: its path, its type with the format that brought it, unless
    that is the first, and its default."""
    hints = get_type_hints(part, include_extras=True)
    for field in msgspec.structs.fields(part):
        hint, place = hints[field.name], f"{path}{field.name}"
        given = field.default if field.default_factory is msgspec.NODEFAULT else ()
        default = "" if given is msgspec.NODEFAULT else _LEFT_OUT.get(given, f"`{given}`")
        since = max(outer, *(one.format for one in terms(hint) if isinstance(one, Since) and not one.words), 0)
        kind = kind_of(hint).removesuffix(" or null" if given is None else "")
        kind += f", since {since}" if since > FIRST_FORMAT else ""
        yield place, kind, "0" if given == 0 and given is not False else default
        for inner, below in parts_in(hint, place):
            if inner not in _OWN:
                yield from rows_of(inner, f"{below}.", since)


def listed(text: str, document: str) -> list[tuple[str, ...]]:
    """The rows of a document on the page: the same, and what the field means."""
    table = text.partition(f"<!-- {document} begin -->\n")[2].partition(f"<!-- {document} end -->")[0]
    rows = [line.removeprefix("| ").removesuffix(" |").split(" | ") for line in table.splitlines()[2:]]
    return [(row[0].strip("`"), *row[1:]) for row in rows]


def written(text: str) -> str:
    """The page with the tables of these classes; a field that it did not have means nothing yet."""
    for document, kind in DOCUMENTS.items():
        meanings = {row[0]: row[-1] for row in listed(text, document)}
        lines = [f"| `{row[0]}` | {' | '.join(row[1:])} | {meanings.get(row[0], '')} |\n" for row in rows_of(kind)]
        pattern = rf"(<!-- {document} begin -->\n).*?(<!-- {document} end -->)"
        table = _HEAD + "".join(lines)
        text = re.sub(pattern, lambda found, table=table: found[1] + table + found[2], text, flags=re.DOTALL)
    head = table_text().partition("\n")[0]
    return re.sub(rf"^{re.escape(head)}\n(\|.*\n)*", table_text() + "\n", text, flags=re.MULTILINE)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
