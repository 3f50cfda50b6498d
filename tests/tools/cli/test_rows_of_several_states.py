"""The command line reads one state of several, by its name, and shows the clock of each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools.cli.visits import command, json_of

APP = """
from monoids import Sum
from persistent import FileSink, MemorySource, NonWindowState, PersistentTask, Pipeline, WindowState, tumbling

class Two(PersistentTask):
    key = "page"
    def persistent_state(self):
        return {"short": WindowState(Sum(int), tumbling("10 ms")), "total": NonWindowState(Sum(int))}
    def process_message(self, state, message):
        for one in state.values():
            one.update(message.timestamp, 1)

rows = [{"ts": ts, "page": "a"} for ts in (5, 25, 7, 26, 40)]
job = Pipeline(
    source=MemorySource(rows, timestamp="ts", ordered=True), task=Two(), checkpoint="checkpoint", step_rows=1,
    sink={"short": FileSink("short"), "total": FileSink("total")},
)
"""


@pytest.fixture(autouse=True)
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "several.py").write_text(APP)
    report = command("run", "several.py:job", "--engine", "embedded")
    assert report.exit_code == 0 and "late in Two/short: 1 of" in report.stdout
    yield


def test_each_command_reads_the_state_of_a_name() -> None:
    """Without a name it would have to guess."""
    assert json_of("state", "several.py:job", "--name", "total") == [{"page": "a", "value": 5}]
    assert json_of("state", "several.py:job", "--name", "short")[0]["value"] == 1
    for words in (("state", "several.py:job"), ("diff", "several.py:job", "2"), ("export", "several.py:job", "out")):
        result = command(*words)
        assert result.exit_code and "has the states short, total: say which, --name short" in result.stderr, words
        wrong = command(*words, "--name", "longer")
        assert wrong.exit_code and "--name longer: Two has the states short, total" in wrong.stderr, words
        assert command(*words, "--name", "total").exit_code == 0, words
    assert json.loads(Path("out/_export.json").read_text())["state"] == "Two/total"


def test_the_clock_and_the_sinks_of_each_are_shown() -> None:
    """Each state closes windows of its own."""
    lines = command("clock", "checkpoint").stdout.splitlines()
    assert [line.split("  ")[1].strip() for line in lines if "Two/" in line] == ["Two/short", "Two/total"]
    assert set(json_of("clock", "checkpoint")[0]["states"]) == {"Two/short", "Two/total"}
    shown = command("show", "checkpoint").stdout
    assert "clock Two/short" in shown and "state Two/total" in shown
    assert command("verify", "several.py:job", "--source").exit_code == 0
    assert "partly-late in short" in command("late", "checkpoint").stdout


def test_a_monoid_is_not_chosen_among_several() -> None:
    """``persistent laws`` tests one."""
    result = command("laws", "several.py:job")
    assert result.exit_code and "has the states short, total: name the monoid of one of them" in result.stderr


def test_a_state_whose_keys_have_expired_says_by_which_clock() -> None:
    """The end of the input has set the clock of the windows ahead; keys live by their own."""
    app = APP.replace('"total": NonWindowState(Sum(int))', '"total": NonWindowState(Sum(int), ttl="10 ms")')
    app = app.replace('"checkpoint"', '"other"').replace('FileSink("', 'FileSink("expiring-')
    Path("expiring.py").write_text(app)
    report = command("run", "expiring.py:job", "--engine", "embedded", "--end-of-input")
    assert report.exit_code == 0 and "late in Two/total: 1;" in report.stdout
    assert "; 2 keys expired (2 in Two/total)" in report.stdout
    assert json_of("state", "expiring.py:job", "--name", "total") == [{"page": "a", "value": 1}]
    shown = command("state", "expiring.py:job", "--name", "total", "--key", '"b"')
    assert "or none for as long as a key lives (ttl=" in shown.output
    assert "by the clock, 1970-01-01 00:00:00.040Z)" in shown.output
    assert "time to live" in command("show", "other").stdout
