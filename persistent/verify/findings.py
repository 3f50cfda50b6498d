"""A verification is what was looked at in a checkpoint, and what was found wrong with it."""

from __future__ import annotations

from dataclasses import dataclass, field

FAULT, WARNING = "fault", "warning"
MISSING = "missing"
"""What is said of a file that a manifest names and that is not there."""


@dataclass(frozen=True)
class Finding:
    """What is not as it should be.

    A ``fault``: something committed is lost or wrong. A ``warning``: something lies there that is no part of it.
    """

    severity: str
    part: str
    place: str
    text: str


@dataclass
class Checked:
    """How much of one kind was looked at."""

    checked: int = 0
    bytes: int = 0
    rows: int = 0


@dataclass
class Verification:
    """What was looked at, what was found, and ``newest_good``: the newest checkpoint that no fault touches."""

    url: str
    parts: dict[str, Checked] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    newest: int | None = None
    newest_good: int | None = None

    @property
    def ok(self) -> bool:
        """Whether there is no fault."""
        return not any(finding.severity == FAULT for finding in self.findings)

    def count(self, part: str, bytes: int = 0, rows: int = 0) -> None:
        one = self.parts.setdefault(part, Checked())
        one.checked, one.bytes, one.rows = one.checked + 1, one.bytes + bytes, one.rows + rows

    def fault(self, part: str, place: str, text: str) -> None:
        self.parts.setdefault(part, Checked())
        # An error text begins with the place it is about.
        text = text.removeprefix(f"{self.url}/{place}").removeprefix(": ")
        self.findings.append(Finding(FAULT, part, place, text))

    def warn(self, part: str, place: str, text: str) -> None:
        self.findings.append(Finding(WARNING, part, place, text))

    def faults_of(self, part: str) -> int:
        return sum((finding.severity, finding.part) == (FAULT, part) for finding in self.findings)

    def add(self, other: Verification, folder: str = "") -> None:
        """What else was found: here, or in a checkpoint in that folder of this one."""
        before, inside = (f"{folder}: ", f"{folder}/") if folder else ("", "")
        for name, part in other.parts.items():
            one = self.parts.setdefault(f"{before}{name}", Checked())
            one.checked, one.bytes, one.rows = one.checked + part.checked, one.bytes + part.bytes, one.rows + part.rows
        self.findings += [
            Finding(one.severity, f"{before}{one.part}", f"{inside}{one.place}", one.text) for one in other.findings
        ]
