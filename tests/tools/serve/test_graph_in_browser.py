"""The graph in a real browser: its edges are drawn, each node leads to the view that tells more, and it moves with the
job."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.tools.serve.jobs import pipeline, ran, serving, several

pytestmark = [pytest.mark.check, pytest.mark.browser]

DRAWN = "Rows a second are those"

TOUCHING = """() => {
    const cards = [...document.querySelectorAll(".node")].map((one) => one.getBoundingClientRect());
    const near = ({ x, y }) => cards.some(
        (one) => x > one.left - 9 && x < one.right + 9 && y >= one.top && y <= one.bottom);
    const at = (edge, length) => edge.getPointAtLength(length).matrixTransform(edge.getScreenCTM());
    return [...document.querySelectorAll(".graph path.edge")].map(
        (edge) => near(at(edge, 0)) && near(at(edge, edge.getTotalLength())));
}"""
"""Of each edge, whether both of its ends are at a card."""

APART = """() => {
    const cards = [...document.querySelectorAll(".node")].map((one) => one.getBoundingClientRect());
    return cards.every((a, i) => cards.every(
        (b, j) => i === j || a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top));
}"""
"""Whether no two cards overlap."""

WALK = "Right Each, Right minutes, Down total, Right total, Left total, Up minutes, Left Each"
"""Keys, and the card that each leads to."""


@pytest.mark.parametrize("width", [1280, 400])
def test_every_edge_goes_from_card_to_card(page: Any, width: int) -> None:
    """A sink would stand beside the graph, or an edge would end in nothing."""
    page.set_viewport_size({"width": width, "height": 800})
    with serving(several("edges", "minutes", "total", "living")) as url:
        page.goto(f"{url}#/edges/graph")
        page.get_by_text(DRAWN).wait_for()
        assert page.locator(".graph path.edge").count() == page.locator(".graph path.head-of").count() == 10
        assert page.evaluate(TOUCHING) == [True] * 10
        assert page.evaluate(APART)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_node_leads_to_the_view_that_tells_more(page: Any) -> None:
    """A picture that leads nowhere: somebody would search for the view that tells why."""
    with serving(several("leads", "minutes", "total")) as url:
        for title, place in (
            ("minutes", r"state\?name=minutes"),
            ("Dead letters", r"account\?rows=dead"),
            ("Each", "timeline"),
            ("memory", r"now\?see=clock"),
        ):
            page.goto(f"{url}#/leads/graph")
            page.locator(".node", has=page.get_by_role("link", name=title, exact=True)).first.click()
            page.wait_for_url(re.compile(place))
        page.get_by_text("Clock by partition").wait_for()


def test_the_keyboard_goes_along_the_graph(page: Any) -> None:
    """Who uses no mouse would go through every card in the order of the page."""
    with serving(several("walked", "minutes", "total")) as url:
        page.goto(f"{url}#/walked/graph")
        page.get_by_text(DRAWN).wait_for()
        page.get_by_role("link", name="memory").focus()
        for key, title in map(str.split, WALK.split(", ")):
            page.keyboard.press(f"Arrow{key}")
            assert page.evaluate("document.activeElement.textContent") == title
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile("timeline"))


def test_the_graph_moves_with_the_job(page: Any) -> None:
    """What it shows would be what was when it was opened; or the card that has the focus would lose it."""
    shown = ran("moving", 40)
    with serving(shown) as url:
        page.goto(f"{url}#/moving/graph")
        page.get_by_text("As checkpoint 5 says").or_(page.get_by_text("As checkpoint 6 says")).wait_for()
        page.get_by_role("link", name="Visits", exact=True).focus()
        pipeline("moving", 100).run(engine="embedded")
        page.locator(".node.source").get_by_text("100", exact=True).wait_for()
        assert page.evaluate("document.activeElement.textContent") == "Visits"


def test_tasks_behind_tasks_stand_in_layers(page: Any) -> None:
    """A task that reads what another writes would stand beside it, or before it."""
    with serving(ran("layers", 20)) as url:
        page.goto(f"{url}#/layers/graph")
        nodes = "['b', 'x', 'a', 'out', 'y'].map((id) => ({ id }))"
        edges = "[['x', 'a'], ['a', 'y'], ['y', 'b'], ['x', 'b'], ['b', 'out']]"
        script = f"import('/assets/graph.js').then((all) => all.layers({nodes}, {edges}))"
        found = [[one["id"] for one in layer] for layer in page.evaluate(script)]
        assert found == [["x"], ["a"], ["y"], ["b"], ["out"]]
