"""The progress of a run: where it is shown, that it never ends the run, and that nobody else's callbacks are lost."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from persistent import InvalidPipeline
from persistent import progress as cell
from persistent.connect.source import Reached
from persistent.driver.report import Idle, StepReport
from persistent.progress import Listeners, is_notebook
from tests.driver.shop import Shop


def step(id: int, done: int = 50) -> StepReport:
    reached = Reached(done, 100, "rows")
    return StepReport(id, 1_000, 0.1, 0, 0, 0, 1_700_000_000_000, 2_000, 512, 0, 256, 0.01, reached=reached)


class Front:
    """What a front end is sent: the first display, and what replaced it."""

    def __init__(self, fails: int = 0) -> None:
        self.shown: list[dict[str, str]] = []
        self.fails = fails

    def __call__(self, shown: dict[str, str]) -> Front:
        self.shown.append(shown)
        return self

    def update(self, shown: dict[str, str], *, raw: bool) -> None:
        if self.fails:
            raise OSError("the front end is gone")
        self.shown.append(shown)


@pytest.fixture
def front(monkeypatch: pytest.MonkeyPatch) -> Front:
    made = Front()
    monkeypatch.setattr(cell, "is_notebook", lambda: True)
    monkeypatch.setattr(cell, "_displayed", made)
    return made


def test_outside_a_notebook_nothing_is_shown_unless_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script's log would get lines that nobody asked for."""
    # The command line of an earlier test writes log lines to the standard error.
    monkeypatch.setattr(logging.getLogger("persistent"), "handlers", [])
    assert not is_notebook()
    Shop().run()
    Shop().run(progress=False)
    assert capsys.readouterr() == ("", "")
    Shop().run(progress=True)
    out, err = capsys.readouterr()
    assert not out and err.startswith("33 % of 12 rows") and err.count("\n") == 1


def test_another_choice_is_refused() -> None:
    """progress="no" would show it."""
    with pytest.raises(InvalidPipeline, match="progress='no': give True, False, or None"):
        Shop().run(progress="no")


def test_a_terminal_of_ipython_is_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would print what a browser draws."""
    shell = SimpleNamespace()
    monkeypatch.setitem(cell.sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert not is_notebook()
    shell.kernel = object()
    assert is_notebook()
    monkeypatch.setitem(cell.sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    assert not is_notebook()


def test_a_cell_has_one_display_that_is_replaced_now_and_then(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook of a long run would be megabytes of lines, or its browser stand still."""
    now = [0.0]
    monkeypatch.setattr(cell, "monotonic_s", lambda: now[0])
    with Listeners(None, True, None, None) as listeners:
        for id in range(100):
            listeners.step(step(id, done=id))
            now[0] += 0.01
        now[0] += 10
        listeners.idle(Idle(Reached(100, 100, "rows"), 1_700_000_000_000, 0, None))
    texts = [shown["text/plain"] for shown in front.shown]
    assert 4 <= len(texts) <= 8
    assert texts[0] == "starting" and texts[1].startswith("0 % of 100 rows  1,000 rows")
    assert texts[-2].startswith("idle 10 s: waiting for input") and texts[-1].endswith("  ended")
    assert "width:25%" in "".join(shown["text/html"] for shown in front.shown)


def test_a_run_that_fails_says_so(front: Front) -> None:
    """The bar of a run that was ended in the middle would look like one of a run that goes on."""
    with pytest.raises(ValueError, match="mine"):
        Shop().run(on_step=lambda step: [][step.id] if step.id < 0 else (_ for _ in ()).throw(ValueError("mine")))
    assert front.shown[-1]["text/plain"].endswith("ended by ValueError")


def test_a_front_end_that_is_gone_ends_no_run(front: Front, caplog: pytest.LogCaptureFixture) -> None:
    """A laptop that is closed would end the job on the cluster."""
    front.fails = 1
    with caplog.at_level(logging.WARNING):
        report = Shop().run()
    assert report.rows == 12 and len(front.shown) == 1
    assert [one.message for one in caplog.records if "progress" in one.message] == [
        "the progress is not shown any more: OSError: the front end is gone"
    ]


def test_the_callbacks_of_the_user_are_called_as_well(front: Front) -> None:
    """A job that counts its steps would count none in a notebook."""
    steps: list[Any] = []
    idles: list[Any] = []
    with Listeners(True, False, steps.append, idles.append) as listeners:
        listeners.step(step(1))
        listeners.idle(Idle(None, 0, 0, None))
    assert len(steps) == len(idles) == 1
    Shop().run(on_step=steps.append)
    assert len(steps) == 1 + 4
