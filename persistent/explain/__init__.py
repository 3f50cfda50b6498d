"""An explanation says what a pipeline will do, from what it declares and the newest manifest of its checkpoint."""

from persistent.explain.explanation import Explanation, Section

__all__ = ["Explanation", "Section"]
