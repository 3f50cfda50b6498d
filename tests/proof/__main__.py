"""``python -m tests.proof``: run the sections, print the table."""

import sys

from tests.proof.runner import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
