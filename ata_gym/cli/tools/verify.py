"""``ata-gym verify``: whether results are what was written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ata_gym.cli.console import say, show


def verify(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A results folder, or one that holds some.")],
) -> None:
    """Check records, checkpoints and weights against the checksums that were written with them.

    The exit code is 1 if a file is damaged. What is damaged is listed with what to do; a run that finds a damaged
    checkpoint sets it aside by itself, and goes on from the one before.
    """
    from ata_gym.bench.experiment.verify import verify as check_files  # noqa: PLC0415 - it takes a second to import
    from ata_gym.bench.report.table import LEFT, WRAP, Table  # noqa: PLC0415

    files = check_files(folder)
    faults = [checked for checked in files if checked.fault]
    if faults:
        rows = [(str(checked.file.relative_to(folder)), checked.fault) for checked in faults]
        show(Table("damaged files", {"file": LEFT, "what is wrong": WRAP}, rows))
    say(f"{folder}: {len(files)} files checked, {len(faults)} damaged")
    if faults:
        raise typer.Exit(1)
