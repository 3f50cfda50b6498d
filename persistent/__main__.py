"""The program ``persistent``: the command line, which can be stopped while it is loaded."""

import os
import signal
from typing import Any

INTERRUPTED = 130
"""``STOPPED`` of the exits, which are loaded later."""


def _end(number: int, frame: Any) -> None:
    # Nothing has begun. An exception would be one of whichever module is half loaded.
    os._exit(INTERRUPTED)


def main() -> None:
    """Run the command line. Ctrl-C while it is loaded ends the process at once, without a word, with 130."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        # Another handler, or none in the background of a script, stays.
        signal.signal(signal.SIGINT, _end)
    from persistent.tools.cli import main as command_line

    signal.signal(signal.SIGINT, before)
    command_line(prog_name="persistent")


if __name__ == "__main__":
    main()
