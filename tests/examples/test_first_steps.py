"""The notebook of the first steps, run from top to bottom as a new user does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.monoids.test_html import Page

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "first_steps.ipynb"


def read() -> Any:
    import nbformat

    return nbformat.read(NOTEBOOK, as_version=4)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The notebook, executed."""
    from nbclient import NotebookClient

    folder, patch = tmp_path_factory.mktemp("notebook"), pytest.MonkeyPatch()
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    for name, value in (("PYTHONPATH", paths), ("TMPDIR", str(folder)), ("IPYTHONDIR", str(folder / "ipython"))):
        patch.setenv(name, value)
    found = read()
    try:
        NotebookClient(
            found, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
        ).execute()
    finally:
        patch.undo()
    return found


def outputs(ran: Any, code: str) -> list[Any]:
    """What the cell with that code has put out."""
    (cell,) = [cell for cell in ran.cells if cell.cell_type == "code" and code in cell.source]
    return list(cell.outputs)


def html(output: Any) -> str:
    return Page(output["data"]["text/html"]).text


def test_the_notebook_is_stored_without_outputs() -> None:
    """Each run would change the file, and what it shows could be of another release."""
    for cell in read().cells:
        assert cell.cell_type == "markdown" or (cell.outputs == [] and cell.execution_count is None)


def test_every_cell_runs_and_shows_what_it_promises(ran: Any) -> None:
    """The first thing that a new user runs would fail, or show an address in memory."""
    assert "commutative" in html(outputs(ran, "measures = record(")[0])
    assert "the pipeline has not run" in html(outputs(ran, "pipeline = make_pipeline(Views())\npipeline")[0])
    progress, report = outputs(ran, "or pipeline.run(spark)")
    assert progress["data"]["text/plain"].endswith("ended") and "100 % of" in progress["data"]["text/plain"]
    assert "120,000 rows in 13 steps: done" in html(report)
    for code in ("report.plot()", "pipeline.plot()"):
        (chart,) = outputs(ran, code)
        assert "rows/s" in str(chart["data"]) and "set aside" in str(chart["data"])
    assert "window_start" in outputs(ran, "pipeline.state().to_pandas()")[0]["data"]["text/html"]


def test_its_result_is_that_of_a_plain_group_by(ran: Any) -> None:
    """The notebook claims it, and its last cells print it; a cell that fails ends the run of the notebook."""
    (printed,) = outputs(ran, "assert found.to_dict()")
    assert printed["text"].startswith("150,000 records: 149,") and printed["text"].endswith(" late\n")
    progress, refused = outputs(ran, "except FingerprintChanged")
    assert progress["data"]["text/plain"] == "ended by FingerprintChanged"
    assert 'window: tumbling("1 min") -> tumbling("1 h")' in refused["text"]
