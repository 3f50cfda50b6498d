"""The page in a real browser: each view is drawn, hostile keys stay text, and a new checkpoint is seen."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tools.cli.made import ROOT

pytestmark = [pytest.mark.check, pytest.mark.browser, pytest.mark.apart]

JOB = """
import sys
sys.path.insert(0, {root!r})
from persistent import FileSink, MemorySource, Pipeline, Retention
from tests.tools.serve.jobs import Each, Visits, rows

def pipeline(count=100):
    source = MemorySource(rows(count), timestamp="ts", ordered=True)
    return Pipeline(source=source, task=Visits(), sink=FileSink("out"), checkpoint="visits", step_rows=10,
                    retention=Retention(last=50))

first = pipeline(40)
source = MemorySource(rows(100), timestamp="ts", ordered=True)
sinks = {{"minutes": FileSink("minutes"), "living": FileSink("living")}}
several = Pipeline(source=source, task=Each(), sink=sinks, late_sink=FileSink("late"), checkpoint="each", step_rows=10)
ticket = Pipeline(source=source, task=Visits(), sink=FileSink("corrected-out"), checkpoint="corrected", step_rows=50)
"""

FINDS = {
    "now": "Is anything lost?",
    "graph": "Rows a second are those",
    "timeline": "checkpoints are kept",
    "state": "<script>alert('key')</script>",
    "account": "Set aside, newest first",
    "storage": "Verify every byte",
}


def run(folder: Path, name: str) -> None:
    python(folder, "-m", "persistent", "run", f"visits.py:{name}", "--engine", "embedded")


def python(folder: Path, *words: str) -> None:
    subprocess.run([sys.executable, *words], cwd=folder, env=environment(), check=True)


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    folder = tmp_path_factory.mktemp("served")
    (folder / "visits.py").write_text(JOB.format(root=str(ROOT)))
    for name in ("first", "several", "ticket"):
        run(folder, name)
    more = {"ts": 99_000, "page": "/", "shop": 7, "size": 1}
    python(folder, "-c", f"import visits; visits.ticket.correct(name='ticket', add=[{more}], engine='embedded')")
    targets = ["visits.py:pipeline", "visits.py:several", "visits.py:ticket", "empty"]
    words = [sys.executable, "-m", "persistent", "serve", *targets, "--port", "0"]
    with subprocess.Popen(words, cwd=folder, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.match(r"http://\S+", process.stdout.readline())
        assert found
        yield folder, found[0]
        process.terminate()


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("job", ["visits", "each", "corrected"])
@pytest.mark.parametrize("view", FINDS)
def test_each_view(page: Any, served: tuple[Path, str], view: str, job: str, width: int) -> None:
    """A view would be blank, or wider than a telephone, of one state or of several."""
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(f"{served[1]}#/{job}/{view}")
    page.get_by_text(FINDS[view]).first.wait_for()
    assert "[object" not in page.inner_text("main") and "undefined" not in page.inner_text("main")
    assert re.search(r"\b(?<![\d,.])1 (rows|runs|checkpoints)\b", page.inner_text("main")) is None
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_row_says_why_it_is_here(page: Any, served: tuple[Path, str]) -> None:
    """Nobody would see which checkpoints a value comes from."""
    page.goto(f"{served[1]}#/visits/state?sort=-visits")
    page.locator("tr.pick").first.click()
    page.get_by_text("Why is this row here?").wait_for()
    page.get_by_text("together").wait_for()


def test_a_state_of_several_is_chosen(page: Any, served: tuple[Path, str]) -> None:
    """Only the first state of a task could be seen."""
    page.goto(f"{served[1]}#/each/now")
    page.get_by_role("table", name="states").get_by_role("link", name="living").wait_for()
    assert page.get_by_role("table", name="sinks").get_by_text("late records").first.is_visible()
    page.goto(f"{served[1]}#/each/state")
    page.get_by_role("heading", name="State minutes").wait_for()
    page.get_by_label("State", exact=True).select_option("living")
    page.get_by_role("heading", name="State living").wait_for()
    page.locator("tr.pick").first.click()
    page.get_by_text("A key lives 2500 ms after its last message, and begins at zero").wait_for()


def test_the_values_of_a_chosen_state_are_compared(page: Any, served: tuple[Path, str]) -> None:
    """Only the first state of a task could be compared."""
    page.goto(f"{served[1]}#/each/timeline?from=11&id=12")
    page.get_by_role("button", name="Compare values by key").click()
    page.get_by_label("State", exact=True).select_option("living")
    page.get_by_role("heading", name="values differ").wait_for()
    assert page.get_by_label("State", exact=True).input_value() == "living"


def test_a_correction_is_named(page: Any, served: tuple[Path, str]) -> None:
    """Nobody would see what has changed the state without reading a record."""
    page.goto(f"{served[1]}#/corrected/timeline")
    page.get_by_text("correction ticket (+1 −0)").first.wait_for()
    page.get_by_text("The correction 'ticket' put records into the state").wait_for()
    page.goto(f"{served[1]}#/corrected/account")
    page.get_by_text("1 record added, 0 removed").wait_for()


def test_a_search(page: Any, served: tuple[Path, str]) -> None:
    """The policy would forbid the form, or the search find another key."""
    page.goto(f"{served[1]}#/visits/state")
    page.get_by_label("search in the key").fill("CART")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("find=CART"))
    page.get_by_role("button", name="find: CART").wait_for()
    assert {row.split()[0] for row in page.locator("tbody tr").all_inner_texts()} == {"/cart"}


def test_the_slider_goes_back(page: Any, served: tuple[Path, str]) -> None:
    """The state at an earlier checkpoint could not be seen."""
    page.goto(f"{served[1]}#/visits/state")
    page.get_by_label("checkpoint", exact=True).focus()
    page.keyboard.press("ArrowLeft")
    page.get_by_role("button", name="at: ").wait_for()


def test_two_checkpoints_are_compared(page: Any, served: tuple[Path, str]) -> None:
    """What a step did could not be seen."""
    page.goto(f"{served[1]}#/visits/timeline")
    page.locator("tr.pick").nth(0).click()
    page.locator("tr.pick").nth(2).click(modifiers=["Shift"])
    page.get_by_role("button", name="Compare values by key").click()
    page.get_by_text("values differ").wait_for()


def test_a_verification_is_shown(page: Any, served: tuple[Path, str]) -> None:
    """The button would do nothing."""
    page.goto(f"{served[1]}#/visits/storage")
    page.get_by_role("button", name="Verify every byte").click()
    page.get_by_text("is whole, to the last byte").wait_for()


def test_a_download_arrives(page: Any, served: tuple[Path, str]) -> None:
    """The link would lead nowhere."""
    page.goto(f"{served[1]}#/visits/state")
    page.get_by_text("Download", exact=True).click()
    with page.expect_download() as found:
        page.get_by_text("JSON lines").click()
    assert Path(found.value.path()).read_text().count("\n") > 3


def test_the_keyboard(page: Any, served: tuple[Path, str]) -> None:
    """Who uses no mouse could not use the page."""
    page.goto(f"{served[1]}#/visits/now")
    page.get_by_text(FINDS["now"]).wait_for()
    page.keyboard.press("3")
    page.get_by_text(FINDS["timeline"]).wait_for()
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"timeline\?id=\d+"))
    for view in ("2", "3", "4"):
        page.keyboard.press(view)
        page.get_by_text(FINDS[{"2": "graph", "3": "timeline", "4": "state"}[view]]).first.wait_for()
        page.keyboard.press("?")
        page.get_by_role("dialog").wait_for()
        page.keyboard.press("Escape")
        page.get_by_role("dialog").wait_for(state="hidden")


def test_all_jobs_are_seen_at_once(page: Any, served: tuple[Path, str]) -> None:
    """Somebody who watches ten jobs would have to open each of them."""
    page.goto(served[1])
    jobs = page.get_by_role("table", name="jobs")
    jobs.get_by_role("row").filter(has_text="visits").get_by_text("Stopped").wait_for()
    jobs.get_by_role("row").filter(has_text="empty").get_by_text("No checkpoint yet").wait_for()
    jobs.get_by_role("link", name="each").click()
    page.get_by_role("heading", name="each", exact=True).wait_for()
    page.keyboard.press("0")
    page.get_by_role("heading", name="4 jobs").wait_for()


def test_an_empty_folder_is_said(page: Any, served: tuple[Path, str]) -> None:
    """It would look like a page that does not work."""
    page.goto(f"{served[1]}#/empty/now")
    page.get_by_role("alert").get_by_text("No checkpoint yet").wait_for()


def test_a_new_checkpoint_is_seen(page: Any, served: tuple[Path, str]) -> None:
    """The page would show what was."""
    folder, url = served
    page.goto(f"{url}#/visits/now")
    page.get_by_text("Nothing lost").wait_for()
    run(folder, "pipeline")
    page.get_by_text("1 late and 1 dead").wait_for()
