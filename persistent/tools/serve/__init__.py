"""A page shows jobs, running or stopped, from their checkpoint folders. It reads them, never their drivers, and changes
nothing.

``page`` answers each address, behind ``guard``; ``shown`` holds what was read of a job. What there is to see: ``now``,
``graph``, ``account``, ``partly_late``, ``last_steps``, ``time_line``, ``state_page`` (its rows are read by
``state_reading``), and ``events`` as they come, in the words of ``wording``."""

from persistent.tools.serve.page import application
from persistent.tools.serve.shown import Shown, named
from persistent.tools.serve.web import Guard

__all__ = ["Guard", "Shown", "application", "named"]
