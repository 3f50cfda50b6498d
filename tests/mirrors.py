"""Which tests mirror a module is told by their paths: ``persistent/x/y.py`` has ``tests/x/test_y.py``,
``test_y_more.py``, or ``test_y_and_z.py``, which it shares."""

from __future__ import annotations

from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("monoids", "persistent")

FACES = {f"persistent.{name}" for name in ("log", "offsets", "sinks", "sources", "topic")}

UNMIRRORED = {
    "persistent.connect.postgres.session": "a real server: tests/servers/test_postgres.py",
    "persistent.connect.rabbitmq.stream_connection": "a real broker: tests/servers/test_rabbit_streams.py",
    "persistent.engines.protocol": "a protocol",
    "persistent.errors": "names of errors",
    "persistent.connect.kafka.sink": "a real broker: tests/servers/test_kafka_sink.py",
    "persistent.connect.kafka.place": "a real broker: tests/servers/test_kafka_sink.py",
    "persistent.connect.postgres.table": "a real server: tests/servers/test_postgres_table.py",
    "persistent.connect.sink": "a protocol",
    "persistent.connect.rabbitmq.queue_sink": "a real broker: tests/servers/test_rabbit_sink.py",
    "persistent.connect.rabbitmq.queue_source": "a real broker: tests/servers/test_rabbit.py",
    "persistent.connect.formats.table": "a table; tests/connect/files/test_source.py reads each format",
    "persistent.connect.kafka.source": "a real broker: tests/servers/test_kafka.py",
    "persistent.connect.source": "a protocol, and values without behaviour",
    "persistent.connect.rabbitmq.stream_sink": "a real broker: tests/servers/test_rabbit_streams_sink.py",
    "persistent.connect.rabbitmq.stream_source": "a real broker: tests/servers/test_rabbit_streams.py",
    "persistent.worker.dispatch": "one match over what three modules do",
    "persistent.worker.job": "a value without behaviour",
}
"""What no test of its own name stands beside, and why."""


@cache
def modules() -> dict[str, Path]:
    """Every module by its name, packages left out: what stands there is what they pass on."""
    found = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in found if path.stem[:2] != "__"}
    return {name: path for name, path in names.items() if name not in FACES}


def room(path: Path) -> Path:
    """Where the tests of a module stand."""
    package, *folders = path.relative_to(ROOT).parts[:-1]
    return ROOT.joinpath("tests", *(["monoids"] if package == "monoids" else []), *folders)


@cache
def mirrors() -> dict[str, tuple[Path, ...]]:
    """The tests of every module that has some; first those of its very name."""
    rooms: dict[Path, dict[str, str]] = {}
    for name, path in modules().items():
        rooms.setdefault(room(path), {})[path.stem] = name
    found: dict[str, list[Path]] = {}
    for folder, names in rooms.items():
        for test in sorted(folder.glob("test_*.py")):
            for stem in mirrored(test.stem.removeprefix("test_"), names):
                found.setdefault(names[stem], []).append(test)
    return {name: tuple(sorted(tests, key=lambda test: len(test.stem))) for name, tests in found.items()}


def mirrored(words: str, stems: dict[str, str]) -> list[str]:
    """The modules of a room that a test's name names: the longest that fits, or several with "and" between."""
    found = []
    for part in words.split("_and_"):
        fitting = [stem for stem in stems if part == stem or part.startswith(f"{stem}_")]
        found += [max(fitting, key=len)] if fitting else []
    return found
