"""A report: what is shown of results in a terminal, a notebook, a folder and on a page."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import polars as pl

from ata_gym.bench.report import style
from ata_gym.bench.report.headline import Samples
from ata_gym.bench.report.page import render
from ata_gym.bench.report.page.sections import Page
from ata_gym.bench.report.table import Table, latex
from ata_gym.utils.extras import MissingExtraError
from ata_gym.utils.files.manifest import write_listed

LOG_PART = "log part"
"""What values are paired by that are of the parts of a log, one after the other."""


class Report(NamedTuple):
    """What a study says of its results, before it is shown anywhere."""

    title: str
    """What was played, and its sizes."""
    summary: pl.DataFrame
    """The figures with all digits."""
    tables: Sequence[Table]
    """The tables for a terminal and a notebook."""
    findings: str
    """Lines below the tables: who is best, and what is certain."""
    samples: Mapping[str, Samples]
    """The values that policies are compared by, for each scenario."""
    records: pl.DataFrame
    """The data that all of this is made of."""
    page: Callable[[], Page]
    """What makes the page."""
    files: Mapping[str, str | pl.DataFrame] = {}
    """The texts and frames that a folder keeps, by the name of the file."""
    pictures: Mapping[str, Callable[[], style.Picture]] = {}
    """What draws each picture, by its name."""
    remarks: Sequence[str] = ()
    """Sentences that a reader should know."""
    paired_by: str = "seed"
    """What two values have in common that are compared: a seed, or a part of a log."""
    case: str = "scenario"
    """What each key of ``samples`` names, as a noun whose plural ends with s."""
    beside: str = ""
    """The picture that a notebook shows with the tables, by its name; empty for none."""


class LeftFiles(NamedTuple):
    """The files of a report in a folder."""

    tables: Sequence[Path] = ()
    """The tables and the page."""
    pictures: Sequence[Path] = ()
    remark: str = ""
    """Why there is no page; empty where there is one."""


def leave(report: Report, folder: Path) -> LeftFiles:
    """Leave tables and pictures in a folder, and the page where its packages are installed."""
    files = write(folder, report.files)
    pictures = [
        path
        for name, draw in report.pictures.items()
        for path in style.save(draw(), folder / "plots" / name, report.title)
    ]
    try:
        page = render.write(report.page(), folder / render.NAME)
    except MissingExtraError as error:
        return LeftFiles(files, pictures, str(error))
    return LeftFiles([*files, page], pictures)


def leave_for_paper(
    report: Report, folder: Path, figures: bool = True, tables: bool = True
) -> list[Path]:
    """Leave what a paper can use: pictures as PDF in a column's width, and the tables as LaTeX.

    Args:
        report: The report.
        folder: The folder, which is made if there is none.
        figures: Whether the pictures are left, as plots/NAME.pdf.
        tables: Whether the tables are left, as tables.tex.

    Returns:
        The paths of the files.

    Raises:
        MissingExtraError: If tabulate is not installed, and tables are left.
    """
    paths = []
    if figures:
        for name, draw in report.pictures.items():
            with style.for_paper():
                paths.append(style.save_for_paper(draw(), folder / "plots" / name))
    if tables:
        paths += write(folder, {"tables.tex": latex(report.tables)})
    return paths


def write(folder: Path, contents: Mapping[str, str | pl.DataFrame]) -> list[Path]:
    """Write texts, and frames as CSV with all digits, each file whole or not at all.

    Args:
        folder: The folder, which is made if there is none.
        contents: A text or a frame for each file name.

    Returns:
        The paths of the files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        if isinstance(content, str):
            text = content
        else:
            text = content.write_csv()
        write_listed(
            folder / name,
            partial(Path.write_text, data=text, encoding="utf-8", newline="\n"),
        )
    return [folder / name for name in contents]
