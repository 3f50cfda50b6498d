"""A report says in figures what a step or a run has done."""

from __future__ import annotations

from dataclasses import dataclass

from persistent.checkpoint.manifest import Account


@dataclass(frozen=True)
class StepReport:
    """One committed step. ``rows``: records read; ``outputs``: rows published; ``checkpoint_bytes``: written
    for it (runs and manifest); ``compaction_bytes``: of these, by folding runs early; ``lag_ms``: time of day
    minus watermark; ``discarded``: windows that closed without a sink."""

    id: int
    rows: int
    seconds: float
    late: int
    dead: int
    outputs: int
    watermark: int
    lag_ms: int
    checkpoint_bytes: int
    compaction_bytes: int
    manifest_bytes: int
    commit_seconds: float
    """From the end of the work until the checkpoint was committed."""
    discarded: int = 0
    set_aside: int = 0
    """Results that could not be summed up or shown, and went to the dead letters."""

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class RunReport:
    """What a run has done: sums over its steps, and where it ended.

    ``checkpoint``: the newest id; ``recovered``: whether the run went on from an earlier one's checkpoint;
    ``open_windows``: windows that hold something and are not yet over for the clock. ``stopped``: by
    ``Driver.stop`` or a signal, at a step's edge, perhaps before the end of what was there. ``discarded``: windows that
    closed without a sink. ``notes``: what else should be known, a sentence each. ``unfolded``: runs whose fold raised,
    and that stay as they are. ``set_aside``: results that could not be summed up or shown, and are dead letters.
    """

    engine: str
    steps: int
    rows: int
    seconds: float
    recovery_seconds: float
    late: int
    dead: int
    duplicates: int
    outputs: int
    checkpoint: int
    watermark: int
    checkpoint_bytes: int
    open_windows: int
    recovered: bool
    ledger: dict[str, Account]
    stopped: bool = False
    discarded: int = 0
    notes: tuple[str, ...] = ()
    unfolded: int = 0
    set_aside: int = 0

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        text = (
            f"{self.rows:,} rows in {self.steps} steps, {self.seconds:.1f} s ({self.rows_per_second:,.0f} rows/s, "
            f"{self.engine}); {self.outputs:,} rows published, {self.late:,} late, {self.dead:,} dead letters; "
            f"checkpoint {self.checkpoint}, watermark {self.watermark}"
        )
        if self.open_windows:
            text += f"; {self.open_windows:,} windows stayed open: if the input is complete, say end_of_input=True"
        return self.remarked(text)

    def remarked(self, text: str) -> str:
        """The text, with what was lost, and a line for each note."""
        if self.discarded:
            text += f"; {self.discarded:,} windows closed and discarded (discard_closed=True)"
        if self.set_aside:
            text += f"; {self.set_aside:,} results could not be shown and are among the dead letters, with the reason"
        if self.unfolded:
            text += f"; {self.unfolded:,} runs stay unfolded, as their fold raises (see the log)"
        return "\n".join([text, *(f"note: {note}" for note in self.notes)])
