"""A first task has a mistake in it: the error names the line, shows the message, and says what to write instead."""

from __future__ import annotations

import importlib
import json
import os
import pickle
import uuid
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from monoids import Count, Sum
from persistent import (
    FileSource,
    InvalidPipeline,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    UserCodeError,
)
from persistent.task import delta as single
from persistent.task.processing import Deltas
from persistent.text.user_errors import error_text, line_of, message_text, users_line

ROWS = [{"ts": 1, "page": "a", "n": 1, "tags": ["x"]}]


class Visits(PersistentTask):
    key: Any = "page"

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(Count())

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


def told(task: PersistentTask, rows: Any = ROWS, **options: Any) -> str:
    """What a run of the task is refused with."""
    url = f"memory://{uuid.uuid4().hex}"
    with pytest.raises(UserCodeError) as error:
        Pipeline(source=MemorySource(rows, timestamp="ts"), task=task, checkpoint=url, **options).run(engine="embedded")
    return str(error.value)


def test_an_error_names_file_record_and_line_and_shows_the_message(tmp_path: Path) -> None:
    """Without the line one reads the whole task; without the message one looks for it among millions."""

    class Wrong(Visits):
        def process_message(self, state: Any, message: Any) -> None:
            state.update(message.timestamp, 100 // message.value["n"])

    lines = [json.dumps({"ts": n, "page": "a", "n": 3 - n}) for n in range(5)]
    (tmp_path / "day.jsonl").write_text("\n".join(lines))
    source = FileSource(str(tmp_path / "*.jsonl"), timestamp="ts", timestamp_unit="ms")
    with pytest.raises(UserCodeError) as error:
        Pipeline(source=source, task=Wrong(), checkpoint=str(tmp_path / "c")).run(engine="embedded")
    text, number = str(error.value), line_of(Wrong.process_message).number + 1  # type: ignore[union-attr]
    assert f"Wrong.process_message raised at {os.path.relpath(__file__)}, line {number} (`state.update(" in text
    assert "ZeroDivisionError" in text and "{'ts': 3, 'page': 'a', 'n': 0}" in text
    offset = sum(len(line) + 1 for line in lines[:3])
    assert f"day.jsonl, the record at offset {offset} (partition 'files', position (0, {offset}), key 'a')" in text


def test_a_value_that_the_monoid_refuses_is_blamed_on_the_line_that_gave_it() -> None:
    """Values are lifted together, after the task has run: the traceback has no line of the user any more."""

    class Text(Visits):
        def persistent_state(self) -> NonWindowState:
            return NonWindowState(Sum())

        def process_message(self, state: Any, message: Any) -> None:
            state.update(message.timestamp, 1)
            state.update(message.timestamp, message.value["page"])

    assert '(`state.update(message.timestamp, message.value["page"])`)' in told(Text())


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        (
            lambda message: message.page,
            "message.page: the fields of a message are in message.value: use message.value['page']",
        ),
        (lambda message: message["page"], "message['page']: the fields of a message are in message.value: use"),
        (lambda message: message.user, "message.user: .*: its fields are ts, page, n, tags"),
        (lambda message: message["user"], "message['user']: .*: its fields are ts, page, n, tags"),
        (lambda message: message.value.page, "is a mapping: use message.value['page']"),
        (lambda message: message.value["user"], "KeyError: no field 'user'; the fields are ts, page, n, tags"),
    ],
)
def test_a_field_asked_for_in_another_way_is_hinted_at(wrong: Any, hint: str) -> None:
    """'Message' object has no attribute 'user' is where a newcomer gives up."""

    class Guess(Visits):
        def process_message(self, state: Any, message: Any) -> None:
            state.update(message.timestamp, wrong(message))

    text = told(Guess())
    first, _, last = hint.partition(".*")
    assert first in text and last in text


def test_a_key_function_that_raises_is_named() -> None:
    """'key unknown' is no answer to: why?"""

    class Keyed(Visits):
        key: Any = {"campaign": lambda message: message.value["campaign"].lower()}

    text = told(Keyed())
    assert "Keyed: key 'campaign' raised at" in text and "KeyError: no field 'campaign'" in text
    assert "lambda message: message.value" in text and "'page': 'a'" in text


@pytest.mark.parametrize("made", [lambda m: m.value["tags"], lambda m: (1, 2), lambda m: {1}, lambda m: {"a": 1}])
def test_a_key_of_several_values_says_what_to_do(made: Any) -> None:
    """An Arrow type is no remedy."""

    class Keyed(Visits):
        key: Any = {"tags": made}

    text = told(Keyed())
    assert "Keyed: key 'tags' raised at" in text and f"{os.path.basename(__file__)}, line" in text
    assert "a key is one value: use one of them, join them to text, or name a column for each" in text


def test_a_key_of_another_sort_is_refused_before_anything_runs() -> None:
    """'method' object is not iterable came of the most natural thing to write."""
    for key, says in (
        (lambda message: message.value["page"], r'key is a function.*give key = \{"name": lambda message: ...\}'),
        (7, r'key = 7: name a field, key = "page"'),
        ({"page": "url"}, r"'page' is made by 'url'.*lambda message: message.value\['url'\]"),
        ("tags", r"'tags': a key of type list.*key = \{'tags': lambda message: \.\.\.\}"),
    ):
        task = type("Keyed", (Visits,), {"key": key})()
        with pytest.raises(InvalidPipeline, match=f"Keyed.*{says}"):
            pipeline = Pipeline(
                source=MemorySource(ROWS, timestamp="ts"), task=task, checkpoint=f"memory://{uuid.uuid4().hex}"
            )
            pipeline.run(engine="embedded")


def test_a_key_of_fields_in_a_list_is_one_in_a_tuple() -> None:
    """The difference between the brackets is none that a user should have to learn."""
    task = type("Keyed", (Visits,), {"key": ["page", "n"]})()
    pipeline = Pipeline(source=MemorySource(ROWS, timestamp="ts"), task=task, checkpoint=f"memory://{uuid.uuid4().hex}")
    pipeline.run(engine="embedded")
    assert pipeline.state().to_pylist() == [{"page": "a", "n": 1, "value": 1}]


def test_a_long_message_is_cut_and_no_secret_is_shown() -> None:
    """An error goes into logs and tickets: a message of megabytes, or a password in a URL, has no place there."""

    class Wrong(Visits):
        def process_message(self, state: Any, message: Any) -> None:
            raise ValueError("http://me:password@host/x?Signature=abcdef " * 10_000)

    rows = [{"ts": 1, "page": "http://me:password@host/", **{f"f{n}": "y" * 1_000 for n in range(500)}}]
    text = told(Wrong(), rows)
    assert len(text) < 4_000 and "password" not in text and "abcdef" not in text
    assert "//...@host" in text


def test_a_message_is_shown_as_its_fields() -> None:
    """What is cut is said."""
    assert message_text({}) == "{}"
    text = message_text({f"f{n}": n for n in range(25)})
    assert text.endswith("'f19': 19, ... 5 more fields}")
    assert "(302 characters)" in message_text({"page": "y" * 300})


def test_the_line_is_the_users_and_no_librarys() -> None:
    """The last line of a traceback is often one of json or numpy, which is not at fault."""
    try:
        json.loads("{")
    except ValueError as error:
        line = users_line(error)
        assert line is not None and line.path == __file__ and line.text == 'json.loads("{")'
        assert line.short == f"test_user_errors.py, line {line.number}"
    try:
        message_text(1)  # type: ignore[arg-type]
    except TypeError as error:
        assert users_line(error).path == __file__  # type: ignore[union-attr]
    assert users_line(ValueError("never raised")) is None
    assert line_of(len) is None


def test_a_sentence_in_a_key_error_is_shown_as_one() -> None:
    """Python shows the repr of it, quotes in quotes."""
    assert error_text(KeyError('no field "a"')) == 'KeyError: no field "a"'
    assert error_text(KeyError("a")) == "KeyError: 'a'"


class Untold(Exception):
    def __str__(self) -> str:
        return self.text  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("bad \udce9"), r"ValueError: bad \udce9"),
        (KeyError("no field \ud800"), r"KeyError: no field \ud800"),
        (Untold(), "Untold: (no text: its __str__ raised AttributeError)"),
        (KeyError(Untold()), "KeyError: (no text: its __str__ raised AttributeError)"),
    ],
)
def test_an_error_that_cannot_be_told_is_a_dead_letter_like_any_other(error: Exception, reason: str) -> None:
    """One message whose error is no UTF-8, or has no text, ended every run, and no file or line was named."""

    class Wrong(Visits):
        def process_message(self, state: Any, message: Any) -> None:
            if message.value["n"] == 2:
                raise error
            state.update(message.timestamp, 1)

    rows = [{"ts": n, "page": "a", "n": n} for n in range(4)]
    source, url = MemorySource(rows, timestamp="ts"), f"memory://{uuid.uuid4().hex}"
    pipeline = Pipeline(source=source, task=Wrong(), checkpoint=url, on_error="dead-letter")
    assert (pipeline.run(engine="embedded").dead, pipeline.state()["value"].to_pylist()) == (1, [3])
    assert pipeline.dead_letters()["reason"].to_pylist()[0].startswith(f"{reason} (test_user_errors.py, line ")
    assert reason in told(Wrong(), rows)


class Delta:
    """A class of the user's, as those who trade options have."""


@pytest.mark.parametrize(
    "fails",
    [
        lambda: float("'Delta'"),
        lambda: {}["'Delta' object"],
        lambda: Delta().speed,  # type: ignore[attr-defined]
        lambda: Delta() + 1,  # type: ignore[operator]
    ],
)
def test_an_error_about_a_delta_of_the_user_is_left_as_it_is(fails: Any) -> None:
    """It would say that a state is only added to, where no state is at fault."""
    with pytest.raises(Exception, match="Delta") as raised:
        fails()
    assert "Delta" in error_text(raised.value) and "only added to" not in error_text(raised.value)


def test_a_line_is_told_where_the_current_folder_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of the task was lost behind one about the folder."""

    def gone() -> str:
        raise FileNotFoundError

    line = line_of(told)
    monkeypatch.setattr(os, "getcwd", gone)
    assert str(line).startswith(f"{__file__}, line ")


def test_code_that_was_shipped_by_value_names_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead letter of a worker would say "<dynamic-code>", and differ from that of another engine."""
    (tmp_path / "shipped_by_value.py").write_text("def fails(value):\n    raise ValueError(value)\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("shipped_by_value")
    cloudpickle.register_pickle_by_value(module)
    fails = pickle.loads(cloudpickle.dumps(module.fails))
    cloudpickle.unregister_pickle_by_value(module)
    assert fails.__code__ is not module.fails.__code__
    with pytest.raises(ValueError, match="7") as raised:
        fails(7)
    line = users_line(raised.value)
    assert line is not None and line.short == "shipped_by_value.py, line 2"
    first = line_of(fails)
    assert first is not None and first.short == "shipped_by_value.py, line 1"


def test_a_state_of_several_is_an_item() -> None:
    """The advice for one state would not help: there is none to update without its name."""
    states = Deltas({name: single.Delta(NonWindowState(Count()), (), 0) for name in ("hourly", "total")})
    for wrong, right in ((lambda: states.total.update(1, 1), "total"), (lambda: states.add(1), "hourly")):
        with pytest.raises(AttributeError) as caught:
            wrong()
        said = f"the task has the states hourly, total: use state['{right}'].update(timestamp, value)"
        assert error_text(caught.value) == f"AttributeError: {said}"
