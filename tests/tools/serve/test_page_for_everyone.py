"""The page meets WCAG 2.2 AA by axe, in light and dark, in every view, on a wide screen and on a telephone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from persistent.storage import MemoryStorage
from persistent.tools.serve import Shown
from tests.tools.serve.jobs import Each, corrected, ran, serving, several

pytestmark = [pytest.mark.check, pytest.mark.browser]

RULES = {
    "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
}

LOOKS = {
    "jobs": ("corrected", "jobs", "is anything lost?"),
    "now": ("corrected", "now", "Is anything lost?"),
    "states": ("states", "now", "All have read the same records"),
    "graph": ("states", "graph", "Rows a second are those"),
    "time line": ("states", "timeline", "A step was counted"),
    "difference": ("corrected", "timeline?from=2&id=5", "Compare values by key"),
    "state": ("states", "state", "State minutes"),
    "why": ("corrected", 'state?key=["/","7"]', "together"),
    "account": ("corrected", "account?rows=late", "Set aside, newest first"),
    "storage": ("corrected", 'storage?key=["/","7"]', "Verify every byte"),
    "without a pipeline": ("url", "state", "A state needs its task"),
    "without a checkpoint": ("empty", "now", "No checkpoint yet"),
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    late = ran("url", count=100)
    shown = [
        corrected("corrected"),
        several("states", *Each().names),
        Shown("url", "memory://serve-url", late.storage),
        Shown("empty", "memory://serve-none", MemoryStorage("serve-none")),
    ]
    with serving(*shown) as url:
        yield url


def faults(page: Any) -> list[str]:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    found = axe.run(page, options=RULES).response["violations"]
    return [f"{one['id']}: {one['help']}: {node['html'][:160]}" for one in found for node in one["nodes"]]


@pytest.mark.parametrize(
    "scheme, width",
    [
        ("dark", 390),
        pytest.param("light", 1280, marks=pytest.mark.apart),
        pytest.param("light", 390, marks=pytest.mark.apart),
        pytest.param("dark", 1280, marks=pytest.mark.apart),
    ],
)
def test_everyone_can_use_every_view(page: Any, url: str, scheme: str, width: int) -> None:
    """Who reads with a screen reader, a telephone, or little contrast, could not see whether a job is well."""
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.goto(url)
    found = {}
    for name, (job, view, text) in LOOKS.items():
        page.goto(f"{url}#/{job}/{view}")
        page.locator("main").get_by_text(text).first.wait_for()
        found[name] = faults(page)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
    page.keyboard.press("?")
    found["help"] = faults(page)
    assert {name: said for name, said in found.items() if said} == {}


def test_everything_is_reached_by_the_keyboard(page: Any, url: str) -> None:
    """A button that only a mouse reaches is none."""
    page.goto(f"{url}#/corrected/account")
    page.get_by_text("Set aside, newest first").wait_for()
    unreached = page.evaluate(
        "[...document.querySelectorAll('[onclick], button, a[href], summary, input, select')]"
        ".filter((one) => one.tabIndex < 0 && one.offsetParent).map((one) => one.outerHTML)"
    )
    assert unreached == []
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.textContent.slice(0, 20)"))
    assert {"Skip to the job", "Time line", "Late rows", "Dead letters"} <= reached
