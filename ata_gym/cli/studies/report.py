"""The page of one results folder, and of two that are compared."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ata_gym.cli.console import command_line, say, say_files, show_results
from ata_gym.utils.files.atomic import check_place

if TYPE_CHECKING:
    from ata_gym.bench.runner.results import Results


class FigureFormat(StrEnum):
    """In which format pictures for a paper are left."""

    pdf = "pdf"


class TableFormat(StrEnum):
    """In which format tables for a paper are left."""

    latex = "latex"


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A results folder.")],
    second: Annotated[
        Path | None,
        typer.Argument(
            metavar="DIR2",
            help="A second one to compare, of the same scenario, sizes and seeds.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The page; for one folder by default DIR/report.html.",
        ),
    ] = None,
    figure: Annotated[
        FigureFormat | None,
        typer.Option(
            help=(
                "Also write the pictures for a paper, in plots/ beside the page: a column or two"
                " wide (3.25 or 6.75 inches), letters of 7 to 8 points, fonts embedded."
            ),
        ),
    ] = None,
    table: Annotated[
        TableFormat | None,
        typer.Option(
            help=(
                "Also write the tables for a paper, as tables.tex beside the page: tabulars with"
                " the rules of the package booktabs."
            ),
        ),
    ] = None,
) -> None:
    """Write the page of a results folder, or compare two folders.

    The page is one file that needs no network; most commands already write it when they end.
    Two folders of bench are compared seed by seed: what a change of your policy, or of a version,
    is worth. A policy whose records differ has a row for DIR (A) and one for DIR2 (B).

    ```
    ata-gym report results/before
    ata-gym report results/before --figure pdf --table latex
    ata-gym report results/before results/after --out compared.html
    ```
    """
    for_paper = figure is not None, table is not None
    if second is None:
        _write(folder, out, *for_paper)
    else:
        _compare(folder, second, out, *for_paper)


def _write(folder: Path, out: Path | None, figures: bool, tables: bool) -> None:
    """Write the page of one folder, and what a paper can use."""
    page, results = write_page(folder, out)
    _say_written(page)
    _leave_for_paper(results, page.parent, figures, tables)


def _compare(first: Path, second: Path, out: Path | None, figures: bool, tables: bool) -> None:
    """Show two folders of bench, compared, and write the files that are asked for."""
    from ata_gym.bench.studies.two_folders import compare_folders

    if out is not None:
        check_place(out)
    elif figures or tables:
        raise ValueError(
            "of two folders, --figure and --table need --out FILE: their files are left beside it"
        )
    results = compare_folders(first, second, command_line())
    show_results(results)
    if out is not None:
        _say_written(results.report(out))
        _leave_for_paper(results, out.parent, figures, tables)


def _leave_for_paper(results: Results, folder: Path, figures: bool, tables: bool) -> None:
    """Leave pictures and tables for a paper in a folder, and say where they are."""
    from ata_gym.bench.report.report import leave_for_paper

    files = leave_for_paper(results.content, folder, figures=figures, tables=tables)
    if files:
        say_files("for a paper", files)


def _say_written(page: Path) -> None:
    say(f"{page} ({page.stat().st_size / 1e6:.1f} MB): open {page.resolve().as_uri()}")


def write_page(folder: Path, out: Path | None = None) -> tuple[Path, Results]:
    """Write the page of a results folder, by default into it; return it and the results.

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
    results = read(folder)
    return results.report(target), results
