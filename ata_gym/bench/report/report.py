"""A report is what a command shows of a results folder and leaves in it; here is that of an experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import polars as pl

from ata_gym.bench.cost_regret import REGRETS
from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.experiment.store import Folder
from ata_gym.bench.report import plots
from ata_gym.bench.report.headline import Competitor, headline
from ata_gym.bench.report.statistics import ends, summarise
from ata_gym.bench.report.summary_tables import summary_tables
from ata_gym.bench.report.table import Table, markdown
from ata_gym.utils.manifest import write_listed


class Report(NamedTuple):
    """What there is to show."""

    summary: pl.DataFrame  # the figures with all digits
    tables: Sequence[Table]  # the tables for the terminal
    files: Sequence[Path]  # the tables as files
    pictures: Sequence[Path]
    heading: str = ""  # a line above the tables
    remark: str = ""  # lines below the tables


def report(experiment: Experiment, policies: list[str], folder: Folder) -> Report:
    """Summarise finished policies in the order given, and leave tables and pictures in their folder."""
    return report_on(folder.results(policies), experiment, list(map(Competitor.of, policies)), folder.path)


def report_on(records: pl.DataFrame, experiment: Experiment, players: Sequence[Competitor], folder: Path) -> Report:
    """Summarise records, and leave tables and pictures in a folder."""
    summary = summarise(records, experiment.scenario.price)
    tables = summary_tables(summary, experiment)
    files = write(folder, {"table.md": markdown(tables), "table.csv": summary})
    pictures = plots.draw(records, experiment, folder / "plots")
    return Report(summary, tables, files, pictures, remark=findings(records, experiment, players))


def findings(records: pl.DataFrame, experiment: Experiment, players: Sequence[Competitor]) -> str:
    """Who is best in each game, in words; and what the regrets are where both are known."""
    said = headline(ends(records, experiment.scenario.price), players)
    return f"{said}\n{REGRETS}" if plots.known(records, "cost_regret") else said


def write(folder: Path, contents: Mapping[str, str | pl.DataFrame]) -> list[Path]:
    """Write texts, and frames as CSV with all digits, by file name; each file appears whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        text = content if isinstance(content, str) else content.write_csv()
        write_listed(folder / name, partial(Path.write_text, data=text, encoding="utf-8", newline="\n"))
    return [folder / name for name in contents]
