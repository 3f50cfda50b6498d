"""A job of visits that has come to its end."""

import pytest

from persistent import Pipeline
from tests.reading.visits import pipeline_of, visits


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    made = pipeline_of(visits(700), tmp_path_factory.mktemp("reading") / "checkpoint")
    made.run(engine="embedded")
    return made
