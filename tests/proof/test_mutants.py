"""The section "mutants" must notice a test that notices nothing: here over a module made for it."""

from __future__ import annotations

import ast
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.mirrors import modules
from tests.proof import mutants
from tests.proof.mutants import EVERY, MIRRORS, NOT_YET, by_module
from tests.proof.mutants_bench import Bench, Mirror, Verdict
from tests.proof.mutants_explained import EXPLAINED
from tests.proof.mutants_planted import PLANTED, Planted
from tests.proof.mutation import ROOT, Mutation, mutated, mutations

_MODULE = """
def total(numbers, start=0):
    while numbers:
        start += numbers.pop()
    return start
"""
_TEST = "import summing\n\n\ndef test_total():\n    assert summing.total([1, 2]) == 3\n"


@pytest.fixture(scope="module")
def apart() -> Iterator[Executor]:
    """A process that holds no client of a server: forked from one that does, a test ends by chance, for the threads of
    the client are not there."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        yield executor


def _mirror(folder: Path, test: str) -> Mirror:
    (folder / "summing.py").write_text(_MODULE)
    (folder / "test_summing.py").write_text(test)
    return Mirror("summing", ("test_summing.py",), root=folder)


def _end(mirror: Mirror, change: str, seconds_max: float | None = None) -> str:
    bench = Bench(mirror)
    bench.seconds_max = bench.seconds_max if seconds_max is None else seconds_max
    (mutation,) = (mutation for mutation in mirror.mutations() if mutation.change == change)
    return bench.tried(mutation).end


def test_a_change_that_a_test_notices_is_found(tmp_path: Path, apart: Executor) -> None:
    """The mutant must be what the test imports, not the file on the disk."""
    assert apart.submit(_end, _mirror(tmp_path, _TEST), "+ to -").result() == "killed"
    assert (tmp_path / "summing.py").read_text() == _MODULE


def test_a_change_that_no_test_notices_survives(tmp_path: Path, apart: Executor) -> None:
    """The figure would say that all is well whatever is tested."""
    blind = _TEST.replace(" == 3", " != 77")
    assert apart.submit(_end, _mirror(tmp_path, blind), "+ to -").result() == "survived"


def test_tests_that_fail_anyway_are_refused(tmp_path: Path, apart: Executor) -> None:
    """They would find every mutant."""
    failing = _TEST.replace("3", "4")
    with pytest.raises(RuntimeError, match="as it is"):
        apart.submit(_end, _mirror(tmp_path, failing), "+ to -").result()


def test_a_test_that_hangs_has_noticed(tmp_path: Path, apart: Executor) -> None:
    """A mutant that never ends would hold up the proof for ever."""
    assert apart.submit(_end, _mirror(tmp_path, _TEST), "+ to -", 0.0).result() == "timeout"


def test_what_is_only_told_is_not_changed() -> None:
    """A message that reads differently loses nothing; its mutants would only hide the others."""
    source = "import logging\ndef f(a: 'int' = 1) -> 3:\n    logging.info(4)\n    raise ValueError(5 + 6)\n"
    assert [one.change for one in mutations("m", source)] == ["1 to 2", "removed"]


def test_every_change_changes_something() -> None:
    """A mutant that is the original survives for ever; one that is made twice counts twice."""
    mirror = MIRRORS["persistent.checkpoint.manifest"]
    source = mirror.path.read_text()
    texts = [ast.unparse(mutated(source, one.number)) for one in mirror.mutations()]
    assert ast.unparse(ast.parse(source)) not in texts and len(set(texts)) == len(texts) > 20


def test_what_stores_and_commits_is_there() -> None:
    """A module that is new, or has another name, would be left out in silence; an explanation may outlive its line."""
    rooms = ("persistent.storage.", "persistent.checkpoint.", "persistent.codec.")
    proved = {module for module in modules() if module.startswith(rooms)}
    assert set(MIRRORS) == (proved | {"persistent.driver.commit", "persistent.driver.publish"}) - {*NOT_YET}
    explained = {EVERY[module] for module, _, _ in EXPLAINED}
    there = {(one.module, one.text, one.change) for mirror in explained for one in mirror.mutations()}
    assert set(EXPLAINED) <= there


def test_those_planted_by_name_leave_time_for_those_that_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """With all of the time for the one, nothing would be known of the others."""
    given: dict[str, float] = {}

    def planted(count: int, untold: list[str], until: float) -> list[bool]:
        given["planted"] = until
        return [True] * (count - 1)

    def tried(drawn: list[Mutation], untold: list[str], until: float) -> Iterator[Verdict]:
        given["drawn"] = until
        return iter([Verdict(drawn[0], "killed")])

    monkeypatch.setattr(mutants, "_planted", planted)
    monkeypatch.setattr(mutants, "_tried", tried)
    began = time.monotonic()
    result = mutants.prove(100.0)
    assert given["planted"] - began < 50 < 80 < given["drawn"] - began < 100
    assert result.passed and f"{len(PLANTED) - 1} of {len(PLANTED)} planted" in result.note
    assert "out of time after 1 of 100" in result.note


def test_the_order_of_modules_is_drawn() -> None:
    """By the alphabet, those at its end would never be tried where time is short."""
    drawn = [Mutation(module, number, 1, "", "") for number, module in enumerate("cabac")]
    assert [(one.module, one.number) for one in by_module(drawn)] == [("c", 0), ("c", 4), ("a", 1), ("a", 3), ("b", 2)]


def test_an_explained_survivor_is_no_failure() -> None:
    """The figure is of what can be found."""
    module, text, change = next(iter(EXPLAINED))
    verdict = Verdict(Mutation(module, 0, 1, text, change), "survived")
    assert verdict.is_explained and not verdict.is_survivor
    assert Verdict(Mutation(module, 0, 1, "other", change), "survived").is_survivor


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.rule)
def test_what_is_planted_is_a_change_and_its_tests_are_there(planted: Planted) -> None:
    """A rule that is written otherwise one day would be planted no more, in silence."""
    source = planted.mirror.path.read_text()
    compile(planted.planted(source), planted.module, "exec")
    assert planted.planted(source) != source
    for test in planted.tests:
        file, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text()


@pytest.mark.check
@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.rule)
def test_what_is_planted_is_found(planted: Planted, apart: Executor) -> None:
    """A rule that no test holds can go by mistake."""
    assert apart.submit(planted.is_found).result()


def test_a_text_that_is_not_there_once_is_told() -> None:
    """Planted in another place, or nowhere, it would say nothing of the rule."""
    planted = Planted("sums", "summing", "start", "stop", ())
    for source, count in (("", 0), (_MODULE, 3)):
        with pytest.raises(ValueError, match=f"summing has {count} times, not once: 'start'; plant 'sums' anew"):
            planted.planted(source)
    assert planted.planted("start = 1") == "stop = 1"


def test_the_page_takes_the_table() -> None:
    """Without its marks `make mutants` would work for hours and fail, or write over the rest of the page."""
    page = (ROOT / "docs" / "evidence" / "proof.md").read_text(encoding="utf-8")
    shown = mutants.written(page)
    assert mutants.table() in shown
    assert shown.split("<!-- mutants begin -->")[0] == page.split("<!-- mutants begin -->")[0]
    assert shown.split("<!-- mutants end -->")[1] == page.split("<!-- mutants end -->")[1]
