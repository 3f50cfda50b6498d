"""The page in a real browser whose server answers late, in another order, in parts, or not at all: what is drawn in the
end is what the last answers say."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from persistent import MemorySource, Pipeline, Retention
from persistent.storage import MemoryStorage
from persistent.tools.serve import Shown, web
from persistent.tools.serve import shown as shown_module
from tests.tools.serve.jobs import Visits, rows, serving

pytestmark = [pytest.mark.check, pytest.mark.browser]

LATE = 120
"""More than a page of late rows."""


def job(count: int) -> Pipeline:
    """A checkpoint for each of so many records; after the first minute late ones."""
    made = [*rows(90)[:count], *([{"ts": 1, "page": "/late", "shop": 7, "size": 1}] * LATE if count > 60 else [])]
    return Pipeline(
        source=MemorySource(made, timestamp="ts", ordered=True),
        task=Visits(),
        checkpoint="memory://serve-slow",
        step_rows=1,
        retention=Retention(last=500),
        discard_closed=True,
    )


def run(count: int) -> None:
    job(count).run(engine="embedded")


class Held:
    """The requests of a page for an address, held until the test lets them go."""

    def __init__(self, page: Any, address: str) -> None:
        self.page = page
        self.routes: list[Any] = []
        page.route(address, lambda route: self.routes.append(route))

    def wait(self, count: int = 1) -> None:
        until(self.page, lambda: len(self.routes) >= count)

    def go(self) -> None:
        for route in self.routes:
            route.continue_()
        self.routes.clear()


def until(page: Any, done: Callable[[], Any]) -> None:
    """Wait for something outside the page."""
    for _ in range(1_500):
        if done():
            return
        page.wait_for_timeout(20)
    pytest.fail("nothing has happened within half a minute")


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """Changes are heard at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(web, "_POLL_S", 0.05)
        patch.setattr(shown_module, "_LOOK_S", 0.02)
        yield


@pytest.fixture
def url() -> Iterator[str]:
    MemoryStorage("serve-slow").clear()
    run(20)
    made = job(20)
    with serving(Shown("slow", "visits.py:pipeline", made.storage, made)) as url:
        yield url


def failing(page: Any, address: str, times: int) -> None:
    """The first so many requests for an address fail."""
    left = [None] * times

    def answer(route: Any) -> None:
        if left:
            left.pop()
            route.abort()
        else:
            route.continue_()

    page.route(address, answer)


def limited(url: str, lines: int) -> str:
    """The question for so many lines of the time line, as a server answers that has many manifests to read."""
    part, _, query = url.partition("?")
    return f"{part}?{re.sub('limit=[0-9]+', '', query)}&limit={lines}"


def ids(page: Any) -> list[str]:
    found: list[str] = page.locator("tr.pick td:first-child").all_inner_texts()
    return found


@pytest.mark.parametrize(
    "view, address, drawn",
    [
        ("now", "**/api/slow/now", "Is it alive?"),
        ("timeline", "**/api/slow/timeline*", "checkpoints are kept"),
        ("timeline", "**/api/slow/manifest*", "A step was counted"),
        ("state", "**/api/slow/*", "State at checkpoint"),
        ("account", "**/api/slow/*", "Set aside, newest first"),
        ("storage", "**/api/slow/*", "Verify every byte"),
        ("now", "**/api/jobs", "Is it alive?"),
    ],
)
def test_what_failed_is_asked_again(page: Any, url: str, view: str, address: str, drawn: str) -> None:
    """An error of a moment would stay on the page until somebody loads it anew."""
    failing(page, address, 1)
    page.goto(f"{url}#/slow/{view}")
    page.get_by_text("The page's server does not answer").wait_for()
    page.get_by_text(drawn).first.wait_for()
    page.get_by_text("The page's server does not answer").wait_for(state="detached")


def test_no_answer_for_a_minute_is_no_server_that_is_gone(page: Any, url: str) -> None:
    """Somebody would start the server anew, where it is the store that hangs."""
    soon = "AbortSignal.timeout = (ms) => { const end = new AbortController();"
    soon += "setTimeout(() => end.abort(new DOMException('', 'TimeoutError')), ms / 200); return end.signal; };"
    page.add_init_script(soon)
    Held(page, "**/api/slow/now")
    page.goto(f"{url}#/slow/now")
    page.get_by_text("The store, or the page's server, has not answered for 60 s").wait_for()


def test_what_is_drawn_stays_while_the_rest_is_waited_for(page: Any, url: str) -> None:
    """The time line would be replaced by the word that it is read, for as long as nothing else happens."""
    held = Held(page, "**/api/slow/manifest*")
    page.goto(f"{url}#/slow/timeline")
    held.wait()
    page.wait_for_timeout(600)
    assert page.get_by_text("checkpoints are kept").is_visible()
    held.go()
    page.get_by_text("A step was counted").wait_for()
    assert page.get_by_text("checkpoints are kept").is_visible()


def test_the_time_line_grows_whole_from_parts(page: Any, url: str) -> None:
    """A time line that a busy server gives in parts would stay short once a part fails."""
    asked = []

    def answer(route: Any) -> None:
        asked.append(route.request.url)
        if len(asked) in (2, 4):
            route.abort()
        else:
            route.continue_(url=limited(route.request.url, 4))

    page.route("**/api/slow/timeline*", answer)
    page.goto(f"{url}#/slow/timeline")
    page.get_by_role("cell", name="beginning").wait_for()
    found = ids(page)
    assert page.get_by_text(f"{len(found)} checkpoints are kept").is_visible()
    assert found == sorted(found, key=int, reverse=True)


def test_no_line_is_missing_after_many_checkpoints(page: Any, url: str) -> None:
    """Those between the newest part of an answer and what was there before would be left out for good."""
    page.route("**/api/slow/timeline*", lambda route: route.continue_(url=limited(route.request.url, 3)))
    page.goto(f"{url}#/slow/timeline")
    page.get_by_role("cell", name="beginning").wait_for()
    run(40)
    page.get_by_text(f"{len(job(40).storage.list('m'))} checkpoints are kept").wait_for()
    until(page, lambda: len(ids(page)) == len(job(40).storage.list("m")))


def test_a_click_outlives_new_lines(page: Any, url: str) -> None:
    """A line that is drawn anew while it is pressed would not hear the click."""
    page.goto(f"{url}#/slow/timeline")
    page.get_by_role("cell", name="beginning").wait_for()
    line = page.locator("tr.pick").nth(5)
    chosen = line.locator("td").first.inner_text()
    line.hover()
    heard = Held(page, "**/api/slow/timeline*")
    page.mouse.down()
    run(22)
    heard.wait()
    heard.go()
    page.wait_for_timeout(300)
    page.mouse.up()
    page.get_by_role("heading", name=f"Checkpoint {chosen}", exact=True).wait_for()


def test_the_last_choice_is_shown(page: Any, url: str) -> None:
    """The answer for a line that was picked before would come late, and replace that of the last one."""
    page.goto(f"{url}#/slow/timeline")
    page.get_by_role("cell", name="beginning").wait_for()
    first, second = ids(page)[3], ids(page)[6]
    held = Held(page, f"**/api/slow/manifest?id={first}")
    page.locator("tr.pick").nth(3).click()
    held.wait()
    page.locator("tr.pick").nth(6).click()
    page.get_by_role("heading", name=f"Checkpoint {second}", exact=True).wait_for()
    held.go()
    page.wait_for_timeout(300)
    assert page.get_by_role("heading", name=f"Checkpoint {second}", exact=True).is_visible()


def test_a_comparison_replaces_no_later_choice(page: Any, url: str) -> None:
    """Values that take long to compare would replace what was picked meanwhile."""
    page.goto(f"{url}#/slow/timeline?from=4&id=9")
    held = Held(page, "**/api/slow/difference?*values=1*")
    page.get_by_role("button", name="Compare values by key").click()
    held.wait()
    page.locator("tr.pick").nth(2).click()
    page.get_by_text("A step was counted").wait_for()
    held.go()
    page.wait_for_timeout(300)
    assert page.get_by_text("A step was counted").is_visible()


@pytest.mark.parametrize(
    "view, address, drawn",
    [("now", "now", "all 24 records"), ("timeline", "timeline*", "every"), ("account", "account", "24")],
)
def test_what_changes_while_it_is_read_is_read_again(page: Any, url: str, view: str, address: str, drawn: str) -> None:
    """A view would show what was until something else happens."""
    old: list[tuple[Any, Any]] = []

    def answer(route: Any) -> None:
        if old:
            route.continue_()
        else:
            old.append((route, route.fetch()))

    page.route(f"**/api/slow/{address}", answer)
    page.goto(f"{url}#/slow/{view}")
    until(page, lambda: old)
    run(24)
    # Its event is heard, and only then the old answer arrives.
    page.wait_for_timeout(500)
    route, response = old[0]
    route.fulfill(response=response)
    if view == "timeline":
        until(page, lambda: len(ids(page)) == len(job(24).storage.list("m")))
    else:
        page.get_by_text(drawn).first.wait_for()


def test_a_view_that_has_grown_old_says_so(page: Any, url: str) -> None:
    """What is shown would look like what is."""
    page.goto(f"{url}#/slow/now")
    page.get_by_text("all 20 records").wait_for()
    away = [True]
    page.route("**/api/slow/now", lambda route: route.abort() if away else route.continue_())
    run(22)
    page.get_by_text("What you see is the last answer").wait_for()
    assert page.get_by_text("all 20 records").is_visible()
    away.clear()
    page.get_by_text("all 22 records").wait_for()
    page.get_by_text("What you see is the last answer").wait_for(state="detached")


def test_a_refused_stream_of_events_is_asked_again(page: Any, url: str) -> None:
    """After one answer that is no stream, as that of a proxy, a browser gives up, and the page would stand still."""
    refused = []

    def answer(route: Any) -> None:
        if refused:
            route.continue_()
        else:
            refused.append(1)
            route.fulfill(status=503, body="not now")

    page.route("**/api/events", answer)
    page.goto(f"{url}#/slow/now")
    page.get_by_text("reconnecting…").wait_for()
    run(23)
    page.get_by_text("all 23 records").wait_for()
    page.get_by_role("status").get_by_text("live").wait_for()


def test_more_rows_come_once(page: Any, url: str) -> None:
    """Who presses a slow button twice would see rows twice; and rows of one kind below those of the other."""
    run(62)
    page.goto(f"{url}#/slow/account?rows=late")
    page.get_by_text(f"50 of about {LATE}").wait_for()
    held = Held(page, "**/api/slow/late?cursor=*")
    more = page.get_by_role("button", name="More")
    more.click()
    held.wait()
    more.click()
    page.wait_for_timeout(100)
    assert len(held.routes) == 1
    held.go()
    page.get_by_text(f"100 of about {LATE}").wait_for()
    more.click()
    held.wait()
    page.get_by_role("button", name="Dead letters").click()
    page.get_by_text("No dead letters").wait_for()
    held.go()
    page.wait_for_timeout(300)
    assert page.get_by_text("No dead letters").is_visible()


def test_a_tab_that_nobody_sees_takes_no_connection(page: Any, url: str) -> None:
    """Six tabs of a page, and a browser would open no seventh; or a tab that is looked at again would show what was."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{url}#/slow/now")
    page.get_by_text("all 20 records").wait_for()
    hide = "Object.defineProperty(document, 'hidden', {configurable: true, get: () => %s});"
    hide += "document.dispatchEvent(new Event('visibilitychange'))"
    page.evaluate(hide % "true")
    page.get_by_role("status").get_by_text("paused").wait_for()
    run(22)
    page.wait_for_timeout(400)
    assert page.get_by_text("all 20 records").is_visible()
    page.evaluate(hide % "false")
    page.get_by_text("all 22 records").wait_for()
    assert sum(one.endswith("/api/events") for one in asked) == 2
