"""Fetches what the servers of the tests are made of, and says what is missing.

python -m tests.servers.install
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.servers import hdfs, kafka, postgres, rabbit
from tests.servers.processes import java, missing


def _postgres() -> object:
    return postgres.programs() or missing("no PostgreSQL found", postgres.INSTALL)


def _rabbit() -> object:
    found = rabbit.programs()
    return found[0] if found else missing("no RabbitMQ found", rabbit.INSTALL)


PARTS: dict[str, Callable[[], object]] = {
    "Java": java,
    "Kafka": kafka.jars,
    "HDFS": hdfs.jars,
    "PostgreSQL": _postgres,
    "RabbitMQ": _rabbit,
}


def main() -> int:
    """How many of them are missing where none may be."""
    failed = 0
    for name, find in PARTS.items():
        try:
            print(f"{name}: {find()}", flush=True)
        except pytest.skip.Exception as lacking:
            print(f"{name}: {lacking.msg}; its tests are skipped", flush=True)
        except (pytest.fail.Exception, AssertionError) as lacking:
            print(f"{name}: {lacking}", flush=True)
            failed += 1
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
