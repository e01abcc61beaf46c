"""``ata-gym verify``: whether results are what was written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ata_gym.cli import options
from ata_gym.cli.console import say, say_json, show


def verify(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A results folder, or one that holds some.")],
    json: options.Json = False,
) -> None:
    """Check results against the checksums written with them.

    Every file is checked, except measured times, pages, logs and files of your own. The exit code is 1 if a file is
    damaged or missing; the table names it, and says what to do. A run that finds a damaged checkpoint sets it aside by
    itself, and goes on from the one before.

    ```
    ata-gym verify results
    ata-gym verify results --json
    ```
    """
    from ata_gym.bench.experiment.verify import verify as check_files  # noqa: PLC0415 - it takes a second to import
    from ata_gym.bench.report.table import LEFT, WRAP, Table  # noqa: PLC0415

    files = check_files(folder)
    faults = [checked for checked in files if checked.fault]
    if json:
        damaged = [{"file": str(one.file), "fault": one.fault} for one in faults]
        say_json({"folder": str(folder), "checked": len(files), "damaged": damaged})
    elif faults:
        rows = [(str(checked.file.relative_to(folder)), checked.fault) for checked in faults]
        show(Table("damaged files", {"file": LEFT, "what is wrong": WRAP}, rows))
    if not json:
        say(f"{folder}: {len(files)} files checked, {len(faults)} damaged")
    if faults:
        raise typer.Exit(1)
