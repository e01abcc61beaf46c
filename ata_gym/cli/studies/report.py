"""The pages of one results folder, and of two beside each other; how a study's command ends."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ata_gym.cli.console import command_line, say, say_error, show, show_report
from ata_gym.utils.atomic import check_place
from ata_gym.utils.extras import MissingExtraError, require

if TYPE_CHECKING:
    from ata_gym.bench.report.report import Report
    from ata_gym.bench.runner.play import Studied
    from ata_gym.bench.store.folder import Folder

PAGES = {
    "bench": "ata_gym.bench.report.page.experiment_page",
    "leaderboard": "ata_gym.bench.studies.leaderboard.page",
    "train": "ata_gym.bench.studies.training.page",
}
"""The modules that make the pages of studies: ``page(folder, note)``."""


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The results folder of a command.")],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The page to write; by default report.html in the folder.",
        ),
    ] = None,
) -> None:
    """Write one HTML page with all results of a folder.

    The page has tables, pictures, cards, and the command that reproduces them. It needs no network,
    and may be sent as it is. The folders of bench, leaderboard and train have one; these commands
    also write it themselves.

    ```
    ata-gym bench --scenario icml2025-regret --rounds 1000 --out results/regret
    ata-gym report results/regret
    ata-gym report results/regret --out regret.html
    ```
    """
    _say_written(write_page(folder, out))


def compare(
    first: Annotated[
        Path,
        typer.Argument(metavar="A", help="The results folder of bench that is compared with."),
    ],
    second: Annotated[
        Path,
        typer.Argument(metavar="B", help="Another one, of the same scenario, sizes and seeds."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A page to write, with the pictures of both, such as b.html.",
        ),
    ] = None,
) -> None:
    r"""Set two results folders of bench beside each other.

    It says what a change of your policy, or of a version, has made of the results: policies whose
    records differ have a row for A and one for B, and their ratio on the same seeds; those that are
    alike have one row.

    ```
    ata-gym bench --scenario five-workers --out results/before \
        --policies my_package.my_module:MyPolicy,uta
    ata-gym compare results/before results/after --out compared.html
    ```
    """
    from ata_gym.bench.report.page import render
    from ata_gym.bench.studies import two_folders

    if out is not None:
        check_place(out)
    page, table = two_folders.side_by_side(first, second, command_line())
    show(table)
    say("\n".join([page.lead, *page.remarks]))
    if out is not None:
        _say_written(render.write(page, out))


def _say_written(page: Path) -> None:
    say(f"{page} ({page.stat().st_size / 1e6:.1f} MB): open {page.resolve().as_uri()}")


def write_page(folder: Path, out: Path | None = None) -> Path:
    """Write the page of a results folder, by default into it.

    Raises:
        FileNotFoundError: If there are no results.
        ValueError: If the results have no page.
        DamagedError: If a file is damaged.
        MissingExtraError: If a package that the page needs is not installed.
    """
    from ata_gym.bench.report.page.render import NAME, write
    from ata_gym.bench.store.note import read_note

    note = read_note(folder)
    if out is None:
        target = folder / NAME
    else:
        target = out
    check_place(target)
    if note["study"] not in PAGES:
        raise ValueError(
            f"{folder} holds the results of {note['study']!r}, which has no page here: there are"
            f" pages of {', '.join(PAGES)}",
        )
    if note["study"] == "train":
        require("torch", extra="train", purpose="The page of a training")
    module: Any = import_module(PAGES[note["study"]])
    return write(module.page(folder, note), target)


def pages(folder: Path) -> list[Path]:
    """The page that a command leaves at its end.

    Where Jinja2 or PyYAML is missing there is no page, and a line on stderr.
    """
    try:
        return [write_page(folder)]
    except MissingExtraError as error:
        say_error(str(error))
        return []


def show_with_page(report: Report | None, folder: Path) -> None:
    """Show a report, if there is one, and leave the page in its folder."""
    if report is not None:
        show_report(report._replace(files=[*report.files, *pages(folder)]))


def show_studied(studied: Studied, with_page: bool = True) -> None:
    """Show what a study leaves; exit with code 1 if a policy failed."""
    if with_page:
        show_with_page(studied.report, studied.folder.path)
    elif studied.report is not None:
        show_report(studied.report)
    end_with(studied.failures, studied.folder)


def end_with(failures: Mapping[str, Exception], folder: Folder) -> None:
    """Name each policy that failed; exit with code 1 if there is one.

    An empty folder takes a corrected command.
    """
    from ata_gym.bench.store.folder import withdraw_if_empty

    for policy, error in failures.items():
        say_failure(policy, error, folder.failure(policy))
    if failures:
        withdraw_if_empty(folder)
        raise typer.Exit(1)


def say_failure(what: str, error: Exception, note: Path) -> None:
    """Say what failed, why, and where its traceback is."""
    from ata_gym.bench.runner.jobs import KilledError
    from ata_gym.utils.errors import described

    if isinstance(error, KilledError):
        sentence = str(error)
    else:
        sentence = described(error)
    say_error(f"{what} failed: {sentence} (see {note})")
