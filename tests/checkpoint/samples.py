"""Small manifests, plans and stores for the tests of the checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.output_parts import Aside, Inheritance, SinkBatch, SinkPart
from persistent.checkpoint.parts import Account, NodeClock, NodePart, SourcePart, TaskPart, default_name
from persistent.checkpoint.plan import SourceStep, StepPlan, TaskStep
from persistent.codec.documents import proven, sealed_document
from persistent.codec.fields import KEY_GROUPS, Part, Run
from persistent.connect.source import Span, Split
from persistent.names import Staged, new_nonce
from persistent.storage import MemoryStorage, Put, Storage
from persistent.time.clock import Clock
from tests.single import only


def run(name: str = "e1-c1-0", rows: int = 3, first: int = 1, last: int = 1, **changes: Any) -> Run:
    """A run of the task ``Visits``."""
    fields = {"start": 0, "low": 0, "high": KEY_GROUPS, "pane_min": 0, "pane_max": 60_000, **changes}
    return Run(name=f"d/Visits/{name}.arrow", rows=rows, bytes=100, sha256="0" * 64, first=first, last=last, **fields)


def node(
    fingerprint: Mapping[str, Any], key_names: tuple[str, ...] = (), key_types: tuple[str, ...] = (), **more: Any
) -> NodePart:
    """A node with these fields."""
    return NodePart(fingerprint, key_names=key_names, key_types=key_types, **more)


_CLOCK, _SOURCE = Clock(), SourcePart("MemorySource", ("memory",), {"memory": (0, 0)})


def manifest(
    id: int = 0,
    *,
    clock: Clock = _CLOCK,
    source: SourcePart = _SOURCE,
    accounts: Mapping[str, Account] | None = None,
    **changes: Any,
) -> Manifest:
    """Manifest ``id`` of one job, of a task with that clock over that source, empty unless ``changes`` say
    otherwise."""
    name = default_name(source.kind, "source")
    nodes = changes.pop("nodes", {"Visits": node({"state": "WindowState"}, ("page",))})
    read = {"memory": Account()} if accounts is None else accounts
    fields: dict[str, Any] = {
        "job": "job",
        "id": id,
        "kind": "checkpoint",
        "base": id,
        "oldest": 0,
        "epoch": 0,
        "nonce": new_nonce(),
        "sources": {name: replace(source, largest=clock.largest)},
        "tasks": {id.partition("/")[0]: TaskPart({name: read}) for id in nodes},
        "nodes": {id: replace(one, clock=NodeClock.of(clock)) for id, one in nodes.items()},
        **changes,
    }
    return Manifest(**fields)


def with_one(
    manifest: Manifest,
    *,
    clock: Clock | None = None,
    source: SourcePart | None = None,
    node: NodePart | None = None,
    accounts: Mapping[str, Account] | None = None,
) -> Manifest:
    """The manifest with these parts for its only source, task and node. The node keeps its clock unless another is
    given."""
    (name,), (task,), (id,) = manifest.sources, manifest.tasks, manifest.nodes
    before = manifest.nodes[id].clock
    if clock is not None:
        source, before = replace(source or only(manifest.sources), largest=clock.largest), NodeClock.of(clock)
    given: dict[str, Any] = {"nodes": {id: replace(node or manifest.nodes[id], clock=before)}}
    given |= {} if source is None else {"sources": {name: source}}
    given |= {} if accounts is None else {"tasks": {task: TaskPart({name: accounts})}}
    return replace(manifest, **given)


def full_manifest() -> Manifest:
    """One in which no field is empty."""
    staged = Staged("_staged/e2-c7-ab.jsonl", 3, 40, "1" * 64)
    aside = Staged("d/Visits/e2-c7-cd.arrow", 3, 40, "1" * 64)
    return manifest(
        7,
        oldest=3,
        epoch=2,
        nonce="n" * 32,
        clock=Clock(90, 60, {"files": 95}, True),
        source=SourcePart(
            "FileSource",
            ("files",),
            {"files": (4, 17)},
            {"schema": [["ts", "int64"]]},
            (run("i", wide=True),),
            50,
            idle=("files",),
        ),
        nodes={
            "Visits": node(
                {"state": "WindowState", "monoid": {"name": "Sum"}},
                ("page", "é"),
                ("string", "int64"),
                runs=(run(), run("b")),
                lowest=60,
                published=5,
                known_from=55,
            )
        },
        accounts={"files": Account(10, 6, 2, 1, 1, 1 << 63)},
        sinks={"file": SinkPart(("newest", "retract"), 7, (SinkBatch(7, 5, (staged,)),), "Visits")},
        aside=(Aside(7, (aside,), (aside,)),),
        publishes=True,
        revision_base=40,
        inherits={"file": Inheritance(("a job", "its heir"), 4, "Visits")},
        parent=(6, "2" * 64),
        fences=2,
        replan=1,
        pins=(3,),
        commits=((3, 1_000), (7, 2_000)),
        burnt=(5,),
        committed_ms=2_000,
        target=3,
        retract=(4, 7),
        left=((4, 7, True),),
        origin=("a job", 9),
    )


def plan(base: int = 0, **changes: Any) -> StepPlan:
    """The plan of the step after ``base``: ``changes`` of the plan itself, or of its one source or task."""
    source: dict[str, Any] = {
        "start": {"memory": (0, 0)},
        "end": {"memory": (0, 4)},
        "splits": (Split("memory", (Span(0, 0, 4, {"path": "a é"}),)),),
        "cap": {"memory": None},
    }
    source |= {name: changes.pop(name) for name in SourceStep.__struct_fields__ if name in changes}
    task = TaskStep(changes.pop("close_at", 0), changes.pop("ends", False))
    fields: dict[str, Any] = {
        "job": "job",
        "base": base,
        "number": 0,
        "nonce": new_nonce(),
        "wall_ms": 1,
        "sources": {"memory": SourceStep(**source)},
        "tasks": {"Visits": task},
        "max_future_ms": 86_400_000,
        **changes,
    }
    return StepPlan(**fields)


P = TypeVar("P", bound=Part)


def read_back(part: P) -> P:
    """The part as a document gives it back."""
    return msgspec.json.decode(msgspec.json.encode(part), type=type(part))


def json_of(part: Part) -> Any:
    """The part as JSON has it."""
    return msgspec.json.decode(msgspec.json.encode(part))


def body_of(data: bytes, place: str = "") -> Any:
    """The fields of a document, as JSON has them."""
    return json.loads(proven(data, place))


def document(body: Mapping[str, Any]) -> bytes:
    """A document of these fields, as a driver would spell them: its format is in front."""
    fields = {name: value for name, value in body.items() if name != "format"}
    rest = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return sealed_document(f'{{"format":{json.dumps(body["format"])},{rest[1:]}'.encode())


def logged(storage: Storage, last: int, **changes: Any) -> Log:
    """A log of the manifests up to ``last``; ``changes``: to those above 0."""
    log = Log(storage)
    log.create(manifest())
    for id in range(1, last + 1):
        log.put(manifest(id, **changes))
    return log


class ForgetfulStorage:
    """A store that does not always answer a put: ``script`` says for each put whether it happens, and what is
    answered."""

    shared = False
    local = False

    def __init__(self, *script: tuple[bool, Put]) -> None:
        self.inner = MemoryStorage(new_nonce())
        self.url = self.inner.url
        self.script = list(script)
        self.before_put: Callable[[str], None] = lambda name: None

    def put_if_absent(self, name: str, data: bytes) -> Put:
        self.before_put(name)
        if not self.script:
            return self.inner.put_if_absent(name, data)
        happens, answer = self.script.pop(0)
        if happens:
            self.inner.put_if_absent(name, data)
        return answer

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        self.inner.write(name, data)

    def read(self, name: str) -> pa.Buffer:
        return self.inner.read(name)

    def list(self, folder: str) -> list[str]:
        return self.inner.list(folder)

    def rename(self, source: str, target: str) -> None:
        self.inner.rename(source, target)

    def delete(self, name: str) -> None:
        self.inner.delete(name)
