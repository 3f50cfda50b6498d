"""A sender as a process of its own: publishes numbered orders on a topic until it is killed, and notes each before.

    python -m tests.integration.topic_sender PORT FILE

A line of the file: the session, the number in it, and the number of the order, which goes on where the file ends. Once
there is a file of its name with ".stop" behind it, it publishes no more, and serves what it retains.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from persistent.topic import Retain, TopicSender

TOPIC = "orders"
STEP_MS = 5
PAGES = 5


def main(port: str, path: str) -> None:
    noted = Path(path)
    order = len(noted.read_text().splitlines()) if noted.exists() else 0
    with TopicSender(TOPIC, port=int(port), retain=Retain("1 h")) as sender, noted.open("a") as file:
        number = 0
        while not Path(f"{path}.stop").exists():
            file.write(f"{sender.session} {number} {order}\n")
            file.flush()
            body = {"n": order, "ts": 1_000_000 + STEP_MS * order, "page": f"p{order % PAGES}"}
            assert sender.publish(json.dumps(body).encode()) == number
            number, order = number + 1, order + 1
            time.sleep(0.004)
        while True:
            time.sleep(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
