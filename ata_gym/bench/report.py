"""The report on a results folder: tables and pictures."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import polars as pl

from ata_gym.bench import plots, tables
from ata_gym.bench.experiment import Experiment
from ata_gym.bench.store import Folder
from ata_gym.bench.summary import summarise


class Report(NamedTuple):
    """What there is to show."""

    summary: pl.DataFrame
    """As ``summary.summarise`` gives it."""
    tables: list[tables.Titled]
    files: list[Path]
    """The tables as files."""
    pictures: list[Path]


def report(experiment: Experiment, policies: list[str], folder: Folder) -> Report:
    """Summarise finished policies in the order given, and leave tables and pictures in their folder."""
    records = folder.results(policies)
    summary = summarise(records, experiment.price)
    return Report(
        summary,
        tables.tables(summary, experiment),
        tables.save(summary, experiment, folder.path),
        plots.draw(records, experiment, folder.path / "plots"),
    )
