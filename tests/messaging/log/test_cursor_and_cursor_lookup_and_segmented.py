"""Readers see every record once, in order, from where they ask, and are told what is gone."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import numpy as np
import pytest

from persistent.errors import CorruptLog, Fenced, InvalidPipeline, RetentionGap
from persistent.log import BEGINNING, LogPosition, SegmentedLog
from persistent.messaging.log import cursor, segmented, tails
from persistent.messaging.log.cursor import Cursor, grouped
from persistent.storage import LocalStorage
from tests.messaging.log.logs import KINDS, place, positions, values


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return place(request.param, tmp_path)


def filled(url: str) -> SegmentedLog:
    """60 records in entries of three, ten times each of six, in several segments; the last one is open."""
    log = SegmentedLog(url, segment_bytes=1_024)
    adding = log.writer()
    for start in range(0, 60, 3):
        adding.append_many(
            [b"%d" % number for number in range(start, start + 3)], [n // 10 for n in range(start, start + 3)]
        )
    return log


def test_reading_begins_at_a_position(url: str) -> None:
    """One record too many counts twice, one too few is lost."""
    log = filled(url)
    places = positions(log)
    assert len(places) == 60 and places == sorted(set(places))
    for number in random.Random(0).sample(range(60), 12):
        assert values(log, places[number]) == [b"%d" % n for n in range(number, 60)]
        assert values(log, places[number].after()) == [b"%d" % n for n in range(number + 1, 60)]


def test_a_position_and_a_number_name_the_same_record(url: str) -> None:
    """How many records lie between two positions is their difference."""
    log = filled(url)
    for number, position in enumerate(positions(log)):
        assert log.position_of(number) == position
        assert next(iter(log.read(position))).number == number
    assert log.position_of(60) == log.ends().next
    with pytest.raises(ValueError, match="record 61 does not exist yet"):
        log.position_of(61)


def test_a_part_of_a_batch_knows_where_its_records_are(url: str) -> None:
    """It had the position and the number of the batch's first record, whichever was its own."""
    log = filled(url)
    for batch in log.read():
        for part in (batch[1:], batch[-1:], batch[:2], batch[1:1]):
            assert log.position_of(part.number) == part.first
            assert part.records.to_pylist() == [b"%d" % n for n in range(part.number, part.number + len(part))]
        with pytest.raises(ValueError, match="give no step"):
            batch[::2]


@pytest.mark.parametrize(("option", "limit"), [("_GROUP_BYTES", 10), ("_GROUP_ROWS", 5)])
def test_groups_of_batches_have_a_bound_in_rows_and_bytes(
    monkeypatch: pytest.MonkeyPatch, url: str, option: str, limit: int
) -> None:
    """A step of 50,000 records of 50 KB was one array of more than 2 GiB, and its run ended with an EngineError."""
    log = filled(url)
    assert [len(group) for group in grouped(log.read())] == [20]
    monkeypatch.setattr(cursor, option, limit)
    groups = list(grouped(log.read()))
    assert len(groups) >= 10
    assert [record for group in groups for batch in group for record in batch.records.to_pylist()] == values(log)


@pytest.mark.parametrize("time", range(-1, 8))
def test_a_time_is_looked_up_inclusively(url: str, time: int) -> None:
    """Ten records have each time, across the edges of entries and segments: the first of them is wanted."""
    log = filled(url)
    number = min(max(time, 0) * 10, 60)
    assert log.number_at(time) == number
    assert log.position_at(time) == ([*positions(log), log.ends().next])[number]


def test_an_empty_log_has_no_records(url: str) -> None:
    """A reader may come first, and must not make the log."""
    log = SegmentedLog(url)
    assert (values(log), log.id, log.mark(), log.position_at(7), log.number_at(7)) == ([], "", b"", BEGINNING, 0)
    assert log.ends().next == BEGINNING and list(Cursor(log._folder, BEGINNING).take()) == []
    log.writer()
    assert values(log) == [] and log.position_at(7) == BEGINNING and log.id


def test_what_is_cut_off_is_told(url: str) -> None:
    """A reader that skips it silently has lost records."""
    log = filled(url)
    places = positions(log)
    assert log.truncate(places[31]) == places[31]
    assert log.truncate(places[7]) == places[31]
    assert values(log) == [b"%d" % number for number in range(31, 60)] == values(log, BEGINNING, on_gap="earliest")
    assert values(log, places[30], on_gap="latest") == [] and values(log, places[31], on_gap="latest")[0] == b"31"
    assert log.ends().first_number == 31
    with pytest.raises(RetentionGap, match=f"the next position to read is {places[30]}, but the first that remains"):
        values(log, places[30])
    with pytest.raises(RetentionGap, match="record 30 was cut off"):
        log.position_of(30)
    with pytest.raises(
        RetentionGap, match=r"records of time 3 or later were cut off: those before .*, the last of time 3"
    ):
        log.position_at(3)
    assert log.position_at(3, on_gap="earliest") == places[31] and log.position_at(4) == places[40]
    with pytest.raises(InvalidPipeline, match="on_gap='skip' is not known"):
        values(log, on_gap="skip")


def test_all_can_be_cut_off_and_the_log_goes_on(url: str) -> None:
    """Numbers and times go on where they were, or records would have those of others."""
    log = filled(url)
    end = log.truncate(LogPosition(10**6, 0, 0))
    assert values(log) == [] and log.ends().first_number == log.ends().next_number == 60
    with log.writer() as adding:
        assert adding.append(b"next", time=5) >= end
    assert [(batch.number, batch.records.to_pylist()) for batch in log.read()] == [(60, [b"next"])]


def test_what_is_not_synced_is_not_cut(tmp_path: Path) -> None:
    """A loss of power would bring the log before its own beginning."""
    log = SegmentedLog(tmp_path / "log", sync="never")
    adding = log.writer()
    adding.append(b"one")
    assert log.truncate(LogPosition(9, 0, 0)) == BEGINNING
    adding.close()
    assert log.truncate(LogPosition(9, 0, 0)) > BEGINNING


def test_readers_see_nothing_of_a_writer_that_is_fenced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not synced, it would be seen before the writer looks for the claims of others: who takes over has not kept it."""
    log = SegmentedLog(tmp_path / "log", sync="never")
    adding = log.writer()
    adding.append(b"acknowledged")
    cursor, found, real = log._cursor(BEGINNING, "fail"), [], tails._whole_of

    def slow(*args: Any) -> Any:
        with pytest.raises(Fenced):
            adding.append(b"ghost")
        found.extend(cursor.take())
        return real(*args)

    monkeypatch.setattr(tails, "_whole_of", slow)
    with SegmentedLog(tmp_path / "log", sync="never").writer() as other:
        other.append(b"next")
    found.extend(cursor.take())
    assert [batch.records.to_pylist() for batch in found] == [[b"acknowledged"], [b"next"]]


def test_a_number_that_is_used_again_is_told_apart(url: str) -> None:
    """The records of a loss of power have their numbers and places, and are others."""
    log = filled(url)
    found = [log.fingerprint_of(number) for number in range(60)]
    assert len({text for text in found if text}) == 20 and found[0] == found[2] != found[3]
    log.truncate(log.position_of(31))
    with log.writer() as adding:
        adding.append(b"60")
    assert [log.fingerprint_of(number) for number in (30, 31, 59, 61)] == [None, found[31], found[59], ""]
    assert SegmentedLog(f"{url}-other").fingerprint_of(0) == ""


def test_another_record_at_the_same_place_is_told_apart(tmp_path: Path) -> None:
    """A log that was restored from an older copy goes on with the same segments."""
    log = SegmentedLog(tmp_path / "log")
    with log.writer() as adding:
        adding.append(b"one", time=1)
    copytree(tmp_path / "log", tmp_path / "copy")
    found = []
    for name, text in (("log", b"two"), ("copy", b"2nd")):
        other = SegmentedLog(tmp_path / name)
        with other.writer() as adding:
            adding.append(text, time=2)
        found.append([other.fingerprint_of(number) for number in (0, 1)])
    assert found[0][0] == found[1][0] and found[0][1] != found[1][1] and found[0][1].startswith("2-0-0-")


def test_a_follower_sees_what_comes_until_the_end(url: str) -> None:
    """Across segments, a writer that was killed, and one that took over."""
    log = SegmentedLog(url, segment_bytes=1_024)
    adding = log.writer()
    adding.append(b"0")
    found: list[bytes] = []
    seen = threading.Event()

    def follow() -> None:
        for batch in SegmentedLog(url).follow(poll="1 ms"):
            found.extend(batch.records.to_pylist())
            seen.set()

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    assert seen.wait(60)
    for number in range(1, 40):
        if number % 13 == 0:
            adding = log.writer()
        adding.append_many([b"%d" % number, bytes(90)])
    adding.end()
    follower.join(60)
    assert not follower.is_alive() and [text for text in found if len(text) < 90] == [b"%d" % n for n in range(40)]


def test_a_follower_can_be_stopped(url: str) -> None:
    """A log that goes on for ever would hold its readers."""
    log, stop = filled(url), threading.Event()
    rows = 0
    for batch in log.follow(stop=stop):
        rows += len(batch)
        if rows == 60:
            stop.set()
    assert rows == 60


def test_a_follower_is_told_what_it_came_too_late_for(url: str) -> None:
    """A slow follower whose records are cut off would go on as if there had been none."""
    log = filled(url)
    following = log.follow(poll="1 ms")
    next(following)
    cursor = Cursor(log._folder, BEGINNING)
    next(cursor.take())
    log.truncate(LogPosition(10**6, 0, 0))
    with pytest.raises(RetentionGap):
        list(cursor.take())


def test_age_and_bytes_are_kept_and_no_more(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk runs full, or records are gone before anybody has read them."""
    monkeypatch.setattr(segmented, "wall_ms", lambda: 1_000)
    for options, least in (({"keep_age": 100}, 900), ({"keep_bytes": 4_000}, 0)):
        log = SegmentedLog(f"{url}-{least}", segment_bytes=1_024, **options)  # type: ignore[arg-type]
        with log.writer() as adding:
            for time in range(0, 1_001, 10):
                adding.append(bytes(200), time=time)
        log.writer().close()
        times = np.concatenate([batch.times for batch in log.read()])
        assert log.ends().first_number > 0 and times[-1] == 1_000
        if least:
            assert times[0] <= least and len(times) <= 11 + 5
        else:
            assert 4_000 / 600 <= len(times) <= (4_000 + 3 * 1_500) / 300
        with pytest.raises(RetentionGap):
            values(log, BEGINNING)


def test_damage_is_told_with_its_place(tmp_path: Path) -> None:
    """A record that is passed over is lost, and nobody knows."""
    log = filled(str(tmp_path / "log"))
    sealed = sorted((tmp_path / "log" / "s").iterdir())[1]
    data = bytearray(sealed.read_bytes())
    data[len(data) // 2] ^= 1
    sealed.chmod(0o600)
    sealed.write_bytes(data)
    with pytest.raises(CorruptLog, match=rf"{sealed}: damaged at or after byte \d+ of"):
        values(log)
    assert values(log, LogPosition(3, 0, 0))[-1] == b"59"
    sealed.unlink()
    with pytest.raises(CorruptLog, match="segment 2 is missing"):
        values(log)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"segment_bytes": 10}, "segment_bytes=10"),
        ({"keep_bytes": 0}, "keep_bytes=0"),
        ({"sync": "often"}, "sync"),
    ],
)
def test_options_are_checked_at_once(options: dict[str, object], said: str) -> None:
    """A typing error would show when the disk is full."""
    with pytest.raises(InvalidPipeline, match=said):
        SegmentedLog("memory://options", **options)  # type: ignore[arg-type]


def test_a_reader_writes_nothing(tmp_path: Path) -> None:
    """Readers may have no right to."""
    filled(str(tmp_path / "log"))
    before = sorted(tmp_path.rglob("*"))
    log = SegmentedLog(LocalStorage(tmp_path / "log"))
    assert len(values(log)) == 60 and log.ends().next_number == 60
    assert sorted(tmp_path.rglob("*")) == before


def test_a_cut_within_a_segment_knows_its_number(url: str) -> None:
    """With the number of another record, a source finds a gap in every run, or reads other records."""
    log = SegmentedLog(url)
    adding = log.writer()
    for number in range(5):
        adding.append_many([b"%d" % number, b"x"])
    middle, end = positions(log)[7], log.ends().next
    assert log.truncate(middle) == middle == log.ends().first and log.ends().first_number == 7
    assert log.truncate(end) == end == log.ends().first and log.ends().first_number == 10
    assert values(log) == []
    adding.append(b"next")
    assert [(batch.number, batch.records.to_pylist()) for batch in log.read()] == [(10, [b"next"])]


@pytest.mark.parametrize(("on_gap", "first"), [("earliest", 31), ("latest", 60)])
def test_a_reader_that_is_overtaken_goes_on_as_it_was_told(url: str, tmp_path: Path, on_gap: str, first: int) -> None:
    """It would end with the advice that it was given already."""
    log = filled(url)
    reading = log.reader("one", tmp_path / "offsets.db", on_gap=on_gap)
    cursor = log._cursor(BEGINNING, on_gap)
    assert next(cursor.take()).number == next(reading.read()).number == 0
    log.truncate(positions(log)[31])
    numbers = [batch.number for one in (cursor.take(), reading.read()) for batch in one]
    with log.writer() as adding:
        adding.append(b"60")
        numbers += [batch.number for one in (cursor.take(), reading.read()) for batch in one]
    assert min(numbers) == first and numbers.count(60) == 2


def test_a_lost_segment_is_told_and_can_be_passed_over(tmp_path: Path) -> None:
    """Reading would end there as if it were the end, and the next writer would use its numbers again."""
    adding = SegmentedLog(tmp_path / "log", segment_bytes=1_024).writer()
    for _ in range(20):
        adding.append(bytes(200))
    newest = sorted((tmp_path / "log" / "s").iterdir())[-1]
    for _ in range(2):
        adding.append(b"behind")
    newest.unlink()
    log = SegmentedLog(tmp_path / "log")
    behind = LogPosition(int(newest.name) + 1, 0, 0)
    for act in (lambda: values(log), log.writer, log.ends):
        with pytest.raises(
            CorruptLog, match=rf"segment {int(newest.name)} is missing.*from position {behind}.*truncate"
        ):
            act()
    assert values(log, behind)[-1] == b"behind" and adding.is_current()
    assert log.truncate(behind) == behind == log.ends().first
    with log.writer() as again:
        again.append(b"on")
    assert values(log)[-2:] == [b"behind", b"on"]


def test_a_time_behind_everything_that_was_cut_off_is_no_gap(url: str) -> None:
    """Nothing of that time was ever there: a restart from a clock would be refused for nothing."""
    log = filled(url)
    places = positions(log)
    log.truncate(places[30])
    assert log.position_at(3) == places[30] and log.position_at(4) == places[40]
    with pytest.raises(RetentionGap, match=r"of time 2 or later were cut off: .*, the last of time 2\."):
        log.position_at(2)
    log.truncate(places[33])
    with pytest.raises(RetentionGap, match="the last of time 3"):
        log.position_at(3)
    end = log.truncate(LogPosition(10**6, 0, 0))
    assert log.position_at(6) == end
    with pytest.raises(RetentionGap, match="the last of time 5"):
        log.position_at(5)


def test_a_position_behind_the_end_is_no_place_to_wait_at(url: str) -> None:
    """The log is an older copy, or has lost its end: what comes next is passed over up to there, in silence."""
    log = filled(url)
    places = positions(log)
    assert values(log, log.ends().next) == []
    for beyond in (places[-1]._replace(slot=9), places[-1].after(), LogPosition(10**6, 0, 0)):
        if beyond > log.ends().next:
            with pytest.raises(CorruptLog, match=f"there is no position {beyond}: the log ends before it"):
                values(log, beyond)
    inside = places[7]
    with pytest.raises(CorruptLog, match=f"there is no position {inside.segment}-999-0"):
        values(log, LogPosition(inside.segment, 999, 0))


def test_a_follower_learns_that_another_log_is_in_the_place_of_its_own(tmp_path: Path) -> None:
    """It would wait for ever, at a position that the other log has not, or read other records as those that follow."""
    log = SegmentedLog(tmp_path / "log")
    with log.writer() as adding:
        adding.append(b"one")
    cursor = log._cursor(BEGINNING, "fail")
    assert [batch.records.to_pylist() for batch in cursor.take()] == [[b"one"]]
    rmtree(tmp_path / "log")
    with pytest.raises(CorruptLog, match=r"was read up to 1-1-0|was read up to 2-0-0"):
        list(cursor.take())
    with log.writer() as adding:
        for number in range(5):
            adding.append(b"%d" % number)
        with pytest.raises(CorruptLog, match="is in its place"):
            list(cursor.take())
    assert log.ends().next_number == 5 == len(values(log))


@pytest.mark.parametrize("name", [".nfs0000", "00000000000000000001~", ".DS_Store", "x"])
def test_files_of_others_do_not_count(name: str, tmp_path: Path) -> None:
    """An editor or a network file system leaves its own files; every reader and writer would fail over them."""
    log = filled(str(tmp_path / "log"))
    for folder in "csot":
        (tmp_path / "log" / folder).mkdir(exist_ok=True)
        (tmp_path / "log" / folder / name).write_bytes(b"")
    again = SegmentedLog(tmp_path / "log")
    assert len(values(again)) == 60 == again.ends().next_number
    again.truncate(positions(again)[40])
    with again.writer() as adding:
        adding.append(b"next")
    assert len(values(log)) == 21
