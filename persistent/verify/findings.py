"""A verification holds what was checked in a checkpoint, and the findings."""

from __future__ import annotations

from dataclasses import dataclass, field

from persistent.text.shell import shell_word

FAULT, WARNING, NOTE = "fault", "warning", "note"
MISSING = "missing"
"""The finding about a named file that does not exist."""
FORMAT_PART, MANIFESTS = "FORMAT", "manifests"
"""Parts without which no run begins."""


@dataclass(frozen=True)
class Finding:
    """A ``fault``: something committed is lost or wrong. A ``warning``: a file there is not part of the checkpoint, or
    may be lost. A ``note``: something was not looked at, or is gone and may be."""

    severity: str
    part: str
    place: str
    text: str


@dataclass
class Checked:
    """The amount of one kind that was checked."""

    checked: int = 0
    bytes: int = 0
    rows: int = 0


@dataclass
class Verification:
    """What was checked, the findings, the ``newest`` manifest, the ``base`` that it names, if it can be read, and
    ``newest_good``: the newest checkpoint without a fault."""

    url: str
    parts: dict[str, Checked] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    newest: int | None = None
    base: int | None = None
    newest_good: int | None = None

    @property
    def ok(self) -> bool:
        """Whether there is no fault."""
        return not any(finding.severity == FAULT for finding in self.findings)

    @property
    def verdict(self) -> str:
        """Which checkpoint is whole, and how to continue from it. Only of a verification with a fault."""
        good, url = self.newest_good, shell_word(self.url)
        back = f"'persistent rollback {url} {good} --outputs=retract'"
        if good is None:
            return "no checkpoint verifies: restore the folder from a copy, or let a new job start from a savepoint"
        if good != self.base:
            return f"checkpoint {good} is the newest that verifies: {back} goes back to it"
        whole = f"checkpoint {good} is the newest, and itself verifies"
        if self.faults_of(FORMAT_PART):
            return f"{whole}: 'persistent show {url}' says how to write FORMAT again"
        if self.faults_of(MANIFESTS):
            return f"{whole}: {back} continues from it without what is lost"
        return whole

    def count(self, part: str, bytes: int = 0, rows: int = 0) -> None:
        amount = self.parts.setdefault(part, Checked())
        amount.checked, amount.bytes, amount.rows = amount.checked + 1, amount.bytes + bytes, amount.rows + rows

    def fault(self, part: str, place: str, text: str) -> None:
        self.parts.setdefault(part, Checked())
        # An error text begins with its place, as its reader knew it.
        text = text.removeprefix(f"{self.url}/").removeprefix(f"{place}: ").removeprefix(": ")
        self.findings.append(Finding(FAULT, part, place, text))

    def warn(self, part: str, place: str, text: str) -> None:
        self.findings.append(Finding(WARNING, part, place, text))

    def note(self, part: str, place: str, text: str) -> None:
        self.parts.setdefault(part, Checked())
        self.findings.append(Finding(NOTE, part, place, text))

    def faults_of(self, part: str) -> int:
        return sum((finding.severity, finding.part) == (FAULT, part) for finding in self.findings)

    def add(self, other: Verification, folder: str = "") -> None:
        """Add another verification, of this checkpoint or of one in its ``folder``."""
        before, inside = (f"{folder}: ", f"{folder}/") if folder else ("", "")
        for name, part in other.parts.items():
            one = self.parts.setdefault(f"{before}{name}", Checked())
            one.checked, one.bytes, one.rows = one.checked + part.checked, one.bytes + part.bytes, one.rows + part.rows
        self.findings += [
            Finding(finding.severity, f"{before}{finding.part}", f"{inside}{finding.place}", finding.text)
            for finding in other.findings
        ]
