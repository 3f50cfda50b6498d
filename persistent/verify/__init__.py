"""To verify a checkpoint is to read every byte that a kept manifest names, and hold it against every law it must keep.

    FORMAT     there, of a format and hash known here, of the job of the manifests
    chain      every manifest decodes, names its parent by id and SHA-256, and follows it by the laws of the log
    account    read = processed + late + dead + duplicate, and the late rows and dead letters kept are those counted
    runs       every run named is there, whole, sorted, and of the keys, panes and key groups said of it
    sums       of every key group, the delta of each checkpoint counts once
    plans      decode, and start where their checkpoint stands
    source     with the pipeline: what the account counts is what the source holds up to the checkpoint's positions

It changes nothing, and may look on while a run works. Only the last needs code of the user's.
"""

from persistent.verify.checker import verify
from persistent.verify.findings import FAULT, WARNING, Checked, Finding, Verification
from persistent.verify.source import verify_source

__all__ = ["FAULT", "WARNING", "Checked", "Finding", "Verification", "verify", "verify_source"]
