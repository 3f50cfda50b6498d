"""A file source reads all files of a path, folder or pattern, once each, in the order in which they were listed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from itertools import islice
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from persistent.codec.fields import Position
from persistent.connect import options
from persistent.connect.files.index import (
    Index,
    IndexMeasure,
    ListedFile,
    Piece,
    PlannedFiles,
    SpanReader,
    is_read,
    record_of,
    splits_of,
    without_gone,
)
from persistent.connect.files.layout import Layout, LayoutOptions, columns_of_text, folder_values, with_folders
from persistent.connect.files.listing import Files
from persistent.connect.files.reader import Unreadable
from persistent.connect.files.roots import FoundAt, Root, followed, moved_folder, place_of, require_same
from persistent.connect.files.walk import Listed
from persistent.connect.formats.csv_dialect import COMMA, UTF_8, checked_dialect
from persistent.connect.formats.protocol import (
    NAMES,
    TO_THE_END,
    Extent,
    Facts,
    Format,
    InputFile,
    attempted,
    bad_file,
    bad_listed,
    format_of,
)
from persistent.connect.formats.schemas import from_option
from persistent.connect.formats.table import formats_by_name
from persistent.connect.formats.timestamps import require_readable
from persistent.connect.promises import EXACTLY_ONCE, Promise
from persistent.connect.source import Budget, Reached, Records, Source, SourcePlan, SourceState, Split
from persistent.errors import SourceError
from persistent.storage.places import Reach, reach_of
from persistent.text.spelling import spelled
from persistent.time.clock import Duration, bare, option_ms

_PARTITION: Final = "files"
_FILES_MAX: Final = 10_000
"""The most files of one plan, which names each of them."""
_CHECKED_AT_ONCE: Final = 256


class FileSource(Source):
    """Records of Parquet, JSON lines or CSV files; the text formats also compressed, as ``.gz`` or ``.zst``.

    ``path``: a file, a folder with everything below it, or a pattern with ``*``, ``**`` and ``?``, on a local disk or
    any fsspec URL. Names that start with '_' or '.' or end in '.tmp' are ignored. Files must not change once listed.
    ``timestamp``: the column with the event time: an Arrow timestamp or date, an ISO 8601 string, or an integer with
    ``timestamp_unit`` ("s", "ms", "us", "ns"). A time without a zone is UTC.
    ``format``: "parquet", "json" (or "jsonl", "ndjson") or "csv"; by default derived from the file names.
    ``schema``: the columns to read, the timestamp included: an Arrow schema or a mapping of names to Arrow types; by
    default all columns of the first file that holds a record. Folders such as ``day=2024-01-01/`` are columns too,
    strings unless ``schema`` says otherwise.
    ``ordered``: promises that path order is time order; otherwise the clock also waits for listed but unread files.
    ``max_out_of_orderness``: how far, in event time, a record may come behind a later one and still be on time.
    ``multiline``: quoted CSV fields may contain line breaks. ``delimiter``: what separates CSV fields, as ";" or a tab.
    ``encoding``: of a CSV file, by the name that Python has for it, as "cp1252": one in which a newline, a quote and
    the delimiter are the bytes that they are in ASCII, which is not so in UTF-16.
    An empty CSV field is null, and no other is: ``""`` is the empty string, ``nan`` a number, ``NA`` an invalid one.
    ``moved_from``: the folder in which the checkpoint read the files that are now below ``path``.
    ``on_bad_file``: "raise", or "dead-letter", which counts a file that cannot be read, does not fit the schema, or was
    deleted before it was read, as one dead letter.
    ``shared_mount``: a local path under which every machine has mounted the same files; without it a Spark cluster
    refuses a local path.

    Reads are retried for about a minute, on new connections. If the store still does not answer, the run stops; that is
    never a dead letter. Every read of a file compares its size, beginning and end (64 kB each) with the listing; so
    does the end of reading, if the file is listed with another time or etag. A change in the middle is detected only by
    the format's own checksums, or if it happens while the file is read.
    """

    lists = True

    kind: str = "FileSource"

    @spelled
    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        timestamp: str,
        timestamp_unit: str | None = None,
        format: str | None = None,
        schema: pa.Schema | Mapping[str, Any] | None = None,
        ordered: bool = False,
        max_out_of_orderness: Duration = 0,
        multiline: bool = False,
        delimiter: str = COMMA,
        encoding: str = UTF_8,
        moved_from: str | os.PathLike[str] | None = None,
        on_bad_file: str = "raise",
        shared_mount: bool = False,
    ) -> None:
        options.require_type("timestamp", timestamp, str, "'ts'")
        options.require_unit(timestamp_unit)
        options.require_choice("format", format, (None, *NAMES))
        format = None if format is None else NAMES[format]
        options.require_choice("on_bad_file", on_bad_file, ("raise", "dead-letter"))
        for name, flag in {"ordered": ordered, "multiline": multiline, "shared_mount": shared_mount}.items():
            options.require_type(name, flag, bool, "True")
        dialect = checked_dialect(delimiter, encoding)
        self._files = Files(options.without_secret(path))
        self._given = LayoutOptions(timestamp, timestamp_unit, format, multiline, dialect)
        self._moved_from = moved_folder(moved_from)
        self._followed_roots: set[tuple[str, str]] = set()
        self._measure = IndexMeasure()
        self.url: str = self._files.before_wildcard
        self.address = f"files {self._files.url.removeprefix('local://').removeprefix('file://').rstrip('/')}"
        self.reach: Reach = Reach.NETWORK if shared_mount else reach_of(self._files.url)
        self._schema = None if schema is None else from_option(schema)
        self.timestamp, self.infers = timestamp, schema is None
        if self._schema is not None:
            options.require_listed(self._schema.names, timestamp, timestamp_unit)
        self._ordered, self._bad_file_raises = ordered, on_bad_file == "raise"
        self.max_out_of_orderness: int = option_ms(max_out_of_orderness, "max_out_of_orderness")
        self.bare = bare(max_out_of_orderness=max_out_of_orderness)
        self._formats = formats_by_name(timestamp, timestamp_unit, multiline, dialect, infers=self.infers)

    def __repr__(self) -> str:
        return f"FileSource({self._files.url!r}, timestamp={self._given.timestamp!r})"

    def partitions(self) -> Sequence[str]:
        return (_PARTITION,)

    def schema(self, recorded: Mapping[str, Any]) -> pa.Schema:
        self._files_of(recorded)
        return self._given.recorded(recorded).schema

    def warnings(self) -> tuple[str, ...]:
        """Warnings about a listing: files that a symbolic link lists again."""
        return tuple(self._files.warnings)

    def guarantee(self) -> Promise:
        """Exactly-once."""
        return Promise(EXACTLY_ONCE, "a file is listed once, and read from the same offset again")

    def check_recorded(self, recorded: Mapping[str, Any]) -> None:
        if "schema" in recorded:
            self.schema(recorded)

    def would_read(self, url: str, names: Iterable[str]) -> bool:
        """Whether a file with one of these names in a folder would be an input of this source."""
        return self._files.would_list(url, names)

    def text_columns(self, recorded: Mapping[str, Any]) -> frozenset[str]:
        """The columns of CSV files."""
        return columns_of_text(recorded)

    def listed(self, index: pa.Table, recorded: Mapping[str, Any]) -> pa.ChunkedArray:
        """The full path or URL of each file of an index."""
        place = place_of(Root.from_json(recorded), self._files.pinned(), self._moved_from)
        return pc.binary_join_element_wise(place.files.real_root, place.root.paths(index), "")

    # -- plans -----------------------------------------------------------------------------------------------

    def plan(self, state: SourceState, budget: Budget, *, follow: bool = False) -> SourcePlan:
        """What to read next. New files are listed only when the known ones do not fill the budget."""
        start = state.positions.get(_PARTITION, (0, 0))
        layout = self._recorded_layout(state.recorded)
        place = self._followed(state)
        index = Index(place.files, place.root.rebased(state.index))
        if layout is None:
            self._given.check(state.recorded)
        view = PlannedFiles(place, index)
        pieces, end, layout = self._take(view, layout, start, budget, follow)
        if layout is None or not pieces:
            cap = None if layout is None else self._cap(index, layout, start)
            recorded = record_of(layout, place) if layout is not None and "schema" in state.recorded else state.recorded
            return SourcePlan((), {_PARTITION: start}, {_PARTITION: cap}, recorded)
        if _PARTITION in budget.ahead:
            # What was listed is kept: the clock waits for it.
            pieces, end = [], start
        splits = splits_of(_PARTITION, self._format(layout), pieces, budget)
        cap = self._cap(index, layout, end)
        return SourcePlan(splits, {_PARTITION: end}, {_PARTITION: cap}, record_of(layout, place), index.appended)

    def corrected(self, state: SourceState, put: SourcePlan) -> SourcePlan | None:
        """The same pieces of files in the present columns. None while no step was committed: any option can differ."""
        layout = self._recorded_layout(state.recorded)
        if layout is None:
            return None
        place = self._followed(replace(state, recorded=put.recorded))
        cap = self._cap(Index(place.files, place.root.rebased(state.index)), layout, put.end[_PARTITION])
        return replace(put, cap={_PARTITION: cap}, recorded=record_of(layout, place))

    def reached(self, state: SourceState) -> Reached:
        """How many of the listed files, or bytes, have been read at these positions."""
        return self._measure.reached(state.index, *state.positions.get(_PARTITION, (0, 0)))

    def _recorded_layout(self, recorded: Mapping[str, Any]) -> Layout | None:
        if "schema" not in recorded:
            return None
        layout = self._given.recorded(recorded)
        if self._schema is None or self._schema == layout.schema:
            return layout
        return self._checked(replace(layout, schema=self._schema), "schema=")

    def _followed(self, state: SourceState) -> FoundAt:
        """Where the files are, once it is certain that the path names the files that were read before."""
        root = Root.from_json(state.recorded)
        place = place_of(root, self._files.pinned(), self._moved_from)
        if root is None or state.index is None:
            return followed(place, state.index)
        known = place.given.root, root.url
        if known not in self._followed_roots and self._moved_from != place.given.root:
            require_same(root, place, state.index, self._moved_from)
        self._followed_roots.add(known)
        return followed(place, state.index)

    def _take(
        self, view: PlannedFiles, layout: Layout | None, end: Position, budget: Budget, follow: bool
    ) -> tuple[list[Piece], Position, Layout | None]:
        """Pieces of files from a position on, until the budget or the limit of a plan is used up, and the position
        after them."""
        pieces: list[Piece] = []
        left = max(budget.rows, 1)
        files_left = _FILES_MAX
        listed = False
        entries = self._entries(view, end[0])
        while True:
            entry = next(entries, None)
            if entry is None:
                if listed or left <= 0 or files_left <= 0:
                    break
                listed = True
                layout = self._list(view, layout, follow)
                entries = self._entries(view, end[0])
                continue
            if entry.file.rows == 0:
                end = (entry.ordinal + 1, 0)
                continue
            if left <= 0 or files_left <= 0 or layout is None:
                break
            offset = end[1] if entry.ordinal == end[0] else 0
            extents, done = self._take_from(entry, layout, offset, replace(budget, rows=left), not pieces)
            pieces += [Piece(entry, extent) for extent in extents]
            left -= sum(extent.rows for extent in extents)
            files_left -= 1
            if not done:
                end = (entry.ordinal, extents[-1].stop if extents else offset)
                break
            end = (entry.ordinal + 1, 0)
        return pieces, end, layout

    def _entries(self, view: PlannedFiles, ordinal: int) -> Iterator[ListedFile]:
        """The entries from an ordinal on. Where files may be lost, missing ones are marked."""
        entries = view.index.entries(ordinal)
        if self._bad_file_raises:
            yield from entries
            return
        count = 1
        while batch := list(islice(entries, count)):
            wanted = [entry.file.path for entry in batch if entry.fault is None and entry.file.rows != 0]
            gone = view.place.files.gone(wanted)
            yield from (replace(entry, lost=True) if entry.file.path in gone else entry for entry in batch)
            count = min(count * 4, _CHECKED_AT_ONCE)

    def _take_from(
        self, entry: ListedFile, layout: Layout, offset: int, budget: Budget, first: bool
    ) -> tuple[Sequence[Extent], bool]:
        if entry.lost:
            return (Extent(offset, TO_THE_END, 1),), True
        if entry.fault is not None:
            if self._bad_file_raises:
                raise bad_listed(entry.file, entry.fault)
            return (Extent(0, 1, 1),), True
        try:
            taken = self._format(layout).take(entry.file, offset, budget.rows, exact=budget.exact, at_least_one=first)
        except Unreadable as error:
            raise bad_listed(entry.file, str(error)) from error
        return taken.extents, taken.done

    def _list(self, view: PlannedFiles, layout: Layout | None, follow: bool) -> Layout | None:
        """List the files again and append the new ones to the index."""
        index, files = view.index, view.place.files
        listing = view.place.list()
        if not listing and not follow:
            files.require_found(has_listed=len(index) > 0)
        new = index.new(listing)
        layout = layout or self._first_layout(view, new)
        if layout is None or not new:
            return layout
        for listed in new:
            self._require_format(files, listed, layout.format)
        index.append(new, lambda file: self._inspect(file, layout))
        for entry in index.entries(len(index) - len(new)) if self._bad_file_raises else ():
            if entry.fault is not None:
                raise bad_file(entry.file, entry.fault)
        return layout

    def _inspect(self, file: InputFile, layout: Layout) -> Facts:
        layout.require_folders(file.path)
        facts = self._format(layout).inspect(file, layout.file_schema)
        if facts.rows != 0 and layout.of_folders and (fault := layout.misfit(self._format(layout).fields(file))):
            raise Unreadable(fault)
        if layout.times_in_folders and facts.rows != 0:
            return replace(facts, smallest=layout.folder_time(file.path))
        return facts

    # -- the layout ------------------------------------------------------------------------------------------

    def _first_layout(self, view: PlannedFiles, listing: Sequence[Listed]) -> Layout | None:
        """The layout of the first file that holds a record; None if no file does."""
        files, layout_options = view.place.files, self._given
        last_fault: SourceError | None = None
        for listed in listing:
            file = InputFile(files, listed.path, listed.size)
            name = layout_options.format or format_of(files, listed)
            folders = tuple(folder_values(listed.path))
            if self._schema is not None:
                return self._checked(layout_options.layout(name, self._schema, folders), file.where)
            try:
                schema = attempted(file, self._formats[name].infer)
            except Unreadable as error:
                last_fault = bad_file(file, str(error))
                if self._bad_file_raises:
                    raise last_fault from error
                continue
            if schema is not None:
                return self._checked(layout_options.layout(name, with_folders(schema, folders), folders), file.where)
        if last_fault is not None:
            raise last_fault
        return None

    def _checked(self, layout: Layout, where: str) -> Layout:
        try:
            require_readable(layout.schema, layout.timestamp, layout.timestamp_unit, of_csv=layout.format == "csv")
            self._format(layout).require_schema(layout.file_schema)
        except SourceError as error:
            raise SourceError(f"{where}: {error}") from error
        return layout

    def _format(self, layout: Layout) -> Format:
        return self._formats[layout.format]

    def _require_format(self, files: Files, listed: Listed, format: str) -> None:
        if self._given.format is None and format_of(files, listed) != format:
            raise SourceError(
                f"{files.where(listed.path)}: the first file is {format}, but this one is not; narrow the path to "
                "files of one format, or give format="
            )

    # -- the bound of the clock -----------------------------------------------------------------------------

    def _cap(self, index: Index, layout: Layout, end: Position) -> int | None:
        """The smallest timestamp that listed files may hold at or after a position."""
        ordinal, offset = end
        if self._ordered:
            return None
        if not offset or layout.times_in_folders:
            return index.smallest_from(ordinal)
        of_file = self._format(layout).smallest_from(index.entry(ordinal).file, offset)
        bounds = [of_file, index.smallest_from(ordinal + 1)]
        return min((bound for bound in bounds if bound is not None), default=None)

    # -- reading ---------------------------------------------------------------------------------------------

    def read(self, split: Split, recorded: Mapping[str, Any]) -> Iterator[Records]:
        layout = self._given.recorded(recorded)
        reader = SpanReader(self._files_of(recorded), layout, self._format(layout), self._bad_file_raises, self.infers)
        for span in split.spans:
            yield from reader.read(span)

    def _files_of(self, recorded: Mapping[str, Any]) -> Files:
        return place_of(Root.from_json(recorded), self._files.pinned(), self._moved_from).files

    def losing(self) -> FileSource:
        """The same source, but a file that is missing or unreadable counts as one dead record."""
        source = copy(self)
        source._bad_file_raises = False
        return source

    def without_lost(self, splits: Sequence[Split], recorded: Mapping[str, Any]) -> tuple[Split, ...] | None:
        """The splits with each file that is certainly gone as one dead record; None if no file is gone, or if a file
        that is gone is an error."""
        if self._bad_file_raises:
            return None
        wanted = {span.at["path"]: span.ordinal for split in splits for span in split.spans if is_read(span)}
        gone = {wanted[path] for path in self._files_of(recorded).gone(list(wanted))}
        return without_gone(splits, gone) if gone else None
