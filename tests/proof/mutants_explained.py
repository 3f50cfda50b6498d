"""The survivors that nobody can tell from the original: (module, line as it was, change) and why."""

from __future__ import annotations

_FSSPEC = "persistent.storage.fsspec_storage"
_RETRIES = "persistent.storage.failures"
_S3 = "persistent.storage.s3"

_COMPACTION = "persistent.checkpoint.compaction"
_COPIES = "persistent.checkpoint.copies"
_PROCESS = "persistent.storage.process"
_LOG = "persistent.checkpoint.log"
_DOCUMENTS = "persistent.codec.documents"
_TABLES = "persistent.codec.sealed"
_RUNS = "persistent.codec.runs"
_SEALED = "persistent.codec.sealed"

EXPLAINED: dict[tuple[str, str, str], str] = {
    (_FSSPEC, "return False", "return None"): "the caller asks whether it is unanswered: None holds as little as False",
    (_PROCESS, "return False", "return None"): "the caller asks whether it is there, and None holds as little as False",
    (_RETRIES, "return False", "return None"): "tenacity asks whether to try again, and None holds as little as False",
    (_S3, "def read(self, size: int | None = -1) -> bytes:", "1 to 2"): "any negative size means all that is left",
    (_DOCUMENTS, "_STEPS = np.zeros(256, np.int8)", "256 to 257"): "no byte is 256, so nothing looks there",
    (_DOCUMENTS, "return int(depths.max(initial=0))", "0 to 1"): "what nests in nothing is below the bound with 1 too",
    (
        _TABLES,
        "if all(field.type == original.type for field, original in zip(fields, table.schema, strict=True)):",
        "True to False",
    ): "one field was made for each of the schema",
    (
        _RUNS,
        "tuple(pa.concat_arrays([part.keys[i] for part in parts]) for i in range(len(parts[0].keys))),",
        "0 to 1",
    ): "there are two parts at least, and all are of one schema",
    (
        _SEALED,
        "return memory_bytes == 8 * len(column) and pa.types.is_primitive(column.type) and column.type.bit_width == 64",
        "return None",
    ): "every column is copied then: the same bytes, later",
    (
        _SEALED,
        "return memory_bytes == 8 * len(column) and pa.types.is_primitive(column.type) and column.type.bit_width == 64",
        "8 to 9",
    ): "no column is of 9 bytes a row, so every one is copied: the same bytes, later",
    (
        _SEALED,
        "return memory_bytes == 8 * len(column) and pa.types.is_primitive(column.type) and column.type.bit_width == 64",
        "64 to 65",
    ): "no column is of 65 bits, so every one is copied: the same bytes, later",
    (
        _COPIES,
        "runs=tuple(replace(run, first=number, last=number) for run, number in zip(runs, numbers, strict=True)),",
        "True to False",
    ): "one number was made for each run",
    (
        _RUNS,
        "return rows.take(np.repeat(starts - ends + counts, counts) + np.arange(ends[-1] if len(ends) else 0))",
        "0 to 1",
    ): "of no row and of one, NumPy makes a sum of no row",
    (_COMPACTION, "if rows <= budget_rows:", "<= to <"): "with rows to the very budget the sum below is all groups too",
    (_COMPACTION, "return []", "return None"): "choose_all asks whether there are any: None is as good as none",
    (_COMPACTION, "return ()", "return None"): "choose asks whether there are any: None is as good as none",
    (
        _LOG,
        "self._put(manifest_name(0), first.encode(), lambda document: _nonce(document) == first.nonce)",
        "== to !=",
    ): "whose it is makes no difference: what is there is read next",
    (
        _LOG,
        "self._put(FORMAT_NAME, _format_of(known.manifest.job), lambda document: True)",
        "True to False",
    ): "whose it is makes no difference: that it is there does",
    (
        _LOG,
        "self._put(FORMAT_NAME, _format_of(job), lambda document: True)",
        "True to False",
    ): "whose it is makes no difference: what is there is read next",
    (
        _LOG,
        "self._put(FORMAT_NAME, _format_of(old.job), lambda document: True)",
        "True to False",
    ): "whose it is makes no difference: that it is there does",
    (_LOG, "self._tried_id = -1", "1 to 2"): "it is held against an id, and all are above both",
    (_LOG, "newest = max(self.ids(), default=-1)", "1 to 2"): "no id is as low as either",
    (_LOG, "id: int = -1", "1 to 2"): "no id is as low as either",
    (_LOG, "above: int = -1,", "1 to 2"): "every id is above both",
    (
        "persistent.driver.next_step",
        "resting, key=lambda name: (parts[name].largest.get(str(resting[name].rests), -1), name), default=None",
        "1 to 2",
    ): "every timestamp is above both",
    ("persistent.codec.documents", "elif inner is None or isinstance(inner, bool):", "or to and"): (
        "None fits no other branch, and a bool passes as the integer that it is"
    ),
    ("persistent.driver.publish", "return False", "return None"): (
        "the caller asks whether it was given, and None holds as little as False"
    ),
}
