"""``ata-gym report``: the page of a results folder."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from ata_gym.cli.console import say, say_error
from ata_gym.utils.atomic import check_place
from ata_gym.utils.extras import MissingExtraError, require

PAGES = {
    "bench": "ata_gym.bench.page.experiment_page",
    "leaderboard": "ata_gym.bench.leaderboard.page",
    "track": "ata_gym.bench.tracking.page",
    "train": "ata_gym.training.studies.page",
    "learn": "ata_gym.rl.learning.page",
}
"""The modules that make the pages of studies: ``page(folder, note)``."""


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The results folder of a command.")],
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="By default report.html in the folder.")] = None,
) -> None:
    """Write one HTML page with all results of a folder.

    It has tables, pictures, cards and how to reproduce them. It needs no network, and may be sent as it is. For folders
    of bench, leaderboard, track, train and learn, which also write it themselves when they end.

    ```
    ata-gym bench --scenario icml2025-regret --rounds 1000 --out results/regret
    ata-gym report results/regret
    ata-gym report results/regret --out regret.html
    ```
    """
    written = write_page(folder, out)
    say(f"{written} ({written.stat().st_size / 1e6:.1f} MB): open {written.resolve().as_uri()}")


def write_page(folder: Path, out: Path | None = None) -> Path:
    """Write the page of a results folder, by default into it.

    Raises
    ------
    FileNotFoundError, ValueError, DamagedError
        If there is no such folder, it holds nothing that has a page, or a file in it is damaged.
    """
    from ata_gym.bench.page.note import read_note  # noqa: PLC0415 - these imports take a second
    from ata_gym.bench.page.render import NAME, write  # noqa: PLC0415

    note, target = read_note(folder), folder / NAME if out is None else out
    check_place(target)
    if note["study"] not in PAGES:
        raise ValueError(
            f"{folder} holds the results of {note['study']!r}, which has no page here: there are pages of "
            f"{', '.join(PAGES)}"
        )
    if note["study"] == "train":
        require("torch", extra="train", purpose="The page of a training")
    module: Any = import_module(PAGES[note["study"]])
    try:
        made = module.page(folder, note)
    except KeyError as error:
        raise ValueError(
            f"{folder} was made by another version of ata-gym (its note lacks {error}): run the command again with the "
            "same --out"
        ) from error
    return write(made, target)


def pages(folder: Path) -> list[Path]:
    """The page that a command leaves at its end; none where plotly or Jinja2 is missing, which is said."""
    try:
        return [write_page(folder)]
    except MissingExtraError as error:
        say_error(str(error))
        return []
