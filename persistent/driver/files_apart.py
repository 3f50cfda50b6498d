"""No file, log or topic is an input of two sources of a job, which would count it twice.

The check is made when the second source lists the file, or finds the log, before that plan is put: at most one source
has read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations

import pyarrow as pa
import pyarrow.compute as pc

from persistent.errors import InvalidPipeline
from persistent.sources.offsets import place_id
from persistent.sources.protocol import ListingSource, Source, SourcePlan


def check_places_apart(planned: Mapping[str, SourcePlan]) -> None:
    """InvalidPipeline if two sources read the same log, or the same topic, even through different servers."""
    seen: dict[str, str] = {}
    for name, one in planned.items():
        place = place_id(one.recorded)
        before = seen.setdefault(place, name) if place is not None else name
        if before != name:
            raise InvalidPipeline(
                f"source: {before!r} and {name!r} are the same topic or log ({place}): records that both read would "
                "count twice. Omit one"
            )


def check_files_apart(
    sources: Mapping[str, Source], indexes: Mapping[str, pa.Table | None], planned: Mapping[str, SourcePlan]
) -> None:
    """InvalidPipeline if a file newly listed by one of the sources is listed by another. ``indexes``: of each source,
    before its plan."""
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
                f"source: {first!r} and {second!r} both read "
                f"{both[0].as_py()}{f' and {len(both) - 1:,} more files' if len(both) > 1 else ''}: records that both "
                f"read would count twice. Narrow the path of {sources[first]!r} or of {sources[second]!r}"
            )
