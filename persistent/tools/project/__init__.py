"""A project is a folder with a task, its test, and a page that says how to run both. ``persistent init`` makes one.

answers.py      what is asked, and which answers are possible
proposal.py     what the first records of a file suggest
texts.py        the files that follow from the answers, with an example
"""

from persistent.tools.project.answers import Answers, End, Field, WindowChoice, sink_of, source_of, window_of
from persistent.tools.project.proposal import Proposal, proposal_of
from persistent.tools.project.texts import files_of

__all__ = [
    "Answers",
    "End",
    "Field",
    "Proposal",
    "WindowChoice",
    "files_of",
    "proposal_of",
    "sink_of",
    "source_of",
    "window_of",
]
