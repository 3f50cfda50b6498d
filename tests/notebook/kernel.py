"""A real kernel of a notebook: cells are run one after the other, and can be interrupted as the stop button does."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty
from typing import Any

ROOT = Path(__file__).parents[2]
_QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@dataclass
class Ran:
    """What a cell has put out. ``displays``: the last content of each display, in order; ``updates``: how often one was
    replaced; ``error``: the name and text of what it raised."""

    displays: dict[str, dict[str, str]] = field(default_factory=dict)
    updates: int = 0
    stdout: str = ""
    stderr: str = ""
    result: dict[str, str] = field(default_factory=dict)
    error: tuple[str, str] | None = None

    @property
    def text(self) -> str:
        """The result as text."""
        return self.result.get("text/plain", "")

    def add(self, kind: str, content: dict[str, Any]) -> None:
        if kind == "stream":
            setattr(self, content["name"], getattr(self, content["name"]) + content["text"])
        elif kind in ("display_data", "update_display_data"):
            self.updates += kind == "update_display_data"
            self.displays[content["transient"]["display_id"]] = content["data"]
        elif kind == "execute_result":
            self.result = content["data"]
        elif kind == "error":
            self.error = content["ename"], content["evalue"]


class Kernel:
    """``interrupt``: what the stop button does."""

    def __init__(self, manager: Any, client: Any) -> None:
        self.interrupt = manager.interrupt_kernel
        self._client = client

    def run(self, code: str, on_output: Callable[[Ran], None] | None = None, timeout: float = 120) -> Ran:
        """Run a cell to its end. ``on_output`` is called with what is there after each message of the kernel."""
        ran, asked = Ran(), self._client.execute(code, allow_stdin=False)
        deadline = time.monotonic() + timeout
        while True:
            assert time.monotonic() < deadline, f"{code}\n{ran}"
            try:
                message = self._client.get_iopub_msg(timeout=1)
            except Empty:
                continue
            if message["parent_header"].get("msg_id") != asked:
                continue
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                return ran
            ran.add(message["msg_type"], message["content"])
            if on_output is not None:
                on_output(ran)

    def good(self, code: str, **options: Any) -> Ran:
        """Run a cell that must not fail."""
        ran = self.run(code, **options)
        assert ran.error is None, (code, ran.error, ran.stderr)
        return ran


@contextmanager
def started(folder: Path) -> Iterator[Kernel]:
    """A kernel in this folder, of this Python."""
    from jupyter_client.manager import KernelManager

    manager = KernelManager(kernel_name="python3")
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    own = {"PYTHONPATH": paths, "IPYTHONDIR": str(folder / "ipython"), "JDK_JAVA_OPTIONS": _QUICK_JAVA}
    manager.start_kernel(cwd=str(folder), env=os.environ | own)
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=120)
        yield Kernel(manager, client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
