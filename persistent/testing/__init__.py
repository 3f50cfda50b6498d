"""The test kit of a user's own job: run in every way, and with faults, it must come to the same.

    verify_task(Visits, records)            the task in every way a task may be run
    simulate(pipeline, seeds=range(100))    the pipeline with crashes, lost answers, other drivers
    ScriptedSource([..., CRASH, ...])       what happens between which records
    ManualClock()                           a time that stands still until it is told to go on

Under pytest there are the fixtures ``manual_clock`` and ``memory_checkpoint``, and ``--persistent-seeds=N``.

verifying.py  ways.py  running.py  elsewhere.py  watching.py  shrinking.py      verify_task
simulating.py  turns.py  faults.py  pauses.py  draws.py                         simulate
outcome.py                                                                      what both compare
scripted.py  clock.py  times.py                                                 source and time
"""

from persistent.testing.clock import ManualClock
from persistent.testing.faults import FaultyStorage, Killed, Operations
from persistent.testing.pauses import AskingStorage, Once
from persistent.testing.scripted import CRASH, IDLE, PAUSE, ScriptedSource
from persistent.testing.simulating import FAULTS, Simulated, SimulationFailed, simulate
from persistent.testing.verifying import TaskDiffers, verify_task

__all__ = [
    "CRASH",
    "FAULTS",
    "IDLE",
    "PAUSE",
    "AskingStorage",
    "FaultyStorage",
    "Killed",
    "ManualClock",
    "Once",
    "Operations",
    "ScriptedSource",
    "Simulated",
    "SimulationFailed",
    "TaskDiffers",
    "simulate",
    "verify_task",
]
