"""What a notebook shows of a pipeline: its parts and its checkpoint, how it went, and how a run goes on.

Nothing here is imported on a worker, and IPython and Altair only where they are used.
"""

from persistent.notebook.cell import Told
from persistent.notebook.shown import frame_of, pipeline_html, plotted_history

__all__ = ["Told", "frame_of", "pipeline_html", "plotted_history"]
