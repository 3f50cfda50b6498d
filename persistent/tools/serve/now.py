"""Now: is the job alive, how far behind is it, and is anything lost."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.output_parts import SinkPart
from persistent.checkpoint.plan import StepPlan
from persistent.checkpoint.running import Mark
from persistent.errors import PersistentError
from persistent.names import state_name
from persistent.reading import ClockReading
from persistent.text.figures import count_text, span_text, utc_text
from persistent.text.fingerprints import window_text
from persistent.time.clock import wall_ms
from persistent.tools.serve.partly_late import NOTHING, Partly
from persistent.tools.serve.shown import FATES, CheckpointFacts, Shown, has_windows
from persistent.tools.serve.time_line import RATE_STEPS, follows, last_steps, rates
from persistent.tools.serve.wording import place_text, published_words, said_of, sink_words, time_to_live, when_words

_RECENT = 120
_PARTITIONS_MAX = 200
_LONG_AGO_MS = 30 * 86_400_000
"""A clock further behind than this follows old data, not the time of day."""
_FENCES_MANY = 3
_LONG_STEP_MS, _LONG_STEPS = 60_000, 20
"""A step is long after a minute, and after twenty times the usual one."""
_FILES = "; whether every file is whole, Verify in Storage says"
"""The manifest holds the account. It cannot tell whether the files that the manifest names are whole."""

GOOD, WARN, BAD, STILL = "good", "warn", "bad", "still"

Verdict = dict[str, str]


def now(job: Shown) -> dict[str, Any]:
    """What a job is doing, in three verdicts and their figures."""
    look = job.look()
    manifest, at_ms = look.newest.manifest, wall_ms()
    facts = job.facts(manifest.id)
    recent = job.recent(_RECENT)
    clock, partly = job.clock(), job.partly_late()
    driver, speed = driver_of(look.marks), _speed(recent)
    return {
        "version": look.version,
        "name": job.name,
        "url": place_text(job.storage.url),
        "target": place_text(job.target),
        "has_pipeline": job.pipeline is not None,
        "job": manifest.job,
        "states": _states(manifest),
        "sources": [{"name": name, "kind": source.kind} for name, source in sorted(manifest.sources.items())],
        "sinks": [_sink(name, sink, manifest) for name, sink in sorted(manifest.sinks.items())],
        "windows": has_windows(manifest),
        "checkpoint": facts,
        "partly_late": partly.records(),
        "kept": len(look.ids),
        "now_ms": at_ms,
        "driver": driver,
        "clock": _clock(clock),
        "speed": speed,
        "series": _series(recent),
        "rates": rates(recent),
        "verdicts": verdicts(job, recent, at_ms),
    }


def verdicts(job: Shown, recent: Sequence[CheckpointFacts], at_ms: int) -> list[Verdict]:
    """Whether the job is alive, how far behind it is, and whether anything is lost. ``recent``: its last
    checkpoints."""
    look = job.look()
    manifest = look.newest.manifest
    facts, driver = job.facts(manifest.id), driver_of(look.marks)
    at_work = driver["state"] == "at work"
    doing = _doing(job.pending(), manifest.id, _speed(recent), at_ms) if at_work else None
    return [
        _alive(driver, facts, at_ms, manifest.fences, doing),
        _behind(driver, job.clock(), facts, at_ms, lambda: _ahead(job)),
        _lost(facts, recent, job.partly_late()),
    ]


def brief(job: Shown) -> dict[str, Any]:
    """The line of a job in the list of jobs. If the job cannot be read, the line says what is wrong."""
    try:
        look = job.look()
        facts, at_ms = job.facts(look.newest.manifest.id), wall_ms()
        driver, doing = driver_of(look.marks), None
        if driver["state"] == "at work" and at_ms - facts["committed_ms"] > _LONG_STEP_MS:
            # A driver that hangs changes nothing else.
            doing = _doing(job.pending(), look.newest.manifest.id, _speed(job.recent(RATE_STEPS + 1)), at_ms)
        alive = _alive(driver, facts, at_ms, look.newest.manifest.fences, doing)
        judged = [alive, _lost(facts, (), job.partly_late())]
    except PersistentError as error:
        return unread(job, said_of(error)[1])
    line = {"name": job.name, "url": place_text(job.storage.url)}
    version = f"{look.version}/{alive['title']}"
    return {**line, "version": version, "checkpoint": facts, "driver": driver, "verdicts": judged}


def unread(job: Shown, words: dict[str, str]) -> dict[str, Any]:
    """The line of a job that cannot be read, with what is wrong."""
    return {"name": job.name, "url": place_text(job.storage.url), "version": words["text"], "error": words}


def driver_of(marks: Sequence[Mark]) -> dict[str, Any]:
    """Whether a driver is at work: certainly, perhaps (its process cannot be seen from here), or not."""
    alive = [mark for mark in marks if mark.runs]
    unseen = [mark for mark in marks if mark.may_run and not mark.runs]
    for state, drivers in (("at work", alive), ("perhaps", unseen)):
        if drivers:
            newest = max(drivers, key=lambda mark: mark.epoch)
            process = newest.process
            return {"state": state, "host": process.host, "pid": process.pid, "since_ms": newest.started_ms}
    died = max((mark for mark in marks), key=lambda mark: mark.epoch, default=None)
    if died is not None:
        process = died.process
        return {"state": "died", "host": process.host, "pid": process.pid, "since_ms": died.started_ms}
    return {"state": "stopped"}


def _alive(
    driver: dict[str, Any], facts: CheckpointFacts, at_ms: int, fences: int = 0, doing: Verdict | None = None
) -> Verdict:
    """``fences``: how many drivers have taken over since the last checkpoint. ``doing``: what the driver works on."""
    since = ""
    if facts["committed_ms"]:
        since = f"; its last checkpoint was planned {span_text(max(at_ms - facts['committed_ms'], 0))} ago"
    who = "" if driver["state"] == "stopped" else f"process {driver['pid']} on {driver['host']}"
    if fences >= _FENCES_MANY and driver["state"] in ("at work", "died"):
        text = f"{fences} drivers have taken over since its last checkpoint, and each has ended: their log says why"
        return _verdict("alive", BAD, "Starts again and again", f"{text}; now {who}{since}")
    if driver["state"] == "at work":
        level, title, what = (GOOD, "At work", "") if doing is None else (doing["level"], doing["title"], doing["text"])
        return _verdict("alive", level, title, f"{who}, since {utc_text(driver['since_ms'])}{what}{since}")
    if driver["state"] == "perhaps":
        return _verdict("alive", STILL, "Perhaps at work", f"{who} cannot be seen from here{since}")
    if driver["state"] == "died":
        return _verdict("alive", BAD, "Killed", f"{who} has ended and left its mark; the next run continues{since}")
    if facts["kind"] == "savepoint":
        return _verdict("alive", STILL, "A savepoint", "a copy that stands by itself; no driver works on it")
    if facts["end_of_input"]:
        return _verdict("alive", STILL, "Ended", f"its input was declared complete{since}")
    return _verdict("alive", STILL, "Stopped", f"no driver is at work{since}")


def _doing(plan: StepPlan | None, newest: int, speed: dict[str, Any], at_ms: int) -> Verdict:
    """What a driver at work does. ``plan``: of the step after checkpoint ``newest``, not committed yet; None: the
    driver has nothing to read, or its source does not answer, and the checkpoint does not tell which."""
    if plan is None:
        return _verdict("alive", GOOD, "At work", ", waits for records, or for its source")
    splits = sum(len(source.splits) for source in plan.sources.values())
    for_ms, usual = max(at_ms - plan.wall_ms, 0), speed["step_ms"]
    text = f", in the step after checkpoint {newest:,} for {span_text(for_ms)} ({count_text(splits, 'split')})"
    if for_ms > max(_LONG_STEP_MS, _LONG_STEPS * (usual or 0)):
        usually = f", where a step usually takes {span_text(usual)}" if usual else ""
        return _verdict("alive", WARN, "In a long step", f"{text}{usually}")
    return _verdict("alive", GOOD, "At work", text)


def _behind(
    driver: dict[str, Any],
    clock: ClockReading,
    facts: CheckpointFacts,
    at_ms: int,
    ahead: Callable[[], str],
) -> Verdict:
    """How far the clock is behind the time of day. ``ahead``: makes the text for a clock that a record has moved ahead
    of the time of day."""
    if not clock.watermark:
        return _verdict("behind", STILL, "Not begun", "no record has moved the clock yet")
    if clock.ended:
        return _verdict("behind", GOOD, "All read", "the input is complete, and every window is closed")
    works = driver["state"] == "at work"
    then = at_ms if works or not facts["committed_ms"] else facts["committed_ms"]
    lag = then - clock.watermark
    when = "now" if works else "when it was last at work"
    suffix = _held(clock)
    if lag > _LONG_AGO_MS:
        return _verdict("behind", STILL, "Old data", f"the clock stands at {utc_text(clock.watermark)}{suffix}")
    if clock.ahead_ms(then):
        return _verdict("behind", WARN, f"{span_text(-lag)} ahead", ahead())
    if lag < 0:
        return _verdict("behind", WARN, f"{span_text(-lag)} ahead", f"the clock is ahead of the time of day{suffix}")
    return _verdict("behind", GOOD if lag < 60_000 else WARN, f"{span_text(lag)} behind", f"{when}{suffix}")


def _ahead(job: Shown) -> str:
    """Which record has moved the clock ahead of the time of day, where it lies, and what to do."""
    record_text, lies, furthest = "", job.furthest(), job.clock().furthest
    target = shlex.quote(place_text(job.target or job.storage.url))
    if furthest is not None and furthest.largest is not None:
        record_text = f"; partition {furthest.name} has a record of {utc_text(furthest.largest)}"
    if lies is not None:
        record_text += f", {lies}: 'persistent clock {target if job.pipeline else 'FILE.py:NAME'} --find' names it"
    return (
        f"the clock is ahead of the time of day, so records of today are late{record_text}. If its time is wrong, "
        f"'persistent clock {target} --set-back --not-after TIME' goes back to before it"
    )


def _held(clock: ClockReading) -> str:
    """What holds the clock back, if anything does."""
    part = clock.held_by
    if part is None or not (part.lists or len(clock.partitions) > 1):
        return ""
    return f"; partition {part.name} holds it back{', with listed files that are not read yet' if part.lists else ''}"


def _lost(facts: CheckpointFacts, recent: Sequence[CheckpointFacts] = (), partly: Partly = NOTHING) -> Verdict:
    if not facts["balances"]:
        return _verdict("lost", BAD, "Does not add up", "an account is not read = processed + late + dead + duplicate")
    if facts["skipped"]:
        text = f"{count_text(facts['skipped'], 'position')} skipped: the source no longer had them"
        return _verdict("lost", BAD, "Skipped by the source", text)
    aside = [f"{facts[name]:,} {word}" for name, word in (("late", "late"), ("dead", "dead")) if facts[name]]
    if partly.records():
        aside.append(f"{partly.records():,} partly late")
    if aside:
        text = "every record is accounted for; those set aside are kept, with file, offset and reason"
        warning = _most_aside(facts, recent, partly)
        level = BAD if warning else WARN
        return _verdict(
            "lost", level, " and ".join(aside), f"{text}{_missing(partly)}{_uncounted(partly)}{_FILES}{warning}"
        )
    text = f"all {count_text(facts['read'], 'record')} accounted for{_uncounted(partly)}{_FILES}"
    if partly.unread or partly.damaged:
        return _verdict("lost", STILL, "Nothing lost so far", text)
    return _verdict("lost", GOOD, "Nothing lost", text)


def _missing(partly: Partly) -> str:
    """Where partly late records are missing."""
    missing = partly.missing()
    windows = missing.pop("", 0)
    parts = [f"{count:,} missing in the state {name}, for which they came too late" for name, count in missing.items()]
    if windows:
        parts.append(f"{windows:,} missing in some of their windows, which were final")
    return "".join(f"; {part}" for part in parts)


def _uncounted(partly: Partly) -> str:
    """What is not known of partly late records."""
    parts = []
    if partly.unread:
        parts.append(f"{count_text(partly.unread, 'file')} of late records not counted yet")
    if partly.damaged:
        damaged = count_text(partly.damaged, "file")
        parts.append(f"{damaged} of late records cannot be read: 'persistent verify TARGET' says what is damaged")
    if partly.inherited:
        parts.append("what was late in part before it was copied is listed by the job before, 'persistent late'")
    return "".join(f"; {part}" for part in parts)


def _most_aside(facts: CheckpointFacts, recent: Sequence[CheckpointFacts], partly: Partly) -> str:
    """A warning if most of the records of the last steps were dead, late, or late in one state: then a format or a
    clock is likely wrong. Empty otherwise."""
    before = recent[-RATE_STEPS - 1 :][:1]
    if not before:
        return ""
    read = facts["read"] - before[0]["read"]
    added = {name: facts[name] - before[0][name] for name in ("late", "dead")}
    if partly.by_id:
        missing = partly.missing(before[0]["id"])
        added |= {f"late in {name or 'some of their windows'}": count for name, count in missing.items()}
    for name, count in added.items():
        if 2 * count > read > 0:
            cause = "their format or their times may have changed" if name == "dead" else "the clock may be wrong"
            return f". Most of the last {count_text(read, 'record')} were {name}: {cause}"
    return ""


def _verdict(of: str, level: str, title: str, text: str) -> Verdict:
    return {"of": of, "level": level, "title": title, "text": text}


def _states(manifest: Manifest) -> list[dict[str, Any]]:
    """Each of several states, with a clock of its own; none if there is only one."""
    states = []
    for id, node in manifest.nodes.items() if len(manifest.nodes) > 1 else ():
        runs = node.runs
        states.append(
            {
                "name": state_name(id),
                "clock_ms": node.clock.watermark,
                "closed_ms": node.clock.closed if node.has_windows else None,
                "rows": sum(run.rows_left for run in runs),
                "bytes": sum(run.bytes for run in runs),
                "runs": len(runs),
                "window": window_text(node.fingerprint["window"]),
                "time_to_live": time_to_live(node.fingerprint),
            }
        )
    return states


def _sink(name: str, part: SinkPart, manifest: Manifest) -> dict[str, Any]:
    node = manifest.nodes.get(part.node) if part.node is not None else None
    return {
        "name": name,
        "takes": sink_words(part),
        "when": "with their step" if part.late else "" if node is None else when_words(node),
        "late": part.late,
        "last": part.last,
        "published": published_words(part, manifest),
    }


def _clock(clock: ClockReading) -> dict[str, Any]:
    holder = clock.held_by
    partitions = sorted(clock.partitions, key=lambda part: (part.reached is None, part.reached or 0, part.name))
    return {
        "watermark": clock.watermark,
        "closed": clock.closed,
        "ended": clock.ended,
        "quiet_ms": clock.quiet_ms,
        "not_after": clock.not_after,
        "held_by": None if holder is None else holder.name,
        "partitions": [
            {"name": one.name, "largest": one.largest, "reached": one.reached, "idle": one.is_idle, "lists": one.lists}
            for one in partitions[:_PARTITIONS_MAX]
        ],
        "partitions_more": max(0, len(partitions) - _PARTITIONS_MAX),
    }


def _speed(recent: Sequence[CheckpointFacts]) -> dict[str, Any]:
    """Rows read a second, and the time from plan to plan, over the last steps."""
    steps = last_steps(recent)
    if steps is None:
        return {"rows_per_s": None, "step_ms": None, "steps": 0}
    times_ms = steps.step_ms
    rate = steps.rate(steps.last["read"] - steps.first["read"])
    return {"rows_per_s": rate, "step_ms": times_ms[len(times_ms) // 2] if times_ms else None, "steps": len(times_ms)}


def _series(recent: Sequence[CheckpointFacts]) -> list[dict[str, Any]]:
    """What each of the last checkpoints added. ``several``: the row sums up all checkpoints after ``after``, as those
    between are no longer kept."""
    return [
        {
            "id": b["id"],
            "after": a["id"],
            "several": not follows(a, b),
            "committed_ms": b["committed_ms"],
            "clock_ms": b["clock_ms"],
            **{name: max(0, b[name] - a[name]) for name in FATES},
            "state_rows": b["state_rows"],
            "state_bytes": b["state_bytes"],
        }
        for a, b in pairwise(recent)
    ]
