"""A finding of the doctor."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

State = Literal["ok", "missing", "broken"]
"""A subject is missing if it is not installed or not on this machine, and broken if it is there and does not work."""


@dataclass(frozen=True)
class Finding:
    """One thing, its state, and what to do about it.

    Examples
    --------
    >>> print(Finding("extra train", "missing", "not installed: torch", 'pip install "ata-gym[train]"'))
    missing  extra train: not installed: torch
             -> pip install "ata-gym[train]"
    """

    subject: str  # the package, extra, device, backend or node that was looked at
    state: State
    detail: str  # the observation, in one sentence or less
    cure: str = ""  # the command or the change that mends it; empty if nothing is to be done

    def __str__(self) -> str:
        cure = f"\n{'':9}-> {self.cure}" if self.cure else ""
        return f"{self.state:7}  {self.subject}: {self.detail}{cure}"


def exit_code(findings: Iterable[Finding]) -> int:
    """1 if something that is installed is broken, otherwise 0."""
    return int(any(finding.state == "broken" for finding in findings))


def as_json(findings: Sequence[Finding]) -> str:
    """All findings, and whether everything works, as one JSON document."""
    return json.dumps({"works": not exit_code(findings), "findings": list(map(asdict, findings))}, indent=2)
