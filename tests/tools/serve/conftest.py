"""A browser, and pages on which nothing may fail."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest


def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None and "CI" in os.environ:
        pytest.fail("no browser: apt-get install chromium")
    if found is None:
        pytest.skip("no browser: apt-get install chromium")
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser for the tests of a module. While it is open a loop of asyncio runs in this process, and a test of
    another module could begin none of its own."""
    path = chromium()
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page on which nothing may fail: no script, and nothing that the policy forbids."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, accept_downloads=True)
    page = context.new_page()
    said: list[str] = []
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(f"a dialog: {dialog.message}"))
    page.on("console", lambda one: said.append(one.text) if "Content Security Policy" in one.text else None)
    yield page
    context.close()
    assert said == []
