"""A racer is a process that creates files at given moments, so that several race for one name.

    python -m persistent.storage.racer URL

Each input line is ``MOMENT NAME DATA``; each output line is the answer of the store, or the error.
"""

from __future__ import annotations

import sys

from persistent.errors import StorageError
from persistent.storage.opening import open_storage
from persistent.time.clock import monotonic_s


def race(url: str) -> None:
    """Create the file of each input line at its moment, and print the answer."""
    storage = open_storage(url, unsafe_single_driver=True)
    # Connect now: connecting at the first race would be too late.
    storage.list("")
    print("ready", flush=True)
    for line in sys.stdin:
        moment, name, data = line.split()
        while monotonic_s() < float(moment):
            pass
        try:
            print(storage.put_if_absent(name, data.encode()).value, flush=True)
        except StorageError as error:
            print(" ".join(str(error).split()), flush=True)


if __name__ == "__main__":
    race(sys.argv[1])
