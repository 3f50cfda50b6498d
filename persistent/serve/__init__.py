"""A page shows jobs, running or stopped, from their checkpoint folders. It reads them, never their drivers, and changes
nothing."""

from persistent.serve.guard import Guard
from persistent.serve.page import application
from persistent.serve.shown import Shown, named

__all__ = ["Guard", "Shown", "application", "named"]
