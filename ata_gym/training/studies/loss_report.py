"""The report on a training: when each policy and method reaches a low loss, and the loss against their clocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import polars as pl

from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.experiment.store import Folder
from ata_gym.bench.report.report import Report, write
from ata_gym.bench.report.statistics import summarise
from ata_gym.bench.report.summary_tables import summary_tables
from ata_gym.bench.report.table import markdown
from ata_gym.training.studies import comparison
from ata_gym.training.studies.curves import draw, goal, lay
from ata_gym.training.trainer import Trainer


def report(
    experiment: Experiment,
    policies: list[str],
    folder: Folder,
    trajectory: pl.DataFrame,
    trainer: Trainer,
    frames: Mapping[comparison.MethodChoice, pl.DataFrame],
) -> Report:
    """Compare policies and methods at a low loss, and leave tables and the picture in the folder.

    ``trajectory`` is what ``trajectory.train_once`` returned, and each of ``frames`` what ``comparison.run_once`` did.
    """
    problem = trainer.problem.name
    records = folder.results(policies)
    curves = lay(trajectory, records)
    low = goal(curves)
    clocks = records.filter(pl.col("round") <= low.round)
    if frames:
        methods = comparison.lay(frames, experiment)
        clocks = pl.concat([clocks, comparison.reached(methods, low, experiment.seed)], how="diagonal")
        curves = pl.concat([curves, methods])
    summary = summarise(clocks).filter(~pl.col("quantity").is_in(["regret", "support"]))
    missed = " (-: not reached)" if summary["mean"].is_null().any() else ""
    title = f"{problem} to loss {low.loss:.3g}{missed}\non {experiment.about}"
    tables = summary_tables(summary, replace(experiment, rounds=low.round), title)
    files = write(folder.path, {"table.md": markdown(tables), "table.csv": summary})
    if frames:
        tables.append(comparison.table(frames, experiment, trainer.optimizer_choice.lr))
    end = trajectory.row(-1, named=True)
    figures = [f"{name.replace('_', ' ')} {end[name]:.4g}" for name in trajectory.columns[2:]]
    last = curves.filter(policy=policies[0])["loss"][-1]
    remark = (
        f"{'the policies, ' * bool(frames)}after all {experiment.rounds:,} rounds: {', '.join(figures)}, "
        f"training loss {last:.4g} (mean of the last rounds)"
    )
    pictures = draw(curves, f"{problem} on {experiment.about}", folder.path / "plots" / "loss")
    return Report(summary, tables, files, pictures, remark=remark)
