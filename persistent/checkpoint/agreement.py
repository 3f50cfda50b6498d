"""Agreement between the parts of a manifest or plan: each refers to exactly the partitions of its source.

The laws apply to documents with the fields of the newest format, whatever format they were read in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from persistent.checkpoint.positions import CODECS, positions_from_json
from persistent.codec.shapes import Misfit
from persistent.lateness import EARLY


def manifest_agrees(body: Mapping[str, Any]) -> None:
    """Raise Misfit unless a task reads sources that exist, and positions, clock and accounts refer to exactly the
    partitions of their source. Final windows are closed."""
    for name, source in body["sources"].items():
        partitions, place = source["partitions"], f"sources.{name}"
        _check_once(partitions, f"{place}.partitions")
        _check_same(source["positions"], partitions, f"{place}.positions")
        for part in ("largest", "idle"):
            _check_among(source[part], partitions, f"{place}.{part}")
        for number, reading in enumerate(source.get("readings", ())):
            _check_among(reading["until"], partitions, f"{place}.readings[{number}].until")
    _states_agree(body)
    for task, operator in body["operators"].items():
        _check_among(operator["inputs"], body["sources"], f"operators.{task}.inputs", "sources")
        for name, accounts in body["ledger"][task].items():
            _check_same(accounts, body["sources"][name]["partitions"], f"ledger.{task}.{name}")
        for name, state in operator["states"].items():
            _check_closed(state.get("final"), body["clocks"][task]["closed"], f"operators.{task}.states.{name}.final")
            if "passed" in state and "emit" not in state:
                raise Misfit("the clock of early results, of which there are none").below(
                    f"operators.{task}.states.{name}"
                )


def _states_agree(body: Mapping[str, Any]) -> None:
    """All states of a task have read the same records, so they have the same inputs and accounts; and its key
    columns."""
    first = next(iter(body["operators"]), None)
    for task, operator in body["operators"].items():
        for part in ("inputs", "key_names"):
            if operator[part] != body["operators"][first][part]:
                raise Misfit(f"differs from that of {first:.60}").below(f"operators.{task}.{part}")
        if body["ledger"][task] != body["ledger"][first]:
            raise Misfit(f"differs from that of {first:.60}").below(f"ledger.{task}")


def plan_agrees(body: Mapping[str, Any]) -> None:
    """Raise Misfit unless a step ends at its start or later, and reads only what lies between, of partitions that
    existed or join with it."""
    for name, source in body["sources"].items():
        # In an older format the source has no name.
        place, joins = f"sources.{name}." if name else "", source.get("joins", ())
        _check_once(joins, f"{place}joins")
        known = [partition for partition in joins if partition in source["start"]]
        if known:
            raise Misfit(f"{_names(known)} joins and has a start").below(f"{place}joins")
        _check_same(source["end"], [*source["start"], *joins], f"{place}end")
        splits = [split[0] for split in source["splits"]]
        for part, partitions in (("splits", splits), ("idle", source["idle"]), ("skipped", source.get("skipped", ()))):
            _check_among(partitions, source["end"], f"{place}{part}")
        _check_no_way_back(source, place)
    for task, step in body["tasks"].items():
        _check_closed(step.get("final_at"), step["close_at"], f"tasks.{task}.final_at")
        if step.get("emit") == EARLY and not step.get("passed"):
            raise Misfit("is early, and by no clock").below(f"tasks.{task}.emit")


def _check_closed(final: int | None, closed: int, place: str) -> None:
    if final is not None and final > closed:
        raise Misfit(f"{final}: windows are final that end after {closed}, up to which they are closed").below(place)


def _check_no_way_back(source: Mapping[str, Any], place: str) -> None:
    codec = CODECS[source["codec"]]
    start = positions_from_json(codec.name, source["start"])
    read = ((partition, codec.of(span[0], span[1])) for partition, spans in source["splits"] for span in spans)
    for part, positions in (("end", positions_from_json(codec.name, source["end"]).items()), ("splits", read)):
        for partition, at in positions:
            if partition in start and at < start[partition]:
                raise Misfit(f"{partition:.60} at {at} is before its start {start[partition]}").below(f"{place}{part}")


def _check_once(names: Collection[str], place: str) -> None:
    if len(set(names)) != len(names):
        raise Misfit(f"{_names(names)}: one of them twice").below(place)


def _check_same(names: Collection[str], partitions: Collection[str], place: str) -> None:
    if set(names) != set(partitions):
        raise Misfit(f"of {_names(names)}, the partitions are {_names(partitions)}").below(place)


def _check_among(names: Collection[str], there: Collection[str], place: str, what: str = "partitions") -> None:
    known = set(there)
    others = [name for name in names if name not in known]
    if others:
        raise Misfit(f"{_names(others)}, the {what} are {_names(there)}").below(place)


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"{name:.60}" for name in list(names)[:10]) or "none"
