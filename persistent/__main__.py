"""``python -m persistent`` is the command line."""

from persistent.cli import main

main(prog_name="persistent")
