"""The page in a real browser, of what an operator does not expect: keys that cannot be seen, sums that have no result,
files that are gone, a store that hangs."""

from __future__ import annotations

import json
from threading import Event
from typing import Any
from urllib.parse import quote

import pytest

from monoids import Bag, Sum, record
from persistent import MemorySource, NonWindowState, PersistentTask
from persistent.storage import MemoryStorage
from persistent.tools.serve import Shown
from tests.tools.serve.jobs import ran, serving, several

pytestmark = [pytest.mark.check, pytest.mark.browser]

LONG, WIDE = "a" * 3_000, 2**53 + 1
KEYS = {"nul\0in": r"nul\u0000in", "nulin": "nulin", "\u202egnp.exe": r"\u202egnp.exe", " x": "␣x", "null": "null"}
"""Keys, and how they are shown."""


class Strange(PersistentTask):
    key = "page"

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(record(total=Sum(), tops=Bag(str), f=Sum(float)))

    def process_message(self, state: Any, message: Any) -> None:
        value = message.value
        state.update(message.timestamp, {"total": value["n"], "tops": value["page"], "f": value["f"]})


@pytest.fixture(scope="module")
def url() -> Any:
    rows = [{"ts": at, "page": page, "n": WIDE, "f": float("nan")} for at, page in enumerate([*KEYS, LONG])]
    rows += [{"ts": 100, "page": "/much", "n": 2**62, "f": float("-inf")}] * 2
    strange = ran("strange", sources=MemorySource(rows, ordered=True), task=Strange())
    lost = several("lost", "minutes", "total")
    files = MemoryStorage("serve-lost")._files
    for name in [one for one in files if one.startswith("d/") and "/total/" in one]:
        del files[name]
    with serving(strange, Shown("lost", "", lost.storage, lost.pipeline)) as url:
        yield url


def test_keys_that_cannot_be_seen_are_told_apart(page: Any, url: str) -> None:
    """Two keys would look like one, one like another, and a long one would fill the page."""
    page.goto(f"{url}#/strange/state")
    row = page.locator("tbody tr")
    row.first.wait_for()
    shown = row.locator("td:first-child").all_inner_texts()
    assert sorted(one for one in shown if "letters" not in one) == sorted(KEYS.values())
    assert max(one["height"] for one in (row.nth(n).bounding_box() for n in range(row.count()))) < 500
    assert [one for one in shown if one.endswith("… 3,000 letters")]
    # Exact, beyond what a browser counts.
    assert row.filter(has_text="nulin").inner_text().split()[1] == f"{WIDE:,}"
    assert row.filter(has_text="nulin").get_by_text("nan").count() == 1
    page.goto(f"{url}#/strange/state?key={quote(json.dumps([LONG]))}")
    page.get_by_text("Why is this row here?").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_counts_of_a_bag_are_exact(page: Any, url: str) -> None:
    """A count of 12,345 was shown as 12,300."""
    page.goto(f"{url}#/strange/state")
    page.locator("tbody tr").first.wait_for()
    parts = '[{"value": "a", "count": 12345}, {"value": "b", "count": 9007199254740993}]'

    def shown(kind: str, text: str) -> str:
        made = f"all.value({{ kind: '{kind}' }}, {json.dumps(text)}).textContent"
        return str(page.evaluate(f"import('/assets/values.js').then((all) => {made})"))

    text = shown("list", parts)
    assert "12,345" in text and "9,007,199,254,740,993" in text
    assert "9007199254740993" in shown("struct", '{"low": 9007199254740993, "high": 12345}')


def test_a_sum_without_result_hides_no_other(page: Any, url: str) -> None:
    """One key would hide all."""
    page.goto(f"{url}#/strange/state")
    page.get_by_text("1 row of these has no result, and is left out").wait_for()
    assert page.locator("tbody tr").count() == len(KEYS) + 1
    page.goto(f'{url}#/strange/state?key=["/much"]')
    page.get_by_text("No row of the state is as asked").wait_for()


def test_a_state_whose_files_are_gone_hides_no_other(page: Any, url: str) -> None:
    """Somebody would believe that all is lost."""
    page.goto(f"{url}#/lost/state?name=total")
    page.get_by_text("This checkpoint is damaged").wait_for()
    page.get_by_role("link", name="minutes").click()
    page.get_by_text("State minutes at checkpoint").wait_for()


def test_a_store_that_hangs_is_said_to(page: Any) -> None:
    """The page would say that it reads, for ever."""
    shown, goes_on = ran("hung"), Event()

    class Hanging(MemoryStorage):
        def list(self, folder: str) -> list[str]:
            assert goes_on.wait(60)
            return super().list(folder)

    with serving(Shown("hung", "", Hanging("serve-hung"), shown.pipeline)) as url:
        page.goto(f"{url}#/hung/now")
        page.get_by_text("The store has not answered for 4 seconds").wait_for()
        goes_on.set()
        page.get_by_text("Is it alive?").wait_for()
