"""A plan that was put, whose step was never committed: whether this job runs it, or one with the next number."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.plan import StepPlan
from persistent.checkpoint.positions import CODECS
from persistent.connect.source import Positions
from persistent.driver.workbench import Workbench
from persistent.errors import CorruptCheckpoint
from persistent.names import plan_name

logger = logging.getLogger("persistent.driver")

_FENCES_MAX = 3


def plan_number(bench: Workbench, last: Manifest) -> int:
    """The number of the plan to run. It is a new one if the plan that was put has other options, if a source has
    forgotten records of it, or, with smaller steps, after three fences on a plan that never committed."""
    if bench.corrects == (last.base, last.replan):
        return last.replan + 1
    if any(source.forgets for source in bench.job.sources.values()):
        put = bench.log.plan(last.base, last.replan)
        if put is not None and has_forgotten(bench, put):
            plan = f"{bench.job.storage.url}/{plan_name(last.base, last.replan)}"
            logger.warning("%s: the source no longer has records of this plan; a new one replaces it", plan)
            return last.replan + 1
    if last.fences < _FENCES_MAX or bench.log.plan(last.base, last.replan) is None:
        return last.replan
    plan = f"{bench.job.storage.url}/{plan_name(last.base, last.replan)}"
    begun = f"the step of {plan} was begun {last.fences} times and never committed"
    if bench.options.step_rows is not None:
        logger.warning("%s; with step_rows its plan stays as it is (without, smaller steps are tried)", begun)
        return last.replan
    logger.warning("%s: trying smaller steps", begun)
    return last.replan + 1


def has_forgotten(bench: Workbench, put: StepPlan) -> bool:
    """Whether a source no longer has records of the plan, and may skip them."""
    for name, step in put.sources.items():
        source = bench.job.sources.get(name)
        if source is not None and source.has_forgotten(step.splits, step.recorded):
            return True
    return False


def check_options(bench: Workbench, put: StepPlan) -> None:
    """InvalidPipeline if the options of a source contradict what it has recorded with the plan."""
    for name, step in put.sources.items():
        first = CODECS[step.codec].first
        if step.splits or any(position != first for position in step.start.values()):
            bench.job.sources[name].schema(step.recorded)


def check_belongs(put: StepPlan, manifest: Manifest, url: str) -> None:
    """CorruptCheckpoint unless the plan is of this job, and reads its sources from where the checkpoint is. A plan that
    was put before a source joined does not mention it."""
    place = f"{url}/{plan_name(put.base, put.number)}"
    if put.sources.keys() - manifest.sources.keys():
        raise CorruptCheckpoint(
            f"{place}: reads {', '.join(put.sources)}, but the sources of the checkpoint and of this pipeline are "
            f"{', '.join(manifest.sources)}: it is the plan of another job, or of this one with a source that it no "
            "longer has. Nothing of its step was committed: give the pipeline that source again; or restore the file "
            "from a copy, or delete it and run again"
        )
    tasks = sorted({id.partition("/")[0] for id in put.tasks})
    if len(tasks) > len(manifest.tasks):
        raise CorruptCheckpoint(
            f"{place}: plans the tasks {', '.join(tasks)}, but the checkpoint has {', '.join(manifest.tasks)}: it is "
            "the plan of another job. Nothing of its step was committed: restore the file from a copy, or delete it "
            "and run again"
        )
    there = {name: source for name, source in manifest.sources.items() if name in put.sources or source.recorded}
    if not put.starts_at(there):
        raise CorruptCheckpoint(
            f"{place}: starts at {_text(put.starts)}, but the checkpoint is at "
            f"{_text({name: source.positions for name, source in manifest.sources.items()})}. Nothing of its step was "
            "committed: delete the file and run again"
        )


def _text(starts: Mapping[str, Positions]) -> str:
    """Positions of sources, for people.

    >>> _text({"file": {"files": (0, 2)}}), _text({"a": {"0": 3}, "b": {}})
    ("{'files': (0, 2)}", "{'a': {'0': 3}, 'b': {}}")
    """
    plain = {name: dict(positions) for name, positions in starts.items()}
    first, *others = plain.values() or [plain]
    return str(plain if others else first)
