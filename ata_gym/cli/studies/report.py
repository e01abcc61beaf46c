"""The page of one results folder, and of two that are compared."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ata_gym.cli.console import command_line, say, show_results
from ata_gym.utils.files.atomic import check_place


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A results folder.")],
    second: Annotated[
        Path | None,
        typer.Argument(
            metavar="DIR2",
            help="Another one, of the same scenario, sizes and seeds.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The page; for one folder by default DIR/report.html.",
        ),
    ] = None,
) -> None:
    """Write the page of a results folder, or compare two folders.

    The page needs no network, and may be sent as it is; other commands also write it themselves.
    Two folders of bench are compared seed by seed: what a change of your policy, or of a version,
    is worth. A policy whose records differ has a row for DIR (A) and one for DIR2 (B).

    ```
    ata-gym report results/before
    ata-gym report results/before results/after --out compared.html
    ```
    """
    if second is None:
        _say_written(write_page(folder, out))
    else:
        _compare(folder, second, out)


def _compare(first: Path, second: Path, out: Path | None) -> None:
    """Show two folders of bench, compared, and write the page that is asked for."""
    from ata_gym.bench.studies.two_folders import compare_folders

    if out is not None:
        check_place(out)
    results = compare_folders(first, second, command_line())
    show_results(results)
    if out is not None:
        _say_written(results.report(out))


def _say_written(page: Path) -> None:
    say(f"{page} ({page.stat().st_size / 1e6:.1f} MB): open {page.resolve().as_uri()}")


def write_page(folder: Path, out: Path | None = None) -> Path:
    """Write the page of a results folder, by default into it.

    Raises:
        FileNotFoundError: If there are no results.
        ValueError: If nothing has finished.
        DamagedError: If a file is damaged.
        MissingExtraError: If a package that the page needs is not installed.
    """
    from ata_gym.bench.report.page.render import NAME
    from ata_gym.bench.store.note import read_note
    from ata_gym.bench.studies.reading import read

    # A folder that is not there is said before the place of the page is tried, which makes folders.
    read_note(folder)
    if out is None:
        target = folder / NAME
    else:
        target = out
    check_place(target)
    return read(folder).report(target)
