"""persistent state, late and dead-letters print rows."""

from __future__ import annotations

from pathlib import Path

from tests.tools.cli.visits import FIRST, command, json_of


def test_state(done: Path) -> None:
    """Without it the state could be read only from Python."""
    (row,) = json_of("state", "visits.py:pipeline")
    assert row == {
        "page": "/home",
        "status": 200,
        "window_start": "2024-05-01T10:02:00.000Z",
        "window_end": "2024-05-01T10:03:00.000Z",
        "visits": 2,
        "bytes": 100,
    }
    table = command("state", "visits.py:pipeline").stdout.splitlines()
    assert table[0].split() == list(row)
    assert table[1].split() == ["/home", "200", "2024-05-01", "10:02:00Z", "2024-05-01", "10:03:00Z", "2", "100"]


def test_state_of_a_key_at_a_checkpoint(done: Path) -> None:
    """Without it one key among millions could not be looked up, nor how it was."""
    state = ("state", "visits.py:pipeline")
    at = next(line["id"] for line in json_of("history", "checkpoint") if line["read"] == 2)
    assert [row["visits"] for row in json_of(*state, "--at", str(at), "--key", "/home", "--key", "200")] == [2]
    assert json_of(*state, "--at", str(at), "--key", "/home", "--key", "404") == []
    assert json_of(*state, "--limit", "0") == []
    lines = {command(*state, "--format", name).stdout for name in ("json", "jsonl", "ndjson")}
    assert lines == {command(*state, "--json").stdout}, "FileSink calls it jsonl"
    assert "0 of 1 rows" in command(*state, "--limit", "0").stdout
    for words, text in (
        (("--key", "/home"), "the key is (page, status): give 2"),
        (("--key", "/home", "--key", "ok"), "column status holds int64"),
        (("--window", "2024-05-01T10:00:07Z"), "the previous one starts at 2024-05-01 10:00:00Z"),
        (("--window", "noon"), "'noon' is not a time"),
        (("--at", "1", "--as-of", "7"), "choose one"),
        (("--output", "state.txt"), "give --format"),
    ):
        result = command(*state, *words)
        assert result.exit_code == 2
        assert text in result.stderr


NULLS = """
from monoids import Count
from persistent import MemorySource, NonWindowState, PersistentTask, Pipeline


class Names(PersistentTask):
    key = "name"

    def persistent_state(self):
        return NonWindowState(Count())

    def process_message(self, state, message):
        state.update(message.timestamp, 1)


names = [None] + 2 * [""] + 3 * ["null"]
source = MemorySource([{"ts": n, "name": name} for n, name in enumerate(names)], timestamp="ts")
pipeline = Pipeline(source=source, task=Names(), checkpoint="checkpoint")
"""


def test_a_null_key_is_no_empty_text_nor_the_word(folder: Path) -> None:
    """The state of the null key could not be looked up."""
    (folder / "names.py").write_text(NULLS)
    state = ("state", "names.py:pipeline")
    assert command("run", "names.py:pipeline", "--engine", "embedded").exit_code == 0
    for words, count in (
        (("--key-json", "null"), 1),
        (("--key-json", "[null]"), 1),
        (("--key-json", '""'), 2),
        (("--key", ""), 2),
        (("--key-json", '"null"'), 3),
        (("--key", "null"), 3),
    ):
        assert [row["value"] for row in json_of(*state, *words)] == [count]
    for words, text in (
        (("--key", "a", "--key-json", "null"), "choose one"),
        (("--key-json", "de"), "Put text in quotes"),
        (("--key-json", "[]"), "give 1"),
        (("--key-json", '[null, "de"]'), "give 1"),
        (("--key-json", '{"name": null}'), "column name holds string"),
    ):
        result = command(*state, *words)
        assert result.exit_code == 2 and text in result.stderr, result.output
    assert 'no record of the key "x" was counted' in command(*state, "--key", "x").stdout


def test_no_rows_of_a_key_says_what_that_means(done: Path) -> None:
    """Of a key whose windows are closed one would think that it was never seen."""
    state = ("state", "visits.py:pipeline")
    told = command(*state, "--key", "/ä", "--key", "404").stdout
    assert 'no open window holds a record of the key ["/ä", "404"]: none was ever counted, or its windows are' in told
    assert "closed (those that end by 2024-05-01 10:02:10Z), and their results are in FileSink" in told
    told = command(*state, "--window", "2024-05-01T10:00Z").stdout
    assert "the window was closed by checkpoint" in told and "its result is in FileSink" in told
    told = command(*state, "--key-json", "[null, 1]", "--window", "2024-05-01T10:02Z").stdout
    assert "no record of the key [null, 1] was counted in the window, which is not closed" in told


def test_late_rows_and_dead_letters(done: Path) -> None:
    """Without it what was set aside could not be found again."""
    (late,) = json_of("late", "checkpoint")
    assert (late["reason"], late["value"]["bytes"], late["file"]) == ("late", 50, "1.csv")
    (dead,) = json_of("dead-letters", "visits.py:pipeline")
    assert FIRST.encode()[dead["offset"] :].startswith(b"a bad line")
    table = command("dead-letters", "checkpoint").stdout
    assert "a bad line" in table
    assert dead["reason"] in table
    header, row = command("late", "checkpoint").stdout.splitlines()
    assert header.split() == ["file", "offset", "time", "reason", "record"]
    assert row.split()[2:5] == ["2024-05-01", "10:00:59Z", "late"]
    assert '"bytes":50' in row
