"""A plan is what the step after a checkpoint will do, put before anything of the step is committed.

Whoever finds it runs this very plan, so a step repeated after a crash is the same step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from persistent.checkpoint.manifest import FORMAT
from persistent.checkpoint.shapes import PLAN, RECORDED, check_format
from persistent.codec import Run, decode_document, encode_document
from persistent.codec.shapes import check_shape
from persistent.sources.protocol import Positions, Span, Split


@dataclass(frozen=True)
class Limits:
    """``max_future_ms``: how far ahead of both the plan's time of day and the clock a timestamp may be.
    ``max_out_of_orderness_ms``: how far the clock stays behind the largest timestamp."""

    max_future_ms: int
    max_out_of_orderness_ms: int


@dataclass(frozen=True)
class StepPlan:
    """``start``, ``end``: positions before and after. ``wall_ms``: the time of day of the plan, against which, or the
    clock where that is ahead, a timestamp counts as too far ahead. ``close_at``: windows that end at or before it are
    closed. ``cap``: as in ``SourcePlan``. ``limits``: the options by which its records are judged; None in a plan of an
    older release, which is run by those of today. ``appended``: runs of the source's index that this plan adds.
    ``number``: 0, or the replan."""

    job: str
    base: int
    number: int
    nonce: str
    wall_ms: int
    close_at: int
    end_of_input: bool
    start: Positions
    end: Positions
    splits: tuple[Split, ...]
    cap: Mapping[str, int | None]
    recorded: Mapping[str, Any] = field(default_factory=dict)
    appended: tuple[Run, ...] = ()
    limits: Limits | None = None

    def encode(self) -> bytes:
        return encode_document(
            {
                "format": FORMAT,
                "features": [] if self.limits is None else [RECORDED],
                "job": self.job,
                "base": self.base,
                "number": self.number,
                "nonce": self.nonce,
                "wall_ms": self.wall_ms,
                "close_at": self.close_at,
                "end_of_input": self.end_of_input,
                "start": {name: list(position) for name, position in self.start.items()},
                "end": {name: list(position) for name, position in self.end.items()},
                "splits": [
                    [split.partition, [[s.ordinal, s.start, s.stop, dict(s.at)] for s in split.spans]]
                    for split in self.splits
                ],
                "cap": dict(self.cap),
                "recorded": self.recorded,
                "appended": [run.to_json() for run in self.appended],
                **({} if self.limits is None else {"limits": dict(self.limits.__dict__)}),
            }
        )

    @staticmethod
    def decode(data: bytes, place: str) -> StepPlan:
        body = decode_document(data, place)
        check_format(body, place)
        check_shape(PLAN, body, place, "a plan")
        return StepPlan(
            job=body["job"],
            base=body["base"],
            number=body["number"],
            nonce=body["nonce"],
            wall_ms=body["wall_ms"],
            close_at=body["close_at"],
            end_of_input=body["end_of_input"],
            start={name: (position[0], position[1]) for name, position in body["start"].items()},
            end={name: (position[0], position[1]) for name, position in body["end"].items()},
            splits=tuple(Split(partition, tuple(Span(*span) for span in spans)) for partition, spans in body["splits"]),
            cap=body["cap"],
            recorded=body["recorded"],
            appended=tuple(Run.from_json(run) for run in body["appended"]),
            limits=Limits(**body["limits"]) if "limits" in body else None,
        )
