"""``persistent why``: what an error means, on a machine without the docs and without a network."""

from __future__ import annotations

import json
import pickle
from configparser import ConfigParser
from importlib.resources import files
from pathlib import Path

import pytest

from persistent import MemorySource, NonWindowState, PersistentError, PersistentTask, Pipeline, UserCodeError
from persistent.errors import NoCheckpoint, explanation
from persistent.tools.cli.why import sections
from tests.test_readme import ROOT, public_errors
from tests.tools.cli.visits import command, json_of


@pytest.mark.parametrize("name", sorted(public_errors()))
def test_every_error_is_explained(name: str) -> None:
    """Without it a message could end with a command that knows nothing."""
    shown = command("why", name)
    assert shown.exit_code == 0
    assert name in shown.stdout and "Do:" in shown.stdout
    assert command("why", name.upper()).stdout == shown.stdout
    for line in (
        f"persistent.errors.{name}: it was refused, Fenced",
        f"Error: Refused, Stopped (persistent why {name})",
    ):
        assert command("why", line).stdout == shown.stdout


def test_every_error_that_ends_a_job_is_known_by_the_class_that_it_names() -> None:
    """Without it an error of a module of ours could name a section that is not there."""
    found, waiting = set(), [PersistentError]
    while waiting:
        found |= {one for one in waiting if one.__module__.startswith("persistent.")}
        waiting = [derived for one in waiting for derived in one.__subclasses__()]
    # The page that shows jobs says its own two in a browser.
    named = {
        explanation(one.__new__(one)).split()[-1] for one in found if one.__module__ != "persistent.tools.serve.wording"
    }
    assert named <= sections().keys()


def test_the_page_is_the_one_of_the_docs_and_part_of_the_package() -> None:
    """Without it the remedy that is read at night could be of another release, or be missing."""
    page = files("persistent.tools.cli").joinpath("errors.md")
    assert page.read_bytes() == (ROOT / "docs" / "errors.md").read_bytes()
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    assert setup["options.package_data"]["persistent.tools.cli"] == "errors.md"


def test_a_message_ends_with_its_command(here: Path) -> None:
    """Without it nobody who reads a log would know that there is an explanation."""
    (line,) = command("history", "nowhere").stderr.splitlines()
    assert line.endswith("(persistent why NoCheckpoint)")
    assert "unfinished savepoint" in " ".join(command("why", "NoCheckpoint").stdout.split())


def test_an_error_of_a_run_in_python_names_it_once() -> None:
    """Without it a traceback would end with a message alone; and its text may not change, as people match it."""
    from monoids import Count

    class Failing(PersistentTask):
        key = "k"

        def persistent_state(self) -> NonWindowState:
            return NonWindowState(Count())

        def process_message(self, state: object, message: object) -> None:
            raise ValueError("boom")

    source = MemorySource([{"ts": 1, "k": "a"}], timestamp="ts")
    with pytest.raises(UserCodeError) as caught:
        Pipeline(source=source, task=Failing(), checkpoint="memory://why-run").run(engine="embedded")
    assert caught.value.__notes__ == ["persistent why UserCodeError"]
    assert "persistent why" not in str(caught.value)
    assert pickle.loads(pickle.dumps(caught.value)).__notes__ == caught.value.__notes__


def test_an_error_that_a_user_derives_is_explained_as_the_nearest_of_ours() -> None:
    """Without it a job whose source raises its own error would be sent to a section that nobody wrote."""

    class Mine(NoCheckpoint):
        pass

    assert explanation(Mine()) == "persistent why NoCheckpoint"


def test_without_a_name_the_exit_codes_are_shown() -> None:
    """Without it a supervisor's log, which has the code alone, would say nothing."""
    listed = command("why")
    assert listed.exit_code == 0
    assert all(name in listed.stdout for name in sections())
    assert "EngineError" in listed.stdout and "130" in listed.stdout
    assert command("why", "4").stdout == listed.stdout


def test_a_program_reads_the_same() -> None:
    """Without it an alert could not carry the remedy with it."""
    assert json_of("why", "Fenced") == [{"error": "Fenced", "text": sections()["Fenced"]}]
    assert [row["error"] for row in json_of("why")] == list(sections())


def test_a_misspelled_error_is_refused_with_the_nearest() -> None:
    """Without it a typing error at night would end with nothing."""
    refused = command("why", "CorruptCheckpont")
    assert refused.exit_code == 2 and "Did you mean CorruptCheckpoint?" in refused.stderr


def test_a_log_line_of_json_names_its_error() -> None:
    """The error would be taken from the text of its cause."""
    line = json.dumps(
        {"message": "a (persistent why SourceError)", "error": "StorageError", "traceback": "SourceError"}
    )
    assert json.loads(command("why", line, "--json").stdout)["error"] == "StorageError"
