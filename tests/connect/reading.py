"""A source of files, and the ids that it reads."""

from __future__ import annotations

from persistent import FileSource
from tests.connect.draining import drain
from tests.proof.inputs import Inputs, patience, served
from tests.proof.inputs_job import Job, small_edges


def source(root, clock, lenient=True, **options):
    """A lenient source whose pauses take no time."""
    bad = "dead-letter" if lenient else "raise"
    made = FileSource(root, timestamp="ts", timestamp_unit="ms", on_bad_file=bad, **options)
    made._files.patience = patience(clock)
    return made


def ids(drained):
    return [row["id"] for row in drained.values]


def requests_of(files, step=7):
    """The requests of a source that reads these files in steps of so many rows: (verb, path)."""
    inputs = Inputs(dict(files))
    with small_edges(), served(inputs) as clock:
        drain(source("store://in", clock), step, True)
    return inputs.verbs


def at(folder, count, act):
    """Do something before so many-th put in a folder of the checkpoint."""
    left = [count]

    def before_put(name):
        if name.startswith(folder):
            left[0] -= 1
            if left[0] == 0:
                act()

    return before_put


def job_of(inputs, clock, **options):
    return Job(inputs, "store://in" if type(inputs) is Inputs else f"{inputs.folder}/in", clock, **options)
