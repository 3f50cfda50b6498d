"""Each error of gc, restart and correct names the fault, the place, and a remedy that this command has."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from persistent.checkpoint.running import put_mark
from persistent.names import manifest_name
from persistent.tools.cli.load import load_pipeline
from tests.tools.cli.made import ROOT
from tests.tools.cli.visits import FIRST, VISITS, command, json_of

HEADER = "time,page,status,bytes\n"
GIVEN = {
    "bad.csv": f"{HEADER}2024-05-01T10:05:00Z,/a,x,1\n",
    "time.csv": f"{HEADER}never,/a,200,1\n",
    "future.csv": f"{HEADER}2999-05-01T10:05:00Z,/a,200,1\n",
    "columns.csv": "when,page,status,bytes\n2024-05-01T10:05:00Z,/a,200,1\n",
    "semicolons.csv": "time;page;status;bytes\n2024-05-01T10:05:00Z;/a;200;1\n",
    "quotes.csv": f'{HEADER}2024-05-01T10:05:00Z,"/a,200,1\n',
    "old.csv": f"{HEADER}2024-04-01T10:05:00Z,/a,200,1\n",
    "empty.csv": HEADER,
    "bad.jsonl": '{"time": "2024-05-01T10:05:00Z", "page": "/a", "status": 200, "bytes": 1}\n{no\n',
    "bad.parquet": "none",
    "bad.xlsx": "none",
    "good.csv": f"{HEADER}2024-05-01T10:05:00Z,/a,200,1\n",
}
AGAIN = "Correct the record or omit it"
FILE = "Correct the file or its path"
TASKS = """
from persistent import NonWindowState

class Hours(Visits):
    def persistent_state(self):
        return NonWindowState(Count())
    def process_message(self, state, message):
        state.update(message.timestamp, 1)

hours = Pipeline(source=FileSource("views/*.csv", timestamp="time"), task=Hours(), checkpoint="hours")
elsewhere = Pipeline(
    source=FileSource("views/*.csv", timestamp="time", ordered=True), task=Visits(), sink=FileSink("visits"),
    checkpoint="elsewhere",
)
function = Pipeline(
    source=FileSource("views/*.csv", timestamp="time"), task=Visits(), sink=FunctionSink(print), checkpoint="function",
)
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with jobs that have run, and the files of corrections."""
    folder = tmp_path_factory.mktemp("operated")
    (folder / "views").mkdir()
    (folder / "views" / "1.csv").write_text(FIRST)
    for name, text in GIVEN.items():
        (folder / name).write_text(text)
    (folder / "visits.py").write_text(VISITS.replace("FileSink,", "FileSink, FunctionSink,", 1) + TASKS)
    code = "import visits; [getattr(visits, name).run(engine='embedded') for name in ('pipeline', 'hours', 'function')]"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
    return folder


@pytest.fixture
def operated(ran: Path, here: Path) -> Path:
    """A copy of it as the current folder."""
    shutil.copytree(ran, here, dirs_exist_ok=True)
    return here


CORRECT = "correct visits.py:pipeline ticket"
RESTART = "restart visits.py:pipeline"
AGAIN_OUT = "--outputs=again"


@pytest.mark.parametrize(
    ("words", "fault", "place", "remedy"),
    [
        (CORRECT, "there are none", "--add", "give the records to --add, to --remove, or both"),
        (f"{CORRECT} --add nope.csv", "no file exists", "nope.csv", FILE),
        (f"{CORRECT} --add bad.csv", "column 'status': CSV conversion error", "at offset 23 of 'bad.csv'", AGAIN),
        (f"{CORRECT} --add bad.jsonl", "not a JSON object", "at offset 74 of 'bad.jsonl'", AGAIN),
        (f"{CORRECT} --add quotes.csv", "Expected 4 columns, got 2", "'quotes.csv'", AGAIN),
        (f"{CORRECT} --add time.csv", "holds 'never'", "'time': 'never'", AGAIN),
        (f"{CORRECT} --add future.csv", "timestamp too far ahead", "'2999-05-01", AGAIN),
        (f"{CORRECT} --remove columns.csv", "has no column 'time'", "--remove: {here}/columns.csv", FILE),
        (f"{CORRECT} --add semicolons.csv", "separated by ';'", "semicolons.csv", FILE),
        (f"{CORRECT} --add bad.parquet", "not a complete Parquet file", "bad.parquet", FILE),
        (f"{CORRECT} --add bad.xlsx", "its name does not show its format", "bad.xlsx", FILE),
        (f"{CORRECT} --add old.csv", "is in a window that is final", "--add: the record", "Omit it"),
        (f"{CORRECT} --add empty.csv", "there are none", "'empty.csv'", "give the records to --add"),
        ("correct visits.py:pipeline a/b --add good.csv", "'a/b'", "the name of the correction", "use letters"),
        ("correct visits.py t --add good.csv", "is a file", "visits.py", "name the pipeline in it"),
        ("correct checkpoint t --add good.csv", "needs the task's own monoid", "checkpoint", "FILE.py:NAME"),
        ("correct visits.py:elsewhere t --add good.csv", "no checkpoint here", "elsewhere", "run the pipeline first"),
        (
            f"{RESTART} 2999-01-01 {AGAIN_OUT}",
            "no kept checkpoint",
            "{here}/checkpoint",
            "Choose a clock in",
        ),
        (f"{RESTART} 2024-05-01T10:00:01Z {AGAIN_OUT}", "not on the grid", "{here}/checkpoint", "the previous one is"),
        (f"restart visits.py:hours 2024-05-01 {AGAIN_OUT}", "no kept", "{here}/hours", "'persistent rollback'"),
        (f"restart checkpoint 2024-05-01 {AGAIN_OUT}", "needs the task's own monoid", "checkpoint", "FILE.py:NAME"),
        ("restart visits.py:function 2024-05-01 --outputs=retract", "cannot take back", "function", "--outputs=again"),
        (f"restart visits.py:elsewhere 2024-05-01 {AGAIN_OUT}", "no checkpoint here", "elsewhere", "run the pipeline"),
        ("gc nowhere", "no checkpoint here", "{here}/nowhere", "check the URL"),
        ("gc visits.py", "is a file", "visits.py", "name the pipeline in it"),
        ("gc visits.py:none", "has no 'none'", "visits.py", "its pipelines: elsewhere, function, hours, pipeline"),
    ],
)
def test_the_remedy_is_one_of_this_command(operated: Path, words: str, fault: str, place: str, remedy: str) -> None:
    """An operator would look for an option that there is not, while the job is down."""
    before = json_of("history", "checkpoint")
    result = command(*shlex.split(words))
    said = result.stderr.splitlines()[-1]
    assert result.exit_code not in (0, None) and said.startswith("Error: "), result.output
    for part in (fault, place.format(here=operated), remedy):
        assert part in said
    has = command(words.split()[0], "--help").output
    assert all(option in has for option in re.findall(r"--[a-z-]+", said)), said
    of_python = set(re.findall(r"\b([a-z_]+)=(?!again|retract)", said))
    assert of_python <= {"allowed_lateness", "history", "interval_ms"}, said
    assert json_of("history", "checkpoint") == before


@pytest.mark.parametrize("spoiled", ["newest", "older", "missing"])
@pytest.mark.parametrize("words", [(), ("--dry-run",)])
def test_garbage_that_is_unknown_says_what_to_do(operated: Path, spoiled: str, words: tuple[str, ...]) -> None:
    """The error named a file and what is wrong with it, and no way on."""
    ids = [line["id"] for line in json_of("history", "checkpoint")]
    file = operated / "checkpoint" / manifest_name(ids[-1] if spoiled == "newest" else ids[-2])
    file.unlink() if spoiled == "missing" else file.write_text("torn")
    files = sorted((operated / "checkpoint").rglob("*"))
    result = command("gc", "checkpoint", *words)
    assert result.exit_code == 4 and file.name in result.stderr
    assert (
        "'persistent rollback " in result.stderr or f"'persistent verify {operated}/checkpoint' says" in result.stderr
    )
    assert sorted((operated / "checkpoint").rglob("*")) == files


@pytest.mark.parametrize(
    "words", ["gc checkpoint", f"{RESTART} 2024-05-01T10:01Z {AGAIN_OUT}", f"{CORRECT} --add good.csv"]
)
def test_beside_a_driver_the_way_out_is_one_of_this_command(operated: Path, words: str) -> None:
    """Who is to take over would be told twice how, or in words of Python alone."""
    put_mark(load_pipeline("visits.py:pipeline").storage, 99, "ab")
    result = command(*shlex.split(words))
    assert result.exit_code == 5 and "a driver runs" in result.stderr
    assert "with --take-over (take_over=True) that driver is fenced" in result.stderr
    assert command(*shlex.split(words), "--take-over").exit_code == 0


def test_after_a_restart_a_correction_says_that_a_run_comes_first(operated: Path) -> None:
    """The columns of the source are unknown until it is read again, and nothing said when they are known."""
    assert command(*shlex.split(f"{RESTART} 2024-05-01T10:01Z {AGAIN_OUT}")).exit_code == 0
    said = command(*shlex.split(f"{CORRECT} --add good.csv")).stderr
    assert "or run the pipeline first, if the job has gone back to a clock" in said
