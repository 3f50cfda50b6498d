"""The test kit for a user's own job: reordering, restarts and faults must not change its results.

    verify_task(Visits, records)            runs the task in every way that a task can run
    simulate(pipeline, seeds=range(100))    runs the pipeline with crashes, lost answers and other drivers
    ScriptedSource([..., CRASH, ...])       a source with events between its records
    ManualClock()                           a clock that stands still until the test moves it
    class TestMine(SourceSuite): ...        the contract of your own source, as tests
    class TestMySink(SinkSuite): ...        the contract of your own sink, as tests

pytest provides the fixtures ``manual_clock`` and ``memory_checkpoint``, and the option ``--persistent-seeds=N``.

verifying.py  variations.py  running.py  watching.py                                      verify_task
simulating.py  interleaving.py  faults.py                                                 simulate
outcome.py                                                                                the results that both compare
source_suite.py                                                                           SourceSuite
scripted.py  clock.py                                                                     source and clock
sink_suite.py  sink_driver.py                                                             SinkSuite
"""

from monoids.on_demand import TYPE_CHECKING, on_demand

if TYPE_CHECKING:
    from persistent.testing.faults import AskingStorage, FaultyStorage, Killed, Once, Operations
    from persistent.testing.running import ManualClock
    from persistent.testing.scripted import CRASH, IDLE, PAUSE, ScriptedSource
    from persistent.testing.simulating import FAULTS, Simulated, SimulationFailed, simulate
    from persistent.testing.sink_suite import SinkSuite
    from persistent.testing.source_suite import SourceSuite
    from persistent.testing.verifying import TaskDiffers, verify_task
else:
    __getattr__, __dir__ = on_demand(
        __name__,
        {
            "persistent.testing.running": "ManualClock",
            "persistent.testing.faults": "AskingStorage FaultyStorage Killed Once Operations",
            "persistent.testing.scripted": "CRASH IDLE PAUSE ScriptedSource",
            "persistent.testing.simulating": "FAULTS Simulated SimulationFailed simulate",
            "persistent.testing.sink_suite": "SinkSuite",
            "persistent.testing.source_suite": "SourceSuite",
            "persistent.testing.verifying": "TaskDiffers verify_task",
        },
    )

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
    "SinkSuite",
    "SourceSuite",
    "TaskDiffers",
    "simulate",
    "verify_task",
]
