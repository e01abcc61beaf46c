"""Try every hazard again and again for a given time: ``python -m tests.fuzz --minutes 60``; a table at the end."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.fuzz.hazards import HAZARDS, try_out


def fuzz(
    minutes: Annotated[float, typer.Option(help="How long, shared evenly by the hazards.")] = 60.0,
    seed: Annotated[int, typer.Option(help="The first seed; a failure is tried again with --seed and --only.")] = 0,
    only: Annotated[str, typer.Option(help="One hazard, by the word before the colon.")] = "",
) -> None:
    """Look for what breaks; exit code 1 if anything did."""
    hazards = [name for name in HAZARDS if name.startswith(only)]
    console = Console(stderr=True)
    table = Table(
        "hazard", "tries", "failures", "first failing seed", "seconds", title=f"{minutes:g} minutes, from seed {seed}"
    )
    failures = 0
    with Progress(console=console) as progress:
        for name in hazards:
            share = 60 * minutes / len(hazards)
            bar, start = progress.add_task(name.partition(":")[0], total=share), time.monotonic()
            tries, failed = 0, []
            while not tries or time.monotonic() - start < share:
                with tempfile.TemporaryDirectory(prefix="ata-gym-fuzz-") as folder:
                    try:
                        try_out(name, seed + tries, Path(folder))
                    except (KeyboardInterrupt, SystemExit):
                        raise
                    except BaseException as error:  # a panic of polars is no Exception
                        failed.append(seed + tries)
                        console.print(f"{name}, seed {seed + tries}: {type(error).__name__}: {error}", markup=False)
                tries += 1
                progress.update(bar, completed=time.monotonic() - start)
            seconds = time.monotonic() - start
            table.add_row(name, f"{tries:,}", str(len(failed)), str(failed[0]) if failed else "", f"{seconds:.0f}")
            failures += len(failed)
    Console().print(table)
    raise typer.Exit(int(failures > 0))


if __name__ == "__main__":
    typer.run(fuzz)
