"""persistent serve shows jobs on a page of its own process, and only loads what a page needs when it is asked for."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.tools.cli.made import ROOT
from tests.tools.cli.visits import command


@contextmanager
def serving(folder: Path, *words: str) -> Iterator[str]:
    """The line that the command prints, while it runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "persistent", "serve", *words, "--port", "0"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    try:
        yield process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) in (0, 130)
        assert "Traceback" not in process.stderr.read()
    finally:
        process.kill()
        process.wait()


def test_a_page_on_loopback(made: Path) -> None:
    """Nothing would be shown; or the page would not end."""
    with serving(made, "visits.py:pipeline", "checkpoint") as line:
        place = re.escape(f"({made}/checkpoint)")
        names = rf"{made.name} {place}, {made.name}-2 {place}"
        found = re.match(rf"(http://127\.0\.0\.1:\d+/) shows {names}; Ctrl-C ends it", line)
        assert found, line
        assert "<title>persistent</title>" in httpx.get(found[1]).text
        assert httpx.get(f"{found[1]}api/{made.name}/state").json()["rows"]
        assert httpx.get(f"{found[1]}api/{made.name}-2/state").json()["error"]["kind"] == "pipeline"


def test_other_machines_need_the_token(made: Path) -> None:
    """Everybody in the network would read the state."""
    with serving(made, "checkpoint", "--host", "0.0.0.0") as line:
        found = re.match(r"http://0\.0\.0\.0:(\d+)/\?token=([0-9a-f]{32}) ", line)
        assert found, line
        url = f"http://127.0.0.1:{found[1]}/api/jobs"
        assert httpx.get(url).status_code == 401
        assert httpx.get(url, headers={"authorization": f"Bearer {found[2]}"}).status_code == 200


def test_the_address_for_programs(made: Path) -> None:
    """A script would have to read a sentence."""
    with serving(made, "checkpoint", "--json") as line:
        found = json.loads(line)
        assert (found["token"], found["jobs"]) == (None, [made.name])
        assert found["checkpoints"] == {made.name: f"{made}/checkpoint"}
        assert httpx.get(f"{found['url']}api/jobs").json()["jobs"][0]["name"] == made.name


@pytest.mark.parametrize(
    "words, said",
    [(("nothing.py:pipeline",), "no such file"), (("checkpoint", "--token", "short"), "guessed")]
    + [(("s3:/bucket",), "neither a path nor a URL")],
)
def test_a_target_that_is_none(copied: Path, words: tuple[str, ...], said: str) -> None:
    """A mistyped target would be an empty page."""
    result = command("serve", *words)
    assert result.exit_code == 1 and said in result.stderr


def test_a_port_that_is_taken_is_said(copied: Path) -> None:
    """The command would end without a word of what to do."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = command("serve", "checkpoint", "--port", str(taken.getsockname()[1]))
    assert result.exit_code == 1 and "Choose another --port" in result.stderr


def test_a_missing_extra_is_said(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Users would read a traceback."""
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    result = command("serve", "checkpoint")
    assert result.exit_code == 1 and "pip install 'persistent-monoids[serve]'" in result.stderr


def test_other_commands_do_not_load_it() -> None:
    """Every command would start more slowly, and need the extra."""
    servers = ("starlette", "uvicorn", "anyio")
    code = f"import sys, persistent.tools.cli; print([name for name in {servers} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_address_is_printed_when_it_answers(monkeypatch: pytest.MonkeyPatch, made: Path) -> None:
    """A program that opens the address as soon as it is printed would be refused."""
    import uvicorn

    connected = []

    def connect(server: uvicorn.Server, sockets: list[socket.socket]) -> None:
        with socket.create_connection(sockets[0].getsockname(), timeout=5):
            connected.append(1)
        sockets[0].close()

    monkeypatch.setattr(uvicorn.Server, "run", connect)
    assert command("serve", str(made / "checkpoint"), "--port", "0").exit_code == 0
    assert connected == [1]
