"""Verifying a checkpoint reads every byte that a kept manifest names and checks it against every law.

    FORMAT     exists, with a known format and hash, and the job of the manifests
    chain      every manifest decodes, names its parent by id and SHA-256, and follows it by the laws of the log
    account    read = processed + late + dead + duplicate; the late rows and dead letters kept are those counted
    runs       every named run exists, whole and sorted, with the keys, panes and key groups of its manifest
    sums       in every key group, the delta of each checkpoint counts once
    plans      decode, and start at the positions of their checkpoint
    sinks      with the pipeline: each holds what was published there, as far as it can tell
    source     with the pipeline: the source holds what the account counts, up to the checkpoint's positions

It changes nothing and can run beside the job. Only the last two checks need user code.
``checker`` makes the checks, which are in ``laws``, ``runs`` and ``rows``, ``sinks``, ``source``; ``findings`` holds
what they find.
"""

from persistent.verify.checker import verify
from persistent.verify.findings import FAULT, NOTE, WARNING, Checked, Finding, Verification
from persistent.verify.sinks import verify_sinks
from persistent.verify.source import verify_source

__all__ = [
    "FAULT",
    "NOTE",
    "WARNING",
    "Checked",
    "Finding",
    "Verification",
    "verify",
    "verify_sinks",
    "verify_source",
]
