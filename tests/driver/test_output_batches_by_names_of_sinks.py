"""A sink keeps the state that it takes, as far as it has rows of one."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from persistent import InvalidPipeline, MemorySink
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.output_parts import Inheritance, SinkPart
from persistent.driver.output_batches import check_takes_as_before
from tests.several import KINDS, World


def job_of() -> Any:
    given = {"short": {"a": MemorySink()}, "total": {"b": MemorySink()}}
    return (
        World({"short": KINDS["short"], "total": KINDS["total"]}, [{"ts": 1, "key": "a", "value": 1}])
        .pipeline(sink=given)
        .job()
    )


def manifest_of(sinks: dict[str, SinkPart], inherits: dict[str, Inheritance] | None = None) -> Manifest:
    from tests.checkpoint.samples import manifest

    return replace(manifest(), sinks=sinks, inherits=inherits or {})


@pytest.mark.parametrize(
    ("sinks", "inherits", "is_refused"),
    [
        ({"a": SinkPart(last=3, node="Several/short")}, {}, False),
        ({"a": SinkPart(last=3, node="Several/total")}, {}, True),
        ({"a": SinkPart(last=3, node="Several")}, {}, True),
        ({"a": SinkPart(last=3, node="Renamed/short")}, {}, False),
        ({"a": SinkPart(node="Several/total")}, {}, False),
        ({}, {"a": Inheritance(("job",), 3, "Several/total")}, True),
        ({}, {"a": Inheritance(("job",), 3, "Several/short")}, False),
        ({}, {}, False),
    ],
)
def test_a_sink_with_rows_of_another_state_is_refused(sinks: Any, inherits: Any, is_refused: bool) -> None:
    """In its own manifest, or in what it has inherited. One that has no rows yet may take any."""
    manifest = manifest_of(sinks, inherits)
    if is_refused:
        with pytest.raises(InvalidPipeline, match=r"the sink 'a'.*would now get those of the state 'short'"):
            check_takes_as_before(job_of(), manifest)
    else:
        check_takes_as_before(job_of(), manifest)
