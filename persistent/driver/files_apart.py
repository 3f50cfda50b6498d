"""No file is an input of two sources of a job: what both read would count twice.

It is found when the second of them lists it, before that plan is put: neither has read it, or one alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations

import pyarrow as pa
import pyarrow.compute as pc

from persistent.errors import InvalidPipeline
from persistent.sources.protocol import ListingSource, Source, SourcePlan


def check_files_apart(
    sources: Mapping[str, Source], indexes: Mapping[str, pa.Table | None], planned: Mapping[str, SourcePlan]
) -> None:
    """InvalidPipeline if a file that one of the sources has newly listed is listed by another. ``indexes``: of each
    source, before its plan."""
    listing = {name: one for name, one in sources.items() if isinstance(one, ListingSource)}
    if len(listing) < 2:
        return
    there, new = {}, {}
    for name, source in listing.items():
        tables = [table for table in (indexes[name], planned[name].appended) if table is not None]
        if tables:
            index = pa.concat_tables(tables, promote_options="default")
            there[name] = source.listed(index, planned[name].recorded)
            appended = planned[name].appended
            new[name] = there[name].slice(index.num_rows - (0 if appended is None else appended.num_rows))
    for name, other in permutations(there, 2):
        both = new[name].filter(pc.is_in(new[name], value_set=there[other]))
        if len(both):
            first, second = sorted((name, other))
            raise InvalidPipeline(
                f"source: {first!r} and {second!r} both read {both[0].as_py()}"
                f"{f' and {len(both) - 1:,} more files' if len(both) > 1 else ''}: what both read would count twice. "
                f"Narrow the path of {sources[first]!r} or of {sources[second]!r}"
            )
