"""The figures of the house, kept: they cannot get worse without anybody deciding so."""

from __future__ import annotations

from pathlib import Path

from tests.figures import (
    FILES,
    PARAMETERS_MAX,
    Figure,
    class_widths,
    cycles,
    fan_in,
    fan_out,
    function_lines,
    module_lines,
    parameters,
    room_cycles,
    rows,
)

MEASURED = Path(__file__).parents[1] / "docs" / "evidence" / "measured.md"
MODULES_MAX = {"monoids": 77, "persistent": 303}
MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 58

WIDTH_MAX = 22
WIDE = {
    "monoids.monoid.Monoid": 32,  # What users subclass: every default that they may replace.
    "persistent.checkpoint.parts.NodePart": 25,  # A node with its clock, key and runs, as every step finds it.
    "persistent.checkpoint.manifest.Manifest": 48,  # The document's fields; the one of each there is.
    "monoids.sketches.theta.Theta": 29,  # Set operations, and the exchange with DataSketches.
    "monoids.sketches.count_min.CountMin": 24,
    "persistent.driver.step.Step": 24,  # What the driver asks of a step, of all states and of one.
    "persistent.driver.report.RunReport": 32,  # Each figure of a run, as users read it.
    "persistent.driver.report.StepReport": 26,  # And of a step.
    "persistent.checkpoint.log.Log": 24,
    "persistent.connect.source.Source": 37,  # The contract of a source: each ability with its default.
}
MANY_PARAMETERS = {
    "persistent.tools.cli.rows.state": 11,  # Click gives a command each option by name.
    "persistent.tools.cli.run.run": 10,
    "persistent.tools.cli.clock.clock_command": 7,
    "persistent.worker.merge_runs.write_run": 7,  # The deltas and the key groups of the run are two ranges.
    "persistent.verify.runs.state_table_faults": 7,
}
IMPORTS_MAX = 18
MANY_IMPORTS = {
    "persistent": 25,  # What users name, loaded on demand.
    "persistent.state.state": 21,  # A state on its own is panes, windows, lateness and a time to live.
    "persistent.pipeline": 41,  # Where sources, sinks, engines, the driver, readers and metrics meet.
    "monoids": 31,  # The catalogue.
    "persistent.connect.files.source": 22,  # One source with three formats, and the index of what it has listed.
    "persistent.connect.rabbitmq.queue_source": 20,  # A source, and the journal that makes it one.
    "persistent.driver.migration": 19,
    "persistent.driver.naming": 21,  # Each part of a job, checked by its name and its place.
    "persistent.driver.notes": 19,  # All that a run reports, and every caution.
    "persistent.driver.next_step": 19,
    "persistent.explain.of_job": 22,  # What each part of a job will do, in words.
    "persistent.tools.serve.state_reading": 19,  # A state is read as readers do, and page by page.
    "persistent.reading.state": 19,  # A state is read as one table, or exported in files.
    "persistent.operations.merging": 19,  # Two jobs are checked against each other in every part that they have.
    "persistent.operations.restarting": 24,  # State, sources and seen records are cut at one clock.
    "persistent.driver.step_effects": 25,  # Each effect of a step is performed there.
    "persistent.driver.correction": 33,  # A checkpoint without a step: what the modules of a step do, in one place.
    "persistent.worker.stage_aside": 19,  # Rows set aside have a schema, a sink, and a reason of their own.
    "persistent.worker.map_split": 20,  # A split is read, judged, run and written.
    "persistent.worker.job": 19,  # What a step is made of.
    "persistent.worker.correct_states": 23,  # Judges records as steps do, and in lives as nobody else does.
}
IMPORTERS_MAX = 40
MANY_IMPORTERS = {
    "persistent.errors": 190,  # Errors, columns and the one class all monoids derive from are everybody's words.
    "monoids.monoid": 60,
    "monoids.column": 67,
    "monoids.groupby.cells": 46,  # The types of arrays.
    "persistent.time.clock": 92,  # Durations and pauses; nobody else reads the time.
    "persistent.codec.fields": 70,  # What the fields of documents are: runs, positions, key types.
    "persistent.storage.protocol": 56,  # Where a checkpoint lies: what every command is given.
    "persistent.checkpoint.manifest": 68,
    "persistent.checkpoint.parts": 45,  # What a manifest says of each source, node and input.
    "persistent.names": 62,  # What files and states are called.
    "persistent.worker.job": 60,  # What a step is made of.
    "persistent.text.figures": 64,  # How numbers, sizes and times are said.
    "persistent.connect.source": 59,  # What a source is, said to each of them and to who drives it.
}


def beyond(figures: list[Figure], most: int, exceptions: dict[str, int]) -> list[Figure]:
    """The figures beyond what is allowed of them."""
    names = {figure.name for figure in figures}
    assert exceptions.keys() <= names, f"gone: {sorted(exceptions.keys() - names)}"
    return [figure for figure in figures if figure.number > exceptions.get(figure.name, most)]


def test_the_house_has_no_more_rooms_than_it_needs() -> None:
    """A module for each thought is no map either."""
    for package, most in MODULES_MAX.items():
        assert sum(name.split(".")[0] == package for name in FILES) <= most


def test_modules_and_functions_stay_short() -> None:
    """What is long has several jobs."""
    assert not beyond(module_lines(), MODULE_LINES_MAX, {})
    assert not beyond(function_lines(), FUNCTION_LINES_MAX, {})


def test_classes_and_calls_stay_narrow() -> None:
    """A wide class is several in one, and a call with ten values is read by nobody."""
    assert not beyond(class_widths(), WIDTH_MAX, WIDE)
    assert not beyond(parameters(), PARAMETERS_MAX, MANY_PARAMETERS)


def test_modules_know_few_others() -> None:
    """A change would spread over all that know its module, and no test of one module could be small."""
    assert not beyond(fan_out(), IMPORTS_MAX, MANY_IMPORTS)
    assert not beyond(fan_in(), IMPORTERS_MAX, MANY_IMPORTERS)
    assert cycles() == []
    assert room_cycles() == []


def test_the_figures_are_shown() -> None:
    """``python -m tests.figures`` is what the page of measurements quotes, which had become old."""
    shown, page = dict(rows()), MEASURED.read_text(encoding="utf-8")
    assert [name for name, text in shown.items() if f"| {name} | {text} |" not in page] == []
    assert shown["import cycles, of modules and of rooms"] == "0, 0" and shown["largest module"].split()[0].isdigit()
