"""However many drivers work on one checkpoint, and wherever each of them pauses, every effect happens once."""

from __future__ import annotations

import logging
import multiprocessing
import threading
from collections import Counter
from pathlib import Path

import pytest

from persistent.errors import Fenced
from persistent.storage import LocalStorage
from tests.crash.pauses import Before, Once, delays
from tests.crash.sweep import calm, overtaken_in_the_last_commit, sleep_everywhere
from tests.crash.worlds import JOBS, LONG, ROWS, CrashJob, Outcome, Visits, World, check_invariants

ROUNDS = 40
PROCESS_ROUNDS = 10
FILES = next(job for job in JOBS if job.name == "files")
DISK = CrashJob("disk-files", Visits, ROWS, 3, files=4, local=True)


def drive(world: World, before: Before) -> str:
    """One driver: "finished", "idle" when there was nothing to do, "fenced"; all else is a failure."""
    try:
        report = world.run(before=before)
    except Fenced:
        return "fenced"
    return "finished" if report.steps else "idle"


def small_delays(*seed: object) -> Before:
    return delays(seed, often=0.3, seconds=0.003)


def check_race(answers: list[str], world: World, expected: Outcome, story: object) -> None:
    """One has come to the end; the world is exact."""
    assert len(answers) == 2 and set(answers) <= {"finished", "fenced", "idle"}, (answers, story)
    assert answers != ["fenced", "fenced"], f"{story}: nobody came to the end"
    assert world.outcome() == expected, story
    check_invariants(world)


def test_two_drivers_in_one_process_give_what_one_gives(folder: Path) -> None:
    """I5: a scheduler that starts a job twice would otherwise double or fork its results."""
    jobs = [JOBS[round % len(JOBS)] for round in range(ROUNDS)]
    expected = {job.name: calm(job, folder).outcome for job in JOBS}
    seen: Counter[str] = Counter()
    for round, job in enumerate(jobs):
        world, gate = World(job, folder), threading.Barrier(2)
        answers: list[str] = []

        def driver(number: int, world: World = world, gate: threading.Barrier = gate, round: int = round) -> None:
            gate.wait()
            answers.append(drive(world, small_delays(round, number)))  # noqa: B023

        threads = [threading.Thread(target=driver, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        check_race(answers, world, expected[job.name], (job.name, round))
        seen.update(answers)
        world.close()
    assert seen["fenced"] > ROUNDS // 4, f"they hardly ever met: {seen}"


def _process(world: World, gate: object, answers: object, seed: object) -> None:
    """What a driver process does."""
    logging.disable(logging.WARNING)
    gate.wait()  # type: ignore[attr-defined]
    answers.put(drive(world, small_delays(seed)))  # type: ignore[attr-defined]


def test_two_driver_processes_give_what_one_gives(folder: Path) -> None:
    """Threads share a lock that processes do not: here only the file system decides who wins."""
    expected = calm(DISK, folder).outcome
    start = multiprocessing.get_context("forkserver")
    start.set_forkserver_preload(["tests.crash.test_two_drivers"])
    seen: Counter[str] = Counter()
    for round in range(PROCESS_ROUNDS):
        world, gate, queue = World(DISK, folder), start.Barrier(2), start.Queue()
        processes = [start.Process(target=_process, args=(world, gate, queue, (round, n))) for n in range(2)]
        for process in processes:
            process.start()
        answers = [queue.get(timeout=60) for _ in processes]
        for process in processes:
            process.join(60)
            assert process.exitcode == 0
        check_race(answers, world, expected, round)
        seen.update(answers)
    assert seen["fenced"] > 0, f"they never met: {seen}"


@pytest.mark.parametrize("job", [*JOBS[:4], LONG, DISK], ids=lambda job: job.name)
def test_a_driver_that_wakes_up_after_another_took_over_changes_nothing(job: CrashJob, folder: Path) -> None:
    """A machine that sleeps for an hour in the middle of any operation, between commit, check and publish too,
    wakes up and believes that it still drives."""
    sleep_everywhere(job, folder)


def test_a_driver_overtaken_in_its_last_commit_says_so(folder: Path) -> None:
    """Its id may be free again, because others went on until it was deleted: the commit then seems to be won."""
    overtaken_in_the_last_commit(folder)


def test_a_plan_put_late_names_files_that_are_still_there(folder: Path) -> None:
    """A fenced driver has written its listing but not yet its plan: who took over runs that very plan, so the
    listing must not have been swept as a leftover. It would be missing for ever."""
    expected = calm(FILES, folder).outcome
    world = World(FILES, folder)
    waits, may_put, has_put = threading.Event(), threading.Event(), threading.Event()

    def slow(verb: str, name: str) -> None:
        if may_put.is_set():
            has_put.set()
        elif verb == "put_if_absent" and name.startswith("p/"):
            waits.set()
            assert may_put.wait(30)

    def let_it_put() -> None:
        may_put.set()
        assert has_put.wait(30)

    answers: list[str] = []
    sleeper = threading.Thread(target=lambda: answers.append(drive(world, before=slow)))
    sleeper.start()
    assert waits.wait(30)
    about_to_plan = Once(lambda verb, name: verb == "put_if_absent" and name.startswith("p/"), let_it_put)
    assert drive(world, before=about_to_plan) == "finished"
    sleeper.join()
    assert about_to_plan.happened and answers == ["fenced"]
    assert world.outcome() == expected
    check_invariants(world)


@pytest.mark.parametrize("how", ["link", "memory"])
def test_the_answer_of_a_race_is_one_winner(how: str, folder: Path) -> None:
    """If both local stores answered WON, everything above would be luck."""
    from persistent.storage import MemoryStorage, Put

    storage = LocalStorage(folder / "race") if how == "link" else MemoryStorage(f"race-{folder.name}")
    answers = []
    gate = threading.Barrier(4)

    def race() -> None:
        gate.wait()
        answers.append(storage.put_if_absent("m/1", b"x"))

    threads = [threading.Thread(target=race) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers.count(Put.WON) == 1
