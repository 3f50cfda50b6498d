"""Work dispatches the items of a step: any engine runs them, on any worker, any number of times.

Every file that an item writes has a unique name, which its result returns. Files that no manifest names do not count.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from persistent.worker.job import Closed, CloseShard, Folded, FoldRuns, Job, Mapped, MapSplit
from persistent.worker.map_split import map_split
from persistent.worker.merge_runs import compact_runs
from persistent.worker.publish_shard import close_shard
from persistent.worker.seen_state import SeenCache, seen_node

Item = MapSplit | CloseShard | FoldRuns
Result = Mapped | Closed | Folded


@dataclass(frozen=True)
class Work:
    """The function that an engine maps over items."""

    job: Job
    seen: SeenCache = field(default_factory=SeenCache, compare=False, repr=False)

    def __call__(self, item: Item) -> Result:
        if isinstance(item, MapSplit):
            return map_split(self.job, item, self.seen)
        if isinstance(item, CloseShard):
            return close_shard(self.job.nodes[item.node], item)
        if item.seen_of is not None:
            return compact_runs(seen_node(self.job, item.seen_of, item.seen_ms), item)
        return compact_runs(self.job.nodes[item.node], item)
