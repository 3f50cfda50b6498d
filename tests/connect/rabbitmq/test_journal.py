"""A journal is whose it says it is, and has all that its checkpoint has not counted; otherwise nothing is taken."""

from __future__ import annotations

import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pika
import pytest

from persistent import SegmentedLog
from persistent.connect.offsets import gone_back
from persistent.connect.rabbitmq.frames import framed
from persistent.connect.rabbitmq.journal import QueueJournal, QueueMark
from persistent.connect.source import SourceState
from persistent.errors import Fenced, InvalidPipeline, RetentionGap, SourceChanged

VIEWS = QueueMark("views", "/")


def journal(folder: Path, owner: QueueMark = VIEWS, *, replaces: bool = True) -> QueueJournal:
    """As a new process has it."""
    return QueueJournal("the queue", SegmentedLog(folder), owner, replaces=replaces)


def add(one: QueueJournal, count: int) -> None:
    assert one.writer is not None
    one.writer.append_many([framed(pika.BasicProperties(), "views", b"%d" % number) for number in range(count)])


def step(one: QueueJournal, state: SourceState, count: int = 0) -> SourceState:
    """The state after a step that reads the journal to its end, once it has so many messages more."""
    ids = one.open(state)
    if count:
        add(one, count)
    end, partition = one.log.ends().next_number, "journal" if len(ids) == 1 else f"journal-{len(ids)}"
    recorded = one.recorded(state.recorded, ids, state, end)
    return replace(state, positions={**state.positions, partition: end}, recorded=recorded)


def begun(folder: Path, *counts: int, job: str = "job", **options: Any) -> list[SourceState]:
    """The checkpoints of a job, each after so many messages more."""
    states = [SourceState({}, job=job)]
    one = journal(folder, **options)
    for count in counts:
        states.append(step(one, states[-1], count))
    # Whoever plans again has claimed it.
    one.open(states[-1])
    one.close()
    return states


def rolled_back(to: SourceState, newest: SourceState, *, is_known: bool = True) -> SourceState:
    recorded = gone_back(to.recorded, newest.recorded, newest.positions, is_known=is_known)
    return replace(to, recorded=recorded)


def refused(
    folder: Path, state: SourceState, kind: type[Exception], match: str, owner: QueueMark = VIEWS, **options: Any
) -> None:
    """The job cannot continue, and whoever writes to the journal is not disturbed."""
    log = SegmentedLog(folder)
    before = (log.ends(), log.mark(), log._folder.epoch()) if log.id else None
    with pytest.raises(kind, match=match):
        journal(folder, owner, **options).open(state)
    assert before == ((log.ends(), log.mark(), log._folder.epoch()) if log.id else None)


# -- whose it is ---------------------------------------------------------------------------------------------------


def test_the_journal_of_another_queue_is_refused(tmp_path: Path) -> None:
    """Two jobs with one journal each count the messages of both queues."""
    begun(tmp_path / "j", 10)
    fresh = SourceState({}, job="other")
    words = r"is the journal of the queue 'views' in the virtual host '/': give this queue a journal of its own"
    refused(tmp_path / "j", fresh, InvalidPipeline, words, QueueMark("orders", "/"))
    refused(tmp_path / "j", fresh, InvalidPipeline, words, QueueMark("views", "shop"))


def test_a_queue_of_which_nothing_was_taken_leaves_the_journal_free(tmp_path: Path) -> None:
    """A name that was mistyped would keep the journal from the right one."""
    begun(tmp_path / "j", owner=QueueMark("veiws", "/"))
    (_, state) = begun(tmp_path / "j", 3)
    assert state.positions == {"journal": 3}
    assert QueueMark.decoded(SegmentedLog(tmp_path / "j").mark()) == QueueMark("views", "/", "job")


def test_the_journal_of_another_job_is_refused(tmp_path: Path) -> None:
    """One job would cut off what the other has not read, and acknowledge what it has not counted."""
    states = begun(tmp_path / "j", 10)
    words = r"is read by another job \(job\).*Give each job a queue and a journal of its own"
    refused(tmp_path / "j", SourceState({}, job="other"), InvalidPipeline, words)
    # The folder may move, and the job may run again.
    (tmp_path / "j").rename(tmp_path / "moved")
    assert step(journal(tmp_path / "moved"), states[-1], 2).positions == {"journal": 12}


def test_a_job_without_a_checkpoint_holds_no_journal(tmp_path: Path) -> None:
    """A run that dies before its first checkpoint would keep the messages that it has taken from every other."""
    one = journal(tmp_path / "j")
    one.open(SourceState({}, job="dies"))
    add(one, 5)
    one.close()
    assert step(journal(tmp_path / "j"), SourceState({}, job="job")).positions == {"journal": 5}


def test_a_job_that_started_from_another_takes_its_journal_over(tmp_path: Path) -> None:
    """The successor reads on where the origin was; the origin would acknowledge behind its back."""
    states = begun(tmp_path / "j", 10, 5)
    heir = replace(states[1], job="heir")
    one = journal(tmp_path / "j")
    after = step(one, heir)
    assert after.positions == {"journal": 15}
    step(one, after)
    one.close()
    refused(tmp_path / "j", states[-1], InvalidPipeline, r"another job \(heir\), which may have started from this one")
    refused(tmp_path / "j", replace(states[1], job="third"), InvalidPipeline, r"another job \(heir\)")


def test_a_journal_can_be_released(tmp_path: Path) -> None:
    """A queue that moved into another one, or a checkpoint that was deleted, would be a dead end."""
    begun(tmp_path / "j", 10)
    orders = journal(tmp_path / "j", QueueMark("orders", "/"))
    orders.release()
    assert step(orders, SourceState({}, job="other")).positions == {"journal": 10}
    journal(tmp_path / "none").release()
    assert not SegmentedLog(tmp_path / "none").id


def test_a_journal_of_an_older_release_is_adopted(tmp_path: Path) -> None:
    """It has no mark, and its job would end with the upgrade."""
    log = SegmentedLog(tmp_path / "j")
    with log.writer() as writer:
        writer.append_many([framed(pika.BasicProperties(), "views", b"0")] * 3)
    old = SourceState({"journal": 2}, {"journals": [log.id], "log": log.id}, job="job")
    after = step(journal(tmp_path / "j"), old)
    assert (after.positions, after.recorded["job"]) == ({"journal": 3}, "job")
    # What was acknowledged before is not known: as much as it held.
    assert after.recorded["acknowledged"] == {"journal": 3}
    assert QueueMark.decoded(log.mark()) == QueueMark("views", "/", "job")


@pytest.mark.parametrize("mark", [b'{"topic": "t", "place": ""}', b'{"job": "a", "number": 3}', b"\xff", b"[]", b""])
def test_another_log_is_no_journal(tmp_path: Path, mark: bytes) -> None:
    """Messages would be added to the log of somebody else, and its writer fenced."""
    with SegmentedLog(tmp_path / "j").writer() as writer:
        writer.append_many([b"no message"], mark=mark)
    refused(tmp_path / "j", SourceState({}, job="job"), InvalidPipeline, "is not the journal of a queue")


def test_whoever_only_looks_changes_nothing(tmp_path: Path) -> None:
    """``verify`` would fence the driver that runs."""
    states = begun(tmp_path / "j", 10)
    one, looking = journal(tmp_path / "j"), journal(tmp_path / "j")
    one.open(states[-1])
    assert looking.look(replace(states[-1], job="")) == states[-1].recorded["journals"]
    assert looking.look(SourceState({"journal": 0}, states[-1].recorded)) == states[-1].recorded["journals"]
    add(one, 1)
    assert journal(tmp_path / "none").look(SourceState({})) == [""]
    assert not (tmp_path / "none").exists()


def test_two_that_write_fence_each_other(tmp_path: Path) -> None:
    """Both would add, and acknowledge, what one of them reads."""
    (state,) = begun(tmp_path / "j")
    one, other = journal(tmp_path / "j"), journal(tmp_path / "j")
    one.open(state)
    other.open(state)
    with pytest.raises(Fenced):
        add(one, 1)


# -- what it must have ---------------------------------------------------------------------------------------------


def test_a_journal_shorter_than_the_checkpoint_is_refused(tmp_path: Path) -> None:
    """It would be filled up with new messages under the numbers of those that were counted, and they never count."""
    states = begun(tmp_path / "j", 40)
    shutil.copytree(tmp_path / "j", tmp_path / "copy")
    states.append(step(journal(tmp_path / "j"), states[-1], 20))
    for replaces in (True, False):
        words = r"has read 60 records of the journal \w+, but .*copy has 40.*Restore the newest copy"
        refused(tmp_path / "copy", states[-1], SourceChanged, words, replaces=replaces)
    # Going back does not bring back what only the newest copy has.
    back = rolled_back(states[-2], states[-1])
    words = r"a checkpoint at record 40 cannot continue .*lacks some of the 60 that had been counted"
    refused(tmp_path / "copy", back, RetentionGap, words)
    assert step(journal(tmp_path / "j"), back).positions == {"journal": 60}


def test_other_records_under_the_same_numbers_are_refused(tmp_path: Path) -> None:
    """They would count as those that were read."""
    states = begun(tmp_path / "j", 40)
    shutil.copytree(tmp_path / "j", tmp_path / "copy")
    states.append(step(journal(tmp_path / "j"), states[-1], 20))
    step(journal(tmp_path / "copy"), states[-2], 30)
    refused(tmp_path / "copy", states[-1], SourceChanged, "record 59 is no longer the one that was read")


def test_a_journal_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    """What was cut off would be missing in silence."""
    states = begun(tmp_path / "j", 40, 20)
    one = journal(tmp_path / "j")
    one.open(states[-1])
    one.cut(states[1].positions)
    one.close()
    refused(tmp_path / "j", states[0], RetentionGap, "a checkpoint at record 0 cannot .*begins with record 40")
    assert step(journal(tmp_path / "j"), states[1]).positions == {"journal": 60}


# -- when it is lost -----------------------------------------------------------------------------------------------


def lost(folder: Path) -> Path:
    shutil.rmtree(folder)
    return folder


def test_a_lost_journal_is_replaced_only_if_the_broker_has_the_rest(tmp_path: Path) -> None:
    """Where messages are acknowledged once they are journaled, another journal lacks what only the lost one had."""
    states = begun(tmp_path / "j", 40)
    words = r"has read the journal \w+, but .*j holds none. Give the source that journal"
    refused(lost(tmp_path / "j"), states[-1], SourceChanged, words, replaces=False)
    after = step(journal(tmp_path / "j"), states[-1], 3)
    assert after.positions == {"journal": 40, "journal-2": 3}
    assert len(after.recorded["journals"]) == 2 and after.recorded["log"] == after.recorded["journals"][1]
    assert step(journal(tmp_path / "j"), after, 2).positions == {"journal": 40, "journal-2": 5}
    refused(tmp_path / "j", states[0], RetentionGap, "a checkpoint without records cannot .*replaced a lost one")


def test_a_crash_that_leaves_an_empty_journal_behind(tmp_path: Path) -> None:
    """The journal was made, and the crash came before its mark: no run could go on."""
    states = begun(tmp_path / "j", 40)
    with SegmentedLog(lost(tmp_path / "j")).writer():
        pass
    assert step(journal(tmp_path / "j"), states[-1], 3).positions == {"journal": 40, "journal-2": 3}
    assert journal(tmp_path / "j").is_replaced(states[-1].recorded)


@pytest.mark.parametrize("steps", [0, 1])
def test_a_crash_between_another_journal_and_another_plan(steps: int, tmp_path: Path) -> None:
    """The plan over the lost journal would be read by every run, and refused."""
    states = begun(tmp_path / "j", *[40] * (steps + 1))
    put = states[-1].recorded
    step(journal(lost(tmp_path / "j")), states[steps], 3)
    assert journal(tmp_path / "j").is_replaced(put)
    assert not journal(tmp_path / "j").is_replaced({**put, "replaces": False})


def test_a_rollback_behind_a_lost_journal_is_refused(tmp_path: Path) -> None:
    """What was counted in between is acknowledged, and went with the journal."""
    states = begun(tmp_path / "j", 40, 40)
    back = rolled_back(states[1], states[2])
    words = "a checkpoint at record 40 of the previous journal cannot continue .*missing, and of it 80 records had been"
    refused(lost(tmp_path / "j"), back, RetentionGap, words)
    # Forward again is the remedy.
    forth = rolled_back(states[2], back)
    after = step(journal(tmp_path / "j"), forth, 5)
    assert after.positions == {"journal": 80, "journal-2": 5}
    # Neither does the next journal help, nor a copy of the checkpoint that knows nothing of the rollback.
    words = "record 40 of the previous journal cannot continue .*replaced it when 80 records had been counted"
    refused(tmp_path / "j", back, RetentionGap, words)
    refused(tmp_path / "j", states[1], RetentionGap, words)


def test_a_rollback_is_remembered_until_its_checkpoint_is_reached_again(tmp_path: Path) -> None:
    """The journal can also be lost later, on the way from where the rollback went to where it came from."""
    states = begun(tmp_path / "j", 40, 40)
    back = rolled_back(states[1], states[2])
    between = replace(back, positions={"journal": 60}, recorded={**back.recorded, "last": [-1, ""]})
    step(journal(tmp_path / "j"), between)
    refused(
        lost(tmp_path / "j"), between, RetentionGap, "record 60 of the previous .*of it 80 records had been counted"
    )
    reached = replace(between, positions={"journal": 80})
    assert step(journal(tmp_path / "j"), reached, 1).positions == {"journal": 80, "journal-2": 1}


def test_two_journals_lost_and_a_rollback_behind_both(tmp_path: Path) -> None:
    """The second was counted too, though the checkpoint that is gone back to never heard of it."""
    states = begun(tmp_path / "j", 40)
    after = step(journal(lost(tmp_path / "j")), states[-1], 7)
    back = rolled_back(states[-1], after)
    refused(lost(tmp_path / "j"), back, RetentionGap, "record 0 cannot .*lacks some of the 7 that had been counted")


@pytest.mark.parametrize("how", ["heir", "lost manifests", "older release", "another mode"])
def test_a_lost_journal_of_which_nobody_knows_what_was_acknowledged(tmp_path: Path, how: str) -> None:
    """Another job has counted and acknowledged more since the savepoint: it would be missing in silence."""
    states = begun(tmp_path / "j", 40, 40, replaces=how != "another mode")
    copy = states[1]
    if how == "heir":
        copy = replace(copy, job="heir")
    elif how == "lost manifests":
        copy = rolled_back(copy, states[1], is_known=False)
    elif how == "older release":
        copy = replace(copy, recorded={name: value for name, value in copy.recorded.items() if name != "job"})
    refused(tmp_path / "of its own", copy, RetentionGap, "no other can take its place: .*Give the source that journal")
    # With the journal it continues, and knows from then on what may have been acknowledged: all of it.
    one = journal(tmp_path / "j")
    ids = one.open(copy)
    recorded = one.recorded(copy.recorded, ids, copy, 60)
    one.close()
    first = replace(copy, positions={"journal": 60}, recorded=recorded)
    refused(lost(tmp_path / "j"), first, RetentionGap, "record 60 of the previous .*of it 80 records had been counted")
    whole = replace(first, positions={"journal": 80})
    assert step(journal(tmp_path / "j"), whole, 1).positions == {"journal": 80, "journal-2": 1}


def test_only_positions_of_the_present_journal_cut_it_off(tmp_path: Path) -> None:
    """A checkpoint that is kept from before a loss would cut off as many records of the next journal, read or not."""
    states = begun(tmp_path / "j", 40)
    one = journal(lost(tmp_path / "j"))
    after = step(one, states[-1], 50)
    one.cut(states[-1].positions)
    assert one.log.ends().first_number == 0
    one.cut({**after.positions, "journal-2": 30})
    assert one.log.ends().first_number == 30


def test_a_journal_without_its_writer_travels(tmp_path: Path) -> None:
    """Workers read it."""
    one = journal(tmp_path / "j")
    one.open(SourceState({}, job="job"))
    add(one, 3)
    again = pickle.loads(pickle.dumps(one))
    assert again.writer is None and again.log.ends().next_number == 3
